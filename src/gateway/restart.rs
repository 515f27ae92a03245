//! Automatic restart: a main process that has exited is run again, if the sandbox's policy says so.
//!
//! An exit that is to be made up for leaves the row Starting, with a count and a time. The loop claims the row when its
//! time has come (the time becomes 0, the run gets a new identity), stops what is left of the old run, and starts the new
//! one. Until that start is known to have arrived, a watchdog time stands in the row: whoever holds the lease then claims
//! it again. Stop and delete are admitted all the while; they change the row, and the claim sees it.

use std::sync::Arc;
use std::time::Duration;

use tonic::{Code, Status};
use tracing::{info, warn};

use crate::pb::compute::{DeleteSandboxRequest, StopSandboxRequest};
use crate::pb::openshell::{Sandbox, SandboxPhase};

use super::core::Gateway;
use super::create::next_identity;
use super::locks::Held;
use super::record::{GENERATION_ID, Row, TOKEN_ID, new_attempt};
use super::rows::By;
use super::start::{BINDABLE, start_request};
use super::stop::stop_request;
use super::store::StoreError;

/// Time between two looks at the rows.
const SCAN: Duration = Duration::from_millis(500);
/// A run this long was stable: its end begins a new count.
const STABLE_MS: i64 = 10_000;
/// Wait before the second restart in a row; doubles with each further one.
const BACKOFF_MS: i64 = 1_000;
/// Longest wait.
const LONGEST_BACKOFF_MS: i64 = 180_000;
/// How long the old supervisor may take to end its session.
const DRAIN_MS: i64 = 10_000;
/// When a restart that was begun is taken up again.
const WATCHDOG_MS: i64 = 120_000;
/// Shortest wait after a failed driver call.
const RETRY_MS: i64 = 10_000;

/// Reason of a row whose old run still says goodbye.
const DRAINING: &str = "MainProcessExitDraining";
/// Reason of a row that is restarted at once.
const SCHEDULED: &str = "MainProcessRestartScheduled";
/// Reason of a row that waits for its restart.
const BACKOFF: &str = "MainProcessRestartBackoff";
/// Reason of a row whose compute was gone when it was to be restarted.
const FAILED: &str = "SandboxRestartFailed";

/// Does this policy run a main process again that exited with this code?
pub fn restarts(policy: &str, code: i32) -> bool {
    match policy {
        "Always" => true,
        "OnFailure" => code != 0,
        _ => false,
    }
}

/// Wait before the `count`-th restart in a row, milliseconds.
pub fn delay_ms(count: u32) -> i64 {
    match count {
        0 | 1 => 0,
        // More doublings than these are beyond the longest wait anyway.
        n => (BACKOFF_MS << (n - 2).min(16)).min(LONGEST_BACKOFF_MS),
    }
}

/// How many restarts in a row this exit makes.
pub fn next_count(count: u32, started_ms: i64, now_ms: i64) -> u32 {
    let stable = started_ms != 0 && now_ms - started_ms >= STABLE_MS;
    if stable { 1 } else { count.saturating_add(1) }
}

/// Turns a row whose main process has exited into one that is to be restarted.
pub(crate) fn schedule(row: &mut Sandbox, code: i32, now_ms: i64) {
    let status = row.status_mut();
    let count = next_count(status.restart_count, status.main_process_started_time_ms, now_ms);
    status.restart_count = count;
    status.exit_code = Some(code);
    // 0 would be a claim.
    status.next_restart_time_ms = (now_ms + delay_ms(count)).max(1);
    let message = format!("the main process exited with code {code}");
    row.set_phase(SandboxPhase::Starting, "False", DRAINING, &message, now_ms);
    row.status_mut().provisioning = Some(new_attempt(now_ms + delay_ms(count)));
}

/// The old run has said goodbye: the row tells what it waits for now.
pub(crate) fn drained(row: &mut Sandbox, now_ms: i64) {
    if row.is_automatic_restart() && row.ready_reason() == DRAINING {
        let reason = if row.status_mut().next_restart_time_ms <= now_ms { SCHEDULED } else { BACKOFF };
        row.set_phase(SandboxPhase::Starting, "False", reason, "the main process will be restarted", now_ms);
    }
}

/// Is it time to restart this row? A session of the old run is waited for, but not for ever.
pub fn is_due(row: &Sandbox, session_connected: bool, now_ms: i64) -> bool {
    let at_ms = row.status.as_ref().map_or(0, |s| s.next_restart_time_ms);
    row.is_automatic_restart()
        && at_ms != 0
        && now_ms >= at_ms
        && (!session_connected || row.ready_reason() != DRAINING || now_ms >= at_ms + DRAIN_MS)
}

/// The row as the claim writes it: nobody else restarts it now, and the run has an identity of its own.
fn claimed(row: &mut Sandbox, now_ms: i64) {
    next_identity(&mut row.meta_mut().annotations);
    row.begin_epoch();
    let attempt = new_attempt(now_ms);
    row.start_attempt.clone_from(&attempt.attempt_id);
    let status = row.status_mut();
    status.next_restart_time_ms = 0;
    status.configuration_admission = None;
    status.provisioning = Some(attempt);
}

/// Looks at the rows twice a second, for as long as it is polled.
pub(crate) async fn run(gateway: Arc<Gateway>) {
    loop {
        if let Err(error) = scan(&gateway) {
            warn!(%error, "automatic restarts were not looked for");
        }
        tokio::time::sleep(SCAN).await;
    }
}

fn scan(gateway: &Arc<Gateway>) -> Result<(), StoreError> {
    for row in gateway.rows.sandboxes()?.iter().filter(|row| row.is_automatic_restart()) {
        let id = row.id();
        if is_due(row, gateway.session_connected(id)?, gateway.rows.now_ms())
            && let Some(gate) = gateway.gates.try_lock(id)
        {
            let (gateway, row) = (gateway.clone(), row.clone());
            tokio::spawn(async move { gateway.restart(row, gate).await });
        }
    }
    Ok(())
}

impl Gateway {
    async fn restart(&self, row: Sandbox, _gate: Held) {
        let id = row.id().to_owned();
        let claim = {
            let _lock = self.mutations.lock(&id).await;
            self.rows.update(By::Restart, "restart-claim", &id, row.version(), |row| claimed(row, self.rows.now_ms()))
        };
        let claim = match claim {
            Ok(claim) => claim,
            // Somebody was faster, or the row changed: the next scan looks again.
            Err(StoreError::Conflict { .. } | StoreError::NotFound { .. }) => return,
            Err(error) => return warn!(%error, sandbox_id = %id, "an automatic restart was not claimed"),
        };
        info!(sandbox_id = %id, sandbox_name = %claim.name(), "restarting the main process");
        if let Err(error) = self.restart_claimed(&claim).await {
            warn!(%error, sandbox_id = %id, "an automatic restart was not recorded");
        }
    }

    async fn restart_claimed(&self, claim: &Sandbox) -> Result<(), StoreError> {
        let id = claim.id();
        if let Err(status) = self.driver().stop_sandbox(stop_request(claim)).await {
            return self.restart_failed(claim, &status).await;
        }
        self.sessions.disconnect(id);
        {
            let _lock = self.mutations.lock(id).await;
            let Some(row) = self.rows.get(id)?.filter(|row| is_claim(row, claim)) else { return Ok(()) };
            let arm = |row: &mut Sandbox| {
                row.status_mut().next_restart_time_ms = self.rows.now_ms() + WATCHDOG_MS;
                drained(row, self.rows.now_ms());
            };
            self.rows.update(By::Restart, "restart-watchdog", id, row.version(), arm)?;
        }
        match self.driver().start_sandbox(start_request(claim, claim.annotation(TOKEN_ID))).await {
            Ok(reply) => {
                let identity = reply.into_inner().runtime_identity;
                if let Err(status) =
                    self.bind_runtime("restart", id, claim.annotation(GENERATION_ID), &identity, &BINDABLE).await
                {
                    warn!(error = %status.message(), sandbox_id = %id, "an automatic restart was not bound");
                }
                self.enforce(claim).await
            }
            Err(status) => self.restart_failed(claim, &status).await,
        }
    }

    /// A stop or delete that was accepted while the driver started must not be undone by that start.
    async fn enforce(&self, claim: &Sandbox) -> Result<(), StoreError> {
        let (id, name) = (claim.id(), claim.name());
        let sent = match self.rows.get(id)?.map(|row| row.phase()) {
            Some(SandboxPhase::Stopping | SandboxPhase::Stopped) => {
                let request = StopSandboxRequest { lifecycle_epoch: 0, ..stop_request(claim) };
                self.driver().stop_sandbox(request).await.map(drop)
            }
            Some(SandboxPhase::Deleting) | None => {
                let request = DeleteSandboxRequest { sandbox_id: id.into(), sandbox_name: name.into() };
                self.driver().delete_sandbox(request).await.map(drop)
            }
            Some(_) => Ok(()),
        };
        if let Err(status) = sent {
            warn!(error = %status.message(), sandbox_id = %id, "a restart that came too late was not undone");
        }
        Ok(())
    }

    async fn restart_failed(&self, claim: &Sandbox, status: &Status) -> Result<(), StoreError> {
        let id = claim.id();
        warn!(error = %status.message(), sandbox_id = %id, "an automatic restart failed");
        let _lock = self.mutations.lock(id).await;
        let Some(row) = self.rows.get(id)?.filter(|row| is_claim(row, claim)) else { return Ok(()) };
        let change = |row: &mut Sandbox| {
            let now_ms = self.rows.now_ms();
            if status.code() == Code::NotFound {
                row.set_phase(SandboxPhase::Error, "False", FAILED, "the compute of the sandbox is gone", now_ms);
                row.start_attempt.clear();
            } else {
                let count = row.status_mut().restart_count;
                row.status_mut().next_restart_time_ms = now_ms + delay_ms(count).max(RETRY_MS);
                row.set_phase(SandboxPhase::Starting, "False", BACKOFF, "the restart is tried again", now_ms);
            }
        };
        self.rows.update(By::Restart, "restart-failed", id, row.version(), change).map(drop)
    }
}

/// Is the row still the one that was claimed: nobody stopped, deleted, or claimed it anew?
fn is_claim(row: &Sandbox, claim: &Sandbox) -> bool {
    row.is_automatic_restart() && row.annotation(TOKEN_ID) == claim.annotation(TOKEN_ID)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_says_which_exits_are_made_up_for() {
        for (policy, code, again) in [
            ("Never", 1, false),
            ("", 1, false),
            ("OnFailure", 0, false),
            ("OnFailure", 3, true),
            ("Always", 0, true),
            ("Always", 3, true),
        ] {
            assert_eq!(restarts(policy, code), again, "{policy} {code}");
        }
    }

    #[test]
    fn the_first_restart_is_at_once_and_the_wait_doubles_up_to_three_minutes() {
        let waits: Vec<_> = (1..=10).map(delay_ms).collect();
        assert_eq!(waits, [0, 1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 64_000, 128_000, 180_000]);
        assert_eq!((delay_ms(64), delay_ms(65), delay_ms(u32::MAX)), (180_000, 180_000, 180_000));
    }

    #[test]
    fn a_stable_run_begins_a_new_count() {
        assert_eq!(next_count(4, 1_000, 10_999), 5);
        assert_eq!(next_count(4, 1_000, 11_000), 1);
        assert_eq!(next_count(0, 0, 50_000), 1, "nobody knows when it began");
    }

    fn exited(now_ms: i64) -> Sandbox {
        let mut row = Sandbox::default();
        row.set_phase(SandboxPhase::Ready, "True", "DependenciesReady", "", 0);
        row.status_mut().restart_count = 2;
        schedule(&mut row, 7, now_ms);
        row
    }

    #[test]
    fn an_exit_schedules_the_restart_behind_its_backoff_and_the_goodbye_of_the_old_run() {
        let mut row = exited(5_000);
        assert!(row.is_automatic_restart());
        assert_eq!((row.phase(), row.ready_reason()), (SandboxPhase::Starting, DRAINING));
        let status = row.status.as_ref().unwrap();
        assert_eq!((status.restart_count, status.exit_code, status.next_restart_time_ms), (3, Some(7), 7_000));
        let attempt = status.provisioning.as_ref().unwrap();
        assert_eq!(attempt.deadline_ms, new_attempt(7_000).deadline_ms, "the new run has all of its time");
        assert!(!is_due(&row, false, 6_999) && is_due(&row, false, 7_000));
        assert!(!is_due(&row, true, 16_999) && is_due(&row, true, 17_000), "a session that does not end");
        drained(&mut row, 6_000);
        assert_eq!(row.ready_reason(), BACKOFF);
        assert!(is_due(&row, true, 7_000), "the session is of another run");
    }

    #[test]
    fn the_goodbye_of_the_old_run_tells_what_the_row_waits_for_if_it_waited_for_the_goodbye() {
        for (now_ms, expected) in [(6_999, BACKOFF), (7_000, SCHEDULED)] {
            let mut row = exited(5_000);
            drained(&mut row, now_ms);
            assert_eq!(row.ready_reason(), expected, "{now_ms}");
            drained(&mut row, 8_000);
            assert_eq!(row.ready_reason(), expected, "it has been said");
        }
        let mut stopped = exited(5_000);
        stopped.set_phase(SandboxPhase::Stopping, "False", DRAINING, "", 0);
        drained(&mut stopped, 7_000);
        assert_eq!((stopped.phase(), stopped.ready_reason()), (SandboxPhase::Stopping, DRAINING));
    }

    #[test]
    fn a_claim_has_a_new_identity_and_is_nobody_elses() {
        let mut row = exited(5_000);
        claimed(&mut row, 7_000);
        assert!(!is_due(&row, false, i64::MAX));
        assert!(row.is_automatic_restart() && row.start_in_flight() && !row.annotation(TOKEN_ID).is_empty());
        let claim = row.clone();
        assert!(is_claim(&row, &claim));
        row.set_phase(SandboxPhase::Stopping, "False", "Stopping", "", 0);
        assert!(!is_claim(&row, &claim), "it was stopped");
    }
}
