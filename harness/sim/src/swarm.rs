//! Swarm testing: Groce, Zhang, Eide, Chen and Regehr, "Swarm Testing", 2012.
//!
//! Faults hide each other: a run in which every call fails never comes to the race. So each seed leaves most kinds of
//! faults out, and draws the others more or less often; of a script's words (start, stop ...) it leaves some out, too.
use rand::RngExt;

use crate::policy::randomness;

/// How often a kind of fault is part of a run, and by what its usual odds are multiplied then.
struct Part {
    odds: f64,
    factors: [f64; 3],
}
/// What makes something fail: a run in which everything is down says little about races.
const FAILURES: Part = Part { odds: 0.15, factors: [0.1, 0.3, 1.0] };
/// What makes something late: that is what races are made of.
const DELAYS: Part = Part { odds: 0.5, factors: [0.5, 1.0, 2.0] };
/// How often a word of a script is part of a run, and by what its weight is multiplied then.
const WORD_PART: f64 = 0.6;
const WORD_FACTORS: [u32; 3] = [1, 2, 4];

/// What a seed makes of a kind of fault, a delay or a failure; `None` if it leaves it out.
pub(crate) fn factor(seed: u64, family: &str, delays: bool) -> Option<f64> {
    let part = if delays { DELAYS } else { FAILURES };
    let mut rng = randomness(seed, &format!("swarm/{family}"));
    rng.random_bool(part.odds).then(|| part.factors[rng.random_range(0..part.factors.len())])
}

/// What a seed makes of a word in picks of this family; 0 if it leaves it out.
pub(crate) fn word_factor(seed: u64, family: &str, word: &str) -> u32 {
    let mut rng = randomness(seed, &format!("swarm/{family}/{word}"));
    if rng.random_bool(WORD_PART) { WORD_FACTORS[rng.random_range(0..WORD_FACTORS.len())] } else { 0 }
}
