//! The sandbox row: read access without ceremony, and the small edits that several writers share.

use crate::pb::openshell::{ObjectMeta, Provisioning, Sandbox, SandboxCondition, SandboxPhase, SandboxStatus};

use super::clock::rfc3339;

/// Annotation: name of the compute driver that made the sandbox.
pub const COMPUTE_DRIVER: &str = "openshell.nvidia.com/compute-driver";
/// Annotation: identity of the compute that the row is bound to, as the driver returned it.
pub const RUNTIME_IDENTITY: &str = "openshell.nvidia.com/compute-runtime-identity";
/// Annotation: runtime generation id, made at create and kept for the sandbox's lifetime.
pub const GENERATION_ID: &str = "openshell.nvidia.com/runtime-generation-id";
/// Annotation: authentication epoch, one more at each start from rest.
pub const AUTH_EPOCH: &str = "openshell.nvidia.com/auth-epoch";
/// Annotation: id of the token that the present epoch's supervisor holds.
pub const TOKEN_ID: &str = "openshell.nvidia.com/gateway-token-id";

/// Length of a provisioning attempt, and of a repair window after it, milliseconds.
pub const PROVISIONING_WINDOW_MS: i64 = 300_000;

/// Reason of a main process that ended with an exit code other than 0.
pub const MAIN_PROCESS_FAILED: &str = "MainProcessFailed";
/// Reason of a main process that ended with exit code 0.
pub const MAIN_PROCESS_COMPLETED: &str = "MainProcessCompleted";
/// Reason of a provisioning attempt whose deadline passed.
pub const PROVISIONING_TIMED_OUT: &str = "ProvisioningTimedOut";
/// Reason of a row whose compute is gone.
pub const COMPUTE_RESOURCE_MISSING: &str = "ComputeResourceMissing";

/// State of a [`crate::pb::openshell::ConfigurationAdmission`] that nobody has answered.
pub const ADMISSION_PENDING: &str = "Pending";
/// State of one that the supervisor accepted.
pub const ADMISSION_ACCEPTED: &str = "Accepted";
/// State of one that the supervisor rejected.
pub const ADMISSION_REJECTED: &str = "Rejected";

/// What kind of error a row in phase Error shows: admission and cleanup treat the three apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// The main process ended with an exit code other than 0.
    MainProcessFailed,
    /// The provisioning deadline passed; the deadline's cleanup owns the compute until it is done.
    TimedOut {
        /// The compute is known to be stopped.
        cleanup_done: bool,
    },
    /// Anything else, the driver's own errors among them.
    Other,
}

/// Reading and editing a sandbox row.
pub trait Row {
    /// Id of the sandbox; empty for a row without metadata, which the store never returns.
    fn id(&self) -> &str;
    /// Name of the sandbox.
    fn name(&self) -> &str;
    /// Version of the row, one more at each write.
    fn version(&self) -> u64;
    /// Phase of the row.
    fn phase(&self) -> SandboxPhase;
    /// Value of an annotation, empty if absent.
    fn annotation(&self, key: &str) -> &str;
    /// Reason of the Ready condition, empty if absent.
    fn ready_reason(&self) -> &str;
    /// What kind of error this is; `None` outside phase Error.
    fn error_kind(&self) -> Option<ErrorKind>;
    /// Is an automatic restart of the main process under way?
    fn is_automatic_restart(&self) -> bool;
    /// Does a configuration still wait for the supervisor's word, or was it rejected?
    fn admission_is_open(&self) -> bool;
    /// Is an accepted start or create of this row unsettled?
    fn start_in_flight(&self) -> bool;
    /// A create, start or stop begins: it gets the next lifecycle epoch, and snapshots from before it count no more (for
    /// the remedy `snapshot-carries-epoch`).
    fn begin_epoch(&mut self);
    /// The metadata, made if absent.
    fn meta_mut(&mut self) -> &mut ObjectMeta;
    /// The status, made if absent.
    fn status_mut(&mut self) -> &mut SandboxStatus;
    /// Sets phase and Ready condition together; the condition's time moves only when its status changes.
    fn set_phase(&mut self, phase: SandboxPhase, ready: &str, reason: &str, message: &str, now_ms: i64);
}

impl Row for Sandbox {
    fn id(&self) -> &str {
        self.metadata.as_ref().map_or("", |m| &m.id)
    }
    fn name(&self) -> &str {
        self.metadata.as_ref().map_or("", |m| &m.name)
    }
    fn version(&self) -> u64 {
        self.metadata.as_ref().map_or(0, |m| m.resource_version)
    }
    fn phase(&self) -> SandboxPhase {
        self.status.as_ref().map_or(SandboxPhase::Unspecified, SandboxStatus::phase)
    }
    fn annotation(&self, key: &str) -> &str {
        self.metadata.as_ref().and_then(|m| m.annotations.get(key)).map_or("", String::as_str)
    }
    fn ready_reason(&self) -> &str {
        let conditions = self.status.as_ref().map_or(&[][..], |s| &s.conditions);
        conditions.iter().find(|c| c.r#type == "Ready").map_or("", |c| &c.reason)
    }
    fn error_kind(&self) -> Option<ErrorKind> {
        let status = self.status.as_ref().filter(|s| s.phase() == SandboxPhase::Error)?;
        let timed_out = status.provisioning.as_ref().filter(|p| p.timeout_time_ms != 0);
        Some(match timed_out {
            Some(attempt) => ErrorKind::TimedOut { cleanup_done: attempt.cleanup_completed_time_ms != 0 },
            None if self.ready_reason() == MAIN_PROCESS_FAILED && status.exit_code.is_some() => {
                ErrorKind::MainProcessFailed
            }
            None => ErrorKind::Other,
        })
    }
    fn is_automatic_restart(&self) -> bool {
        self.phase() == SandboxPhase::Starting
            && self.status.as_ref().is_some_and(|s| s.restart_count > 0 && s.exit_code.is_some())
    }
    fn admission_is_open(&self) -> bool {
        let admission = self.status.as_ref().and_then(|s| s.configuration_admission.as_ref());
        admission.is_some_and(|a| a.state != ADMISSION_ACCEPTED)
    }
    fn start_in_flight(&self) -> bool {
        !self.start_attempt.is_empty()
    }
    fn begin_epoch(&mut self) {
        self.issued_epoch = self.issued_epoch.max(self.epoch_floor) + 1;
        self.epoch_floor = self.issued_epoch;
    }
    fn meta_mut(&mut self) -> &mut ObjectMeta {
        self.metadata.get_or_insert_default()
    }
    fn status_mut(&mut self) -> &mut SandboxStatus {
        self.status.get_or_insert_default()
    }
    fn set_phase(&mut self, phase: SandboxPhase, ready: &str, reason: &str, message: &str, now_ms: i64) {
        let status = self.status_mut();
        status.set_phase(phase);
        set_condition(&mut status.conditions, "Ready", ready, reason, message, now_ms);
    }
}

/// Sets the first condition of this type, or adds one at the end.
pub fn set_condition(
    conditions: &mut Vec<SandboxCondition>,
    kind: &str,
    status: &str,
    reason: &str,
    message: &str,
    now_ms: i64,
) {
    let at = match conditions.iter().position(|c| c.r#type == kind) {
        Some(at) => at,
        None => {
            conditions.push(SandboxCondition { r#type: kind.into(), ..Default::default() });
            conditions.len() - 1
        }
    };
    let condition = &mut conditions[at];
    if condition.status != status {
        condition.last_transition_time = rfc3339(now_ms);
    }
    condition.status = status.into();
    condition.reason = reason.into();
    condition.message = message.into();
}

/// A fresh provisioning attempt, its deadline armed.
pub fn new_attempt(now_ms: i64) -> Provisioning {
    Provisioning {
        attempt_id: uuid::Uuid::new_v4().to_string(),
        deadline_ms: now_ms + PROVISIONING_WINDOW_MS,
        ..Default::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(reason: &str, exit_code: Option<i32>, attempt: Option<Provisioning>) -> Sandbox {
        let mut row = Sandbox::default();
        row.set_phase(SandboxPhase::Error, "False", reason, "", 0);
        row.status_mut().exit_code = exit_code;
        row.status_mut().provisioning = attempt;
        row
    }

    #[test]
    fn an_error_is_told_apart_by_its_reason_its_exit_code_and_its_attempt() {
        let expired =
            |completed| Provisioning { timeout_time_ms: 5, cleanup_completed_time_ms: completed, ..Default::default() };
        let table = [
            (error(MAIN_PROCESS_FAILED, Some(3), None), ErrorKind::MainProcessFailed),
            (error(MAIN_PROCESS_FAILED, None, None), ErrorKind::Other),
            (error("PodFailed", Some(3), None), ErrorKind::Other),
            (error(PROVISIONING_TIMED_OUT, None, Some(expired(0))), ErrorKind::TimedOut { cleanup_done: false }),
            (error(PROVISIONING_TIMED_OUT, None, Some(expired(9))), ErrorKind::TimedOut { cleanup_done: true }),
            (error("PodFailed", None, Some(new_attempt(0))), ErrorKind::Other),
        ];
        for (row, expected) in table {
            assert_eq!(row.error_kind(), Some(expected), "{row:?}");
        }
        assert_eq!(Sandbox::default().error_kind(), None);
    }

    #[test]
    fn a_conditions_time_moves_only_with_its_status() {
        let mut conditions = vec![];
        set_condition(&mut conditions, "Ready", "False", "A", "", 1_000);
        set_condition(&mut conditions, "Ready", "False", "B", "", 2_000);
        assert_eq!(
            (conditions[0].reason.as_str(), conditions[0].last_transition_time.as_str()),
            ("B", rfc3339(1_000).as_str())
        );
        set_condition(&mut conditions, "Ready", "True", "C", "", 3_000);
        assert_eq!(conditions[0].last_transition_time, rfc3339(3_000));
        assert_eq!(conditions.len(), 1);
    }
}
