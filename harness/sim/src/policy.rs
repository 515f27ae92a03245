//! What a seed draws: the one place that decides whether a choice leaves its default.
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::kind::{Answer, Kind, log_uniform};
use crate::legality::Allowed;
use crate::source::Source;
use crate::{delay_bounded, pct, state, swarm};

/// Decides for one run.
pub(crate) struct Policy {
    source: Source,
    allowed: Allowed,
    /// How many delays may still be drawn: [`Source::DelayBounded`].
    left: u32,
}

impl Policy {
    pub(crate) fn new(source: Source, allowed: Allowed) -> Policy {
        let left = if let Source::DelayBounded(_, bound) = source { bound.chosen } else { 0 };
        Policy { source, allowed, left }
    }

    pub(crate) fn source(&self) -> Source {
        self.source
    }

    /// What a choice takes that leaves its default; `None` for the default. Depends on the seed and the key alone, except
    /// that delays end with their bound.
    pub(crate) fn draw(&mut self, key: &str, kind: &Kind, odds: f64) -> Option<Answer> {
        if kind.fault().is_some_and(|fault| !self.allowed.permits(fault.legality)) {
            return None;
        }
        let source = match self.source {
            // Its script is that of the run it forks: only faults are drawn anew.
            Source::Fork(_) if kind.fault().is_none() => return None,
            Source::Fork(fork) if (state::now().as_nanos() as u64) < fork.from_ns => return None,
            Source::Fork(fork) => Source::Seed(fork.draws),
            source => source,
        };
        match (source, kind) {
            (Source::Benign | Source::Quiet(_) | Source::Fork(_), _) => None,
            (_, Kind::Pick(names, _)) if names.len() == 1 => None,
            (source, Kind::Pick(names, weights)) => picked(source, key, names, weights, odds),
            (Source::Seed(seed), _) => fault(seed, key, kind, odds),
            (Source::Swarm(seed, _), _) => {
                fault(seed, key, kind, odds * swarm::factor(seed, kind.family(key), matches!(kind, Kind::Delay(_)))?)
            }
            (Source::Pct(seed, depth), Kind::Delay(spec)) => pct::delay(seed, depth, key, spec).map(Answer::Delay),
            (Source::DelayBounded(seed, bound), Kind::Delay(spec)) => {
                let delay = delay_bounded::delay(seed, bound, key, spec).filter(|_| self.left > 0)?;
                self.left -= 1;
                Some(Answer::Delay(delay))
            }
            // Both order what happens, and make nothing fail.
            (Source::Pct(..) | Source::DelayBounded(..), Kind::Flip(_)) => None,
        }
    }
}

/// Randomness of one choice.
pub(crate) fn randomness(seed: u64, key: &str) -> StdRng {
    StdRng::seed_from_u64(xxh3_64_with_seed(key.as_bytes(), seed))
}

fn fault(seed: u64, key: &str, kind: &Kind, odds: f64) -> Option<Answer> {
    let mut rng = randomness(seed, key);
    if !rng.random_bool(odds.clamp(0.0, 1.0)) {
        return None;
    }
    Some(match kind {
        Kind::Delay(spec) => Answer::Delay(log_uniform(rng.random(), spec.min, spec.max)),
        Kind::Flip(_) | Kind::Pick(..) => Answer::Flip(true),
    })
}

/// One of a pick's names other than the first. Equals are no fault: a swarm leaves none of them out for that.
fn picked(source: Source, key: &str, names: &[String], weights: &[u32], odds: f64) -> Option<Answer> {
    let seed = source.seed();
    let mut rng = randomness(seed, key);
    if weights.is_empty() {
        return rng.random_bool(odds.clamp(0.0, 1.0)).then(|| Answer::Pick(rng.random_range(1..names.len())));
    }
    let family = key.split('/').next().unwrap_or(key);
    let factor = |name: &String| match source {
        Source::Swarm(..) => swarm::word_factor(seed, family, name.split('.').next().unwrap_or(name)),
        _ => 1,
    };
    // The first name keeps its weight: something is always left.
    let first = weights[0].max(1);
    let weights = [first].into_iter().chain(names.iter().zip(weights).skip(1).map(|(name, w)| w * factor(name)));
    let weights: Vec<u32> = weights.collect();
    let mut at = rng.random_range(0..weights.iter().sum::<u32>());
    let index = weights.iter().position(|weight| {
        let here = at < *weight;
        at = at.saturating_sub(*weight);
        here
    });
    index.filter(|index| *index > 0).map(Answer::Pick)
}
