//! DeleteSandbox: the resource goes; its companions follow through the garbage collector.
use super::Driver;
use super::error::DriverError;
use super::kube_calls::{CALL_TIMEOUT, PODS, sandboxes};
use super::resource::{Metadata, Sandbox};
use crate::remedy::Remedy;
use kube::api::{DeleteParams, Preconditions};
use std::time::Duration;
use tokio::time::{Instant, sleep};

const POLL: Duration = Duration::from_millis(250);
const LIMIT: Duration = Duration::from_secs(60);

impl Driver {
    /// Deletes the sandbox; false if there was none, or (without the remedy `delete-outlasts-a-conflict`) if it was not
    /// the one that was listed any more.
    ///
    /// Waits up to a minute for the workload Pod to go; whether that was seen makes no difference to the answer.
    #[tracing::instrument(name = "kubernetes.delete_sandbox", skip_all, fields(sandbox_id = id, sandbox_name = name))]
    pub(super) async fn delete_sandbox(&self, id: &str, name: &str) -> Result<bool, DriverError> {
        let _gate = self.gates.enter(id).await;
        let version = self.version().await.map_err(internal)?;
        let patience = Instant::now() + CALL_TIMEOUT;
        let again = || self.config.remedies.has(Remedy::DeleteOutlastsAConflict) && Instant::now() < patience;
        let sandbox = loop {
            let mut found = self.find(id).await.map_err(internal)?;
            if found.is_empty() {
                return Ok(false);
            }
            let sandbox = found.swap_remove(0);
            let as_listed = Preconditions {
                uid: Some(sandbox.uid().to_owned()),
                resource_version: Some(sandbox.resource_version().to_owned()),
            };
            let params = DeleteParams::background().preconditions(as_listed);
            let (ns, resource) = (Some(sandbox.namespace()), sandbox.name());
            match self.kube.delete(sandboxes(version), ns, resource, &params).await {
                Ok(()) => break sandbox,
                Err(e) if e.is_conflict() && again() => tokio::task::yield_now().await,
                Err(e) if e.is_not_found() || e.is_conflict() => return Ok(false),
                Err(e) => return Err(internal(e)),
            }
        };
        let (ns, resource) = (Some(sandbox.namespace()), sandbox.name());
        let deadline = Instant::now() + LIMIT;
        while let Ok(Some(_)) = self.kube.get::<Metadata>(PODS, ns, sandbox.workload_pod()).await {
            if Instant::now() + POLL > deadline {
                tracing::warn!("the workload Pod of a deleted sandbox is still there");
                return Ok(true);
            }
            sleep(POLL).await;
        }
        match self.kube.get::<Sandbox>(sandboxes(version), ns, resource).await {
            Ok(None) => {}
            Ok(Some(_)) => tracing::warn!("a deleted sandbox resource is still there"),
            Err(e) => tracing::warn!(error = %e, "could not confirm that a sandbox resource is gone"),
        }
        Ok(true)
    }
}

/// Failures of a delete, whatever they are, are the driver's own.
fn internal(e: impl std::fmt::Display) -> DriverError {
    DriverError::Message(e.to_string())
}
