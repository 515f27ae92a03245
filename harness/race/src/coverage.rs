//! What runs have tried: which choices were not as usual, and in which states somebody met which events.
//!
//! A sweep that finds nothing says something only with this beside it.
use std::collections::BTreeMap;

use indexmap::{IndexMap, IndexSet};
use photofinish_sim::trace::Entry;
use serde::{Deserialize, Serialize};

use crate::explore::choices::ChoicePoint;
use crate::reading::Grid;
use crate::system::System;

/// What one run tried: plain data that travels from its process to its parent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tried {
    /// Keys of the choices that were not as usual.
    pub left: Vec<String>,
    /// State, event, and how often the one met the other.
    pub met: Vec<(String, String, u64)>,
}

impl Tried {
    /// Of a run's trace.
    pub fn of(system: &dyn System, entries: &[Entry]) -> Tried {
        let mut met: BTreeMap<(String, String), u64> = BTreeMap::new();
        for meeting in system.meetings(entries) {
            *met.entry((meeting.state, meeting.event)).or_default() += 1;
        }
        let left = entries.iter().filter(|e| e.kind == "choice").map(|e| e.name.to_string());
        Tried { left: left.collect(), met: met.into_iter().map(|((s, e), n)| (s, e, n)).collect() }
    }
}

/// How often a state met an event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Met {
    /// Altogether.
    pub times: u64,
    /// In so many runs.
    pub runs: u64,
    /// First in this run, counted from 1.
    pub first: u64,
}

/// Choices of one kind: those whose keys begin with the same word.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Kind {
    /// The word: `watch`, `call`, `crash` ...
    pub kind: String,
    /// Of the benign runs' choices, those that were not as usual in at least one run.
    pub taken: u64,
    /// Choices of the benign runs.
    pub known: u64,
    /// Choices that were not as usual, and that no benign run has: one leads to the next.
    pub beyond: u64,
}

/// What all runs of a sweep have tried.
#[derive(Clone, Debug, Default)]
pub struct Coverage {
    /// By scenario: the choices of its benign run that can go another way.
    known: IndexMap<String, IndexSet<String>>,
    /// By scenario and key: the run that was the first in which it was not as usual, counted from 1.
    taken: BTreeMap<(String, String), u64>,
    beyond: BTreeMap<(String, String), u64>,
    met: BTreeMap<(String, String), Met>,
    runs: u64,
}

impl Coverage {
    /// The choices of a scenario's benign run.
    pub fn learn(&mut self, scenario: &str, points: &[ChoicePoint]) {
        let open = points.iter().filter(|p| !p.alternatives.is_empty()).map(|p| p.key.clone());
        self.known.entry(scenario.to_owned()).or_default().extend(open);
    }
    /// Counts a run.
    pub fn add(&mut self, scenario: &str, tried: &Tried) {
        self.runs += 1;
        let known = self.known.get(scenario);
        for key in &tried.left {
            let of_benign = known.is_some_and(|known| known.contains(key));
            let place = if of_benign { &mut self.taken } else { &mut self.beyond };
            place.entry((scenario.to_owned(), key.clone())).or_insert(self.runs);
        }
        for (state, event, times) in &tried.met {
            let met = self.met.entry((state.clone(), event.clone())).or_default();
            met.times += times;
            met.runs += 1;
            met.first = if met.first == 0 { self.runs } else { met.first };
        }
    }
    /// Of the choices of the benign runs: those that were not as usual at least once, and all.
    pub fn choices(&self) -> (u64, u64) {
        (self.taken.len() as u64, self.known.values().map(|keys| keys.len() as u64).sum())
    }
    /// At which runs a choice of the benign runs was not as usual for the first time.
    pub fn first_taken(&self) -> impl Iterator<Item = u64> {
        self.taken.values().copied()
    }
    /// At which runs a state met an event for the first time.
    pub fn first_met(&self) -> impl Iterator<Item = u64> {
        self.met.values().map(|met| met.first)
    }
    /// Pairs of a state and an event that were met.
    pub fn pairs(&self) -> u64 {
        self.met.len() as u64
    }
    /// The choices by kind, the most first.
    pub fn kinds(&self) -> Vec<Kind> {
        let mut kinds: BTreeMap<String, Kind> = BTreeMap::new();
        let mut count = |key: &str, at: fn(&mut Kind) -> &mut u64| {
            let kind = kind(key).to_owned();
            let of = kinds.entry(kind.clone()).or_insert(Kind { kind, taken: 0, known: 0, beyond: 0 });
            *at(of) += 1;
        };
        self.known.values().flatten().for_each(|key| count(key, |k| &mut k.known));
        self.taken.keys().for_each(|(_, key)| count(key, |k| &mut k.taken));
        self.beyond.keys().for_each(|(_, key)| count(key, |k| &mut k.beyond));
        let mut kinds: Vec<Kind> = kinds.into_values().collect();
        kinds.sort_by(|a, b| (b.known + b.beyond, &a.kind).cmp(&(a.known + a.beyond, &b.kind)));
        kinds
    }
    /// The grid of states and events, with those that the system did not name at its end; `None` if nothing meets anything.
    pub fn grid(&self, named: Grid) -> Option<Table> {
        let mut states: IndexSet<String> = named.states.into_iter().map(str::to_owned).collect();
        let mut events: IndexSet<String> = named.events.into_iter().map(str::to_owned).collect();
        states.extend(self.met.keys().map(|(state, _)| state.clone()));
        events.extend(self.met.keys().map(|(_, event)| event.clone()));
        let cell = |state: &String, event: &String| self.met.get(&(state.clone(), event.clone())).copied();
        let cells = states.iter().map(|s| events.iter().map(|e| cell(s, e)).collect()).collect();
        let (states, events) = (Vec::from_iter(states), Vec::from_iter(events));
        let table = Table { state: named.state.to_owned(), event: named.event.to_owned(), states, events, cells };
        (!table.states.is_empty() && !table.events.is_empty()).then_some(table)
    }
}

/// Which states met which events.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Table {
    /// What the states are of.
    pub state: String,
    /// What the events are.
    pub event: String,
    /// Rows.
    pub states: Vec<String>,
    /// Columns.
    pub events: Vec<String>,
    /// By row and column; `None`: they never met.
    pub cells: Vec<Vec<Option<Met>>>,
}

/// The first word of a key.
fn kind(key: &str) -> &str {
    key.split(['/', '#', '=']).next().unwrap_or(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(key: &str, alternatives: &[&str]) -> ChoicePoint {
        ChoicePoint {
            key: key.into(),
            default: "no".into(),
            taken: "no".into(),
            alternatives: alternatives.iter().map(|a| (*a).to_owned()).collect(),
            fault: None,
            legality: "always".into(),
            contract: String::new(),
            at_ns: 0,
        }
    }
    fn tried(left: &[&str], met: &[(&str, &str, u64)]) -> Tried {
        Tried {
            left: left.iter().map(|k| (*k).to_owned()).collect(),
            met: met.iter().map(|(s, e, n)| ((*s).to_owned(), (*e).to_owned(), *n)).collect(),
        }
    }
    fn coverage() -> Coverage {
        let mut coverage = Coverage::default();
        coverage.learn("a", &[point("watch/x#1", &["+1s"]), point("watch/x#2", &["+1s"]), point("call/y", &["503"])]);
        coverage.learn("b", &[point("watch/x#1", &["+1s"]), point("crash/z", &[])]);
        coverage.add("a", &tried(&["watch/x#1", "watch/x#9"], &[("Ready", "stop", 2)]));
        coverage.add("a", &tried(&["watch/x#1"], &[("Ready", "stop", 1), ("Odd", "stop", 1)]));
        coverage.add("b", &tried(&["crash/z"], &[]));
        coverage
    }

    #[test]
    fn a_choice_is_covered_once_a_run_of_its_scenario_left_its_default() {
        assert_eq!(coverage().choices(), (1, 4), "of two in `a` and one in `b` that are called alike, one was left");
        let kinds = coverage().kinds();
        let told: Vec<_> = kinds.iter().map(|k| (k.kind.as_str(), k.taken, k.known, k.beyond)).collect();
        assert_eq!(told, [("watch", 1, 3, 1), ("call", 0, 1, 0), ("crash", 0, 0, 1)]);
    }

    #[test]
    fn the_grid_has_all_named_states_and_events_and_those_that_came_besides() {
        let named =
            Grid { state: "phase", states: vec!["Ready", "Gone"], event: "event", events: vec!["start", "stop"] };
        let table = coverage().grid(named).expect("a grid");
        assert_eq!((table.states.len(), table.events.len()), (3, 2), "{table:?}");
        assert_eq!(table.states[2], "Odd");
        let often = Met { times: 3, runs: 2, first: 1 };
        let once = Met { times: 1, runs: 1, first: 2 };
        assert_eq!(table.cells, [[None, Some(often)], [None, None], [None, Some(once)]]);
        assert_eq!(coverage().pairs(), 2);
        assert_eq!(Coverage::default().grid(Grid::default()), None);
    }

    #[test]
    fn the_kind_of_a_choice_is_the_first_word_of_its_key() {
        for (key, expected) in [("watch/driver/x#1", "watch"), ("op#2", "op"), ("plain", "plain")] {
            assert_eq!(kind(key), expected);
        }
    }
}
