//! Which entry rests on which: what the system says, events on their writes, and the way to a violation.
use std::collections::{BTreeMap, BTreeSet};

use photofinish_sim::trace::{Entry, EntryId};
use serde::Serialize;

use super::bars;
use crate::outcome::{Broken, telling};
use crate::reading::Link;

/// An arrow between two entries.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Arrow {
    pub(super) from: EntryId,
    pub(super) to: EntryId,
    /// In a few words.
    pub(super) how: String,
    /// The violations that it leads to, by their position.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) story: Vec<usize>,
}

/// How many entries of the way to a violation are shown.
const STORY: usize = 12;

/// All arrows, by the entries that they lead to.
pub(super) fn arrows(entries: &[Entry], links: &[Link], violations: &[Broken]) -> Vec<Arrow> {
    let writes = bars::writes(entries);
    let events = entries.iter().filter(|e| e.kind == "watch" && e.name != "BOOKMARK").filter_map(|e| {
        let rv = e.field("rv")?.parse().ok()?;
        let from = bars::write_of(&writes, rv).filter(|write| *write < e.id)?;
        Some(Link { from, to: e.id, how: format!("event of rv {rv}") })
    });
    let mut arrows: BTreeMap<(EntryId, EntryId), Arrow> = BTreeMap::new();
    for link in links.iter().cloned().chain(events) {
        let Link { from, to, how } = link;
        // What points forward in time only: an arrow that does not is a mistake of whoever told it.
        if from < to && (to as usize) < entries.len() {
            arrows.entry((to, from)).or_insert(Arrow { from, to, how, story: Vec::new() });
        }
    }
    for (n, broken) in violations.iter().enumerate() {
        for (from, to, how) in story(entries, &arrows, broken) {
            let arrow = arrows.entry((to, from)).or_insert(Arrow { from, to, how, story: Vec::new() });
            arrow.story.push(n);
        }
    }
    arrows.into_values().collect()
}

/// The way to a violation, backwards: along links where there are any, else along causes that say what happened.
fn story(
    entries: &[Entry],
    arrows: &BTreeMap<(EntryId, EntryId), Arrow>,
    broken: &Broken,
) -> Vec<(EntryId, EntryId, String)> {
    let end = broken.violation.entry;
    let mut way: Vec<(EntryId, EntryId, String)> = Vec::new();
    let mut seen = BTreeSet::from([end]);
    let mut next = vec![end];
    while let Some(to) = next.pop().filter(|_| way.len() < STORY) {
        let links = arrows.range((to, 0)..=(to, to)).map(|(_, arrow)| (arrow.from, arrow.how.clone()));
        let mut before: Vec<(EntryId, String)> = links.collect();
        if before.is_empty() {
            let cause = entries.get(to as usize).and_then(|e| e.cause).filter(|cause| *cause < to);
            let tells = |id: &EntryId| entries.get(*id as usize).is_some_and(telling);
            before.extend(cause.filter(tells).map(|cause| (cause, "caused".to_owned())));
        }
        for (from, how) in before {
            way.push((from, to, how));
            if seen.insert(from) {
                next.push(from);
            }
        }
    }
    for led in &broken.violation.led {
        if *led < end && seen.insert(*led) {
            way.push((*led, end, "it was so".to_owned()));
        }
    }
    way
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::property::Violation;

    fn e(id: u64, kind: &'static str, rv: &str, cause: Option<u64>) -> Entry {
        Entry {
            id,
            at_ns: id,
            host: "h".into(),
            kind: kind.into(),
            name: "info".into(),
            text: String::new(),
            fields: if rv.is_empty() { vec![] } else { vec![("rv".into(), rv.to_owned())] },
            spans: vec![],
            cause,
        }
    }
    fn link(from: u64, to: u64) -> Link {
        Link { from, to, how: "link".into() }
    }

    #[test]
    fn the_way_to_a_violation_goes_over_links_and_events_back_to_the_write() {
        let entries = [
            e(0, "op", "", None),
            e(1, "http", "7", Some(0)),
            e(2, "log", "", None),
            e(3, "watch", "7", Some(0)),
            e(4, "log", "", Some(0)),
            e(5, "log", "", Some(4)),
            e(6, "log", "", Some(5)),
        ];
        let violation = Violation { entry: 5, why: "why".into(), led: vec![2, 4] };
        let broken = Broken { property: "p".into(), violation };
        let all = arrows(&entries, &[link(3, 4), link(4, 5), link(5, 3), link(5, 99)], &[broken]);
        let told: Vec<_> = all.iter().map(|a| (a.from, a.to, a.how.as_str(), a.story.len())).collect();
        let expected = [
            (0, 1, "caused", 1),
            (1, 3, "event of rv 7", 1),
            (3, 4, "link", 1),
            (2, 5, "it was so", 1),
            (4, 5, "link", 1),
        ];
        assert_eq!(told, expected);
    }

    #[test]
    fn where_nothing_is_linked_causes_tell_the_way_as_long_as_they_tell_something() {
        let entries =
            [e(0, "op", "", None), e(1, "span", "", Some(0)), e(2, "log", "", Some(1)), e(3, "reply", "", Some(2))];
        let violation = Violation { entry: 3, why: "why".into(), led: vec![] };
        let all = arrows(&entries, &[], &[Broken { property: "p".into(), violation }]);
        let told: Vec<_> = all.iter().map(|a| (a.from, a.to)).collect();
        assert_eq!(told, [(2, 3)]);
    }
}
