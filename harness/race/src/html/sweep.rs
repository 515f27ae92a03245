//! The data of a sweep's head: what was found, how soon, how fast it went, and what was tried.
use serde::Serialize;

use crate::coverage::{Coverage, Kind, Table};
use crate::explore::findings::Finding;
use crate::explore::odds;
use crate::reading::Grid;

/// A curve has no more points than this.
const POINTS: usize = 240;

/// What a sweep was and came to.
pub struct Swept<'a> {
    /// What was swept: names of scenarios, options, strategy, seeds; a line each.
    pub what: Vec<String>,
    /// Runs, those that were remembered included.
    pub runs: u64,
    /// Of these: remembered ones.
    pub replayed: u64,
    /// Wall time.
    pub seconds: f64,
    /// Why it ended before its seeds did.
    pub ended: Option<&'a str>,
    /// Runs by outcome.
    pub outcomes: Vec<(&'static str, u64)>,
    /// What was found.
    pub findings: Vec<Found<'a>>,
    /// What was tried.
    pub coverage: &'a Coverage,
    /// The states and events that there are.
    pub grid: Grid,
}

/// A finding, and where it is drawn.
pub struct Found<'a> {
    /// The finding.
    pub finding: &'a Finding,
    /// What its property demands.
    pub sentence: String,
    /// Drawn runs of its scenario.
    pub drawn: u64,
    /// The command that replays its cheapest run.
    pub replay: String,
    /// The section of the page that shows its cheapest run.
    pub section: Option<usize>,
}

/// The data, version 1, as the page reads it.
#[derive(Serialize)]
pub(super) struct Sweep {
    v: u32,
    what: Vec<String>,
    runs: u64,
    replayed: u64,
    seconds: f64,
    ended: Option<String>,
    outcomes: Vec<(&'static str, u64)>,
    findings: Vec<Row>,
    /// Taken at least once, and known.
    choices: (u64, u64),
    kinds: Vec<Kind>,
    grid: Option<Table>,
    curves: Curves,
}

#[derive(Serialize)]
struct Row {
    #[serde(flatten)]
    finding: Finding,
    sentence: String,
    drawn: u64,
    /// The 95 % confidence interval of how often a run shows it.
    interval: (f64, f64),
    replay: String,
    section: Option<usize>,
}

/// After so many runs, so many: of findings, of choices that were not as usual, of pairs that met.
#[derive(Serialize)]
struct Curves {
    findings: Vec<(u64, u64)>,
    choices: Vec<(u64, u64)>,
    pairs: Vec<(u64, u64)>,
}

impl Sweep {
    pub(super) fn of(swept: &Swept<'_>) -> Sweep {
        let rows = swept.findings.iter().map(|found| Row {
            finding: found.finding.clone(),
            sentence: found.sentence.clone(),
            drawn: found.drawn,
            interval: odds::interval(found.finding.times.min(found.drawn), found.drawn),
            replay: found.replay.clone(),
            section: found.section,
        });
        Sweep {
            v: 1,
            what: swept.what.clone(),
            runs: swept.runs,
            replayed: swept.replayed,
            seconds: swept.seconds,
            ended: swept.ended.map(str::to_owned),
            outcomes: swept.outcomes.clone(),
            choices: swept.coverage.choices(),
            kinds: swept.coverage.kinds(),
            grid: swept.coverage.grid(swept.grid.clone()),
            curves: Curves {
                findings: curve(swept.findings.iter().map(|found| found.finding.found_after_runs)),
                choices: curve(swept.coverage.first_taken()),
                pairs: curve(swept.coverage.first_met()),
            },
            findings: rows.collect(),
        }
    }
}

/// How many there are after so many runs, from the runs at which each was first seen. Long curves are thinned; their last
/// point stays.
fn curve(firsts: impl Iterator<Item = u64>) -> Vec<(u64, u64)> {
    let mut firsts: Vec<u64> = firsts.collect();
    firsts.sort_unstable();
    let mut points: Vec<(u64, u64)> = Vec::new();
    for (n, run) in (1..).zip(firsts) {
        match points.last_mut() {
            Some(last) if last.0 == run => last.1 = n,
            _ => points.push((run, n)),
        }
    }
    let (step, last) = (points.len().div_ceil(POINTS).max(1), points.len().saturating_sub(1));
    points.into_iter().enumerate().filter(|(i, _)| i % step == 0 || *i == last).map(|(_, point)| point).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_curve_rises_at_each_run_that_showed_something_new() {
        assert_eq!(curve([9, 1, 4, 4].into_iter()), [(1, 1), (4, 3), (9, 4)]);
        assert_eq!(curve(std::iter::empty()), []);
    }

    #[test]
    fn a_long_curve_is_thinned_and_ends_where_it_ends() {
        let curve = curve(1..=10_001);
        assert!((POINTS / 2..=POINTS + 1).contains(&curve.len()), "{}", curve.len());
        assert_eq!((curve.first(), curve.last()), (Some(&(1, 1)), Some(&(10_001, 10_001))));
    }
}
