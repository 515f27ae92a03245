//! What lasts: requests until they are answered, spans, holds, and events that wait on their way to a watcher.
use std::collections::BTreeMap;

use photofinish_sim::trace::{Entry, EntryId};
use serde::Serialize;

use super::lanes::host_of;

/// From one entry to another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Bar {
    /// `call`, `span`, `hold`, `wait`, `down`.
    pub(crate) kind: &'static str,
    /// Where it is drawn: the id of a lane.
    pub(crate) lane: String,
    pub(crate) from: EntryId,
    /// `None`: until the end.
    pub(crate) to: Option<EntryId>,
}

/// An event that waits less than this is on its way, not late.
const LATE_NS: u64 = 5_000_000;

/// The entry of the write that made a revision: one write may make several, and is told once, with the last.
pub(crate) fn writes(entries: &[Entry]) -> BTreeMap<u64, EntryId> {
    let rv = |e: &Entry| e.field("rv").and_then(|rv| rv.parse().ok());
    entries.iter().filter(|e| e.kind == "http").filter_map(|e| Some((rv(e)?, e.id))).collect()
}

/// The write that made this revision.
pub(crate) fn write_of(writes: &BTreeMap<u64, EntryId>, rv: u64) -> Option<EntryId> {
    writes.range(rv..).next().map(|(_, id)| *id)
}

/// All bars of a trace. `lane` gives the id of an entry's lane.
pub(crate) fn bars<'l>(entries: &[Entry], lane: impl Fn(&Entry) -> &'l str) -> Vec<Bar> {
    let mut bars: Vec<Bar> = Vec::new();
    let writes = writes(entries);
    // Bars that have begun, by what ends them.
    let mut calls: BTreeMap<&str, usize> = BTreeMap::new();
    let mut spans: BTreeMap<(&str, &str), Vec<usize>> = BTreeMap::new();
    let mut holds: BTreeMap<&str, usize> = BTreeMap::new();
    let mut down: BTreeMap<&str, usize> = BTreeMap::new();
    let begin = |bars: &mut Vec<Bar>, kind, lane: &str, from| {
        bars.push(Bar { kind, lane: lane.to_owned(), from, to: None });
        bars.len() - 1
    };
    for e in entries {
        match (&*e.kind, &*e.name) {
            ("op", _) => {
                if let Some(id) = e.field("id") {
                    calls.insert(id, begin(&mut bars, "call", lane(e), e.id));
                }
            }
            ("reply", _) => {
                if let Some(bar) = e.field("id").and_then(|id| calls.remove(id)) {
                    bars[bar].to = Some(e.id);
                }
            }
            ("span", name) => {
                let bar = begin(&mut bars, "span", lane(e), e.id);
                spans.entry((&*e.host, name)).or_default().push(bar);
            }
            ("span-end", name) => {
                // Of several open spans of one name it is that with the same fields, or else the newest.
                let open = spans.entry((&*e.host, name)).or_default();
                let same = open.iter().rposition(|bar| entries[bars[*bar].from as usize].fields == e.fields);
                if let Some(bar) = same.map(|at| open.remove(at)).or_else(|| open.pop()) {
                    bars[bar].to = Some(e.id);
                }
            }
            ("net", "hold") => {
                if let (Some(name), Some(stream)) = (e.field("as"), e.field("stream")) {
                    holds.insert(name, begin(&mut bars, "hold", &format!("watch {stream}"), e.id));
                }
            }
            ("net", "release") if e.field("what") == Some("all") => {
                if let Some(bar) = e.field("as").and_then(|name| holds.remove(name)) {
                    bars[bar].to = Some(e.id);
                }
            }
            ("host", "crash" | "power-off" | "exit" | "pause") => {
                let host = host_of(e);
                if !down.contains_key(host) {
                    down.insert(host, begin(&mut bars, "down", lane(e), e.id));
                }
            }
            ("host", "start" | "resume") => {
                if let Some(bar) = down.remove(host_of(e)) {
                    bars[bar].to = Some(e.id);
                }
            }
            ("watch", _) => {
                let written = e.field("rv").and_then(|rv| rv.parse().ok()).and_then(|rv| write_of(&writes, rv));
                // An object that was there before the watch began was not late.
                let late = written.and_then(|id| entries.get(id as usize)).filter(|w| w.at_ns + LATE_NS < e.at_ns);
                if let (Some(written), true) = (late, e.name != "BOOKMARK") {
                    bars.push(Bar { kind: "wait", lane: lane(e).to_owned(), from: written.id, to: Some(e.id) });
                }
            }
            _ => {}
        }
    }
    bars
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An entry: milliseconds, kind, name, fields.
    type Told<'t> = (u64, &'static str, &'static str, &'t [(&'static str, &'t str)]);

    fn trace(told: &[Told<'_>]) -> Vec<Entry> {
        let entry = |(id, (at_ms, kind, name, fields)): (usize, &(u64, &'static str, &'static str, &[_]))| Entry {
            id: id as u64,
            at_ns: at_ms * 1_000_000,
            host: "h".into(),
            kind: (*kind).into(),
            name: (*name).into(),
            text: String::new(),
            fields: fields.iter().map(|(k, v): &(&'static str, &str)| ((*k).into(), (*v).to_owned())).collect(),
            spans: vec![],
            cause: None,
        };
        told.iter().enumerate().map(entry).collect()
    }
    fn told(entries: &[Entry]) -> Vec<(&'static str, String, u64, Option<u64>)> {
        bars(entries, |_| "lane").into_iter().map(|b| (b.kind, b.lane, b.from, b.to)).collect()
    }

    #[test]
    fn requests_spans_holds_and_crashes_last_until_what_ends_them() {
        let lane = || "lane".to_owned();
        let entries = trace(&[
            (0, "op", "stop", &[("id", "1")]),
            (0, "op", "stop", &[("id", "2")]),
            (1, "span", "s", &[("a", "1")]),
            (1, "span", "s", &[("a", "2")]),
            (2, "span-end", "s", &[("a", "1")]),
            (3, "reply", "stop", &[("id", "1")]),
            (4, "net", "hold", &[("as", "late"), ("stream", "d/things")]),
            (5, "net", "release", &[("as", "late"), ("what", "all-but-last")]),
            (6, "net", "release", &[("as", "late"), ("what", "all")]),
            (7, "host", "crash", &[("host", "h")]),
            (8, "host", "exit", &[("host", "h")]),
            (9, "host", "start", &[("host", "h")]),
        ]);
        let expected = [
            ("call", lane(), 0, Some(5)),
            ("call", lane(), 1, None),
            ("span", lane(), 2, Some(4)),
            ("span", lane(), 3, None),
            ("hold", "watch d/things".to_owned(), 6, Some(8)),
            ("down", lane(), 9, Some(11)),
        ];
        assert_eq!(told(&entries), expected);
    }

    #[test]
    fn an_event_waits_from_its_write_on_if_it_is_late() {
        let entries = trace(&[
            (0, "http", "patch", &[("rv", "7")]),
            (1, "watch", "MODIFIED", &[("rv", "7")]),
            (1, "http", "delete", &[("rv", "9")]),
            (50, "watch", "MODIFIED", &[("rv", "8")]),
            (50, "watch", "DELETED", &[("rv", "9")]),
            (50, "watch", "BOOKMARK", &[("rv", "9")]),
            (50, "watch", "ADDED", &[("rv", "10")]),
        ]);
        let lane = || "lane".to_owned();
        assert_eq!(told(&entries), [("wait", lane(), 2, Some(3)), ("wait", lane(), 2, Some(4))]);
    }
}
