//! The command line: `list`, `run`, `replay`, `check`, `remedies`, and a file each for what explores or serves.
//!
//! Exit codes: 0 all hold; 1 violated, vacuous, stuck or crashed; 2 bad input, or a step that the engine cannot do;
//! 3 nondeterministic, wall limit, failure of the harness. The highest wins.
use std::ffi::OsString;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use photofinish_sim::choices::{Pins, Source as ChoiceSource};

use crate::catalogue;
use crate::explore::findings::Findings;
use crate::mistake::BadInput;
use crate::options::{Options, Profile};
use crate::outcome::Outcome;
use crate::pool::{Again, Job, Pool};
use crate::property::{Checked, always_checked};
use crate::scenario::yaml::parse_duration;
use crate::scenario::{Kind, Scenario};
use crate::switch::SwitchKind;
use crate::system::{Engine, System};
use output::{Colour, Output, complain, note};
use printer::Printer;
use progress::QuietArg;
pub(crate) use replay::replay_command;

mod apiserver;
mod artifacts;
mod authoring;
mod choices;
mod drawing;
mod exhaust;
mod explain;
mod flake_rate;
mod github;
mod interrupt;
mod lab;
mod manual;
mod matrix;
mod output;
mod printer;
mod progress;
mod prove;
mod replay;
mod schema;
mod shrink;
mod sweep;
mod sweep_page;
mod time_to_bug;
mod when;

/// Exit code: bad input.
const BAD_INPUT: u8 = 2;
/// Exit code: the harness failed.
const HARNESS: u8 = 3;
/// Wall time of one run of a matrix, whose runs are many at once.
const MATRIX_WALL_LIMIT: Duration = Duration::from_secs(60);

/// Where to begin.
const START: &str = "\
To begin with:
  list                     what there is to be raced
  run NAME                 one of them; --as-reported shows how it goes wrong, --html run.html draws it
  new my-race              a scenario of your own, with every step explained
  shrink RUN-ID            the fewest delays with which a failing run still fails";

#[derive(Parser)]
#[command(
    version,
    about = "Replays races on a simulated clock, network and cluster",
    max_term_width = 100,
    after_help = START
)]
struct Cli {
    /// When to colour: auto is a terminal, unless NO_COLOR is set.
    #[arg(long, global = true, value_name = "WHEN", default_value = "auto", value_parser = Colour::parse)]
    color: Colour,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Print all built-in scenarios, one a line.
    List,
    /// Run scenarios: all, or those named. Without a seed nothing is late and nothing fails but what the script says.
    Run {
        /// Names of built-in scenarios, or files.
        #[arg(value_name = "NAME|FILE")]
        scenarios: Vec<String>,
        /// Draw every choice that the script leaves open from this seed.
        #[arg(long, value_name = "N", conflicts_with = "seeds")]
        seed: Option<u64>,
        /// One run for each seed from A to B, both included.
        #[arg(long, value_name = "A..B", value_parser = parse_seeds)]
        seeds: Option<(u64, u64)>,
        #[command(flatten)]
        system: SystemArgs,
        #[command(flatten)]
        how: HowArgs,
    },
    /// Run once more what a run id stands for.
    Replay {
        /// As a failing run prints it: pf1:...
        run_id: String,
        #[command(flatten)]
        how: HowArgs,
    },
    /// Write a commented scenario to start from, NAME.yaml.
    New(authoring::NewArgs),
    /// Read scenario files and say what is wrong with them, or what they do in vain; runs nothing.
    Check(authoring::CheckArgs),
    /// Lay scenario files out in the usual order and form; comments stay.
    Fmt(authoring::FmtArgs),
    /// Print the remedies and mutants that the system knows.
    Remedies,
    /// Print the properties that scenarios may check, and those that are judged in every run.
    Properties,
    /// Print where a scenario's benign run could go another way: each choice with its alternatives and who may take them.
    Choices(choices::ChoicesArgs),
    /// Run scenarios with faults drawn by many seeds, and group what fails.
    Sweep(sweep::SweepArgs),
    /// Find the fewest pins and the shortest delays with which a run still fails.
    Shrink(shrink::ShrinkArgs),
    /// Run a scenario with every alternative of every choice, K at a time, and certify what was run.
    Exhaust(exhaust::ExhaustArgs),
    /// Measure how many runs each strategy needs until it finds what scenarios show, without what they do by hand.
    TimeToBug(time_to_bug::TimeToBugArgs),
    /// Count the seeds of a scenario that fail: as reported, with each proposed remedy alone, and by default.
    FlakeRate(flake_rate::FlakeRateArgs),
    /// Print the causes of a violation, from the start of the run.
    Explain(explain::ExplainArgs),
    /// Print where two runs part; of one that fails, where it parts from the nearest one that holds.
    Diff(explain::DiffArgs),
    /// Run ids twice, in different processes: the traces must be the same.
    ProveDeterminism(prove::ProveArgs),
    /// What each remedy does for each scenario, alone and in sets: all scenarios, or those named.
    Matrix {
        /// Names of built-in scenarios, or files.
        #[arg(value_name = "NAME|FILE")]
        scenarios: Vec<String>,
        /// A JSON line a cell, then one a scenario with the smallest sets of remedies that make it hold.
        #[arg(long, conflicts_with = "markdown")]
        json: bool,
        /// A table for a document.
        #[arg(long)]
        markdown: bool,
        /// Instead of single remedies, other clusters: which of them are affected.
        #[arg(long)]
        profiles: bool,
        /// Look for the smallest sets of up to N remedies, where no smaller one helps; sets of three take minutes.
        #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u8).range(1..=3))]
        sets: u8,
        #[command(flatten)]
        how: QuietArg,
    },
    /// Serve the simulated Kubernetes API on a socket, in real time, until SIGTERM; nothing acts on what is written.
    Apiserver(apiserver::ApiServerArgs),
    /// Print the JSON Schema of what --json prints, or of scenario files.
    Schema(schema::SchemaArgs),
    /// Print completions for a shell.
    Completions(manual::CompletionsArgs),
    /// Print the manual page of the program or of one command, in roff.
    Man(manual::ManArgs),
}

#[derive(Args)]
struct SystemArgs {
    /// The code as it was reported: no proposed remedy; merged ones but those in the scenario's reported-without.
    #[arg(long, conflicts_with = "bare")]
    as_reported: bool,
    /// No remedy at all.
    #[arg(long)]
    bare: bool,
    /// Remedies or mutants to switch on besides.
    #[arg(long, value_name = "R1,R2", value_delimiter = ',')]
    with: Vec<String>,
    /// Remedies to switch off.
    #[arg(long, value_name = "R1,R2", value_delimiter = ',')]
    without: Vec<String>,
    /// Values for the scenarios' cluster options.
    #[arg(long, value_name = "K=V,K=V", value_delimiter = ',')]
    cluster: Vec<String>,
    /// What runs the hosts: jump (from event to event) or turmoil (fixed ticks; knows fewer faults).
    #[arg(long, value_name = "E", default_value = "jump", value_parser = parse_engine)]
    engine: Engine,
}

impl SystemArgs {
    fn options(&self, system: &dyn System) -> Result<Options, BadInput> {
        let profile = match (self.as_reported, self.bare) {
            (true, _) => Profile::AsReported,
            (_, true) => Profile::Bare,
            _ => Profile::Default,
        };
        let set = |names: &[String]| names.iter().map(|n| n.trim().to_owned()).filter(|n| !n.is_empty()).collect();
        let (with, without) = (set(&self.with), set(&self.without));
        let cluster = self.cluster.iter().filter(|word| !word.is_empty()).map(|word| {
            word.split_once('=').ok_or_else(|| {
                BadInput::new(format!("--cluster {word}: expected an option and its value, as in mode=shared"))
            })
        });
        let cluster = cluster.collect::<Result<Vec<_>, _>>()?;
        let options = Options { profile, with, without, engine: self.engine, ..Options::default() };
        let options = options.in_cluster(cluster);
        options.check(system.switches(), system.cluster_options())?;
        Ok(options)
    }
}

#[derive(Args)]
struct HowArgs {
    /// Print the whole trace of each run.
    #[arg(long)]
    trace: bool,
    /// Print one JSON object a run, and nothing else; `schema` tells its fields.
    #[arg(long)]
    json: bool,
    /// No word of progress, and none of what holds.
    #[arg(long, short, conflicts_with = "json")]
    quiet: bool,
    /// Wall time that one run may take; four times that if it had no processor for half of it.
    #[arg(long, value_name = "10s", value_parser = parse_limit)]
    wall_limit: Option<Duration>,
    /// Draw the runs as timelines, into one HTML file that needs nothing else.
    #[arg(long, value_name = "FILE")]
    html: Option<std::path::PathBuf>,
    /// Write the run as trace events for ui.perfetto.dev; of several runs the worst.
    #[arg(long, value_name = "FILE")]
    perfetto: Option<std::path::PathBuf>,
    /// Keep the id, the trace, the report and the timeline of each run that does not hold in a new folder within this one.
    #[arg(long, value_name = "DIR")]
    artifacts: Option<std::path::PathBuf>,
}

fn parse_seeds(text: &str) -> Result<(u64, u64), String> {
    let expected = "expected two seeds, as in 1..500 (both included)";
    let (a, b) = text.split_once("..").ok_or(expected)?;
    let seed = |t: &str| t.trim().parse::<u64>().map_err(|_| format!("{expected}, `{t}` is no whole number"));
    let (a, b) = (seed(a)?, seed(b.strip_prefix('=').unwrap_or(b))?);
    match a <= b {
        true => Ok((a, b)),
        false => Err(format!("{expected}, {a} is more than {b}")),
    }
}

fn parse_engine(text: &str) -> Result<Engine, String> {
    let names = || Engine::ALL.map(Engine::name);
    Engine::ALL.into_iter().find(|e| e.name() == text).ok_or_else(|| format!("expected {}", names().join(" or ")))
}

fn parse_limit(text: &str) -> Result<Duration, String> {
    parse_duration(text).filter(|d| !d.is_zero()).ok_or_else(|| "expected a duration such as 10s or 500ms".into())
}

/// The program: reads the arguments, does what they say, returns the exit code.
///
/// Call it first in `main`: the processes that fork runs are this program again.
pub fn main(system: &'static dyn System) -> ExitCode {
    crate::execute::serve_if_zygote(system);
    run(system, std::env::args_os()).into()
}

/// The same for given arguments, the program's name first.
pub(crate) fn run(system: &'static dyn System, args: impl Iterator<Item = OsString>) -> u8 {
    let cli = match Cli::try_parse_from(args) {
        Ok(cli) => cli,
        Err(e) => {
            let _ = e.print();
            return e.exit_code() as u8;
        }
    };
    let mut output = Output::new(cli.color);
    let done = match cli.command {
        Command::List => list(system, &mut output),
        Command::Remedies => Ok(remedies(system, &mut output)),
        Command::Properties => Ok(properties(system, &mut output)),
        Command::Apiserver(args) => apiserver::serve(&args),
        Command::New(args) => authoring::new(system, &args, &mut output),
        Command::Check(args) => Ok(authoring::check(system, &args, &mut output)),
        Command::Fmt(args) => Ok(authoring::fmt(&args, &mut output)),
        Command::Schema(args) => Ok(schema::print(system, &args, &mut output)),
        Command::Completions(args) => Ok(manual::completions(&args, &mut output)),
        Command::Man(args) => manual::man(&args, &mut output),
        Command::Run { scenarios, seed, seeds, system: options, how } => {
            let seeds = seeds.or(seed.map(|s| (s, s)));
            run_scenarios(system, &scenarios, seed.is_none(), seeds, &options, &how, &mut output)
        }
        Command::Choices(args) => choices::choices(system, &args, &mut output),
        Command::Sweep(args) => sweep::sweep(system, &args, &mut output),
        Command::Shrink(args) => shrink::shrink(system, &args, &mut output),
        Command::Exhaust(args) => exhaust::exhaust(system, &args, &mut output),
        Command::TimeToBug(args) => time_to_bug::measure(system, &args, &mut output),
        Command::FlakeRate(args) => flake_rate::measure(system, &args, &mut output),
        Command::Explain(args) => explain::explain(system, &args, &mut output),
        Command::Diff(args) => explain::diff(system, &args, &mut output),
        Command::ProveDeterminism(args) => prove::prove(system, &args, &mut output),
        Command::Matrix { scenarios, json, markdown, profiles, sets, how } => {
            let form = match (json, markdown) {
                (true, _) => matrix::Form::Json,
                (_, true) => matrix::Form::Markdown,
                _ => matrix::Form::Text,
            };
            measure(system, &scenarios, form, (profiles, sets.into(), how.quiet), &mut output)
        }
        Command::Replay { run_id, how } => replay::replay(system, &run_id, &how, &mut output),
    };
    let code = done.unwrap_or_else(|bad| {
        complain(&bad);
        BAD_INPUT
    });
    match output.lost() {
        Some(why) => {
            note(format!("error: the results could not be written: {why}"));
            code.max(HARNESS)
        }
        None => code,
    }
}

fn list(system: &dyn System, output: &mut Output) -> Result<u8, BadInput> {
    let scenarios = catalogue::all(system)?;
    let width = width(scenarios.iter().map(|s| s.name.as_str()));
    let reports = |s: &Scenario| s.reports.join(", ");
    let reports_width = scenarios.iter().map(|s| reports(s).len()).max().unwrap_or(0);
    for s in &scenarios {
        output.line(format!("{:<width$}  {:<9}  {:<reports_width$}  {}", s.name, s.kind, reports(s), s.summary));
    }
    Ok(0)
}

fn remedies(system: &dyn System, output: &mut Output) -> u8 {
    let switches = system.switches();
    let width = width(switches.iter().map(|s| s.name));
    for s in switches {
        let kind = match s.kind {
            SwitchKind::Proposed { recommended: true } => "proposed, on",
            SwitchKind::Proposed { recommended: false } => "proposed, off",
            SwitchKind::Merged => "merged, on",
            SwitchKind::Mutant => "mutant, off",
        };
        output.line(format!("{:<width$}  {kind:<13}  {} ({})", s.name, s.sentence, s.from));
    }
    0
}

fn properties(system: &dyn System, output: &mut Output) -> u8 {
    let properties: Vec<_> = system.properties().into_iter().chain(always_checked()).collect();
    let own = properties.len() - always_checked().len();
    let width = width(properties.iter().map(|p| p.name));
    for (n, p) in properties.iter().enumerate() {
        let checked = match p.checked {
            Checked::WhenNamed if n < own => "when named",
            Checked::Always => "every run, or except",
            Checked::WhenNamed | Checked::WithoutException => "every run",
        };
        output.line(format!("{:<width$}  {checked:<20}  {}", p.name, p.sentence));
    }
    0
}

fn run_scenarios(
    system: &'static dyn System,
    names: &[String],
    many: bool,
    seeds: Option<(u64, u64)>,
    options: &SystemArgs,
    how: &HowArgs,
    output: &mut Output,
) -> Result<u8, BadInput> {
    let options = options.options(system)?;
    let scenarios = selected(system, names)?;
    let job = |scenario: &Arc<Scenario>, source| Job::new(system, scenario.clone(), &options, source, Pins::default());
    let width = width(scenarios.iter().map(|s| s.name.as_str()));
    let mut printer = Printer::new(system, how, output, width);
    match seeds {
        Some((a, b)) if many => {
            for scenario in &scenarios {
                let jobs = (a..=b).map(|seed| job(scenario, ChoiceSource::Seed(seed)));
                if !printer.sweep(scenario, b - a + 1, jobs) {
                    break;
                }
            }
        }
        _ => {
            let source = seeds.map_or(ChoiceSource::Benign, |(seed, _)| ChoiceSource::Seed(seed));
            let jobs: Vec<Job> = scenarios.iter().map(|s| job(s, source)).collect();
            let mut writes = Vec::new();
            for job in jobs.iter().filter(|job| job.scenario.each_write) {
                match printer.pool().again(Again::Never).run_one(job) {
                    Ok(run) => writes.extend(run.report.crash_points.iter().map(|label| job.crashing_after(label))),
                    Err(e) => _ = printer.harness(Err(e)),
                }
            }
            printer.widen(&writes);
            printer.each(jobs.into_iter().chain(writes).collect());
        }
    }
    printer.end()
}

/// The scenarios of these names and files; all built-in ones if there are none.
fn selected(system: &dyn System, names: &[String]) -> Result<Vec<Arc<Scenario>>, BadInput> {
    let mut found = Vec::new();
    for name in names {
        found.extend(catalogue::find(system, name)?);
    }
    let found = if names.is_empty() { catalogue::all(system)? } else { found };
    match found.is_empty() {
        true => Err(BadInput::new("the system has no scenarios").help("name a scenario file")),
        false => Ok(found),
    }
}

fn measure(
    system: &'static dyn System,
    names: &[String],
    form: matrix::Form,
    (profiles, largest, quiet): (bool, usize, bool),
    output: &mut Output,
) -> Result<u8, BadInput> {
    let scenarios = selected(system, names)?;
    let pool = Pool::new(system).wall_limit(MATRIX_WALL_LIMIT);
    let done = match profiles {
        true => matrix::print_clusters(system, &pool, &scenarios, form, quiet, output).map(|()| 0),
        false => matrix::print(system, &pool, &scenarios, largest, form, quiet, output),
    };
    Ok(match done {
        Ok(0) => 0,
        Ok(_) => 1,
        Err(e) => {
            note(format!("error: {e}"));
            HARNESS
        }
    })
}

fn width<'a>(names: impl Iterator<Item = &'a str>) -> usize {
    names.map(str::len).max().unwrap_or(0)
}

/// What the runs so far have shown, for a line of progress.
fn found(findings: &Findings) -> String {
    let kinds = findings.all().len();
    let failed: u64 = findings.outcomes().filter(|(outcome, _)| *outcome != Outcome::Holds).map(|(_, n)| n).sum();
    match failed {
        0 => "all hold".to_owned(),
        1 => "1 does not hold".to_owned(),
        _ => format!("{failed} do not hold in {kinds} {}", if kinds == 1 { "way" } else { "ways" }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_arguments_are_well_formed() {
        use clap::CommandFactory;
        Cli::command().debug_assert();
    }

    #[test]
    fn seeds_are_two_whole_numbers_both_included() {
        for (text, expected) in [
            ("1..500", Some((1, 500))),
            ("7..7", Some((7, 7))),
            ("1..=3", Some((1, 3))),
            ("3..1", None),
            ("1", None),
            ("a..2", None),
            ("1..", None),
        ] {
            assert_eq!(parse_seeds(text).ok(), expected, "{text}");
        }
    }
}
