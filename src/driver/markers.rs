//! The bootstrap marker: what a Sandbox's annotations say about the operation under way, and what each step writes.
//!
//! ```text
//!               CreateSandbox                                StartSandbox (CR suspended, no marker)
//!                    |                                               |
//!           create/preparing                                 restart/preparing
//!                    |                                               |
//!            create/released  <------- gates removed ------> restart/released
//!                    +-----------------------+-----------------------+
//!                                            | supervisor ready, CR ready
//!                                            v
//!                             marker cleared, readiness=ready (running)
//!                                            |
//!   StopSandbox: stop/releasing  <-----------+------- from any state without releasing or suspending
//!           | supervisor Pod gone
//!           v
//!   stop/suspending (+ run switch off)  <-------- a lost dependency enters here, from any state
//!           | workload Pod gone
//!           v
//!   everything cleared, readiness=unavailable (stopped)
//! ```
//!
//! Every function here is pure: annotations in, annotations (or a verdict) out. Times are wall clock milliseconds since
//! the Unix epoch.
use super::names;
use super::resource::Sandbox;
use crate::remedy::{Remedies, Remedy};
use serde_json::{Map, Value};

/// A bootstrap older than this that cannot complete is given up.
pub const BOOTSTRAP_GRACE_MS: i64 = 300_000;

/// What the marker is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// The sandbox is being created.
    Create,
    /// A stopped sandbox is being started.
    Restart,
    /// The sandbox is being stopped.
    Stop,
    /// A value that this driver does not know.
    Unknown,
    /// The annotation is not there.
    Missing,
}

impl Operation {
    fn read(value: Option<&str>) -> Self {
        match value {
            Some("create") => Operation::Create,
            Some("restart") => Operation::Restart,
            Some("stop") => Operation::Stop,
            Some(_) => Operation::Unknown,
            None => Operation::Missing,
        }
    }
    /// Create or restart: the operation ends with a running workload.
    pub fn is_start(self) -> bool {
        matches!(self, Operation::Create | Operation::Restart)
    }
}

/// How far the operation is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Create, restart: companions are being made; both Pods wait behind their gates.
    Preparing,
    /// Create, restart: gates are gone.
    Released,
    /// Stop: the supervisor Pod is being deleted.
    Releasing,
    /// Stop: the run switch is off, the workload Pod is ending.
    Suspending,
    /// Absent, or a value that this driver does not know.
    Unknown,
}

impl Phase {
    fn read(value: Option<&str>) -> Self {
        match value {
            Some("preparing") => Phase::Preparing,
            Some("released") => Phase::Released,
            Some("releasing") => Phase::Releasing,
            Some("suspending") => Phase::Suspending,
            _ => Phase::Unknown,
        }
    }
}

/// The marker of a Sandbox that has one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Marker {
    /// What is under way.
    pub operation: Operation,
    /// How far it is.
    pub phase: Phase,
    /// When it began; `None` if absent or not a number.
    pub started_at_ms: Option<i64>,
}

impl Marker {
    /// The marker of this Sandbox: present exactly while annotation [`names::BOOTSTRAPPING`] is `"true"`.
    pub fn of(sandbox: &Sandbox) -> Option<Marker> {
        (sandbox.annotation(names::BOOTSTRAPPING) == Some("true")).then(|| Marker {
            operation: Operation::read(sandbox.annotation(names::BOOTSTRAP_OPERATION)),
            phase: Phase::read(sandbox.annotation(names::BOOTSTRAP_PHASE)),
            started_at_ms: sandbox.annotation(names::BOOTSTRAP_STARTED_AT_MS).and_then(|v| v.parse().ok()),
        })
    }
    /// Is it so old that nothing will complete it? True as well if its beginning cannot be read; a beginning in the
    /// future has no age and is not stale.
    pub fn is_stale(&self, now_ms: i64) -> bool {
        self.started_at_ms.is_none_or(|began| now_ms.saturating_sub(began) >= BOOTSTRAP_GRACE_MS)
    }
}

/// Changes of annotations: `None` removes the key. Written as a JSON merge patch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Annotations(Vec<(&'static str, Option<String>)>);

impl Annotations {
    /// The value of `metadata.annotations` in a merge patch.
    pub fn into_json(self) -> Value {
        let entries = self.0.into_iter().map(|(k, v)| (k.to_owned(), v.map_or(Value::Null, Value::String)));
        Value::Object(entries.collect::<Map<_, _>>())
    }
    /// The same changes and this one.
    fn and(mut self, key: &'static str, value: impl Into<String>) -> Self {
        self.0.push((key, Some(value.into())));
        self
    }
    /// The same changes, made by the operation of this lifecycle epoch; 0 is none, and notes nothing.
    pub fn of_epoch(self, epoch: u64) -> Self {
        if epoch == 0 { self } else { self.and(names::LIFECYCLE_EPOCH, epoch.to_string()) }
    }
    fn and_not(mut self, keys: &[&'static str]) -> Self {
        self.0.extend(keys.iter().map(|k| (*k, None)));
        self
    }
}

fn mark(operation: &str, phase: &str, now_ms: i64) -> Annotations {
    Annotations(Vec::with_capacity(12))
        .and(names::BOOTSTRAPPING, "true")
        .and(names::BOOTSTRAP_STARTED_AT_MS, now_ms.to_string())
        .and(names::BOOTSTRAP_OPERATION, operation)
        .and(names::BOOTSTRAP_PHASE, phase)
}

/// What a created CR starts with: create/preparing and what a later restart needs to know.
pub fn create_preparing(now_ms: i64, generation: &str, main_process: &str, log_level: &str) -> Annotations {
    mark("create", "preparing", now_ms)
        .and(names::GENERATION, generation)
        .and(names::MAIN_PROCESS_SPEC, main_process)
        .and(names::LOG_LEVEL, log_level)
}

/// A suspended CR is started: restart/preparing, for this start session, in a fresh generation with this supervisor.
pub fn restart_preparing(now_ms: i64, session: &str, generation: &str, supervisor_uid: &str) -> Annotations {
    mark("restart", "preparing", now_ms)
        .and(names::BOOTSTRAP_SESSION, session)
        .and(names::GENERATION, generation)
        .and(names::SUPERVISOR_UID, supervisor_uid)
        .and_not(&[names::SUSPENDED_BECAUSE])
}

/// The generation's identities, once all its parts exist.
pub fn installed(workload_uid: &str, supervisor_uid: &str, policy_uid: &str, policy_generation: &str) -> Annotations {
    Annotations(Vec::new())
        .and(names::WORKLOAD_UID, workload_uid)
        .and(names::SUPERVISOR_UID, supervisor_uid)
        .and(names::NETWORK_POLICY_UID, policy_uid)
        .and(names::NETWORK_POLICY_GENERATION, policy_generation)
}

/// The scheduling gates are gone: create/released or restart/released.
pub fn released() -> Annotations {
    Annotations(Vec::new()).and(names::BOOTSTRAP_PHASE, "released")
}

/// The bootstrap is over: the sandbox runs.
pub fn bootstrap_completed() -> Annotations {
    Annotations(Vec::new())
        .and_not(&[
            names::BOOTSTRAPPING,
            names::BOOTSTRAP_STARTED_AT_MS,
            names::BOOTSTRAP_OPERATION,
            names::BOOTSTRAP_PHASE,
            names::BOOTSTRAP_SESSION,
        ])
        .and(names::READINESS, "ready")
}

/// A stop begins: stop/releasing. The spec stays, so `metadata.generation` does not move.
pub fn stop_begun(now_ms: i64) -> Annotations {
    mark("stop", "releasing", now_ms).and(names::READINESS, "unavailable").and_not(&[names::SUSPENDED_BECAUSE])
}

/// The run switch goes off: stop/suspending.
pub fn suspending(now_ms: i64) -> Annotations {
    mark("stop", "suspending", now_ms).and(names::READINESS, "unavailable")
}

/// The same after a lost dependency; `why` stays on the resource until its next start or stop.
pub fn suspending_because(now_ms: i64, why: Option<&str>) -> Annotations {
    let marks = suspending(now_ms);
    match why {
        Some(why) => marks.and(names::SUSPENDED_BECAUSE, why),
        None => marks,
    }
}

/// The stop is over: all traces of the generation go.
pub fn stop_completed() -> Annotations {
    Annotations(Vec::new())
        .and_not(&[
            names::BOOTSTRAPPING,
            names::BOOTSTRAP_STARTED_AT_MS,
            names::BOOTSTRAP_OPERATION,
            names::BOOTSTRAP_PHASE,
            names::BOOTSTRAP_SESSION,
            names::GENERATION,
            names::WORKLOAD_UID,
            names::SUPERVISOR_UID,
            names::NETWORK_POLICY_UID,
            names::NETWORK_POLICY_GENERATION,
        ])
        .and(names::READINESS, "unavailable")
}

/// The readiness of a running sandbox, if it differs from what is published.
pub fn readiness_changed(sandbox: &Sandbox, available: bool) -> Option<Annotations> {
    let value = if available { "ready" } else { "unavailable" };
    (sandbox.annotation(names::READINESS) != Some(value)).then(|| Annotations(Vec::new()).and(names::READINESS, value))
}

/// May the bootstrap be completed, as far as the CR tells? Only a released create or restart whose CR is Ready, and not
/// Suspended, at its present generation: so a late completion never erases a stop. Without the remedy
/// `completion-spares-a-stop` any marker will do.
pub fn ready_to_complete(sandbox: &Sandbox, remedies: Remedies) -> bool {
    let any = !remedies.has(Remedy::CompletionSparesAStop);
    Marker::of(sandbox).is_some_and(|m| any || m.operation.is_start() && m.phase == Phase::Released)
        && sandbox.has_current("Ready", "True")
        && !sandbox.has_current("Suspended", "True")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::resource::SandboxStatus;
    use serde_json::json;

    const NOW: i64 = 1_790_000_000_123;

    /// The CR after a merge patch of its annotations, as an API server would store it.
    fn apply(sandbox: &mut Sandbox, patch: Annotations) {
        let annotations = sandbox.metadata.annotations.get_or_insert_default();
        for (key, value) in patch.0 {
            match value {
                Some(v) => annotations.insert(key.into(), v),
                None => annotations.remove(key),
            };
        }
    }
    fn after(patches: impl IntoIterator<Item = Annotations>) -> Sandbox {
        let mut sandbox = Sandbox::default();
        patches.into_iter().for_each(|p| apply(&mut sandbox, p));
        sandbox
    }
    fn marker(operation: Operation, phase: Phase) -> Option<Marker> {
        Some(Marker { operation, phase, started_at_ms: Some(NOW) })
    }
    fn create() -> Annotations {
        create_preparing(NOW, "gen1", r#"{"command":["sleep"]}"#, "info")
    }
    fn restart() -> Annotations {
        restart_preparing(NOW, "session", "gen2", "sup2")
    }
    fn install() -> Annotations {
        installed("work1", "sup1", "policy", "1")
    }

    #[test]
    fn every_transition_leads_where_the_state_machine_says() {
        use Operation::*;
        use Phase::*;
        // (states before, transition, marker after)
        let starts: [(&str, Vec<Annotations>); 8] = [
            ("no marker", vec![]),
            ("create/preparing", vec![create()]),
            ("create/released", vec![create(), install(), released()]),
            ("running", vec![create(), install(), released(), bootstrap_completed()]),
            ("restart/preparing", vec![create(), stop_completed(), restart()]),
            ("restart/released", vec![create(), stop_completed(), restart(), install(), released()]),
            ("stop/releasing", vec![create(), stop_begun(NOW)]),
            ("stop/suspending", vec![create(), stop_begun(NOW), suspending(NOW)]),
        ];
        for (name, before) in &starts {
            let then = |patch: Annotations| Marker::of(&after(before.iter().cloned().chain([patch])));
            assert_eq!(then(stop_begun(NOW)), marker(Stop, Releasing), "stop from {name}");
            assert_eq!(then(suspending(NOW)), marker(Stop, Suspending), "lost dependency from {name}");
            assert_eq!(then(stop_completed()), None, "stop completed from {name}");
            assert_eq!(then(restart()), marker(Restart, Preparing), "restart from {name}");
        }
        assert_eq!(Marker::of(&after([create()])), marker(Create, Preparing));
        assert_eq!(Marker::of(&after([create(), install(), released()])), marker(Create, Released));
        assert_eq!(Marker::of(&after([restart(), install(), released()])), marker(Restart, Released));
        assert_eq!(Marker::of(&after([create(), released(), bootstrap_completed()])), None);
    }

    #[test]
    fn a_completed_stop_leaves_nothing_of_the_generation_but_what_a_restart_needs() {
        let stopped = after([create(), install(), released(), stop_begun(NOW), suspending(NOW), stop_completed()]);
        let left: Vec<_> = stopped.metadata.annotations.as_ref().expect("some are left").iter().collect();
        let expected = [
            (names::LOG_LEVEL, "info"),
            (names::MAIN_PROCESS_SPEC, r#"{"command":["sleep"]}"#),
            (names::READINESS, "unavailable"),
        ];
        assert_eq!(
            left,
            expected.map(|(k, v)| (k.to_owned(), v.to_owned())).iter().map(|(k, v)| (k, v)).collect::<Vec<_>>()
        );
    }

    #[test]
    fn a_completed_bootstrap_keeps_its_identities_and_publishes_ready() {
        let running = after([create(), install(), released(), bootstrap_completed()]);
        for (key, value) in [
            (names::GENERATION, Some("gen1")),
            (names::WORKLOAD_UID, Some("work1")),
            (names::SUPERVISOR_UID, Some("sup1")),
            (names::NETWORK_POLICY_UID, Some("policy")),
            (names::NETWORK_POLICY_GENERATION, Some("1")),
            (names::READINESS, Some("ready")),
            (names::BOOTSTRAP_OPERATION, None),
            (names::BOOTSTRAP_SESSION, None),
        ] {
            assert_eq!(running.annotation(key), value, "{key}");
        }
    }

    #[test]
    fn a_restart_replaces_the_generation_and_the_supervisor_in_one_patch() {
        let cr = after([create(), install(), restart()]);
        assert_eq!(cr.annotation(names::GENERATION), Some("gen2"));
        assert_eq!(cr.annotation(names::SUPERVISOR_UID), Some("sup2"));
        assert_eq!(cr.annotation(names::BOOTSTRAP_SESSION), Some("session"));
    }

    #[test]
    fn removed_keys_are_nulls_in_the_merge_patch() {
        assert_eq!(
            bootstrap_completed().into_json(),
            json!({
                names::BOOTSTRAPPING: null,
                names::BOOTSTRAP_STARTED_AT_MS: null,
                names::BOOTSTRAP_OPERATION: null,
                names::BOOTSTRAP_PHASE: null,
                names::BOOTSTRAP_SESSION: null,
                names::READINESS: "ready",
            })
        );
    }

    #[test]
    fn only_a_bootstrapping_annotation_of_true_is_a_marker() {
        for (value, is) in [(None, false), (Some("false"), false), (Some(""), false), (Some("true"), true)] {
            let mut cr = after([stop_begun(NOW)]);
            let annotations = cr.metadata.annotations.as_mut().expect("some");
            match value {
                Some(v) => annotations.insert(names::BOOTSTRAPPING.into(), v.into()),
                None => annotations.remove(names::BOOTSTRAPPING),
            };
            assert_eq!(Marker::of(&cr).is_some(), is, "{value:?}");
        }
    }

    #[test]
    fn operations_and_phases_that_are_missing_or_unknown_are_read_as_such() {
        let mut cr = after([stop_begun(NOW)]);
        let annotations = cr.metadata.annotations.as_mut().expect("some");
        annotations.insert(names::BOOTSTRAP_OPERATION.into(), "hibernate".into());
        annotations.insert(names::BOOTSTRAP_PHASE.into(), "dreaming".into());
        let marker = Marker::of(&cr).expect("marked");
        assert_eq!((marker.operation, marker.phase), (Operation::Unknown, Phase::Unknown));
        let annotations = cr.metadata.annotations.as_mut().expect("some");
        annotations.remove(names::BOOTSTRAP_OPERATION);
        assert_eq!(Marker::of(&cr).expect("marked").operation, Operation::Missing);
    }

    #[test]
    fn a_bootstrap_is_stale_after_five_minutes_or_without_a_readable_beginning() {
        let at = |started_at_ms| Marker { operation: Operation::Create, phase: Phase::Preparing, started_at_ms };
        for (began, stale) in [
            (Some(NOW), false),
            (Some(NOW - 299_999), false),
            (Some(NOW - 300_000), true),
            (Some(NOW + 1_000_000), false),
            (Some(i64::MIN), true),
            (None, true),
        ] {
            assert_eq!(at(began).is_stale(NOW), stale, "{began:?}");
        }
        let mut cr = after([create()]);
        cr.metadata.annotations.as_mut().expect("some").insert(names::BOOTSTRAP_STARTED_AT_MS.into(), "soon".into());
        assert!(Marker::of(&cr).expect("marked").is_stale(NOW));
    }

    #[test]
    fn readiness_is_published_only_when_it_changes() {
        let mut cr = Sandbox::default();
        for (available, value) in [(true, "ready"), (false, "unavailable"), (true, "ready")] {
            let patch = readiness_changed(&cr, available).expect("a change");
            apply(&mut cr, patch);
            assert_eq!(cr.annotation(names::READINESS), Some(value));
            assert_eq!(readiness_changed(&cr, available), None);
        }
    }

    #[test]
    fn only_a_released_start_of_a_ready_unsuspended_resource_may_complete() {
        let condition = |type_: &str, status: &str, generation| json!({"type": type_, "status": status, "observedGeneration": generation});
        let status = |conditions: &[Value]| -> SandboxStatus {
            serde_json::from_value(json!({ "conditions": conditions })).expect("a status")
        };
        let ready = status(&[condition("Ready", "True", 2), condition("Suspended", "True", 1)]);
        let cr = |patches: Vec<Annotations>, status| {
            let mut cr = after(patches);
            cr.metadata.generation = Some(2);
            cr.status = Some(status);
            cr
        };
        let merged = Remedies::as_reported();
        let may = |cr: &Sandbox| ready_to_complete(cr, merged);
        assert!(may(&cr(vec![create(), released()], ready.clone())));
        assert!(may(&cr(vec![restart(), released()], ready.clone())));
        for (why, patches) in [
            ("no marker", vec![]),
            ("still preparing", vec![create()]),
            ("a stop began", vec![create(), released(), stop_begun(NOW)]),
            ("a stop suspends", vec![create(), released(), suspending(NOW)]),
            ("a stop that claims to be released", vec![stop_begun(NOW), released()]),
        ] {
            assert!(!may(&cr(patches, ready.clone())), "{why}");
        }
        for (why, conditions) in [
            ("no condition", vec![]),
            ("not ready", vec![condition("Ready", "False", 2)]),
            ("ready at an older generation", vec![condition("Ready", "True", 1)]),
            ("suspended at this generation", vec![condition("Ready", "True", 2), condition("Suspended", "True", 2)]),
        ] {
            assert!(!may(&cr(vec![create(), released()], status(&conditions))), "{why}");
        }
        let begun = cr(vec![create(), released(), stop_begun(NOW)], ready.clone());
        let before = merged.without(Remedy::CompletionSparesAStop);
        assert!(ready_to_complete(&begun, before), "as it was before the fix: the stop is erased");
        assert!(!ready_to_complete(&cr(vec![], ready), before), "nothing to complete without a marker");
    }
}
