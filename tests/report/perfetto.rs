//! The file of `--perfetto` keeps the rules of the Trace Event Format, for real runs: a viewer that breaks them shows
//! slices that are not there, or drops arrows.
use std::collections::BTreeMap;
use std::process::Command;

use serde_json::Value;

/// A process and a thread.
type Track = (u64, u64);

fn events(scenario: &str, options: &[&str]) -> Vec<Value> {
    let folder =
        std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("perfetto-{}-{scenario}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let mut command = Command::new(env!("CARGO_BIN_EXE_photofinish"));
    command.args(["run", scenario, "--quiet", "--perfetto", "run.json"]).args(options).current_dir(&folder);
    let code = command.output().expect("it starts").status.code();
    assert!(matches!(code, Some(0 | 1)), "{scenario}: {code:?}");
    let text = std::fs::read_to_string(folder.join("run.json")).expect("the file");
    let _ = std::fs::remove_dir_all(&folder);
    let trace: Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(trace["displayTimeUnit"], "ms", "the object form");
    trace["traceEvents"].as_array().expect("the events").clone()
}

fn number(event: &Value, key: &str) -> u64 {
    event[key].as_u64().unwrap_or_else(|| panic!("`{key}` is a whole number: {event}"))
}
fn track(event: &Value) -> Track {
    (number(event, "pid"), number(event, "tid"))
}
/// Microseconds to nanoseconds, as Perfetto's importer reads them: what is behind the point is cut off.
fn at(event: &Value, key: &str) -> u64 {
    let micros = event[key].as_f64().unwrap_or_else(|| panic!("`{key}` is a number: {event}"));
    assert!(micros >= 0.0, "{event}");
    (micros * 1e3) as u64
}
fn of<'e>(events: &'e [Value], phase: &str) -> Vec<&'e Value> {
    events.iter().filter(|e| e["ph"] == phase).collect()
}

fn keeps_the_rules(events: &[Value]) {
    let allowed = ["M", "X", "s", "f", "b", "e", "i"];
    for e in events {
        assert!(e["ph"].as_str().is_some_and(|phase| allowed.contains(&phase)), "{e}");
        assert!(e["name"].is_string() && e["pid"].is_u64() && e["tid"].is_u64(), "{e}");
        assert!(e["ph"] == "M" || e["ts"].is_number() && e["cat"].is_string(), "{e}");
    }
    // Every track has a name, and none has two.
    let mut names: BTreeMap<(String, Track), usize> = BTreeMap::new();
    for e in of(events, "M") {
        let (pid, tid) = track(e);
        let what = e["name"].as_str().expect("text").to_owned();
        *names.entry((what.clone(), if what.starts_with("process") { (pid, 0) } else { (pid, tid) })).or_default() += 1;
    }
    assert!(names.values().all(|n| *n == 1), "{names:?}");
    for e in events.iter().filter(|e| e["ph"] != "M") {
        let (pid, tid) = track(e);
        assert!(names.contains_key(&("process_name".to_owned(), (pid, 0))), "{e}");
        assert!(names.contains_key(&("thread_name".to_owned(), (pid, tid))), "{e}");
    }
    // Slices of a track are in the order of time, and one is over when the next begins.
    let mut over: BTreeMap<Track, u64> = BTreeMap::new();
    for e in of(events, "X") {
        let (from, lasts) = (at(e, "ts"), at(e, "dur"));
        let before = over.insert(track(e), from + lasts).unwrap_or(0);
        assert!(from >= before && lasts > 0, "it begins before {before}: {e}");
    }
    // Each arrow leaves a slice and ends at a slice, later or at the same time.
    let slices: Vec<(Track, u64)> = of(events, "X").into_iter().map(|e| (track(e), at(e, "ts"))).collect();
    let slices: std::collections::BTreeSet<_> = slices.into_iter().collect();
    let mut arrows: BTreeMap<u64, Vec<&Value>> = BTreeMap::new();
    for e in events.iter().filter(|e| e["ph"] == "s" || e["ph"] == "f") {
        assert!(slices.contains(&(track(e), at(e, "ts"))), "it is bound to no slice: {e}");
        arrows.entry(number(e, "id")).or_default().push(e);
    }
    assert!(!arrows.is_empty(), "there are arrows");
    for ends in arrows.values() {
        let [from, to] = ends[..] else { panic!("an arrow has two ends: {ends:?}") };
        assert_eq!((from["ph"].as_str(), to["ph"].as_str()), (Some("s"), Some("f")), "{ends:?}");
        assert!(at(from, "ts") <= at(to, "ts") && track(from) != track(to), "{ends:?}");
        assert_eq!(to["bp"], "e", "it ends at the slice around it: {to}");
    }
    // What lasts begins and ends once.
    let mut lasting: BTreeMap<(&str, &str), Vec<&Value>> = BTreeMap::new();
    for e in events.iter().filter(|e| e["ph"] == "b" || e["ph"] == "e") {
        let text = |key: &str| e[key].as_str().expect("text");
        lasting.entry((text("cat"), text("id"))).or_default().push(e);
    }
    for ends in lasting.values() {
        let [from, to] = ends[..] else { panic!("it has two ends: {ends:?}") };
        assert_eq!((from["ph"].as_str(), to["ph"].as_str()), (Some("b"), Some("e")), "{ends:?}");
        assert!(at(from, "ts") <= at(to, "ts") && from["name"] == to["name"], "{ends:?}");
    }
}

#[test]
fn a_failing_run_keeps_the_rules_of_the_trace_event_format() {
    let events = events("late-stop-snapshot-after-stopped", &["--as-reported"]);
    keeps_the_rules(&events);
    let marks: Vec<&str> = of(&events, "i").iter().filter_map(|e| e["name"].as_str()).collect();
    assert!(marks.contains(&"stopped-is-stable"), "{marks:?}");
}

#[test]
fn a_run_with_crashes_and_several_sandboxes_keeps_them_too() {
    keeps_the_rules(&events("lifecycle", &["--seed", "3"]));
}
