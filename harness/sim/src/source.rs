//! Where the answers to unpinned questions come from, and how run ids write it.

use crate::legality::Allowed;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// Where the answers to unpinned questions come from.
///
/// ```
/// use photofinish_sim::source::{Legal, Source};
/// for text in ["benign", "s=51", "q=51", "w=51", "w=51.ha", "p=51.3.400", "d=51.2.400", "f=51.7.1200"] {
///     assert_eq!(text.parse::<Source>().map(|s| s.to_string()).as_deref(), Ok(text));
/// }
/// assert_eq!("w=7.never".parse(), Ok(Source::Swarm(7, Legal::Never)));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Source {
    /// Every choice takes its default: nothing goes wrong, nothing is late.
    Benign,
    /// Faults of the usual kinds are drawn, each choice by this seed and its key.
    Seed(u64),
    /// The world's own randomness (ids, jitter) is that of the seed, but every choice takes its default: what is left of
    /// a seed once its draws stand in pins.
    Quiet(u64),
    /// Every kind of fault that is legal may be drawn, but a seed leaves most kinds out and has its own odds for each of
    /// the others (Groce and others, "Swarm Testing", 2012): faults that hide each other are seldom together.
    Swarm(u64, Legal),
    /// Flows have random priorities, and a few points where one falls behind all others ([`crate::pct`]). The depth, and
    /// how many points the benign run has.
    Pct(u64, Few),
    /// At most a few delays, anywhere ([`crate::delay_bounded`]). How many, and how many points the benign run has.
    DelayBounded(u64, Few),
    /// A run up to an instant, then faults drawn anew: what might have become of it.
    Fork(Fork),
}

/// Where a [`Source::Fork`] leaves a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fork {
    /// The seed of the world's own randomness: that of the run it forks.
    pub world: u64,
    /// The seed of what is drawn from there on, as by [`Source::Seed`].
    pub draws: u64,
    /// When: virtual time since the world's start, nanoseconds. Before it, every choice takes its default or its pin.
    pub from_ns: u64,
}

/// A few of many points.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Few {
    /// How many: the depth, or the bound.
    pub chosen: u32,
    /// Of how many, more or less: what decides the odds of each.
    pub among: u32,
}

impl Few {
    /// The odds of each point, if so many are to be met.
    pub(crate) fn odds(self, wanted: u32) -> f64 {
        (f64::from(wanted) / f64::from(self.among.max(1))).min(1.0)
    }
}

/// How far a [`Source::Swarm`] goes: each includes those before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Legal {
    /// What any cluster may do.
    #[default]
    Always,
    /// Also what only clusters with several API servers may do.
    Ha,
    /// Also what no cluster does: for experiments.
    Never,
}

impl Legal {
    /// All, in their order.
    pub const ALL: [Legal; 3] = [Legal::Always, Legal::Ha, Legal::Never];

    /// As command lines and run ids write it.
    pub fn name(self) -> &'static str {
        match self {
            Legal::Always => "always",
            Legal::Ha => "ha",
            Legal::Never => "never",
        }
    }

    /// The faults that may be drawn.
    pub fn allowed(self) -> Allowed {
        Allowed { ha: self >= Legal::Ha, version: None, never: self == Legal::Never }
    }
}

impl Source {
    /// What the world's own randomness starts from; 0 for a benign run.
    pub fn seed(self) -> u64 {
        match self {
            Source::Benign => 0,
            Source::Seed(seed) | Source::Quiet(seed) | Source::Swarm(seed, _) => seed,
            Source::Pct(seed, _) | Source::DelayBounded(seed, _) => seed,
            Source::Fork(fork) => fork.world,
        }
    }

    /// Whether every kind of fault is to be asked for.
    pub(crate) fn asks_all(self) -> bool {
        matches!(self, Source::Swarm(..))
    }

    /// The faults that may be drawn.
    pub fn allowed(self) -> Allowed {
        match self {
            Source::Swarm(_, legal) => legal.allowed(),
            _ => Allowed::default(),
        }
    }
}

/// As run ids hold it: `benign`, `s=51`, `q=51`, `w=51`, `w=51.ha`, `p=51.3.400`, `d=51.2.400`, `f=51.7.1200`.
impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::Benign => f.write_str("benign"),
            Source::Seed(seed) => write!(f, "s={seed}"),
            Source::Quiet(seed) => write!(f, "q={seed}"),
            Source::Swarm(seed, Legal::Always) => write!(f, "w={seed}"),
            Source::Swarm(seed, legal) => write!(f, "w={seed}.{}", legal.name()),
            Source::Pct(seed, Few { chosen, among }) => write!(f, "p={seed}.{chosen}.{among}"),
            Source::DelayBounded(seed, Few { chosen, among }) => write!(f, "d={seed}.{chosen}.{among}"),
            Source::Fork(Fork { world, draws, from_ns }) => write!(f, "f={world}.{draws}.{from_ns}"),
        }
    }
}

/// A text that is no [`Source`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "expected benign or s=N, found `{0}`; a swarm's run has w=N, w=N.ha or w=N.never, PCT p=N.DEPTH.POINTS, delay bounds d=N.BOUND.POINTS, a fork f=N.DRAWS.NANOSECONDS, a quiet seed q=N"
)]
pub struct NoSource(pub String);

impl FromStr for Source {
    type Err = NoSource;

    fn from_str(text: &str) -> Result<Source, NoSource> {
        let wrong = || NoSource(text.to_owned());
        // One way to write it: equal runs have equal ids.
        let seed = |n: &str| n.parse::<u64>().ok().filter(|seed| seed.to_string() == n).ok_or_else(wrong);
        match text.split_once('=') {
            None if text == "benign" => Ok(Source::Benign),
            Some(("s", n)) => seed(n).map(Source::Seed),
            Some(("q", n)) => seed(n).map(Source::Quiet),
            Some((kind @ ("p" | "d" | "f"), rest)) => {
                let numbers = rest.split('.').map(seed).collect::<Result<Vec<u64>, _>>()?;
                let [first, second, third] = numbers[..] else { return Err(wrong()) };
                let small = |n: u64| u32::try_from(n).map_err(|_| wrong());
                Ok(match kind {
                    "p" => Source::Pct(first, Few { chosen: small(second)?, among: small(third)? }),
                    "d" => Source::DelayBounded(first, Few { chosen: small(second)?, among: small(third)? }),
                    _ => Source::Fork(Fork { world: first, draws: second, from_ns: third }),
                })
            }
            Some(("w", rest)) => {
                let (n, legal) = rest.split_once('.').unwrap_or((rest, ""));
                let legal = match legal {
                    "" if !rest.contains('.') => Legal::Always,
                    "ha" => Legal::Ha,
                    "never" => Legal::Never,
                    _ => return Err(wrong()),
                };
                Ok(Source::Swarm(seed(n)?, legal))
            }
            _ => Err(wrong()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::legality::Legality;

    #[test]
    fn what_is_no_source_is_refused() {
        for text in [
            "",
            "s",
            "s=",
            "s=x",
            "x=1",
            "benign=1",
            "w=1.",
            "w=1.always",
            "w=.ha",
            "w=1.ha.ha",
            "s=1.ha",
            "s=01",
            "w=+1",
            "p=1",
            "p=1.3",
            "p=1.3.400.1",
            "d=1.2.x",
        ] {
            assert_eq!(text.parse::<Source>(), Err(NoSource(text.to_owned())), "{text}");
        }
    }

    #[test]
    fn each_legality_includes_those_before_it() {
        let permits =
            |legal: Legal| [Legality::Always, Legality::Ha, Legality::Never].map(|l| legal.allowed().permits(l));
        assert_eq!(Legal::ALL.map(permits), [[true, false, false], [true, true, false], [true, true, true]]);
    }
}
