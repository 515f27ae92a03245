//! After a driver call whose result is unknown: ask the driver what is there, and decide what the row becomes.

use std::time::Duration;

use tonic::{Code, Status};
use tracing::warn;

use crate::pb::compute::DriverSandbox;
use crate::pb::openshell::{Sandbox, SandboxPhase};
use crate::remedy::{Remedies, Remedy};

use super::core::{Gateway, is_about};
use super::phases;
use super::record::{AUTH_EPOCH, Row, TOKEN_ID};
use super::rows::By;
use super::snapshot::Context;
use super::store::StoreError;

/// How long the driver may take to say what is there.
const GET_LIMIT: Duration = Duration::from_secs(10);

/// What becomes of a row whose stop or start ended with an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recovery {
    /// The transition stays: the user tries again, or the next start of the gateway does.
    Leave,
    /// The observed state is applied.
    Apply,
    /// The row goes back to what it was before the request.
    Restore,
}

/// Judges what the driver shows after a failed transition. `expected_stopped`: it was a stop.
///
/// `None` stands for everything that shows nothing: not found, another sandbox, no status, an error, no answer. A
/// resource whose marker names a stop is on its way, too (remedy `snapshot-carries-epoch`): as reported, the row of a stop
/// that took too long goes back to Ready while the resource goes on to suspend.
pub fn recovery(snapshot: Option<&DriverSandbox>, expected_stopped: bool, remedies: Remedies) -> Recovery {
    let Some((snapshot, observed)) = snapshot.and_then(|s| Some((s, s.status.as_ref()?))) else {
        return Recovery::Leave;
    };
    let marked = snapshot.origin.as_ref().is_some_and(|origin| origin.operation == "stop")
        && remedies.has(Remedy::SnapshotCarriesEpoch);
    let on_its_way = expected_stopped && (marked || phases::confirms_stopping(observed));
    if on_its_way || phases::reports_runtime_restart(observed) {
        return Recovery::Leave;
    }
    let derived = phases::derive_phase(Some(observed), remedies);
    let stopped = derived == SandboxPhase::Stopped || phases::confirms_stopped(observed);
    if derived == SandboxPhase::Error || stopped == expected_stopped { Recovery::Apply } else { Recovery::Restore }
}

/// A row as it was before a request. While a start may still be in flight, the row also keeps what that start is
/// recognised by: its attempt, and the identity under which its supervisor will say hello. The epoch of what was asked is
/// spent, but snapshots from before it count again.
pub(crate) fn restored(row: &mut Sandbox, previous: &Sandbox) {
    let issued_epoch = row.issued_epoch;
    let start_attempt = std::mem::take(&mut row.start_attempt);
    let identity = [AUTH_EPOCH, TOKEN_ID].map(|key| (key.to_owned(), row.annotation(key).to_owned()));
    *row = Sandbox { start_attempt, issued_epoch, ..previous.clone() };
    if row.start_in_flight() {
        row.meta_mut().annotations.extend(identity.into_iter().filter(|(_, value)| !value.is_empty()));
    }
}

/// A lifecycle transition that met a driver error.
pub(crate) struct Failed<'a> {
    /// The row as the transition's first write left it.
    pub(crate) transition: &'a Sandbox,
    /// The row before.
    pub(crate) previous: &'a Sandbox,
    /// It was a stop.
    pub(crate) expected_stopped: bool,
    /// The driver definitely refused a start: nothing is in flight any more.
    pub(crate) refused_start: bool,
}

impl Gateway {
    /// Looks at the compute and settles the row; errors are logged, since the request already has one to report.
    pub(crate) async fn recover_failed_lifecycle(&self, failed: Failed<'_>) {
        if let Err(error) = self.try_recover(&failed).await {
            warn!(%error, sandbox_id = %failed.transition.id(), "the row of a failed request was not settled");
        }
    }

    async fn try_recover(&self, failed: &Failed<'_>) -> Result<(), StoreError> {
        let transition = failed.transition;
        let id = transition.id();
        let observed = tokio::time::timeout(GET_LIMIT, self.live(id, transition.name())).await;
        let observed = match observed {
            Ok(Ok(Some(snapshot))) if is_about(&snapshot, id) => Some(snapshot),
            _ => None,
        };
        let _lock = self.mutations.lock(id).await;
        let judged = recovery(observed.as_ref(), failed.expected_stopped, self.config.remedies);
        let written = match (judged, &observed) {
            (Recovery::Apply, Some(snapshot)) => {
                let cx = self.snapshot_context(id)?;
                self.apply_snapshot(By::Recovery, transition, snapshot, &cx)
            }
            (Recovery::Restore, _) => {
                let restore = |row: &mut Sandbox| {
                    if failed.refused_start {
                        row.start_attempt.clear();
                    }
                    restored(row, failed.previous);
                };
                self.rows.update(By::Recovery, "restore", id, transition.version(), restore)
            }
            _ => Ok(transition.clone()),
        };
        if let Err(error) = written {
            match error {
                // Somebody has written since; the row is theirs.
                StoreError::Conflict { .. } | StoreError::NotFound { .. } => {}
                other => return Err(other),
            }
        }
        if failed.refused_start
            && let Some(row) = self.rows.get(id)?
            && row.start_attempt == transition.start_attempt
            && row.start_in_flight()
        {
            let settle = |row: &mut Sandbox| row.start_attempt.clear();
            self.rows.update(By::Recovery, "start-refused", id, row.version(), settle)?;
        }
        Ok(())
    }

    /// After a failed delete: what is still there comes back, what is gone is removed.
    pub(crate) async fn recover_failed_delete(&self, deleting: &Sandbox, previous: &Sandbox) {
        let id = deleting.id();
        let observed = match tokio::time::timeout(GET_LIMIT, self.live(id, deleting.name())).await {
            Ok(observed) => observed,
            Err(_) => Err(Status::deadline_exceeded("no answer")),
        };
        let _lock = self.mutations.lock(id).await;
        let settled = match observed {
            Ok(Some(snapshot)) if is_about(&snapshot, id) => self.snapshot_context(id).and_then(|cx| {
                let cx = Context { recovers_delete: true, ..cx };
                self.apply_snapshot(By::Recovery, deleting, &snapshot, &cx).map(drop)
            }),
            Err(status) if status.code() == Code::NotFound => {
                self.sessions.disconnect(id);
                self.rows.delete_at("delete", id, deleting.version())
            }
            _ => {
                let restore = |row: &mut Sandbox| restored(row, previous);
                self.rows.update(By::Recovery, "restore", id, deleting.version(), restore).map(drop)
            }
        };
        if let Err(error) = settled {
            warn!(%error, sandbox_id = %id, "the row of a failed delete was not settled");
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::pb::compute::{DriverCondition, DriverSandboxStatus, SnapshotOrigin};

    use super::*;

    fn status(conditions: &[(&str, &str, &str)]) -> DriverSandbox {
        let conditions = conditions
            .iter()
            .map(|(kind, status, reason)| DriverCondition {
                r#type: (*kind).into(),
                status: (*status).into(),
                reason: (*reason).into(),
                ..Default::default()
            })
            .collect();
        let status = Some(DriverSandboxStatus { conditions, ..Default::default() });
        DriverSandbox { status, ..Default::default() }
    }

    #[test]
    fn what_the_driver_shows_decides_what_becomes_of_a_failed_stop_or_start() {
        use Recovery::*;
        let stopped = status(&[("Suspended", "True", "PodTerminated")]);
        let exited = status(&[("Ready", "False", "ContainerExited")]);
        let stopping = status(&[("Ready", "False", "Starting"), ("Suspended", "False", "PodTerminating")]);
        let restart = status(&[("Ready", "False", "ContainerRuntimeRestart")]);
        let ready = status(&[("Ready", "True", "DependenciesReady")]);
        let failed = status(&[("Ready", "False", "PodFailed")]);
        let marked = status(&[("Bootstrapping", "True", ""), ("Ready", "False", "DependenciesNotReady")]);
        let table = [
            ("stopped", Some(&stopped), Apply, Restore),
            ("exited", Some(&exited), Apply, Apply),
            ("stopping", Some(&stopping), Leave, Apply),
            ("runtime restart", Some(&restart), Leave, Leave),
            ("ready", Some(&ready), Restore, Apply),
            ("failed", Some(&failed), Apply, Apply),
            ("marked as bootstrapping", Some(&marked), Restore, Apply),
            ("nothing", None, Leave, Leave),
        ];
        for (name, observed, of_stop, of_start) in table {
            let reported = Remedies::as_reported();
            assert_eq!(recovery(observed, true, reported), of_stop, "failed stop, {name}");
            assert_eq!(recovery(observed, false, reported), of_start, "failed start, {name}");
        }
        let empty = DriverSandbox::default();
        assert_eq!(recovery(Some(&empty), true, Remedies::as_reported()), Leave, "no status shows nothing");
    }

    #[test]
    fn a_marked_stop_is_on_its_way_for_who_reads_the_marker() {
        let conditions = status(&[("Bootstrapping", "True", ""), ("Ready", "False", "DependenciesNotReady")]);
        let origin = |operation: &str| SnapshotOrigin { operation: operation.into(), ..Default::default() };
        let marked = |operation: &str| DriverSandbox { origin: Some(origin(operation)), ..conditions.clone() };
        let (reported, reads) = (Remedies::as_reported(), Remedies::as_reported().with(Remedy::SnapshotCarriesEpoch));
        for (operation, of_stop, remedies, expected) in [
            ("stop", true, reported, Recovery::Restore),
            ("stop", true, reads, Recovery::Leave),
            ("stop", false, reads, Recovery::Apply),
            ("restart", true, reads, Recovery::Restore),
        ] {
            assert_eq!(recovery(Some(&marked(operation)), of_stop, remedies), expected, "{operation} {of_stop}");
        }
    }

    #[test]
    fn a_restored_row_is_the_old_one_but_still_knows_the_start_in_flight() {
        let mut previous = Sandbox::default();
        previous.set_phase(SandboxPhase::Stopped, "False", "Stopped", "", 0);
        previous.meta_mut().annotations.insert(TOKEN_ID.into(), "first".into());
        let mut row = previous.clone();
        row.set_phase(SandboxPhase::Starting, "False", "Starting", "", 0);
        row.meta_mut().annotations.insert(TOKEN_ID.into(), "second".into());
        row.start_attempt = "attempt".into();

        let mut open = row.clone();
        restored(&mut open, &previous);
        assert_eq!((open.phase(), open.start_attempt.as_str()), (SandboxPhase::Stopped, "attempt"));
        assert_eq!(open.annotation(TOKEN_ID), "second", "its supervisor will say hello with this one");

        row.start_attempt.clear();
        (row.issued_epoch, row.epoch_floor) = (4, 4);
        restored(&mut row, &previous);
        assert_eq!((row.issued_epoch, row.epoch_floor), (4, 0), "the next operation must not have this one's epoch");
        row.issued_epoch = 0;
        assert_eq!(row, previous);
    }
}
