//! Recorded sessions of a real kube-apiserver, replayed request by request against this server.
//!
//! Every exchange and every watch line must be equal, but for what two runs of a real server differ in themselves (uids,
//! times, revision numbers, tokens, generated names, addresses, the order of `managedFields` and of the causes of a failed
//! apply). What else differs is listed, with a reason, in `fixtures/kubernetes/exceptions.txt`; an entry there that no
//! longer differs fails the test too.

mod cluster;
mod compare;
mod others;
mod session;

use std::collections::BTreeMap;
use std::path::PathBuf;

use session::Difference;

fn fixtures() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/kubernetes"))
}

/// Reasons by session and sequence number. A line is `<session> <seq>[,<seq>...] <reason>`.
fn exceptions() -> BTreeMap<(String, u64), String> {
    let text = std::fs::read_to_string(fixtures().join("exceptions.txt")).expect("the list of exceptions");
    let lines = text.lines().filter(|line| !line.trim().is_empty() && !line.starts_with('#'));
    lines
        .flat_map(|line| {
            let mut parts = line.splitn(3, ' ');
            let (session, seqs) = (parts.next().expect("a session"), parts.next().expect("sequence numbers"));
            let reason = parts.next().expect("a reason").to_owned();
            let seqs: Vec<u64> = seqs.split(',').map(|seq| seq.parse().expect("a number")).collect();
            seqs.into_iter().map(move |seq| ((session.to_owned(), seq), reason.clone()))
        })
        .collect()
}

#[test]
fn every_recorded_exchange_is_answered_alike_or_listed_as_an_exception() {
    let mut exceptions = exceptions();
    let mut sessions: Vec<PathBuf> = std::fs::read_dir(fixtures())
        .expect("the fixtures")
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "gz"))
        .collect();
    sessions.sort();
    assert!(!sessions.is_empty());
    let only = std::env::var("SESSION").unwrap_or_default();
    let (mut exchanges, mut equal, mut excepted, mut failures) = (0, 0, 0, Vec::new());
    for path in sessions.iter().filter(|path| path.to_string_lossy().contains(&only)) {
        let (name, results) = session::replay(path);
        let (mut same, mut listed) = (0, 0);
        for (seq, differences) in &results {
            match (exceptions.remove(&(name.clone(), *seq)), differences.is_empty()) {
                (None, true) => same += 1,
                (Some(_), false) => listed += 1,
                (Some(reason), true) => failures.push(format!("{name} {seq}: listed ({reason}) but equal")),
                (None, false) => failures.push(report(&name, *seq, differences)),
            }
        }
        println!("{name}: {} exchanges, {same} equal, {listed} excepted", results.len());
        exchanges += results.len();
        equal += same;
        excepted += listed;
    }
    println!("{} sessions, {exchanges} exchanges, {equal} equal, {excepted} excepted", sessions.len());
    if only.is_empty() {
        failures.extend(exceptions.keys().map(|(name, seq)| format!("{name} {seq}: listed, but not recorded")));
    }
    assert!(failures.is_empty(), "{} failures:\n{}", failures.len(), failures.join("\n"));
}

fn report(name: &str, seq: u64, differences: &[Difference]) -> String {
    let lines: Vec<String> = differences.iter().take(8).map(|d| format!("    {d}")).collect();
    format!("{name} {seq}:\n{}", lines.join("\n"))
}
