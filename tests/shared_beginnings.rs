//! A run that is forked from the benign run, where it leaves it, is the run that it is by itself.
use photofinish::explore::exhaust::{self, Plan};
use photofinish::options::Options;
use photofinish::outcome::{Outcome, RunReport};
use photofinish::pool::{Again, Job, Pool, Run};
use photofinish::report;
use photofinish::{catalogue, execute};
use photofinish_openshell::system::OpenShell;
use photofinish_sim::choices::{Legal, Pins, Source};
use photofinish_sim::zygote::this_test;
use std::sync::Arc;
use std::time::Duration;

static SYSTEM: OpenShell = OpenShell;

/// How many schedules of a scenario are run twice.
const SAMPLE: usize = 8;

fn pool() -> Pool {
    execute::serve_if_zygote(&SYSTEM);
    Pool::new(&SYSTEM)
        .zygote_args(this_test())
        .wall_limit(Duration::from_secs(300))
        .again(Again::Never)
        .keep_traces(true)
}

/// The benign run of a scenario, and the schedules with `faults` alternatives at once.
fn schedules(pool: &Pool, name: &str, options: &Options, faults: usize) -> (Run, Vec<Pins>) {
    let scenario = catalogue::find(&SYSTEM, name).expect("a built-in scenario").swap_remove(0);
    let job = Job::new(&SYSTEM, scenario, options, Source::Benign, Pins::default());
    let learnt = pool.run_one(&Job { learn: true, ..job }).expect("a zygote that answers");
    let mut plan = Plan::of(&SYSTEM, &learnt, Legal::Always.allowed());
    let every = (plan.points.len() / SAMPLE).max(1);
    plan.points = plan.points.into_iter().step_by(every).collect();
    (learnt, plan.schedules(faults))
}

fn runs(pool: &Pool, jobs: impl Iterator<Item = Job>) -> Vec<Run> {
    let (jobs, mut runs): (Vec<Job>, _) = (jobs.collect(), Vec::new());
    pool.run(jobs, |run| {
        runs.push(run);
        true
    })
    .expect("zygotes that answer");
    runs
}

/// Compares runs of the schedules with runs from the beginning; how many of them shared more than that.
fn compare(name: &str, options: &Options, faults: usize) -> usize {
    let pool = pool();
    let (learnt, mut all) = schedules(&pool, name, options, faults);
    // Of several faults at once the last ones: the first ones have one each.
    all.drain(..all.len().saturating_sub(4 * SAMPLE));
    let benign = Job { learn: false, ..learnt.job.clone() };
    let forked = runs(&pool, exhaust::jobs(&benign, &learnt.points, all.clone()));
    // A fork that pins nothing is the benign run.
    let until = exhaust::jobs(&benign, &learnt.points, all.clone()).filter_map(|job| job.benign_until).last();
    for run in runs(&pool, [None, until].into_iter().map(|benign_until| Job { benign_until, ..benign.clone() })) {
        let differ = || report::difference(&run.entries, &learnt.entries);
        assert!(
            run.report.trace_hash == learnt.report.trace_hash,
            "{name}, until {:?}: {}",
            run.job.benign_until,
            differ()
        );
    }
    let own = runs(&pool, all.into_iter().map(|pins| Job { pins, ..benign.clone() }));
    for (forked, own) in forked.iter().zip(&own) {
        let id = own.job.id();
        assert_eq!(forked.job.id().to_string(), id.to_string());
        assert!(!own.shared, "{id}");
        let differ = || report::difference(&forked.entries, &own.entries);
        assert!(forked.report.trace_hash == own.report.trace_hash, "{id}: {}", differ());
        // What a pin that nobody asked for may have meant is among what was asked for: a benign run asks for more.
        let plain = |run: &Run| RunReport { unused_pins: Vec::new(), ..run.report.clone() };
        let [of_fork, of_own] = [forked, own].map(|run| serde_json::to_string(&plain(run)).expect("plain data"));
        assert_eq!(of_fork, of_own, "{id}");
    }
    forked.iter().filter(|run| run.shared).count()
}

/// What `exhaust` and `choices` begin with asks for everything that could be pinned; who asks must change nothing.
#[test]
fn the_run_that_learns_all_choices_of_a_scenario_is_its_benign_run() {
    let pool = pool();
    let mut jobs = Vec::new();
    for scenario in catalogue::all(&SYSTEM).expect("the built-in scenarios") {
        if scenario.name.contains('@') {
            // Another cluster for a script that is compared anyway.
            continue;
        }
        let benign = Job::new(&SYSTEM, scenario, &Options::new(), Source::Benign, Pins::default());
        jobs.extend([Job { learn: true, ..benign.clone() }, benign]);
    }
    let count = jobs.len() / 2;
    let runs = runs(&pool, jobs.into_iter());
    let mut compared = 0;
    for learnt in runs.iter().filter(|run| run.job.learn) {
        let id = learnt.job.id().to_string();
        let plain = runs.iter().find(|run| !run.job.learn && run.job.id().to_string() == id).expect("the same, plain");
        let differ = || report::difference(&learnt.entries, &plain.entries);
        assert!(learnt.report.trace_hash == plain.report.trace_hash, "{id}: {}", differ());
        compared += 1;
    }
    assert!(compared == count && count > 50, "{compared} of {count}");
}

#[test]
fn a_fault_in_a_run_that_shares_its_beginning_does_what_it_does_in_its_own() {
    for (name, options) in [
        ("restart-stopped-sandbox", Options::new()),
        // Holds, two gateways, a machine that restarts.
        ("late-stop-snapshot-after-stopped", Options::as_reported()),
        ("session-elsewhere-than-its-create", Options::new()),
        ("node-lost-while-ready", Options::as_reported()),
        // Its script slows calls down.
        ("stop-restart-stop-under-slow-readiness", Options::new()),
    ] {
        let shared = compare(name, &options, 1);
        assert!(shared > SAMPLE / 2, "{name}: {shared} runs shared their beginning");
    }
}

#[test]
fn so_do_two_faults_at_once() {
    let shared = compare("restart-stopped-sandbox", &Options::new(), 2);
    assert!(shared > SAMPLE, "{shared} runs shared their beginning");
}

#[test]
fn a_run_whose_fault_comes_before_the_choice_it_is_said_to_be_benign_until_begins_by_itself() {
    let pool = pool();
    let (learnt, all) = schedules(&pool, "restart-stopped-sandbox", &Options::new(), 1);
    let (fault, last) = (all[all.len() / 2].clone(), &learnt.points.last().expect("choices").key);
    let own = Job { pins: fault, learn: false, ..learnt.job.clone() };
    for until in [last.as_str(), "no/such/choice"] {
        let late = Job { benign_until: Some(Arc::from(until)), ..own.clone() };
        let runs = runs(&pool, [late, own.clone()].into_iter());
        assert!(!runs[0].shared, "until {until}");
        assert_eq!(runs[0].report.trace_hash, runs[1].report.trace_hash, "until {until}");
        assert_ne!(runs[0].report.trace_hash, learnt.report.trace_hash, "the fault changes something");
        assert_ne!(runs[0].report.outcome, Outcome::Failed);
    }
}

#[test]
fn a_fault_that_nobody_draws_is_asked_for_where_it_is_pinned_at_an_object_with_a_generated_name() {
    let pool = pool();
    let (learnt, _) = schedules(&pool, "restart-stopped-sandbox", &Options::new(), 1);
    let benign = Job { learn: false, ..learnt.job.clone() };
    let pins = ["evict/pod/os-supervisor-demo#1=+1ms", "call/driver/CREATE/pods/os-supervisor-demo#1/504=yes"];
    let pins: Vec<Pins> = pins.into_iter().map(|pin| pin.parse().expect("pins")).collect();
    let forked = runs(&pool, exhaust::jobs(&benign, &learnt.points, pins.clone()));
    let own = runs(&pool, pins.into_iter().map(|pins| Job { pins, ..benign.clone() }));
    for (forked, own) in forked.iter().zip(&own) {
        let id = own.job.id();
        assert!(own.report.unused_pins.is_empty(), "{id}: {:?}", own.report.unused_pins);
        assert_eq!(forked.job.id().to_string(), id.to_string());
        assert_eq!(forked.report.trace_hash, own.report.trace_hash, "{id}");
        assert_ne!(own.report.trace_hash, learnt.report.trace_hash, "{id}: the fault changes something");
    }
    assert_eq!((forked.len(), own.len()), (2, 2));
}
