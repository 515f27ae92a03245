//! The sweep: every minute the rows are compared with what the driver has, one by one and freshly read.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tonic::{Code, Status};
use tracing::{Instrument, info, info_span, warn};

use crate::pb::compute::snapshot_origin::Desired;
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

/// Sweeps in a row that must find a row the same way before something is done about it.
const SWEEPS: u32 = 2;
/// Time that these sweeps must span.
const SPAN_MS: i64 = 59_000;

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

/// Work that a row waits for and that nobody does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Forgotten {
    /// It is Stopping, and its compute runs with no mark of a stop, or has come to rest without one.
    Stop,
    /// It is Starting, and its compute is off and empty.
    Start,
    /// It is Deleting, and its compute is there and not ending.
    Delete,
}

/// Does the compute show nothing of the stop, start or delete that the row waits for? The call that should have begun it
/// has met no driver, or one that did not survive it. A driver marks the resource first, so work in progress shows; an
/// automatic restart has a loop of its own.
pub fn forgotten(row: &Sandbox, live: &DriverSandbox) -> Option<Forgotten> {
    let runs_on = live.origin.as_ref().is_some_and(|o| o.desired() == Desired::Running && o.operation != "stop");
    match row.phase() {
        // Off and empty without this stop, by a suspension of the driver's own, say: what it tells is from before the stop.
        SandboxPhase::Stopping => (runs_on || phases::is_off_and_empty(live)).then_some(Forgotten::Stop),
        SandboxPhase::Starting => {
            (!row.is_automatic_restart() && phases::is_off_and_empty(live)).then_some(Forgotten::Start)
        }
        SandboxPhase::Deleting => live.status.as_ref().is_some_and(|s| !s.deleting).then_some(Forgotten::Delete),
        _ => None,
    }
}

/// How a sweep found a row: its epoch and its phase.
type Found = (u64, SandboxPhase);

/// Rows that the last sweeps found the same way: how, how often in a row, and since when.
#[derive(Debug, Default)]
pub(crate) struct Sightings(Mutex<BTreeMap<String, (Found, u32, i64)>>);

impl Sightings {
    /// One more sweep has looked at a row, and found it at this epoch and in this phase, or not as it was looked for
    /// (`None`). True once [`SWEEPS`] sweeps in a row that span at least [`SPAN_MS`] found it so; the count then starts anew.
    fn found(&self, id: &str, as_found: Option<Found>, now_ms: i64) -> bool {
        let mut found = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(as_found) = as_found else {
            found.remove(id);
            return false;
        };
        let first = (as_found, 0, now_ms);
        let sighting = found.entry(id.into()).or_insert(first);
        if sighting.0 != as_found {
            *sighting = first;
        }
        sighting.1 += 1;
        let confirmed = sighting.1 >= SWEEPS && now_ms - sighting.2 >= SPAN_MS;
        if confirmed {
            found.remove(id);
        }
        confirmed
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
    async fn sweep_present(self: &Arc<Self>, listed: &DriverSandbox, started_ms: i64) -> Result<(), SweepError> {
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

    async fn sweep_apply(
        self: &Arc<Self>,
        read: &Sandbox,
        live: &DriverSandbox,
        started_ms: i64,
    ) -> Result<(), SweepError> {
        let id = read.id();
        let _lock = self.mutations.lock(id).await;
        let unchanged = |row: &Sandbox| row.version() == read.version() && !touched_since(row, started_ms);
        let Some(row) = self.rows.get(id)?.filter(unchanged) else { return Ok(()) };
        let cx = self.snapshot_context(id)?;
        let row = self.apply_snapshot(By::Sweep, &row, live, &cx)?;
        self.settle_empty(&row, live)?;
        Ok(self.redrive(row, live)?)
    }

    /// Drives a stop, start or delete that nobody works on, as a user's repeated request would (remedy `sweep-redrives`).
    fn redrive(self: &Arc<Self>, row: Sandbox, live: &DriverSandbox) -> Result<(), StoreError> {
        let forgotten = forgotten(&row, live).filter(|_| self.config.remedies.has(Remedy::SweepRedrives));
        let as_found = forgotten.map(|_| (row.issued_epoch, row.phase()));
        if !self.forgotten.found(row.id(), as_found, self.rows.now_ms()) {
            return Ok(());
        }
        let (Some(forgotten), Some(gate)) = (forgotten, self.gates.try_lock(row.id())) else { return Ok(()) };
        if self.is_worked_on_elsewhere(row.id())? {
            // A slow driver, whose replica waits for it.
            return Ok(());
        }
        info!(sandbox_id = %row.id(), ?forgotten, "driving what was forgotten");
        let gateway = self.clone();
        tokio::spawn(async move {
            let driven = match forgotten {
                Forgotten::Stop => gateway.drive_stop(row.clone(), row, gate).await.map(drop),
                Forgotten::Start => gateway.drive_start(row.clone(), row, gate).await.map(drop),
                Forgotten::Delete => gateway.noting(row.id(), gateway.redrive_delete(&row, gate)).await.map(drop),
            };
            if let Err(status) = driven {
                warn!(error = %status.message(), "what was forgotten could not be done");
            }
        });
        Ok(())
    }

    /// A Provisioning row that the sweeps keep finding over an empty backend has nobody left who would bring it up (remedy
    /// `sweep-settles-empty-provisioning`). The caller holds the mutation lock.
    fn settle_empty(&self, row: &Sandbox, live: &DriverSandbox) -> Result<(), SweepError> {
        let (id, now_ms) = (row.id(), self.rows.now_ms());
        let empty = row.phase() == SandboxPhase::Provisioning
            && phases::is_off_and_empty(live)
            && self.config.remedies.has(Remedy::SweepSettlesEmptyProvisioning);
        if !self.empty.found(id, empty.then_some((row.issued_epoch, row.phase())), now_ms) {
            return Ok(());
        }
        // A request that runs knows better: the next sweep looks again.
        let Some(_gate) = self.gates.try_lock(id) else { return Ok(()) };
        if self.is_worked_on_elsewhere(id)? {
            return Ok(());
        }
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

    use crate::pb::compute::snapshot_origin::Workload;
    use crate::pb::compute::{DriverSandboxStatus, SnapshotOrigin};
    use crate::pb::openshell::Provisioning as Attempt;

    use super::super::record::MAIN_PROCESS_FAILED;
    use super::*;

    fn row(phase: SandboxPhase, reason: &str) -> Sandbox {
        let mut row = Sandbox::default();
        row.set_phase(phase, "False", reason, "", 0);
        row
    }

    #[test]
    fn what_is_found_of_a_row_counts_at_the_second_sweep_in_a_row_a_minute_apart() {
        let sightings = Sightings::default();
        let found = |id, epoch: Option<u64>, now_ms| sightings.found(id, epoch.map(|e| (e, Stopping)), now_ms);
        assert!(!found("a", Some(1), 0));
        assert!(!found("a", None, 60_000), "in between it was not so");
        assert!(!found("a", Some(1), 120_000));
        assert!(!found("b", Some(1), 180_000), "each row counts for itself");
        assert!(!found("a", Some(1), 121_000), "too soon after the first");
        assert!(found("a", Some(1), 180_000));
        assert!(!found("a", Some(1), 240_000), "and then anew");
        assert!(!found("a", Some(2), 300_000), "another operation counts for itself");
        assert!(found("a", Some(2), 360_000));
        assert!(!found("c", Some(1), 0));
        assert!(!sightings.found("c", Some((1, Deleting)), 60_000), "another phase counts for itself, too");
        assert!(sightings.found("c", Some((1, Deleting)), 120_000));
    }

    #[test]
    fn a_row_counts_as_touched_if_it_was_written_after_the_sweep_began() {
        let mut written = Sandbox::default();
        assert!(!touched_since(&written, 0), "nobody knows");
        written.meta_mut().updated_at_ms = 5;
        assert_eq!([4, 5, 6].map(|started_ms| touched_since(&written, started_ms)), [true, false, false]);
    }

    #[test]
    fn what_was_asked_for_is_forgotten_if_the_compute_shows_nothing_of_it() {
        let compute = |desired: Desired, operation: &str, workload: Workload| {
            let origin = SnapshotOrigin {
                desired: desired.into(),
                operation: operation.into(),
                workload: workload.into(),
                ..Default::default()
            };
            DriverSandbox { status: Some(Default::default()), origin: Some(origin), ..Default::default() }
        };
        let running = compute(Desired::Running, "", Workload::Present);
        let created = compute(Desired::Running, "create", Workload::Present);
        let stops = compute(Desired::Running, "stop", Workload::Present);
        let suspends = compute(Desired::Off, "stop", Workload::Present);
        let rest = compute(Desired::Off, "", Workload::Absent);
        let ends = compute(Desired::Off, "", Workload::Present);
        let unread = compute(Desired::Off, "", Workload::Unknown);
        let restarts = compute(Desired::Running, "restart", Workload::Absent);
        let untold = DriverSandbox::default();
        let status = DriverSandboxStatus { deleting: true, ..Default::default() };
        let goes = DriverSandbox { status: Some(status), ..running.clone() };
        let without_origin = DriverSandbox { origin: None, ..running.clone() };
        let table = [
            (Stopping, &running, Some(Forgotten::Stop)),
            (Stopping, &created, Some(Forgotten::Stop)),
            (Stopping, &stops, None),
            (Stopping, &suspends, None),
            (Stopping, &rest, Some(Forgotten::Stop)),
            (Stopping, &ends, None),
            (Stopping, &unread, None),
            (Stopping, &untold, None),
            (Starting, &rest, Some(Forgotten::Start)),
            (Starting, &ends, None),
            (Starting, &unread, None),
            (Starting, &restarts, None),
            (Starting, &running, None),
            (Starting, &untold, None),
            (Deleting, &running, Some(Forgotten::Delete)),
            (Deleting, &created, Some(Forgotten::Delete)),
            (Deleting, &suspends, Some(Forgotten::Delete)),
            (Deleting, &rest, Some(Forgotten::Delete)),
            (Deleting, &without_origin, Some(Forgotten::Delete)),
            (Deleting, &goes, None),
            (Deleting, &untold, None),
            (Stopped, &running, None),
            (Provisioning, &rest, None),
            (Ready, &rest, None),
        ];
        for (n, (phase, live, expected)) in table.into_iter().enumerate() {
            assert_eq!(forgotten(&row(phase, ""), live), expected, "row {n}: {phase:?}");
        }
        let mut automatic = row(Starting, "");
        (automatic.status_mut().restart_count, automatic.status_mut().exit_code) = (1, Some(1));
        assert_eq!(forgotten(&automatic, &rest), None, "it has a loop of its own");
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
