//! Groups failing runs by what they show, keeps the cheapest of each, and counts.
use std::collections::BTreeMap;
use std::time::Duration;

use indexmap::IndexMap;
use photofinish_sim::trace::Entry;
use serde::Serialize;

use crate::catalogue;
use crate::explore::fingerprint::{self, Fingerprint};
use crate::outcome::{Outcome, RunReport};
use crate::pool::{Again, Pool, PoolError};
use crate::run_id::RunId;
use crate::system::System;

/// One failure, in as many runs as showed it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Finding {
    /// What it is known by: eight hexadecimal digits.
    pub fingerprint: String,
    /// The violated property, or how the run ended.
    pub property: String,
    /// What it is about.
    pub object: String,
    /// What the cheapest run says: how the property was broken, or why the run ended.
    pub why: String,
    /// Name of the scenario.
    pub scenario: String,
    /// The cheapest run that showed it.
    pub run_id: String,
    /// Of that run: how many choices were not as usual.
    pub faults: usize,
    /// How many drawn runs showed it; remembered ones do not count.
    pub times: u64,
    /// Runs until it was first seen, that one included.
    pub found_after_runs: u64,
    /// Seconds of wall time until then.
    pub found_after_seconds: f64,
    /// How the run ended that is kept.
    pub outcome: Outcome,
}

/// What a sweep has found so far.
#[derive(Debug, Default)]
pub struct Findings {
    runs: u64,
    /// Drawn runs by scenario.
    drawn: IndexMap<String, u64>,
    outcomes: BTreeMap<Outcome, u64>,
    /// By scenario and fingerprint, in the order in which they were found.
    found: IndexMap<(String, Fingerprint), Kept>,
}

#[derive(Debug)]
struct Kept {
    finding: Finding,
    cost: (usize, u64),
}

/// What became of a run that was added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    /// It shows nothing.
    Nothing,
    /// It is the first of its kind.
    First,
    /// It is cheaper than those of its kind before it.
    Cheaper,
    /// One more of its kind.
    Again,
}

/// How the property that a failing run is known by was broken, on one line.
fn why(report: &RunReport) -> String {
    let why = fingerprint::told(report).map(|broken| &*broken.violation.why).or(report.end.as_deref());
    why.unwrap_or_default().split_whitespace().collect::<Vec<_>>().join(" ")
}

/// How many choices of a run were not as usual.
pub fn faults(entries: &[Entry]) -> usize {
    entries.iter().filter(|e| e.kind == "choice").count()
}

impl Findings {
    /// Counts a drawn run, and keeps it if it is the first or the cheapest of its kind.
    pub fn add(
        &mut self,
        scenario: &str,
        run_id: &str,
        report: &RunReport,
        entries: &[Entry],
        elapsed: Duration,
    ) -> Seen {
        *self.drawn.entry(scenario.to_owned()).or_default() += 1;
        self.count_in(1, (scenario, run_id), report, entries, elapsed)
    }
    /// The same for a run that is not one of a sample: it says nothing about how often a failure is found.
    pub fn replayed(
        &mut self,
        scenario: &str,
        run_id: &str,
        report: &RunReport,
        entries: &[Entry],
        elapsed: Duration,
    ) -> Seen {
        self.count_in(0, (scenario, run_id), report, entries, elapsed)
    }
    /// Drawn runs of a scenario.
    pub fn drawn(&self, scenario: &str) -> u64 {
        self.drawn.get(scenario).copied().unwrap_or(0)
    }
    fn count_in(
        &mut self,
        times: u64,
        (scenario, run_id): (&str, &str),
        report: &RunReport,
        entries: &[Entry],
        elapsed: Duration,
    ) -> Seen {
        self.runs += 1;
        *self.outcomes.entry(report.outcome).or_default() += 1;
        let Some(fingerprint) = Fingerprint::of(report, entries) else { return Seen::Nothing };
        let cost = (faults(entries), report.virtual_ns);
        let finding = Finding {
            fingerprint: fingerprint.short(),
            property: fingerprint.property.clone(),
            object: fingerprint.object.clone(),
            why: why(report),
            scenario: scenario.to_owned(),
            run_id: run_id.to_owned(),
            faults: cost.0,
            times,
            found_after_runs: self.runs,
            found_after_seconds: elapsed.as_millis() as f64 / 1e3,
            outcome: report.outcome,
        };
        match self.found.entry((scenario.to_owned(), fingerprint)) {
            indexmap::map::Entry::Vacant(place) => {
                place.insert(Kept { finding, cost });
                Seen::First
            }
            indexmap::map::Entry::Occupied(mut place) => {
                let kept = place.get_mut();
                kept.finding.times += times;
                if cost >= kept.cost {
                    return Seen::Again;
                }
                kept.cost = cost;
                let Finding { run_id, faults, outcome, why, .. } = finding;
                kept.finding = Finding { run_id, faults, outcome, why, ..kept.finding.clone() };
                Seen::Cheaper
            }
        }
    }
    /// Runs what was found once more, in another process: a failure that does not replay is nondeterminism, not a race.
    ///
    /// # Errors
    /// If the harness fails.
    pub fn confirm(&mut self, system: &dyn System, pool: &Pool) -> Result<(), PoolError> {
        let pool = pool.clone().again(Again::All);
        for kept in self.found.values_mut() {
            let Ok(job) = kept.finding.run_id.parse::<RunId>().and_then(|id| catalogue::by_id(system, &id)) else {
                continue;
            };
            let outcome = pool.run_one(&job)?.report.outcome;
            if outcome != kept.finding.outcome {
                *self.outcomes.entry(Outcome::Nondeterministic).or_default() += 1;
                kept.finding.outcome = Outcome::Nondeterministic;
            }
        }
        Ok(())
    }
    /// Runs so far.
    pub fn runs(&self) -> u64 {
        self.runs
    }
    /// Runs by outcome.
    pub fn outcomes(&self) -> impl Iterator<Item = (Outcome, u64)> {
        self.outcomes.iter().map(|(outcome, runs)| (*outcome, *runs))
    }
    /// Runs that ended so.
    pub fn count(&self, outcome: Outcome) -> u64 {
        self.outcomes.get(&outcome).copied().unwrap_or(0)
    }
    /// In the order in which they were found.
    pub fn all(&self) -> impl ExactSizeIterator<Item = &Finding> {
        self.found.values().map(|kept| &kept.finding)
    }
    /// The highest exit code of what was found. Faults keep some runs from what a property waits for: only where no run at
    /// all was judged is that told as a failure.
    pub fn exit_code(&self) -> u8 {
        let judged = |(outcome, _): &(Outcome, u64)| *outcome != Outcome::Vacuous;
        match self.outcomes().filter(judged).map(|(outcome, _)| outcome.exit_code()).max() {
            Some(code) => code,
            None => u8::from(self.runs > 0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::Broken;
    use crate::property::Violation;

    fn report(outcome: Outcome, property: &str, virtual_ns: u64) -> RunReport {
        let violation = Violation { entry: 0, why: "why".into(), led: vec![] };
        let violations = match outcome {
            Outcome::Violated => vec![Broken { property: property.into(), violation }],
            _ => vec![],
        };
        RunReport {
            outcome,
            violations,
            vacuous: vec![],
            trace_hash: String::new(),
            virtual_ns,
            end: None,
            wrong_pins: vec![],
            unused_pins: vec![],
            crash_points: Vec::new(),
        }
    }
    fn add(findings: &mut Findings, id: &str, report: RunReport) -> Seen {
        findings.add("s", id, &report, &[], Duration::from_millis(1500))
    }

    #[test]
    fn alike_runs_are_one_finding_and_the_cheapest_is_kept() {
        let mut findings = Findings::default();
        let violated = |property, ns| report(Outcome::Violated, property, ns);
        assert_eq!(add(&mut findings, "1", report(Outcome::Holds, "", 1)), Seen::Nothing);
        assert_eq!(add(&mut findings, "2", violated("p", 50)), Seen::First);
        assert_eq!(add(&mut findings, "3", violated("p", 60)), Seen::Again);
        assert_eq!(add(&mut findings, "4", violated("p", 40)), Seen::Cheaper);
        assert_eq!(add(&mut findings, "5", violated("q", 99)), Seen::First);
        let all: Vec<_> = findings.all().map(|f| (&*f.property, &*f.run_id, f.times, f.found_after_runs)).collect();
        assert_eq!(all, [("p", "4", 3, 2), ("q", "5", 1, 5)]);
        assert_eq!((findings.runs(), findings.count(Outcome::Violated), findings.exit_code()), (5, 4, 1));
        let seen = findings.replayed("s", "6", &violated("p", 1), &[], Duration::ZERO);
        assert_eq!((seen, findings.runs(), findings.drawn("s")), (Seen::Cheaper, 6, 5));
        assert_eq!(findings.all().next().map(|f| (&*f.run_id, f.times)), Some(("6", 3)), "it is no part of the sample");
    }

    #[test]
    fn runs_that_judged_nothing_fail_a_sweep_only_if_no_run_judged_anything() {
        let mut findings = Findings::default();
        assert_eq!(findings.exit_code(), 0);
        add(&mut findings, "1", report(Outcome::Vacuous, "", 1));
        assert_eq!(findings.exit_code(), 1);
        add(&mut findings, "2", report(Outcome::Holds, "", 1));
        assert_eq!((findings.exit_code(), findings.all().len()), (0, 0));
        add(&mut findings, "3", report(Outcome::Hung, "", 1));
        assert_eq!(findings.exit_code(), 3);
    }
}
