//! The snapshot table: what a driver's snapshot does to a row, as a pure function of both.
//!
//! A snapshot names no version of the resource that it was taken from. So the table can only ask whether a claim fits
//! the row's phase; [`Verdict`] says what comes of it, [`apply`] writes that into the row.

use crate::pb::compute::{DriverCondition, DriverSandbox, DriverSandboxStatus};
use crate::pb::openshell::{Sandbox, SandboxCondition, SandboxPhase};
use crate::remedy::{Remedies, Remedy};

use super::record::{Row, set_condition};
use super::{configuration, deadline, phases};

/// What the table needs to know besides row and snapshot.
#[derive(Clone, Copy, Debug, Default)]
pub struct Context {
    /// A supervisor session of the sandbox is known, here or on a replica with a fresh owner row.
    pub session_connected: bool,
    /// The driver vouches for the readiness of the runtime itself, so that no session is needed.
    pub driver_reports_readiness: bool,
    /// The remedies that are on.
    pub remedies: Remedies,
    /// Wall time, milliseconds.
    pub now_ms: i64,
    /// A delete has failed and the driver was asked what is there: only then may a snapshot take a row out of Deleting.
    pub recovers_delete: bool,
}

/// What a snapshot does to a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing, the row is not even written.
    NotApplied,
    /// Phase and status stay as they are; only the name is taken over.
    Untouched,
    /// The row takes the snapshot's conditions, and this phase.
    Phase(SandboxPhase),
}

/// The table. Rows are tried in order; the first that fits decides.
///
/// Without a status the snapshot's own phase is the row's, except that a session makes Provisioning or Unknown Ready.
pub fn verdict(row: &Sandbox, status: Option<&DriverSandboxStatus>, cx: &Context) -> Verdict {
    use SandboxPhase::*;
    use Verdict::{NotApplied, Phase, Untouched};

    let old = row.phase();
    let shown = match (status, old) {
        (Some(_), _) => {
            phases::compose(phases::derive_phase(status), cx.session_connected, cx.driver_reports_readiness)
        }
        (None, Provisioning | Unknown) if cx.session_connected => Ready,
        (None, old) => old,
    };
    let shows = |predicate: fn(&DriverSandboxStatus) -> bool| status.is_some_and(predicate);
    match old {
        Error | Completed => Untouched,
        Stopped if cx.remedies.has(Remedy::StoppedIgnoresEverything) => Untouched,
        Stopped if shows(phases::reports_runtime_restart) => Untouched,
        Starting if row.is_automatic_restart() => Phase(Starting),
        Stopping if shows(phases::reports_runtime_restart) => Phase(Stopping),
        Stopping if shown == Stopped || shows(phases::confirms_stopped) => Phase(Stopped),
        Stopping if shows(phases::confirms_stopping) => Phase(Stopping),
        Stopping if shown != Error => Phase(Stopping),
        Stopping => Phase(Error),
        // A start that was accepted and then lost must still be seen; nothing else may start a stopped sandbox.
        Stopped if shows(phases::confirms_starting) => {
            let believed = row.start_in_flight() || !cx.remedies.has(Remedy::StartingNeedsAStart);
            if believed { Phase(shown) } else { Untouched }
        }
        Stopped => Phase(Stopped),
        Starting if shown != Error && row.admission_is_open() => Phase(Starting),
        Starting if matches!(shown, Ready | Error) => Phase(shown),
        Starting => Phase(Starting),
        Deleting if !cx.recovers_delete => NotApplied,
        Deleting | Provisioning | Ready | Unknown | Unspecified => Phase(shown),
    }
}

/// Applies a snapshot to a row: conditions and phase by the table, then what the gateway itself knows about
/// configuration and deadline. Fields that the gateway owns are kept.
pub fn apply(row: &mut Sandbox, snapshot: &DriverSandbox, cx: &Context) -> Verdict {
    let verdict = verdict(row, snapshot.status.as_ref(), cx);
    if verdict != Verdict::NotApplied && !snapshot.name.is_empty() {
        row.meta_mut().name.clone_from(&snapshot.name);
    }
    let Verdict::Phase(phase) = verdict else { return verdict };
    if let Some(status) = &snapshot.status {
        take_over(row, status, cx);
    }
    row.status_mut().set_phase(phase);
    configuration::reconcile_readiness(row, cx.now_ms);
    deadline::reconcile_readiness(row, cx.now_ms);
    Verdict::Phase(row.phase())
}

fn take_over(row: &mut Sandbox, status: &DriverSandboxStatus, cx: &Context) {
    let derived = phases::derive_phase(Some(status));
    let shown = phases::compose(derived, cx.session_connected, cx.driver_reports_readiness);
    let kept = row.status_mut();
    kept.sandbox_name.clone_from(&status.sandbox_name);
    kept.agent_pod.clone_from(&status.instance_id);
    kept.agent_fd.clone_from(&status.agent_fd);
    kept.sandbox_fd.clone_from(&status.sandbox_fd);
    kept.conditions = status.conditions.iter().map(condition).collect();
    if derived == SandboxPhase::Ready && shown != SandboxPhase::Ready {
        let message = "the supervisor has no session with the gateway";
        set_condition(&mut kept.conditions, "Ready", "False", "SupervisorNotConnected", message, cx.now_ms);
    } else if cx.session_connected && shown == SandboxPhase::Ready {
        let message = "compute and supervisor are ready";
        set_condition(&mut kept.conditions, "Ready", "True", "DependenciesReady", message, cx.now_ms);
    }
}

fn condition(c: &DriverCondition) -> SandboxCondition {
    let c = c.clone();
    SandboxCondition {
        r#type: c.r#type,
        status: c.status,
        reason: c.reason,
        message: c.message,
        last_transition_time: c.last_transition_time,
    }
}

#[cfg(test)]
mod tests {
    use SandboxPhase::*;

    use crate::pb::openshell::ConfigurationAdmission;

    use super::*;

    const ALL: [SandboxPhase; 10] =
        [Unspecified, Provisioning, Ready, Error, Deleting, Unknown, Stopping, Stopped, Starting, Completed];

    fn row(phase: SandboxPhase) -> Sandbox {
        let mut row = Sandbox::default();
        row.meta_mut().name = "demo".into();
        row.set_phase(phase, "False", "Before", "", 0);
        row
    }
    fn snapshot(conditions: &[(&str, &str, &str)]) -> DriverSandbox {
        let conditions = conditions
            .iter()
            .map(|(kind, status, reason)| DriverCondition {
                r#type: (*kind).into(),
                status: (*status).into(),
                reason: (*reason).into(),
                ..Default::default()
            })
            .collect();
        let status = DriverSandboxStatus { conditions, ..Default::default() };
        DriverSandbox { name: "demo".into(), status: Some(status), ..Default::default() }
    }
    /// Every kind of snapshot that a row of the table tells apart, by name.
    fn snapshots() -> Vec<(&'static str, DriverSandbox)> {
        let mut deleting = snapshot(&[("Ready", "True", "DependenciesReady")]);
        deleting.status.as_mut().unwrap().deleting = true;
        vec![
            ("no status", DriverSandbox { name: "demo".into(), ..Default::default() }),
            ("deleting", deleting),
            ("ready", snapshot(&[("Ready", "True", "DependenciesReady")])),
            ("not ready yet", snapshot(&[("Ready", "False", "DependenciesNotReady")])),
            ("failed", snapshot(&[("Ready", "False", "PodFailed")])),
            ("stopped", snapshot(&[("Ready", "False", "SandboxSuspended"), ("Suspended", "True", "PodTerminated")])),
            ("exited", snapshot(&[("Ready", "False", "ContainerExited")])),
            ("stopping", snapshot(&[("Ready", "False", "Starting"), ("Suspended", "False", "PodTerminating")])),
            (
                "stopping, failed",
                snapshot(&[("Ready", "False", "PodFailed"), ("Suspended", "False", "PodTerminating")]),
            ),
            ("runtime restart", snapshot(&[("Ready", "False", "ContainerRuntimeRestart")])),
            (
                "starting",
                snapshot(&[
                    ("Bootstrapping", "True", "SandboxRuntimeGenerationStarting"),
                    ("Ready", "False", "DependenciesNotReady"),
                ]),
            ),
        ]
    }

    /// The table of the specification, once more, as data: old phase, snapshot, phase without and with a session.
    fn expected(old: SandboxPhase, snapshot: &str, session: bool) -> Verdict {
        use Verdict::*;
        let open = if session { Ready } else { Provisioning };
        let shown = match snapshot {
            "no status" if matches!(old, Provisioning | Unknown) && session => Ready,
            "no status" => old,
            "deleting" => Deleting,
            "ready" | "not ready yet" | "starting" | "stopping" => open,
            "failed" | "exited" | "stopping, failed" | "runtime restart" => Error,
            "stopped" => Stopped,
            other => panic!("{other}"),
        };
        match (old, snapshot) {
            (Error | Completed, _) => Untouched,
            (Stopped, "runtime restart") => Untouched,
            (Stopped, "starting") => Phase(shown),
            (Stopped, _) => Phase(Stopped),
            (Stopping, "stopped" | "exited") => Phase(Stopped),
            (Stopping, "failed") => Phase(Error),
            (Stopping, _) => Phase(Stopping),
            (Starting, _) if matches!(shown, Ready | Error) => Phase(shown),
            (Starting, _) => Phase(Starting),
            (Deleting, _) => NotApplied,
            _ => Phase(shown),
        }
    }

    #[test]
    fn every_phase_meets_every_kind_of_snapshot_as_specified() {
        let mut met = 0;
        for old in ALL {
            for (name, snapshot) in snapshots() {
                for session in [false, true] {
                    let cx = Context { session_connected: session, ..Default::default() };
                    let got = verdict(&row(old), snapshot.status.as_ref(), &cx);
                    assert_eq!(got, expected(old, name, session), "{old:?} meets {name}, session {session}");
                    met += 1;
                }
            }
        }
        assert_eq!(met, ALL.len() * 11 * 2);
    }

    #[test]
    fn a_starting_claim_moves_a_stopped_row_only_if_the_remedies_let_it() {
        let (_, starting) = snapshots().into_iter().find(|(name, _)| *name == "starting").unwrap();
        let needs = Remedies::NONE.with(Remedy::StartingNeedsAStart);
        let mutant = Remedies::NONE.with(Remedy::StoppedIgnoresEverything);
        let table = [
            (Remedies::NONE, false, Verdict::Phase(Provisioning)),
            (Remedies::NONE, true, Verdict::Phase(Provisioning)),
            (needs, false, Verdict::Untouched),
            (needs, true, Verdict::Phase(Provisioning)),
            (mutant, false, Verdict::Untouched),
            (mutant, true, Verdict::Untouched),
        ];
        for (remedies, in_flight, expected) in table {
            let mut stopped = row(Stopped);
            if in_flight {
                stopped.start_attempt = "attempt".into();
            }
            let cx = Context { remedies, ..Default::default() };
            assert_eq!(verdict(&stopped, starting.status.as_ref(), &cx), expected, "{remedies:?} {in_flight}");
        }
    }

    #[test]
    fn no_remedy_changes_what_happens_to_a_row_that_is_not_stopped() {
        let all = Remedy::ALL.iter().copied().fold(Remedies::NONE, Remedies::with);
        for old in ALL.into_iter().filter(|p| *p != Stopped) {
            for (name, snapshot) in snapshots() {
                let plain = verdict(&row(old), snapshot.status.as_ref(), &Context::default());
                let remedied =
                    verdict(&row(old), snapshot.status.as_ref(), &Context { remedies: all, ..Default::default() });
                assert_eq!(plain, remedied, "{old:?} meets {name}");
            }
        }
    }

    #[test]
    fn an_automatic_restart_believes_nothing_but_itself() {
        let mut restart = row(Starting);
        (restart.status_mut().restart_count, restart.status_mut().exit_code) = (1, Some(1));
        for (name, snapshot) in snapshots() {
            let cx = Context { session_connected: true, ..Default::default() };
            assert_eq!(verdict(&restart, snapshot.status.as_ref(), &cx), Verdict::Phase(Starting), "{name}");
        }
    }

    #[test]
    fn a_start_is_not_ready_before_its_configuration_is_accepted() {
        for (state, expected) in [("Pending", Starting), ("Rejected", Starting), ("Accepted", Ready)] {
            let mut starting = row(Starting);
            starting.status_mut().configuration_admission =
                Some(ConfigurationAdmission { state: state.into(), ..Default::default() });
            let cx = Context { session_connected: true, ..Default::default() };
            apply(&mut starting, &snapshot(&[("Ready", "True", "DependenciesReady")]), &cx);
            assert_eq!(starting.phase(), expected, "{state}");
            // An error ends the start whatever the configuration.
            apply(&mut starting, &snapshot(&[("Ready", "False", "PodFailed")]), &cx);
            assert_eq!(starting.phase(), Error, "{state}");
        }
    }

    #[test]
    fn a_delete_is_left_only_when_the_driver_was_asked_after_it_failed() {
        let cx = Context { recovers_delete: true, ..Default::default() };
        for (name, shown) in [("stopped", Stopped), ("not ready yet", Provisioning), ("deleting", Deleting)] {
            let (_, snapshot) = snapshots().into_iter().find(|(n, _)| *n == name).unwrap();
            assert_eq!(verdict(&row(Deleting), snapshot.status.as_ref(), &cx), Verdict::Phase(shown), "{name}");
        }
    }

    #[test]
    fn an_untouched_row_keeps_its_conditions_and_an_applied_one_takes_the_snapshots() {
        let cx = Context { remedies: Remedies::NONE.with(Remedy::StartingNeedsAStart), ..Default::default() };
        let (_, starting) = snapshots().into_iter().find(|(name, _)| *name == "starting").unwrap();
        let mut stopped = row(Stopped);
        let before = stopped.clone();
        apply(&mut stopped, &starting, &cx);
        assert_eq!(stopped, before);
        apply(&mut stopped, &starting, &Context::default());
        assert_eq!((stopped.phase(), stopped.ready_reason()), (Provisioning, "DependenciesNotReady"));
    }

    #[test]
    fn the_ready_condition_tells_whether_the_supervisor_is_what_is_missing() {
        let ready = snapshot(&[("Ready", "True", "PodReady")]);
        let mut r = row(Provisioning);
        apply(&mut r, &ready, &Context::default());
        assert_eq!((r.phase(), r.ready_reason()), (Provisioning, "SupervisorNotConnected"));
        apply(&mut r, &ready, &Context { session_connected: true, ..Default::default() });
        assert_eq!((r.phase(), r.ready_reason()), (Ready, "DependenciesReady"));
    }

    #[test]
    fn fields_that_the_gateway_owns_survive_a_snapshot_and_ready_settles_a_start() {
        let mut r = row(Provisioning);
        r.start_attempt = "attempt".into();
        let status = r.status_mut();
        status.main_process_instance_id = "instance".into();
        status.exit_code = Some(4);
        status.restart_count = 2;
        status.current_policy_version = 7;
        apply(&mut r, &snapshot(&[("Ready", "False", "DependenciesNotReady")]), &Context::default());
        assert!(r.start_in_flight());
        apply(
            &mut r,
            &snapshot(&[("Ready", "True", "PodReady")]),
            &Context { session_connected: true, ..Default::default() },
        );
        super::super::rows::settle(&mut r);
        assert!(!r.start_in_flight());
        let status = r.status_mut();
        assert_eq!(
            (status.main_process_instance_id.as_str(), status.exit_code, status.restart_count),
            ("instance", Some(4), 2)
        );
        assert_eq!(status.current_policy_version, 7);
    }
}
