//! What a step acts on: the running world with the system's live state.
use std::any::Any;
use std::time::Duration;

use indexmap::IndexMap;
use photofinish_sim::choices::Choices;
use photofinish_sim::gate::Gates;
use photofinish_sim::trace::{Entry, EntryId, Trace};
use photofinish_sim::world::{Refused, Stuck, World};

use crate::crash_points::CrashPoints;
use crate::scenario::Step;
use crate::switch::Reported;
use crate::system::{BoxError, Live};

/// Why a step did not do what it says.
#[derive(Debug, thiserror::Error)]
pub enum StepError {
    /// The system did not do what the step waits for or expects: a violation of the property `script`. In words,
    /// what was expected and what was seen, e.g. "expected demo Stopped within 60s, it is Stopping".
    #[error("{0}")]
    Missed(String),
    /// The step cannot be done at all (releases what is not held): the run ends, exit code 3. Behind a step that missed
    /// what it waits for, it is [`StepError::Missed`] too.
    #[error(transparent)]
    Impossible(BoxError),
    /// The engine that was asked for cannot do the step: the run ends without a verdict, exit code 2.
    #[error("not on this engine")]
    NotOnThisEngine,
    /// The world cannot go on.
    #[error(transparent)]
    Stuck(Stuck),
}

impl StepError {
    /// The step cannot be done: why.
    pub fn impossible(why: impl Into<String>) -> StepError {
        StepError::Impossible(why.into().into())
    }
}

impl From<Refused> for StepError {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::NotOnThisEngine { .. } => StepError::NotOnThisEngine,
            Refused::UnknownHost { .. } => StepError::Impossible(refused.into()),
        }
    }
}

impl From<Stuck> for StepError {
    fn from(stuck: Stuck) -> Self {
        StepError::Stuck(stuck)
    }
}

/// What a `hold` step holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Held {
    /// A watch stream, by its key.
    Stream(String),
    /// One direction of links, as sender and receiver: several where one of them is replicated.
    Links(Vec<(String, String)>),
}

/// The running world of one run, as steps see it.
pub struct Scene<'a> {
    pub(crate) world: &'a mut World,
    pub(crate) live: &'a mut dyn Live,
    pub(crate) trace: Trace,
    pub(crate) choices: Choices,
    pub(crate) gates: Gates,
    pub(crate) holds: IndexMap<String, Held>,
    pub(crate) crash_points: CrashPoints,
    /// Whether no proposed remedy is on.
    pub(crate) reported: Reported,
    /// A step has missed what it waits for: the script is off its way.
    pub(crate) astray: bool,
}

impl Scene<'_> {
    /// Plays one step. What it missed is an entry of the trace; any other error ends the run.
    ///
    /// Behind a step that missed what it waits for, a step that cannot be done has missed it as well: the Pod that it would
    /// delete, say, was never made. That is no mistake of whoever wrote it.
    pub(crate) fn act(&mut self, step: &Step) -> Result<(), StepError> {
        let trace = self.trace.clone();
        let begun =
            trace.entry("step", step.verb.clone()).host("world").text(&step.text).field("line", step.line).record();
        // What a step does to the world has the step as its cause.
        trace.set_ambient_cause(Some(begun));
        let done = match step.action.act(self) {
            Err(StepError::Impossible(why)) if self.astray => Err(StepError::Missed(why.to_string())),
            done => done,
        };
        match done {
            Err(StepError::Missed(why)) => {
                self.astray = true;
                let text = format!("{}: {why}", step.text);
                trace.entry("step", "missed").host("world").text(text).field("line", step.line).cause(begun).record();
            }
            result => result?,
        }
        trace.set_ambient_cause(None);
        Ok(())
    }
    /// Virtual time since the world's start.
    pub fn now(&self) -> Duration {
        self.world.now()
    }
    /// The run's trace.
    pub fn trace(&self) -> &Trace {
        &self.trace
    }
    /// The run's choices.
    pub fn choices(&self) -> &Choices {
        &self.choices
    }
    /// The run's held streams.
    pub fn gates(&self) -> &Gates {
        &self.gates
    }
    /// The world, for faults and hosts.
    pub fn world(&mut self) -> &mut World {
        self.world
    }
    /// The system's live state.
    ///
    /// # Panics
    /// If `L` is not the type that the system's `assemble` returned.
    pub fn live<L: Live>(&mut self) -> &mut L {
        let live: &mut dyn Any = self.live;
        live.downcast_mut().expect("verbs ask for the type that assemble returned")
    }
    /// Lets the world run for a span of virtual time.
    pub fn run_for(&mut self, span: Duration) -> Result<(), Stuck> {
        self.world.run_for(span)
    }
    /// Lets the world run until `until` says so, at most for `limit`; asked after every instant. Was it said?
    pub fn wait<L: Live>(&mut self, limit: Duration, mut until: impl FnMut(&mut L) -> bool) -> Result<bool, Stuck> {
        let live: &mut dyn Any = self.live;
        let live = live.downcast_mut().expect("verbs ask for the type that assemble returned");
        self.world.run_until(limit, |_| until(live))
    }
    /// Lets the world run until the trace has an entry from `from` on that `is` the one; at most for `limit`.
    ///
    /// Each entry is looked at once. Start at `scene.trace().len()` for what is yet to come, at 0 for what may have
    /// come already.
    pub fn wait_for_entry(
        &mut self,
        from: EntryId,
        limit: Duration,
        mut is: impl FnMut(&Entry) -> bool,
    ) -> Result<Option<Entry>, Stuck> {
        let mut next = from as usize;
        let mut found = None;
        let mut look = |trace: &Trace| {
            trace.with(|entries| {
                found = entries.get(next..).and_then(|new| new.iter().find(|e| is(e))).cloned();
                next = entries.len();
            });
            found.is_some()
        };
        if !look(&self.trace) {
            self.world.run_until(limit, |_| look(&self.trace))?;
        }
        Ok(found)
    }
}
