//! The same run id is the same run, in any process, folder and environment.
use serde_json::Value;
use std::collections::BTreeMap;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

const PROGRAM: &str = env!("CARGO_BIN_EXE_photofinish");

/// Runs the program in a folder and an environment of its own, and gives the one JSON line that it prints.
fn json(number: usize, arguments: &[&str]) -> Value {
    let folder = std::env::temp_dir().join(format!("photofinish-replay-{}-{}", std::process::id(), number % 7));
    std::fs::create_dir_all(&folder).expect("a folder of its own");
    let out = Command::new(PROGRAM)
        .args(arguments)
        .arg("--json")
        .current_dir(&folder)
        .env_clear()
        .env("TZ", format!("UTC{}", number % 12))
        .env("NOISE", "x".repeat(number % 977))
        .stderr(Stdio::inherit())
        .output()
        .expect("the program runs");
    serde_json::from_slice(&out.stdout).unwrap_or_else(|e| panic!("{arguments:?} printed no JSON line: {e}"))
}

fn text<'v>(line: &'v Value, key: &str) -> &'v str {
    line[key].as_str().unwrap_or_else(|| panic!("no {key} in {line}"))
}

#[test]
fn one_run_id_has_one_trace_hash_in_a_thousand_fresh_processes() {
    let printed = json(0, &["run", "late-stop-snapshot-after-stopped", "--seed", "7"]);
    let (id, hash) = (text(&printed, "run_id"), text(&printed, "trace_hash"));
    let (next, hashes) = (AtomicUsize::new(1), Mutex::new(BTreeMap::<String, usize>::new()));
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, |n| n.get()) {
            scope.spawn(|| {
                while let number @ ..=1_000 = next.fetch_add(1, Ordering::Relaxed) {
                    let again = json(number, &["replay", id]);
                    *hashes.lock().expect("no panic").entry(text(&again, "trace_hash").to_owned()).or_default() += 1;
                }
            });
        }
    });
    assert_eq!(*hashes.lock().expect("no panic"), BTreeMap::from([(hash.to_owned(), 1_000)]), "{id}");
}

#[test]
fn a_failure_replays_as_the_same_failure() {
    let printed = json(1, &["run", "late-stop-snapshot-after-stopped", "--as-reported"]);
    let again = json(2, &["replay", text(&printed, "run_id")]);
    assert_eq!(text(&printed, "outcome"), "violated");
    for key in ["outcome", "property", "trace_hash", "violations"] {
        assert_eq!(printed[key], again[key], "{key}");
    }
}
