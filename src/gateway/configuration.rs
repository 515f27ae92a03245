//! Configuration admission: a start waits until the supervisor has accepted the configuration that it was given.

use crate::pb::openshell::{ConfigurationAdmission, Sandbox, SandboxPhase};

use super::record::{ADMISSION_ACCEPTED, ADMISSION_PENDING, ADMISSION_REJECTED, Row, set_condition};

/// What a start writes: nobody has answered yet. The instance id is random, so no earlier instance's report fits it.
pub fn pending() -> ConfigurationAdmission {
    ConfigurationAdmission {
        instance_id: uuid::Uuid::new_v4().to_string(),
        state: ADMISSION_PENDING.into(),
        error: String::new(),
    }
}

/// Takes a supervisor's report into the row.
pub fn record_report(row: &mut Sandbox, instance_id: &str, accepted: bool, error: &str) {
    let state = if accepted { ADMISSION_ACCEPTED } else { ADMISSION_REJECTED };
    row.status_mut().configuration_admission =
        Some(ConfigurationAdmission { instance_id: instance_id.into(), state: state.into(), error: error.into() });
}

/// Shows the admission as a condition, and holds a row that would be Ready in Provisioning until it is accepted.
pub fn reconcile_readiness(row: &mut Sandbox, now_ms: i64) {
    let open = row.admission_is_open();
    let phase = row.phase();
    let status = row.status_mut();
    let Some(admission) = &status.configuration_admission else { return };
    let (value, reason) = match admission.state.as_str() {
        ADMISSION_ACCEPTED => ("True", "ConfigurationAccepted"),
        ADMISSION_REJECTED => ("False", "ConfigurationInvalid"),
        _ => ("False", "ConfigurationPending"),
    };
    let message = admission.error.clone();
    set_condition(&mut status.conditions, "ConfigurationReady", value, reason, &message, now_ms);
    if open && matches!(phase, SandboxPhase::Ready | SandboxPhase::Provisioning) {
        row.set_phase(SandboxPhase::Provisioning, "False", reason, &message, now_ms);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_open_admission_holds_ready_back_and_says_why() {
        let table = [
            (None, SandboxPhase::Ready, "Up"),
            (Some(ADMISSION_PENDING), SandboxPhase::Provisioning, "ConfigurationPending"),
            (Some(ADMISSION_REJECTED), SandboxPhase::Provisioning, "ConfigurationInvalid"),
            (Some(ADMISSION_ACCEPTED), SandboxPhase::Ready, "Up"),
        ];
        for (state, phase, reason) in table {
            let mut row = Sandbox::default();
            row.set_phase(SandboxPhase::Ready, "True", "Up", "", 0);
            row.status_mut().configuration_admission =
                state.map(|s| ConfigurationAdmission { state: s.into(), ..Default::default() });
            reconcile_readiness(&mut row, 0);
            assert_eq!((row.phase(), row.ready_reason()), (phase, reason), "{state:?}");
        }
    }

    #[test]
    fn phases_that_are_not_about_readiness_are_left_alone() {
        for phase in [SandboxPhase::Stopped, SandboxPhase::Starting, SandboxPhase::Stopping, SandboxPhase::Error] {
            let mut row = Sandbox::default();
            row.set_phase(phase, "False", "Before", "", 0);
            row.status_mut().configuration_admission = Some(pending());
            reconcile_readiness(&mut row, 0);
            assert_eq!((row.phase(), row.ready_reason()), (phase, "Before"));
        }
    }

    #[test]
    fn two_starts_never_wait_for_the_same_instance() {
        assert_ne!(pending().instance_id, pending().instance_id);
    }
}
