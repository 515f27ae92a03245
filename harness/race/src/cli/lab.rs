//! What the commands that take a run id apart share: the run itself, its draws as pins, and runs with other pins.
use photofinish_sim::choices::{Pins, Source as ChoiceSource};

use crate::catalogue;
use crate::explore::fingerprint::Fingerprint;
use crate::explore::shrink;
use crate::mistake::BadInput;
use crate::outcome::Outcome;
use crate::pool::{Again, Job, Pool, PoolError, Run, Worker};
use crate::run_id::RunId;
use crate::system::System;

use super::progress::{Extent, Progress};

/// Why a run could not be taken apart.
pub(super) enum LabError {
    /// What was asked for makes no sense: exit code 2.
    Input(BadInput),
    /// The harness failed: exit code 3.
    Harness(PoolError),
}

impl From<BadInput> for LabError {
    fn from(bad: BadInput) -> LabError {
        LabError::Input(bad)
    }
}

impl From<PoolError> for LabError {
    fn from(e: PoolError) -> LabError {
        LabError::Harness(e)
    }
}

/// One zygote, and how many runs it did.
pub(super) struct Lab {
    worker: Worker,
    pub(super) runs: u64,
    progress: Progress,
}

impl Lab {
    pub(super) fn new(system: &'static dyn System) -> Lab {
        Lab::with(system, Progress::silent())
    }
    /// One that says how far it has come, unless it is to be quiet.
    pub(super) fn telling(system: &'static dyn System, quiet: bool) -> Lab {
        Lab::with(system, Progress::new(quiet, "runs", Extent::default()))
    }
    fn with(system: &'static dyn System, progress: Progress) -> Lab {
        Lab { worker: Worker::new(Pool::new(system).again(Again::Never).keep_traces(true)), runs: 0, progress }
    }
    /// There is nothing more to be said of its progress.
    pub(super) fn told(&mut self) {
        self.progress = Progress::silent();
    }
    pub(super) fn run(&mut self, job: &Job) -> Result<Run, PoolError> {
        self.runs += 1;
        self.progress.tell(self.runs, || match job.pins.len() {
            1 => "now with 1 choice not as usual".to_owned(),
            pins => format!("now with {pins} choices not as usual"),
        });
        self.worker.run(job)
    }
    /// The run of an id.
    pub(super) fn run_id(&mut self, system: &dyn System, id: &str) -> Result<Run, LabError> {
        let id: RunId = id.parse()?;
        let run = self.run(&catalogue::by_id(system, &id)?)?;
        match run.report.outcome {
            Outcome::Refused => {
                let why = run.report.end.as_deref().unwrap_or("its engine lacks a step");
                Err(BadInput::new(format!("the run {id} has no verdict: {why}")).into())
            }
            _ => Ok(run),
        }
    }
    /// The run of an id that must fail, and how it does.
    pub(super) fn failing(&mut self, system: &dyn System, id: &str) -> Result<(Run, Fingerprint), LabError> {
        let run = self.run_id(system, id)?;
        match Fingerprint::of(&run.report, &run.entries) {
            Some(fingerprint) => Ok((run, fingerprint)),
            None => {
                let ends = match run.report.outcome {
                    Outcome::Holds => "holds".to_owned(),
                    other => format!("is {other}"),
                };
                Err(BadInput::new(format!("the run {} {ends}: there is no failure in it", run.job.id()))
                    .help("expected the id of a run that fails, as sweep and run print it")
                    .into())
            }
        }
    }
    /// A job with the draws of a failing run as pins, that fails in the same way without drawing anything.
    ///
    /// Where ids and jitter of the world matter, its seed stays; `None` if it does not fail even so.
    pub(super) fn pinned(&mut self, run: &Run, fingerprint: &Fingerprint) -> Result<Option<Job>, PoolError> {
        let pins = shrink::drawn(&run.entries, &run.job.scenario.pins);
        let quiet = (run.job.source != ChoiceSource::Benign).then(|| ChoiceSource::Quiet(run.job.source.seed()));
        for source in [ChoiceSource::Benign].into_iter().chain(quiet) {
            let job = Job { source, pins: pins.clone(), ..run.job.clone() };
            if self.fails(&job, fingerprint)? {
                return Ok(Some(job));
            }
        }
        Ok(None)
    }
    /// Whether a run violates the same property on the same object.
    pub(super) fn fails(&mut self, job: &Job, fingerprint: &Fingerprint) -> Result<bool, PoolError> {
        let run = self.run(job)?;
        Ok(Fingerprint::of(&run.report, &run.entries).is_some_and(|f| f.same_failure(fingerprint)))
    }
    /// The same for other pins.
    pub(super) fn fails_with(&mut self, job: &Job, pins: &Pins, fingerprint: &Fingerprint) -> Result<bool, PoolError> {
        self.fails(&Job { pins: pins.clone(), ..job.clone() }, fingerprint)
    }
}
