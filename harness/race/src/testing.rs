//! A `cargo test` target that runs both sides of every scenario: `harness = false`, and a `main` that calls [`main`].
//!
//! | trial | shows |
//! |---|---|
//! | `name` | holds, and the same run in another process has the same trace |
//! | `name::as-reported` | red/green: violates exactly what `fails-without` says; guard: holds |
//! | `name::fails-without::<n>` | the same for other sets of remedies |
//! | `name::closed-by::<remedies>` | as reported, but with these remedies: holds |
//! | `name::fails-with::<mutant>` | a wrong fix is caught |
//! | `name::each-write` | a crash after any one of the watched writes: holds; as reported it fails after those listed |
//! | `name::failing-seeds` | flow: each seed fails as reported, and holds with the remedies |
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use libtest_mimic::{Arguments, Failed, Trial};
use photofinish_sim::choices::{Pins, Source as ChoiceSource};

use crate::options::Options;
use crate::outcome::{Outcome, RunReport};
use crate::pool::{Again, Job, Pool, Run, Worker};
use crate::report::{self, Style};
use crate::scenario::{Kind, Scenario};
use crate::system::System;
use crate::{catalogue, cli};

/// Wall time of one run. Tests share machines, and nothing here asks how fast one is: only a hang is to end.
const WALL_LIMIT: Duration = Duration::from_secs(300);

/// Runs the trials of all built-in scenarios, with libtest's arguments. `replay <run id>` works as in the program.
pub fn main(system: &'static dyn System) -> ! {
    crate::execute::serve_if_zygote(system);
    let mut args = std::env::args().skip(1);
    if args.next().as_deref() == Some("replay") && args.next().is_some_and(|id| id.starts_with("pf")) {
        std::process::exit(cli::run(system, std::env::args_os()).into());
    }
    libtest_mimic::run(&Arguments::from_args(), trials(system)).exit()
}

/// What a side of a scenario must show.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Expected {
    Holds,
    /// Exactly these properties.
    Violates(Vec<String>),
    /// Whichever.
    Fails,
}

/// One run and what it must show.
#[derive(Clone, Debug)]
struct Side {
    options: Options,
    source: ChoiceSource,
    expected: Expected,
}

impl Side {
    fn new(options: Options, expected: Expected) -> Side {
        Side { options, source: ChoiceSource::Benign, expected }
    }
}

/// The trials of a scenario: name behind the scenario's, and the runs of each.
fn sides(system: &dyn System, scenario: &Scenario) -> Vec<(String, Vec<Side>)> {
    let switches = system.switches();
    let resolve = |options: &Options| options.resolve(switches, &scenario.reported_without);
    let as_reported = Options::as_reported();
    let mut all = vec![(String::new(), vec![Side::new(Options::new(), Expected::Holds)])];
    for (n, side) in scenario.fails_without.iter().enumerate() {
        let expected = Expected::Violates(side.violates.clone());
        let without = Options::new().without(side.off.clone());
        all.push(match resolve(&without) == resolve(&as_reported) {
            true => ("::as-reported".into(), vec![Side::new(as_reported.clone(), expected)]),
            false => (format!("::fails-without::{}", n + 1), vec![Side::new(without, expected)]),
        });
    }
    for remedies in &scenario.closed_by {
        let options = as_reported.clone().with(remedies.clone());
        all.push((format!("::closed-by::{}", remedies.join("+")), vec![Side::new(options, Expected::Holds)]));
    }
    if !scenario.fails_with.is_empty() && scenario.fails_without.is_empty() {
        all.push(("::as-reported".into(), vec![Side::new(as_reported.clone(), Expected::Holds)]));
    }
    for side in &scenario.fails_with {
        let expected = Expected::Violates(side.violates.clone());
        let with = Options::new().with([side.mutant.clone()]);
        all.push((format!("::fails-with::{}", side.mutant), vec![Side::new(with, expected)]));
    }
    if !scenario.failing_seeds.is_empty() {
        let of_seed = |f: &crate::scenario::FailingSeed| {
            let source = ChoiceSource::Seed(f.seed);
            let red = match f.violates.is_empty() {
                true => Expected::Fails,
                false => Expected::Violates(f.violates.clone()),
            };
            [
                Side { options: as_reported.clone(), source, expected: red },
                Side { options: Options::new(), source, expected: Expected::Holds },
            ]
        };
        all.push(("::failing-seeds".into(), scenario.failing_seeds.iter().flat_map(of_seed).collect()));
    }
    all
}

fn trials(system: &'static dyn System) -> Vec<Trial> {
    let scenarios = match catalogue::all(system) {
        Ok(scenarios) => scenarios,
        Err(e) => return vec![Trial::test("catalogue", move || Err(Failed::from(e)))],
    };
    let workers =
        Arc::new(Workers { pool: Pool::new(system).again(Again::All).wall_limit(WALL_LIMIT), idle: Mutex::default() });
    let mut trials = Vec::new();
    for scenario in scenarios {
        if scenario.kind == Kind::Unproven {
            trials.push(Trial::test(scenario.name.clone(), || Err("it says nowhere how it can fail".into())));
            continue;
        }
        if scenario.each_write {
            let (workers, scenario) = (workers.clone(), scenario.clone());
            trials.push(Trial::test(format!("{}::each-write", scenario.name), move || {
                each_write(system, &workers, &scenario)
            }));
        }
        for (name, sides) in sides(system, &scenario) {
            let (workers, scenario) = (workers.clone(), scenario.clone());
            trials.push(Trial::test(format!("{}{name}", scenario.name), move || {
                sides.iter().try_for_each(|side| check(system, &workers, &scenario, side))
            }));
        }
    }
    trials
}

/// Workers are kept between trials: each has zygotes that cost a program start.
struct Workers {
    pool: Pool,
    idle: Mutex<Vec<Worker>>,
}

impl Workers {
    fn run(&self, job: &Job) -> Result<Run, Failed> {
        let idle = || self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let taken = idle().pop();
        let mut worker = taken.unwrap_or_else(|| Worker::new(self.pool.clone()));
        let run = worker.run(job)?;
        idle().push(worker);
        Ok(run)
    }
}

/// One more run for each write that the benign run has, with the remedies and as reported.
fn each_write(system: &dyn System, workers: &Workers, scenario: &Arc<Scenario>) -> Result<(), Failed> {
    let job = |options: &Options| Job::new(system, scenario.clone(), options, ChoiceSource::Benign, Pins::default());
    let labels = workers.run(&job(&Options::new()))?.report.crash_points;
    if labels.is_empty() {
        return Err("its crash points name no write".into());
    }
    let reported = Options::as_reported();
    let as_reported = workers.run(&job(&reported))?.report.crash_points;
    if let Some(unknown) = scenario.failing_writes.iter().find(|f| !as_reported.contains(&f.after)) {
        return Err(format!("no write is called {}: there are {}", unknown.after, as_reported.join(", ")).into());
    }
    for label in &labels {
        judge(system, workers, &job(&Options::new()).crashing_after(label), &Expected::Holds)?;
    }
    for label in &as_reported {
        let failing = scenario.failing_writes.iter().find(|f| f.after == *label);
        let expected = failing.map_or(Expected::Holds, |f| Expected::Violates(f.violates.clone()));
        judge(system, workers, &job(&reported).crashing_after(label), &expected)?;
        for remedies in failing.into_iter().flat_map(|f| &f.closed_by) {
            let options = reported.clone().with(remedies.clone());
            judge(system, workers, &job(&options).crashing_after(label), &Expected::Holds)?;
        }
    }
    Ok(())
}

fn check(system: &dyn System, workers: &Workers, scenario: &Arc<Scenario>, side: &Side) -> Result<(), Failed> {
    let job = Job::new(system, scenario.clone(), &side.options, side.source, Pins::default());
    judge(system, workers, &job, &side.expected)
}

fn judge(system: &dyn System, workers: &Workers, job: &Job, expected: &Expected) -> Result<(), Failed> {
    let run = workers.run(job)?;
    let Some(why) = differs(expected, &run.report) else { return Ok(()) };
    let id = run.job.id();
    let replay = cli::replay_command(&id.to_string());
    let mut text = format!("{}: {why}\n", job.name());
    text += &report::failure(
        &run.report,
        &run.entries,
        &system.properties(),
        |entries| system.reading(entries),
        &replay,
        Style::default(),
    );
    if run.report.outcome == Outcome::Holds {
        text += &format!("  replay: {replay}\n");
    }
    if !run.output.is_empty() {
        text += &format!("  the run printed:\n{}\n", run.output);
    }
    Err(text.into())
}

/// Why a run is not what was expected.
fn differs(expected: &Expected, report: &RunReport) -> Option<String> {
    let seen = match report.outcome {
        Outcome::Violated => format!("violated {}", report.violated().join(", ")),
        other => other.to_string(),
    };
    let wrong_pins = report.wrong_pins.first();
    let as_expected = match expected {
        Expected::Holds => report.outcome == Outcome::Holds,
        Expected::Fails => report.outcome == Outcome::Violated,
        Expected::Violates(names) => {
            let mut names: Vec<&str> = names.iter().map(String::as_str).collect();
            names.sort_unstable();
            report.outcome == Outcome::Violated && report.violated() == names
        }
    };
    match (as_expected, wrong_pins) {
        (true, None) => None,
        (_, Some(pin)) => Some(pin.clone()),
        (false, None) => Some(match expected {
            Expected::Holds => format!("expected that it holds; the outcome is: {seen}"),
            Expected::Fails => format!("expected that it fails; the outcome is: {seen}"),
            Expected::Violates(names) => {
                format!("expected that it violates exactly {}; the outcome is: {seen}", names.join(", "))
            }
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::Broken;
    use crate::property::{Property, Violation};
    use crate::scenario::{self, Source};
    use crate::switch::{Switch, SwitchKind};
    use crate::system::{BoxError, Cluster, Live, Setup, Stage};
    use crate::temporal;

    struct Small;

    impl System for Small {
        fn name(&self) -> &'static str {
            "small"
        }
        fn switches(&self) -> &'static [Switch] {
            const fn switch(name: &'static str, kind: SwitchKind) -> Switch {
                Switch { name, kind, sentence: "", from: "" }
            }
            const {
                &[
                    switch("a", SwitchKind::Proposed { recommended: true }),
                    switch("b", SwitchKind::Proposed { recommended: true }),
                    switch("old", SwitchKind::Merged),
                    switch("wrong", SwitchKind::Mutant),
                ]
            }
        }
        fn hosts(&self, _: &Cluster) -> Vec<String> {
            vec!["h".into()]
        }
        fn properties(&self) -> Vec<Property> {
            let new = |name| Property::new(name, "", temporal::never(|_| None));
            vec![new("p"), new("q"), new("everywhere").always(), new("law").without_exception()]
        }
        fn assemble(&self, _: &Setup, _: &mut Stage<'_>) -> Result<Box<dyn Live>, BoxError> {
            Err("is never run".into())
        }
    }

    /// Names of the trials, with each run as `options source -> expected`.
    fn trials_of(rest: &str) -> Vec<String> {
        let text = format!("scenario: x\nsummary: s\nsteps: [{{run: 1s}}]\ncheck: [p, q]\n{rest}");
        let source = Arc::new(Source { path: "x.yaml".into(), text, builtin: false });
        let scenarios = scenario::read(&Small, &source).unwrap_or_else(|e| panic!("{e}"));
        let run = |s: &Side| {
            let options = s.options.canonical(Small.switches(), &scenarios[0].reported_without);
            let seed = match s.source {
                ChoiceSource::Benign => String::new(),
                source => format!(" {source}"),
            };
            let expected = match &s.expected {
                Expected::Violates(names) => names.join("+"),
                other => format!("{other:?}").to_lowercase(),
            };
            format!("{options}{seed} -> {expected}")
        };
        sides(&Small, &scenarios[0])
            .iter()
            .map(|(name, sides)| format!("x{name}: {}", sides.iter().map(run).collect::<Vec<_>>().join("; ")))
            .collect()
    }

    #[test]
    fn each_side_of_a_scenario_is_a_trial() {
        for (rest, expected) in [
            (
                "fails-without: [{off: [a, b], violates: [p]}, {off: [a], violates: [q, p]}]\nclosed-by: [a, [a, b]]",
                &[
                    "x:  -> holds",
                    "x::as-reported: as-reported -> p",
                    "x::fails-without::2: -a -> q+p",
                    "x::closed-by::a: as-reported,+a -> holds",
                    "x::closed-by::a+b: as-reported,+a,+b -> holds",
                ][..],
            ),
            (
                "reported-without: [old]\nfails-without: {off: [a, b, old], violates: [p]}",
                &["x:  -> holds", "x::as-reported: as-reported -> p"],
            ),
            ("fails-without: {off: proposed, violates: [p]}", &["x:  -> holds", "x::as-reported: as-reported -> p"]),
            (
                "fails-with: {mutant: wrong, violates: [p]}",
                &["x:  -> holds", "x::as-reported: as-reported -> holds", "x::fails-with::wrong: +wrong -> p"],
            ),
            (
                "failing-seeds: [5, {seed: 7, violates: [q]}]",
                &[
                    "x:  -> holds",
                    "x::failing-seeds: as-reported s=5 -> fails;  s=5 -> holds; as-reported s=7 -> q;  s=7 -> holds",
                ],
            ),
        ] {
            assert_eq!(trials_of(rest), expected, "{rest}");
        }
    }
    #[test]
    fn a_scenario_opts_out_of_a_property_of_every_run_by_name_and_never_of_a_law() {
        let read = |rest: &str| {
            let text = format!("scenario: x\nsummary: s\nsteps: [{{run: 1s}}]\ncheck: [p]\n{rest}");
            scenario::read(&Small, &Arc::new(Source { path: "x.yaml".into(), text, builtin: false }))
        };
        let without = "fails-without: {off: a, violates: [everywhere]}";
        let scenarios = read(without).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(scenarios[0].fails_without[0].violates, ["everywhere"]);
        let scenarios = read("except: {everywhere: it is dark}").unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(scenarios[0].except["everywhere"], "it is dark");
        for (wrong, says) in [
            ("except: {law: why}".to_owned(), "law"),
            ("except: {p: why}".to_owned(), "p"),
            (format!("except: {{everywhere: it is dark}}\n{without}"), "everywhere"),
        ] {
            let e = read(&wrong).expect_err("a mistake").to_string();
            assert!(e.contains(says), "{wrong}: {e}");
        }
    }
    #[test]
    fn a_run_must_show_exactly_what_is_expected() {
        let report = |outcome, violated: &[&str]| RunReport {
            outcome,
            violations: violated
                .iter()
                .map(|p| Broken {
                    property: (*p).into(),
                    violation: Violation { entry: 0, why: "".into(), led: vec![] },
                })
                .collect(),
            vacuous: vec![],
            trace_hash: String::new(),
            virtual_ns: 0,
            end: None,
            wrong_pins: vec![],
            unused_pins: vec![],
            crash_points: Vec::new(),
        };
        let violates = |names: &[&str]| Expected::Violates(names.iter().map(|n| (*n).to_owned()).collect());
        for (expected, outcome, violated, differs_as) in [
            (Expected::Holds, Outcome::Holds, &[][..], None),
            (Expected::Holds, Outcome::Vacuous, &[], Some("vacuous")),
            (Expected::Holds, Outcome::Violated, &["q", "p"], Some("violated p, q")),
            (violates(&["p", "q"]), Outcome::Violated, &["q", "p"], None),
            (violates(&["p"]), Outcome::Violated, &["q", "p"], Some("exactly p; the outcome is: violated p, q")),
            (violates(&["p", "q"]), Outcome::Violated, &["p"], Some("violated p")),
            (violates(&["p"]), Outcome::Holds, &[], Some("holds")),
            (violates(&["p"]), Outcome::Crashed, &["p"], Some("crashed")),
            (Expected::Fails, Outcome::Violated, &["q"], None),
            (Expected::Fails, Outcome::Holds, &[], Some("expected that it fails; the outcome is: holds")),
            (Expected::Fails, Outcome::Nondeterministic, &["q"], Some("nondeterministic")),
        ] {
            let said = differs(&expected, &report(outcome, violated));
            match differs_as {
                None => assert_eq!(said, None, "{expected:?} {outcome}"),
                Some(part) => {
                    assert!(said.as_ref().is_some_and(|s| s.contains(part)), "{expected:?} {outcome}: {said:?}")
                }
            }
        }
        let wrong_pin = RunReport { wrong_pins: vec!["pin".into()], ..report(Outcome::Holds, &[]) };
        assert_eq!(differs(&Expected::Holds, &wrong_pin).as_deref(), Some("pin"));
    }
}
