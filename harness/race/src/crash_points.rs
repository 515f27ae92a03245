//! Crashes right after a durable write: a point for each write of the hosts that a script watches.
use std::sync::{Arc, Mutex, PoisonError};

use indexmap::IndexMap;
use photofinish_sim::choices::Choices;
use photofinish_sim::host::Control;
use photofinish_sim::legality::{Fault, Legality};
use photofinish_sim::trace::Entry;

use crate::system::System;

/// How often a seed crashes a process at one of the points.
const ODDS: f64 = 0.02;
static CRASH: Fault = Fault {
    name: "crash-after-write",
    legality: Legality::Always,
    contract: "A process may end at any time; what it has written stays, whoever it was going to tell.",
};

/// What every key of these points begins with.
pub(crate) const PREFIX: &str = "crash/";

/// The points of a run. Clones share what is counted.
#[derive(Clone, Default)]
pub(crate) struct CrashPoints(Arc<Mutex<Watched>>);

#[derive(Default)]
struct Watched {
    /// Name of the part of the script, and the hosts; none: nobody is watched.
    section: Option<(String, Vec<String>)>,
    /// Writes so far, by the key's beginning.
    writes: IndexMap<String, u64>,
}

impl CrashPoints {
    /// From now on the writes of these hosts are points `crash/<host>/<section>/after-write#<n>`.
    pub(crate) fn watch(&self, section: Option<(String, Vec<String>)>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).section = section;
    }
    /// Asks, at each durable write, whether its process ends there. It does so before it hears that it has written.
    pub(crate) fn observer(
        &self,
        system: &'static dyn System,
        choices: Choices,
        control: Control,
    ) -> impl Fn(&Entry) + use<> {
        let watched = self.0.clone();
        move |entry| {
            let Some(host) = system.durable_write(entry) else { return };
            let Some(key) = watched.lock().unwrap_or_else(PoisonError::into_inner).next(host) else { return };
            if choices.flip(&key, &CRASH, ODDS) {
                control.crash(host);
            }
        }
    }
}

impl Watched {
    fn next(&mut self, host: &str) -> Option<String> {
        let (section, hosts) = self.section.as_ref()?;
        if !hosts.iter().any(|watched| watched == host) {
            return None;
        }
        let beginning = format!("{PREFIX}{host}/{section}/after-write");
        let count = self.writes.entry(beginning.clone()).or_default();
        *count += 1;
        Some(format!("{beginning}#{count}"))
    }
}

/// What a point is called in reports: `gateway/stop#3`.
pub fn label(key: &str) -> Option<String> {
    let (place, n) = key.strip_prefix(PREFIX)?.split_once("/after-write#")?;
    Some(format!("{place}#{n}"))
}

/// The point that a report calls so.
pub fn key(label: &str) -> Option<String> {
    let (place, n) = label.split_once('#')?;
    let whole = n.parse::<u64>().is_ok() && place.split('/').count() == 2;
    whole.then(|| format!("{PREFIX}{place}/after-write#{n}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_are_counted_by_host_and_section() {
        let mut watched = Watched::default();
        assert_eq!(watched.next("gateway"), None, "nobody is watched");
        watched.section = Some(("stop".into(), vec!["gateway".into()]));
        assert_eq!(watched.next("driver"), None);
        assert_eq!(watched.next("gateway").as_deref(), Some("crash/gateway/stop/after-write#1"));
        assert_eq!(watched.next("gateway").as_deref(), Some("crash/gateway/stop/after-write#2"));
        watched.section = Some(("start".into(), vec!["gateway".into()]));
        assert_eq!(watched.next("gateway").as_deref(), Some("crash/gateway/start/after-write#1"));
    }

    #[test]
    fn labels_lead_to_keys_and_back() {
        let key_of_third = "crash/gateway/stop/after-write#3";
        assert_eq!(label(key_of_third).as_deref(), Some("gateway/stop#3"));
        assert_eq!(key("gateway/stop#3").as_deref(), Some(key_of_third));
        for wrong in ["gateway/stop", "gateway#3", "gateway/stop#x", ""] {
            assert_eq!(key(wrong), None, "{wrong}");
        }
        assert_eq!(label("call/driver/GET/pods/demo#1"), None);
    }
}
