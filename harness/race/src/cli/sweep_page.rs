//! `sweep`: what was tried, and `--html`: the page of what was found, how soon, and how much was tried.
use std::sync::Arc;

use photofinish_sim::choices::{Pins, Source as ChoiceSource};

use crate::catalogue;
use crate::coverage::Coverage;
use crate::explore::findings::Findings;
use crate::html::{Found, Swept};
use crate::mistake::BadInput;
use crate::options::Options;
use crate::pool::{Again, Job, Pool, PoolError};
use crate::property::always_checked;
use crate::run_id::RunId;
use crate::scenario::Scenario;
use crate::system::System;

use super::drawing::Drawing;
use super::output::note;
use super::replay_command;

/// What there is to be tried: the choices of each scenario's benign run.
pub(super) fn to_be_tried(
    system: &'static dyn System,
    scenarios: &[Arc<Scenario>],
    options: &Options,
) -> Result<Coverage, PoolError> {
    let benign = |s: &Arc<Scenario>| Job::new(system, s.clone(), options, ChoiceSource::Benign, Pins::default());
    let jobs: Vec<Job> = scenarios.iter().map(|s| Job { learn: true, ..benign(s) }).collect();
    let mut coverage = Coverage::default();
    Pool::new(system).again(Again::Never).run(jobs, |run| {
        coverage.learn(&run.job.scenario.name, &run.points);
        true
    })?;
    Ok(coverage)
}

/// What was tried, in a line.
pub(super) fn tried(system: &dyn System, coverage: &Coverage) -> String {
    let (taken, known) = coverage.choices();
    let grid = system.grid();
    let all = grid.states.len() * grid.events.len();
    let pairs = match all {
        0 => String::new(),
        _ => format!(", and {} of {all} pairs of {} and {} met", coverage.pairs(), grid.state, grid.event),
    };
    format!("tried: {taken} of {known} choices of the benign runs were not as usual at least once{pairs}")
}

/// The page of a sweep.
pub(super) struct SweepPage<'a> {
    /// What was swept, a line each.
    pub(super) what: Vec<String>,
    pub(super) findings: &'a Findings,
    pub(super) coverage: &'a Coverage,
    pub(super) replayed: u64,
    pub(super) seconds: f64,
    pub(super) ended: Option<&'a str>,
}

impl SweepPage<'_> {
    /// Each finding with its cheapest run, done once more to be drawn.
    pub(super) fn write(&self, system: &'static dyn System, mut drawing: Drawing) -> Result<(), BadInput> {
        let SweepPage { findings, .. } = self;
        let pool = Pool::new(system).again(Again::Never);
        let properties: Vec<_> = system.properties().into_iter().chain(always_checked()).collect();
        let mut found = Vec::new();
        for finding in findings.all() {
            let id: RunId = finding.run_id.parse()?;
            let job = Job { objects: true, ..catalogue::by_id(system, &id)? };
            let section = match pool.run_one(&job) {
                Ok(run) => drawing.add_section(&run),
                Err(e) => {
                    note(format!("note: the run {id} could not be drawn: {e}"));
                    None
                }
            };
            let sentence = properties.iter().find(|p| p.name == finding.property).map_or("", |p| p.sentence);
            found.push(Found {
                finding,
                sentence: sentence.to_owned(),
                drawn: findings.drawn(&finding.scenario),
                replay: replay_command(&finding.run_id),
                section,
            });
        }
        drawing.sweep(&Swept {
            what: self.what.clone(),
            runs: findings.runs(),
            replayed: self.replayed.min(findings.runs()),
            seconds: self.seconds,
            ended: self.ended,
            outcomes: findings.outcomes().map(|(outcome, n)| (outcome.name(), n)).collect(),
            findings: found,
            coverage: self.coverage,
            grid: system.grid(),
        });
        drawing.write()
    }
}
