//! StartSandbox: durable intent under the next identity, then the driver, then the binding. It does not wait for Ready.

use std::sync::Arc;
use std::time::Duration;

use tonic::{Code, Status};
use tracing::warn;

use crate::pb::compute::{self, StartSandboxRequest, StopSandboxRequest};
use crate::pb::openshell::{Sandbox, SandboxPhase};

use super::admission::{self, Start};
use super::configuration;
use super::core::{Gateway, driver_status, is_about, is_definite_refusal, store_status};
use super::create::{driver_sandbox, next_identity};
use super::deadline;
use super::locks::Held;
use super::phases;
use super::record::{ErrorKind, GENERATION_ID, RUNTIME_IDENTITY, Row, TOKEN_ID, new_attempt};
use super::recover::{Failed, restored};
use super::rows::{By, accepted};
use super::service::refused;
use super::stop::stop_request;

/// How often a running start looks at its deadline.
const DEADLINE_POLL: Duration = Duration::from_secs(1);
/// Phases in which a start may still be bound to its compute.
pub(crate) const BINDABLE: [SandboxPhase; 3] =
    [SandboxPhase::Starting, SandboxPhase::Provisioning, SandboxPhase::Ready];

/// A row that was told to start: a new attempt. The stored main process stays, as the tombstone of the run before.
fn starting(row: &mut Sandbox, now_ms: i64) {
    row.begin_epoch();
    row.set_phase(SandboxPhase::Starting, "False", "Starting", "the sandbox was told to start", now_ms);
    let attempt = new_attempt(now_ms);
    row.start_attempt.clone_from(&attempt.attempt_id);
    let status = row.status_mut();
    status.provisioning = Some(attempt);
    status.configuration_admission = Some(configuration::pending());
    status.exit_code = None;
    (status.restart_count, status.next_restart_time_ms) = (0, 0);
}

/// The driver call that starts this row.
pub(crate) fn start_request(row: &Sandbox, launch_authentication: &str) -> StartSandboxRequest {
    StartSandboxRequest {
        sandbox_id: row.id().into(),
        sandbox_name: row.name().into(),
        launch_authentication: launch_authentication.into(),
        generation_id: row.annotation(GENERATION_ID).into(),
        expected_runtime_identity: row.annotation(RUNTIME_IDENTITY).into(),
        lifecycle_epoch: row.issued_epoch,
    }
}

impl Gateway {
    /// Starts a sandbox and returns its row, Starting or already further.
    pub(crate) async fn start(self: &Arc<Self>, workspace: &str, name: &str) -> Result<Sandbox, Status> {
        let failed = |e| store_status("start sandbox", e);
        let named = self.rows.store.sandbox_named(workspace, name).map_err(failed)?;
        let named = named.ok_or_else(|| refused("start", name, "", admission::not_found(name).into()))?;
        let id = named.id().to_owned();
        if named.error_kind() == Some(ErrorKind::TimedOut { cleanup_done: false }) {
            // The cleanup holds the gate for as long as it takes; waiting for it would only look like a start.
            self.admit_start(&named)?;
        }
        let gate = self.gates.lock(&id).await;
        let mut lock = self.mutations.lock(&id).await;
        let mut previous = self.reread("start", &id, name)?;
        let mut admitted = self.admit_start(&previous)?;
        if admitted == Start::IfEmpty {
            // A create holds the gate until it is over; so what the driver shows now is nobody's work in progress.
            drop(lock);
            let empty = self.shows_empty(&previous).await;
            lock = self.mutations.lock(&id).await;
            previous = self.reread("start", &id, name)?;
            admitted = match self.admit_start(&previous)? {
                Start::IfEmpty if !empty => {
                    return Err(refused("start", name, &id, admission::cannot_start(previous.phase()).into()));
                }
                admitted => admitted,
            };
        }
        let transition = match admitted {
            Start::Running => {
                accepted("start", &previous);
                return Ok(previous);
            }
            Start::IfEmpty => {
                let begin = |row: &mut Sandbox| starting(row, self.rows.now_ms());
                self.rows.admit("start", &id, previous.version(), begin).map_err(failed)?
            }
            Start::Begin => {
                let begin = |row: &mut Sandbox| {
                    next_identity(&mut row.meta_mut().annotations);
                    starting(row, self.rows.now_ms());
                };
                self.rows.admit("start", &id, previous.version(), begin).map_err(failed)?
            }
            Start::Redrive if previous.start_in_flight() => {
                accepted("start", &previous);
                previous.clone()
            }
            Start::Redrive => {
                // The attempt before was settled by a refusal: this accepted start is a new one.
                let again = |row: &mut Sandbox| row.start_attempt = uuid::Uuid::new_v4().to_string();
                self.rows.admit("start", &id, previous.version(), again).map_err(failed)?
            }
        };
        drop(lock);
        let gateway = self.clone();
        let work = async move { gateway.drive_start(transition, previous, gate).await };
        self.carry_out("start", work).await
    }

    fn admit_start(&self, row: &Sandbox) -> Result<Start, Status> {
        admission::start(self.config.remedies, row).map_err(|r| refused("start", row.name(), row.id(), r.into()))
    }

    /// Does the driver show, now, that the compute of this row is off and empty?
    async fn shows_empty(&self, row: &Sandbox) -> bool {
        let live = self.live(row.id(), row.name()).await.ok().flatten();
        live.is_some_and(|live| {
            let derived = phases::derive_phase(live.status.as_ref(), self.config.remedies);
            is_about(&live, row.id()) && (phases::is_off_and_empty(&live) || derived == SandboxPhase::Stopped)
        })
    }

    /// Carries an admitted start out.
    pub(crate) async fn drive_start(
        self: &Arc<Self>,
        transition: Sandbox,
        previous: Sandbox,
        _gate: Held,
    ) -> Result<Sandbox, Status> {
        self.noting(transition.id(), self.start_compute(&transition, &previous)).await
    }

    async fn start_compute(&self, transition: &Sandbox, previous: &Sandbox) -> Result<Sandbox, Status> {
        let id = transition.id();
        let Some(result) = self.start_within_deadline(transition, previous).await else {
            return Err(Status::deadline_exceeded("start sandbox failed: the provisioning deadline passed"));
        };
        let identity = match result {
            Ok(identity) => identity,
            Err(status) => {
                let refused_start = is_definite_refusal(status.code());
                let failed = Failed { transition, previous, expected_stopped: false, refused_start };
                self.recover_failed_lifecycle(failed).await;
                return Err(driver_status("start", &status));
            }
        };
        let bound = self.bind_runtime("start", id, transition.annotation(GENERATION_ID), &identity, &BINDABLE).await;
        if bound.is_err() {
            self.compensate_start(transition, previous).await;
        }
        bound
    }

    /// Calls the driver until it answers (`Some`) or the row's provisioning deadline has passed (`None`).
    async fn start_within_deadline(&self, transition: &Sandbox, previous: &Sandbox) -> Option<Result<String, Status>> {
        let call = self.start_or_recreate(transition, previous);
        let mut call = std::pin::pin!(call);
        loop {
            tokio::select! {
                biased;
                result = &mut call => return Some(result),
                () = tokio::time::sleep(DEADLINE_POLL) => {
                    let row = self.rows.get(transition.id()).ok().flatten();
                    let expired = row.is_some_and(|row| {
                        deadline::is_due(&row, self.rows.now_ms())
                            || matches!(row.error_kind(), Some(ErrorKind::TimedOut { .. }))
                    });
                    if expired {
                        return None;
                    }
                }
            }
        }
    }

    /// Starts the compute. After a timed-out attempt it may be gone for good: then it is made anew from the stored spec.
    async fn start_or_recreate(&self, transition: &Sandbox, previous: &Sandbox) -> Result<String, Status> {
        let request = start_request(transition, transition.annotation(TOKEN_ID));
        let timed_out = matches!(previous.error_kind(), Some(ErrorKind::TimedOut { .. }));
        match self.driver().start_sandbox(request).await {
            Ok(reply) => Ok(reply.into_inner().runtime_identity),
            Err(status) if timed_out && status.code() == Code::NotFound => {
                let request = compute::CreateSandboxRequest { sandbox: Some(driver_sandbox(transition)) };
                Ok(self.driver().create_sandbox(request).await?.into_inner().runtime_identity)
            }
            Err(status) => Err(status),
        }
    }

    /// Undoes a start whose row has gone elsewhere meanwhile.
    async fn compensate_start(&self, transition: &Sandbox, previous: &Sandbox) {
        let id = transition.id();
        let request = StopSandboxRequest { lifecycle_epoch: 0, ..stop_request(transition) };
        if let Err(status) = self.driver().stop_sandbox(request).await {
            warn!(error = %status.message(), sandbox_id = %id, "compute of an undone start was not stopped");
        }
        let _lock = self.mutations.lock(id).await;
        let restore = |row: &mut Sandbox| restored(row, previous);
        if let Err(error) = self.rows.update(By::Worker, "restore", id, transition.version(), restore) {
            warn!(%error, sandbox_id = %id, "the row of an undone start was not restored");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::record::{ADMISSION_PENDING, AUTH_EPOCH};
    use super::*;

    #[test]
    fn an_accepted_start_arms_a_new_attempt_and_keeps_the_main_process_as_tombstone() {
        let mut row = Sandbox::default();
        row.set_phase(SandboxPhase::Completed, "False", "MainProcessCompleted", "", 0);
        row.status_mut().exit_code = Some(0);
        row.status_mut().main_process_instance_id = "i1".into();
        next_identity(&mut row.meta_mut().annotations);
        starting(&mut row, 1_000);
        assert_eq!((row.phase(), row.annotation(AUTH_EPOCH)), (SandboxPhase::Starting, "1"));
        assert_eq!((row.issued_epoch, row.epoch_floor), (1, 1));
        let status = row.status.as_ref().unwrap();
        let attempt = status.provisioning.as_ref().unwrap();
        assert_eq!((attempt.deadline_ms, &attempt.attempt_id), (301_000, &row.start_attempt));
        assert_eq!(status.configuration_admission.as_ref().unwrap().state, ADMISSION_PENDING);
        assert_eq!((status.exit_code, status.main_process_instance_id.as_str()), (None, "i1"));
    }
}
