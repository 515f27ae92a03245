//! The sweep: every minute the rows are compared with what the driver has, one by one and freshly read.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tonic::{Code, Status};
use tracing::{Instrument, info_span, warn};

use crate::pb::compute::{DriverSandbox, ListSandboxesRequest};
use crate::pb::openshell::{Sandbox, SandboxPhase};
use crate::remedy::Remedy;

use super::core::Gateway;
use super::phases;
use super::record::{COMPUTE_RESOURCE_MISSING, ErrorKind, Row};
use super::rows::By;
use super::store::StoreError;

const INTERVAL: Duration = Duration::from_secs(60);
/// Age below which a row without compute is left alone: its create may still be under way.
const ORPHAN_GRACE_MS: i64 = 300_000;

/// Sweeps in a row that must find a Provisioning row over an empty backend before it is settled.
const EMPTY_SWEEPS: u32 = 2;
/// Time that these sweeps must span.
const EMPTY_GRACE_MS: i64 = 59_000;

/// What becomes of a row whose compute is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Missing {
    /// It stays: it tells how its run ended, or is too young.
    Keep,
    /// It becomes an Error with reason ComputeResourceMissing.
    Error,
    /// It is removed.
    Remove,
}

/// Judges a row that the driver does not know, `now_ms` being the time.
pub fn missing(row: &Sandbox, now_ms: i64) -> Missing {
    use SandboxPhase::*;
    if is_young(row, now_ms) {
        return Missing::Keep;
    }
    match (row.phase(), row.error_kind()) {
        (Completed, _) | (Error, Some(ErrorKind::MainProcessFailed | ErrorKind::TimedOut { .. })) => Missing::Keep,
        (Stopping | Stopped | Starting, _) => Missing::Error,
        _ => Missing::Remove,
    }
}

/// Rows that were found Provisioning over a backend that is off and empty: how often in a row, and since when.
#[derive(Debug, Default)]
pub(crate) struct Empty(Mutex<BTreeMap<String, (u32, i64)>>);

impl Empty {
    /// One more sweep has looked at a row. True once it was found so in [`EMPTY_SWEEPS`] sweeps in a row that span at least
    /// [`EMPTY_GRACE_MS`]; the count then starts anew.
    fn found(&self, id: &str, empty: bool, now_ms: i64) -> bool {
        let mut found = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !empty {
            found.remove(id);
            return false;
        }
        let (times, since_ms) = found.entry(id.into()).or_insert((0, now_ms));
        *times += 1;
        let settled = *times >= EMPTY_SWEEPS && now_ms - *since_ms >= EMPTY_GRACE_MS;
        if settled {
            found.remove(id);
        }
        settled
    }
}

#[derive(Debug, thiserror::Error)]
enum SweepError {
    #[error("driver: {}", .0.message())]
    Driver(#[from] Status),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Sweeps at once and then every minute, for ever.
pub(crate) async fn run(gateway: Arc<Gateway>) {
    let sleeps = gateway.config.remedies.has(Remedy::SweepSleeps);
    loop {
        if !sleeps && let Err(error) = sweep(&gateway).await {
            warn!(%error, "the sweep ended early");
        }
        tokio::time::sleep(INTERVAL).await;
    }
}

async fn sweep(gateway: &Arc<Gateway>) -> Result<(), SweepError> {
    let started_ms = gateway.rows.now_ms();
    gateway.capabilities().await?;
    let listed = gateway.driver().list_sandboxes(ListSandboxesRequest {}).await?.into_inner().sandboxes;
    for snapshot in &listed {
        let span = info_span!("sweep.sandbox", sandbox_id = %snapshot.id, sandbox_name = %snapshot.name);
        gateway.sweep_present(snapshot, started_ms).instrument(span).await?;
    }
    if !gateway.config.remedies.has(Remedy::SweepPrunesMissing) {
        return Ok(());
    }
    for row in gateway.rows.store.sandboxes()? {
        if listed.iter().any(|snapshot| snapshot.id == row.id()) {
            continue;
        }
        let span = info_span!("sweep.sandbox", sandbox_id = %row.id(), sandbox_name = %row.name());
        gateway.sweep_missing(row, started_ms).instrument(span).await?;
    }
    Ok(())
}

fn touched_since(row: &Sandbox, started_ms: i64) -> bool {
    row.metadata.as_ref().is_some_and(|m| m.updated_at_ms > started_ms)
}

impl Gateway {
    /// Applies what the driver says now to a row that nobody has written since the sweep began.
    async fn sweep_present(&self, listed: &DriverSandbox, started_ms: i64) -> Result<(), SweepError> {
        let id = listed.id.as_str();
        let read = {
            let _lock = self.mutations.lock(id).await;
            self.rows.get(id)?
        };
        let Some(read) = read.filter(|row| !touched_since(row, started_ms)) else { return Ok(()) };
        let live = match self.live(id, read.name()).await {
            Ok(live) => live,
            // It went away in between: the next sweep lists it no more.
            Err(status) if status.code() == Code::NotFound => return Ok(()),
            Err(status) => return Err(status.into()),
        };
        let Some(live) = live.filter(|live| live.id == id) else { return Ok(()) };
        self.sweep_apply(&read, &live, started_ms).await
    }

    async fn sweep_apply(&self, read: &Sandbox, live: &DriverSandbox, started_ms: i64) -> Result<(), SweepError> {
        let id = read.id();
        let _lock = self.mutations.lock(id).await;
        let unchanged = |row: &Sandbox| row.version() == read.version() && !touched_since(row, started_ms);
        let Some(row) = self.rows.get(id)?.filter(unchanged) else { return Ok(()) };
        let cx = self.snapshot_context(id)?;
        let row = self.apply_snapshot(By::Sweep, &row, live, &cx)?;
        if cx.remedies.has(Remedy::SweepSettlesEmptyProvisioning) {
            self.settle_empty(&row, live)?;
        }
        Ok(())
    }

    /// A Provisioning row that the sweeps keep finding over an empty backend has nobody left who would bring it up. The
    /// caller holds the mutation lock.
    fn settle_empty(&self, row: &Sandbox, live: &DriverSandbox) -> Result<(), SweepError> {
        let (id, now_ms) = (row.id(), self.rows.now_ms());
        let empty = row.phase() == SandboxPhase::Provisioning && phases::is_off_and_empty(live);
        if !self.empty.found(id, empty, now_ms) {
            return Ok(());
        }
        // A request that runs knows better: the next sweep looks again.
        let Some(_gate) = self.gates.try_lock(id) else { return Ok(()) };
        let settled = |row: &mut Sandbox| {
            let message = "the compute was suspended after it had lost a dependency";
            row.set_phase(SandboxPhase::Stopped, "False", "DependencyFailure", message, now_ms);
            row.start_attempt.clear();
        };
        self.rows.update(By::Sweep, "settle-empty", id, row.version(), settled)?;
        self.sessions.disconnect(id);
        Ok(())
    }

    /// Settles a row that the driver does not list, after asking it once more.
    async fn sweep_missing(self: &Arc<Self>, row: Sandbox, started_ms: i64) -> Result<(), SweepError> {
        let id = row.id();
        if touched_since(&row, started_ms) || is_young(&row, self.rows.now_ms()) {
            return Ok(());
        }
        match self.live(id, row.name()).await {
            Ok(Some(live)) if live.id == id => return self.sweep_apply(&row, &live, started_ms).await,
            Ok(_) => {}
            Err(status) if status.code() == Code::NotFound => {}
            Err(status) => return Err(status.into()),
        }
        let _lock = self.mutations.lock(id).await;
        match missing(&row, self.rows.now_ms()) {
            Missing::Keep => Ok(()),
            Missing::Error => {
                let gone = |row: &mut Sandbox| {
                    let message = "the compute of the sandbox is gone";
                    let now_ms = self.rows.now_ms();
                    row.set_phase(SandboxPhase::Error, "False", COMPUTE_RESOURCE_MISSING, message, now_ms);
                    row.start_attempt.clear();
                };
                self.rows.update(By::Missing, "missing", id, row.version(), gone)?;
                self.sessions.disconnect(id);
                Ok(())
            }
            Missing::Remove => {
                self.rows.delete_at("missing", id, row.version())?;
                self.sessions.disconnect(id);
                self.delete_orphan(id, row.name());
                Ok(())
            }
        }
    }
}

fn is_young(row: &Sandbox, now_ms: i64) -> bool {
    now_ms - row.metadata.as_ref().map_or(0, |m| m.created_at_ms) < ORPHAN_GRACE_MS
}

#[cfg(test)]
mod tests {
    use SandboxPhase::*;

    use crate::pb::openshell::Provisioning as Attempt;

    use super::super::record::MAIN_PROCESS_FAILED;
    use super::*;

    fn row(phase: SandboxPhase, reason: &str) -> Sandbox {
        let mut row = Sandbox::default();
        row.set_phase(phase, "False", reason, "", 0);
        row
    }

    #[test]
    fn a_row_is_settled_at_the_second_sweep_in_a_row_that_finds_it_empty_a_minute_apart() {
        let empty = Empty::default();
        assert!(!empty.found("a", true, 0));
        assert!(!empty.found("a", false, 60_000), "in between it was not");
        assert!(!empty.found("a", true, 120_000));
        assert!(!empty.found("b", true, 180_000), "each row counts for itself");
        assert!(!empty.found("a", true, 121_000), "too soon after the first");
        assert!(empty.found("a", true, 180_000));
        assert!(!empty.found("a", true, 240_000), "and then anew");
    }

    #[test]
    fn a_row_without_compute_is_kept_if_it_tells_an_end_an_error_if_it_was_at_rest_and_else_removed() {
        let mut failed = row(Error, MAIN_PROCESS_FAILED);
        failed.status_mut().exit_code = Some(1);
        let mut timed_out = row(Error, "ProvisioningTimedOut");
        timed_out.status_mut().provisioning = Some(Attempt { timeout_time_ms: 1, ..Default::default() });
        let table = [
            (row(Completed, ""), Missing::Keep),
            (failed, Missing::Keep),
            (timed_out, Missing::Keep),
            (row(Stopping, ""), Missing::Error),
            (row(Stopped, ""), Missing::Error),
            (row(Starting, ""), Missing::Error),
            (row(Provisioning, ""), Missing::Remove),
            (row(Ready, ""), Missing::Remove),
            (row(Error, "PodFailed"), Missing::Remove),
            (row(Deleting, ""), Missing::Remove),
            (row(Unknown, ""), Missing::Remove),
        ];
        for (mut row, expected) in table {
            row.meta_mut().created_at_ms = 1_000;
            assert_eq!(missing(&row, 301_000), expected, "{:?}", row.phase());
            assert_eq!(missing(&row, 300_999), Missing::Keep, "{:?} within the grace", row.phase());
        }
    }
}
