//! DeleteSandbox: durable intent, then the driver. The row goes when the compute is known to be gone.

use std::sync::Arc;
use std::time::Duration;

use tonic::{Code, Status};
use tracing::warn;

use crate::pb::compute::DeleteSandboxRequest;
use crate::pb::openshell::{Sandbox, SandboxPhase, delete_sandbox_response::Outcome};

use crate::remedy::Remedy;

use super::admission::{self, Delete};
use super::core::{Gateway, store_status};
use super::locks::Held;
use super::record::Row;
use super::rows::accepted;
use super::service::refused;
use super::store::StoreError;

/// Attempts at a row that others write too, and at an answer of the driver.
const ATTEMPTS: u32 = 3;
/// Between two attempts at an answer.
const PAUSE: Duration = Duration::from_secs(1);

fn deleting(row: &mut Sandbox, now_ms: i64) {
    row.set_phase(SandboxPhase::Deleting, "False", "Deleting", "the sandbox is being deleted", now_ms);
    row.start_attempt.clear();
}

/// The driver call that deletes the compute of this row.
fn delete_request(row: &Sandbox) -> DeleteSandboxRequest {
    DeleteSandboxRequest { sandbox_id: row.id().into(), sandbox_name: row.name().into() }
}

impl Gateway {
    /// Deletes a sandbox: its row is removed once there is nothing to delete any more, else when the driver says so.
    pub(crate) async fn delete(
        self: &Arc<Self>,
        workspace: &str,
        name: &str,
        allow_missing: bool,
    ) -> Result<Outcome, Status> {
        let named = self.rows.store.sandbox_named(workspace, name).map_err(|e| store_status("delete sandbox", e))?;
        let id = match named {
            Some(row) => row.id().to_owned(),
            None if allow_missing => return Ok(Outcome::AlreadyAbsent),
            None => return Err(refused("delete", name, "", admission::not_found(name).into())),
        };
        let gate = self.gates.lock(&id).await;
        let lock = self.mutations.lock(&id).await;
        let gateway = self.clone();
        let work = async move { gateway.noting(&id, gateway.drive_delete(&id, gate, lock)).await };
        self.carry_out("delete", work).await
    }

    async fn drive_delete(&self, id: &str, _gate: Held, lock: Held) -> Result<Outcome, Status> {
        let failed = |e| store_status("delete sandbox", e);
        let mut attempt = 0;
        let (previous, marked) = loop {
            attempt += 1;
            let Some(previous) = self.rows.get(id).map_err(failed)? else { return Ok(Outcome::Completed) };
            if admission::delete(&previous) == Delete::UnderWay {
                accepted("delete", &previous);
                if !self.config.remedies.has(Remedy::DeletingIsRedriven) {
                    return Ok(Outcome::Accepted);
                }
                // The gate is ours, so nobody is at it: whoever was has not lived to see its end.
                break (previous.clone(), previous);
            }
            let mark = |row: &mut Sandbox| deleting(row, self.rows.now_ms());
            match self.rows.admit("delete", id, previous.version(), mark) {
                Err(StoreError::Conflict { .. }) if attempt < ATTEMPTS => {}
                marked => break (previous, marked.map_err(failed)?),
            }
        };
        // Before rows had locks of their own, this one was held until the driver had answered.
        let held = (!self.config.remedies.has(Remedy::LockPerSandbox)).then_some(lock);
        let deleted = self.driver().delete_sandbox(delete_request(&marked)).await;
        drop(held);
        match deleted {
            Ok(reply) => self.settle_delete(&marked, reply.get_ref().deleted).await.map_err(failed),
            Err(status) => {
                self.recover_failed_delete(&marked, &previous).await;
                Err(Status::internal(format!("delete sandbox failed: {}", status.message())))
            }
        }
    }

    /// Asks the driver once more for the delete of a row that is Deleting already, for a process that did not live to do
    /// it. Nobody waits for an answer who could be told of a failure, so then the row stays as it is.
    pub(super) async fn redrive_delete(&self, row: &Sandbox, _gate: Held) -> Result<Outcome, Status> {
        let reply = self.driver().delete_sandbox(delete_request(row)).await?;
        self.settle_delete(row, reply.get_ref().deleted).await.map_err(|e| store_status("delete sandbox", e))
    }

    /// The driver has deleted the compute of a Deleting row, or (not `deleted`) has found none.
    async fn settle_delete(&self, row: &Sandbox, deleted: bool) -> Result<Outcome, StoreError> {
        let id = row.id();
        if deleted {
            if self.rows.get(id)?.is_none() {
                return Ok(Outcome::Completed);
            }
            // Who watches the driver will hear of it, but that may be another process, whose watch begins too late.
            let ends_it = self.config.remedies.has(Remedy::DeleteEndsWithItsResource);
            if !ends_it || !self.is_gone(row).await {
                return Ok(Outcome::Accepted);
            }
        }
        self.remove_while_deleting(id).await?;
        Ok(Outcome::Completed)
    }

    /// Does the driver say, now, that there is no such compute? A failure says nothing, so it is asked again.
    async fn is_gone(&self, row: &Sandbox) -> bool {
        for attempt in 1..=ATTEMPTS {
            match self.live(row.id(), row.name()).await {
                Ok(_) => return false,
                Err(status) if status.code() == Code::NotFound => return true,
                Err(status) => {
                    warn!(error = %status.message(), attempt, "whether a resource is gone could not be asked")
                }
            }
            if attempt == ATTEMPTS || self.config.remedies.has(Remedy::AsksOnce) {
                break;
            }
            tokio::time::sleep(PAUSE).await;
        }
        false
    }

    /// There is nothing to delete any more: removes the row, unless somebody took it out of Deleting.
    async fn remove_while_deleting(&self, id: &str) -> Result<(), StoreError> {
        let _lock = self.mutations.lock(id).await;
        let mut attempt = 0;
        loop {
            attempt += 1;
            let deleting = |row: &Sandbox| row.phase() == SandboxPhase::Deleting;
            let Some(row) = self.rows.get(id)?.filter(deleting) else { return Ok(()) };
            match self.rows.delete_at("delete", id, row.version()) {
                Err(StoreError::Conflict { .. }) if attempt < ATTEMPTS => {}
                removed => {
                    self.sessions.disconnect(id);
                    return removed;
                }
            }
        }
    }
}
