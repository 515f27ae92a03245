//! `explain RUN-ID --when`: the run is left at its state changes and goes on with other faults; how often it still fails
//! says when the failure became inevitable.
use std::time::Duration;

use photofinish_sim::trace::Entry;

use crate::explore::fingerprint::Fingerprint;
use crate::explore::inevitable::{self, Moment};
use crate::explore::odds;
use crate::outcome::telling;
use crate::pool::{Again, Pool, Run};
use crate::report;
use crate::system::System;

use super::interrupt;
use super::lab::{Lab, LabError};
use super::output::{Output, note};
use super::progress::{Extent, Progress};

/// At how many moments a run is left.
const MOMENTS: usize = 24;
/// What a fork may take: faults drawn anew may make a run long.
const WALL_LIMIT: Duration = Duration::from_secs(30);

/// Prints the chance of failure after each of the run's moments, from so many forks each.
pub(super) fn tell(
    system: &'static dyn System,
    id: &str,
    forks: u64,
    quiet: bool,
    output: &mut Output,
) -> Result<u8, LabError> {
    let (run, fingerprint) = Lab::new(system).failing(system, id)?;
    let code = run.report.outcome.exit_code();
    let broke = broken_at(&run, &fingerprint);
    let moments = inevitable::moments(&run.entries, broke, telling, MOMENTS);
    output.line(fingerprint.what());
    interrupt::listen();
    let mut counts = vec![(0u64, 0u64); moments.len()];
    let extent = Extent { total: Some(moments.len() as u64 * forks), limit: None };
    let mut progress = Progress::new(quiet, "runs", extent);
    let jobs = moments.iter().flat_map(|moment| {
        (1..=forks).map(|draws| inevitable::fork(&run.job, &run.entries, moment, draws)).collect::<Vec<_>>()
    });
    let jobs: Vec<_> = jobs.collect();
    let mut done = 0usize;
    let pool = Pool::new(system).again(Again::Never).wall_limit(WALL_LIMIT);
    pool.run(jobs, |fork| {
        let (failed, all) = &mut counts[done / forks as usize];
        *all += 1;
        let same = Fingerprint::of(&fork.report, &fork.entries).is_some_and(|f| f.same_failure(&fingerprint));
        *failed += u64::from(same);
        done += 1;
        progress.tell(done as u64, || {
            format!("{} failed all the same", counts.iter().map(|(failed, _)| failed).sum::<u64>())
        });
        !interrupt::asked()
    })?;
    drop(progress);
    let chances: Vec<f64> = counts.iter().map(|(k, n)| *k as f64 / (*n).max(1) as f64).collect();
    let jump = inevitable::jump(&chances);
    for (at, (moment, (failed, all))) in moments.iter().zip(&counts).enumerate().filter(|(_, (_, (_, n)))| *n > 0) {
        let bar = "#".repeat((chances[at] * 20.0).round() as usize);
        let here = if jump == Some(at) { "  <- here" } else { "" };
        let (low, high) = odds::interval(*failed, *all);
        output.line(format!(
            "{:>4.0} %  [{bar:<20}]  {:>2.0}-{:.0} %  after {}{here}",
            chances[at] * 100.0,
            low * 100.0,
            high * 100.0,
            what(&run.entries, moment)
        ));
    }
    match jump {
        Some(at) => output.line(format!(
            "the chance of failure rises most, from {:.0} % to {:.0} %, with: {}",
            chances[at - 1] * 100.0,
            chances[at] * 100.0,
            what(&run.entries, &moments[at])
        )),
        None => output.line("no moment of the run makes the failure more likely than it was at the start"),
    };
    if interrupt::asked() {
        note("note: interrupted, not all moments were tried");
    }
    Ok(code)
}

/// The entry that broke the property.
fn broken_at(run: &Run, fingerprint: &Fingerprint) -> usize {
    let broken = run.report.violations.iter().find(|b| b.property == fingerprint.property);
    broken.map_or(run.entries.len(), |b| b.violation.entry as usize)
}

fn what(entries: &[Entry], moment: &Moment) -> String {
    match (moment.from_ns, entries.get(moment.entry)) {
        (0, _) | (_, None) => "the start".to_owned(),
        (_, Some(e)) => report::entry(e),
    }
}
