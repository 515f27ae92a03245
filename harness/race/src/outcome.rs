//! How runs end, and what travels between the parent and a run's process.
use std::fmt;

use indexmap::IndexSet;
use photofinish_sim::choices::{Pins, Source as ChoiceSource};
use photofinish_sim::trace::{Entry, EntryId};
use serde::{Deserialize, Serialize};

use crate::coverage::Tried;
use crate::explore::choices::ChoicePoint;
use crate::options::Options;
use crate::property::{Checked, Property, Verdict, Violation, always_checked};
use crate::reading::ObjectState;
use crate::scenario::{Scenario, Source};
use crate::system::System;

/// What the process of a run is asked for.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Request {
    /// The scenario's text: the process reads no file.
    pub source: Source,
    /// The scenario's name, with its variant.
    pub name: String,
    /// Switches and engine.
    pub options: Options,
    /// Benign or a seed.
    pub choices: ChoiceSource,
    /// Pins beside the scenario's own.
    pub pins: Pins,
    /// Ask for every kind of fault, and tell all choices.
    #[serde(default)]
    pub learn: bool,
    /// Tell the states of all objects.
    #[serde(default)]
    pub objects: bool,
    /// Tell what the run tried.
    #[serde(default)]
    pub cover: bool,
}

/// What a run's process answers.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Answer {
    #[serde(flatten)]
    pub report: RunReport,
    /// All choices, where they were asked for.
    #[serde(default)]
    pub points: Vec<ChoicePoint>,
    /// The states of all objects, where they were asked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub objects: Vec<ObjectState>,
    /// What the run tried, where it was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tried: Option<Tried>,
    /// The switches that the run looked at, where the system keeps an account of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked: Option<Vec<String>>,
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// Every property holds, each with something to judge.
    Holds,
    /// A property does not hold.
    Violated,
    /// Nothing is violated, but a checked property never had anything to judge.
    Vacuous,
    /// The world could not go on: deadlock, livelock, or hosts that are never at rest.
    Stuck,
    /// The code under test ended the process: abort, stack overflow, signal, exit, a panic that nothing caught.
    Crashed,
    /// The same run again had another trace: no verdict can be trusted.
    Nondeterministic,
    /// The wall-time limit was over.
    Hung,
    /// The harness itself failed: the system could not be assembled, a step could not be done.
    Failed,
    /// The engine that was asked for cannot do a step: nothing was judged.
    Refused,
}

impl Outcome {
    /// All of them.
    pub const ALL: [Outcome; 9] = [
        Outcome::Holds,
        Outcome::Violated,
        Outcome::Vacuous,
        Outcome::Stuck,
        Outcome::Crashed,
        Outcome::Nondeterministic,
        Outcome::Hung,
        Outcome::Failed,
        Outcome::Refused,
    ];
    /// As JSON lines and reports write it.
    pub fn name(self) -> &'static str {
        match self {
            Outcome::Holds => "holds",
            Outcome::Violated => "violated",
            Outcome::Vacuous => "vacuous",
            Outcome::Stuck => "stuck",
            Outcome::Crashed => "crashed",
            Outcome::Nondeterministic => "nondeterministic",
            Outcome::Hung => "hung",
            Outcome::Failed => "failed",
            Outcome::Refused => "refused",
        }
    }
    /// 0 holds; 1 the code under test is wrong; 2 bad input, such as a fault that the engine does not have; 3 no verdict.
    pub fn exit_code(self) -> u8 {
        match self {
            Outcome::Holds => 0,
            Outcome::Violated | Outcome::Vacuous | Outcome::Stuck | Outcome::Crashed => 1,
            Outcome::Refused => 2,
            Outcome::Nondeterministic | Outcome::Hung | Outcome::Failed => 3,
        }
    }
    /// Orders outcomes for a summary that can name only one: by exit code, and of those that are the code's fault a
    /// broken property before a world that came to no end before a property that nothing let be judged.
    pub fn severity(self) -> (u8, u8) {
        let within = match self {
            Outcome::Vacuous => 0,
            Outcome::Stuck => 1,
            Outcome::Crashed => 2,
            Outcome::Violated => 3,
            Outcome::Hung => 0,
            Outcome::Nondeterministic => 1,
            Outcome::Failed => 2,
            Outcome::Holds | Outcome::Refused => 0,
        };
        (self.exit_code(), within)
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A property that does not hold, and where.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Broken {
    /// The property's name.
    pub property: String,
    /// Where and why.
    #[serde(flatten)]
    pub violation: Violation,
}

/// What one run showed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunReport {
    /// How it ended.
    pub outcome: Outcome,
    /// All violated properties, by the entry that broke them, the first first.
    pub violations: Vec<Broken>,
    /// Checked properties that had nothing to judge.
    pub vacuous: Vec<String>,
    /// Hash of the whole trace: equal hashes, equal runs.
    pub trace_hash: String,
    /// Virtual time at the end, nanoseconds.
    pub virtual_ns: u64,
    /// In words, why it ended before its script did.
    pub end: Option<String>,
    /// In words: pins with values that their points do not take. Such a run is not what its id says.
    pub wrong_pins: Vec<String>,
    /// In words: pins that nothing asked for.
    pub unused_pins: Vec<String>,
    /// Durable writes that the script watched, as `gateway/stop#3`.
    pub crash_points: Vec<String>,
}

impl RunReport {
    /// The property to name first: the first violated, or the first vacuous one.
    pub fn property(&self) -> Option<&str> {
        let vacuous = (self.outcome == Outcome::Vacuous).then(|| self.vacuous.first()).flatten();
        self.violations.first().map(|b| b.property.as_str()).or(vacuous.map(String::as_str))
    }
    /// Names of the violated properties, sorted.
    pub fn violated(&self) -> Vec<&str> {
        let mut names: Vec<&str> = self.violations.iter().map(|b| b.property.as_str()).collect();
        names.sort_unstable();
        names
    }
}

/// Verdicts of all properties that a scenario checks, over a whole trace or the part that a killed run left.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Judgement {
    /// Violated, by entry.
    pub violations: Vec<Broken>,
    /// Nothing to judge.
    pub vacuous: Vec<String>,
}

/// Judges a trace by the scenario's properties and those that every run must have. Only a property that the scenario
/// names has to have something to judge.
pub fn judge(system: &dyn System, scenario: &Scenario, entries: &[Entry]) -> Judgement {
    let properties = system.properties();
    let checked = properties.iter().filter_map(|p| {
        let named = scenario.check.iter().any(|c| c == p.name);
        let excepted = scenario.except.contains_key(p.name);
        (named || p.checked != Checked::WhenNamed && !excepted).then_some((p, named))
    });
    judge_by(always_checked().iter().map(|p| (p, true)).chain(checked), entries)
}

/// Judges by these properties, each with whether a verdict without anything to judge counts.
fn judge_by<'p>(properties: impl Iterator<Item = (&'p Property, bool)>, entries: &[Entry]) -> Judgement {
    let mut judgement = Judgement::default();
    for (property, named) in properties {
        let name = property.name.to_owned();
        match property.judge(entries) {
            Verdict::Holds { .. } => {}
            Verdict::Vacuous if !named => {}
            Verdict::Vacuous => judgement.vacuous.push(name),
            Verdict::Violated(violation) => judgement.violations.push(Broken { property: name, violation }),
        }
    }
    judgement.violations.sort_by_key(|b| b.violation.entry);
    judgement
}

/// The outcome of a run that came to its end.
pub(crate) fn of_judgement(judgement: &Judgement) -> Outcome {
    match judgement {
        Judgement { violations, .. } if !violations.is_empty() => Outcome::Violated,
        Judgement { vacuous, .. } if !vacuous.is_empty() => Outcome::Vacuous,
        _ => Outcome::Holds,
    }
}

/// Causes go back to the start of the world; the story is told by the last few.
const NEAR: usize = 12;

/// Does it say what happened? Others say how: requests, events of a watch, spans that close, debug messages.
pub(crate) fn telling(e: &Entry) -> bool {
    match &*e.kind {
        "op" | "reply" | "step" | "host" | "net" => true,
        "log" => !matches!(&*e.name, "debug" | "trace"),
        _ => false,
    }
}

/// The entries to show for a violation, oldest first: the entry's direct cause, what the property names, and of the
/// nearest further causes those that say what happened before those that say how.
///
/// At most `limit`, the entry itself not among them.
pub fn led_there<'e>(entries: &'e [Entry], violation: &Violation, limit: usize) -> Vec<&'e Entry> {
    // A cause is always older: this ends.
    let cause = |id: EntryId| entries.get(id as usize)?.cause.filter(|cause| *cause < id);
    let chain: Vec<EntryId> = std::iter::successors(cause(violation.entry), |id| cause(*id)).take(NEAR).collect();
    let (told, other): (Vec<EntryId>, Vec<EntryId>) =
        chain.iter().partition(|id| entries.get(**id as usize).is_some_and(telling));
    let by_worth = chain.first().into_iter().chain(&violation.led).chain(&told).chain(&other);
    let shown: IndexSet<EntryId> = by_worth.copied().filter(|id| *id != violation.entry).collect();
    let mut ids: Vec<EntryId> = shown.into_iter().take(limit).collect();
    ids.sort_unstable();
    ids.into_iter().filter_map(|id| entries.get(id as usize)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::temporal;

    fn entry(id: u64, text: &str, cause: Option<u64>) -> Entry {
        let (host, kind, name) = ("h".into(), "log".into(), "info".into());
        Entry { id, at_ns: id, host, kind, name, text: text.into(), fields: vec![], spans: vec![], cause }
    }
    fn no(name: &'static str) -> Property {
        Property::new(name, "", temporal::never(move |e| (e.text == name).then(|| "why".to_owned())))
    }

    #[test]
    fn the_first_violated_property_is_the_one_with_the_earliest_entry() {
        let entries = [entry(0, "x", None), entry(1, "b", None), entry(2, "a", None)];
        let nothing = Property::new("n", "", temporal::always(|_| None));
        let unnamed = Property::new("u", "", temporal::always(|_| None)).always();
        let properties = [no("a"), no("b"), no("c"), nothing, unnamed];
        let judgement = judge_by(properties.iter().map(|p| (p, p.checked == Checked::WhenNamed)), &entries);
        assert_eq!(judgement.violations.iter().map(|b| &*b.property).collect::<Vec<_>>(), ["b", "a"]);
        assert_eq!(judgement.vacuous, ["n"]);
        assert_eq!(of_judgement(&judgement), Outcome::Violated);
        assert_eq!(of_judgement(&Judgement { violations: vec![], ..judgement }), Outcome::Vacuous);
        assert_eq!(of_judgement(&Judgement::default()), Outcome::Holds);
    }

    #[test]
    fn what_led_there_is_what_the_property_names_and_the_nearest_causes() {
        let entries: Vec<Entry> = (0..9).map(|i| entry(i, "x", i.checked_sub(2))).collect();
        let violation = Violation { entry: 8, why: "w".into(), led: vec![1] };
        let ids = |limit| led_there(&entries, &violation, limit).iter().map(|e| e.id).collect::<Vec<_>>();
        assert_eq!(ids(3), [1, 4, 6]);
        assert_eq!(ids(9), [0, 1, 2, 4, 6]);
    }

    #[test]
    fn of_the_causes_those_that_say_what_happened_come_first_and_the_direct_cause_always() {
        let kinds = ["step", "op", "http", "log", "watch", "span-end", "watch", "log"];
        let entries: Vec<Entry> = (0..)
            .zip(kinds)
            .map(|(i, kind): (u64, _)| Entry { kind: kind.into(), ..entry(i, "x", i.checked_sub(1)) })
            .collect();
        let shown = |led: &[EntryId], limit| {
            let violation = Violation { entry: 7, why: "w".into(), led: led.to_vec() };
            led_there(&entries, &violation, limit).iter().map(|e| e.id).collect::<Vec<_>>()
        };
        for (led, limit, expected) in [
            (&[][..], 1, &[6][..]),
            (&[], 2, &[3, 6]),
            (&[], 4, &[0, 1, 3, 6]),
            (&[], 6, &[0, 1, 3, 4, 5, 6]),
            (&[2], 3, &[2, 3, 6]),
            (&[2, 4, 5], 3, &[2, 4, 6]),
            (&[7, 6, 6], 2, &[3, 6]),
        ] {
            assert_eq!(shown(led, limit), expected, "{led:?} {limit}");
        }
        for (kind, name, tells) in [("log", "info", true), ("log", "debug", false), ("span", "info", false)] {
            assert_eq!(
                telling(&Entry { kind: kind.into(), name: name.into(), ..entry(0, "x", None) }),
                tells,
                "{kind}"
            );
        }
    }

    #[test]
    fn what_happened_long_before_is_not_shown_for_its_kind() {
        let kind = |i| if i == 0 { "op" } else { "http" };
        let entries: Vec<Entry> =
            (0..=20).map(|i| Entry { kind: kind(i).into(), ..entry(i, "x", i.checked_sub(1)) }).collect();
        let ids = |at| {
            let violation = Violation { entry: at, why: "w".into(), led: vec![] };
            led_there(&entries, &violation, 3).iter().map(|e| e.id).collect::<Vec<_>>()
        };
        assert_eq!(ids(20), [17, 18, 19]);
        assert_eq!(ids(10), [0, 8, 9]);
    }

    #[test]
    fn exit_codes_are_those_of_the_command_line() {
        for (outcome, code) in [
            (Outcome::Holds, 0),
            (Outcome::Violated, 1),
            (Outcome::Vacuous, 1),
            (Outcome::Stuck, 1),
            (Outcome::Crashed, 1),
            (Outcome::Nondeterministic, 3),
            (Outcome::Hung, 3),
            (Outcome::Failed, 3),
            (Outcome::Refused, 2),
        ] {
            assert_eq!(outcome.exit_code(), code, "{outcome}");
        }
    }

    #[test]
    fn of_many_outcomes_the_worst_is_named() {
        use Outcome::*;
        for (outcomes, worst) in [
            (&[Violated, Vacuous, Holds][..], Violated),
            (&[Vacuous, Stuck], Stuck),
            (&[Vacuous, Crashed, Stuck], Crashed),
            (&[Crashed, Violated, Stuck], Violated),
            (&[Holds, Vacuous], Vacuous),
            (&[Violated, Refused], Refused),
            (&[Violated, Hung], Hung),
            (&[Failed, Refused, Nondeterministic, Hung], Failed),
            (&[Holds], Holds),
        ] {
            let mut sorted = outcomes.to_vec();
            sorted.sort_by_key(|o| o.severity());
            assert_eq!(sorted.last(), Some(&worst), "{outcomes:?}");
            for other in outcomes {
                assert!(*other == worst || other.severity() < worst.severity(), "{other} is as bad as {worst}");
            }
        }
    }
}
