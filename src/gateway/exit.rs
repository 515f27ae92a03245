//! The main process has exited: which reports count, and what they make of the row.

use tracing::info;

use crate::pb::openshell::{Sandbox, SandboxPhase};
use crate::remedy::{Remedies, Remedy};

use super::core::Gateway;
use super::record::{ErrorKind, MAIN_PROCESS_COMPLETED, MAIN_PROCESS_FAILED, Row};
use super::restart;
use super::rows::By;
use super::store::StoreError;

/// Attempts at a row that others write too.
const ATTEMPTS: u32 = 3;

/// What an exit report does to a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// It is not about the run that the row stands for, or says nothing new.
    Ignored,
    /// The run is over, with exit code 0.
    Completed,
    /// The run is over, with another exit code.
    Failed,
    /// The row shows an error of its infrastructure; the exit code is only noted.
    Noted,
    /// The sandbox's policy says that the main process is run again.
    Restart,
}

/// Judges the report that `instance_id` has exited with `code`.
///
/// While a row is Starting, the instance id that it stores is the tombstone of the last run that was Ready: a report of that
/// one is late. Runs that ended before they were Ready have no tombstone, so with the remedy `exit-needs-a-session` a report
/// must be of the run whose session the start has seen; before it, a report of any other run was of the one that comes up.
pub fn effect(row: &Sandbox, instance_id: &str, code: i32, remedies: Remedies) -> Effect {
    use SandboxPhase::*;
    let status = row.status.as_ref();
    let stored = status.map_or("", |s| &s.main_process_instance_id);
    let of_this_run = match row.phase() {
        Starting if remedies.has(Remedy::StartingIgnoresExits) => false,
        Starting if stored == instance_id && remedies.has(Remedy::ExitTombstone) => false,
        Starting => has_a_session(row, instance_id) || !remedies.has(Remedy::ExitNeedsASession),
        _ => stored == instance_id,
    };
    match row.phase() {
        Deleting | Stopping | Stopped => Effect::Ignored,
        Error if matches!(row.error_kind(), Some(ErrorKind::TimedOut { .. })) => Effect::Ignored,
        _ if !of_this_run => Effect::Ignored,
        Completed => Effect::Ignored,
        Error if row.error_kind() == Some(ErrorKind::MainProcessFailed) => Effect::Ignored,
        Error if row.ready_reason() != "ContainerExited" => {
            if status.and_then(|s| s.exit_code) == Some(code) {
                Effect::Ignored
            } else {
                Effect::Noted
            }
        }
        _ if restart::restarts(policy(row), code) => Effect::Restart,
        _ if code == 0 => Effect::Completed,
        _ => Effect::Failed,
    }
}

/// Has this run had a session since the start? Only a start that waits for its configuration has noted whose it was. A run
/// that an automatic restart has brought up makes the row Ready by its session, so until then none has had one.
fn has_a_session(row: &Sandbox, instance_id: &str) -> bool {
    let admission = row.status.as_ref().and_then(|s| s.configuration_admission.as_ref());
    let noted = !row.admission_is_open() || admission.is_some_and(|a| a.instance_id == instance_id);
    noted && !row.is_automatic_restart()
}

fn policy(row: &Sandbox) -> &str {
    row.spec.as_ref().map_or("", |s| &s.restart_policy)
}

fn apply(row: &mut Sandbox, effect: Effect, code: i32, now_ms: i64) {
    match effect {
        Effect::Ignored => return,
        Effect::Restart => return restart::schedule(row, code, now_ms),
        Effect::Completed => row.set_phase(
            SandboxPhase::Completed,
            "False",
            MAIN_PROCESS_COMPLETED,
            "the main process exited with code 0",
            now_ms,
        ),
        Effect::Failed => row.set_phase(
            SandboxPhase::Error,
            "False",
            MAIN_PROCESS_FAILED,
            &format!("the main process exited with code {code}"),
            now_ms,
        ),
        Effect::Noted => {}
    }
    row.status_mut().exit_code = Some(code);
}

impl Gateway {
    /// Records the exit of a main process. Reports that do not count are accepted and change nothing.
    pub(crate) async fn exit_reported(&self, id: &str, instance_id: &str, code: i32) -> Result<(), StoreError> {
        let _lock = self.mutations.lock(id).await;
        info!(sandbox_id = %id, %instance_id, code, "main process exit reported");
        let mut attempt = 0;
        loop {
            attempt += 1;
            let Some(row) = self.rows.get(id)? else { return Ok(()) };
            let effect = effect(&row, instance_id, code, self.config.remedies);
            if effect == Effect::Ignored {
                return Ok(());
            }
            let change = |row: &mut Sandbox| apply(row, effect, code, self.rows.now_ms());
            match self.rows.update(By::Exit, "exit", id, row.version(), change) {
                Err(StoreError::Conflict { .. }) if attempt < ATTEMPTS => {}
                written => return written.map(drop),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use SandboxPhase::*;

    use crate::gateway::record::{ADMISSION_ACCEPTED, ADMISSION_PENDING, ADMISSION_REJECTED};
    use crate::pb::openshell::{ConfigurationAdmission, Provisioning as Attempt, SandboxSpec};

    use super::*;

    fn merged() -> Remedies {
        Remedies::as_reported()
    }
    fn row(phase: SandboxPhase, reason: &str) -> Sandbox {
        let mut row = Sandbox::default();
        row.set_phase(phase, "False", reason, "", 0);
        row.status_mut().main_process_instance_id = "i1".into();
        row
    }

    #[test]
    fn only_the_exit_of_the_present_run_counts() {
        let mut timed_out = row(Error, "ProvisioningTimedOut");
        timed_out.status_mut().provisioning = Some(Attempt { timeout_time_ms: 1, ..Default::default() });
        // With another code than the one that is reported.
        let mut failed = row(Error, MAIN_PROCESS_FAILED);
        failed.status_mut().exit_code = Some(9);
        let table = [
            ("ready", row(Ready, "DependenciesReady"), "i1", Effect::Failed),
            ("ready, another run", row(Ready, "DependenciesReady"), "i0", Effect::Ignored),
            ("provisioning", row(Provisioning, "DependenciesNotReady"), "i1", Effect::Failed),
            ("starting, the tombstone", row(Starting, "Starting"), "i1", Effect::Ignored),
            ("starting, the new run", row(Starting, "Starting"), "i2", Effect::Failed),
            ("stopping", row(Stopping, "Stopping"), "i1", Effect::Ignored),
            ("stopped", row(Stopped, "Stopped"), "i1", Effect::Ignored),
            ("deleting", row(Deleting, "Deleting"), "i1", Effect::Ignored),
            ("completed", row(Completed, MAIN_PROCESS_COMPLETED), "i1", Effect::Ignored),
            ("infrastructure error", row(Error, "PodFailed"), "i1", Effect::Noted),
            ("container exited", row(Error, "ContainerExited"), "i1", Effect::Failed),
            ("main process failed", failed, "i1", Effect::Ignored),
            ("timed out", timed_out, "i1", Effect::Ignored),
        ];
        for (name, row, instance, expected) in table {
            assert_eq!(effect(&row, instance, 3, merged()), expected, "{name}");
        }
        let starting = row(Starting, "Starting");
        let before = merged().without(Remedy::ExitTombstone);
        assert_eq!(
            effect(&starting, "i1", 3, before),
            Effect::Failed,
            "before the tombstone the old run's exit counted"
        );
        let mutant = merged().with(Remedy::StartingIgnoresExits);
        assert_eq!(effect(&starting, "i2", 3, mutant), Effect::Ignored, "the mutant loses the new run's exit");
    }

    #[test]
    fn a_start_that_waits_for_its_configuration_is_ended_by_the_run_it_has_heard_of() {
        let mut starting = row(Starting, "Starting");
        let fixed = merged().with(Remedy::ExitNeedsASession);
        let admission = |instance: &str, state: &str| {
            Some(ConfigurationAdmission { instance_id: instance.into(), state: state.into(), ..Default::default() })
        };
        for (name, admission, instance, before, with_it) in [
            ("nobody has come yet", admission("fence", ADMISSION_PENDING), "i2", Effect::Failed, Effect::Ignored),
            ("the run that has", admission("i3", ADMISSION_PENDING), "i3", Effect::Failed, Effect::Failed),
            ("one that was never Ready", admission("i3", ADMISSION_PENDING), "i2", Effect::Failed, Effect::Ignored),
            ("the tombstone", admission("i1", ADMISSION_PENDING), "i1", Effect::Ignored, Effect::Ignored),
            ("refused its configuration", admission("i3", ADMISSION_REJECTED), "i2", Effect::Failed, Effect::Ignored),
            ("accepted", admission("i3", ADMISSION_ACCEPTED), "i2", Effect::Failed, Effect::Failed),
        ] {
            starting.status_mut().configuration_admission = admission;
            assert_eq!(effect(&starting, instance, 3, merged()), before, "{name}, as reported");
            assert_eq!(effect(&starting, instance, 3, fixed), with_it, "{name}");
        }
    }

    #[test]
    fn while_a_run_is_made_up_for_no_exit_counts() {
        let fixed = merged().with(Remedy::ExitNeedsASession);
        let mut restarting = row(Starting, "Starting");
        (restarting.status_mut().restart_count, restarting.status_mut().exit_code) = (1, Some(1));
        // Before the claim an admission may be there still, of the run that has ended; after it there is none.
        let ended =
            ConfigurationAdmission { instance_id: "i2".into(), state: ADMISSION_PENDING.into(), ..Default::default() };
        for admission in [None, Some(ended)] {
            restarting.status_mut().configuration_admission = admission;
            for (instance, before) in [("i1", Effect::Ignored), ("i2", Effect::Failed), ("i3", Effect::Failed)] {
                assert_eq!(effect(&restarting, instance, 3, merged()), before, "{instance}, as reported");
                assert_eq!(effect(&restarting, instance, 3, fixed), Effect::Ignored, "{instance}");
            }
        }
    }

    #[test]
    fn code_0_completes_and_any_other_fails() {
        for (code, phase, reason) in [(0, Completed, MAIN_PROCESS_COMPLETED), (137, Error, MAIN_PROCESS_FAILED)] {
            let mut r = row(Ready, "DependenciesReady");
            let e = effect(&r, "i1", code, merged());
            apply(&mut r, e, code, 0);
            assert_eq!((r.phase(), r.ready_reason()), (phase, reason));
            assert_eq!(r.status.as_ref().unwrap().exit_code, Some(code));
            assert_eq!(effect(&r, "i1", code, merged()), Effect::Ignored, "a duplicate changes nothing");
        }
    }

    #[test]
    fn by_the_policy_an_exit_is_made_up_for_and_its_report_counts_once() {
        for (policy, code, expected) in [
            ("Always", 0, Effect::Restart),
            ("OnFailure", 1, Effect::Restart),
            ("OnFailure", 0, Effect::Completed),
            ("Never", 1, Effect::Failed),
        ] {
            let mut r = row(Ready, "DependenciesReady");
            r.spec = Some(SandboxSpec { restart_policy: policy.into(), ..Default::default() });
            assert_eq!(effect(&r, "i1", code, merged()), expected, "{policy} {code}");
            apply(&mut r, expected, code, 1_000);
            assert_eq!(r.is_automatic_restart(), expected == Effect::Restart, "{policy} {code}");
            assert_eq!(effect(&r, "i1", code, merged()), Effect::Ignored, "a duplicate changes nothing");
        }
    }

    #[test]
    fn a_run_that_was_never_ready_is_made_up_for_once() {
        let fixed = merged().with(Remedy::ExitNeedsASession);
        for (remedies, again) in [(merged(), Effect::Restart), (fixed, Effect::Ignored)] {
            let mut r = row(Starting, "Starting");
            r.spec = Some(SandboxSpec { restart_policy: "Always".into(), ..Default::default() });
            r.status_mut().configuration_admission = Some(ConfigurationAdmission {
                instance_id: "i2".into(),
                state: ADMISSION_PENDING.into(),
                ..Default::default()
            });
            assert_eq!(effect(&r, "i2", 3, remedies), Effect::Restart);
            apply(&mut r, Effect::Restart, 3, 1_000);
            assert_eq!(effect(&r, "i2", 3, remedies), again, "its supervisor says so again");
        }
    }

    #[test]
    fn an_infrastructure_error_keeps_its_reason_and_notes_the_code_once() {
        let mut r = row(Error, "PodFailed");
        apply(&mut r, Effect::Noted, 1, 0);
        assert_eq!((r.phase(), r.ready_reason()), (Error, "PodFailed"));
        assert_eq!(effect(&r, "i1", 1, merged()), Effect::Ignored);
    }
}
