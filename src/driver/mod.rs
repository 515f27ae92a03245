//! The Kubernetes driver: a gRPC `ComputeDriver` that keeps sandboxes as Sandbox resources and their companions.
//!
//! Rules are pure functions ([`markers`], [`convert`], [`names`]); what awaits things calls them. Each operation sends
//! its requests in a fixed order, one after another; only the reads of dependencies go out together.
use crate::BoxError;
use crate::pb::compute::DriverSandbox;
use crate::pb::compute::compute_driver_server::ComputeDriverServer;
use crate::remedy::{Remedies, Remedy};
use error::CallError;
use futures::Stream;
use gates::LifecycleGates;
use kube::api::ListParams;
use kube_calls::{Kube, sandboxes};
use resource::{Sandbox, SandboxVersion};
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::task::JoinSet;
use tonic::transport::server::Connected;

pub mod convert;
mod create;
mod delete;
pub mod error;
mod fences;
mod gates;
mod install;
mod kube_calls;
pub mod markers;
pub mod names;
mod objects;
mod readiness;
mod reconcile;
pub mod resource;
mod service;
mod start;
mod stop;
mod watch;
mod workspace;

#[cfg(test)]
mod tests;

/// Port that a driver listens on, unless it is told another.
pub const DEFAULT_PORT: u16 = 50051;

/// Where sandboxes live.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mode {
    /// All in this one namespace, which exists already.
    Shared {
        /// Its name.
        namespace: String,
    },
    /// One namespace a workspace, `<prefix><workspace>`, made by this driver.
    Managed {
        /// What stands before the workspace's name.
        prefix: String,
    },
}

/// What a driver is told at its start.
#[derive(Clone, Debug)]
pub struct Config {
    /// Which gateway the sandboxes belong to: a label of every object.
    pub gateway_id: String,
    /// Where sandboxes live.
    pub mode: Mode,
    /// Image of a workload that names none.
    pub default_image: String,
    /// Image of supervisor Pods.
    pub supervisor_image: String,
    /// Address that supervisors open their session to.
    pub gateway_endpoint: String,
    /// Namespace of the gateway itself: managed mode copies from it.
    pub gateway_namespace: String,
    /// Image pull Secrets: in shared mode of the namespace itself, in managed mode copied from the gateway's.
    pub image_pull_secrets: Vec<String>,
    /// Fixes that are on.
    pub remedies: Remedies,
}

impl Config {
    /// A driver for this gateway, with default images and addresses.
    pub fn new(gateway_id: impl Into<String>, mode: Mode, remedies: Remedies) -> Self {
        Self {
            gateway_id: gateway_id.into(),
            mode,
            default_image: "ghcr.io/openshell/sandbox:latest".into(),
            supervisor_image: "ghcr.io/openshell/supervisor:latest".into(),
            gateway_endpoint: "http://gateway:8080".into(),
            gateway_namespace: "openshell".into(),
            image_pull_secrets: Vec::new(),
            remedies,
        }
    }
}

/// Serves the driver on the connections of `incoming` until that stream ends.
///
/// Errors: what the gRPC server says when the stream of connections fails.
pub async fn run<IO>(
    config: Config,
    client: kube::Client,
    incoming: impl Stream<Item = io::Result<IO>> + Send + 'static,
) -> Result<(), BoxError>
where
    IO: AsyncRead + AsyncWrite + Connected + Unpin + Send + 'static,
{
    let driver = Arc::new(Driver {
        config,
        kube: Kube::new(client),
        gates: LifecycleGates::default(),
        strangers: reconcile::Strangers::default(),
        tasks: Mutex::new(JoinSet::new()),
    });
    let _tasks_end_with_the_server = AbortTasks(driver.clone());
    let service = ComputeDriverServer::new(service::Service(driver));
    tonic::transport::Server::builder().add_service(service).serve_with_incoming(incoming).await?;
    Ok(())
}

/// One driver process.
struct Driver {
    config: Config,
    kube: Kube,
    gates: LifecycleGates,
    strangers: reconcile::Strangers,
    /// Watches and completions; they end with the driver.
    tasks: Mutex<JoinSet<()>>,
}

struct AbortTasks(Arc<Driver>);

impl Drop for AbortTasks {
    fn drop(&mut self) {
        self.0.tasks.lock().unwrap_or_else(PoisonError::into_inner).abort_all();
    }
}

impl Driver {
    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        while tasks.try_join_next().is_some() {}
        tasks.spawn(task);
    }

    async fn version(&self) -> Result<SandboxVersion, CallError> {
        self.kube.version(self.config.scope()).await
    }

    /// Lists the resources with this sandbox id; one, if all is well.
    async fn find(&self, id: &str) -> Result<Vec<Sandbox>, CallError> {
        self.list(&names::sandbox_selector(&self.config.gateway_id, id)).await
    }
    /// Lists all resources of this gateway.
    async fn find_all(&self) -> Result<Vec<Sandbox>, CallError> {
        self.list(&names::gateway_selector(&self.config.gateway_id)).await
    }
    async fn list(&self, selector: &str) -> Result<Vec<Sandbox>, CallError> {
        let kind = sandboxes(self.version().await?);
        self.kube.list(kind, self.config.scope(), &ListParams::default().labels(selector)).await
    }

    /// The lifecycle epoch that an operation notes on its resource (remedy `snapshot-carries-epoch`); 0: none.
    fn epoch(&self, asked: u64) -> u64 {
        if self.config.remedies.has(Remedy::SnapshotCarriesEpoch) { asked } else { 0 }
    }

    /// The snapshot of this resource with its dependencies as of now.
    async fn snapshot(&self, sandbox: &Sandbox) -> Option<DriverSandbox> {
        let dependencies = self.dependencies(sandbox).await;
        convert::convert(sandbox, dependencies, self.config.remedies)
    }
}

/// Wall clock, milliseconds since the Unix epoch.
pub fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

/// 32 bytes as hex, 244 bits of them random.
fn random_token() -> String {
    format!("{}{}", uuid::Uuid::new_v4().simple(), uuid::Uuid::new_v4().simple())
}
