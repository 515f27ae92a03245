//! What may be asked at a point, what it can be answered, and how answers are written.

use crate::choices::{DelaySpec, Problem, parse_delay, print_delay};
use crate::legality::Fault;
use std::time::Duration;

/// What can be asked.
pub(crate) enum Kind {
    Delay(DelaySpec),
    Flip(&'static Fault),
    /// Names, and how often a seed draws each; no weights: all but the first alike.
    Pick(Vec<String>, Vec<u32>),
}

/// What it can be answered.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Answer {
    Delay(Duration),
    Flip(bool),
    Pick(usize),
}

impl PartialEq for Kind {
    fn eq(&self, other: &Kind) -> bool {
        match (self, other) {
            (Kind::Delay(a), Kind::Delay(b)) => (a.fault, a.min, a.max) == (b.fault, b.min, b.max),
            (Kind::Flip(a), Kind::Flip(b)) => a == b,
            (Kind::Pick(a, _), Kind::Pick(b, _)) => a == b,
            _ => false,
        }
    }
}

impl Kind {
    pub(crate) fn default(&self) -> Answer {
        match self {
            Kind::Delay(_) => Answer::Delay(Duration::ZERO),
            Kind::Flip(_) => Answer::Flip(false),
            Kind::Pick(..) => Answer::Pick(0),
        }
    }

    pub(crate) fn fault(&self) -> Option<&'static Fault> {
        match self {
            Kind::Delay(spec) => Some(spec.fault),
            Kind::Flip(fault) => Some(fault),
            Kind::Pick(..) => None,
        }
    }

    /// The kind of fault, by which swarms leave points out; of picks, the first part of the key.
    pub(crate) fn family<'a>(&self, key: &'a str) -> &'a str {
        match self.fault() {
            Some(fault) => fault.name,
            None => key.split('/').next().unwrap_or(key),
        }
    }

    /// In the form in which it can be pinned.
    pub(crate) fn show(&self, answer: Answer) -> String {
        match (self, answer) {
            (_, Answer::Delay(delay)) => print_delay(delay),
            (_, Answer::Flip(yes)) => if yes { "yes" } else { "no" }.to_owned(),
            (Kind::Pick(names, _), Answer::Pick(index)) => names[index].clone(),
            (_, Answer::Pick(index)) => index.to_string(),
        }
    }

    /// A pinned value; `None` for one that this point does not take.
    pub(crate) fn read(&self, value: &str) -> Option<Answer> {
        match self {
            Kind::Delay(spec) => parse_delay(value).filter(|delay| *delay <= spec.max).map(Answer::Delay),
            Kind::Flip(_) => ["no", "yes"].iter().position(|v| *v == value).map(|at| Answer::Flip(at == 1)),
            Kind::Pick(names, _) => names.iter().position(|name| name == value).map(Answer::Pick),
        }
    }

    pub(crate) fn alternatives(&self) -> Vec<String> {
        match self {
            Kind::Delay(spec) => {
                // A decade or two apart, and closer where timers of seconds are: what is late by ten is often too late.
                let mut all: Vec<_> =
                    [0.0, 0.5, 0.75, 1.0].map(|at| print_delay(log_uniform(at, spec.min, spec.max))).into();
                all.dedup();
                all
            }
            Kind::Flip(_) => vec!["yes".to_owned()],
            Kind::Pick(names, _) => names[1..].to_vec(),
        }
    }

    pub(crate) fn expected(&self) -> String {
        match self {
            Kind::Delay(spec) => {
                let most = print_delay(spec.max);
                format!("a delay of at most `{most}`, such as `{}`", print_delay(log_uniform(0.0, spec.min, spec.max)))
            }
            Kind::Flip(_) => "`yes` or `no`".to_owned(),
            Kind::Pick(names, _) => {
                format!("one of {}", names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", "))
            }
        }
    }

    pub(crate) fn problem(&self, key: &str, value: String) -> Problem {
        let (default, others) = (self.show(self.default()), self.alternatives());
        let nearest = nearest(&value, [&default].into_iter().chain(&others).map(String::as_str));
        Problem::Value { key: key.to_owned(), value, expected: self.expected(), nearest }
    }
}

/// Of `names`, the one that `word` resembles most, if it resembles any.
pub(crate) fn nearest<'a>(word: &str, names: impl Iterator<Item = &'a str>) -> Option<String> {
    let best = names.map(|name| (strsim::jaro_winkler(word, name), name)).max_by(|a, b| a.0.total_cmp(&b.0))?;
    (best.0 > 0.7).then(|| best.1.to_owned())
}

/// The point `at` (0.0 to 1.0) of a logarithmic scale from `min` to `max`, to two significant digits.
///
/// The logarithm is linear between powers of two, so only basic operations are needed: a C library's `ln` and `exp`
/// differ in the last bit between machines, and so would the runs of a seed.
pub(crate) fn log_uniform(at: f64, min: Duration, max: Duration) -> Duration {
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
