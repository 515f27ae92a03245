//! What the matrix infers is what it would have measured: a run that never looked at a remedy is the same run with it.
use photofinish::matrix;
use photofinish::options::Options;
use photofinish::outcome::Outcome;
use photofinish::pool::{Again, Job, Pool, Run};
use photofinish::scenario::Scenario;
use photofinish::{SwitchKind, catalogue, execute};
use photofinish_openshell::remedy::SWITCHES;
use photofinish_openshell::system::OpenShell;
use photofinish_sim::choices::{Pins, Source};
use photofinish_sim::zygote::this_test;
use std::sync::Arc;
use std::time::Duration;

static SYSTEM: OpenShell = OpenShell;

/// Nothing here asks how fast a machine is.
const WALL_LIMIT: Duration = Duration::from_secs(300);

fn pool() -> Pool {
    execute::serve_if_zygote(&SYSTEM);
    Pool::new(&SYSTEM).zygote_args(this_test()).wall_limit(WALL_LIMIT).again(Again::Never)
}

fn scenario(name: &str) -> Arc<Scenario> {
    catalogue::find(&SYSTEM, name).expect("a built-in scenario").swap_remove(0)
}

fn run(pool: &Pool, scenario: &Arc<Scenario>, source: Source, remedies: &[&str]) -> Run {
    let options = Options::as_reported().with(remedies.iter().copied());
    let job = Job::new(&SYSTEM, scenario.clone(), &options, source, Pins::default());
    pool.run_one(&Job { account: true, ..job }).expect("a zygote that answers")
}

fn proposed() -> impl Iterator<Item = &'static str> {
    SWITCHES.iter().filter(|s| matches!(s.kind, SwitchKind::Proposed { .. })).map(|s| s.name)
}

#[test]
fn a_run_that_never_looked_at_a_remedy_has_the_same_trace_with_it() {
    let pool = pool();
    for (name, source, with) in [
        ("late-stop-snapshot-after-stopped", Source::Benign, &[][..]),
        ("late-stop-snapshot-after-stopped", Source::Benign, &["starting-needs-a-start"]),
        ("restart-stopped-sandbox", Source::Seed(3), &["stop-marker-is-not-start"]),
    ] {
        let scenario = scenario(name);
        let before = run(&pool, &scenario, source, with);
        let asked = before.asked.expect("this system keeps an account");
        let unasked: Vec<&str> = proposed().filter(|name| !asked.iter().any(|asked| asked == name)).collect();
        assert!(!unasked.is_empty() && unasked.iter().all(|name| !with.contains(name)), "{name}: {asked:?}");
        let some = unasked.iter().step_by(4).map(std::slice::from_ref);
        for remedies in some.chain([unasked.as_slice()]) {
            let after = run(&pool, &scenario, source, &[with, remedies].concat());
            assert_eq!(after.report.trace_hash, before.report.trace_hash, "{name} with {with:?} and {remedies:?}");
            assert_eq!(after.asked.as_ref(), Some(&asked), "{name} with {with:?} and {remedies:?}");
        }
    }
}

#[test]
fn every_cell_that_is_inferred_is_as_it_would_be_measured() {
    let pool = pool();
    let names = ["late-stop-snapshot-after-stopped", "suspension-outruns-its-pod"];
    let scenarios = names.map(scenario);
    let mut told = 0;
    let rows = matrix::measure(&SYSTEM, &pool, &scenarios, 2, |_, _| told += 1).expect("zygotes that answer");
    assert!(told >= rows.iter().map(|row| row.cells.len()).sum::<usize>());
    for (row, scenario) in rows.iter().zip(&scenarios) {
        let inferred: Vec<_> = row.cells.iter().filter(|cell| cell.inferred).collect();
        assert!(!inferred.is_empty() && inferred.len() < row.cells.len(), "{}", row.scenario);
        for cell in inferred {
            let remedies: Vec<&str> = cell.remedies.iter().map(String::as_str).collect();
            let report = run(&pool, scenario, Source::Benign, &remedies).report;
            let named = match report.outcome {
                Outcome::Holds => None,
                Outcome::Vacuous => Some(report.vacuous.join(", ")),
                _ => Some(report.violated().join(", ")),
            };
            assert_eq!((report.outcome, named), (cell.outcome, cell.property.clone()), "{} {remedies:?}", row.scenario);
        }
    }
}
