//! What the actors of a world are asked, as choices.

use std::sync::Arc;
use std::time::Duration;

use photofinish_sim::choices::Choices;

use super::Questions;
use super::faults::{Enabled, NODE_SILENT, POD_EVICTED, POD_START, POD_STOP};
use crate::actors::{Fate, Pace};

const SLOW: Duration = Duration::from_secs(20);

/// The pace of actors in a world: what is normal, and the extra delay chosen under the point's key.
pub fn pace(choices: Choices) -> Pace {
    let questions = Questions::new(choices, Enabled::usual());
    Arc::new(move |key, normal| {
        let fault = if key.starts_with("stop/") { &POD_STOP } else { &POD_START };
        // Asked in any case: a script may slow pods down.
        let odds = questions.enabled().odds(fault).unwrap_or(0.0);
        let mut spec = super::faults::delays(fault, odds, SLOW);
        spec.min = Duration::from_millis(10);
        normal + questions.choices.delay(key, &spec)
    })
}

/// What befalls pods and nodes in a world: an eviction so long after a pod's start (`evict/pod/<name>#<n>`), a silence
/// of the node at a heartbeat (`silent/node/<node>#<n>`), of the kinds that are enabled.
pub fn fate(choices: Choices, enabled: Enabled) -> Fate {
    let questions = Questions::new(choices, enabled);
    Arc::new(move |key| {
        let (fault, longest) = match key.starts_with("evict/") {
            true => (&POD_EVICTED, Duration::from_secs(30)),
            false => (&NODE_SILENT, Duration::from_secs(600)),
        };
        let delay = questions.delay(key, fault, longest);
        (!delay.is_zero()).then_some(delay)
    })
}
