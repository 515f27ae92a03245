//! The converter: what the gateway is told about a Sandbox resource.
//!
//! A snapshot is a hybrid. Its conditions are as old as the resource that was handed in; its dependencies are as of when
//! they were read. [`convert`] is pure: whoever calls it has read the dependencies before.
//!
//! Remedies that act here: `stop-marker-is-not-start` and `suspended-survives-stop-marker` in [`reading`],
//! `off-and-empty-is-suspended` and `suspension-says-why` in [`convert`].
use super::markers::{Marker, Operation};
use super::names::{self, RuntimeIdentity};
use super::resource::{Condition, Sandbox};
use crate::pb::compute::snapshot_origin::{Desired, Workload};
use crate::pb::compute::{DriverCondition, DriverSandbox, DriverSandboxStatus, SnapshotOrigin};
use crate::remedy::{Remedies, Remedy};

/// How a dependency does. Ordered: the greatest of several decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Availability {
    /// There and ready.
    Available,
    /// It could not be read.
    Unknown,
    /// Running, but not ready.
    Degraded,
    /// Absent, ending, or not running.
    Unavailable,
}

/// What a read said of an object. What could not be read is not absent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// It was read.
    Present,
    /// The API server said that it does not exist.
    Absent,
    /// It could not be read.
    Unread,
}

/// What a sandbox depends on, as of now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dependencies {
    /// Supervisor Pod, boundary Service and the two fences together.
    pub availability: Availability,
    /// Are the two Pods those of the present generation? Available, Unknown or Unavailable.
    pub identity: Availability,
    /// Is there a workload Pod?
    pub workload: Presence,
}

impl Dependencies {
    /// Do they keep the sandbox from being ready? What could not be read changes nothing.
    fn lost(self) -> bool {
        self.availability.max(self.identity) > Availability::Unknown
    }
}

/// What a marker is taken to mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reading {
    /// No marker: conditions stand as they are.
    Quiet,
    /// A new generation is starting: Bootstrapping=True, and what the resource says of Suspended is old.
    Starting,
    /// Published as starting, but Suspended stays.
    StartingKeepsSuspended,
    /// Not a start: Suspended stays, no Bootstrapping; only Ready is withdrawn.
    NotAStart,
}

/// What this marker means, with and without the remedies.
///
/// As reported every marker is a start, whatever its operation. Ready is withdrawn for all of them, since a resource
/// that suspends while its supervisor still runs would else publish Ready=False/SandboxSuspended, which is terminal.
pub fn reading(marker: Option<Marker>, remedies: Remedies) -> Reading {
    let Some(Marker { operation, .. }) = marker else { return Reading::Quiet };
    if !operation.is_start() && remedies.has(Remedy::StopMarkerIsNotStart) {
        Reading::NotAStart
    } else if operation == Operation::Stop && remedies.has(Remedy::SuspendedSurvivesStopMarker) {
        Reading::StartingKeepsSuspended
    } else {
        Reading::Starting
    }
}

/// The snapshot of this resource; `None` if it is not one of this driver's sandboxes.
///
/// `status` is absent while the resource has none: neither a marker nor a lost dependency can be expressed then.
pub fn convert(sandbox: &Sandbox, dependencies: Dependencies, remedies: Remedies) -> Option<DriverSandbox> {
    let label = |key| Some(sandbox.label(key)).filter(|v| !v.is_empty());
    label(names::MANAGED_BY).filter(|m| *m == names::MANAGED_BY_OPENSHELL)?;
    let (id, name) = (label(names::SANDBOX_ID)?, label(names::SANDBOX_NAME)?);
    let workspace = label(names::SANDBOX_WORKSPACE)?;
    let status = sandbox.status.as_ref().map(|status| {
        let reading = reading(Marker::of(sandbox), remedies);
        // Before the fix every condition counted, of whatever generation.
        let generation = sandbox.metadata.generation.filter(|_| remedies.has(Remedy::OldConditionsAreDropped));
        let mut conditions = current(&status.conditions, generation, reading);
        if reading != Reading::Quiet || dependencies.lost() {
            withdraw_ready(&mut conditions);
        }
        if is_off_and_empty(sandbox, reading, dependencies) && remedies.has(Remedy::OffAndEmptyIsSuspended) {
            set(&mut conditions, "Suspended", "True", "PodTerminated", "sandbox is off and has no workload Pod");
        }
        if let Some(why) = suspended_because(sandbox, remedies) {
            set(&mut conditions, "DependencyFailure", "True", "SuspendedAfterDependencyFailure", why);
        }
        DriverSandboxStatus {
            sandbox_name: sandbox.name().to_owned(),
            instance_id: status.agent_pod.clone(),
            conditions,
            deleting: sandbox.metadata.deletion_timestamp.is_some(),
            ..Default::default()
        }
    });
    Some(DriverSandbox {
        id: id.to_owned(),
        name: name.to_owned(),
        namespace: sandbox.namespace().to_owned(),
        workspace: workspace.to_owned(),
        spec: None,
        status,
        origin: Some(origin(sandbox, dependencies.workload)),
    })
}

/// What the snapshot is made from. As reported nobody reads it; it is what several remedies judge by.
fn origin(sandbox: &Sandbox, workload: Presence) -> SnapshotOrigin {
    let annotation = |key| sandbox.annotation(key).unwrap_or_default();
    let marked = Marker::of(sandbox).is_some();
    let of_marker = |key| if marked { annotation(key).to_owned() } else { String::new() };
    let identity = RuntimeIdentity {
        namespace: sandbox.namespace().to_owned(),
        sandbox_uid: sandbox.uid().to_owned(),
        supervisor_uid: sandbox.annotation(names::SUPERVISOR_UID).unwrap_or(names::NO_SUPERVISOR).to_owned(),
    };
    SnapshotOrigin {
        uid: sandbox.uid().to_owned(),
        resource_version: sandbox.resource_version().to_owned(),
        generation: sandbox.metadata.generation.unwrap_or_default(),
        operation: of_marker(names::BOOTSTRAP_OPERATION),
        bootstrap_phase: of_marker(names::BOOTSTRAP_PHASE),
        epoch: annotation(names::LIFECYCLE_EPOCH).parse().unwrap_or_default(),
        desired: if sandbox.should_run() { Desired::Running } else { Desired::Off }.into(),
        workload: match workload {
            Presence::Present => Workload::Present,
            Presence::Absent => Workload::Absent,
            Presence::Unread => Workload::Unknown,
        }
        .into(),
        runtime_identity: identity.to_string(),
    }
}

/// Conditions that are not of an older generation, with what the marker does to Suspended and Bootstrapping.
fn current(conditions: &[Condition], generation: Option<i64>, reading: Reading) -> Vec<DriverCondition> {
    let drops_suspended = reading == Reading::Starting;
    let bootstraps = matches!(reading, Reading::Starting | Reading::StartingKeepsSuspended);
    let mut kept: Vec<_> = conditions
        .iter()
        .filter(|c| c.observed_generation.is_none() || generation.is_none() || c.observed_generation == generation)
        .filter(|c| !(c.type_ == "Suspended" && drops_suspended || c.type_ == "Bootstrapping" && bootstraps))
        .map(|c| DriverCondition {
            r#type: c.type_.clone(),
            status: c.status.clone(),
            reason: c.reason.clone(),
            message: c.message.clone(),
            last_transition_time: c.last_transition_time.clone(),
        })
        .collect();
    if bootstraps {
        let message = "replacement sandbox-runtime generation is starting";
        set(&mut kept, "Bootstrapping", "True", "SandboxRuntimeGenerationStarting", message);
    }
    kept
}

/// Is it switched off, with nothing under way and nothing running? Then it is suspended, whether or not its controller
/// has a way to say so. A create and a restart are marked before they switch it on.
fn is_off_and_empty(sandbox: &Sandbox, reading: Reading, dependencies: Dependencies) -> bool {
    reading == Reading::Quiet && !sandbox.should_run() && dependencies.workload == Presence::Absent
}

/// Why a lost dependency suspended it, if that is noted and to be told.
fn suspended_because(sandbox: &Sandbox, remedies: Remedies) -> Option<&str> {
    sandbox.annotation(names::SUSPENDED_BECAUSE).filter(|_| remedies.has(Remedy::SuspensionSaysWhy))
}

/// Ready := False/DependenciesNotReady, whatever it was.
fn withdraw_ready(conditions: &mut Vec<DriverCondition>) {
    set(conditions, "Ready", "False", "DependenciesNotReady", "sandbox runtime dependencies are not ready");
}

fn set(conditions: &mut Vec<DriverCondition>, type_: &str, status: &str, reason: &str, message: &str) {
    let condition = DriverCondition {
        r#type: type_.into(),
        status: status.into(),
        reason: reason.into(),
        message: message.into(),
        last_transition_time: String::new(),
    };
    match conditions.iter_mut().find(|c| c.r#type == type_) {
        Some(present) => *present = condition,
        None => conditions.push(condition),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::markers;
    use serde_json::{Value, json};

    const NOW: i64 = 1_790_000_000_000;
    const FINE: Dependencies = Dependencies {
        availability: Availability::Available,
        identity: Availability::Available,
        workload: Presence::Present,
    };
    const LOST: Dependencies = Dependencies {
        availability: Availability::Unavailable,
        identity: Availability::Unavailable,
        workload: Presence::Absent,
    };

    /// The code as reported.
    fn merged() -> Remedies {
        Remedies::as_reported()
    }
    fn f1() -> Remedies {
        merged().with(Remedy::StopMarkerIsNotStart)
    }
    fn survives() -> Remedies {
        merged().with(Remedy::SuspendedSurvivesStopMarker)
    }

    /// A resource with these annotations; what a merge patch takes away is not there.
    fn cr(generation: i64, mut annotations: Value, conditions: Value) -> Sandbox {
        annotations.as_object_mut().expect("a map").retain(|_, value| !value.is_null());
        serde_json::from_value(json!({
            "metadata": {
                "name": "demo", "namespace": "team", "uid": "u", "generation": generation,
                "labels": {
                    names::MANAGED_BY: "openshell", names::SANDBOX_ID: "id", names::SANDBOX_NAME: "demo",
                    names::SANDBOX_WORKSPACE: "default",
                },
                "annotations": annotations,
            },
            "status": {"conditions": conditions},
        }))
        .expect("a Sandbox")
    }
    fn condition(type_: &str, status: &str, reason: &str, observed: i64) -> Value {
        json!({"type": type_, "status": status, "reason": reason, "observedGeneration": observed})
    }
    /// Conditions as `Type=Status/Reason`, sorted: their order is not part of the contract.
    fn told(sandbox: &Sandbox, dependencies: Dependencies, remedies: Remedies) -> Vec<String> {
        let snapshot = convert(sandbox, dependencies, remedies).expect("one of ours");
        let status = snapshot.status.expect("has a status");
        let mut told: Vec<_> =
            status.conditions.iter().map(|c| format!("{}={}/{}", c.r#type, c.status, c.reason)).collect();
        told.sort();
        told
    }

    const BOOTSTRAPPING: &str = "Bootstrapping=True/SandboxRuntimeGenerationStarting";
    const NOT_READY: &str = "Ready=False/DependenciesNotReady";

    #[test]
    fn every_combination_of_marker_conditions_dependencies_and_remedies_follows_the_rules() {
        let operations = [Some("create"), Some("restart"), Some("stop"), Some("hibernate"), None];
        let phases = [Some("preparing"), Some("released"), Some("releasing"), Some("suspending"), None];
        let suspended =
            [None, Some(("True", "PodTerminated")), Some(("False", "PodTerminating")), Some(("False", "NotSuspended"))];
        let ready = [None, Some(("True", "DependenciesReady")), Some(("False", "SandboxSuspended"))];
        let levels =
            [Availability::Available, Availability::Unknown, Availability::Degraded, Availability::Unavailable];
        let both = f1().with(Remedy::SuspendedSurvivesStopMarker);
        let remedies = [merged(), f1(), survives(), both];
        let total = 2 * 5 * 5 * 4 * 3 * 4 * 4 * 4;
        for n in 0..total {
            let mut left = n;
            let mut digit = |base: usize| {
                let digit = left % base;
                left /= base;
                digit
            };
            let marked = digit(2) == 1;
            let (operation, phase) = (operations[digit(5)], phases[digit(5)]);
            let (suspended, ready) = (suspended[digit(4)], ready[digit(3)]);
            let (availability, identity) = (levels[digit(4)], levels[digit(4)]);
            let dependencies = Dependencies { availability, identity, workload: Presence::Present };
            let remedies = remedies[digit(4)];
            assert_eq!(left, 0, "every combination has its number");

            let mut annotations = serde_json::Map::new();
            annotations.extend(marked.then(|| (names::BOOTSTRAPPING.to_owned(), "true".into())));
            annotations.extend(operation.map(|o| (names::BOOTSTRAP_OPERATION.to_owned(), o.into())));
            annotations.extend(phase.map(|p| (names::BOOTSTRAP_PHASE.to_owned(), p.into())));
            let conditions: Vec<_> = [suspended.map(|s| ("Suspended", s)), ready.map(|r| ("Ready", r))]
                .into_iter()
                .flatten()
                .map(|(type_, (status, reason))| condition(type_, status, reason, 2))
                .collect();
            let cr = cr(2, annotations.into(), conditions.into());

            // The rules once more, said as facts about the outcome.
            let is_start = matches!(operation, Some("create" | "restart"));
            let publishes_start = marked && (is_start || !remedies.has(Remedy::StopMarkerIsNotStart));
            let keeps_suspended =
                !publishes_start || operation == Some("stop") && remedies.has(Remedy::SuspendedSurvivesStopMarker);
            let lost = [dependencies.availability, dependencies.identity]
                .iter()
                .any(|a| matches!(a, Availability::Degraded | Availability::Unavailable));
            let mut expected: Vec<String> = Vec::new();
            expected.extend(publishes_start.then(|| BOOTSTRAPPING.into()));
            match ready {
                _ if marked || lost => expected.push(NOT_READY.into()),
                ready => expected.extend(ready.map(|(s, r)| format!("Ready={s}/{r}"))),
            }
            expected.extend(suspended.filter(|_| keeps_suspended).map(|(s, r)| format!("Suspended={s}/{r}")));
            let case = format!("{n}: marked={marked} {operation:?}/{phase:?} {suspended:?} {ready:?} {dependencies:?}");
            assert_eq!(told(&cr, dependencies, remedies), expected, "{case} {remedies:?}");
        }
    }

    /// The states of a CR while it is stopped, as a watch of `v1beta1` sees them (controller v0.5.4 and later).
    fn stop_events() -> [(&'static str, Sandbox); 6] {
        let running = |generation| {
            json!([
                condition("Ready", "True", "DependenciesReady", generation),
                condition("Suspended", "False", "NotSuspended", generation)
            ])
        };
        let ending = json!([
            condition("Ready", "False", "SandboxSuspended", 3),
            condition("Suspended", "False", "PodTerminating", 3)
        ]);
        let off = json!([
            condition("Ready", "False", "SandboxSuspended", 3),
            condition("Suspended", "True", "PodTerminated", 3)
        ]);
        let suspending = || markers::suspending(NOW).into_json();
        [
            ("E1 stop begun", cr(2, markers::stop_begun(NOW).into_json(), running(2))),
            ("E2 run switch off", cr(3, suspending(), running(2))),
            ("E3 controller: ending", cr(3, suspending(), ending.clone())),
            ("E4 controller: pod name cleared", cr(3, suspending(), ending)),
            ("E5 controller: suspended", cr(3, suspending(), off.clone())),
            ("E6 stop completed", cr(3, json!({names::READINESS: "unavailable"}), off)),
        ]
    }

    #[test]
    fn as_reported_all_of_a_stop_but_its_last_event_looks_like_a_start() {
        let events = stop_events();
        for (name, cr) in &events[..5] {
            assert_eq!(told(cr, LOST, merged()), [BOOTSTRAPPING, NOT_READY], "{name}");
            assert_eq!(told(cr, FINE, merged()), [BOOTSTRAPPING, NOT_READY], "{name}, however its dependencies do");
        }
        assert_eq!(told(&events[5].1, LOST, merged()), [NOT_READY, "Suspended=True/PodTerminated"]);
    }

    #[test]
    fn stop_marker_is_not_start_shows_a_stop_as_what_it_is() {
        let expected: [&[&str]; 6] = [
            &[NOT_READY, "Suspended=False/NotSuspended"],
            &[NOT_READY], // the conditions are of the generation before
            &[NOT_READY, "Suspended=False/PodTerminating"],
            &[NOT_READY, "Suspended=False/PodTerminating"],
            &[NOT_READY, "Suspended=True/PodTerminated"],
            &[NOT_READY, "Suspended=True/PodTerminated"],
        ];
        for ((name, cr), expected) in stop_events().iter().zip(expected) {
            assert_eq!(told(cr, LOST, f1()), expected, "{name}");
        }
    }

    #[test]
    fn suspended_survives_stop_marker_still_marks_a_stop_as_a_start() {
        let expected: [&[&str]; 6] = [
            &[BOOTSTRAPPING, NOT_READY, "Suspended=False/NotSuspended"],
            &[BOOTSTRAPPING, NOT_READY],
            &[BOOTSTRAPPING, NOT_READY, "Suspended=False/PodTerminating"],
            &[BOOTSTRAPPING, NOT_READY, "Suspended=False/PodTerminating"],
            &[BOOTSTRAPPING, NOT_READY, "Suspended=True/PodTerminated"],
            &[NOT_READY, "Suspended=True/PodTerminated"],
        ];
        for ((name, cr), expected) in stop_events().iter().zip(expected) {
            assert_eq!(told(cr, LOST, survives()), expected, "{name}");
        }
    }

    #[test]
    fn with_a_controller_that_never_says_suspended_a_completed_stop_has_no_trace_of_one() {
        // v1alpha1 and controller v0.4.x: Ready=True as soon as replicas is 0, and no Suspended at all.
        let ready = |generation| json!([condition("Ready", "True", "DependenciesReady", generation)]);
        let last = cr(3, json!({names::READINESS: "unavailable"}), ready(3));
        let marked = cr(3, markers::suspending(NOW).into_json(), ready(3));
        for remedies in [merged(), f1(), survives()] {
            assert_eq!(told(&last, LOST, remedies), [NOT_READY], "{remedies:?}");
        }
        assert_eq!(told(&marked, LOST, merged()), [BOOTSTRAPPING, NOT_READY]);
        assert_eq!(told(&marked, LOST, f1()), [NOT_READY]);
        assert_eq!(told(&marked, LOST, survives()), [BOOTSTRAPPING, NOT_READY]);
    }

    #[test]
    fn a_restart_never_publishes_the_suspension_before_it() {
        let old = json!([
            condition("Suspended", "True", "PodTerminated", 4),
            condition("Ready", "False", "SandboxSuspended", 4)
        ]);
        let cr = cr(4, markers::restart_preparing(NOW, "s", "g", "u").into_json(), old);
        for remedies in [merged(), f1(), survives()] {
            assert_eq!(told(&cr, LOST, remedies), [BOOTSTRAPPING, NOT_READY], "{remedies:?}");
        }
    }

    #[test]
    fn conditions_of_an_older_generation_are_dropped_and_those_without_one_kept() {
        let conditions = json!([
            condition("Ready", "True", "DependenciesReady", 1),
            {"type": "Finished", "status": "False", "reason": "Running"},
        ]);
        assert_eq!(told(&cr(2, json!({}), conditions.clone()), FINE, merged()), ["Finished=False/Running"]);
        let before = merged().without(Remedy::OldConditionsAreDropped);
        let all = ["Finished=False/Running", "Ready=True/DependenciesReady"];
        assert_eq!(told(&cr(2, json!({}), conditions.clone()), FINE, before), all, "before the fix");
        let mut unversioned = cr(2, json!({}), conditions);
        unversioned.metadata.generation = None;
        assert_eq!(told(&unversioned, FINE, merged()), ["Finished=False/Running", "Ready=True/DependenciesReady"]);
    }

    #[test]
    fn without_a_status_nothing_can_be_said() {
        let mut cr = cr(1, markers::create_preparing(NOW, "g", "{}", "info").into_json(), json!([]));
        cr.status = None;
        let snapshot = convert(&cr, LOST, f1()).expect("one of ours");
        assert_eq!(snapshot.status, None);
        assert_eq!((snapshot.id.as_str(), snapshot.name.as_str(), snapshot.namespace.as_str()), ("id", "demo", "team"));
        assert_eq!(snapshot.workspace, "default");
    }

    #[test]
    fn a_status_names_the_resource_and_its_pod() {
        let mut cr = cr(1, json!({}), json!([]));
        cr.status.as_mut().expect("a status").agent_pod = "demo-pod".into();
        let status = convert(&cr, FINE, f1()).and_then(|s| s.status).expect("a status");
        assert_eq!((status.sandbox_name.as_str(), status.instance_id.as_str()), ("demo", "demo-pod"));
    }

    #[test]
    fn a_resource_that_is_being_deleted_says_so() {
        let mut cr = cr(1, json!({}), json!([]));
        assert!(!convert(&cr, FINE, f1()).and_then(|s| s.status).expect("a status").deleting);
        cr.metadata.deletion_timestamp = Some(serde_json::from_value(json!("2026-08-21T10:00:00Z")).expect("a time"));
        assert!(convert(&cr, FINE, f1()).and_then(|s| s.status).expect("a status").deleting);
    }

    #[test]
    fn a_resource_without_the_labels_of_a_sandbox_is_skipped() {
        for missing in [names::MANAGED_BY, names::SANDBOX_ID, names::SANDBOX_NAME, names::SANDBOX_WORKSPACE] {
            let mut cr = cr(1, json!({}), json!([]));
            cr.metadata.labels.as_mut().expect("labels").remove(missing);
            assert_eq!(convert(&cr, FINE, f1()), None, "{missing}");
        }
        let mut foreign = cr(1, json!({}), json!([]));
        foreign.metadata.labels.as_mut().expect("labels").insert(names::MANAGED_BY.into(), "helm".into());
        assert_eq!(convert(&foreign, FINE, f1()), None);
    }

    #[test]
    fn the_worst_of_availability_and_identity_decides_and_the_unread_does_not() {
        let running = cr(1, json!({}), json!([condition("Ready", "True", "DependenciesReady", 1)]));
        let stays = ["Ready=True/DependenciesReady"];
        let so = |availability, identity| Dependencies { availability, identity, workload: Presence::Present };
        assert_eq!(told(&running, so(Availability::Unknown, Availability::Unknown), f1()), stays);
        assert_eq!(told(&running, so(Availability::Degraded, Availability::Unknown), f1()), [NOT_READY]);
        assert_eq!(told(&running, so(Availability::Available, Availability::Unavailable), f1()), [NOT_READY]);
    }

    #[test]
    fn off_and_empty_is_suspended_says_so_only_of_an_unmarked_resource_without_a_pod() {
        let f5 = merged().with(Remedy::OffAndEmptyIsSuspended);
        let off = |annotations: Value| {
            // What a v0.4.x controller says of it.
            let mut cr = cr(3, annotations, json!([condition("Ready", "True", "DependenciesReady", 3)]));
            cr.spec.replicas = Some(0);
            cr
        };
        let suspended = "Suspended=True/PodTerminated";
        let unread = Dependencies { workload: Presence::Unread, ..LOST };
        assert_eq!(told(&off(json!({})), LOST, f5), [NOT_READY, suspended]);
        assert_eq!(told(&off(json!({})), LOST, merged()), [NOT_READY], "as reported nothing tells");
        assert_eq!(told(&off(json!({})), unread, f5), [NOT_READY], "a Pod that could not be read may be there");
        assert_eq!(told(&cr(3, json!({}), json!([])), LOST, f5), [NOT_READY], "it should run");
        for marked in [
            markers::create_preparing(NOW, "g", "{}", "info"),
            markers::restart_preparing(NOW, "s", "g", "u"),
            markers::stop_begun(NOW),
            markers::suspending(NOW),
        ] {
            let marked = off(marked.into_json());
            assert!(!told(&marked, LOST, f5).contains(&suspended.to_owned()), "{marked:?}");
        }
    }

    #[test]
    fn a_snapshot_tells_what_it_was_made_from() {
        let marks = markers::restart_preparing(NOW, "s", "g", "su").of_epoch(7).into_json();
        let origin =
            |cr: &Sandbox, dependencies| convert(cr, dependencies, merged()).expect("ours").origin.expect("told");
        let running = origin(&cr(4, marks, json!([])), FINE);
        assert_eq!((running.operation.as_str(), running.bootstrap_phase.as_str()), ("restart", "preparing"));
        assert_eq!((running.epoch, running.generation, running.uid.as_str()), (7, 4, "u"));
        assert_eq!((running.desired(), running.workload()), (Desired::Running, Workload::Present));
        assert_eq!(running.runtime_identity, "kubernetes://team/u/su");
        let mut stopped = cr(4, markers::stop_completed().into_json(), json!([]));
        stopped.spec.replicas = Some(0);
        let stopped = origin(&stopped, LOST);
        assert_eq!((stopped.operation.as_str(), stopped.epoch), ("", 0));
        assert_eq!(stopped.runtime_identity, "kubernetes://team/u/none", "it can be started all the same");
        assert_eq!((stopped.desired(), stopped.workload()), (Desired::Off, Workload::Absent));
        let unread = Dependencies { workload: Presence::Unread, ..LOST };
        assert_eq!(origin(&cr(4, json!({}), json!([])), unread).workload(), Workload::Unknown);
    }

    #[test]
    fn suspension_says_why_only_with_the_remedy() {
        let f10 = merged().with(Remedy::SuspensionSaysWhy);
        let cr = cr(3, markers::suspending_because(NOW, Some("a fence was altered")).into_json(), json!([]));
        let failure = "DependencyFailure=True/SuspendedAfterDependencyFailure";
        assert_eq!(told(&cr, LOST, f10), [BOOTSTRAPPING, failure, NOT_READY]);
        assert_eq!(told(&cr, LOST, merged()), [BOOTSTRAPPING, NOT_READY]);
    }
}
