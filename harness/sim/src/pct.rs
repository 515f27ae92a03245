//! PCT: Burckhardt, Kothari, Musuvathi and Nagarakatte, "A Randomized Scheduler with Probabilistic Guarantees of Finding
//! Bugs", 2010; for messages instead of threads, as Ozkan and others, "Randomized Testing of Distributed Systems with
//! Probabilistic Guarantees", 2018.
//!
//! What is scheduled here are flows: a watch stream, one kind of call of a client, the starts of a pod. A seed gives each
//! a priority, and low priority means that all of it is late by the same time. Of the run's delay points it takes about
//! `d - 1` as change points, where a flow falls behind all others for as long as its fault may last. On a watch stream
//! what follows waits behind that, as it would for a thread of the lowest priority.
use std::time::Duration;

use rand::RngExt;

use crate::choices::DelaySpec;
use crate::kind::log_uniform;
use crate::policy::randomness;
use crate::source::Few;

/// How late a flow of lowest priority is all the time.
const LOWEST: Duration = Duration::from_millis(300);

/// The delay of this point; `None`: none.
pub(crate) fn delay(seed: u64, depth: Few, key: &str, spec: &DelaySpec) -> Option<Duration> {
    if randomness(seed, &format!("pct/change/{key}")).random_bool(depth.odds(depth.chosen.saturating_sub(1))) {
        return Some(spec.max);
    }
    // Half of all flows run at once: else nothing would ever be early.
    let priority: f64 = randomness(seed, &format!("pct/flow/{}", flow(key))).random();
    (priority < 0.5).then(|| log_uniform(1.0 - 2.0 * priority, Duration::from_millis(1), LOWEST))
}

/// What a point belongs to: `watch/driver/sandboxes` of `watch/driver/sandboxes/demo#4`.
fn flow(key: &str) -> &str {
    let end = key.match_indices(['/', '#']).nth(2).map_or(key.len(), |(at, _)| at);
    &key[..end]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gate::ITEM_DELAY;

    const DEPTH: Few = Few { chosen: 3, among: 400 };

    #[test]
    fn a_flow_is_a_stream_a_kind_of_call_or_a_pod() {
        for (key, expected) in [
            ("watch/driver/sandboxes/demo#4", "watch/driver/sandboxes"),
            ("call/driver/GET/pods/demo#2", "call/driver/GET"),
            ("call/driver/LIST#2", "call/driver/LIST"),
            ("start/pod/demo#1", "start/pod/demo"),
            ("plain", "plain"),
        ] {
            assert_eq!(flow(key), expected);
        }
    }

    #[test]
    fn points_of_a_flow_are_late_alike_but_for_its_change_points() {
        let mut changes = 0;
        for seed in 0..200 {
            let delays: Vec<_> =
                (0..100).map(|n| delay(seed, DEPTH, &format!("watch/a/pods/x#{n}"), &ITEM_DELAY)).collect();
            let usual = delays.iter().find(|d| **d != Some(ITEM_DELAY.max)).copied().flatten();
            assert!(delays.iter().all(|d| *d == usual || *d == Some(ITEM_DELAY.max)));
            assert!(usual.is_none_or(|d| d <= LOWEST));
            changes += delays.iter().filter(|d| **d == Some(ITEM_DELAY.max)).count();
        }
        // Two of four hundred points, and here are 200 times a hundred.
        assert!((70..130).contains(&changes), "{changes}");
    }
}
