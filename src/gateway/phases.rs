//! Phases as pure rules: their names, what a driver's status means, and how a supervisor session changes the picture.

use crate::pb::compute::{DriverCondition, DriverSandbox, DriverSandboxStatus, snapshot_origin};
use crate::pb::openshell::SandboxPhase;
use crate::remedy::{Remedies, Remedy};

/// The name of a phase as refusals and the log spell it.
pub fn phase_name(phase: SandboxPhase) -> &'static str {
    match phase {
        SandboxPhase::Unspecified => "Unspecified",
        SandboxPhase::Provisioning => "Provisioning",
        SandboxPhase::Ready => "Ready",
        SandboxPhase::Error => "Error",
        SandboxPhase::Deleting => "Deleting",
        SandboxPhase::Unknown => "Unknown",
        SandboxPhase::Stopping => "Stopping",
        SandboxPhase::Stopped => "Stopped",
        SandboxPhase::Starting => "Starting",
        SandboxPhase::Completed => "Completed",
    }
}

/// Reasons of `Ready=False` that time may heal. Every other reason is terminal, the empty one too.
const TRANSIENT_REASONS: [&str; 8] = [
    "ReconcilerError",
    "DependenciesNotReady",
    "SupervisorNotConnected",
    "Starting",
    "ContainerStarting",
    "ContainerCreated",
    "HealthCheckStarting",
    "InspectFailed",
];

/// Can a sandbox that is not ready for this reason still become ready by itself? Letter case does not matter.
pub fn is_transient(reason: &str) -> bool {
    TRANSIENT_REASONS.iter().any(|known| known.eq_ignore_ascii_case(reason))
}

fn has(status: &DriverSandboxStatus, kind: &str, value: &str) -> bool {
    status.conditions.iter().any(|c| c.r#type == kind && c.status == value)
}

fn any_false(status: &DriverSandboxStatus, reasons: &[&str]) -> bool {
    status.conditions.iter().any(|c| c.status == "False" && reasons.contains(&c.reason.as_str()))
}

/// What a driver's status says about the compute alone. `None` is a sandbox without a status.
///
/// `Ready=True` beats a `Suspended=True` that a resume has left behind (remedy `ready-beats-suspended`).
pub fn derive_phase(status: Option<&DriverSandboxStatus>, remedies: Remedies) -> SandboxPhase {
    let Some(status) = status else { return SandboxPhase::Unknown };
    if status.deleting {
        return SandboxPhase::Deleting;
    }
    let running = remedies.has(Remedy::ReadyBeatsSuspended) && has(status, "Ready", "True");
    if !running && has(status, "Suspended", "True") {
        return SandboxPhase::Stopped;
    }
    match status.conditions.iter().find(|c| c.r#type == "Ready") {
        Some(DriverCondition { status, .. }) if status == "True" => SandboxPhase::Ready,
        Some(DriverCondition { status, reason, .. }) if status == "False" && !is_transient(reason) => {
            SandboxPhase::Error
        }
        _ => SandboxPhase::Provisioning,
    }
}

/// The phase of compute and supervisor session together: usable means that a session is there, unless the driver
/// vouches for the readiness of the runtime itself. A session heals neither an error nor a stop.
pub fn compose(derived: SandboxPhase, session_connected: bool, driver_reports_readiness: bool) -> SandboxPhase {
    match derived {
        SandboxPhase::Ready if driver_reports_readiness || session_connected => SandboxPhase::Ready,
        SandboxPhase::Provisioning | SandboxPhase::Unknown if session_connected => SandboxPhase::Ready,
        SandboxPhase::Ready | SandboxPhase::Provisioning | SandboxPhase::Unknown => SandboxPhase::Provisioning,
        other => other,
    }
}

/// The main container has ended or was stopped.
pub fn confirms_stopped(status: &DriverSandboxStatus) -> bool {
    any_false(status, &["ContainerExited", "ContainerStopped"])
}

/// A suspension is on its way: its pod still ends.
pub fn confirms_stopping(status: &DriverSandboxStatus) -> bool {
    let terminating = |c: &DriverCondition| ["PodTerminating", "PodNotTerminated"].contains(&c.reason.as_str());
    status.conditions.iter().any(|c| c.r#type == "Suspended" && c.status == "False" && terminating(c))
}

/// The driver claims that a new generation is being brought up.
pub fn confirms_starting(status: &DriverSandboxStatus) -> bool {
    !status.deleting && has(status, "Bootstrapping", "True") && !has(status, "Suspended", "True")
}

/// The compute is switched off, nothing is under way, and there is no workload: what a lost dependency ends in. Only a
/// driver that tells where its snapshot comes from can show it; what could not be read is no evidence.
pub fn is_off_and_empty(snapshot: &DriverSandbox) -> bool {
    use snapshot_origin::{Desired, Workload};
    let deleting = snapshot.status.as_ref().is_some_and(|s| s.deleting);
    snapshot.origin.as_ref().is_some_and(|o| {
        !deleting && o.desired() == Desired::Off && o.operation.is_empty() && o.workload() == Workload::Absent
    })
}

/// May there be a workload Pod, running or ending? A driver that could not read it does not know. One that tells of no
/// origin is believed.
pub fn may_have_workload(snapshot: &DriverSandbox, remedies: Remedies) -> bool {
    use snapshot_origin::Workload;
    snapshot.origin.as_ref().is_some_and(|o| match o.workload() {
        Workload::Present => true,
        Workload::Unknown => !remedies.has(Remedy::UnreadIsGone),
        Workload::Absent => false,
    })
}

/// The container runtime restarts; what it says about containers meanwhile says nothing about the sandbox.
pub fn reports_runtime_restart(status: &DriverSandboxStatus) -> bool {
    any_false(status, &["ContainerRuntimeRestart"])
}

#[cfg(test)]
mod tests {
    use SandboxPhase::*;

    use crate::pb::compute::SnapshotOrigin;

    use super::*;

    fn merged() -> Remedies {
        Remedies::as_reported()
    }
    /// A status with these conditions, each written `Type=Status/Reason`.
    fn status(conditions: &[&str]) -> DriverSandboxStatus {
        let conditions = conditions
            .iter()
            .map(|text| {
                let (kind, rest) = text.split_once('=').unwrap();
                let (status, reason) = rest.split_once('/').unwrap_or((rest, ""));
                DriverCondition {
                    r#type: kind.into(),
                    status: status.into(),
                    reason: reason.into(),
                    ..Default::default()
                }
            })
            .collect();
        DriverSandboxStatus { conditions, ..Default::default() }
    }

    #[test]
    fn a_status_derives_the_phase_of_its_first_matching_rule() {
        let table: &[(&[&str], SandboxPhase)] = &[
            (&[], Provisioning),
            (&["Suspended=True/PodTerminated"], Stopped),
            (&["Ready=False/SandboxSuspended", "Suspended=True/PodTerminated"], Stopped),
            (&["Ready=True/DependenciesReady", "Suspended=True/PodTerminated"], Ready),
            (&["Ready=True/DependenciesReady"], Ready),
            (&["Ready=True"], Ready),
            (&["Ready=False/DependenciesNotReady"], Provisioning),
            (&["Ready=False/dependenciesnotready"], Provisioning),
            (&["Ready=False/SandboxSuspended"], Error),
            (&["Ready=False/SandboxSuspended", "Suspended=False/PodTerminating"], Error),
            (&["Ready=False/PodFailed"], Error),
            (&["Ready=False/PodSucceeded"], Error),
            (&["Ready=False/MultiplePods"], Error),
            (&["Ready=False/SandboxExpired"], Error),
            (&["Ready=False"], Error),
            (&["Ready=Unknown/PodFailed"], Provisioning),
            (&["ready=True"], Provisioning),
            (&["Bootstrapping=True", "Ready=False/DependenciesNotReady"], Provisioning),
        ];
        for (conditions, expected) in table {
            assert_eq!(derive_phase(Some(&status(conditions)), merged()), *expected, "{conditions:?}");
        }
        assert_eq!(derive_phase(None, merged()), Unknown);
        let deleting = DriverSandboxStatus { deleting: true, ..status(&["Ready=True"]) };
        assert_eq!(derive_phase(Some(&deleting), merged()), Deleting);
        // Before #2933 the order of the two was the other way round.
        let resumed = status(&["Ready=True/DependenciesReady", "Suspended=True/PodTerminated"]);
        assert_eq!(derive_phase(Some(&resumed), merged().without(Remedy::ReadyBeatsSuspended)), Stopped);
    }

    #[test]
    fn every_transient_reason_heals_and_no_other() {
        for reason in TRANSIENT_REASONS {
            let s = status(&[&format!("Ready=False/{reason}")]);
            assert_eq!(derive_phase(Some(&s), merged()), Provisioning, "{reason}");
        }
        for reason in ["", "Unknown", "PodFailed", "SandboxSuspended", "Start"] {
            assert!(!is_transient(reason), "{reason}");
        }
    }

    #[test]
    fn a_session_makes_usable_compute_ready_and_heals_neither_error_nor_stop() {
        for session in [false, true] {
            for reports in [false, true] {
                for settled in [Error, Deleting, Stopped] {
                    assert_eq!(compose(settled, session, reports), settled);
                }
                for (derived, vouched) in [(Ready, reports), (Provisioning, false), (Unknown, false)] {
                    let expected = if session || vouched { Ready } else { Provisioning };
                    assert_eq!(compose(derived, session, reports), expected, "{derived:?} {session} {reports}");
                }
            }
        }
    }

    #[test]
    fn predicates_read_exactly_their_conditions() {
        type Predicate = fn(&DriverSandboxStatus) -> bool;
        let table: &[(Predicate, &[&str], bool)] = &[
            (confirms_stopped, &["Ready=False/ContainerExited"], true),
            (confirms_stopped, &["Other=False/ContainerStopped"], true),
            (confirms_stopped, &["Ready=True/ContainerExited"], false),
            (confirms_stopped, &["Suspended=True/PodTerminated"], false),
            (confirms_stopping, &["Suspended=False/PodTerminating"], true),
            (confirms_stopping, &["Suspended=False/PodNotTerminated"], true),
            (confirms_stopping, &["Suspended=False/PodNotOwned"], false),
            (confirms_stopping, &["Ready=False/PodTerminating"], false),
            (confirms_starting, &["Bootstrapping=True/SandboxRuntimeGenerationStarting"], true),
            (confirms_starting, &["Bootstrapping=True", "Suspended=False/PodTerminating"], true),
            (confirms_starting, &["Bootstrapping=True", "Suspended=True/PodTerminated"], false),
            (confirms_starting, &["Bootstrapping=False"], false),
            (confirms_starting, &[], false),
            (reports_runtime_restart, &["Ready=False/ContainerRuntimeRestart"], true),
            (reports_runtime_restart, &["Ready=True/ContainerRuntimeRestart"], false),
        ];
        for (n, (predicate, conditions, expected)) in table.iter().enumerate() {
            assert_eq!(predicate(&status(conditions)), *expected, "row {n}: {conditions:?}");
        }
        let deleting = DriverSandboxStatus { deleting: true, ..status(&["Bootstrapping=True"]) };
        assert!(!confirms_starting(&deleting));
    }

    #[test]
    fn off_and_empty_needs_all_of_its_evidence() {
        use snapshot_origin::{Desired, Workload};
        let snapshot = |desired: Desired, operation: &str, workload: Workload| {
            let origin = SnapshotOrigin {
                desired: desired.into(),
                operation: operation.into(),
                workload: workload.into(),
                ..Default::default()
            };
            DriverSandbox { origin: Some(origin), ..Default::default() }
        };
        let proof = snapshot(Desired::Off, "", Workload::Absent);
        assert!(is_off_and_empty(&proof));
        let deleting = DriverSandboxStatus { deleting: true, ..Default::default() };
        for (why, other) in [
            ("says nothing of its origin", DriverSandbox::default()),
            ("is to run", snapshot(Desired::Running, "", Workload::Absent)),
            ("does not say what it is to do", snapshot(Desired::Unknown, "", Workload::Absent)),
            ("is being created", snapshot(Desired::Off, "create", Workload::Absent)),
            ("is being stopped", snapshot(Desired::Off, "stop", Workload::Absent)),
            ("its Pod still ends", snapshot(Desired::Off, "", Workload::Present)),
            ("its Pod could not be read", snapshot(Desired::Off, "", Workload::Unknown)),
            ("is being deleted", DriverSandbox { status: Some(deleting), ..proof }),
        ] {
            assert!(!is_off_and_empty(&other), "{why}");
        }
    }

    #[test]
    fn phases_are_named_as_refusals_spell_them() {
        let all = (0..10).map(|n| phase_name(SandboxPhase::try_from(n).unwrap())).collect::<Vec<_>>();
        assert_eq!(
            all,
            [
                "Unspecified",
                "Provisioning",
                "Ready",
                "Error",
                "Deleting",
                "Unknown",
                "Stopping",
                "Stopped",
                "Starting",
                "Completed"
            ]
        );
    }
}
