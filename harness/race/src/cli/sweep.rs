//! `sweep`: many seeds, each with faults of its own; what fails is grouped, and remembered for next time.
use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Args;
use photofinish_sim::choices::{Legal, Pins, Source as ChoiceSource};
use serde::Serialize;

use crate::coverage::Coverage;
use crate::explore::findings::{Finding, Findings, Seen};
use crate::explore::fingerprint;
use crate::explore::memory::{self, Memory, Remembered};
use crate::explore::odds;
use crate::explore::strategy::{self, Strategy};
use crate::mistake::BadInput;
use crate::options::Options;
use crate::outcome::Outcome;
use crate::pool::{Again, Job, Pool, PoolError, Run, WALL_LIMIT};
use crate::property::SCRIPT;
use crate::report;
use crate::run_id::RunId;
use crate::scenario::Scenario;
use crate::system::System;

use super::drawing::Drawing;
use super::output::{Output, complain, json_line, note};
use super::progress::{Extent, Progress, QuietArg};
use super::sweep_page::{self, SweepPage};
use super::{BAD_INPUT, HARNESS, SystemArgs, interrupt, parse_limit, replay_command, selected};

/// How many seeds each scenario gets if neither a number nor a time is given.
const SEEDS: u64 = 500;

#[derive(Args)]
pub(super) struct SweepArgs {
    /// Names of built-in scenarios, or files; all built-in ones if there are none.
    #[arg(value_name = "NAME|FILE")]
    scenarios: Vec<String>,
    /// How many seeds each scenario gets; 500 unless there is a time.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    seeds: Option<u64>,
    /// The first seed.
    #[arg(long, value_name = "S", default_value_t = 1)]
    from: u64,
    /// End after this time, if the seeds are not done before.
    #[arg(long, value_name = "60s", value_parser = parse_limit)]
    time: Option<Duration>,
    /// How seeds draw: each has ids of its own.
    #[arg(long, value_enum, default_value_t = Strategy::Swarm)]
    strategy: Strategy,
    /// The depth of pct (3 unless it is said), the most delays of delay (2).
    #[arg(long, value_name = "K", value_parser = clap::value_parser!(u32).range(1..))]
    bound: Option<u32>,
    /// Which faults a swarm may draw: those of any cluster, of clusters with several API servers, or of no cluster.
    #[arg(long, value_name = "always|ha|never", default_value = "always", value_parser = parse_legal)]
    legal: Legal,
    /// Runs at once; as many as there are cores.
    #[arg(long, value_name = "J", value_parser = clap::value_parser!(u16).range(1..))]
    jobs: Option<u16>,
    /// Do only the i-th of n equal parts of the seeds.
    #[arg(long, value_name = "i/n", value_parser = parse_shard)]
    shard: Option<(u64, u64)>,
    /// Add the JSON line of each run to this file.
    #[arg(long, value_name = "FILE.jsonl")]
    out: Option<String>,
    /// Draw the cheapest run of each finding as a timeline, into one HTML file that needs nothing else.
    #[arg(long, value_name = "FILE")]
    html: Option<std::path::PathBuf>,
    #[command(flatten)]
    system: SystemArgs,
    /// Print all findings, not only the first ten.
    #[arg(long)]
    all: bool,
    /// Print one JSON object a run and a summary at the end, and nothing else.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    how: QuietArg,
    /// Wall time that one run may take; four times that if it had no processor for half of it.
    #[arg(long, value_name = "10s", value_parser = parse_limit)]
    wall_limit: Option<Duration>,
}

impl SweepArgs {
    /// What is swept, a line each, for the head of a page.
    fn what(&self, scenarios: &[Arc<Scenario>], options: &Options) -> Vec<String> {
        let names: Vec<&str> = scenarios.iter().map(|s| s.name.as_str()).collect();
        let names = match names.len() {
            0..=3 => names.join(", "),
            n => format!("{n} scenarios"),
        };
        let profile = options.to_string();
        let profile = if profile.is_empty() { "the default remedies".to_owned() } else { profile };
        let legal = match (self.strategy, self.legal) {
            (Strategy::Swarm, legal) => format!(
                " of what {} may do",
                match legal {
                    Legal::Always => "any cluster",
                    Legal::Ha => "clusters with several API servers",
                    Legal::Never => "no cluster",
                }
            ),
            _ => String::new(),
        };
        vec![names, profile, format!("strategy {}{legal}, seeds from {}", self.strategy.name(), self.from)]
    }
}

pub(super) fn parse_legal(text: &str) -> Result<Legal, String> {
    Legal::ALL.into_iter().find(|l| l.name() == text).ok_or_else(|| "expected always, ha or never".into())
}

fn parse_shard(text: &str) -> Result<(u64, u64), String> {
    let expected = "expected i/n with 1 <= i <= n, as in 2/8";
    let (i, n) = text.split_once('/').ok_or(expected)?;
    let (i, n) = (i.parse::<u64>().map_err(|_| expected)?, n.parse::<u64>().map_err(|_| expected)?);
    if (1..=n).contains(&i) { Ok((i, n)) } else { Err(expected.into()) }
}

/// The seeds of a shard, in order.
fn seeds(from: u64, count: Option<u64>, shard: Option<(u64, u64)>) -> impl Iterator<Item = u64> + Send {
    let (i, n) = shard.unwrap_or((1, 1));
    let last = count.map_or(u64::MAX, |count| from.saturating_add(count - 1));
    (from..=last).skip(i as usize - 1).step_by(n as usize)
}

pub(super) fn sweep(system: &'static dyn System, args: &SweepArgs, output: &mut Output) -> Result<u8, BadInput> {
    let options = args.system.options(system)?;
    let scenarios = selected(system, &args.scenarios)?;
    if args.strategy != Strategy::Swarm && args.legal != Legal::Always {
        return Err(BadInput::new(format!("--strategy {} draws only what any cluster may do", args.strategy.name()))
            .help("leave out --strategy or --legal"));
    }
    let bound = args.bound.unwrap_or(args.strategy.usual_bound());
    if args.bound.is_some() && !args.strategy.needs_points() {
        return Err(BadInput::new(format!("--strategy {} has no bound", args.strategy.name()))
            .help("--bound is the depth of pct, and the most delays of delay"));
    }
    let mut results = args.out.as_deref().map(Results::open).transpose()?;
    interrupt::listen();
    let count = args.seeds.or_else(|| args.time.is_none().then_some(SEEDS));

    let memory = Memory::at(memory::FOLDER);
    let before = remembered(system, &memory, &scenarios, &options);
    let replays = before.len() as u64;
    let points =
        match scenarios.iter().map(|s| points(system, s, &options, args.strategy)).collect::<Result<Vec<_>, _>>() {
            Ok(points) => points,
            Err(e) => {
                note(format!("error: {e}"));
                return Ok(HARNESS);
            }
        };
    let mut coverage = match sweep_page::to_be_tried(system, &scenarios, &options) {
        Ok(coverage) => coverage,
        Err(e) => {
            note(format!("error: {e}"));
            return Ok(HARNESS);
        }
    };
    let start = Instant::now();
    let over = || interrupt::asked() || args.time.is_some_and(|limit| start.elapsed() >= limit);
    let of_seed = |seed| {
        let job = |(s, points): (&Arc<Scenario>, &u32)| {
            let source = args.strategy.source(seed, args.legal, bound, *points);
            Job::new(system, s.clone(), &options, source, Pins::default())
        };
        scenarios.iter().zip(&points).map(job).collect::<Vec<_>>()
    };
    let drawn = seeds(args.from, count, args.shard).flat_map(of_seed);
    let jobs = before.into_iter().chain(drawn).map(|job| Job { cover: true, ..job }).take_while(|_| !over());

    let mut pool = Pool::new(system).wall_limit(args.wall_limit.unwrap_or(WALL_LIMIT));
    if let Some(jobs) = args.jobs {
        pool = pool.workers(usize::from(jobs));
    }
    let total = count.map(|count| {
        let (i, n) = args.shard.unwrap_or((1, 1));
        replays + (count + n - i) / n * scenarios.len() as u64
    });
    let extent = Extent { total, limit: args.time };
    let mut progress = Progress::new(args.how.quiet || args.json, "runs", extent);
    let mut findings = Findings::default();
    let mut forgetful = false;
    let mut code = 0;
    let done = pool.run(jobs, |run| {
        let id = run.job.id().to_string();
        let seen = match findings.runs() < replays {
            true => findings.replayed(&run.job.scenario.name, &id, &run.report, &run.entries, start.elapsed()),
            false => findings.add(&run.job.scenario.name, &id, &run.report, &run.entries, start.elapsed()),
        };
        if seen == Seen::First && !forgetful {
            let kept = findings.all().last().map(Remembered::from);
            forgetful = kept.is_some_and(|kept| forgot(&memory, &kept));
        }
        for wrong in &run.report.wrong_pins {
            code = BAD_INPUT;
            complain(&BadInput::new(wrong.clone()).help("the run took the default there: it is not what its id says"));
        }
        if let Some(results) = &mut results {
            results.add(&run);
        }
        coverage.add(&run.job.scenario.name, &run.tried);
        progress.tell(findings.runs(), || {
            let (taken, known) = coverage.choices();
            format!("{}, {taken} of {known} choices tried", super::found(&findings))
        });
        let read = !args.json || output.line(json_line(&run, false));
        read && !over()
    });
    drop(progress);
    if let Err(e) = done {
        note(format!("error: {e}"));
        code = HARNESS;
    }
    let seconds = start.elapsed().as_secs_f64();
    let why = match (interrupt::asked(), total.is_some_and(|total| findings.runs() >= total)) {
        (_, true) => None,
        (true, _) => Some("interrupted"),
        (false, _) if over() => Some("the time is over"),
        _ => None,
    };
    match args.json {
        true => _ = output.line(summary(&findings, &coverage, replays, seconds, why)),
        false if args.how.quiet && findings.all().len() == 0 => {}
        false => {
            tell(&findings, replays, seconds, (why, args.all), output);
            output.line(sweep_page::tried(system, &coverage));
        }
    }
    if let Some(drawing) = Drawing::new(system, args.html.as_deref(), None) {
        let ended = why;
        let (what, replayed) = (args.what(&scenarios, &options), replays);
        let page = SweepPage { what, findings: &findings, coverage: &coverage, replayed, seconds, ended };
        page.write(system, drawing)?;
    }
    if results.is_some_and(|r| r.lost) {
        code = HARNESS;
    }
    Ok(code.max(findings.exit_code()))
}

/// How many points of a scenario's benign run may be late, for strategies that must know it.
pub(super) fn points(
    system: &'static dyn System,
    scenario: &Arc<Scenario>,
    options: &Options,
    strategy: Strategy,
) -> Result<u32, PoolError> {
    if !strategy.needs_points() {
        return Ok(0);
    }
    let mut job = Job::new(system, scenario.clone(), options, ChoiceSource::Benign, Pins::default());
    job.learn = true;
    Ok(strategy::delay_points(&Pool::new(system).again(Again::Never).run_one(&job)?.points))
}

/// The remembered runs of these scenarios, with the options of this sweep.
fn remembered(system: &dyn System, memory: &Memory, scenarios: &[Arc<Scenario>], options: &Options) -> VecDeque<Job> {
    let (known, corrupt) = memory.recall().unwrap_or_else(|e| {
        note(format!("note: {} cannot be read, no run is remembered: {e}", memory::FOLDER));
        Default::default()
    });
    for bad in corrupt {
        let now = match bad.aside {
            Ok(path) => format!("it is set aside as {}", path.display()),
            Err(e) => format!("and it cannot be set aside: {e}"),
        };
        note(format!("note: the remembered run {} cannot be read: {}; {now}", bad.path.display(), bad.why));
    }
    let job = |(_, id): (Remembered, RunId)| {
        let again = |s: &Arc<Scenario>| {
            // Its cluster too was drawn, unless this sweep names one.
            let mut options = options.clone();
            for (name, value) in id.options.cluster.iter().filter(|_| !s.draw.is_empty()) {
                options.cluster.entry(name.clone()).or_insert(value.clone());
            }
            Job::new(system, s.clone(), &options, id.source, id.pins.clone())
        };
        scenarios.iter().map(again).find(|job| job.id().scenario == id.scenario)
    };
    known.into_iter().filter_map(job).collect()
}

/// Whether a run could not be remembered.
fn forgot(memory: &Memory, kept: &Remembered) -> bool {
    let done = memory.keep(kept);
    if let Err(e) = &done {
        note(format!("note: {} cannot be written, runs are not remembered: {e}", memory::FOLDER));
    }
    done.is_err()
}

/// The file of `--out`. Lines are added, never taken away; where the disk is full, the runs go on.
struct Results {
    path: String,
    file: File,
    length: u64,
    lost: bool,
}

impl Results {
    fn open(path: &str) -> Result<Results, BadInput> {
        let wrong = |e| {
            BadInput::new(format!("--out {path}: the file cannot be opened: {e}"))
                .help("expected a file that can be written")
        };
        let file = OpenOptions::new().create(true).append(true).open(path).map_err(wrong)?;
        let length = file.metadata().map_err(wrong)?.len();
        Ok(Results { path: path.to_owned(), file, length, lost: false })
    }
    fn add(&mut self, run: &Run) {
        if self.lost {
            return;
        }
        let line = json_line(run, false) + "\n";
        match self.file.write_all(line.as_bytes()) {
            Ok(()) => self.length += line.len() as u64,
            Err(e) => {
                self.lost = true;
                // What went out of a line must not spoil the next one. A device has no length to set.
                let _ = self.file.set_len(self.length);
                note(format!(
                    "error: {} takes no more lines: {e}; those before run {} are there, what is found is printed here as well",
                    self.path,
                    run.job.id()
                ));
            }
        }
    }
}

/// The last JSON line, version 1: fields may be added, none is removed or changes its meaning.
#[derive(Serialize)]
struct Summary<'a> {
    v: u32,
    summary: &'static str,
    runs: u64,
    /// Of these: remembered ones.
    replayed: u64,
    seconds: f64,
    /// Runs that violated a property.
    violations: u64,
    outcomes: std::collections::BTreeMap<&'static str, u64>,
    /// Why it ended before its seeds did.
    ended: Option<&'a str>,
    findings: Vec<&'a Finding>,
    /// Choices of the benign runs that were not as usual in at least one run.
    choices_tried: u64,
    /// Choices of the benign runs.
    choices: u64,
    /// Pairs of a state and an event that met, see the page of `--html`.
    pairs_met: u64,
}

fn summary(findings: &Findings, coverage: &Coverage, replayed: u64, seconds: f64, ended: Option<&str>) -> String {
    let (choices_tried, choices) = coverage.choices();
    let summary = Summary {
        v: 1,
        summary: "sweep",
        runs: findings.runs(),
        replayed: replayed.min(findings.runs()),
        seconds: (seconds * 1e3).round() / 1e3,
        violations: findings.count(Outcome::Violated),
        outcomes: findings.outcomes().map(|(o, n)| (o.name(), n)).collect(),
        ended,
        findings: findings.all().collect(),
        choices_tried,
        choices,
        pairs_met: coverage.pairs(),
    };
    serde_json::to_string(&summary).expect("a summary is plain data")
}

/// How many findings are printed, unless all are asked for.
const SHOWN: usize = 10;
/// Columns of what a finding's cheapest run says.
pub(super) const FINDING_WIDTH: usize = 118;

/// The findings to print, and what to say of those that are not. What the script waited for in vain comes last: many
/// faults lead there.
pub(super) fn shown(mut findings: Vec<&Finding>, all: bool) -> (Vec<&Finding>, Option<String>) {
    findings.sort_by_key(|finding| finding.property == SCRIPT);
    let count = findings.len();
    if all || count <= SHOWN {
        return (findings, None);
    }
    findings.truncate(SHOWN);
    let rest = count - SHOWN;
    (findings, Some(format!("these are {SHOWN} of {count} findings: `--all` prints the other {rest} as well")))
}

fn tell(findings: &Findings, replayed: u64, seconds: f64, (ended, all): (Option<&str>, bool), output: &mut Output) {
    let style = output.style;
    let replayed = replayed.min(findings.runs());
    let (told, rest) = shown(findings.all().collect(), all);
    for finding in told {
        let Finding { fingerprint, property, object, scenario, run_id, faults, times, outcome, .. } = finding;
        output.line(format!(
            "{} {}  {scenario}  [{fingerprint}]",
            style.outcome(*outcome, outcome.name()),
            fingerprint::what(property, object)
        ));
        let first = format!("in run {}, after {:.1} s", finding.found_after_runs, finding.found_after_seconds);
        let found = match times {
            0 => "in a remembered run only".to_owned(),
            times => odds::sentence(*times, findings.drawn(scenario)),
        };
        output.line(format!("  {}", report::cut(&finding.why, FINDING_WIDTH)));
        output.line(format!("  {found}; first {first}"));
        output.line(format!("  cheapest ({faults} choices not as usual): {}", replay_command(run_id)));
    }
    if let Some(rest) = rest {
        output.line(rest);
    }
    let counts: Vec<String> =
        findings.outcomes().map(|(o, n)| style.outcome(o, &super::printer::counted(o, n as usize))).collect();
    let ended = ended.map_or(String::new(), |why| format!("; {why}"));
    let remembered = if replayed > 0 { format!(" ({replayed} of them remembered)") } else { String::new() };
    output.line(format!(
        "{} runs{remembered} in {seconds:.1} s, {} findings: {}{ended}",
        findings.runs(),
        findings.all().len(),
        if counts.is_empty() { "none was done".to_owned() } else { counts.join(", ") },
    ));
    let drawn = findings.runs() - replayed;
    if findings.all().len() == 0 && drawn > 0 {
        output.line(odds::sentence(0, drawn));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shards_share_the_seeds_and_no_seed_is_in_two() {
        let shard = |i, n| seeds(10, Some(7), Some((i, n))).collect::<Vec<_>>();
        assert_eq!([shard(1, 3), shard(2, 3), shard(3, 3)], [vec![10, 13, 16], vec![11, 14], vec![12, 15]]);
        assert_eq!(seeds(5, None, None).take(3).collect::<Vec<_>>(), [5, 6, 7]);
        assert_eq!(seeds(u64::MAX, Some(5), None).collect::<Vec<_>>(), [u64::MAX]);
    }

    #[test]
    fn of_many_findings_ten_are_printed_those_of_the_script_last() {
        let finding = |n: usize| Finding {
            fingerprint: format!("{n:08x}"),
            property: if n.is_multiple_of(2) { SCRIPT } else { "stable" }.to_owned(),
            object: String::new(),
            why: String::new(),
            scenario: String::new(),
            run_id: String::new(),
            faults: 0,
            times: 1,
            found_after_runs: 1,
            found_after_seconds: 0.0,
            outcome: Outcome::Violated,
        };
        let findings: Vec<Finding> = (0..13).map(finding).collect();
        let of = |count: usize, all| shown(findings[..count].iter().collect(), all);
        let (told, rest) = of(13, false);
        assert_eq!(told.iter().filter(|f| f.property == "stable").count(), 6, "all of them");
        assert!(told[..6].iter().all(|f| f.property == "stable") && told.len() == 10);
        let expected = "these are 10 of 13 findings: `--all` prints the other 3 as well";
        assert_eq!(rest.as_deref(), Some(expected));
        for (count, all, told) in [(13, true, 13), (10, false, 10), (0, false, 0)] {
            let (findings, rest) = of(count, all);
            assert_eq!((findings.len(), rest), (told, None), "{count}");
        }
    }

    #[test]
    fn a_shard_is_one_of_n() {
        for (text, expected) in
            [("2/8", Some((2, 8))), ("1/1", Some((1, 1))), ("0/2", None), ("3/2", None), ("2", None), ("a/b", None)]
        {
            assert_eq!(parse_shard(text).ok(), expected, "{text}");
        }
    }
}
