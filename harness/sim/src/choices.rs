//! Every point where reality could go several ways is asked here, under a stable name.
//!
//! A key is made of names, not of counters over the whole run: `watch/driver/sandboxes/demo#4` is the 4th event of that
//! object on that stream. An answer depends on the seed and the key alone, never on the order of questions, so a change
//! in one place of a run leaves the other choices as they were.
//!
//! ```
//! use photofinish_sim::choices::{Choices, DelaySpec, Source};
//! use photofinish_sim::legality::{Fault, Legality};
//! use photofinish_sim::trace::Trace;
//! use std::time::Duration;
//!
//! static LATE: Fault = Fault { name: "watch-delay", legality: Legality::Always, contract: "watches may lag" };
//! let spec = DelaySpec { fault: &LATE, odds: 0.5, min: Duration::from_millis(1), max: Duration::from_secs(5) };
//!
//! let pins = "watch/driver/sandboxes/demo#4=+1.4s".parse()?;
//! let choices = Choices::new(Source::Benign, pins, Trace::new());
//! assert_eq!(choices.delay("watch/driver/sandboxes/demo#3", &spec), Duration::ZERO);
//! assert_eq!(choices.delay("watch/driver/sandboxes/demo#4", &spec), Duration::from_millis(1400));
//! # Ok::<(), photofinish_sim::pins::PinError>(())
//! ```

pub use crate::pins::{Pins, key, parse_delay, print_delay};
pub use crate::source::{Legal, Source};

use crate::kind::{Answer, Kind, nearest};
use crate::legality::{Allowed, Fault};
use crate::policy::Policy;
use crate::trace::Trace;
use indexmap::IndexMap;
use std::borrow::Cow;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// An extra delay that a point may take.
#[derive(Clone, Copy, Debug)]
pub struct DelaySpec {
    /// What is late, and whether that may happen.
    pub fault: &'static Fault,
    /// How often a seed draws a delay at all, 0.0 to 1.0.
    pub odds: f64,
    /// The shortest delay that is drawn; more than zero.
    pub min: Duration,
    /// The longest delay that is drawn or may be pinned.
    pub max: Duration,
}

/// A point that was asked for, and what it took.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Point {
    /// The stable name.
    pub key: String,
    /// What it took, in the form in which it can be pinned.
    pub taken: String,
    /// What it takes in a benign run.
    pub default: String,
    /// What it takes besides its default. Of delays: the shortest, two between, and the longest one.
    pub alternatives: Vec<String>,
    /// What it means to leave the default; `None` where no alternative is a fault.
    pub fault: Option<&'static Fault>,
    /// Whether it was pinned.
    pub pinned: bool,
    /// When it was first asked for: virtual time since the world's start, nanoseconds.
    pub at_ns: u64,
}

/// A pin, or a question, that does not fit its point. The default was taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// The point does not take the pinned value.
    #[error("pin `{key}={value}`: expected {expected}{}", did_you_mean(nearest))]
    Value {
        /// The point.
        key: String,
        /// What was pinned.
        value: String,
        /// What the point takes.
        expected: String,
        /// The value that the pinned one resembles most.
        nearest: Option<String>,
    },
    /// The same key was asked for as two different things: a defect of whoever asks.
    #[error("choice `{key}`: asked for {second}, but before for {first}")]
    Clash {
        /// The point.
        key: String,
        /// What it was first: its possible values.
        first: String,
        /// What it was later.
        second: String,
    },
}

fn did_you_mean(nearest: &Option<String>) -> String {
    nearest.as_ref().map(|n| format!("; did you mean `{n}`?")).unwrap_or_default()
}

/// A handle on a run's choices. Clones share all answers.
#[derive(Clone)]
pub struct Choices(Arc<Mutex<State>>);

struct State {
    policy: Policy,
    pins: Pins,
    asks_all: bool,
    /// [`Choices::go_on`] is still to come.
    beginning: bool,
    /// Points that took their default are not remembered.
    forgets: bool,
    /// Delays for whole families of points, the newest last: [`Choices::slow`].
    slow: Vec<(String, Duration)>,
    trace: Trace,
    asked: IndexMap<String, Asked>,
    /// Generated texts, and what keys say instead.
    names: Vec<(String, String)>,
    problems: Vec<Problem>,
    turn: Option<Turn>,
}

/// What happens right before a point is asked for the first time.
struct Turn {
    key: String,
    then: Box<dyn FnOnce(&Choices) + Send>,
}

/// A question that was asked, and its answer.
struct Asked {
    kind: Kind,
    answer: Answer,
    pinned: bool,
    at_ns: u64,
}

impl Choices {
    /// Choices of a run. Pins come first, then the source. Draws only faults that any cluster may show, unless the source
    /// says more.
    pub fn new(source: Source, pins: Pins, trace: Trace) -> Choices {
        Choices::with_allowed(source, pins, trace, source.allowed())
    }

    /// As [`Choices::new`], where also the faults in `allowed` may be drawn.
    pub fn with_allowed(source: Source, pins: Pins, trace: Trace, allowed: Allowed) -> Choices {
        let (policy, asks_all) = (Policy::new(source, allowed), source.asks_all());
        let (asked, names, problems) = (IndexMap::new(), Vec::new(), Vec::new());
        Choices(Arc::new(Mutex::new(State {
            policy,
            pins,
            asks_all,
            beginning: false,
            forgets: false,
            slow: Vec::new(),
            trace,
            asked,
            names,
            problems,
            turn: None,
        })))
    }

    /// The same, where whoever asks for few kinds of faults by default is to ask for all: to learn what could be pinned.
    pub fn asking_all(self) -> Choices {
        self.state().asks_all = true;
        self
    }

    /// Those of a beginning that many runs share: every choice takes its default or what is pinned, and all kinds of
    /// faults are asked for, so that it is known what could be pinned. [`Choices::go_on`] ends it.
    pub fn of_a_beginning(pins: Pins, trace: Trace) -> Choices {
        let choices = Choices::new(Source::Benign, pins, trace).asking_all();
        choices.state().beginning = true;
        choices
    }

    /// Whether [`Choices::go_on`] is still to come.
    pub fn are_in_the_beginning(&self) -> bool {
        self.state().beginning
    }

    /// Whether this key is pinned, under the name that pins have for it.
    pub fn has_pin(&self, key: &str) -> bool {
        let state = self.state();
        !state.pins.is_empty() && state.pins.get(&state.named(key)).is_some()
    }

    /// Whether a key `<key>/...` is pinned.
    pub fn has_pin_below(&self, key: &str) -> bool {
        let state = self.state();
        if state.pins.is_empty() {
            return false;
        }
        let key = state.named(key);
        let is_below = |pin: &str| pin.strip_prefix(&*key).is_some_and(|rest| rest.starts_with('/'));
        state.pins.iter().any(|(pin, _)| is_below(pin))
    }

    /// Ends a beginning: goes on with another source and other pins. Returns the pins that come too late: their points
    /// took something else.
    pub fn go_on(&self, source: Source, pins: Pins, asks_all: bool) -> Vec<String> {
        let mut guard = self.state();
        let state = &mut *guard;
        let too_late = pins.iter().filter_map(|(key, value)| {
            let asked = state.asked.get_mut(key)?;
            asked.pinned = true;
            (asked.kind.read(value) != Some(asked.answer)).then(|| key.to_owned())
        });
        let too_late = too_late.collect();
        (state.policy, state.pins) = (Policy::new(source, source.allowed()), pins);
        (state.beginning, state.asks_all) = (false, asks_all || source.asks_all());
        too_late
    }

    /// Right before the point `key` is asked for the first time, in the middle of whatever asks, `then` is called,
    /// which may [go on](Choices::go_on) otherwise from there. One point a run; the last one that is named counts.
    pub fn before(&self, key: &str, then: impl FnOnce(&Choices) + Send + 'static) {
        self.state().turn = Some(Turn { key: key.to_owned(), then: Box::new(then) });
    }

    /// Calls what was to be called [before](Choices::before) a point that nobody has asked for.
    pub fn nobody_asked(&self) {
        let turn = self.state().turn.take();
        if let Some(turn) = turn {
            (turn.then)(self);
        }
    }

    /// Whether all kinds of faults are to be asked for, also those that a plain seed does not draw.
    pub fn asks_all(&self) -> bool {
        self.state().asks_all
    }

    /// All defaults, nothing pinned, a trace of its own: for tests.
    pub fn benign() -> Choices {
        Choices::new(Source::Benign, Pins::default(), Trace::new())
    }

    /// The extra delay of this point, beyond what is normal. Default: zero.
    pub fn delay(&self, key: &str, spec: &DelaySpec) -> Duration {
        match self.ask(key, Kind::Delay(*spec), spec.odds) {
            Answer::Delay(delay) => delay,
            _ => Duration::ZERO,
        }
    }

    /// From now on every delay asked for whose key is `prefix`, or goes on behind it with `/` or `#`, is `by`, unless it
    /// is pinned. The newest rule that fits counts; `Duration::ZERO` ends a rule. For scripts: no fault, no draw.
    ///
    /// Not delays whose keys go on behind a number (`call/driver/GET/pods/demo#1/reply`): they come on top of the one that is
    /// slowed, and many runs do not ask for them.
    ///
    /// ```
    /// # use photofinish_sim::choices::{Choices, DelaySpec};
    /// # use photofinish_sim::gate::ITEM_DELAY;
    /// # use std::time::Duration;
    /// let choices = Choices::benign();
    /// choices.slow("call/driver/GET", Duration::from_secs(2));
    /// assert_eq!(choices.delay("call/driver/GET/pods/demo#1", &ITEM_DELAY), Duration::from_secs(2));
    /// assert_eq!(choices.delay("call/driver/GETS/pods/demo#1", &ITEM_DELAY), Duration::ZERO);
    /// ```
    pub fn slow(&self, prefix: &str, by: Duration) {
        let mut state = self.state();
        state.slow.retain(|(p, _)| p != prefix);
        if !by.is_zero() {
            state.slow.push((prefix.to_owned(), by));
        }
    }

    /// Whether `fault` happens at this point. Default: no. A seed draws yes with `odds`.
    pub fn flip(&self, key: &str, fault: &'static Fault, odds: f64) -> bool {
        self.ask(key, Kind::Flip(fault), odds) == Answer::Flip(true)
    }

    /// Which of `names` this point takes: an index. Default: 0. A seed leaves the default with `odds`, for any of the
    /// others alike.
    ///
    /// # Panics
    /// If there are no names to pick from.
    pub fn pick(&self, key: &str, names: &[&str], odds: f64) -> usize {
        assert!(!names.is_empty(), "choice `{key}`: nothing to pick from");
        match self.ask(key, Kind::Pick(names.iter().map(|&name| name.to_owned()).collect(), Vec::new()), odds) {
            Answer::Pick(index) => index,
            _ => 0,
        }
    }

    /// Whether points that took their default are remembered, as they are at first. A long run may do without: their
    /// answers are found again, but [`Choices::points`] does not tell of them.
    pub fn remember_defaults(&self, remember: bool) {
        self.state().forgets = !remember;
    }

    /// Which of these names this point takes: an index. Default: 0. A seed draws each as often as its weight says, the
    /// first one too; a swarm's seed leaves some words out, a name's word being what stands before its first dot.
    ///
    /// # Panics
    /// If there are no names to pick from.
    pub fn weigh(&self, key: &str, names: &[(&str, u32)]) -> usize {
        assert!(!names.is_empty(), "choice `{key}`: nothing to pick from");
        let (names, weights) = names.iter().map(|(name, weight)| ((*name).to_owned(), *weight)).unzip();
        match self.ask(key, Kind::Pick(names, weights), 1.0) {
            Answer::Pick(index) => index,
            _ => 0,
        }
    }

    /// From now on keys that hold `generated`, a text that the code under test made up, hold `name` instead, or `name.2`
    /// if that is taken: so a key does not depend on the seed.
    ///
    /// ```
    /// # use photofinish_sim::choices::Choices;
    /// let choices = Choices::benign();
    /// choices.call("0f3a-77", "demo");
    /// choices.call("9c21-80", "demo");
    /// assert_eq!(choices.named("call/driver/GET/pods/os-0f3a-77#1"), "call/driver/GET/pods/os-demo#1");
    /// assert_eq!(choices.named("call/driver/GET/pods/os-9c21-80#1"), "call/driver/GET/pods/os-demo.2#1");
    /// ```
    pub fn call(&self, generated: &str, name: &str) {
        let mut state = self.state();
        if generated.is_empty() || state.names.iter().any(|(text, _)| text == generated) {
            return;
        }
        let taken = |name: &str| state.names.iter().any(|(_, n)| n == name);
        let free = (2..).map(|n| format!("{name}.{n}")).find(|name| !taken(name));
        let name = if taken(name) { free.expect("numbers do not end") } else { name.to_owned() };
        state.names.push((generated.to_owned(), name));
    }

    /// The text with the names of [`Choices::call`] in it.
    pub fn named<'k>(&self, text: &'k str) -> Cow<'k, str> {
        self.state().named(text)
    }

    /// All points asked for so far, in the order of their first question.
    pub fn points(&self) -> Vec<Point> {
        self.state().asked.iter().map(|(key, asked)| asked.point(key)).collect()
    }

    /// Keys of all points asked for so far, in the order of their first question.
    pub fn keys(&self) -> Vec<String> {
        self.state().asked.keys().cloned().collect()
    }

    /// What did not fit: pins that their points do not take, keys asked for as two things.
    pub fn problems(&self) -> Vec<Problem> {
        self.state().problems.clone()
    }

    /// Keys of pins that nobody has asked for.
    pub fn unused_pins(&self) -> Vec<String> {
        let state = self.state();
        state.pins.iter().map(|(key, _)| key).filter(|&key| !state.asked.contains_key(key)).map(str::to_owned).collect()
    }

    /// Of the keys asked for, the one that `key` resembles most: what a mistyped pin may have meant.
    pub fn nearest_key(&self, key: &str) -> Option<String> {
        nearest(key, self.state().asked.keys().map(String::as_str))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ask(&self, key: &str, kind: Kind, odds: f64) -> Answer {
        let mut state = self.state();
        let key = &*state.named(key);
        if let Some(asked) = state.asked.get(key) {
            if asked.kind == kind {
                return asked.answer;
            }
            let (first, second, default) = (asked.kind.expected(), kind.expected(), kind.default());
            state.problems.push(Problem::Clash { key: key.to_owned(), first, second });
            return default;
        }
        if let Some(turn) = state.turn.take_if(|turn| turn.key == key) {
            drop(state);
            (turn.then)(self);
            state = self.state();
        }
        let pin = state.pins.get(key).map(|value| (value.to_owned(), kind.read(value)));
        let pinned = matches!(pin, Some((_, Some(_))));
        let answer = match pin {
            Some((_, Some(answer))) => answer,
            other => {
                if let Some((value, None)) = other {
                    state.problems.push(kind.problem(key, value));
                }
                let slowed = state.slowed(key).filter(|_| matches!(kind, Kind::Delay(_))).map(Answer::Delay);
                slowed.or_else(|| state.policy.draw(key, &kind, odds)).unwrap_or(kind.default())
            }
        };
        if answer != kind.default() {
            let (value, default) = (kind.show(answer), kind.show(kind.default()));
            let draft = state.trace.entry("choice", key.to_owned()).text(format!("{key}={value}"));
            draft.field("value", value).field("default", default).record();
        }
        if state.forgets && !pinned && answer == kind.default() {
            return answer;
        }
        let at_ns = crate::state::now().as_nanos() as u64;
        state.asked.insert(key.to_owned(), Asked { kind, answer, pinned, at_ns });
        answer
    }
}

impl fmt::Debug for Choices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state();
        f.debug_struct("Choices").field("source", &state.policy.source()).field("pins", &state.pins).finish()
    }
}

impl State {
    fn named<'k>(&self, text: &'k str) -> Cow<'k, str> {
        let mut named = Cow::Borrowed(text);
        for (generated, name) in &self.names {
            if named.contains(&**generated) {
                named = Cow::Owned(named.replace(&**generated, name));
            }
        }
        named
    }
    /// The newest rule of [`Choices::slow`] that fits.
    fn slowed(&self, key: &str) -> Option<Duration> {
        if key.rsplit_once('#').is_some_and(|(_, behind)| behind.contains('/')) {
            return None;
        }
        let fits =
            |prefix: &str| key.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with(['/', '#']));
        self.slow.iter().rev().find(|(prefix, _)| fits(prefix)).map(|(_, by)| *by)
    }
}

impl Asked {
    fn point(&self, key: &str) -> Point {
        Point {
            key: key.to_owned(),
            taken: self.kind.show(self.answer),
            default: self.kind.show(self.kind.default()),
            alternatives: self.kind.alternatives(),
            fault: self.kind.fault(),
            pinned: self.pinned,
            at_ns: self.at_ns,
        }
    }
}

#[cfg(test)]
#[path = "choices_tests.rs"]
mod tests;
