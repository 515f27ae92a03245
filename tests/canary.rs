//! The canary: deliberately wrong code, switched on one at a time, each of which something named must notice. If one is not,
//! the properties or the scenarios have gone blind, and that all tests pass says less than it seems to.
//!
//! | what is broken | how |
//! |---|---|
//! | gateway and driver, by a wrong fix or a wrong saving | the mutants that `photofinish remedies` lists: all of them |
//! | gateway and driver, as they once were | a merged fix that is switched off |
//! | the API server's watches | a pinned fault that no cluster may show: an event is left out |
use photofinish::options::Options;
use photofinish::outcome::Outcome;
use photofinish::pool::{Again, Job, Pool, Run};
use photofinish::{SwitchKind, catalogue, execute};
use photofinish_openshell::remedy::SWITCHES;
use photofinish_openshell::system::OpenShell;
use photofinish_sim::choices::{Pins, Source};
use photofinish_sim::zygote::this_test;
use std::time::Duration;

static SYSTEM: OpenShell = OpenShell;

/// Nothing here asks how fast a machine is.
const WALL_LIMIT: Duration = Duration::from_secs(300);

/// What is wrong with the code.
enum Broken {
    /// A mutant that is a switch.
    By(&'static str),
    /// A merged fix that is off, in the code as it was reported.
    Without(&'static str),
    /// The API server does what none may do, once: a pin.
    Server(&'static str),
}
use Broken::{By, Server, Without};

/// What is broken, where, and the properties of which each must notice it.
const CANARIES: &[(Broken, &str, &[&str])] = &[
    (By("believe-any-snapshot"), "empty-backend-during-restart", &["ready-has-a-session"]),
    (By("rows-from-snapshots"), "watch-beats-create-row", &["script"]),
    (By("sweep-sleeps"), "last-event-lost-to-cas", &["script"]),
    (By("starting-ignores-exits"), "old-exit-report-hits-new-run", &["script"]),
    (By("gone-is-stopped"), "eviction-mid-stop", &["script"]),
    (By("unread-is-gone"), "suspension-outruns-an-unread-pod", &["stopped-does-not-run"]),
    (By("asks-once"), "delete-unseen-and-unread", &["deleted-row-goes-with-its-resource"]),
    (By("asks-once"), "create-answer-lost-and-unread", &["only-rows-take-names"]),
    (By("stale-creates-stay"), "create-timeout-late-commit", &["no-orphan"]),
    (By("stopped-ignores-everything"), "start-recovers-stale-stopped", &["start-leaves-stopped"]),
    (Without("deleting-ignores-snapshots"), "delete-is-one-way", &["deleting-is-final"]),
    (Without("completion-spares-a-stop"), "late-bootstrap-completion-erases-stop", &["stop-ends-off"]),
    (Without("exit-tombstone"), "old-exit-report-hits-new-run", &["start-reaches-ready"]),
    (Without("sweep-prunes-missing"), "relist-hides-delete", &["no-ghost", "nothing-waits-for-ever"]),
    (Without("stop-waits-for-the-pod"), "stop-acked-before-backend-at-rest", &["stopped-does-not-run"]),
    (Without("starting-is-revalidated"), "terminal-snapshot-queued-behind-gate", &["start-reaches-ready"]),
    (Server("watch/kubelet/pods/os-supervisor-demo#1/drop=yes"), "restart-stopped-sandbox", &["script"]),
    (Server("watch/controller/sandboxes/demo#12/drop=yes"), "restart-stopped-sandbox", &["script"]),
];

fn pool() -> Pool {
    execute::serve_if_zygote(&SYSTEM);
    Pool::new(&SYSTEM).zygote_args(this_test()).workers(1).wall_limit(WALL_LIMIT).again(Again::Never)
}

/// A benign run, but for what is pinned.
fn run(pool: &Pool, scenario: &str, options: Options, pins: &str) -> Run {
    let found = catalogue::find(&SYSTEM, scenario).expect("a built-in scenario").swap_remove(0);
    let pins: Pins = pins.parse().expect("pins");
    pool.run_one(&Job::new(&SYSTEM, found, &options, Source::Benign, pins)).expect("a zygote that answers")
}

#[test]
fn each_deliberate_mistake_is_noticed_by_what_is_named() {
    let pool = pool();
    for (broken, scenario, noticed_by) in CANARIES {
        let (name, options, healthy, pin) = match broken {
            By(mutant) => (*mutant, Options::new().with([*mutant]), Options::new(), ""),
            Without(fix) => (*fix, Options::as_reported().without([*fix]), Options::as_reported().with([*fix]), ""),
            Server(pin) => (*pin, Options::new(), Options::new(), *pin),
        };
        let before = run(&pool, scenario, healthy, "");
        let after = run(&pool, scenario, options, pin);
        assert_eq!(after.report.unused_pins, Vec::<String>::new(), "{name}: {scenario} does not come by there");
        assert_eq!(after.report.outcome, Outcome::Violated, "{name} in {scenario}: nobody noticed");
        for property in *noticed_by {
            assert!(after.report.violated().contains(property), "{name} in {scenario}: {:?}", after.report.violated());
            assert!(!before.report.violated().contains(property), "{name}: {scenario} fails without it");
        }
    }
}

#[test]
fn each_mutant_that_there_is_stands_in_the_table() {
    let known = |name: &str| CANARIES.iter().any(|(broken, ..)| matches!(broken, By(mutant) if *mutant == name));
    let unknown: Vec<&str> =
        SWITCHES.iter().filter(|s| s.kind == SwitchKind::Mutant && !known(s.name)).map(|s| s.name).collect();
    assert_eq!(unknown, Vec::<&str>::new());
    assert!(CANARIES.len() >= 10);
}
