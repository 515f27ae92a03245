//! The driver's watch: one stream, its events applied strictly one after the other.
//!
//! A snapshot may be older than what the gateway has done since. For some rows that is too dangerous to believe: then
//! the loop waits for the sandbox's running lifecycle request and asks the driver what is true now. All other sandboxes
//! wait with it.

use std::sync::Arc;
use std::time::Duration;

use tonic::Status;
use tracing::{Instrument, debug, info_span, warn};

use crate::pb::compute::{DriverSandbox, WatchSandboxesRequest, watch_sandboxes_event::Payload};
use crate::pb::openshell::{Sandbox, SandboxPhase};
use crate::remedy::Remedy;

use super::Profile;
use super::core::{Gateway, is_about};
use super::phases;
use super::record::{ErrorKind, Row};
use super::rows::By;
use super::snapshot::{self, Context, Verdict};
use super::store::StoreError;

/// Pause before a watch is opened again.
const RECONNECT: Duration = Duration::from_secs(2);

/// Why a snapshot is not believed before the driver was asked again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doubt {
    /// The row is Starting: its start may be past what the snapshot shows.
    Starting,
    /// The snapshot would take the row out of Ready.
    LeavesReady,
    /// The snapshot would take a Stopped row for starting (remedy `stopped-is-revalidated`).
    StartsStopped,
}

/// Must this snapshot be read again before it is applied?
///
/// One that is outdated is not worth a question: the table drops it.
pub fn doubt(row: &Sandbox, snapshot: &DriverSandbox, profile: Profile, cx: &Context) -> Option<Doubt> {
    if snapshot::is_outdated(row, snapshot, cx.remedies) {
        return None;
    }
    match row.phase() {
        SandboxPhase::Starting if cx.remedies.has(Remedy::StartingIsRevalidated) => Some(Doubt::Starting),
        SandboxPhase::Ready if profile.revalidates_exits_from_ready() => {
            let stays = matches!(snapshot::verdict(row, snapshot, cx), Verdict::Phase(SandboxPhase::Ready));
            (!stays).then_some(Doubt::LeavesReady)
        }
        SandboxPhase::Stopped => {
            let starts = snapshot.status.as_ref().is_some_and(phases::confirms_starting);
            (starts && cx.remedies.has(Remedy::StoppedIsRevalidated)).then_some(Doubt::StartsStopped)
        }
        _ => None,
    }
}

/// Without a live snapshot the old one may still be applied, but not to a row that is in the phase that was doubted.
fn applies_unconfirmed(row: &Sandbox, doubt: Doubt) -> bool {
    match row.phase() {
        SandboxPhase::Starting | SandboxPhase::Ready => false,
        SandboxPhase::Stopped => doubt != Doubt::StartsStopped,
        _ => true,
    }
}

/// Keeps the watch open, for ever.
pub(crate) async fn run(gateway: Arc<Gateway>) {
    loop {
        match watch(&gateway).await {
            Ok(()) => debug!("the driver ended its watch"),
            Err(status) => warn!(error = %status.message(), "the driver's watch broke"),
        }
        tokio::time::sleep(RECONNECT).await;
    }
}

async fn watch(gateway: &Arc<Gateway>) -> Result<(), Status> {
    gateway.capabilities().await?;
    let mut events = gateway.driver().watch_sandboxes(WatchSandboxesRequest {}).await?.into_inner();
    debug!("driver watch: opened");
    while let Some(event) = events.message().await? {
        match event.payload {
            Some(Payload::Sandbox(event)) => {
                let Some(snapshot) = event.sandbox else { continue };
                let span = info_span!(
                    "driver_watch.sandbox_updated", sandbox_id = %snapshot.id, sandbox_name = %snapshot.name
                );
                let id = snapshot.id.clone();
                span.in_scope(|| debug!(sandbox_id = %id, sandbox_name = %snapshot.name, "snapshot received"));
                if let Err(error) = gateway.sandbox_updated(snapshot).instrument(span).await {
                    warn!(%error, sandbox_id = %id, "a snapshot of the driver was not applied");
                }
            }
            Some(Payload::Deleted(event)) => {
                let span = info_span!("driver_watch.sandbox_deleted", sandbox_id = %event.sandbox_id);
                if let Err(error) = gateway.sandbox_deleted(&event.sandbox_id).instrument(span).await {
                    warn!(%error, sandbox_id = %event.sandbox_id, "a deletion was not applied");
                }
            }
            // Shown to those who watch the sandbox by a newer API than this one.
            Some(Payload::PlatformEvent(event)) => {
                debug!(sandbox_id = %event.sandbox_id, event = %event.event, "platform event")
            }
            None => debug!("an event of an unknown kind"),
        }
    }
    Ok(())
}

impl Gateway {
    /// Applies one snapshot of the watch. A sandbox without a row is somebody else's, or not stored yet.
    async fn sandbox_updated(&self, event: DriverSandbox) -> Result<(), StoreError> {
        let id = event.id.as_str();
        let lock = self.mutations.lock(id).await;
        let Some(row) = self.rows.get(id)? else {
            if self.config.remedies.has(Remedy::RowsFromSnapshots) {
                self.rows.create(snapshot::row_of(&event))?;
            }
            return Ok(());
        };
        let cx = self.snapshot_context(id)?;
        let Some(doubt) = doubt(&row, &event, self.config.profile, &cx) else {
            return self.apply_observed(By::Snapshot, &row, &event, &cx);
        };
        drop(lock);

        let _gate = self.gates.lock(id).await;
        let live = self.live(id, row.name()).await.ok().flatten().filter(|live| is_about(live, id));
        let _lock = self.mutations.lock(id).await;
        let Some(row) = self.rows.get(id)? else { return Ok(()) };
        let cx = self.snapshot_context(id)?;
        match live {
            Some(live) => self.apply_observed(By::Live, &row, &live, &cx),
            None if applies_unconfirmed(&row, doubt) => self.apply_observed(By::Snapshot, &row, &event, &cx),
            None => {
                debug!(sandbox_id = %id, "a doubtful snapshot was dropped: the driver could not confirm it");
                Ok(())
            }
        }
    }

    /// One attempt at the version just read.
    fn apply_observed(&self, by: By, row: &Sandbox, snapshot: &DriverSandbox, cx: &Context) -> Result<(), StoreError> {
        self.apply_snapshot(by, row, snapshot, cx).map(drop)
    }

    /// The compute is gone: so is the row, whatever it says, unless the deadline's cleanup still tells its story.
    async fn sandbox_deleted(self: &Arc<Self>, id: &str) -> Result<(), StoreError> {
        let _lock = self.mutations.lock(id).await;
        let Some(row) = self.rows.get(id)? else { return Ok(()) };
        if matches!(row.error_kind(), Some(ErrorKind::TimedOut { .. })) {
            return Ok(());
        }
        self.delete_orphan(id, row.name());
        self.sessions.disconnect(id);
        self.rows.delete("deleted", id)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use SandboxPhase::*;

    use crate::pb::compute::{DriverCondition, DriverSandboxStatus, SnapshotOrigin};
    use crate::remedy::Remedies;

    use super::*;

    fn row(phase: SandboxPhase) -> Sandbox {
        let mut row = Sandbox::default();
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
        DriverSandbox { status: Some(DriverSandboxStatus { conditions, ..Default::default() }), ..Default::default() }
    }

    #[test]
    fn a_snapshot_is_doubted_where_the_profile_and_the_remedies_say() {
        let ready = snapshot(&[("Ready", "True", "DependenciesReady")]);
        let starting = snapshot(&[("Bootstrapping", "True", ""), ("Ready", "False", "DependenciesNotReady")]);
        let stopped = snapshot(&[("Suspended", "True", "PodTerminated")]);
        let reported = Remedies::as_reported();
        let f3 = reported.with(Remedy::StoppedIsRevalidated);
        let (new, old) = (Profile::Cc0642fa8, Profile::V012);
        let table = [
            (Starting, &ready, new, reported, Some(Doubt::Starting)),
            (Starting, &ready, old, reported, Some(Doubt::Starting)),
            (Ready, &ready, new, reported, None),
            (Ready, &stopped, new, reported, Some(Doubt::LeavesReady)),
            (Ready, &stopped, old, reported, None),
            (Stopped, &starting, new, reported, None),
            (Stopped, &starting, new, f3, Some(Doubt::StartsStopped)),
            (Stopped, &starting, old, f3, Some(Doubt::StartsStopped)),
            (Stopped, &stopped, new, f3, None),
            (Stopping, &starting, new, f3, None),
            (Provisioning, &stopped, new, f3, None),
        ];
        for (n, (phase, snapshot, profile, remedies, expected)) in table.into_iter().enumerate() {
            let cx = Context { session_connected: true, remedies, ..Default::default() };
            assert_eq!(doubt(&row(phase), snapshot, profile, &cx), expected, "row {n}: {phase:?}");
        }
    }

    #[test]
    fn before_the_fix_a_starting_row_believed_at_once_and_with_epochs_an_outdated_snapshot_is_no_question() {
        let failed = snapshot(&[("Ready", "False", "PodFailed")]);
        let before = Remedies::as_reported().without(Remedy::StartingIsRevalidated);
        let cx = |remedies| Context { remedies, ..Default::default() };
        assert_eq!(doubt(&row(Starting), &failed, Profile::Cc0642fa8, &cx(before)), None);
        let mut starting = row(Starting);
        starting.epoch_floor = 2;
        let origin = SnapshotOrigin { epoch: 1, ..Default::default() };
        let old = DriverSandbox { origin: Some(origin), ..failed };
        let epochs = Remedies::as_reported().with(Remedy::SnapshotCarriesEpoch);
        assert_eq!(doubt(&starting, &old, Profile::Cc0642fa8, &cx(epochs)), None);
        assert_eq!(doubt(&starting, &old, Profile::Cc0642fa8, &Context::default()), Some(Doubt::Starting));
    }

    #[test]
    fn an_unconfirmed_snapshot_never_moves_the_phase_that_it_was_doubted_for() {
        let table = [
            (Starting, Doubt::Starting, false),
            (Ready, Doubt::Starting, false),
            (Provisioning, Doubt::Starting, true),
            (Stopped, Doubt::Starting, true),
            (Ready, Doubt::LeavesReady, false),
            (Stopped, Doubt::LeavesReady, true),
            (Stopped, Doubt::StartsStopped, false),
            (Error, Doubt::StartsStopped, true),
        ];
        for (phase, doubt, expected) in table {
            assert_eq!(applies_unconfirmed(&row(phase), doubt), expected, "{phase:?} {doubt:?}");
        }
    }
}
