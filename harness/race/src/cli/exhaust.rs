//! `exhaust [NAME..] --faults K`: every alternative of every choice, K at a time, and a certificate at the end.
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Args;
use photofinish_sim::choices::{Legal, Pins, Source as ChoiceSource};
use photofinish_sim::zygote::processor_time;
use serde::Serialize;

use crate::explore::choices::ChoicePoint;
use crate::explore::exhaust::{self, Plan, list_hash};
use crate::explore::findings::{Finding, Findings};
use crate::explore::fingerprint;
use crate::explore::pruning::Pruned;
use crate::mistake::BadInput;
use crate::outcome::{Outcome, RunReport};
use crate::pool::{Again, Job, Pool, PoolError};
use crate::property::SCRIPT;
use crate::report;
use crate::scenario::Scenario;
use crate::system::System;

use super::output::{Output, complain, json_line, note};
use super::progress::{Extent, Progress, QuietArg};
use super::sweep::{FINDING_WIDTH, shown};
use super::{BAD_INPUT, HARNESS, SystemArgs, interrupt, parse_limit, replay_command, selected};

#[derive(Args)]
pub(super) struct ExhaustArgs {
    /// Names of built-in scenarios, or files; all built-in ones if there are none.
    #[arg(value_name = "NAME|FILE")]
    scenarios: Vec<String>,
    /// How many choices leave their default at once.
    #[arg(long, value_name = "K", default_value_t = 1)]
    faults: usize,
    /// Which alternatives: those of any cluster, of clusters with several API servers, or of no cluster.
    #[arg(long, value_name = "always|ha|never", default_value = "always", value_parser = super::sweep::parse_legal)]
    legal: Legal,
    /// Do nothing for a scenario that has more schedules than this.
    #[arg(long, value_name = "N", default_value_t = 20_000)]
    budget: u64,
    /// End each scenario after this time, without a certificate if its schedules are not done before.
    #[arg(long, value_name = "60s", value_parser = parse_limit)]
    time: Option<Duration>,
    /// Run so many of the alternatives that are left out as well, and compare each with the schedule that it is like.
    #[arg(long, value_name = "N", default_value_t = 100)]
    audit: usize,
    /// Run nothing but the benign run: count the schedules, and what is left out.
    #[arg(long)]
    count: bool,
    /// Runs at once; as many as there are cores.
    #[arg(long, value_name = "J", value_parser = clap::value_parser!(u16).range(1..))]
    jobs: Option<u16>,
    /// Print all findings, not only the first ten.
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    system: SystemArgs,
    /// Print one JSON object a run that does not hold and a certificate for each scenario, and nothing else.
    #[arg(long)]
    json: bool,
    /// A table for a document, a line for each scenario.
    #[arg(long, conflicts_with_all = ["json", "count"])]
    markdown: bool,
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
    listed: u64,
    /// Alternatives that are not in the list.
    pruned: usize,
    pruned_why: BTreeMap<&'static str, u64>,
    /// Alternatives by kind of fault; `none` are picks between equals.
    by_fault: BTreeMap<String, ByFault>,
    /// Alternatives that are not in the list and were run all the same.
    audited: u64,
    /// Of these: what did not show what the schedule shows that it was taken to be like.
    audit_differs: Vec<Difference>,
    violations: u64,
    /// Of these: runs that violated a property of the system. The others only missed what their script waits for, as a
    /// client that is told of a fault does.
    violations_of_system: u64,
    list_hash: String,
    seconds: f64,
    /// Processor time of the runs, seconds: what other work on the machine leaves as it is.
    processor_seconds: f64,
    /// Whether the whole list was run: only then it certifies anything.
    complete: bool,
    /// Why it is not complete.
    ended: Option<&'static str>,
    outcomes: BTreeMap<&'static str, u64>,
    findings: Vec<&'a Finding>,
}

#[derive(Default, Serialize)]
struct ByFault {
    listed: u64,
    pruned: u64,
}

/// Two schedules that were taken to be alike and are not.
#[derive(Serialize)]
struct Difference {
    run_id: String,
    shows: String,
    like: String,
    which_shows: String,
    why: &'static str,
}

/// What a run showed, as far as two alike runs must agree.
fn verdict(report: &RunReport) -> String {
    let mut violated: Vec<&str> = report.violated();
    violated.sort_unstable();
    format!("{} {}", report.outcome, violated.join(", ")).trim_end().to_owned()
}

pub(super) fn exhaust(system: &'static dyn System, args: &ExhaustArgs, output: &mut Output) -> Result<u8, BadInput> {
    let scenarios = selected(system, &args.scenarios)?;
    interrupt::listen();
    let mut code = 0;
    let mut all = Whole::default();
    if args.markdown {
        head(args).into_iter().for_each(|line| _ = output.line(line));
    }
    for scenario in &scenarios {
        if interrupt::asked() {
            break;
        }
        match of_scenario(system, args, scenario, &mut all, output) {
            Ok(Ok(of_this)) => code = code.max(of_this),
            Err(bad) if scenarios.len() > 1 => {
                complain(&bad);
                code = code.max(BAD_INPUT);
            }
            Err(bad) => return Err(bad),
            Ok(Err(e)) => {
                note(format!("error: {}: {e}", scenario.name));
                code = HARNESS;
            }
        }
    }
    if scenarios.len() > 1 && !args.count && !args.markdown {
        all.tell(scenarios.len(), args.json, output);
    }
    Ok(code)
}

/// What became of several scenarios.
#[derive(Default, Serialize)]
struct Whole {
    v: u32,
    summary: &'static str,
    scenarios: usize,
    /// Those with a certificate.
    complete: usize,
    /// Of these: those without a violated property of the system.
    hold: usize,
    schedules: u64,
    violations: u64,
    violations_of_system: u64,
    seconds: f64,
}

impl Whole {
    fn add(&mut self, certificate: &Certificate<'_>) {
        self.complete += usize::from(certificate.complete);
        self.hold += usize::from(certificate.complete && certificate.violations_of_system == 0);
        self.schedules += certificate.schedules;
        self.violations += certificate.violations;
        self.violations_of_system += certificate.violations_of_system;
        self.seconds += certificate.seconds;
    }
    fn tell(mut self, scenarios: usize, json: bool, output: &mut Output) {
        (self.v, self.summary, self.scenarios) = (1, "exhaust-all", scenarios);
        self.seconds = (self.seconds * 1e3).round() / 1e3;
        if json {
            output.line(serde_json::to_string(&self).expect("a summary is plain data"));
            return;
        }
        let Whole { complete, hold, schedules, violations, violations_of_system, seconds, .. } = self;
        output.line(format!(
            "{scenarios} scenarios, {complete} with a certificate, {hold} of them without a violated property of the system; \
             {schedules} schedules in {seconds:.1} s, {violations} violated, {violations_of_system} of them a property of the system"
        ));
    }
}

fn of_scenario(
    system: &'static dyn System,
    args: &ExhaustArgs,
    scenario: &Arc<Scenario>,
    all: &mut Whole,
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
    let learnt = match pool.clone().keep_traces(true).run_one(&learning) {
        Ok(run) => run,
        Err(e) => return Ok(Err(e)),
    };
    if matches!(learnt.report.outcome, Outcome::Failed | Outcome::Refused | Outcome::Hung) {
        let end = learnt.report.end.as_deref().unwrap_or("");
        note(format!("error: {}: the benign run is {}: {end}", scenario.name, learnt.report.outcome));
        return Ok(Ok(learnt.report.outcome.exit_code()));
    }
    let plan = Plan::of(system, &learnt, args.legal.allowed());
    let count = plan.count(args.faults);
    let mut certificate = Certificate {
        v: 1,
        summary: "exhaust",
        scenario: &scenario.name,
        faults: args.faults,
        legal: args.legal.name(),
        choice_points: learnt.points.len(),
        schedules: 0,
        listed: u64::try_from(count).unwrap_or(u64::MAX),
        pruned: plan.pruned.len(),
        pruned_why: plan.pruned_why(),
        by_fault: by_fault(&learnt.points, &plan),
        audited: 0,
        audit_differs: Vec::new(),
        violations: 0,
        violations_of_system: 0,
        list_hash: String::new(),
        seconds: 0.0,
        processor_seconds: 0.0,
        complete: false,
        ended: None,
        outcomes: BTreeMap::new(),
        findings: Vec::new(),
    };
    if args.count {
        certificate.ended = Some("they were counted only");
        tell(&certificate, args, learnt.report.virtual_ns, output);
        return Ok(Ok(0));
    }
    if count > u128::from(args.budget) {
        return Err(BadInput::new(format!(
            "{}: {count} schedules with at most {} faults are more than the budget of {}",
            scenario.name, args.faults, args.budget
        ))
        .help("expected fewer --faults, or a --budget that allows it"));
    }
    let schedules = plan.schedules(args.faults);
    certificate.list_hash = list_hash(&schedules);
    let (start, processor) = (Instant::now(), processor_time());
    let over = || interrupt::asked() || args.time.is_some_and(|limit| start.elapsed() >= limit);
    let extent = Extent { total: Some(schedules.len() as u64), limit: args.time };
    let mut progress = Progress::new(args.how.quiet || args.json || args.markdown, "schedules", extent);
    let mut findings = Findings::default();
    // Of the benign run and of those with one fault: to compare with what is not in the list.
    let mut verdicts: BTreeMap<String, String> = BTreeMap::new();
    let jobs = exhaust::jobs(&benign, &learnt.points, schedules).take_while(|_| !over());
    let (open, mut tried) = (plan.points.len(), BTreeSet::new());
    let done = pool.run(jobs, |run| {
        let of_system = run.report.violated().iter().any(|property| *property != SCRIPT);
        certificate.violations_of_system += u64::from(of_system);
        if run.job.pins.len() <= 1 {
            verdicts.insert(run.job.pins.to_string(), verdict(&run.report));
        }
        findings.add(&scenario.name, &run.job.id().to_string(), &run.report, &run.entries, start.elapsed());
        tried.extend(run.job.pins.iter().map(|(key, _)| key.to_owned()));
        progress
            .tell(findings.runs(), || format!("{}, {} of {open} choices tried", super::found(&findings), tried.len()));
        let told = !args.json || run.report.outcome == Outcome::Holds || output.line(json_line(&run, false));
        told && !over()
    });
    drop(progress);
    let sample: Vec<&Pruned> = plan.sample(args.audit);
    let jobs = sample.iter().map(|pruned| Job { pins: pruned.pins(), ..benign.clone() }).take_while(|_| !over());
    let jobs: Vec<Job> = jobs.collect();
    let mut of_sample = sample.iter();
    let audited = done.and_then(|()| findings.confirm(system, &pool)).and_then(|()| {
        pool.run(jobs, |run| {
            let pruned = of_sample.next().expect("runs come in the order of their jobs");
            let like = pruned.like.clone().unwrap_or_default();
            let shows = verdict(&run.report);
            if let Some(which_shows) = verdicts.get(&like.to_string()) {
                certificate.audited += 1;
                if shows != *which_shows {
                    let (run_id, which_shows) = (run.job.id().to_string(), which_shows.clone());
                    let like = Job { pins: like, ..benign.clone() }.id().to_string();
                    certificate.audit_differs.push(Difference { run_id, shows, like, which_shows, why: pruned.why });
                }
            }
            !over()
        })
    });
    if let Err(e) = audited {
        return Ok(Err(e));
    }
    certificate.schedules = findings.runs();
    certificate.complete = certificate.schedules == certificate.listed;
    certificate.ended = match (certificate.complete, interrupt::asked()) {
        (true, _) => None,
        (false, true) => Some("interrupted"),
        (false, false) => Some("the time is over"),
    };
    certificate.violations = findings.count(Outcome::Violated);
    let round = |time: Duration| (time.as_secs_f64() * 1e3).round() / 1e3;
    certificate.seconds = round(start.elapsed());
    certificate.processor_seconds = round(processor_time().saturating_sub(processor));
    certificate.outcomes = findings.outcomes().map(|(o, n)| (o.name(), n)).collect();
    certificate.findings = findings.all().collect();
    all.add(&certificate);
    tell(&certificate, args, learnt.report.virtual_ns, output);
    let code = if certificate.audit_differs.is_empty() { 0 } else { HARNESS };
    Ok(Ok(code.max(findings.exit_code())))
}

fn by_fault(points: &[ChoicePoint], plan: &Plan) -> BTreeMap<String, ByFault> {
    let faults: BTreeMap<&str, &str> =
        points.iter().map(|p| (p.key.as_str(), p.fault.as_deref().unwrap_or("none"))).collect();
    let mut all: BTreeMap<String, ByFault> = BTreeMap::new();
    let fault = |key: &str| faults.get(key).copied().unwrap_or("none").to_owned();
    for (key, values) in &plan.points {
        all.entry(fault(key)).or_default().listed += values.len() as u64;
    }
    for pruned in &plan.pruned {
        all.entry(fault(&pruned.key)).or_default().pruned += 1;
    }
    all
}

fn tell(certificate: &Certificate<'_>, args: &ExhaustArgs, virtual_ns: u64, output: &mut Output) {
    if args.json {
        output.line(serde_json::to_string(certificate).expect("a certificate is plain data"));
        return;
    }
    if args.markdown {
        output.line(row(certificate));
        return;
    }
    let clean = certificate.complete && certificate.findings.is_empty() && certificate.audit_differs.is_empty();
    if args.how.quiet && clean {
        return;
    }
    let Certificate { scenario, faults, choice_points, schedules, listed, list_hash, seconds, .. } = certificate;
    let processor = certificate.processor_seconds;
    let (findings, rest) = shown(certificate.findings.clone(), args.all);
    for finding in findings {
        let Finding { fingerprint, property, object, run_id, times, outcome, .. } = finding;
        let outcome = output.style.outcome(*outcome, outcome.name());
        let what = fingerprint::what(property, object);
        output.line(format!("{outcome} {what}  [{fingerprint}]  in {times} schedules"));
        output.line(format!("  {}", report::cut(&finding.why, FINDING_WIDTH)));
        output.line(format!("  cheapest: {}", replay_command(run_id)));
    }
    if let Some(rest) = rest {
        output.line(rest);
    }
    let time = report::time(virtual_ns);
    output
        .line(format!("{scenario}: {choice_points} choices in a benign run of {time}, at most {faults} not as usual"));
    output.line(format!("  {} alternatives are not run:", certificate.pruned));
    for (why, n) in &certificate.pruned_why {
        output.line(format!("    {n}: {why}"));
    }
    if args.count {
        output.line(format!("  {listed} schedules are left; of single faults:"));
        for (fault, ByFault { listed, pruned }) in &certificate.by_fault {
            output.line(format!("    {listed} of {}: {fault}", listed + pruned));
        }
        return;
    }
    for Difference { run_id, shows, like, which_shows, why } in &certificate.audit_differs {
        output.line(format!("  not alike, though {why}: {shows}: {}", replay_command(run_id)));
        output.line(format!("    {which_shows}: {}", replay_command(like)));
    }
    if certificate.audited > 0 {
        let differ = certificate.audit_differs.len();
        output.line(format!("    {} of these were run all the same: {differ} differ", certificate.audited));
    }
    let outcomes: Vec<String> = certificate.outcomes.iter().map(|(outcome, n)| format!("{n} {outcome}")).collect();
    let outcomes = outcomes.join(", ");
    output.line(format!("  {schedules} schedules in {seconds:.1} s ({processor:.1} s of processor time): {outcomes}"));
    match certificate.ended {
        None => output.line(format!(
            "  certificate: all {listed} schedules of list {list_hash} were run, {} violated, {} of them a property of the system",
            certificate.violations, certificate.violations_of_system
        )),
        Some(why) => output.line(format!("  no certificate: {schedules} of {listed} schedules were run; {why}")),
    };
}

fn head(args: &ExhaustArgs) -> [String; 2] {
    let faults = args.faults;
    [
        format!(
            "| scenario | choices | schedules, faults <= {faults} | left out | violated, of them a property | list | processor time |"
        ),
        "|---|---|---|---|---|---|---|".to_owned(),
    ]
}

/// A line of the table; without a certificate it says how far the list was run, and has no hash.
fn row(certificate: &Certificate<'_>) -> String {
    let Certificate { scenario, choice_points, schedules, listed, pruned, violations, .. } = certificate;
    let (of_system, seconds) = (certificate.violations_of_system, certificate.processor_seconds);
    let (run, list) = match certificate.complete {
        true => (schedules.to_string(), format!("`{}`", certificate.list_hash)),
        false => (format!("{schedules} of {listed}"), certificate.ended.unwrap_or_default().to_owned()),
    };
    format!("| {scenario} | {choice_points} | {run} | {pruned} | {violations}, {of_system} | {list} | {seconds:.0} s |")
}
