//! The gRPC face of the driver.
use super::error::DriverError;
use super::names::is_dns_label;
use super::{Driver, create};
use crate::pb::compute::compute_driver_server::ComputeDriver;
use crate::pb::compute::*;
use std::sync::Arc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status};

/// The service; one driver behind any number of connections.
#[derive(Clone)]
pub(super) struct Service(pub(super) Arc<Driver>);

type Reply<T> = Result<Response<T>, Status>;

/// A sandbox id stands in label selectors, so nothing else may come in under its name.
fn id_of(id: &str) -> Result<&str, Status> {
    match id {
        "" => Err(Status::invalid_argument("sandbox_id is empty")),
        id if is_dns_label(id) => Ok(id),
        id => Err(Status::invalid_argument(format!("sandbox_id {id:?} is not a DNS label"))),
    }
}
fn sandbox_of(sandbox: Option<DriverSandbox>) -> Result<DriverSandbox, Status> {
    sandbox.ok_or_else(|| Status::invalid_argument("sandbox is missing"))
}
/// Failures of reads are the driver's own, whatever the API server said.
fn internal(e: DriverError) -> Status {
    Status::internal(e.to_string())
}

#[tonic::async_trait]
impl ComputeDriver for Service {
    type WatchSandboxesStream = ReceiverStream<Result<WatchSandboxesEvent, Status>>;

    async fn get_capabilities(&self, _: Request<GetCapabilitiesRequest>) -> Reply<GetCapabilitiesResponse> {
        Ok(Response::new(GetCapabilitiesResponse {
            driver_name: "kubernetes".into(),
            driver_version: env!("CARGO_PKG_VERSION").into(),
            default_image: self.0.config.default_image.clone(),
            gateway_manages_lifecycle: false,
            supports_sandbox_authentication: true,
            driver_reports_runtime_readiness: false,
        }))
    }

    async fn validate_sandbox_create(
        &self,
        request: Request<ValidateSandboxCreateRequest>,
    ) -> Reply<ValidateSandboxCreateResponse> {
        create::validate(&self.0.config, &sandbox_of(request.into_inner().sandbox)?)?;
        Ok(Response::new(ValidateSandboxCreateResponse {}))
    }

    async fn get_sandbox(&self, request: Request<GetSandboxRequest>) -> Reply<GetSandboxResponse> {
        let request = request.into_inner();
        let id = id_of(&request.sandbox_id)?;
        let found = self.0.find(id).await.map_err(|e| internal(e.into()))?;
        let snapshot = match found.first() {
            Some(sandbox) => self.0.snapshot(sandbox).await,
            None => None,
        };
        let sandbox = snapshot.ok_or_else(|| Status::not_found(format!("sandbox {id} does not exist")))?;
        Ok(Response::new(GetSandboxResponse { sandbox: Some(sandbox) }))
    }

    async fn list_sandboxes(&self, _: Request<ListSandboxesRequest>) -> Reply<ListSandboxesResponse> {
        let sandboxes = self.0.snapshots().await.map_err(internal)?;
        Ok(Response::new(ListSandboxesResponse { sandboxes }))
    }

    async fn create_sandbox(&self, request: Request<CreateSandboxRequest>) -> Reply<CreateSandboxResponse> {
        let sandbox = sandbox_of(request.into_inner().sandbox)?;
        let runtime_identity = self.0.create_sandbox(&sandbox).await?.to_string();
        Ok(Response::new(CreateSandboxResponse { runtime_identity }))
    }

    async fn stop_sandbox(&self, request: Request<StopSandboxRequest>) -> Reply<StopSandboxResponse> {
        let request = request.into_inner();
        self.0.stop_sandbox(id_of(&request.sandbox_id)?, &request.sandbox_name, request.lifecycle_epoch).await?;
        Ok(Response::new(StopSandboxResponse {}))
    }

    async fn start_sandbox(&self, request: Request<StartSandboxRequest>) -> Reply<StartSandboxResponse> {
        let request = request.into_inner();
        id_of(&request.sandbox_id)?;
        let runtime_identity = self.0.start_sandbox(&request).await?.to_string();
        Ok(Response::new(StartSandboxResponse { runtime_identity }))
    }

    async fn delete_sandbox(&self, request: Request<DeleteSandboxRequest>) -> Reply<DeleteSandboxResponse> {
        let request = request.into_inner();
        let deleted = self.0.delete_sandbox(id_of(&request.sandbox_id)?, &request.sandbox_name).await?;
        Ok(Response::new(DeleteSandboxResponse { deleted }))
    }

    async fn watch_sandboxes(&self, _: Request<WatchSandboxesRequest>) -> Reply<Self::WatchSandboxesStream> {
        let receiver = self.0.watch_sandboxes().await.map_err(internal)?;
        Ok(Response::new(ReceiverStream::new(receiver)))
    }

    async fn ensure_workspace(&self, request: Request<EnsureWorkspaceRequest>) -> Reply<EnsureWorkspaceResponse> {
        self.0.ensure_workspace(&request.into_inner().workspace).await?;
        Ok(Response::new(EnsureWorkspaceResponse {}))
    }

    async fn delete_workspace(&self, request: Request<DeleteWorkspaceRequest>) -> Reply<DeleteWorkspaceResponse> {
        self.0.delete_workspace(&request.into_inner().workspace).await?;
        Ok(Response::new(DeleteWorkspaceResponse {}))
    }
}
