//! How a sweep's seeds choose: each strategy is a source of the choices, with a paper of its own.
//!
//! | strategy | run id | paper | where |
//! |---|---|---|---|
//! | swarm | `w=N` | Groce and others, 2012 | photofinish-sim, `swarm.rs` |
//! | pct | `p=N.DEPTH.POINTS` | Burckhardt and others, 2010; Ozkan and others, 2018 | `pct.rs` |
//! | delay | `d=N.BOUND.POINTS` | Emmi and others, 2011 | `delay_bounded.rs` |
//! | plain | `s=N` | - | the usual faults with their usual odds |
use clap::ValueEnum;
use photofinish_sim::choices::{Legal, Source};
use photofinish_sim::source::Few;

use crate::explore::choices::ChoicePoint;

/// A way to draw.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Strategy {
    /// Most kinds of faults are left out by each seed, the others have odds of its own.
    Swarm,
    /// Streams and calls have random priorities, and a few of them fall behind once.
    Pct,
    /// A few delays, anywhere.
    Delay,
    /// The usual kinds of faults with their usual odds.
    Plain,
}

impl Strategy {
    /// As the command line writes it.
    pub fn name(self) -> &'static str {
        match self {
            Strategy::Swarm => "swarm",
            Strategy::Pct => "pct",
            Strategy::Delay => "delay",
            Strategy::Plain => "plain",
        }
    }
    /// The depth or bound unless it is said: most races need two events to be late.
    pub fn usual_bound(self) -> u32 {
        if self == Strategy::Pct { 3 } else { 2 }
    }
    /// Whether it must know how many points a benign run has.
    pub fn needs_points(self) -> bool {
        matches!(self, Strategy::Pct | Strategy::Delay)
    }
    /// Where the choices of a seed come from; `points` of the benign run that may be late.
    pub fn source(self, seed: u64, legal: Legal, bound: u32, points: u32) -> Source {
        let few = Few { chosen: bound, among: points };
        match self {
            Strategy::Swarm => Source::Swarm(seed, legal),
            Strategy::Pct => Source::Pct(seed, few),
            Strategy::Delay => Source::DelayBounded(seed, few),
            Strategy::Plain => Source::Seed(seed),
        }
    }
}

/// Points that may be late, in round numbers: a change of the code must not give every id another name.
pub fn delay_points(points: &[ChoicePoint]) -> u32 {
    let late = points.iter().filter(|p| p.default.starts_with('+')).count() as u32;
    let unit = 10u32.pow(late.max(1).ilog10());
    late.div_ceil(unit) * unit
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_strategy_has_ids_of_its_own() {
        let ids = Strategy::value_variants().iter().map(|s| s.source(7, Legal::Always, 2, 300).to_string());
        assert_eq!(ids.collect::<Vec<_>>(), ["w=7", "p=7.2.300", "d=7.2.300", "s=7"]);
    }

    #[test]
    fn points_that_may_be_late_are_counted_in_round_numbers() {
        let point = |default: &str| ChoicePoint {
            key: String::new(),
            default: default.into(),
            taken: default.into(),
            alternatives: vec![],
            fault: None,
            legality: "always".into(),
            contract: String::new(),
            at_ns: 0,
        };
        for (late, others, expected) in [(0, 5, 0), (1, 0, 1), (9, 9, 9), (10, 0, 10), (11, 0, 20), (345, 900, 400)] {
            let points: Vec<_> = (0..late).map(|_| point("+0s")).chain((0..others).map(|_| point("no"))).collect();
            assert_eq!(delay_points(&points), expected, "{late}");
        }
    }
}
