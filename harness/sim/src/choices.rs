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

use crate::legality::{Allowed, Fault};
use crate::trace::Trace;
use indexmap::IndexMap;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Where the answers to unpinned questions come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Source {
    /// Every choice takes its default: nothing goes wrong, nothing is late.
    Benign,
    /// Faults are drawn, each choice by this seed and its key.
    Seed(u64),
}

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
    /// What it takes besides its default. Of delays: the shortest, a middle and the longest one.
    pub alternatives: Vec<String>,
    /// What it means to leave the default; `None` where no alternative is a fault.
    pub fault: Option<&'static Fault>,
    /// Whether it was pinned.
    pub pinned: bool,
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
    #[error("choice `{key}`: asked for as {second}, but before as {first}")]
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
    /// Delays for whole families of points, the newest last: [`Choices::slow`].
    slow: Vec<(String, Duration)>,
    trace: Trace,
    points: IndexMap<String, Point>,
    problems: Vec<Problem>,
}

impl Choices {
    /// Choices of a run. Pins come first, then the source. Draws only faults that any cluster may show.
    pub fn new(source: Source, pins: Pins, trace: Trace) -> Choices {
        Choices::with_allowed(source, pins, trace, Allowed::default())
    }

    /// As [`Choices::new`], where also the faults in `allowed` may be drawn.
    pub fn with_allowed(source: Source, pins: Pins, trace: Trace, allowed: Allowed) -> Choices {
        let policy = Policy { source, allowed };
        let state = State { policy, pins, slow: Vec::new(), trace, points: IndexMap::new(), problems: Vec::new() };
        Choices(Arc::new(Mutex::new(state)))
    }

    /// All defaults, nothing pinned, a trace of its own: for tests.
    pub fn benign() -> Choices {
        Choices::new(Source::Benign, Pins::default(), Trace::new())
    }

    /// The extra delay of this point, beyond what is normal. Default: zero.
    pub fn delay(&self, key: &str, spec: &DelaySpec) -> Duration {
        let alternatives = alternatives(spec);
        let kind = Kind {
            default: print_delay(Duration::ZERO),
            fault: Some(spec.fault),
            expected: format!("a delay of at most `{}`, such as `{}`", print_delay(spec.max), alternatives[0]),
            alternatives,
        };
        let valid = |text: &str| parse_delay(text).is_some_and(|d| d <= spec.max).then(|| text.to_owned());
        let slowed = self.slowed(key);
        let draw = |policy: &Policy| slowed.or_else(|| policy.delay(key, spec)).map(print_delay);
        let taken = self.ask(key, kind, valid, draw);
        parse_delay(&taken).expect("a delay is taken in its printed form")
    }

    /// From now on every delay asked for whose key is `prefix`, or goes on behind it with `/` or `#`, is `by`, unless it
    /// is pinned. The newest rule that fits counts; `Duration::ZERO` ends a rule. For scripts: no fault, no draw.
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

    fn slowed(&self, key: &str) -> Option<Duration> {
        let fits =
            |prefix: &str| key.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with(['/', '#']));
        let state = self.state();
        let rule = state.slow.iter().rev().find(|(prefix, _)| fits(prefix));
        rule.filter(|_| state.pins.get(key).is_none()).map(|(_, by)| *by)
    }

    /// Whether `fault` happens at this point. Default: no. A seed draws yes with `odds`.
    pub fn flip(&self, key: &str, fault: &'static Fault, odds: f64) -> bool {
        let kind = Kind {
            default: "no".to_owned(),
            alternatives: vec!["yes".to_owned()],
            fault: Some(fault),
            expected: "`yes` or `no`".to_owned(),
        };
        let valid = |text: &str| ["yes", "no"].contains(&text).then(|| text.to_owned());
        let draw = |policy: &Policy| policy.draw(key, Some(fault), odds).map(|_| "yes".to_owned());
        self.ask(key, kind, valid, draw) == "yes"
    }

    /// Which of `names` this point takes: an index. Default: 0. A seed leaves the default with `odds`, for any of the
    /// others alike.
    ///
    /// # Panics
    /// If there are no names to pick from.
    pub fn pick(&self, key: &str, names: &[&str], odds: f64) -> usize {
        assert!(!names.is_empty(), "choice `{key}`: nothing to pick from");
        let kind = Kind {
            default: names[0].to_owned(),
            alternatives: names[1..].iter().map(|&n| n.to_owned()).collect(),
            fault: None,
            expected: format!("one of {}", names.iter().map(|n| format!("`{n}`")).collect::<Vec<_>>().join(", ")),
        };
        let valid = |text: &str| names.contains(&text).then(|| text.to_owned());
        let draw = |policy: &Policy| Some(names[policy.pick(key, names.len(), odds)?].to_owned());
        let taken = self.ask(key, kind, valid, draw);
        names.iter().position(|&n| n == taken).unwrap_or(0)
    }

    /// All points asked for so far, in the order of their first question.
    pub fn points(&self) -> Vec<Point> {
        self.state().points.values().cloned().collect()
    }

    /// What did not fit: pins that their points do not take, keys asked for as two things.
    pub fn problems(&self) -> Vec<Problem> {
        self.state().problems.clone()
    }

    /// Keys of pins that nobody has asked for.
    pub fn unused_pins(&self) -> Vec<String> {
        let state = self.state();
        state
            .pins
            .iter()
            .map(|(key, _)| key)
            .filter(|&key| !state.points.contains_key(key))
            .map(str::to_owned)
            .collect()
    }

    /// Of the keys asked for, the one that `key` resembles most: what a mistyped pin may have meant.
    pub fn nearest_key(&self, key: &str) -> Option<String> {
        nearest(key, self.state().points.keys().map(String::as_str))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ask(
        &self,
        key: &str,
        kind: Kind,
        valid: impl Fn(&str) -> Option<String>,
        draw: impl FnOnce(&Policy) -> Option<String>,
    ) -> String {
        let mut state = self.state();
        if let Some(point) = state.points.get(key) {
            let (taken, first) = (point.taken.clone(), described(&point.default, &point.alternatives));
            if (&point.default, &point.alternatives) == (&kind.default, &kind.alternatives) {
                return taken;
            }
            let second = described(&kind.default, &kind.alternatives);
            state.problems.push(Problem::Clash { key: key.to_owned(), first, second });
            return valid(&taken).unwrap_or(kind.default);
        }
        let pin = state.pins.get(key).map(str::to_owned);
        let pinned = pin.as_deref().and_then(&valid);
        if let (Some(value), None) = (pin, &pinned) {
            let values = [&kind.default].into_iter().chain(&kind.alternatives).map(String::as_str);
            let (nearest, expected) = (nearest(&value, values), kind.expected);
            state.problems.push(Problem::Value { key: key.to_owned(), value, expected, nearest });
        }
        let is_pinned = pinned.is_some();
        let taken = pinned.or_else(|| draw(&state.policy)).unwrap_or_else(|| kind.default.clone());
        let point = Point {
            key: key.to_owned(),
            taken: taken.clone(),
            default: kind.default,
            alternatives: kind.alternatives,
            fault: kind.fault,
            pinned: is_pinned,
        };
        if taken != point.default {
            let draft = state.trace.entry("choice", key.to_owned()).text(format!("{key}={taken}"));
            draft.field("value", &taken).field("default", &point.default).record();
        }
        state.points.insert(key.to_owned(), point);
        taken
    }
}

impl fmt::Debug for Choices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state();
        f.debug_struct("Choices").field("source", &state.policy.source).field("pins", &state.pins).finish()
    }
}

/// What a point may take.
struct Kind {
    default: String,
    alternatives: Vec<String>,
    fault: Option<&'static Fault>,
    expected: String,
}

fn described(default: &str, alternatives: &[String]) -> String {
    format!("`{default}` or {}", alternatives.iter().map(|a| format!("`{a}`")).collect::<Vec<_>>().join(", "))
}

/// Of `names`, the one that `word` resembles most, if it resembles any.
fn nearest<'a>(word: &str, names: impl Iterator<Item = &'a str>) -> Option<String> {
    let best = names.map(|name| (strsim::jaro_winkler(word, name), name)).max_by(|a, b| a.0.total_cmp(&b.0))?;
    (best.0 > 0.7).then(|| best.1.to_owned())
}

/// The one place that decides what a seed draws.
struct Policy {
    source: Source,
    allowed: Allowed,
}

impl Policy {
    /// Randomness for a choice that leaves its default; `None` for the default.
    fn draw(&self, key: &str, fault: Option<&Fault>, odds: f64) -> Option<StdRng> {
        let Source::Seed(seed) = self.source else { return None };
        if fault.is_some_and(|f| !self.allowed.permits(f.legality)) {
            return None;
        }
        let mut rng = StdRng::seed_from_u64(xxhash_rust::xxh3::xxh3_64_with_seed(key.as_bytes(), seed));
        rng.random_bool(odds.clamp(0.0, 1.0)).then_some(rng)
    }

    fn delay(&self, key: &str, spec: &DelaySpec) -> Option<Duration> {
        let mut rng = self.draw(key, Some(spec.fault), spec.odds)?;
        Some(log_uniform(rng.random(), spec.min, spec.max))
    }

    fn pick(&self, key: &str, names: usize, odds: f64) -> Option<usize> {
        let mut rng = self.draw(key, None, odds).filter(|_| names > 1)?;
        Some(rng.random_range(1..names))
    }
}

fn alternatives(spec: &DelaySpec) -> Vec<String> {
    let mut all: Vec<_> = [0.0, 0.5, 1.0].map(|at| print_delay(log_uniform(at, spec.min, spec.max))).into();
    all.dedup();
    all
}

/// The point `at` (0.0 to 1.0) of a logarithmic scale from `min` to `max`, to two significant digits.
///
/// The logarithm is linear between powers of two, so only basic operations are needed: a C library's `ln` and `exp`
/// differ in the last bit between machines, and so would the runs of a seed.
fn log_uniform(at: f64, min: Duration, max: Duration) -> Duration {
    let (min, max) = (min.as_nanos().max(1) as u64, max.as_nanos() as u64);
    let (low, high) = (log2(min), log2(max.max(min)));
    let ns = two_digits(exp2(low + (high - low) * at)).clamp(min, max.max(min));
    Duration::from_nanos(ns)
}

fn log2(n: u64) -> f64 {
    let whole = n.ilog2();
    f64::from(whole) + (n as f64 / (1u64 << whole) as f64 - 1.0)
}

fn exp2(x: f64) -> u64 {
    let whole = x.floor();
    ((1u64 << (whole as u32).min(63)) as f64 * (1.0 + (x - whole))) as u64
}

fn two_digits(n: u64) -> u64 {
    let unit = 10u64.pow(n.max(1).ilog10().saturating_sub(1));
    n / unit * unit
}

#[cfg(test)]
#[path = "choices_tests.rs"]
mod tests;
