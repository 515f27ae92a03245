//! How many runs of the #5195 scenario one core does in a second, each in a process of its own.
//!
//! `PHOTOFINISH_BENCH_STRICT=1` makes a missed target an error.
use photofinish::explore::exhaust::{self, Plan};
use photofinish::options::Options;
use photofinish::pool::{Again, Job, Pool};
use photofinish::{catalogue, execute};
use photofinish_openshell::system::OpenShell;
use photofinish_sim::choices::{Legal, Pins, Source};
use photofinish_sim::zygote::processor_time;
use std::process::ExitCode;
use std::time::Instant;

#[global_allocator]
static HEAP: photofinish::WorldHeap = photofinish::WorldHeap;
static SYSTEM: OpenShell = OpenShell;
const LATE: &str = "late-stop-snapshot-after-stopped";
const RUNS: u32 = 200;
const TARGET_RUNS_PER_S: f64 = 50.0;

fn main() -> ExitCode {
    execute::serve_if_zygote(&SYSTEM);
    println!("{:<45} {:>10} {:>12} {:>12}", "scenario, one core", "runs/s", "wall a run", "cpu a run");
    let mut missed = false;
    // The target is about the race of #5195 itself; the whole conformance flow, with its deletion, stands beside it.
    for (name, options, target) in [
        (LATE, Options::new(), true),
        (LATE, Options::as_reported(), true),
        ("restart-stopped-sandbox", Options::new(), false),
    ] {
        let title = if options == Options::new() { name.to_owned() } else { format!("{name}, as reported") };
        let job = benign(name, &options);
        let per_s = measure(&title, (0..RUNS).map(|_| job.clone()).collect());
        missed |= target && per_s < TARGET_RUNS_PER_S;
    }
    for name in [LATE, "restart-stopped-sandbox"] {
        measure(&format!("schedules of {name}"), schedules(name));
    }
    println!("target: {TARGET_RUNS_PER_S} runs/s of {LATE}{}", if missed { ": MISSED" } else { "" });
    match missed && std::env::var_os("PHOTOFINISH_BENCH_STRICT").is_some() {
        true => ExitCode::FAILURE,
        false => ExitCode::SUCCESS,
    }
}

fn pool() -> Pool {
    Pool::new(&SYSTEM).workers(1).again(Again::Never)
}

fn benign(name: &str, options: &Options) -> Job {
    let scenario = catalogue::find(&SYSTEM, name).expect("a built-in scenario").swap_remove(0);
    Job::new(&SYSTEM, scenario, options, Source::Benign, Pins::default())
}

/// The schedules that `exhaust NAME` runs: one fault each, forked from the benign run where they leave it.
fn schedules(name: &str) -> Vec<Job> {
    let job = benign(name, &Options::new());
    let learning = Job { learn: true, ..job.clone() };
    let learnt = pool().keep_traces(true).run_one(&learning).expect("a zygote that answers");
    let plan = Plan::of(&SYSTEM, &learnt, Legal::Always.allowed());
    exhaust::jobs(&job, &learnt.points, plan.schedules(1)).collect()
}

/// Runs a second, by processor time and not by wall time: a machine that does other things as well is no slower for
/// that.
fn measure(title: &str, jobs: Vec<Job>) -> f64 {
    let runs = jobs.len() as u32;
    let (began, cpu) = (Instant::now(), processor_time());
    pool().run(jobs, |_| true).expect("a zygote that answers");
    let (wall, cpu) = (began.elapsed() / runs, (processor_time() - cpu) / runs);
    let per_s = 1.0 / cpu.as_secs_f64();
    println!("{title:<45} {per_s:>10.0} {wall:>12.1?} {cpu:>12.1?}");
    per_s
}
