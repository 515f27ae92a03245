//! The snapshot table: what a driver's snapshot does to a row, as a pure function of both.
//!
//! As reported, a snapshot names no version of the resource that it was taken from. So the table can only ask whether a
//! claim fits the row's phase; [`Verdict`] says what comes of it, [`apply`] writes that into the row. With the remedy
//! `snapshot-carries-epoch` it names the operation that the resource was under, and [`is_outdated`] comes first.

use crate::pb::compute::{DriverCondition, DriverSandbox, DriverSandboxStatus, SnapshotOrigin};
use crate::pb::openshell::{Sandbox, SandboxCondition, SandboxPhase};
use crate::remedy::{Remedies, Remedy};

use super::record::{RUNTIME_IDENTITY, Row, set_condition};
use super::{configuration, deadline, phases};

/// What the table needs to know besides row and snapshot.
#[derive(Clone, Copy, Debug)]
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

impl Default for Context {
    /// The code as reported, no session, time 0.
    fn default() -> Self {
        Context {
            session_connected: false,
            driver_reports_readiness: false,
            remedies: Remedies::as_reported(),
            now_ms: 0,
            recovers_delete: false,
        }
    }
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

/// Where the snapshot comes from, as far as the remedy `snapshot-carries-epoch` lets it count: a resource on which no
/// operation has noted its epoch cannot be placed.
fn placed(snapshot: &DriverSandbox, remedies: Remedies) -> Option<&SnapshotOrigin> {
    let origin = snapshot.origin.as_ref().filter(|o| o.epoch != 0);
    origin.filter(|_| remedies.has(Remedy::SnapshotCarriesEpoch))
}

/// Does the snapshot tell of the time before the row's last create, start or stop, or of an older state of the resource
/// than the row shows already? `metadata.generation` only grows while the resource is the same.
pub fn is_outdated(row: &Sandbox, snapshot: &DriverSandbox, remedies: Remedies) -> bool {
    placed(snapshot, remedies).is_some_and(|origin| {
        origin.epoch < row.epoch_floor || origin.uid == row.applied_uid && origin.generation < row.applied_generation
    })
}

/// Is a claim to be starting the claim of a start that this row was told of?
fn is_believed(row: &Sandbox, snapshot: &DriverSandbox, remedies: Remedies) -> bool {
    // A start that was accepted and then lost must still be seen; nothing else may start a stopped sandbox.
    let known = row.start_in_flight() || !remedies.has(Remedy::StartingNeedsAStart);
    known && placed(snapshot, remedies).is_none_or(|origin| origin.epoch > row.epoch_floor)
}

/// The table. Rows are tried in order; the first that fits decides.
///
/// Without a status the snapshot's own phase is the row's, except that a session makes Provisioning or Unknown Ready.
pub fn verdict(row: &Sandbox, snapshot: &DriverSandbox, cx: &Context) -> Verdict {
    use SandboxPhase::*;
    use Verdict::{NotApplied, Phase, Untouched};

    let (old, status, remedies) = (row.phase(), snapshot.status.as_ref(), cx.remedies);
    let derived = phases::derive_phase(status, remedies);
    // Suspended before its Pod has ended: not stopped yet, whatever the row was.
    let still_ends =
        derived == Stopped && phases::may_have_workload(snapshot, remedies) && remedies.has(Remedy::StoppedNeedsNoPod);
    let derived = if still_ends { Provisioning } else { derived };
    let shown = match (status, old) {
        (Some(_), _) => phases::compose(derived, cx.session_connected, cx.driver_reports_readiness),
        (None, Provisioning | Unknown) if cx.session_connected => Ready,
        (None, old) => old,
    };
    let shows = |predicate: fn(&DriverSandboxStatus) -> bool| status.is_some_and(predicate);
    match old {
        _ if remedies.has(Remedy::BelieveAnySnapshot) => Phase(shown),
        Deleting if !cx.recovers_delete && remedies.has(Remedy::DeletingIgnoresSnapshots) => NotApplied,
        Error | Completed => Untouched,
        Stopped if remedies.has(Remedy::StoppedIgnoresEverything) => Untouched,
        // Not even written: whoever waits for the row's version must not be disturbed by what is past.
        _ if is_outdated(row, snapshot, remedies) => NotApplied,
        Stopped if shows(phases::reports_runtime_restart) => Untouched,
        Starting if row.is_automatic_restart() => Phase(Starting),
        Stopping if shows(phases::reports_runtime_restart) => Phase(Stopping),
        Starting | Stopping if still_ends => Phase(old),
        Stopping if shown == Stopped || shows(phases::confirms_stopped) => Phase(Stopped),
        Stopping if shows(phases::confirms_stopping) => Phase(Stopping),
        Stopping if shown != Error => Phase(Stopping),
        Stopping => Phase(Error),
        Stopped if shows(phases::confirms_starting) => {
            if is_believed(row, snapshot, remedies) {
                Phase(shown)
            } else {
                Untouched
            }
        }
        Stopped => Phase(Stopped),
        Starting if shown != Error && row.admission_is_open() => Phase(Starting),
        Starting if matches!(shown, Ready | Error) => Phase(shown),
        Starting => Phase(Starting),
        Deleting | Provisioning | Ready | Unknown | Unspecified => Phase(shown),
    }
}

/// Applies a snapshot to a row: conditions and phase by the table, then what the gateway itself knows about
/// configuration and deadline. Fields that the gateway owns are kept.
pub fn apply(row: &mut Sandbox, snapshot: &DriverSandbox, cx: &Context) -> Verdict {
    let verdict = verdict(row, snapshot, cx);
    if verdict != Verdict::NotApplied && !snapshot.name.is_empty() {
        row.meta_mut().name.clone_from(&snapshot.name);
    }
    let Verdict::Phase(phase) = verdict else { return verdict };
    if let Some(origin) = placed(snapshot, cx.remedies) {
        row.epoch_floor = row.epoch_floor.max(origin.epoch);
        row.applied_generation = origin.generation;
        row.applied_uid.clone_from(&origin.uid);
    }
    if let Some(origin) = &snapshot.origin
        && row.annotation(RUNTIME_IDENTITY).is_empty()
        && !origin.runtime_identity.is_empty()
        && cx.remedies.has(Remedy::IdentityFromSnapshot)
    {
        row.meta_mut().annotations.insert(RUNTIME_IDENTITY.into(), origin.runtime_identity.clone());
    }
    if let Some(status) = &snapshot.status {
        take_over(row, status, cx);
    }
    row.status_mut().set_phase(phase);
    configuration::reconcile_readiness(row, cx.now_ms);
    deadline::reconcile_readiness(row, cx.now_ms);
    Verdict::Phase(row.phase())
}

fn take_over(row: &mut Sandbox, status: &DriverSandboxStatus, cx: &Context) {
    let derived = phases::derive_phase(Some(status), cx.remedies);
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

/// A row made from nothing but a snapshot (mutant `rows-from-snapshots`): nobody asked for it, and it has no spec.
pub(crate) fn row_of(snapshot: &DriverSandbox) -> Sandbox {
    let mut row = Sandbox::default();
    let meta = row.meta_mut();
    (meta.id, meta.name) = (snapshot.id.clone(), snapshot.name.clone());
    meta.workspace.clone_from(&snapshot.workspace);
    row.status_mut().set_phase(SandboxPhase::Provisioning);
    row
}

/// Do two states of a row say the same, whenever they were written and since when their conditions hold?
pub fn is_same(one: &Sandbox, other: &Sandbox) -> bool {
    let told = |row: &Sandbox| {
        let mut row = row.clone();
        let meta = row.meta_mut();
        (meta.resource_version, meta.updated_at_ms) = (0, 0);
        row.status_mut().conditions.iter_mut().for_each(|c| c.last_transition_time.clear());
        row
    };
    told(one) == told(other)
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

    use photofinish::SwitchKind;

    use crate::pb::openshell::ConfigurationAdmission;
    use crate::remedy::SWITCHES;

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
                    let got = verdict(&row(old), &snapshot, &cx);
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
        let reported = Remedies::as_reported();
        let needs = reported.with(Remedy::StartingNeedsAStart);
        let mutant = reported.with(Remedy::StoppedIgnoresEverything);
        let table = [
            (reported, false, Verdict::Phase(Provisioning)),
            (reported, true, Verdict::Phase(Provisioning)),
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
            assert_eq!(verdict(&stopped, &starting, &cx), expected, "{remedies:?} {in_flight}");
        }
    }

    #[test]
    fn no_proposed_remedy_changes_what_a_snapshot_of_unknown_origin_does_to_a_row_that_is_not_stopped() {
        let proposed = SWITCHES.iter().filter(|s| matches!(s.kind, SwitchKind::Merged | SwitchKind::Proposed { .. }));
        let remedies = Remedies::from_names(proposed.map(|s| s.name));
        for old in ALL.into_iter().filter(|p| *p != Stopped) {
            for (name, snapshot) in snapshots() {
                let plain = verdict(&row(old), &snapshot, &Context::default());
                let remedied = verdict(&row(old), &snapshot, &Context { remedies, ..Default::default() });
                assert_eq!(plain, remedied, "{old:?} meets {name}");
            }
        }
    }

    /// A snapshot of the resource `u` at this epoch and generation.
    fn of_epoch(epoch: u64, generation: i64, snapshot: DriverSandbox) -> DriverSandbox {
        let origin = SnapshotOrigin { uid: "u".into(), epoch, generation, ..Default::default() };
        DriverSandbox { origin: Some(origin), ..snapshot }
    }
    fn named(wanted: &str) -> DriverSandbox {
        snapshots().into_iter().find(|(name, _)| *name == wanted).unwrap().1
    }

    #[test]
    fn a_snapshot_of_an_operation_before_is_outdated_and_one_of_no_known_operation_is_not() {
        let remedies = Remedies::as_reported().with(Remedy::SnapshotCarriesEpoch);
        let mut r = row(Stopped);
        (r.epoch_floor, r.applied_generation, r.applied_uid) = (3, 7, "u".into());
        for (epoch, generation, expected) in [(2, 9, true), (3, 6, true), (3, 7, false), (4, 8, false), (0, 1, false)] {
            let snapshot = of_epoch(epoch, generation, named("starting"));
            assert_eq!(is_outdated(&r, &snapshot, remedies), expected, "{epoch} {generation}");
            assert!(!is_outdated(&r, &snapshot, Remedies::as_reported()), "as reported nothing is");
        }
        r.applied_uid = "another".into();
        assert!(!is_outdated(&r, &of_epoch(3, 6, named("starting")), remedies), "another resource counts anew");
        assert!(!is_outdated(&r, &named("starting"), remedies), "it does not say");
    }

    #[test]
    fn by_its_epoch_a_stop_can_never_pass_for_a_start_and_a_lost_start_is_still_seen() {
        let remedies = Remedies::as_reported().with(Remedy::SnapshotCarriesEpoch);
        let cx = Context { remedies, ..Default::default() };
        let mut stopped = row(Stopped);
        stopped.epoch_floor = 3;
        for (epoch, expected) in [
            (2, Verdict::NotApplied),
            (3, Verdict::Untouched),
            (4, Verdict::Phase(Provisioning)),
            (0, Verdict::Phase(Provisioning)),
        ] {
            assert_eq!(verdict(&stopped, &of_epoch(epoch, 1, named("starting")), &cx), expected, "epoch {epoch}");
        }
        apply(&mut stopped, &of_epoch(4, 5, named("starting")), &cx);
        assert_eq!((stopped.phase(), stopped.epoch_floor, stopped.applied_generation), (Provisioning, 4, 5));
        assert_eq!(
            verdict(&stopped, &of_epoch(3, 5, named("stopped")), &cx),
            Verdict::NotApplied,
            "it has been started"
        );
    }

    #[test]
    fn a_resource_that_says_suspended_makes_a_row_stopped_only_without_its_pod() {
        use crate::pb::compute::snapshot_origin::Workload;
        let remedies = Remedies::as_reported().with(Remedy::StoppedNeedsNoPod);
        for (workload, remedies, expected) in [
            (Workload::Present, Remedies::as_reported(), Stopped),
            (Workload::Present, remedies, Stopping),
            (Workload::Absent, remedies, Stopped),
            (Workload::Unknown, Remedies::as_reported(), Stopped),
            (Workload::Unknown, remedies, Stopping),
            (Workload::Unknown, remedies.with(Remedy::UnreadIsGone), Stopped),
        ] {
            let origin = SnapshotOrigin { workload: workload.into(), ..Default::default() };
            let snapshot = DriverSandbox { origin: Some(origin), ..named("stopped") };
            let cx = Context { remedies, ..Default::default() };
            assert_eq!(verdict(&row(Stopping), &snapshot, &cx), Verdict::Phase(expected), "{workload:?} {remedies:?}");
        }
        // While its Pod ends, neither a session nor an exit tells what is to come.
        let origin = Some(SnapshotOrigin { workload: Workload::Present.into(), ..Default::default() });
        let connected = Context { remedies, session_connected: true, ..Default::default() };
        let exited = snapshot(&[("Ready", "False", "ContainerExited"), ("Suspended", "True", "PodTerminated")]);
        for (old, shown) in [(Starting, named("stopped")), (Stopping, exited)] {
            let ends = DriverSandbox { origin: origin.clone(), ..shown };
            assert_eq!(verdict(&row(old), &ends, &connected), Verdict::Phase(old), "{old:?}");
        }
    }

    #[test]
    fn a_missing_identity_is_taken_from_a_snapshot_and_a_known_one_is_kept() {
        let origin = SnapshotOrigin { runtime_identity: "kubernetes://ns/u/s".into(), ..Default::default() };
        let snapshot = DriverSandbox { origin: Some(origin), ..named("not ready yet") };
        let remedied =
            Context { remedies: Remedies::as_reported().with(Remedy::IdentityFromSnapshot), ..Default::default() };
        for (known, cx, expected) in [
            ("", Context::default(), ""),
            ("", remedied, "kubernetes://ns/u/s"),
            ("kubernetes://ns/u/other", remedied, "kubernetes://ns/u/other"),
        ] {
            let mut r = row(Provisioning);
            r.meta_mut().annotations.insert(RUNTIME_IDENTITY.into(), known.into());
            apply(&mut r, &snapshot, &cx);
            assert_eq!(r.annotation(RUNTIME_IDENTITY), expected);
        }
    }

    #[test]
    fn the_mutant_and_the_time_before_the_fix_let_snapshots_decide_what_they_must_not() {
        let believing = Context { remedies: Remedies::NONE.with(Remedy::BelieveAnySnapshot), ..Default::default() };
        for old in [Stopped, Error, Completed, Deleting, Starting] {
            assert_eq!(
                verdict(&row(old), &named("not ready yet"), &believing),
                Verdict::Phase(Provisioning),
                "{old:?}"
            );
        }
        let before = Remedies::as_reported().without(Remedy::DeletingIgnoresSnapshots);
        let before = Context { remedies: before, ..Default::default() };
        assert_eq!(verdict(&row(Deleting), &named("stopped"), &before), Verdict::Phase(Stopped));
    }

    #[test]
    fn a_row_takes_the_name_of_a_snapshot_that_has_one_and_counts() {
        let table = [
            (Stopped, "stopped", "demo", "demo"),
            (Stopped, "stopped", "", "known"),
            (Completed, "stopped", "demo", "demo"),
            (Deleting, "stopped", "demo", "known"),
        ];
        for (old, kind, told, expected) in table {
            let mut r = row(old);
            r.meta_mut().name = "known".into();
            apply(&mut r, &DriverSandbox { name: told.into(), ..named(kind) }, &Context::default());
            assert_eq!(r.name(), expected, "{old:?} {told:?}");
        }
    }

    #[test]
    fn a_row_that_only_was_written_again_is_the_same() {
        let mut r = row(Provisioning);
        apply(&mut r, &named("not ready yet"), &Context { now_ms: 1_000, ..Default::default() });
        let mut again = r.clone();
        apply(&mut again, &named("not ready yet"), &Context { now_ms: 9_000, ..Default::default() });
        again.meta_mut().resource_version += 1;
        assert!(is_same(&r, &again));
        apply(&mut again, &named("stopped"), &Context::default());
        assert!(!is_same(&r, &again));
    }

    #[test]
    fn an_automatic_restart_believes_nothing_but_itself() {
        let mut restart = row(Starting);
        (restart.status_mut().restart_count, restart.status_mut().exit_code) = (1, Some(1));
        for (name, snapshot) in snapshots() {
            let cx = Context { session_connected: true, ..Default::default() };
            assert_eq!(verdict(&restart, &snapshot, &cx), Verdict::Phase(Starting), "{name}");
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
            assert_eq!(verdict(&row(Deleting), &snapshot, &cx), Verdict::Phase(shown), "{name}");
        }
    }

    #[test]
    fn an_untouched_row_keeps_its_conditions_and_an_applied_one_takes_the_snapshots() {
        let remedies = Remedies::as_reported().with(Remedy::StartingNeedsAStart);
        let cx = Context { remedies, ..Default::default() };
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
        apply(&mut r, &ready, &Context { driver_reports_readiness: true, ..Default::default() });
        assert_eq!((r.phase(), r.ready_reason()), (Ready, "PodReady"), "the driver vouches for it");
        apply(&mut r, &named("failed"), &Context { session_connected: true, ..Default::default() });
        assert_eq!((r.phase(), r.ready_reason()), (Error, "PodFailed"), "a session heals no error");
    }

    #[test]
    fn a_row_made_from_a_snapshot_is_that_sandbox_and_provisioning() {
        let told = DriverSandbox { id: "id".into(), workspace: "team".into(), ..named("ready") };
        let made = row_of(&told);
        let workspace = made.metadata.as_ref().map(|m| m.workspace.as_str());
        assert_eq!((made.id(), made.name(), workspace, made.phase()), ("id", "demo", Some("team"), Provisioning));
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
