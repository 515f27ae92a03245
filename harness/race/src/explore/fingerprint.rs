//! Tells whether two failures are the same: the property, the object, and the shape of the last steps.
use std::fmt;

use photofinish_sim::trace::Entry;
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64;

use crate::outcome::{Broken, Outcome, RunReport};
use crate::property::SCRIPT;

/// What a failure is known by. Equal ones are taken for the same bug.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Fingerprint {
    /// The first violated property, `script` only if there is no other; for a run that did not come to an end, how it ended.
    pub property: String,
    /// What it is about: the sandbox, the object, or else the host of the entry that broke it.
    pub object: String,
    /// The last steps of the script and what broke it, without numbers and ids.
    pub shape: String,
}

/// Fields that name what an entry is about, the most telling first.
const OBJECT_FIELDS: [&str; 4] = ["sandbox_name", "sandbox", "object", "host"];
/// How many steps of the script belong to the shape.
const STEPS: usize = 2;

impl Fingerprint {
    /// The fingerprint of a run that does not hold; `None` for one that holds, judged nothing, or was refused.
    pub fn of(report: &RunReport, entries: &[Entry]) -> Option<Fingerprint> {
        match report.outcome {
            Outcome::Holds | Outcome::Vacuous | Outcome::Refused => return None,
            _ => {}
        }
        let Some(first) = told(report) else {
            let shape =
                format!("{} {}", steps_before(entries, entries.len()), shape(report.end.as_deref().unwrap_or("")));
            let object = entries.last().map_or(WORLD, |e| e.host.as_ref()).to_owned();
            return Some(Fingerprint {
                property: report.outcome.name().to_owned(),
                object,
                shape: shape.trim().to_owned(),
            });
        };
        let at = first.violation.entry as usize;
        let broke = entries.get(at);
        let led = first.violation.led.iter().filter_map(|id| entries.get(*id as usize));
        let object = broke.into_iter().chain(led).find_map(object_of);
        let object = object.or_else(|| broke.map(|e| e.host.to_string())).unwrap_or_else(|| WORLD.to_owned());
        if first.property == SCRIPT {
            let step =
                broke.and_then(|e| e.cause).and_then(|id| entries.get(id as usize)).map_or("", |step| &*step.text);
            return Some(Fingerprint {
                property: SCRIPT.to_owned(),
                object,
                shape: missed(step, &first.violation.why),
            });
        }
        let shape = format!("{} {}", steps_before(entries, at), shape(&first.violation.why));
        Some(Fingerprint { property: first.property.clone(), object, shape: shape.trim().to_owned() })
    }
    /// Whether it is the same property on the same object: what shrinking keeps.
    pub fn same_failure(&self, other: &Fingerprint) -> bool {
        (&self.property, &self.object) == (&other.property, &other.object)
    }
    /// `stopped-is-stable of demo`
    pub fn what(&self) -> String {
        what(&self.property, &self.object)
    }
    /// Eight hexadecimal digits.
    pub fn short(&self) -> String {
        let all = [&*self.property, &self.object, &self.shape].join("\n");
        format!("{:08x}", xxh3_64(all.as_bytes()) as u32)
    }
}

/// A property and what it is about; the script is about the whole world, which goes without saying.
pub fn what(property: &str, object: &str) -> String {
    if object == WORLD { property.to_owned() } else { format!("{property} of {object}") }
}

/// The object of what is about no single one.
pub const WORLD: &str = "world";

/// `1a2b3c4d stopped-is-stable of demo`
impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.short(), self.what())
    }
}

/// The violation that a failing run is known by, if it came to its end.
pub fn told(report: &RunReport) -> Option<&Broken> {
    // A step that waits in vain is what many faults lead to: a property of the system says more.
    let told = report.violations.iter().find(|b| b.property != SCRIPT).or(report.violations.first());
    told.filter(|_| report.outcome == Outcome::Violated)
}

fn object_of(e: &Entry) -> Option<String> {
    OBJECT_FIELDS.iter().find_map(|name| e.field(name)).filter(|value| !value.is_empty()).map(str::to_owned)
}

/// Of a step that missed what it expects: the step, and the code that it got instead if it got one. What else it saw (phases,
/// reasons) says which fault it was, and that is no part of what is known of the system.
fn missed(step: &str, why: &str) -> String {
    // What was expected may name a code as well, and so may the message behind the answer.
    let got = why.split_once("answered ").map_or(why, |(_, got)| got);
    // As RPCs name their codes: OK, FAILED_PRECONDITION.
    let code = |word: &&str| word.len() > 1 && word.chars().all(|c| c.is_ascii_uppercase() || c == '_');
    let mut words = got.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let code = words.find(code).unwrap_or("nothing in time");
    format!("{}: {code}", shape(step))
}

/// The verbs of the last steps that the script had begun before an entry.
fn steps_before(entries: &[Entry], at: usize) -> String {
    let before = entries[..at.min(entries.len())].iter().rev().filter(|e| e.kind == "step" && e.name != "missed");
    let mut verbs: Vec<&str> = before.take(STEPS).map(|e| e.name.as_ref()).collect();
    verbs.reverse();
    format!("[{}]", verbs.join(" "))
}

/// A text without what differs from run to run: numbers, durations, ids.
fn shape(text: &str) -> String {
    let varies = |word: &str| {
        let word = word.trim_matches(|c: char| !c.is_ascii_alphanumeric());
        let (digits, hex) =
            (word.chars().any(|c| c.is_ascii_digit()), word.chars().all(|c| c.is_ascii_hexdigit() || c == '-'));
        digits && (hex || word.starts_with(|c: char| c.is_ascii_digit()))
    };
    let words = text.lines().next().unwrap_or("").split_whitespace();
    words.map(|word| if varies(word) { "_" } else { word }).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::Broken;
    use crate::property::Violation;

    fn entry(id: u64, kind: &'static str, name: &'static str, fields: &[(&'static str, &str)]) -> Entry {
        Entry {
            id,
            at_ns: id,
            host: "gateway".into(),
            kind: kind.into(),
            name: name.into(),
            text: String::new(),
            fields: fields.iter().map(|(k, v)| ((*k).into(), (*v).to_owned())).collect(),
            spans: vec![],
            cause: None,
        }
    }
    fn report(outcome: Outcome, why: &str, led: &[u64]) -> RunReport {
        let violation = Violation { entry: 3, why: why.into(), led: led.to_vec() };
        let violated = outcome == Outcome::Violated;
        RunReport {
            outcome,
            violations: if violated { vec![Broken { property: "stable".into(), violation }] } else { vec![] },
            vacuous: vec![],
            trace_hash: String::new(),
            virtual_ns: 0,
            end: Some("livelock of gateway after 12 steps".into()),
            wrong_pins: vec![],
            unused_pins: vec![],
            crash_points: Vec::new(),
        }
    }

    #[test]
    fn it_is_the_property_the_object_and_the_last_steps() {
        let entries = [
            entry(0, "step", "create", &[]),
            entry(1, "step", "stop", &[("sandbox", "x")]),
            entry(2, "step", "run", &[]),
            entry(3, "log", "info", &[("sandbox_id", "1"), ("sandbox_name", "demo")]),
        ];
        let found =
            Fingerprint::of(&report(Outcome::Violated, "left Stopped at rv 31 (0.5s)", &[]), &entries).expect("one");
        assert_eq!(
            (&*found.property, &*found.object, &*found.shape),
            ("stable", "demo", "[stop run] left Stopped at rv _ _")
        );
        let other =
            Fingerprint::of(&report(Outcome::Violated, "left Stopped at rv 7 (3.25s)", &[]), &entries).expect("one");
        assert_eq!((&found, found.short()), (&other, other.short()));
        let third = Fingerprint::of(&report(Outcome::Violated, "left Ready", &[]), &entries).expect("one");
        assert!(third != found && third.same_failure(&found));
    }

    #[test]
    fn the_object_may_be_named_by_what_led_there_or_else_is_the_host() {
        let entries = [
            entry(0, "op", "x", &[("object", "pod-1")]),
            entry(1, "a", "a", &[]),
            entry(2, "a", "a", &[]),
            entry(3, "a", "a", &[]),
        ];
        let object = |led: &[u64]| Fingerprint::of(&report(Outcome::Violated, "", led), &entries).expect("one").object;
        assert_eq!((object(&[0]).as_str(), object(&[]).as_str()), ("pod-1", "gateway"));
    }

    #[test]
    fn a_step_that_waits_in_vain_says_less_than_a_property_of_the_system() {
        let mut both = report(Outcome::Violated, "left Stopped", &[]);
        let missed = Violation { entry: 0, why: "no Ready within 60s".into(), led: vec![] };
        both.violations.insert(0, Broken { property: SCRIPT.into(), violation: missed });
        assert_eq!(Fingerprint::of(&both, &[]).expect("one").property, "stable");
        both.violations.pop();
        assert_eq!(Fingerprint::of(&both, &[]).expect("one").property, SCRIPT);
    }

    #[test]
    fn steps_that_missed_are_alike_by_the_step_and_the_code() {
        let step = Entry { text: "stop: demo".into(), ..entry(0, "step", "stop", &[]) };
        let mut fault = entry(1, "choice", "call/driver/GET/pods/a#1/504", &[]);
        let mut found = |why: &str| {
            fault.text.push('.');
            let missed = Entry { text: why.into(), cause: Some(0), ..entry(3, "step", "missed", &[]) };
            let entries = [step.clone(), fault.clone(), fault.clone(), missed];
            let violation = Violation { entry: 3, why: why.into(), led: vec![] };
            let violations = vec![Broken { property: SCRIPT.into(), violation }];
            Fingerprint::of(&RunReport { violations, ..report(Outcome::Violated, "", &[]) }, &entries).expect("one")
        };
        let one =
            found("stop: demo: expected stop demo to answer OK, it answered INTERNAL: get pods/a: 504 Timeout: late");
        assert_eq!(one.shape, "stop: demo: INTERNAL");
        let other = found("stop: demo: expected stop demo to answer OK, it answered INTERNAL: get pods/b: no answer");
        assert_eq!(one, other);
        let third = found("stop: demo: expected stop demo to answer OK, it answered UNAVAILABLE: h2 error");
        assert_ne!(one, third);
        let refused = "stop: demo: expected stop demo to answer ABORTED, it answered OK: done";
        assert_eq!(found(refused).shape, "stop: demo: OK");
        assert_eq!(
            found("stop: demo: expected demo Stopped within 60s, it is Stopping").shape,
            "stop: demo: nothing in time"
        );
    }

    #[test]
    fn runs_that_show_no_failure_have_none_and_those_without_an_end_are_known_by_it() {
        for outcome in [Outcome::Holds, Outcome::Vacuous, Outcome::Refused] {
            assert_eq!(Fingerprint::of(&report(outcome, "", &[]), &[]), None);
        }
        let stuck = Fingerprint::of(&report(Outcome::Stuck, "", &[]), &[]).expect("one");
        assert_eq!((&*stuck.property, &*stuck.shape), ("stuck", "[] livelock of gateway after _ steps"));
    }
}
