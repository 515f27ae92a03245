//! `exhaust NAME --faults K`: every alternative of every choice, K at a time, and a certificate at the end.
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use clap::Args;
use photofinish_sim::choices::{Legal, Pins, Source as ChoiceSource};
use serde::Serialize;

use crate::explore::exhaust::{Plan, list_hash};
use crate::explore::findings::{Finding, Findings};
use crate::mistake::BadInput;
use crate::outcome::Outcome;
use crate::pool::{Again, Job, Pool, PoolError};
use crate::property::SCRIPT;
use crate::report;
use crate::scenario::Scenario;
use crate::system::System;

use super::output::{Output, json_line, note};
use super::progress::{Extent, Progress, QuietArg};
use super::{HARNESS, SystemArgs, interrupt, replay_command, selected};

#[derive(Args)]
pub(super) struct ExhaustArgs {
    /// Name of a built-in scenario, or a file.
    #[arg(value_name = "NAME|FILE")]
    scenario: String,
    /// How many choices leave their default at once.
    #[arg(long, value_name = "K", default_value_t = 1)]
    faults: usize,
    /// Which alternatives: those of any cluster, of clusters with several API servers, or of no cluster.
    #[arg(long, value_name = "always|ha|never", default_value = "always", value_parser = super::sweep::parse_legal)]
    legal: Legal,
    /// Do nothing if there are more schedules than this.
    #[arg(long, value_name = "N", default_value_t = 20_000)]
    budget: u64,
    /// Runs at once; as many as there are cores.
    #[arg(long, value_name = "J", value_parser = clap::value_parser!(u16).range(1..))]
    jobs: Option<u16>,
    #[command(flatten)]
    system: SystemArgs,
    /// Print one JSON object a run that does not hold and a certificate, and nothing else.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    how: QuietArg,
}

/// The certificate, version 1: fields may be added, none is removed or changes its meaning.
#[derive(Serialize)]
struct Certificate<'a> {
    v: u32,
    summary: &'static str,
    scenario: &'a str,
    faults: usize,
    legal: &'static str,
    /// Choices of the benign run.
    choice_points: usize,
    /// Runs that were done, the benign one included.
    schedules: u64,
    /// Runs that the list holds.
    listed: usize,
    /// Alternatives that are not in the list.
    pruned: u64,
    pruned_why: &'a BTreeMap<&'static str, u64>,
    violations: u64,
    /// Of these: runs that violated a property of the system. The others only missed what their script waits for, as a
    /// client that is told of a fault does.
    violations_of_system: u64,
    list_hash: &'a str,
    seconds: f64,
    /// Whether the whole list was run: only then it certifies anything.
    complete: bool,
    outcomes: BTreeMap<&'static str, u64>,
    findings: Vec<&'a Finding>,
}

pub(super) fn exhaust(system: &'static dyn System, args: &ExhaustArgs, output: &mut Output) -> Result<u8, BadInput> {
    interrupt::listen();
    let mut code = 0;
    for scenario in selected(system, std::slice::from_ref(&args.scenario))? {
        match of_scenario(system, args, &scenario, output)? {
            Ok(of_this) => code = code.max(of_this),
            Err(e) => {
                note(format!("error: {e}"));
                return Ok(HARNESS);
            }
        }
    }
    Ok(code)
}

fn of_scenario(
    system: &'static dyn System,
    args: &ExhaustArgs,
    scenario: &Arc<Scenario>,
    output: &mut Output,
) -> Result<Result<u8, PoolError>, BadInput> {
    let options = args.system.options(system)?;
    // Of failures that are alike, one is run again in another process: at the end.
    let mut pool = Pool::new(system).again(Again::Never);
    if let Some(jobs) = args.jobs {
        pool = pool.workers(usize::from(jobs));
    }
    let benign = Job::new(system, scenario.clone(), &options, ChoiceSource::Benign, Pins::default());
    let learning = Job { learn: true, ..benign.clone() };
    let learnt = match pool.clone().again(Again::Never).keep_traces(true).run_one(&learning) {
        Ok(run) => run,
        Err(e) => return Ok(Err(e)),
    };
    if matches!(learnt.report.outcome, Outcome::Failed | Outcome::Refused | Outcome::Hung) {
        let end = learnt.report.end.as_deref().unwrap_or("");
        note(format!("error: {}: the benign run is {}: {end}", scenario.name, learnt.report.outcome));
        return Ok(Ok(learnt.report.outcome.exit_code()));
    }
    let plan = Plan::new(&learnt.points, &learnt.entries, args.legal.allowed(), &scenario.pins);
    let count = plan.count(args.faults);
    if count > u128::from(args.budget) {
        return Err(BadInput::new(format!(
            "{}: {count} schedules with at most {} faults are more than the budget of {}",
            scenario.name, args.faults, args.budget
        ))
        .help("expected fewer --faults, or a --budget that allows it"));
    }
    let schedules = plan.schedules(args.faults);
    let hash = list_hash(&schedules);
    let listed = schedules.len();
    let start = Instant::now();
    let extent = Extent { total: Some(listed as u64), limit: None };
    let mut progress = Progress::new(args.how.quiet || args.json, "schedules", extent);
    let mut findings = Findings::default();
    let jobs = schedules.into_iter().map(|pins| Job { pins, ..benign.clone() }).take_while(|_| !interrupt::asked());
    let mut of_system = 0;
    let done = pool.run(jobs, |run| {
        of_system += u64::from(run.report.violated().iter().any(|property| *property != SCRIPT));
        findings.add(&scenario.name, &run.job.id().to_string(), &run.report, &run.entries, start.elapsed());
        progress.tell(findings.runs(), || super::found(&findings));
        let told = !args.json || run.report.outcome == Outcome::Holds || output.line(json_line(&run, false));
        told && !interrupt::asked()
    });
    drop(progress);
    if let Err(e) = done.and_then(|()| findings.confirm(system, &pool)) {
        return Ok(Err(e));
    }
    let certificate = Certificate {
        v: 1,
        summary: "exhaust",
        scenario: &scenario.name,
        faults: args.faults,
        legal: args.legal.name(),
        choice_points: learnt.points.len(),
        schedules: findings.runs(),
        listed,
        pruned: plan.pruned(),
        pruned_why: &plan.pruned,
        violations: findings.count(Outcome::Violated),
        violations_of_system: of_system,
        list_hash: &hash,
        seconds: (start.elapsed().as_secs_f64() * 1e3).round() / 1e3,
        complete: findings.runs() == listed as u64,
        outcomes: findings.outcomes().map(|(o, n)| (o.name(), n)).collect(),
        findings: findings.all().collect(),
    };
    match args.json {
        true => _ = output.line(serde_json::to_string(&certificate).expect("a certificate is plain data")),
        false if args.how.quiet && certificate.complete && certificate.findings.is_empty() => {}
        false => tell(&certificate, learnt.report.virtual_ns, output),
    }
    Ok(Ok(findings.exit_code()))
}

fn tell(certificate: &Certificate<'_>, virtual_ns: u64, output: &mut Output) {
    let Certificate { scenario, faults, choice_points, schedules, listed, list_hash, seconds, .. } = certificate;
    for finding in &certificate.findings {
        let Finding { fingerprint, property, object, run_id, times, outcome, .. } = finding;
        let outcome = output.style.outcome(*outcome, outcome.name());
        output.line(format!("{outcome} {property} of {object}  [{fingerprint}]  in {times} schedules"));
        output.line(format!("  cheapest: {}", replay_command(run_id)));
    }
    let time = report::time(virtual_ns);
    output
        .line(format!("{scenario}: {choice_points} choices in a benign run of {time}, at most {faults} not as usual"));
    output.line(format!("  {} alternatives are not run:", certificate.pruned));
    for (why, n) in certificate.pruned_why {
        output.line(format!("    {n}: {why}"));
    }
    let outcomes: Vec<String> = certificate.outcomes.iter().map(|(outcome, n)| format!("{n} {outcome}")).collect();
    output.line(format!("  {schedules} schedules in {seconds:.1} s: {}", outcomes.join(", ")));
    match certificate.complete {
        true => output.line(format!(
            "  certificate: all {listed} schedules of list {list_hash} were run, {} violated, {} of them a property of the system",
            certificate.violations, certificate.violations_of_system
        )),
        false => output.line(format!("  no certificate: {schedules} of {listed} schedules were run")),
    };
}
