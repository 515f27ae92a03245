//! What an earlier process has left behind: transitions that nobody works on any more are driven once more.

use std::sync::Arc;

use tracing::{info, warn};

use crate::pb::openshell::{Sandbox, SandboxPhase};
use crate::remedy::Remedy;

use super::core::Gateway;
use super::record::{ErrorKind, GENERATION_ID, Row};
use super::rows::By;
use super::start::start_request;
use super::stop::{stop_request, stopped};
use super::store::StoreError;

/// Recovers every row in turn, each under its gate. What fails stays for a user's retry.
pub(crate) async fn recover(gateway: &Arc<Gateway>) {
    if !gateway.config.remedies.has(Remedy::StartupRedrives) {
        return;
    }
    if let Err(error) = gateway.rows.store.end_all_work(&gateway.config.replica) {
        warn!(%error, "the notes of an earlier process were not removed");
    }
    let rows = match gateway.rows.store.sandboxes() {
        Ok(rows) => rows,
        Err(error) => {
            warn!(%error, "the rows of an earlier process were not recovered");
            return;
        }
    };
    for row in rows {
        let id = row.id().to_owned();
        let _gate = gateway.gates.lock(&id).await;
        if let Err(error) = gateway.noting(&id, gateway.recover_row(&id)).await {
            warn!(%error, sandbox_id = %id, "a row of an earlier process was not recovered");
        }
    }
}

impl Gateway {
    async fn recover_row(&self, id: &str) -> Result<(), StoreError> {
        let Some(row) = self.rows.get(id)? else { return Ok(()) };
        let is_left = !self.is_worked_on_elsewhere(id)?;
        match row.phase() {
            SandboxPhase::Stopped | SandboxPhase::Completed => self.sessions.disconnect(id),
            SandboxPhase::Error if row.error_kind() == Some(ErrorKind::MainProcessFailed) => {
                self.sessions.disconnect(id);
            }
            SandboxPhase::Stopping if is_left => {
                info!(sandbox_id = %id, "driving an unfinished stop");
                if let Err(status) = self.driver().stop_sandbox(stop_request(&row)).await {
                    warn!(error = %status.message(), sandbox_id = %id, "an unfinished stop failed again");
                    return Ok(());
                }
                let _lock = self.mutations.lock(id).await;
                let change = |row: &mut Sandbox| stopped(row, self.rows.now_ms());
                self.rows.update(By::Startup, "stopped", id, row.version(), change)?;
                self.sessions.disconnect(id);
            }
            SandboxPhase::Starting if is_left => {
                // The launch authentication of the lost start is not kept anywhere; a driver that needs it refuses.
                info!(sandbox_id = %id, "driving an unfinished start");
                match self.driver().start_sandbox(start_request(&row, "")).await {
                    Ok(reply) => {
                        let identity = reply.into_inner().runtime_identity;
                        let allowed = [SandboxPhase::Starting, SandboxPhase::Provisioning, SandboxPhase::Ready];
                        let generation = row.annotation(GENERATION_ID);
                        if let Err(status) = self.bind_runtime("start", id, generation, &identity, &allowed).await {
                            warn!(error = %status.message(), sandbox_id = %id, "a recovered start was not bound");
                        }
                    }
                    Err(status) => {
                        warn!(error = %status.message(), sandbox_id = %id, "an unfinished start failed again");
                    }
                }
            }
            _ => {}
        }
        Ok(())
    }
}
