//! The public gRPC service: requests in, rows and refusals out. What they do is in the files of the operations.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures::Stream;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming};
use tracing::{Instrument, info};

use crate::pb::openshell::open_shell_server::OpenShell;
use crate::pb::openshell::{
    CreateSandboxRequest, DeleteSandboxRequest, DeleteSandboxResponse, GatewayFrame, ListSandboxesRequest,
    ListSandboxesResponse, OpenRelayRequest, OpenRelayResponse, Sandbox, SandboxRef, SandboxResponse, SupervisorFrame,
};

use super::admission;
use super::core::{Gateway, store_status};
use super::create::DEFAULT_WORKSPACE;
use super::record::Row;
use super::sessions;

/// How long a supervisor may take to answer a relayed session.
const RELAY_LIMIT: Duration = Duration::from_secs(30);
/// How often a watch looks at a store that other processes write, too.
const POLL: Duration = Duration::from_secs(1);
/// Frames to a supervisor that may wait to be sent.
const SESSION_BACKLOG: usize = 64;

/// A lifecycle request was refused at admission; hands the refusal on.
pub(crate) fn refused(op: &str, name: &str, id: &str, status: Status) -> Status {
    let code = status.code() as i32;
    info!(op = %op, sandbox_name = %name, sandbox_id = %id, code, detail = %status.message(), "request refused");
    status
}

/// The gateway as a tonic service.
pub(crate) struct Service(pub(crate) Arc<Gateway>);

fn reply(row: Sandbox) -> Response<SandboxResponse> {
    Response::new(SandboxResponse { sandbox: Some(row) })
}

fn workspace(given: &str) -> &str {
    if given.is_empty() { DEFAULT_WORKSPACE } else { given }
}

impl Service {
    fn named(&self, op: &str, workspace_given: &str, name: &str) -> Result<Sandbox, Status> {
        let read = self.0.rows.store.sandbox_named(workspace(workspace_given), name);
        let row = read.map_err(|e| store_status(&format!("{op} sandbox"), e))?;
        row.ok_or_else(|| admission::not_found(name).into())
    }
}

type Replies<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

#[tonic::async_trait]
impl OpenShell for Service {
    async fn create_sandbox(&self, r: Request<CreateSandboxRequest>) -> Result<Response<SandboxResponse>, Status> {
        self.0.create(r.into_inner()).await.map(reply)
    }

    async fn start_sandbox(&self, r: Request<SandboxRef>) -> Result<Response<SandboxResponse>, Status> {
        let r = r.into_inner();
        self.0.start(workspace(&r.workspace), &r.name).await.map(reply)
    }

    async fn stop_sandbox(&self, r: Request<SandboxRef>) -> Result<Response<SandboxResponse>, Status> {
        let r = r.into_inner();
        self.0.stop(workspace(&r.workspace), &r.name).await.map(reply)
    }

    async fn delete_sandbox(
        &self,
        r: Request<DeleteSandboxRequest>,
    ) -> Result<Response<DeleteSandboxResponse>, Status> {
        let r = r.into_inner();
        let outcome = self.0.delete(workspace(&r.workspace), &r.name, r.allow_missing).await?;
        Ok(Response::new(DeleteSandboxResponse { outcome: outcome.into() }))
    }

    async fn get_sandbox(&self, r: Request<SandboxRef>) -> Result<Response<SandboxResponse>, Status> {
        let r = r.into_inner();
        self.named("get", &r.workspace, &r.name).map(reply)
    }

    async fn list_sandboxes(
        &self,
        r: Request<ListSandboxesRequest>,
    ) -> Result<Response<ListSandboxesResponse>, Status> {
        let asked = r.into_inner().workspace;
        let mut sandboxes = self.0.rows.store.sandboxes().map_err(|e| store_status("list sandboxes", e))?;
        let is_asked_for = |row: &Sandbox| row.metadata.as_ref().is_some_and(|m| m.workspace == asked);
        sandboxes.retain(|row| asked.is_empty() || is_asked_for(row));
        Ok(Response::new(ListSandboxesResponse { sandboxes }))
    }

    type WatchSandboxStream = Replies<SandboxResponse>;

    async fn watch_sandbox(&self, r: Request<SandboxRef>) -> Result<Response<Self::WatchSandboxStream>, Status> {
        let r = r.into_inner();
        let row = self.named("watch", &r.workspace, &r.name)?;
        // Nothing is awaited between the read and the subscription, so no commit falls between them.
        let mut changes = self.0.rows.notify.subscribe(row.id());
        let gateway = self.0.clone();
        let stream = async_stream::try_stream! {
            let id = row.id().to_owned();
            let mut sent = row.version();
            yield SandboxResponse { sandbox: Some(row) };
            loop {
                let told = match gateway.config.shared {
                    // Commits of other processes are told by nobody.
                    true => tokio::time::timeout(POLL, changes.recv()).await.unwrap_or(Err(RecvError::Lagged(0))),
                    false => changes.recv().await,
                };
                let row = match told {
                    Ok(Some(row)) => Sandbox::clone(&row),
                    Ok(None) | Err(RecvError::Closed) => break,
                    // Too slow for every commit, or not told: go on with the row as it is now.
                    Err(RecvError::Lagged(_)) => match gateway.rows.get(&id) {
                        Ok(Some(row)) => row,
                        Ok(None) => break,
                        Err(e) => Err(store_status("watch sandbox", e))?,
                    },
                };
                if row.version() > sent {
                    sent = row.version();
                    yield SandboxResponse { sandbox: Some(row) };
                }
            }
        };
        Ok(Response::new(Box::pin(stream)))
    }

    async fn open_relay(&self, r: Request<OpenRelayRequest>) -> Result<Response<OpenRelayResponse>, Status> {
        let r = r.into_inner();
        let row = self.named("relay", &r.workspace, &r.name)?;
        admission::relay(&row)?;
        let unavailable = || Status::unavailable("the supervisor of the sandbox has no session with this gateway");
        let answer = self.0.sessions.open_relay(row.id(), &r.command).ok_or_else(unavailable)?;
        match tokio::time::timeout(RELAY_LIMIT, answer).await {
            Ok(Ok(output)) => Ok(Response::new(OpenRelayResponse { output })),
            Ok(Err(_)) => Err(Status::unavailable("the supervisor's session ended before it answered")),
            Err(_) => Err(Status::deadline_exceeded("the supervisor did not answer within 30 s")),
        }
    }

    type ConnectSupervisorStream = ReceiverStream<Result<GatewayFrame, Status>>;

    async fn connect_supervisor(
        &self,
        r: Request<Streaming<SupervisorFrame>>,
    ) -> Result<Response<Self::ConnectSupervisorStream>, Status> {
        let (outgoing, frames) = mpsc::channel(SESSION_BACKLOG);
        tokio::spawn(sessions::serve(self.0.clone(), r.into_inner(), outgoing).in_current_span());
        Ok(Response::new(ReceiverStream::new(frames)))
    }
}
