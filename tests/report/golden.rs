//! What scenarios of the catalogue do, in short, kept as snapshots: a change of behaviour is seen in review.
//!
//! Steps, calls of clients, phases, crashes, verdicts; tenths of a second, and no ids.
use crate::runs::{pool, run};
use photofinish::options::Options;
use photofinish::pool::Run;
use photofinish_sim::trace::Entry;

/// The line of an entry that a reader of the story needs.
fn told(e: &Entry) -> Option<String> {
    let field = |name| e.field(name).unwrap_or("?");
    match (&*e.kind, &*e.name) {
        ("step", _) => Some(format!("> {}", e.text)),
        ("op" | "reply", _) => Some(e.text.clone()),
        ("host", "start") if e.at_ns == 0 => None,
        // How many connections a client opens is its own affair.
        ("net", "connect") => None,
        ("host" | "net" | "panic", _) => Some(format!("[{} {}] {}", e.kind, e.name, e.text)),
        ("log", _) if e.text.starts_with("Sandbox phase changed") => {
            let (name, old, new) = (field("sandbox_name"), field("old_phase"), field("new_phase"));
            Some(format!("{}: {name} {old} -> {new} ({})", e.host, field("by")))
        }
        _ => None,
    }
}

/// The text without generated ids.
fn without_ids(text: &str) -> String {
    let is_id = |word: &str| {
        let shape: Vec<usize> = word.split('-').map(str::len).collect();
        shape == [8, 4, 4, 4, 12] && word.chars().all(|c| c == '-' || c.is_ascii_hexdigit())
    };
    let parts = text.split_inclusive(|c: char| !c.is_ascii_alphanumeric() && c != '-');
    let short = |part: &str| {
        let word = part.trim_end_matches(|c: char| !c.is_ascii_alphanumeric());
        // A name may stand before an id: os-supervisor-<id>.
        let at = word.len().saturating_sub(36);
        match word.is_char_boundary(at) && is_id(&word[at..]) {
            true => format!("{}ID{}", &word[..at], &part[word.len()..]),
            false => part.to_owned(),
        }
    };
    parts.map(short).collect()
}

fn story(run: &Run) -> String {
    let mut out = String::new();
    let mut last = None;
    for e in &run.entries {
        let Some(line) = told(e) else { continue };
        let tenths = e.at_ns / 100_000_000;
        // The time where it is another than that of the line before.
        let time = match last == Some(tenths) {
            true => String::new(),
            false => format!("{}.{}s", tenths / 10, tenths % 10),
        };
        last = Some(tenths);
        out += &format!("{time:>7}  {}\n", without_ids(&line));
    }
    out += &format!("{}\n", run.report.outcome);
    for broken in &run.report.violations {
        out += &format!("  {}: {}\n", broken.property, without_ids(&broken.violation.why));
    }
    out
}

fn both_sides(name: &str) -> String {
    let pool = pool();
    let side = |options| story(&run(&pool, name, options));
    format!("as reported\n{}\nwith the remedies\n{}", side(Options::as_reported()), side(Options::new()))
}

#[test]
fn late_stop_snapshot_after_stopped() {
    insta::assert_snapshot!(both_sides("late-stop-snapshot-after-stopped"));
}

#[test]
fn late_create_snapshot_after_stopped() {
    insta::assert_snapshot!(both_sides("late-create-snapshot-after-stopped"));
}

#[test]
fn start_recovers_stale_stopped() {
    insta::assert_snapshot!(both_sides("start-recovers-stale-stopped"));
}

#[test]
fn empty_backend_stuck_provisioning() {
    insta::assert_snapshot!(both_sides("empty-backend-stuck-provisioning"));
}

#[test]
fn stories_have_no_ids() {
    let id = "c584133a-c916-4b3c-ac82-9abe1f4532e1";
    for (text, expected) in [
        (format!("get /pods/os-supervisor-{id}/log of {id}."), "get /pods/os-supervisor-ID/log of ID."),
        ("stop demo -> OK (Stopped)".to_owned(), "stop demo -> OK (Stopped)"),
        ("2026-11-30".to_owned(), "2026-11-30"),
    ] {
        assert_eq!(without_ids(&text), expected);
    }
}
