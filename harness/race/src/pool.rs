//! Many runs: zygotes that fork them, wall limits, what became of runs that died, and whether a failure is real.
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::Duration;

use photofinish_sim::choices::{Pins, Source as ChoiceSource};
use photofinish_sim::exit;
use photofinish_sim::trace::Entry;
use photofinish_sim::zygote::{Exit, Finished, Zygote};

use crate::coverage::Tried;
use crate::crash_points;
use crate::execute::{Beginning, GoesOn, merge};
use crate::explore::choices::ChoicePoint;
use crate::explore::clusters;
use crate::options::Options;
use crate::outcome::{Answer, Outcome, Request, RunReport, judge};
use crate::reading::ObjectState;
use crate::report;
use crate::run_id::{RunId, ScenarioRef};
use crate::scenario::Scenario;
use crate::system::System;

/// Wall time that a run may take unless it is said otherwise.
pub const WALL_LIMIT: Duration = Duration::from_secs(10);

/// How much longer a run may take that had no processor for half of its wall time: other work on the machine is no reason
/// to go without its verdict.
const PATIENCE: u32 = 4;

/// One run to be done.
#[derive(Clone)]
pub struct Job {
    /// What to run.
    pub scenario: Arc<Scenario>,
    /// Switches and engine, in canonical form.
    pub options: Options,
    /// Benign or a seed.
    pub source: ChoiceSource,
    /// Pinned choices.
    pub pins: Pins,
    /// Ask for every kind of fault and tell all choices ([`Run::points`]). No part of the id: what is asked for and not
    /// taken changes nothing.
    pub learn: bool,
    /// Tell the states of all objects ([`Run::objects`]). No part of the id either.
    pub objects: bool,
    /// Tell what the run tried ([`Run::tried`]). No part of the id either.
    pub cover: bool,
    /// Tell which switches the run looked at ([`Run::asked`]). No part of the id either.
    pub account: bool,
    /// The choice until which the run is as the benign one. Runs that name the same one after the other share what
    /// comes before. No part of the id: it only saves time, and a run that is not so begins by itself.
    pub benign_until: Option<Arc<str>>,
    /// The durable write after which a process crashes, as `gateway/stop#3`: part of the name of the run.
    pub crash_after: Option<String>,
}

impl Job {
    /// A job with its options in canonical form, so that equal runs have equal ids. Where the scenario has its cluster drawn
    /// and the source draws, the options name it.
    pub fn new(
        system: &dyn System,
        scenario: Arc<Scenario>,
        options: &Options,
        source: ChoiceSource,
        pins: Pins,
    ) -> Job {
        let mut options = options.canonical(system.switches(), &scenario.reported_without);
        let draws = !matches!(source, ChoiceSource::Benign | ChoiceSource::Quiet(_) | ChoiceSource::Fork(_));
        if draws && scenario.draw.iter().any(|name| !options.cluster.contains_key(name)) {
            let (known, fits) = (system.cluster_options(), |cluster: &_| system.fits(cluster));
            options.cluster =
                clusters::drawn(known, &scenario.draw, &options.cluster, &scenario.cluster, fits, source.seed());
        }
        let place = |name: &String| system.cluster_options().iter().position(|o| o.name == name);
        options.cluster.sort_by(|a, _, b, _| place(a).cmp(&place(b)));
        Job {
            scenario,
            options,
            source,
            pins,
            learn: false,
            objects: false,
            cover: false,
            account: false,
            benign_until: None,
            crash_after: None,
        }
    }
    /// The same run, but a process crashes after the write that has this label.
    pub fn crashing_after(&self, label: &str) -> Job {
        let mut job = self.clone();
        if let Some(key) = crash_points::key(label) {
            job.pins.insert(key, "yes");
        }
        job.crash_after = Some(label.to_owned());
        job
    }
    /// What reports call the run: the scenario's name, and where a process crashes.
    pub fn name(&self) -> String {
        match &self.crash_after {
            Some(label) => format!("{}/{label}", self.scenario.name),
            None => self.scenario.name.clone(),
        }
    }
    /// Of a run that crashes a process after a write: what the scenario says makes a crash there hold.
    pub fn closed_by(&self) -> &[Vec<String>] {
        let Some(label) = &self.crash_after else { return &[] };
        let listed = self.scenario.failing_writes.iter().find(|f| f.after == *label);
        listed.map_or(&[], |f| &f.closed_by)
    }
    /// The id that replays it.
    pub fn id(&self) -> RunId {
        let Scenario { source, variant, name, .. } = &*self.scenario;
        let scenario = match source.builtin {
            true => ScenarioRef::Builtin(name.clone()),
            false => ScenarioRef::File { path: source.path.clone(), hash: source.hash(), variant: variant.clone() },
        };
        RunId { scenario, options: self.options.clone(), source: self.source, pins: self.pins.clone() }
    }
    /// What the beginning of the run depends on, which many runs share: its choices take their defaults.
    fn beginning(&self, system: &dyn System, pins: Pins) -> Vec<u8> {
        self.beginning_with(system, pins, None)
    }
    /// The beginning that goes on until a choice, if the run says until which.
    fn long_beginning(&self, system: &dyn System) -> Option<Vec<u8>> {
        let until = self.benign_until.as_ref().filter(|_| self.source == ChoiceSource::Benign)?;
        let benign = Request { pins: Pins::default(), learn: false, objects: false, cover: false, ..self.request() };
        let run = serde_json::to_string(&benign).expect("a request is plain data");
        let on = GoesOn { run, until: until.to_string() };
        Some(self.beginning_with(system, Pins::default(), Some(on)))
    }
    fn beginning_with(&self, system: &dyn System, pins: Pins, on: Option<GoesOn>) -> Vec<u8> {
        let beginning = Beginning::new(system, &self.scenario, &self.options, pins, on);
        serde_json::to_vec(&beginning).expect("a beginning is plain data")
    }
    fn request(&self) -> Request {
        Request {
            source: (*self.scenario.source).clone(),
            name: self.scenario.name.clone(),
            options: self.options.clone(),
            choices: self.source,
            pins: self.pins.clone(),
            learn: self.learn,
            objects: self.objects,
            cover: self.cover,
        }
    }
}

/// A run that is done.
pub struct Run {
    /// What it was.
    pub job: Job,
    /// What it showed.
    pub report: RunReport,
    /// Its trace; empty for runs that hold, unless [`Pool::keep_traces`].
    pub entries: Vec<Entry>,
    /// What the process printed.
    pub output: String,
    /// Wall time, of this run alone.
    pub wall: Duration,
    /// Its choices, in the order in which they were asked; empty unless [`Job::learn`].
    pub points: Vec<ChoicePoint>,
    /// The states of all objects by revision; empty unless [`Job::objects`], and for a run whose process died.
    pub objects: Vec<ObjectState>,
    /// What it tried; empty unless [`Job::cover`].
    pub tried: Tried,
    /// The switches that it looked at, on or off. None unless [`Job::account`], for a run whose process died, and where the
    /// system keeps no account of them.
    pub asked: Option<Vec<String>>,
    /// Whether it shared with others what comes before [`Job::benign_until`].
    pub shared: bool,
}

/// Where a zygote cannot be started or talked to: a failure of the harness.
#[derive(Debug, thiserror::Error)]
pub enum PoolError {
    /// The process could not be started.
    #[error("the process that forks runs cannot be started: {0}")]
    Start(std::io::Error),
    /// The process is gone.
    #[error("the process that forks runs does not answer: {0}")]
    Gone(std::io::Error),
}

/// Which runs are done once more, in another process; traces that differ are reported as nondeterminism.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Again {
    /// None.
    Never,
    /// Those that fail: a failure that does not replay is no race.
    #[default]
    Failures,
    /// All.
    All,
}

/// How runs are done.
#[derive(Clone)]
pub struct Pool {
    system: &'static dyn System,
    /// Arguments that lead the re-executed program back to [`crate::execute::serve_if_zygote`].
    zygote_args: Vec<String>,
    workers: usize,
    wall_limit: Duration,
    keep_traces: bool,
    again: Again,
}

impl Pool {
    /// As many workers as the machine has cores.
    pub fn new(system: &'static dyn System) -> Pool {
        let workers = std::thread::available_parallelism().map_or(1, |n| n.get());
        Pool {
            system,
            zygote_args: Vec::new(),
            workers,
            wall_limit: WALL_LIMIT,
            keep_traces: false,
            again: Again::Failures,
        }
    }
    /// Arguments for the zygote, e.g. those of the calling libtest test.
    pub fn zygote_args(self, args: Vec<String>) -> Pool {
        Pool { zygote_args: args, ..self }
    }
    /// Runs at once; at least one.
    pub fn workers(self, workers: usize) -> Pool {
        Pool { workers: workers.max(1), ..self }
    }
    /// Wall time that a run may take.
    pub fn wall_limit(self, wall_limit: Duration) -> Pool {
        Pool { wall_limit, ..self }
    }
    /// Keeps the traces of runs that hold, too.
    pub fn keep_traces(self, keep_traces: bool) -> Pool {
        Pool { keep_traces, ..self }
    }
    /// Which runs are done once more in another process, to tell a race from nondeterminism.
    pub fn again(self, again: Again) -> Pool {
        Pool { again, ..self }
    }
    /// Does all jobs, several at once, and hands over their runs in the order of the jobs, each as soon as all before
    /// it are done. `false` from `each` ends it early. Jobs are taken one by one: there may be any number.
    pub fn run<J>(&self, jobs: J, each: impl FnMut(Run) -> bool) -> Result<(), PoolError>
    where
        J: IntoIterator<Item = Job>,
        J::IntoIter: Send,
    {
        Crew::new(self).run(jobs, each)
    }
    /// Does one job.
    pub fn run_one(&self, job: &Job) -> Result<Run, PoolError> {
        Worker::new(self.clone()).run(job)
    }
}

/// The workers of a pool, kept from one batch of jobs to the next: each has zygotes that cost a program start.
pub(crate) struct Crew(Vec<Worker>);

impl Crew {
    pub(crate) fn new(pool: &Pool) -> Crew {
        // A worker costs nothing until it has a job.
        Crew((0..pool.workers).map(|_| Worker::new(pool.clone())).collect())
    }
    /// As [`Pool::run`].
    pub(crate) fn run<J>(&mut self, jobs: J, mut each: impl FnMut(Run) -> bool) -> Result<(), PoolError>
    where
        J: IntoIterator<Item = Job>,
        J::IntoIter: Send,
    {
        let jobs = Mutex::new(jobs.into_iter().enumerate().fuse());
        let stop = AtomicBool::new(false);
        let (done, results) = mpsc::sync_channel(self.0.len() * 4);
        std::thread::scope(|scope| {
            for worker in &mut self.0 {
                let (jobs, stop, done) = (&jobs, &stop, done.clone());
                let next = move || jobs.lock().unwrap_or_else(PoisonError::into_inner).next();
                scope.spawn(move || {
                    while let Some((i, job)) = next().filter(|_| !stop.load(Ordering::Relaxed)) {
                        let result = worker.run(&job);
                        let failed = result.is_err();
                        if done.send((i, result)).is_err() || failed {
                            break;
                        }
                    }
                });
            }
            drop(done);
            let (mut waiting, mut expected) = (BTreeMap::new(), 0);
            let mut hand_over = || {
                for (i, result) in &results {
                    waiting.insert(i, result?);
                    while let Some(run) = waiting.remove(&expected) {
                        expected += 1;
                        if !each(run) {
                            return Ok(());
                        }
                    }
                }
                Ok(())
            };
            let handed_over = hand_over();
            stop.store(true, Ordering::Relaxed);
            // Workers that wait to hand over must not wait for ever.
            drop(results);
            handed_over
        })
    }
}

/// One zygote for runs, and another, started when it is needed, to run them again.
pub(crate) struct Worker {
    pool: Pool,
    zygote: Option<Zygote>,
    witness: Option<Zygote>,
}

impl Worker {
    pub(crate) fn new(pool: Pool) -> Self {
        Worker { pool, zygote: None, witness: None }
    }
    pub(crate) fn run(&mut self, job: &Job) -> Result<Run, PoolError> {
        let Worker { pool, zygote, witness } = self;
        let request = serde_json::to_vec(&job.request()).expect("a request is plain data");
        let (first, shared) = fork(pool, zygote, job, &request)?;
        let mut report = settle(pool.system, &job.scenario, &first, pool.wall_limit);
        let again = match report.outcome.exit_code() {
            0 => pool.again == Again::All,
            1 => pool.again != Again::Never,
            _ => false,
        };
        let mut entries = Vec::new();
        if again {
            // A witness begins by itself.
            let (second, _) = fork(pool, witness, &Job { benign_until: None, ..job.clone() }, &request)?;
            let again = settle(pool.system, &job.scenario, &second, pool.wall_limit);
            if (again.outcome, &again.trace_hash) != (report.outcome, &report.trace_hash) {
                entries = first.trace();
                let parts = report::difference(&entries, &second.trace());
                let outcomes = match again.outcome == report.outcome {
                    true => "the outcome is the same, but not the trace".to_owned(),
                    false => format!("the outcome is {}, not {}", again.outcome, report.outcome),
                };
                let end = format!("run again in another process, {outcomes}; {parts}");
                report = RunReport { outcome: Outcome::Nondeterministic, end: Some(end), ..report };
            }
        }
        if entries.is_empty() && (pool.keep_traces || report.outcome != Outcome::Holds) {
            entries = first.trace();
        }
        let mut output = String::from_utf8_lossy(&first.stdout).into_owned();
        output.push_str(&String::from_utf8_lossy(&first.stderr));
        let more = job.learn || job.objects || job.cover || job.account;
        let answer = more.then(|| serde_json::from_slice::<Answer>(&first.report).ok()).flatten();
        // Of a run whose process died, the trace tells what it tried.
        let died = || if job.cover { Tried::of(pool.system, &entries) } else { Tried::default() };
        let (points, objects, tried, asked) = match answer {
            Some(Answer { points, objects, tried, asked, .. }) => (points, objects, tried.unwrap_or_default(), asked),
            None => (Vec::new(), Vec::new(), died(), None),
        };
        let (job, wall) = (job.clone(), first.wall);
        Ok(Run { job, report, entries, output, wall, points, objects, tried, asked, shared })
    }
}

/// A finished run, and whether it was forked from its long beginning.
fn fork(pool: &Pool, zygote: &mut Option<Zygote>, job: &Job, request: &[u8]) -> Result<(Finished, bool), PoolError> {
    let ready = match zygote {
        Some(zygote) => zygote,
        None => zygote.insert(Zygote::start(&pool.zygote_args).map_err(PoolError::Start)?),
    };
    let mut run = |beginning: &[u8]| match ready.run_from(beginning, request, pool.wall_limit)? {
        starved if starved.starved => ready.run_from(beginning, request, pool.wall_limit * PATIENCE),
        finished => Ok(finished),
    };
    // From the longest beginning that it may share; one with a pin that is for the beginning has one of its own.
    let shared = || job.beginning(pool.system, Pins::default());
    let own = || job.beginning(pool.system, merge(&job.scenario.pins, &job.pins));
    let begins_otherwise = |finished: &Finished| finished.exit == Exit::Code(exit::ANOTHER_BEGINNING);
    let mut finish = || {
        if let Some(long) = job.long_beginning(pool.system) {
            let finished = run(&long)?;
            if !begins_otherwise(&finished) {
                return Ok((finished, true));
            }
        }
        let finished = run(&shared())?;
        let finished = if begins_otherwise(&finished) { run(&own())? } else { finished };
        Ok((finished, false))
    };
    finish().map_err(|e| {
        *zygote = None;
        PoolError::Gone(e)
    })
}

/// The report of a finished run; for one whose process died, made from the trace that it left.
fn settle(system: &dyn System, scenario: &Scenario, finished: &Finished, limit: Duration) -> RunReport {
    let died = match &finished.exit {
        Exit::Done => match serde_json::from_slice(&finished.report) {
            Ok(report) => return report,
            Err(e) => (Outcome::Failed, format!("the run's report cannot be read: {e}")),
        },
        Exit::Code(exit::HARNESS) => (Outcome::Failed, finished.exit.to_string()),
        Exit::Code(code) if exit::meaning(*code).is_some() => (Outcome::Stuck, finished.exit.to_string()),
        Exit::Panicked(_) | Exit::Code(_) | Exit::Signal(_) => (Outcome::Crashed, finished.exit.to_string()),
        Exit::WallLimit if finished.starved => {
            let limit = limit * PATIENCE;
            (Outcome::Hung, format!("no end after {limit:?} of wall time; for most of it the run did nothing"))
        }
        Exit::WallLimit => (Outcome::Hung, format!("no end after {limit:?} of wall time")),
    };
    let (mut outcome, mut end) = died;
    let entries = finished.trace();
    // The libc symbols leave the reason in the trace when they end a process.
    if let Some(last) = entries.iter().rev().find(|e| e.kind == "end") {
        end = format!("{end}: {}", last.text);
    }
    // A panic outside all hosts is one of the harness.
    let world_panicked = entries.iter().rev().find(|e| e.kind == "panic").is_none_or(|e| e.host == "world");
    if matches!(finished.exit, Exit::Panicked(_)) && world_panicked {
        outcome = Outcome::Failed;
    }
    let judgement = judge(system, scenario, &entries);
    RunReport {
        outcome,
        violations: judgement.violations,
        vacuous: judgement.vacuous,
        trace_hash: finished.trace_hash(),
        virtual_ns: entries.last().map_or(0, |e| e.at_ns),
        end: Some(end),
        wrong_pins: Vec::new(),
        unused_pins: Vec::new(),
        crash_points: Vec::new(),
    }
}
