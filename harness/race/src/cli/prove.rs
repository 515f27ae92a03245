//! `prove-determinism`: each run twice, in different processes; where two differ, the first entry and its likely source.
use clap::Args;
use photofinish_sim::choices::{Legal, Pins, Source as ChoiceSource};
use serde::Serialize;

use crate::explore::story;
use crate::mistake::BadInput;
use crate::outcome::Outcome;
use crate::pool::{Again, Job, Pool, PoolError};
use crate::report;
use crate::system::System;

use super::output::{Output, note};
use super::progress::{Extent, Progress, QuietArg};
use super::{HARNESS, SystemArgs, interrupt, replay_command, selected};

#[derive(Args)]
pub(super) struct ProveArgs {
    /// Names of built-in scenarios, or files; all built-in ones if there are none.
    #[arg(value_name = "NAME|FILE")]
    scenarios: Vec<String>,
    /// How many seeds of each scenario, beside its benign run: by turns a plain one and one of a swarm.
    #[arg(long, value_name = "N", default_value_t = 20)]
    seeds: u64,
    #[command(flatten)]
    system: SystemArgs,
    /// Print one JSON object, and nothing else.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    how: QuietArg,
}

/// Version 1: fields may be added, none is removed or changes its meaning.
#[derive(Serialize)]
struct Line<'a> {
    v: u32,
    summary: &'static str,
    ids: u64,
    same: u64,
    /// Run ids whose two runs differ.
    different: &'a [String],
    /// Run ids that came to no trace to compare: the wall limit, or a failure of the harness.
    without_verdict: &'a [String],
}

pub(super) fn prove(system: &'static dyn System, args: &ProveArgs, output: &mut Output) -> Result<u8, BadInput> {
    let options = args.system.options(system)?;
    let scenarios = selected(system, &args.scenarios)?;
    interrupt::listen();
    let source = |n: u64| match n {
        0 => ChoiceSource::Benign,
        n if n % 2 == 1 => ChoiceSource::Seed(n),
        n => ChoiceSource::Swarm(n, Legal::Always),
    };
    let job = |scenario: &std::sync::Arc<_>, n| {
        Job::new(system, std::sync::Arc::clone(scenario), &options, source(n), Pins::default())
    };
    let jobs: Vec<Job> = scenarios.iter().flat_map(|s| (0..=args.seeds).map(move |n| job(s, n))).collect();
    let extent = Extent { total: Some(jobs.len() as u64), limit: None };
    let mut progress = Progress::new(args.how.quiet || args.json, "run ids", extent);
    let (mut ids, mut same) = (0, 0);
    let (mut different, mut without) = (Vec::new(), Vec::new());
    let pool = Pool::new(system).again(Again::All);
    let done = pool.run(jobs.into_iter().take_while(|_| !interrupt::asked()), |run| {
        ids += 1;
        match run.report.outcome {
            Outcome::Nondeterministic => different.push(run.job),
            Outcome::Hung | Outcome::Failed | Outcome::Refused => without.push(run.job.id().to_string()),
            _ => same += 1,
        }
        progress.tell(ids, || format!("{} differ", different.len()));
        !interrupt::asked()
    });
    drop(progress);
    let told = done.and_then(|()| different.iter().try_for_each(|job| tell(&pool, job, args.json, output)));
    let different: Vec<String> = different.iter().map(|job| job.id().to_string()).collect();
    if args.json {
        let line =
            Line { v: 1, summary: "prove-determinism", ids, same, different: &different, without_verdict: &without };
        output.line(serde_json::to_string(&line).expect("a line is plain data"));
    } else {
        for id in &without {
            output.line(format!("no verdict: {}", replay_command(id)));
        }
        if !args.how.quiet || same < ids {
            output.line(format!("{same} of {ids} run ids have the same trace in two processes"));
        }
    }
    if let Err(e) = told {
        note(format!("error: {e}"));
        return Ok(HARNESS);
    }
    Ok(if different.is_empty() && without.is_empty() { 0 } else { HARNESS })
}

/// Where two runs of one id part.
fn tell(pool: &Pool, job: &Job, json: bool, output: &mut Output) -> Result<(), PoolError> {
    if json {
        return Ok(());
    }
    let pool = pool.clone().again(Again::Never).keep_traces(true);
    let (one, other) = (pool.run_one(job)?.entries, pool.run_one(job)?.entries);
    output.line(format!("nondeterministic: {}", replay_command(&job.id().to_string())));
    match (0..one.len().max(other.len())).find(|i| one.get(*i) != other.get(*i)) {
        Some(at) => {
            output.line(format!("  {}", report::difference(&one, &other)));
            output.line(format!("  likely: {}", story::likely_source(one.get(at), other.get(at))));
        }
        None => _ = output.line("  two more runs agree: it differs seldom"),
    }
    Ok(())
}
