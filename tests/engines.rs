//! Two engines that share no code below the sockets agree about the same scenarios: the outcome, the violated properties
//! and the order of the phases.
use photofinish::options::Options;
use photofinish::outcome::Outcome;
use photofinish::pool::{Again, Job, Pool, Run};
use photofinish::scenario::{self, Source as Text};
use photofinish::system::Engine;
use photofinish::{catalogue, execute, report};
use photofinish_openshell::system::OpenShell;
use photofinish_sim::choices::{Pins, Source};
use photofinish_sim::zygote::this_test;
use std::sync::Arc;
use std::time::Duration;

static SYSTEM: OpenShell = OpenShell;

/// Nothing here asks how fast a machine is.
const WALL_LIMIT: Duration = Duration::from_secs(300);

/// Serves the runs, if this process was made for that.
fn pool() -> Pool {
    execute::serve_if_zygote(&SYSTEM);
    Pool::new(&SYSTEM).zygote_args(this_test()).wall_limit(WALL_LIMIT).keep_traces(true).again(Again::All)
}

fn run(pool: &Pool, scenario: &Arc<scenario::Scenario>, options: &Options, engine: Engine) -> Run {
    let options = Options { engine, ..options.clone() };
    let job = Job::new(&SYSTEM, scenario.clone(), &options, Source::Benign, Pins::default());
    pool.run_one(&job).expect("a zygote that answers")
}

/// `Stopped to Provisioning`, in the order in which the gateway committed them.
fn phases(run: &Run) -> Vec<String> {
    let changes = run.entries.iter().filter(|e| e.text.starts_with("Sandbox phase changed"));
    let phase = |e: &photofinish_sim::trace::Entry, name| e.field(name).unwrap_or("nothing").to_owned();
    changes.map(|e| format!("{} to {}", phase(e, "old_phase"), phase(e, "new_phase"))).collect()
}

/// Both engines' runs of a built-in scenario agree, and show this outcome and these phases, among others.
fn agree(name: &str, options: &Options, outcome: Outcome, seen: &[&str]) {
    let pool = pool();
    for scenario in catalogue::find(&SYSTEM, name).expect("a built-in scenario") {
        let [jump, turmoil] = Engine::ALL.map(|engine| run(&pool, &scenario, options, engine));
        let told = || format!("{}\n{}", scenario.name, report::trace(&turmoil.entries));
        assert_eq!(jump.report.outcome, outcome, "{}: {:?}", scenario.name, jump.report);
        assert_eq!(turmoil.report.outcome, outcome, "{:?}\n{}", turmoil.report, told());
        assert_eq!(turmoil.report.violated(), jump.report.violated(), "{}", told());
        assert_eq!(phases(&turmoil), phases(&jump), "{}", told());
        let own_spans = turmoil.entries.iter().find(|e| e.kind == "span" && e.host == "world");
        assert_eq!(own_spans, None, "the engine's own tracing is no part of a run");
        let mut left = phases(&turmoil).into_iter();
        for change in seen {
            assert!(left.any(|c| c == *change), "no {change} in its place among {:?}", phases(&turmoil));
        }
    }
}

#[test]
fn the_benign_flow_has_the_same_phases_on_both_engines() {
    let seen = ["Provisioning to Ready", "Stopping to Stopped", "Stopped to Starting", "Starting to Ready"];
    agree("restart-stopped-sandbox", &Options::new(), Outcome::Holds, &seen);
}

#[test]
fn with_the_remedies_late_snapshots_of_a_stop_do_no_harm_on_either_engine() {
    let seen = ["Provisioning to Ready", "Stopping to Stopped"];
    agree("late-stop-snapshot-after-stopped", &Options::new(), Outcome::Holds, &seen);
}

#[test]
fn as_reported_late_snapshots_of_a_stop_violate_the_same_properties_on_both_engines() {
    let seen = ["Stopping to Stopped", "Stopped to Provisioning"];
    agree("late-stop-snapshot-after-stopped", &Options::as_reported(), Outcome::Violated, &seen);
}

#[test]
fn a_cut_is_refused_on_turmoil_and_says_which_step() {
    let pool = pool();
    let text = "scenario: cut\nsummary: A test.\nsteps:\n  - run: 1s\n  - cut: [gateway, driver]\n  - run: 1s\n\
                check: [stopped-is-stable]\n";
    let source = Arc::new(Text { path: "cut.yaml".into(), text: text.into(), builtin: false });
    let scenario = Arc::new(scenario::read(&SYSTEM, &source).expect("a good scenario").swap_remove(0));
    let [jump, turmoil] = Engine::ALL.map(|engine| run(&pool, &scenario, &Options::new(), engine));
    assert_eq!(jump.report.outcome, Outcome::Vacuous, "{:?}", jump.report);
    assert_eq!(turmoil.report.outcome, Outcome::Refused, "{:?}", turmoil.report);
    assert_eq!(turmoil.report.outcome.exit_code(), 2);
    let end = turmoil.report.end.as_deref();
    assert_eq!(end, Some("not on this engine (turmoil): line 5, `cut: [gateway, driver]`"));
}
