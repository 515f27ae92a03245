//! A run as Chrome trace events, which <https://ui.perfetto.dev> opens: a process a host, a thread a lane, an arrow a
//! message.
//!
//! Format: "Trace Event Format", JSON object form. Times are microseconds. What lasts (requests, spans, holds) is
//! asynchronous, since on one host such things overlap without nesting; an entry is a slice of a microsecond at most, for
//! arrows end at slices. Slices of one thread must not overlap in part, and an arrow finds its slice by time: so entries of
//! one lane and instant stand one nanosecond apart, and a slice ends where the next begins.
use indexmap::IndexMap;
use photofinish_sim::trace::Entry;
use serde_json::{Map, Value, json};

use crate::html::bars::bars;
use crate::html::lanes::{Lane, host_of, label, lanes};
use crate::outcome::RunReport;
use crate::reading::{Reading, Role};

/// How long an entry is drawn at most, nanoseconds.
const SLICE_NS: u64 = 1_000;

/// The trace of a run as one JSON text.
pub fn trace(report: &RunReport, entries: &[Entry], reading: &Reading, role: &dyn Fn(&str) -> Role) -> String {
    let (lanes, of) = lanes(entries, role);
    let tracks = Tracks::new(entries, &lanes, &of);
    let lane_id = |e: &Entry| of.get(e.id as usize).and_then(|at| lanes.get(*at)).map_or("", |lane| &*lane.id);
    let (drawn_at, ends) = slices(entries, &of);
    let mut events = tracks.named();
    for (n, e) in entries.iter().enumerate() {
        events.push(slice(e, tracks.of(e), (drawn_at[n], ends[n]), reading));
    }
    for e in entries {
        // What a host does for a reason of its own needs no arrow.
        if let Some(cause) = e.cause.and_then(|cause| entries.get(cause as usize)).filter(|c| host_of(c) != host_of(e))
        {
            events.push(flow("s", e.id, drawn_at[cause.id as usize], tracks.of(cause)));
            events.push(flow("f", e.id, drawn_at[e.id as usize], tracks.of(e)));
        }
    }
    for (n, bar) in bars(entries, lane_id).iter().enumerate() {
        let from = &entries[bar.from as usize];
        // Drawn where it is seen: a hold in the lane of its stream, a wait in that of the event.
        let drawn = tracks.lane(&bar.lane).unwrap_or_else(|| tracks.of(from));
        let end_ns = bar.to.map_or(report.virtual_ns, |to| entries[to as usize].at_ns).max(from.at_ns);
        for (phase, at_ns) in [("b", from.at_ns), ("e", end_ns)] {
            events.push(json!({
                "ph": phase, "cat": bar.kind, "id": format!("{}-{n}", bar.kind), "name": label(from),
                "ts": micros(at_ns), "pid": drawn.0, "tid": drawn.1,
            }));
        }
    }
    for broken in &report.violations {
        if let Some(e) = entries.get(broken.violation.entry as usize) {
            let (pid, tid) = tracks.of(e);
            events.push(json!({
                "ph": "i", "s": "g", "cat": "violation", "name": broken.property, "ts": micros(e.at_ns),
                "pid": pid, "tid": tid, "args": {"why": broken.violation.why},
            }));
        }
    }
    json!({"displayTimeUnit": "ms", "traceEvents": events}).to_string()
}

/// Where the slices of entries begin and end, nanoseconds: in each lane one behind the other.
fn slices(entries: &[Entry], lane_of: &[usize]) -> (Vec<u64>, Vec<u64>) {
    let lane = |n: usize| lane_of.get(n).copied().unwrap_or(0);
    // By lane: the entry before, and where it begins.
    let mut before: IndexMap<usize, (usize, u64)> = IndexMap::new();
    let mut begins: Vec<u64> = Vec::with_capacity(entries.len());
    let mut ends: Vec<u64> = Vec::with_capacity(entries.len());
    for (n, e) in entries.iter().enumerate() {
        let earliest = before.get(&lane(n)).map_or(0, |(_, at)| at + 1);
        let begin = e.at_ns.max(earliest);
        if let Some((last, _)) = before.insert(lane(n), (n, begin)) {
            ends[last] = ends[last].min(begin);
        }
        begins.push(begin);
        ends.push(begin + SLICE_NS);
    }
    (begins, ends)
}

/// Nanoseconds as microseconds that are the same number of nanoseconds again for a reader that cuts off what is behind the
/// point, as Perfetto's does: one in 160 would lose a nanosecond, and slices that stand one apart would overlap.
fn micros(ns: u64) -> f64 {
    let exact = ns as f64 / 1e3;
    if ((exact * 1e3) as u64) < ns { exact.next_up() } else { exact }
}

/// Processes and threads by lane: numbers from 1, since 0 stands for the idle process.
struct Tracks<'a> {
    lanes: &'a [Lane],
    of: &'a [usize],
    /// By position of the lane.
    places: Vec<(usize, usize)>,
    hosts: IndexMap<String, usize>,
}

impl<'a> Tracks<'a> {
    fn new(entries: &[Entry], lanes: &'a [Lane], of: &'a [usize]) -> Tracks<'a> {
        // The host of a lane is that of its first entry.
        let mut first: Vec<Option<&str>> = vec![None; lanes.len()];
        for (e, lane) in entries.iter().zip(of) {
            first[*lane].get_or_insert_with(|| host_of(e));
        }
        let mut hosts: IndexMap<String, usize> = IndexMap::new();
        let places = first.iter().enumerate().map(|(n, host)| {
            let host = host.unwrap_or("world").to_owned();
            let next = hosts.len() + 1;
            (*hosts.entry(host).or_insert(next), n + 1)
        });
        let places = places.collect();
        Tracks { lanes, of, places, hosts }
    }
    fn of(&self, e: &Entry) -> (usize, usize) {
        self.of.get(e.id as usize).and_then(|lane| self.places.get(*lane)).copied().unwrap_or((1, 1))
    }
    fn lane(&self, id: &str) -> Option<(usize, usize)> {
        self.lanes.iter().position(|lane| lane.id == id).and_then(|at| self.places.get(at)).copied()
    }
    /// The events that give names and an order to all of them.
    fn named(&self) -> Vec<Value> {
        let host = |(host, pid): (&String, &usize)| {
            [
                json!({"ph": "M", "pid": pid, "tid": 0, "name": "process_name", "args": {"name": host}}),
                json!({"ph": "M", "pid": pid, "tid": 0, "name": "process_sort_index", "args": {"sort_index": pid}}),
            ]
        };
        let lane = |(lane, (pid, tid)): (&Lane, &(usize, usize))| {
            [
                json!({"ph": "M", "pid": pid, "tid": tid, "name": "thread_name", "args": {"name": lane.title}}),
                json!({"ph": "M", "pid": pid, "tid": tid, "name": "thread_sort_index", "args": {"sort_index": tid}}),
            ]
        };
        self.hosts.iter().flat_map(host).chain(self.lanes.iter().zip(&self.places).flat_map(lane)).collect()
    }
}

fn slice(e: &Entry, (pid, tid): (usize, usize), (from_ns, to_ns): (u64, u64), reading: &Reading) -> Value {
    let mut args: Map<String, Value> = e.fields.iter().map(|(k, v)| (k.to_string(), json!(v))).collect();
    args.insert("entry".into(), json!(e.id));
    args.insert("text".into(), json!(e.text));
    let name = reading.labels.get(&e.id).cloned().unwrap_or_else(|| label(e));
    json!({
        "ph": "X", "cat": e.kind, "name": name, "ts": micros(from_ns), "dur": micros(to_ns - from_ns), "pid": pid,
        "tid": tid, "args": args,
    })
}

fn flow(phase: &str, id: u64, at_ns: u64, (pid, tid): (usize, usize)) -> Value {
    json!({
        "ph": phase, "bp": "e", "cat": "message", "name": "message", "id": id, "ts": micros(at_ns), "pid": pid,
        "tid": tid,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::{Broken, Outcome};
    use crate::property::Violation;

    fn e(id: u64, host: &'static str, kind: &'static str, cause: Option<u64>) -> Entry {
        Entry {
            id,
            at_ns: id * 1_500,
            host: host.into(),
            kind: kind.into(),
            name: "stop".into(),
            text: format!("{host}: stop demo"),
            fields: vec![("id".into(), "1".into())],
            spans: vec![],
            cause,
        }
    }

    #[test]
    fn times_survive_a_reader_that_cuts_off_and_one_that_rounds() {
        let primes = [1u64, 7, 1_009, 1_453_561, 604_800_037];
        for ns in primes.into_iter().flat_map(|prime| (0..2_000).map(move |n| n * prime)) {
            let read = micros(ns) * 1e3;
            assert_eq!((read as u64, read.round() as u64), (ns, ns));
        }
        assert_eq!(micros(1_500), 1.5);
    }

    #[test]
    fn entries_of_a_lane_stand_one_behind_the_other_and_do_not_overlap() {
        let at = |at_ns: [u64; 4]| -> Vec<Entry> {
            (0..).zip(at_ns).map(|(id, at_ns)| Entry { at_ns, ..e(id, "gateway", "log", None) }).collect()
        };
        for (times, lanes, begins, ends) in [
            ([0, 5_000, 9_000, 9_999], [0, 0, 0, 0], [0, 5_000, 9_000, 9_999], [1_000, 6_000, 9_999, 10_999]),
            ([7, 7, 7, 8], [0, 0, 0, 0], [7, 8, 9, 10], [8, 9, 10, 1_010]),
            ([7, 7, 7, 7], [0, 1, 0, 1], [7, 7, 8, 8], [8, 8, 1_008, 1_008]),
        ] {
            assert_eq!(slices(&at(times), &lanes), (begins.to_vec(), ends.to_vec()), "{times:?} in {lanes:?}");
        }
    }

    #[test]
    fn hosts_are_processes_lanes_are_threads_and_messages_are_arrows() {
        let entries = [
            e(0, "client", "op", None),
            e(1, "gateway", "log", Some(0)),
            e(2, "gateway", "log", Some(1)),
            e(3, "client", "reply", Some(2)),
        ];
        let violation = Violation { entry: 2, why: "because".into(), led: vec![] };
        let report = RunReport {
            outcome: Outcome::Violated,
            violations: vec![Broken { property: "stable".into(), violation }],
            vacuous: vec![],
            trace_hash: String::new(),
            virtual_ns: 9_000,
            end: None,
            wrong_pins: vec![],
            unused_pins: vec![],
            crash_points: vec![],
        };
        let role = |host: &str| if host == "client" { Role::Client } else { Role::Gateway };
        let text = trace(&report, &entries, &Reading::default(), &role);
        let trace: Value = serde_json::from_str(&text).expect("JSON");
        let events = trace["traceEvents"].as_array().expect("events");
        let told: Vec<(&str, &str, f64, u64)> = events
            .iter()
            .filter(|e| e["ph"] != "M")
            .map(|e| {
                let text = |key: &str| e[key].as_str().unwrap_or_default();
                (text("ph"), text("name"), e["ts"].as_f64().expect("a time"), e["pid"].as_u64().expect("a process"))
            })
            .collect();
        let expected = [
            ("X", "stop demo", 0.0, 1),
            ("X", "gateway: stop demo", 1.5, 2),
            ("X", "gateway: stop demo", 3.0, 2),
            ("X", "client: stop demo", 4.5, 1),
            ("s", "message", 0.0, 1),
            ("f", "message", 1.5, 2),
            ("s", "message", 3.0, 2),
            ("f", "message", 4.5, 1),
            ("b", "stop demo", 0.0, 1),
            ("e", "stop demo", 4.5, 1),
            ("i", "stable", 3.0, 2),
        ];
        assert_eq!(told, expected);
        let named: Vec<&str> = events.iter().filter_map(|e| e["args"]["name"].as_str()).collect();
        assert_eq!(named, ["client", "gateway", "client", "gateway"]);
    }
}
