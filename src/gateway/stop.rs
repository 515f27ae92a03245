//! StopSandbox: durable intent first, then the driver, then the result; once accepted, no client can strand it.

use std::sync::Arc;

use tonic::Status;

use crate::pb::compute::StopSandboxRequest;
use crate::pb::openshell::{Sandbox, SandboxPhase};

use super::admission::{self, Stop};
use super::core::{Gateway, driver_status, store_status};
use super::locks::Held;
use super::record::Row;
use super::recover::Failed;
use super::rows::{By, accepted};
use super::service::refused;

/// A row that was told to stop.
fn stopping(row: &mut Sandbox, now_ms: i64) {
    row.set_phase(SandboxPhase::Stopping, "False", "Stopping", "the sandbox was told to stop", now_ms);
    row.status_mut().exit_code = None;
    row.start_attempt.clear();
    row.begin_epoch();
}

/// The driver call that stops this row.
pub(crate) fn stop_request(row: &Sandbox) -> StopSandboxRequest {
    StopSandboxRequest {
        sandbox_id: row.id().into(),
        sandbox_name: row.name().into(),
        lifecycle_epoch: row.issued_epoch,
    }
}

/// A row whose compute has stopped.
pub(crate) fn stopped(row: &mut Sandbox, now_ms: i64) {
    row.set_phase(SandboxPhase::Stopped, "False", "Stopped", "the sandbox is stopped", now_ms);
}

impl Gateway {
    /// Stops a sandbox and returns its row, Stopped.
    pub(crate) async fn stop(self: &Arc<Self>, workspace: &str, name: &str) -> Result<Sandbox, Status> {
        let failed = |e| store_status("stop sandbox", e);
        let named = self.rows.store.sandbox_named(workspace, name).map_err(failed)?;
        let id = named.ok_or_else(|| refused("stop", name, "", admission::not_found(name).into()))?.id().to_owned();
        let gate = self.gates.lock(&id).await;
        let lock = self.mutations.lock(&id).await;
        let previous = self.reread("stop", &id, name)?;
        let admitted = admission::stop(self.config.profile, self.config.remedies, &previous)
            .map_err(|r| refused("stop", name, &id, r.into()))?;
        let transition = match admitted {
            Stop::AtRest => {
                let row = if previous.start_in_flight() {
                    // The accepted stop ends whatever start was still open.
                    let settle = |row: &mut Sandbox| row.start_attempt.clear();
                    self.rows.admit("stop", &id, previous.version(), settle).map_err(failed)?
                } else {
                    accepted("stop", &previous);
                    previous
                };
                self.sessions.disconnect(&id);
                return Ok(row);
            }
            Stop::Begin => {
                let begin = |row: &mut Sandbox| stopping(row, self.rows.now_ms());
                self.rows.admit("stop", &id, previous.version(), begin).map_err(failed)?
            }
            Stop::Redrive => {
                accepted("stop", &previous);
                previous.clone()
            }
        };
        drop(lock);
        let gateway = self.clone();
        let work = async move { gateway.drive_stop(transition, previous, gate).await };
        self.carry_out("stop", work).await
    }

    /// Carries an admitted stop out.
    pub(crate) async fn drive_stop(
        self: &Arc<Self>,
        transition: Sandbox,
        previous: Sandbox,
        _gate: Held,
    ) -> Result<Sandbox, Status> {
        self.noting(transition.id(), self.stop_compute(&transition, &previous)).await
    }

    async fn stop_compute(&self, transition: &Sandbox, previous: &Sandbox) -> Result<Sandbox, Status> {
        let id = transition.id();
        if let Err(status) = self.driver().stop_sandbox(stop_request(transition)).await {
            let failed = Failed { transition, previous, expected_stopped: true, refused_start: false };
            self.recover_failed_lifecycle(failed).await;
            return Err(driver_status("stop", &status));
        }
        let failed = |e| store_status("stop sandbox", e);
        let _lock = self.mutations.lock(id).await;
        let row = match self.rows.get(id).map_err(failed)? {
            Some(row) if row.phase() == SandboxPhase::Stopped => row,
            Some(row) if row.phase() == SandboxPhase::Stopping => {
                let change = |row: &mut Sandbox| stopped(row, self.rows.now_ms());
                self.rows.update(By::Worker, "stopped", id, row.version(), change).map_err(failed)?
            }
            _ => return Err(Status::aborted("sandbox lifecycle changed while stop completed")),
        };
        self.sessions.disconnect(id);
        Ok(row)
    }

    /// The row as it is once gate and lock are held. The caller's name must still be its name.
    pub(crate) fn reread(&self, op: &str, id: &str, name: &str) -> Result<Sandbox, Status> {
        let read = self.rows.get(id).map_err(|e| store_status(&format!("{op} sandbox"), e))?;
        let row = read.ok_or_else(|| refused(op, name, id, admission::not_found(name).into()))?;
        if row.name() != name {
            let renamed = Status::aborted(format!("sandbox was renamed to {} while {op} waited", row.name()));
            return Err(refused(op, name, id, renamed));
        }
        Ok(row)
    }
}
