//! The provisioning deadline: an attempt that is not Ready in time becomes an Error, and its compute is stopped.
//!
//! Armed: `deadline_ms` is set. Expired: `timeout_time_ms` is set. Ready: neither, and nothing arms it again until the
//! next create or start.

use std::sync::Arc;
use std::time::Duration;

use tonic::Code;
use tracing::warn;

use crate::pb::compute::StopSandboxRequest;
use crate::pb::openshell::{Sandbox, SandboxPhase};
use crate::remedy::{Remedies, Remedy};

use super::core::Gateway;
use super::locks::Held;
use super::record::{ErrorKind, PROVISIONING_TIMED_OUT, PROVISIONING_WINDOW_MS, Row};
use super::rows::By;
use super::store::StoreError;

const SCAN: Duration = Duration::from_secs(1);
/// Attempts at a row that others write too.
const ATTEMPTS: u32 = 3;
const RECLAIM_CALL: Duration = Duration::from_secs(30);
const RECLAIM_CLAIM_MS: i64 = 35_000;
const RECLAIM_RETRY_MS: i64 = 5_000;

/// Settles an armed deadline when the row is Ready: in time, it is cleared for good; too late, Ready is taken back.
pub fn reconcile_readiness(row: &mut Sandbox, now_ms: i64) {
    if row.phase() != SandboxPhase::Ready {
        return;
    }
    let Some(attempt) = row.status_mut().provisioning.as_mut().filter(|a| a.deadline_ms != 0) else { return };
    if now_ms < attempt.deadline_ms {
        attempt.deadline_ms = 0;
    } else {
        let message = "the sandbox became ready after its provisioning deadline";
        row.set_phase(SandboxPhase::Provisioning, "False", "ProvisioningDeadlineElapsed", message, now_ms);
    }
}

/// A row that has fallen from Ready to Provisioning is waited for again (remedy `deadline-after-ready`). As reported its
/// attempt is over and nothing ever ends the wait.
pub fn rearm(row: &mut Sandbox, before: SandboxPhase, remedies: Remedies, now_ms: i64) {
    let fell = before == SandboxPhase::Ready && row.phase() == SandboxPhase::Provisioning;
    if fell && remedies.has(Remedy::DeadlineAfterReady) {
        let attempt = row.status_mut().provisioning.get_or_insert_default();
        if attempt.deadline_ms == 0 && attempt.timeout_time_ms == 0 {
            attempt.deadline_ms = now_ms + PROVISIONING_WINDOW_MS;
        }
    }
}

/// Has the attempt of a row that is coming up run out of time?
pub fn is_due(row: &Sandbox, now_ms: i64) -> bool {
    let coming_up = matches!(row.phase(), SandboxPhase::Provisioning | SandboxPhase::Starting);
    let attempt = row.status.as_ref().and_then(|s| s.provisioning.as_ref());
    coming_up && attempt.is_some_and(|a| a.deadline_ms != 0 && now_ms >= a.deadline_ms)
}

/// Turns a row whose attempt is due into the Error that its cleanup starts from.
pub fn expire(row: &mut Sandbox, now_ms: i64) {
    row.set_phase(
        SandboxPhase::Error,
        "False",
        PROVISIONING_TIMED_OUT,
        "the sandbox was not ready within its provisioning deadline",
        now_ms,
    );
    let attempt = row.status_mut().provisioning.get_or_insert_default();
    (attempt.deadline_ms, attempt.timeout_time_ms) = (0, now_ms);
}

/// Gives a configuration that was rejected for the first time one repair window.
pub fn extend_for_rejection(row: &mut Sandbox, now_ms: i64) {
    let Some(attempt) = row.status_mut().provisioning.as_mut() else { return };
    if attempt.deadline_ms != 0 && attempt.first_rejection_time_ms == 0 {
        attempt.first_rejection_time_ms = now_ms;
        attempt.deadline_ms = attempt.deadline_ms.max(now_ms + PROVISIONING_WINDOW_MS);
    }
}

/// Should the compute of this row be reclaimed now?
pub fn wants_reclaim(row: &Sandbox, now_ms: i64) -> bool {
    let attempt = row.status.as_ref().and_then(|s| s.provisioning.as_ref());
    row.error_kind() == Some(ErrorKind::TimedOut { cleanup_done: false })
        && attempt.is_some_and(|a| now_ms >= a.cleanup_retry_time_ms)
}

/// Scans the rows once a second, for ever.
pub(crate) async fn run(gateway: Arc<Gateway>) {
    loop {
        tokio::time::sleep(SCAN).await;
        if let Err(error) = scan(&gateway).await {
            warn!(%error, "provisioning deadlines were not scanned");
        }
    }
}

async fn scan(gateway: &Arc<Gateway>) -> Result<(), StoreError> {
    for row in gateway.rows.sandboxes()?.iter() {
        let now_ms = gateway.rows.now_ms();
        if is_due(row, now_ms) {
            let _lock = gateway.mutations.lock(row.id()).await;
            match gateway.rows.update(By::Deadline, "expire", row.id(), row.version(), |row| expire(row, now_ms)) {
                // Somebody else wrote: the next scan looks again.
                Ok(_) | Err(StoreError::Conflict { .. } | StoreError::NotFound { .. }) => {}
                Err(e) => return Err(e),
            }
        } else if wants_reclaim(row, now_ms)
            && let Some(gate) = gateway.gates.try_lock(row.id())
        {
            let (gateway, row) = (gateway.clone(), row.clone());
            tokio::spawn(async move {
                if let Err(error) = reclaim(&gateway, row, gate).await {
                    warn!(%error, "compute of a timed-out sandbox was not reclaimed");
                }
            });
        }
    }
    Ok(())
}

/// Stops the compute of a timed-out row. The claim keeps others off for longer than the call may take.
async fn reclaim(gateway: &Gateway, row: Sandbox, _gate: Held) -> Result<(), StoreError> {
    let id = row.id();
    let claim = |row: &mut Sandbox| {
        let now_ms = gateway.rows.now_ms();
        row.status_mut().provisioning.get_or_insert_default().cleanup_retry_time_ms = now_ms + RECLAIM_CLAIM_MS;
    };
    let claimed = {
        let _lock = gateway.mutations.lock(id).await;
        match gateway.rows.update(By::Deadline, "reclaim-claim", id, row.version(), claim) {
            Err(StoreError::Conflict { .. } | StoreError::NotFound { .. }) => return Ok(()),
            claimed => claimed?,
        }
    };
    let request = StopSandboxRequest { sandbox_id: id.into(), sandbox_name: row.name().into(), lifecycle_epoch: 0 };
    let error = match tokio::time::timeout(RECLAIM_CALL, gateway.driver().stop_sandbox(request)).await {
        Ok(Ok(_)) => None,
        Ok(Err(status)) if status.code() == Code::NotFound => None,
        Ok(Err(status)) => Some(status.message().to_owned()),
        Err(_) => Some(format!("the driver did not stop it within {} s", RECLAIM_CALL.as_secs())),
    };
    let _lock = gateway.mutations.lock(id).await;
    for _ in 0..ATTEMPTS {
        // The stop's own snapshots have written the row since: the claim's version would never fit.
        let Some(now) = gateway.rows.get(id)?.filter(|now| is_reclaimed_by(now, &claimed)) else { return Ok(()) };
        let settle = |row: &mut Sandbox| reclaimed(row, error.as_deref(), gateway.rows.now_ms());
        match gateway.rows.update(By::Deadline, "reclaim-result", id, now.version(), settle) {
            Err(StoreError::Conflict { .. }) => {}
            Ok(_) | Err(StoreError::NotFound { .. }) => return Ok(()),
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

/// Is this row still in the attempt whose compute was claimed?
fn is_reclaimed_by(row: &Sandbox, claimed: &Sandbox) -> bool {
    let attempt = |row: &Sandbox| row.status.as_ref().and_then(|s| s.provisioning.clone()).map(|p| p.attempt_id);
    row.error_kind() == Some(ErrorKind::TimedOut { cleanup_done: false }) && attempt(row) == attempt(claimed)
}

/// Notes what came of a reclaim.
fn reclaimed(row: &mut Sandbox, error: Option<&str>, now_ms: i64) {
    let attempt = row.status_mut().provisioning.get_or_insert_default();
    match error {
        None => {
            (attempt.cleanup_completed_time_ms, attempt.cleanup_retry_time_ms) = (now_ms, 0);
            attempt.cleanup_error.clear();
        }
        Some(error) => {
            attempt.cleanup_retry_time_ms = now_ms + RECLAIM_RETRY_MS;
            attempt.cleanup_error = error.into();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::record::new_attempt;
    use super::*;

    fn row(phase: SandboxPhase, now_ms: i64) -> Sandbox {
        let mut row = Sandbox::default();
        row.set_phase(phase, "False", "Before", "", now_ms);
        row.status_mut().provisioning = Some(new_attempt(now_ms));
        row
    }
    fn deadline(row: &Sandbox) -> i64 {
        row.status.as_ref().unwrap().provisioning.as_ref().unwrap().deadline_ms
    }

    #[test]
    fn an_attempt_is_due_300_s_after_it_began_while_the_row_comes_up() {
        for (phase, comes_up) in [
            (SandboxPhase::Provisioning, true),
            (SandboxPhase::Starting, true),
            (SandboxPhase::Ready, false),
            (SandboxPhase::Stopping, false),
            (SandboxPhase::Error, false),
        ] {
            let row = row(phase, 1_000);
            assert!(!is_due(&row, 300_999));
            assert_eq!(is_due(&row, 301_000), comes_up, "{phase:?}");
        }
    }

    #[test]
    fn ready_in_time_clears_the_deadline_for_good_and_ready_too_late_is_taken_back() {
        let mut in_time = row(SandboxPhase::Ready, 0);
        reconcile_readiness(&mut in_time, 299_999);
        assert_eq!((in_time.phase(), deadline(&in_time)), (SandboxPhase::Ready, 0));
        in_time.set_phase(SandboxPhase::Provisioning, "False", "DependenciesNotReady", "", 0);
        assert!(!is_due(&in_time, i64::MAX), "nothing arms it again");

        let mut late = row(SandboxPhase::Ready, 0);
        reconcile_readiness(&mut late, 300_000);
        assert_eq!((late.phase(), late.ready_reason()), (SandboxPhase::Provisioning, "ProvisioningDeadlineElapsed"));
        assert!(is_due(&late, 300_000));
    }

    #[test]
    fn with_the_remedy_a_row_that_falls_from_ready_is_waited_for_again() {
        let (reported, remedied) = (Remedies::NONE, Remedies::NONE.with(Remedy::DeadlineAfterReady));
        for (before, after, remedies, expected) in [
            (SandboxPhase::Ready, SandboxPhase::Provisioning, reported, 0),
            (SandboxPhase::Ready, SandboxPhase::Provisioning, remedied, 301_000),
            (SandboxPhase::Stopped, SandboxPhase::Provisioning, remedied, 0),
            (SandboxPhase::Ready, SandboxPhase::Stopping, remedied, 0),
            (SandboxPhase::Ready, SandboxPhase::Error, remedied, 0),
        ] {
            let mut r = row(after, 0);
            r.status_mut().provisioning.as_mut().unwrap().deadline_ms = 0;
            rearm(&mut r, before, remedies, 1_000);
            assert_eq!(deadline(&r), expected, "{before:?} -> {after:?}");
        }
        let mut late = row(SandboxPhase::Provisioning, 0);
        let attempt = late.status_mut().provisioning.as_mut().unwrap();
        (attempt.deadline_ms, attempt.timeout_time_ms) = (0, 300_000);
        rearm(&mut late, SandboxPhase::Ready, remedied, 301_000);
        assert_eq!(deadline(&late), 0, "an attempt that has timed out is over");
        let mut armed = row(SandboxPhase::Provisioning, 0);
        rearm(&mut armed, SandboxPhase::Ready, remedied, 1_000);
        assert_eq!(deadline(&armed), 300_000, "an armed deadline stands");
    }

    #[test]
    fn an_expired_row_is_an_error_whose_compute_is_reclaimed_until_that_is_done() {
        let mut r = row(SandboxPhase::Starting, 0);
        expire(&mut r, 300_000);
        assert_eq!(r.error_kind(), Some(ErrorKind::TimedOut { cleanup_done: false }));
        assert!(wants_reclaim(&r, 300_000));
        r.status_mut().provisioning.as_mut().unwrap().cleanup_retry_time_ms = 335_000;
        assert!(!wants_reclaim(&r, 334_999) && wants_reclaim(&r, 335_000));
        r.status_mut().provisioning.as_mut().unwrap().cleanup_completed_time_ms = 1;
        assert!(!wants_reclaim(&r, i64::MAX));
    }

    #[test]
    fn what_came_of_a_reclaim_is_noted_whoever_wrote_the_row_meanwhile_unless_it_is_another_attempt() {
        let mut claimed = row(SandboxPhase::Starting, 0);
        expire(&mut claimed, 300_000);
        let mut later = claimed.clone();
        later.meta_mut().resource_version += 3;
        assert!(is_reclaimed_by(&later, &claimed));
        let mut started = row(SandboxPhase::Starting, 400_000);
        started.status_mut().provisioning.as_mut().unwrap().attempt_id = "another".into();
        assert!(!is_reclaimed_by(&started, &claimed), "a start came in between");
        reclaimed(&mut later, Some("it does not end"), 310_000);
        assert!(!wants_reclaim(&later, 314_999) && wants_reclaim(&later, 315_000), "it is tried again");
        reclaimed(&mut later, None, 320_000);
        assert_eq!(later.error_kind(), Some(ErrorKind::TimedOut { cleanup_done: true }));
        assert!(!is_reclaimed_by(&later, &claimed), "it is done");
    }

    #[test]
    fn only_the_first_rejection_extends_the_deadline() {
        let mut r = row(SandboxPhase::Starting, 0);
        extend_for_rejection(&mut r, 100_000);
        assert_eq!(deadline(&r), 400_000);
        extend_for_rejection(&mut r, 200_000);
        assert_eq!(deadline(&r), 400_000);
    }
}
