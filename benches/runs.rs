//! How many runs of the #5195 scenario one core does in a second, each in a process of its own.
//!
//! `PHOTOFINISH_BENCH_STRICT=1` makes a missed target an error.
use photofinish::options::Options;
use photofinish::pool::{Again, Job, Pool};
use photofinish::{catalogue, execute};
use photofinish_openshell::system::OpenShell;
use photofinish_sim::choices::{Pins, Source};
use photofinish_sim::zygote::processor_time;
use std::process::ExitCode;
use std::time::{Duration, Instant};

#[global_allocator]
static HEAP: photofinish::WorldHeap = photofinish::WorldHeap;
static SYSTEM: OpenShell = OpenShell;
const RUNS: u32 = 200;
const TARGET_RUNS_PER_S: f64 = 50.0;

fn main() -> ExitCode {
    execute::serve_if_zygote(&SYSTEM);
    let pool = Pool::new(&SYSTEM).workers(1).again(Again::Never);
    println!("{:<44} {:>10} {:>12} {:>12}", "scenario, one core", "runs/s", "wall a run", "cpu a run");
    let mut missed = false;
    // The target is about the race of #5195 itself; the whole conformance flow, with its deletion, stands beside it.
    for (name, options, target) in [
        ("late-stop-snapshot-after-stopped", Options::new(), true),
        ("late-stop-snapshot-after-stopped", Options::as_reported(), true),
        ("restart-stopped-sandbox", Options::new(), false),
    ] {
        let scenario = catalogue::find(&SYSTEM, name).expect("a built-in scenario").swap_remove(0);
        let job = |_| Job::new(&SYSTEM, scenario.clone(), &options, Source::Benign, Pins::default());
        let (began, cpu) = (Instant::now(), processor_time());
        pool.run((0..RUNS).map(job), |_| true).expect("a zygote that answers");
        let (wall, cpu) = (began.elapsed() / RUNS, (processor_time() - cpu) / RUNS);
        // Processor time, not wall time: a machine that does other things as well is no slower for that.
        let per_s = 1.0 / cpu.as_secs_f64();
        missed |= target && per_s < TARGET_RUNS_PER_S;
        let title = if options == Options::new() { name.to_owned() } else { format!("{name}, as reported") };
        println!("{title:<44} {per_s:>10.0} {wall:>12.1?} {cpu:>12.1?}");
    }
    println!(
        "target: {TARGET_RUNS_PER_S} runs/s of late-stop-snapshot-after-stopped{}",
        if missed { ": MISSED" } else { "" }
    );
    match missed && std::env::var_os("PHOTOFINISH_BENCH_STRICT").is_some() {
        true => ExitCode::FAILURE,
        false => ExitCode::SUCCESS,
    }
}
