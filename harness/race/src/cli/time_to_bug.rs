//! `time-to-bug`: runs and seconds until each strategy finds what the catalogue's failing sides show, as a document.
//!
//! Of a scenario, what it does by hand is left out (holds, pins, slowed calls): with it, the first run would fail.
use std::fs::File;
use std::io::Write;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Args;
use photofinish_sim::choices::{Legal, Pins, Source as ChoiceSource};

use crate::explore::exhaust::{self, Plan};
use crate::explore::strategy::Strategy;
use crate::explore::unheld;
use crate::mistake::BadInput;
use crate::options::Options;
use crate::outcome::RunReport;
use crate::pool::{Again, Job, Pool, PoolError};
use crate::scenario::Scenario;
use crate::system::System;

use super::output::{Output, note};
use super::progress::{Extent, Progress, QuietArg};
use super::{HARNESS, interrupt, parse_limit, selected, sweep};

/// Strategies that draw, in the order of the table's columns.
const DRAWN: [Strategy; 3] = [Strategy::Swarm, Strategy::Pct, Strategy::Delay];
/// Seeds of one master seed are the numbers from its own multiple of this on.
const APART: u64 = 1_000_000;

#[derive(Args)]
pub(super) struct TimeToBugArgs {
    /// Names of built-in scenarios, or files; all built-in ones if there are none.
    #[arg(value_name = "NAME|FILE")]
    scenarios: Vec<String>,
    /// How many master seeds; the median of them is told.
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..))]
    masters: u64,
    /// How many runs a search may take.
    #[arg(long, value_name = "RUNS", default_value_t = 200, value_parser = clap::value_parser!(u64).range(1..))]
    budget: u64,
    /// How long each failing side may be searched for in all: a quarter of it by each strategy.
    #[arg(long, value_name = "20s", value_parser = parse_limit)]
    time: Option<Duration>,
    /// Write the document to this file, not to the terminal.
    #[arg(long, value_name = "FILE.md")]
    out: Option<String>,
    #[command(flatten)]
    how: QuietArg,
}

/// A failing side to be found: which remedies are off, what it violates.
struct Twin {
    scenario: Arc<Scenario>,
    name: String,
    options: Options,
    violates: Vec<String>,
}

/// What a search came to: runs and seconds until it was found, if it was.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Search {
    found: Option<(u64, f64)>,
    runs: u64,
    /// The time was over before it was found.
    cut: bool,
}

pub(super) fn measure(system: &'static dyn System, args: &TimeToBugArgs, output: &mut Output) -> Result<u8, BadInput> {
    let scenarios = selected(system, &args.scenarios)?;
    interrupt::listen();
    let mut file = match &args.out {
        Some(path) => Some(
            File::create(path).map_err(|e| BadInput::new(format!("--out {path}: the file cannot be written: {e}")))?,
        ),
        None => None,
    };
    let mut twins = Vec::new();
    for scenario in scenarios.iter().filter(|s| !s.fails_without.is_empty() && s.variant.is_none()) {
        let bare = unheld::of(system, scenario)?.unwrap_or(scenario.clone());
        for side in &scenario.fails_without {
            let options = if side.off == ["proposed"] {
                Options::as_reported()
            } else {
                Options::new().without(side.off.clone())
            };
            let name = if scenario.fails_without.len() > 1 {
                format!("{} ({})", scenario.name, side.off.join(", "))
            } else {
                scenario.name.clone()
            };
            twins.push(Twin { scenario: bare.clone(), name, options, violates: side.violates.clone() });
        }
    }
    let mut lost = None;
    let mut line = |text: String| match &mut file {
        Some(file) => lost = lost.take().or(writeln!(file, "{text}").err()),
        None => _ = output.line(text),
    };
    for text in head(args) {
        line(text);
    }
    let extent = Extent { total: Some(twins.len() as u64 * (DRAWN.len() as u64 * args.masters + 1)), limit: None };
    let mut progress = Progress::new(args.how.quiet, "searches", extent);
    let mut searches = 0;
    let mut code = 0;
    for twin in &twins {
        let mut searched = || {
            searches += 1;
            progress.tell(searches, String::new);
        };
        match row(system, args, twin, &mut searched) {
            Ok(Some(text)) => line(text),
            Ok(None) => break,
            Err(e) => {
                note(format!("error: {}: {e}", twin.name));
                code = HARNESS;
            }
        }
    }
    drop(progress);
    if interrupt::asked() {
        line("\nInterrupted: the rows above are all that was measured.".to_owned());
    }
    if let (Some(e), Some(path)) = (lost, &args.out) {
        note(format!("error: {path} takes no more lines: {e}"));
        code = HARNESS;
    }
    Ok(code)
}

fn head(args: &TimeToBugArgs) -> Vec<String> {
    let TimeToBugArgs { masters, budget, scenarios, time, .. } = args;
    let time = time.map_or(String::new(), |time| format!(" --time {}s", time.as_secs_f64()));
    let names: String = scenarios.iter().map(|name| format!(" {name}")).collect();
    let jobs = std::thread::available_parallelism().map_or(1, |n| n.get());
    vec![
        "# Time to bug".to_owned(),
        String::new(),
        format!("Written by `photofinish time-to-bug{names} --masters {masters} --budget {budget}{time}`, {jobs} runs at once."),
        String::new(),
        "Each row is a failing side of a scenario, without what its script does by hand (holds, pins, slowed calls): how many \
         runs, and seconds, until a run violates one of the same properties. The median of all master seeds; in brackets how \
         many of them found it within the budget, of how many that could be searched for in the time. `script`: the script alone fails, without any fault. Exhaust has no seed: \
         its list is run in order, as far as the time goes, whatever the budget is."
            .to_owned(),
        String::new(),
        "| scenario | violates | swarm | PCT, depth 3 | delay bound 2 | exhaust, one fault |".to_owned(),
        "|---|---|---|---|---|---|".to_owned(),
    ]
}

/// A row of the table; `None` if it was interrupted.
fn row(
    system: &'static dyn System,
    args: &TimeToBugArgs,
    twin: &Twin,
    searched: &mut dyn FnMut(),
) -> Result<Option<String>, PoolError> {
    let pool = Pool::new(system).again(Again::Never);
    let benign = Job::new(system, twin.scenario.clone(), &twin.options, ChoiceSource::Benign, Pins::default());
    let learnt = pool.clone().keep_traces(true).run_one(&Job { learn: true, ..benign.clone() })?;
    let mut cells = vec![twin.name.clone(), twin.violates.join(", ")];
    if shows(&learnt.report, &twin.violates) {
        cells.extend(["script", "script", "script", "script"].map(str::to_owned));
        return Ok(Some(format!("| {} |", cells.join(" | "))));
    }
    for strategy in DRAWN {
        let share = args.time.map(|time| Instant::now() + time / (DRAWN.len() as u32 + 1));
        let points = sweep::points(system, &twin.scenario, &twin.options, strategy)?;
        let mut all = Vec::new();
        for master in 1..=args.masters {
            let seeds = (1..=args.budget).map(|n| master * APART + n);
            let jobs = seeds.map(|seed| {
                let source = strategy.source(seed, Legal::Always, strategy.usual_bound(), points);
                Job::new(system, twin.scenario.clone(), &twin.options, source, Pins::default())
            });
            if all.is_empty() || !past(share) {
                let search = search(&pool, jobs.collect(), &twin.violates, share)?;
                // How a search would have ended, had it had the time, is not known.
                if all.is_empty() || !search.cut {
                    all.push(search);
                }
            }
            searched();
            if interrupt::asked() {
                return Ok(None);
            }
        }
        cells.push(median(&mut all));
    }
    let plan = Plan::of(system, &learnt, Legal::Always.allowed());
    let jobs = exhaust::jobs(&benign, &learnt.points, plan.schedules(1)).collect();
    let share = args.time.map(|time| Instant::now() + time / (DRAWN.len() as u32 + 1));
    let search = search(&pool, jobs, &twin.violates, share)?;
    let whole = if search.found.is_none() && !search.cut { ", the whole list" } else { "" };
    cells.push(median(&mut [search]) + whole);
    searched();
    Ok(Some(format!("| {} |", cells.join(" | "))))
}

fn shows(report: &RunReport, violates: &[String]) -> bool {
    report.violated().iter().any(|property| violates.iter().any(|v| v == property))
}

fn past(end: Option<Instant>) -> bool {
    end.is_some_and(|end| Instant::now() >= end)
}

fn search(pool: &Pool, jobs: Vec<Job>, violates: &[String], end: Option<Instant>) -> Result<Search, PoolError> {
    let start = Instant::now();
    let mut search = Search { found: None, runs: 0, cut: false };
    pool.run(jobs, |run| {
        search.runs += 1;
        if shows(&run.report, violates) {
            search.found = Some((search.runs, start.elapsed().as_secs_f64()));
        }
        search.cut = search.found.is_none() && past(end);
        search.found.is_none() && !search.cut && !interrupt::asked()
    })?;
    Ok(search)
}

/// The median over the searches; one that found nothing took longer than all that did.
fn median(searches: &mut [Search]) -> String {
    let runs = |s: &Search| s.found.map_or(u64::MAX, |(runs, _)| runs);
    searches.sort_by_key(runs);
    let found = searches.iter().filter(|s| s.found.is_some()).count();
    let middle = searches[(searches.len() - 1) / 2];
    let of = if searches.len() > 1 { format!(" [{found}/{}]", searches.len()) } else { String::new() };
    match middle.found {
        Some((runs, seconds)) => format!("{runs} runs, {seconds:.1} s{of}"),
        None => format!("not in {} runs{of}", searches.iter().map(|s| s.runs).max().unwrap_or(0)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn search(found: Option<u64>) -> Search {
        Search { found: found.map(|runs| (runs, runs as f64 / 10.0)), runs: found.unwrap_or(200), cut: false }
    }

    #[test]
    fn the_median_counts_what_was_not_found_as_later_than_all() {
        for (found, expected) in [
            (&[Some(4)][..], "4 runs, 0.4 s"),
            (&[None], "not in 200 runs"),
            (&[None, Some(30), Some(5)], "30 runs, 3.0 s [2/3]"),
            (&[None, None, Some(5)], "not in 200 runs [1/3]"),
            (&[Some(1), Some(9), Some(5), Some(7)], "5 runs, 0.5 s [4/4]"),
        ] {
            let mut all: Vec<Search> = found.iter().copied().map(search).collect();
            assert_eq!(median(&mut all), expected);
        }
    }
}
