//! `flake-rate NAME`: how many seeds of a scenario fail as reported, with each proposed remedy alone, and by default.
use std::collections::BTreeMap;
use std::sync::Arc;

use clap::Args;
use photofinish_sim::choices::{Legal, Pins};
use serde::Serialize;

use crate::explore::odds;
use crate::explore::strategy::Strategy;
use crate::mistake::BadInput;
use crate::options::Options;
use crate::outcome::Outcome;
use crate::pool::{Again, Job, Pool, PoolError};
use crate::scenario::Scenario;
use crate::switch::SwitchKind;
use crate::system::System;

use super::output::{Output, note};
use super::progress::{Extent, Progress, QuietArg};
use super::{HARNESS, interrupt, selected, sweep};

#[derive(Args)]
pub(super) struct FlakeRateArgs {
    /// Name of a built-in scenario, or a file.
    #[arg(value_name = "NAME|FILE")]
    scenario: String,
    /// How many seeds, from 1 on: the same for each row.
    #[arg(long, value_name = "N", default_value_t = 2000, value_parser = clap::value_parser!(u64).range(1..))]
    seeds: u64,
    /// Of the remedies only these; all proposed ones if there are none.
    #[arg(long, value_name = "R1,R2", value_delimiter = ',')]
    remedies: Vec<String>,
    /// How seeds draw.
    #[arg(long, value_enum, default_value_t = Strategy::Plain)]
    strategy: Strategy,
    /// Runs at once; as many as there are cores.
    #[arg(long, value_name = "J", value_parser = clap::value_parser!(u16).range(1..))]
    jobs: Option<u16>,
    /// A table for a document.
    #[arg(long, conflicts_with = "json")]
    markdown: bool,
    /// One JSON object a row, and nothing else.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    how: QuietArg,
}

/// A row, version 1: fields may be added, none is removed or changes its meaning.
#[derive(Serialize)]
struct Row<'a> {
    v: u32,
    scenario: &'a str,
    /// What is switched on besides the merged remedies.
    with: String,
    /// Runs with a verdict.
    runs: u64,
    failing: u64,
    /// The 95 % interval of the rate (Wilson), 0.0 to 1.0.
    low: f64,
    high: f64,
    /// How often each property was violated; a run may violate several. `stuck` and `crashed` are how runs ended.
    violated: BTreeMap<String, u64>,
    first_failing_seed: Option<u64>,
    /// Runs without a verdict, which count as neither.
    without_verdict: u64,
}

pub(super) fn measure(system: &'static dyn System, args: &FlakeRateArgs, output: &mut Output) -> Result<u8, BadInput> {
    let scenarios = selected(system, std::slice::from_ref(&args.scenario))?;
    interrupt::listen();
    let proposed = |kind| matches!(kind, SwitchKind::Proposed { .. });
    let names: Vec<&str> = system.switches().iter().filter(|s| proposed(s.kind)).map(|s| s.name).collect();
    if let Some(unknown) = args.remedies.iter().find(|name| !names.contains(&name.as_str())) {
        return Err(BadInput::unknown("proposed remedy", unknown, names.iter().copied()));
    }
    let alone = names.iter().filter(|name| args.remedies.is_empty() || args.remedies.iter().any(|r| r == *name));
    let mut sets = vec![("none (as reported)".to_owned(), Options::as_reported())];
    sets.extend(alone.map(|name| (format!("`{name}`"), Options::as_reported().with([*name]))));
    sets.push(("the recommended set".to_owned(), Options::new()));

    let mut pool = Pool::new(system).again(Again::Never);
    if let Some(jobs) = args.jobs {
        pool = pool.workers(usize::from(jobs));
    }
    let total = args.seeds * (sets.len() * scenarios.len()) as u64;
    let extent = Extent { total: Some(total), limit: None };
    let mut progress = Progress::new(args.how.quiet || args.json, "runs", extent);
    let mut done = 0;
    let mut code = 0;
    for scenario in &scenarios {
        if args.markdown {
            for line in head(args, scenario) {
                output.line(line);
            }
        }
        for (with, options) in &sets {
            let counted = |_: &Row<'_>| {
                done += 1;
                progress.tell(done, String::new);
            };
            let row = match row(system, args, &pool, scenario, (with, options), counted) {
                Ok(row) => row,
                Err(e) => {
                    note(format!("error: {e}"));
                    return Ok(HARNESS);
                }
            };
            if interrupt::asked() {
                note(format!("note: interrupted: the row {with} was not measured to its end"));
                return Ok(code);
            }
            if row.without_verdict > 0 {
                note(format!("note: {with}: {} runs had no verdict and are not counted", row.without_verdict));
                code = HARNESS;
            }
            output.line(match (args.json, args.markdown) {
                (true, _) => serde_json::to_string(&row).expect("a row is plain data"),
                (_, true) => markdown(&row),
                _ => format!("{}  {}  {}: {}", row.scenario, row.with, rate(&row), violated(&row)),
            });
        }
    }
    Ok(code)
}

fn head(args: &FlakeRateArgs, scenario: &Scenario) -> Vec<String> {
    let FlakeRateArgs { seeds, strategy, remedies, .. } = args;
    let strategy = match strategy {
        Strategy::Plain => String::new(),
        other => format!(" --strategy {}", other.name()),
    };
    let remedies = if remedies.is_empty() { String::new() } else { format!(" --remedies {}", remedies.join(",")) };
    let command = format!("photofinish flake-rate {} --seeds {seeds}{strategy}{remedies} --markdown", scenario.name);
    vec![
        format!("Written by `{command}`: of the same {seeds} seeds, those that fail."),
        String::new(),
        "| switched on | failing seeds | rate | 95 % interval (Wilson) | violated, in how many runs |".to_owned(),
        "|---|---|---|---|---|".to_owned(),
    ]
}

fn row<'a>(
    system: &'static dyn System,
    args: &FlakeRateArgs,
    pool: &Pool,
    scenario: &'a Arc<Scenario>,
    (with, options): (&str, &Options),
    mut counted: impl FnMut(&Row<'_>),
) -> Result<Row<'a>, PoolError> {
    let points = sweep::points(system, scenario, options, args.strategy)?;
    let jobs = (1..=args.seeds).map(|seed| {
        let source = args.strategy.source(seed, Legal::Always, args.strategy.usual_bound(), points);
        Job::new(system, scenario.clone(), options, source, Pins::default())
    });
    let mut row = Row {
        v: 1,
        scenario: &scenario.name,
        with: with.to_owned(),
        runs: 0,
        failing: 0,
        low: 0.0,
        high: 1.0,
        violated: BTreeMap::new(),
        first_failing_seed: None,
        without_verdict: 0,
    };
    pool.run(jobs, |run| {
        let report = &run.report;
        let failed = matches!(report.outcome, Outcome::Violated | Outcome::Stuck | Outcome::Crashed);
        match report.outcome.exit_code() {
            _ if failed || matches!(report.outcome, Outcome::Holds | Outcome::Vacuous) => row.runs += 1,
            _ => row.without_verdict += 1,
        }
        if failed {
            row.failing += 1;
            row.first_failing_seed.get_or_insert(run.job.source.seed());
            let how = report.outcome.name();
            let names = if report.outcome == Outcome::Violated { report.violated() } else { vec![how] };
            for name in names {
                *row.violated.entry(name.to_owned()).or_default() += 1;
            }
        }
        counted(&row);
        !interrupt::asked()
    })?;
    (row.low, row.high) = odds::interval(row.failing, row.runs);
    Ok(row)
}

fn percent(rate: f64) -> String {
    format!("{:.2} %", rate * 100.0)
}

fn rate(row: &Row<'_>) -> String {
    let share = row.failing as f64 / (row.runs as f64).max(1.0);
    format!("{} of {}, {} ({} to {})", row.failing, row.runs, percent(share), percent(row.low), percent(row.high))
}

fn violated(row: &Row<'_>) -> String {
    let mut all: Vec<(&String, &u64)> = row.violated.iter().collect();
    all.sort_by_key(|(_, n)| std::cmp::Reverse(**n));
    match all.is_empty() {
        true => "nothing".to_owned(),
        false => all.iter().map(|(name, n)| format!("{name} {n}")).collect::<Vec<_>>().join(", "),
    }
}

fn markdown(row: &Row<'_>) -> String {
    let share = row.failing as f64 / (row.runs as f64).max(1.0);
    format!(
        "| {} | {} of {} | {} | {} to {} | {} |",
        row.with,
        row.failing,
        row.runs,
        percent(share),
        percent(row.low),
        percent(row.high),
        violated(row)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_says_the_rate_its_interval_and_what_was_violated_most_often_first() {
        let (low, high) = odds::interval(60, 500);
        let violated = [("a".to_owned(), 4), ("b".to_owned(), 60)].into();
        let row = Row {
            v: 1,
            scenario: "s",
            with: "`r`".into(),
            runs: 500,
            failing: 60,
            low,
            high,
            violated,
            first_failing_seed: Some(3),
            without_verdict: 0,
        };
        assert_eq!(markdown(&row), "| `r` | 60 of 500 | 12.00 % | 9.44 % to 15.14 % | b 60, a 4 |");
        assert_eq!(rate(&row), "60 of 500, 12.00 % (9.44 % to 15.14 %)");
        let (low, high) = odds::interval(0, 2000);
        let none = Row { runs: 2000, failing: 0, low, high, violated: BTreeMap::new(), ..row };
        assert_eq!(markdown(&none), "| `r` | 0 of 2000 | 0.00 % | 0.00 % to 0.19 % | nothing |");
    }
}
