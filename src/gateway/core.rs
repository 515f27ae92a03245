//! What the parts of one gateway process share.

use std::sync::Arc;

use tokio::sync::{OnceCell, watch};
use tonic::transport::Channel;
use tonic::{Code, Status};
use tracing::{Instrument, warn};

use crate::pb::compute::compute_driver_client::ComputeDriverClient;
use crate::pb::compute::{
    DeleteSandboxRequest, DriverSandbox, GetCapabilitiesRequest, GetCapabilitiesResponse, GetSandboxRequest,
};
use crate::pb::openshell::{Sandbox, SandboxPhase};

use crate::remedy::Remedy;

use super::Config;
use super::locks::KeyedLocks;
use super::record::Row;
use super::rows::{By, Rows};
use super::sessions::Sessions;
use super::snapshot::{self, Context, Verdict};
use super::store::{Store, StoreError};
use super::sweep::Sightings;

/// One gateway process.
pub(crate) struct Gateway {
    pub(crate) config: Config,
    pub(crate) rows: Rows,
    /// Lifecycle gates: taken first, held over a whole driver call.
    pub(crate) gates: KeyedLocks,
    /// Mutation locks: taken second, never held over a driver call.
    pub(crate) mutations: KeyedLocks,
    pub(crate) sessions: Sessions,
    /// Provisioning rows that the last sweeps found off and empty.
    pub(crate) empty: Sightings,
    /// Stopping and Starting rows of whose operation the last sweeps saw nothing.
    pub(crate) forgotten: Sightings,
    /// Under which name this process takes the lease: another one after each start.
    pub(crate) holder: String,
    /// Does it hold the lease?
    pub(crate) holds_lease: watch::Sender<bool>,
    driver: ComputeDriverClient<Channel>,
    capabilities: OnceCell<GetCapabilitiesResponse>,
}

impl Gateway {
    pub(crate) fn new(config: Config, driver: Channel, store: Store) -> Arc<Self> {
        Arc::new(Gateway {
            rows: Rows::new(store, config.profile, config.remedies),
            gates: KeyedLocks::default(),
            mutations: KeyedLocks::of_rows(!config.remedies.has(Remedy::LockPerSandbox)),
            sessions: Sessions::default(),
            empty: Sightings::default(),
            forgotten: Sightings::default(),
            holder: format!("{}/{}", config.replica, uuid::Uuid::new_v4()),
            holds_lease: watch::Sender::new(!config.shared),
            config,
            driver: ComputeDriverClient::new(driver),
            capabilities: OnceCell::new(),
        })
    }

    /// A client of the driver; cheap, all share one channel.
    pub(crate) fn driver(&self) -> ComputeDriverClient<Channel> {
        self.driver.clone()
    }

    /// What the driver can do, asked once a process.
    pub(crate) async fn capabilities(&self) -> Result<&GetCapabilitiesResponse, Status> {
        let ask = async || Ok(self.driver().get_capabilities(GetCapabilitiesRequest {}).await?.into_inner());
        self.capabilities.get_or_try_init(ask).await
    }

    /// What the driver says about a sandbox now.
    pub(crate) async fn live(&self, id: &str, name: &str) -> Result<Option<DriverSandbox>, Status> {
        let request = GetSandboxRequest { sandbox_id: id.into(), sandbox_name: name.into() };
        Ok(self.driver().get_sandbox(request).await?.into_inner().sandbox)
    }

    pub(crate) fn snapshot_context(&self, id: &str) -> Result<Context, StoreError> {
        Ok(Context {
            session_connected: self.session_connected(id)?,
            driver_reports_readiness: self.capabilities.get().is_some_and(|c| c.driver_reports_runtime_readiness),
            remedies: self.config.remedies,
            now_ms: self.rows.now_ms(),
            recovers_delete: false,
        })
    }

    /// Applies a snapshot to the row at exactly this version: one attempt. The caller holds the mutation lock.
    pub(crate) fn apply_snapshot(
        &self,
        by: By,
        row: &Sandbox,
        snapshot: &DriverSandbox,
        cx: &Context,
    ) -> Result<Sandbox, StoreError> {
        if cx.remedies.has(Remedy::UnchangedIsNotWritten) {
            let mut same = row.clone();
            snapshot::apply(&mut same, snapshot, cx);
            if snapshot::is_same(row, &same) {
                return Ok(row.clone());
            }
        }
        if snapshot::verdict(row, snapshot, cx) == Verdict::NotApplied {
            return Ok(row.clone());
        }
        let new = self.rows.update(by, "snapshot", row.id(), row.version(), |row| {
            snapshot::apply(row, snapshot, cx);
        })?;
        if new.phase() == SandboxPhase::Stopped && row.phase() != SandboxPhase::Stopped {
            self.sessions.disconnect(row.id());
        }
        Ok(new)
    }

    /// Carries an accepted request out. The worker goes on even if the request that waits here is dropped; before the fix
    /// `owned-workers` it was part of the request, and ended with it.
    pub(crate) async fn carry_out<T: Send + 'static>(
        &self,
        op: &str,
        work: impl Future<Output = Result<T, Status>> + Send + 'static,
    ) -> Result<T, Status> {
        if !self.config.remedies.has(Remedy::OwnedWorkers) {
            return work.await;
        }
        let worker = tokio::spawn(work.in_current_span());
        worker.await.unwrap_or_else(|e| Err(Status::internal(format!("{op} sandbox failed: its worker ended: {e}"))))
    }

    /// Asks the driver to delete compute that no row stands for any more, unless somebody works on it.
    pub(crate) fn delete_orphan(self: &Arc<Self>, id: &str, name: &str) {
        let Some(gate) = self.gates.try_lock(id) else { return };
        let request = DeleteSandboxRequest { sandbox_id: id.into(), sandbox_name: name.into() };
        let gateway = self.clone();
        tokio::spawn(async move {
            let _gate = gate;
            if let Err(status) = gateway.driver().delete_sandbox(request).await
                && status.code() != Code::NotFound
            {
                warn!(error = %status.message(), "compute of a removed sandbox was not deleted");
            }
        });
    }
}

/// Does a snapshot speak of this sandbox, and does it say anything?
pub(crate) fn is_about(snapshot: &DriverSandbox, id: &str) -> bool {
    snapshot.id == id && snapshot.status.is_some()
}

/// The reply for a store error met by a request.
pub(crate) fn store_status(op: &str, error: StoreError) -> Status {
    match error {
        StoreError::Conflict { current, .. } => {
            Status::aborted(format!("{op} failed due to concurrent modification (current resource_version: {current})"))
        }
        StoreError::NotFound { id } => Status::not_found(format!("sandbox {id} not found")),
        other => Status::internal(format!("{op} failed: {other}")),
    }
}

/// A driver's error as the reply to a lifecycle request: its code kept, its text prefixed.
pub(crate) fn driver_status(op: &str, status: &Status) -> Status {
    Status::new(status.code(), format!("{op} sandbox failed: {}", status.message()))
}

/// Did the driver refuse, so that nothing was begun? Everything else leaves open what has happened.
pub(crate) fn is_definite_refusal(code: Code) -> bool {
    matches!(
        code,
        Code::InvalidArgument
            | Code::NotFound
            | Code::AlreadyExists
            | Code::PermissionDenied
            | Code::Unauthenticated
            | Code::FailedPrecondition
            | Code::OutOfRange
            | Code::Unimplemented
    )
}
