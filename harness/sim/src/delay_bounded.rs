//! Delay bounding: Emmi, Qadeer and Rakamaric, "Delay-Bounded Scheduling", 2011.
//!
//! The benign run is the deterministic schedule; a run leaves it at `k` points at most, each by a delay. Few delays find
//! most races, and a run with two faults explains itself.
use std::time::Duration;

use rand::RngExt;

use crate::choices::DelaySpec;
use crate::kind::log_uniform;
use crate::policy::randomness;
use crate::source::Few;

/// The delay of this point, if it is one of those that leave the schedule; the bound itself is the caller's.
pub(crate) fn delay(seed: u64, bound: Few, key: &str, spec: &DelaySpec) -> Option<Duration> {
    let mut rng = randomness(seed, &format!("delay-bounded/{key}"));
    // One more than the bound is hoped for, so that most runs use it up.
    rng.random_bool(bound.odds(bound.chosen + 1)).then(|| log_uniform(rng.random(), spec.min, spec.max))
}

#[cfg(test)]
mod tests {
    use crate::choices::{Choices, Pins, Source};
    use crate::gate::ITEM_DELAY;
    use crate::source::Few;
    use crate::trace::Trace;

    #[test]
    fn no_run_has_more_delays_than_its_bound_and_most_have_as_many() {
        let mut counts = [0; 3];
        for seed in 0..200 {
            let source = Source::DelayBounded(seed, Few { chosen: 2, among: 100 });
            let choices = Choices::new(source, Pins::default(), Trace::new());
            let late = (0..100).filter(|n| !choices.delay(&format!("k#{n}"), &ITEM_DELAY).is_zero()).count();
            counts[late] += 1;
        }
        assert!(counts[2] > 120 && counts[0] < 30, "{counts:?}");
    }
}
