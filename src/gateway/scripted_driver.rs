//! A compute driver without compute: it plays a script of watch events and answers, so that the gateway can be raced
//! alone against a recorded or a written driver stream. The format is told in [`script`].

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::Stream;
use indexmap::{IndexMap, IndexSet};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;
use tokio::time::sleep;
use tonic::transport::Server;
use tonic::transport::server::Connected;
use tonic::{Code, Request, Response, Status};
use tracing::debug;

use crate::BoxError;
use crate::pb::compute::compute_driver_server::{ComputeDriver, ComputeDriverServer};
use crate::pb::compute::watch_sandboxes_event::Payload;
use crate::pb::compute::*;

pub mod script;

use script::{Action, Answer, Entry};
pub use script::{Call, Script, ScriptError};

/// The driver and the handle that steers it: clones share one script and its progress.
#[derive(Clone, Debug)]
pub struct ScriptedDriver {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    /// Counts changes of the state, for those who wait for one.
    changed: watch::Sender<u64>,
}

#[derive(Debug)]
struct State {
    watch: Vec<Entry>,
    /// The next entry of the watch.
    next: usize,
    /// Number of the newest watch; older ones end.
    watches: u64,
    answers: Vec<Answer>,
    released: IndexSet<String>,
    /// What Get and List show, by id.
    truth: IndexMap<String, DriverSandbox>,
    /// Ids by name, from the calls of the gateway.
    ids: IndexMap<String, String>,
    calls: Vec<Answered>,
}

/// A call that was answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answered {
    /// Its kind.
    pub call: Call,
    /// The sandbox's name; empty for a list.
    pub name: String,
    /// With which code.
    pub code: Code,
    /// The lifecycle epoch that a stop or start was asked for; 0 is none, as it is for all others.
    pub lifecycle_epoch: u64,
}

/// Whom a call is about.
#[derive(Clone, Copy, Default)]
struct About<'a> {
    id: &'a str,
    name: &'a str,
    lifecycle_epoch: u64,
}

impl Default for ScriptedDriver {
    /// A driver whose script is empty: every call succeeds, no snapshot comes.
    fn default() -> Self {
        ScriptedDriver::new(Script::default())
    }
}

impl ScriptedDriver {
    /// A driver at the beginning of its script.
    pub fn new(script: Script) -> ScriptedDriver {
        let state = State {
            watch: script.watch,
            next: 0,
            watches: 0,
            answers: script.answers,
            released: IndexSet::new(),
            truth: IndexMap::new(),
            ids: IndexMap::new(),
            calls: Vec::new(),
        };
        ScriptedDriver { shared: Arc::new(Shared { state: Mutex::new(state), changed: watch::Sender::new(0) }) }
    }

    /// Adds a script behind what is left of the present one.
    pub fn feed(&self, script: Script) {
        self.change(|state| {
            state.watch.extend(script.watch);
            state.answers.extend(script.answers);
        });
    }

    /// Serves until `incoming` ends.
    ///
    /// # Errors
    /// If accepting connections fails.
    pub async fn serve<IO>(self, incoming: impl Stream<Item = io::Result<IO>>) -> Result<(), BoxError>
    where
        IO: AsyncRead + AsyncWrite + Connected + Unpin + Send + 'static,
    {
        Server::builder().add_service(ComputeDriverServer::new(self)).serve_with_incoming(incoming).await?;
        Ok(())
    }

    /// Lets all entries and answers go on that wait for this name, now and later.
    pub fn release(&self, name: &str) {
        self.change(|state| state.released.insert(name.into()));
    }

    /// The calls that were answered so far, in the order of their answers.
    pub fn calls(&self) -> Vec<Answered> {
        self.lock().calls.clone()
    }

    /// How many entries of the watch were not played yet.
    pub fn left(&self) -> usize {
        let state = self.lock();
        state.watch.len() - state.next
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change<R>(&self, change: impl FnOnce(&mut State) -> R) -> R {
        let result = change(&mut self.lock());
        self.shared.changed.send_modify(|n| *n += 1);
        result
    }

    /// Waits until the state is as asked.
    async fn until(&self, mut is: impl FnMut(&State) -> bool) {
        let mut changed = self.shared.changed.subscribe();
        while !is(&self.lock()) {
            // The sender lives in `self`, so it cannot be gone.
            let _ = changed.changed().await;
        }
    }

    async fn released(&self, wait: Option<&str>) {
        if let Some(name) = wait {
            self.until(|state| state.released.contains(name)).await;
        }
    }

    /// Answers a call as the script says, or else with `otherwise`.
    async fn answer<T>(
        &self,
        call: Call,
        about: About<'_>,
        otherwise: impl FnOnce(&mut State, Option<String>) -> Result<T, Status>,
    ) -> Result<Response<T>, Status> {
        let About { id, name, lifecycle_epoch } = about;
        let answer = self.change(|state| {
            if !id.is_empty() && !name.is_empty() {
                state.ids.insert(name.into(), id.into());
            }
            let at = state.answers.iter().position(|a| a.call == call)?;
            Some(state.answers.remove(at))
        });
        if let Some(Answer { wait, after, .. }) = &answer {
            self.released(wait.as_deref()).await;
            sleep(*after).await;
        }
        let result = match answer {
            Some(Answer { code, message, .. }) if code != Code::Ok => Err(Status::new(code, message)),
            answer => otherwise(&mut self.lock(), answer.and_then(|a| a.identity)),
        };
        let code = result.as_ref().map_or_else(Status::code, |_| Code::Ok);
        self.change(|state| state.calls.push(Answered { call, name: name.into(), code, lifecycle_epoch }));
        result.map(Response::new)
    }

    /// Plays the next entry for watch number `watch`; `None` when it ends.
    async fn next_event(&self, watch: u64) -> Option<Result<WatchSandboxesEvent, Status>> {
        loop {
            let mut entry = None;
            self.until(|state| {
                entry = state.watch.get(state.next).cloned();
                state.watches != watch || entry.is_some()
            })
            .await;
            let entry = entry?;
            if let Some((call, count)) = entry.on {
                self.until(|state| state.calls.iter().filter(|c| c.call == call).count() >= count).await;
            }
            self.released(entry.wait.as_deref()).await;
            sleep(entry.after).await;
            let payload = {
                let mut state = self.lock();
                if state.watches != watch {
                    return None;
                }
                state.next += 1;
                state.play(entry)
            };
            match payload {
                Ok(None) => {}
                Ok(Some(payload)) => return Some(Ok(WatchSandboxesEvent { payload: Some(payload) })),
                Err(Code::Ok) => return None,
                Err(code) => return Some(Err(Status::new(code, "the script ends the watch here"))),
            }
        }
    }
}

impl State {
    fn id_of(&self, name: &str) -> String {
        self.ids.get(name).cloned().unwrap_or_else(|| name.into())
    }

    fn identified(&self, sandbox: DriverSandbox) -> DriverSandbox {
        if sandbox.id.is_empty() { DriverSandbox { id: self.id_of(&sandbox.name), ..sandbox } } else { sandbox }
    }

    /// What an entry sends, if anything; `Err` ends the watch.
    fn play(&mut self, entry: Entry) -> Result<Option<Payload>, Code> {
        Ok(match entry.action {
            Action::Send(sandbox) => {
                let sandbox = self.identified(sandbox);
                let (operation, bootstrap_phase) = entry.marker;
                debug!(
                    sandbox_id = %sandbox.id, sandbox_name = %sandbox.name, producer = %"script", operation = %operation,
                    bootstrap_phase = %bootstrap_phase, "snapshot sent"
                );
                if !entry.late {
                    self.truth.insert(sandbox.id.clone(), sandbox.clone());
                }
                Some(Payload::Sandbox(SandboxEvent { sandbox: Some(sandbox) }))
            }
            Action::Truth(sandbox) => {
                let sandbox = self.identified(sandbox);
                self.truth.insert(sandbox.id.clone(), sandbox);
                None
            }
            Action::Deleted(name) => {
                let sandbox_id = self.id_of(&name);
                if !entry.late {
                    self.truth.shift_remove(&sandbox_id);
                }
                Some(Payload::Deleted(DeletedEvent { sandbox_id }))
            }
            Action::Platform { name, event } => {
                Some(Payload::PlatformEvent(PlatformEvent { sandbox_id: self.id_of(&name), event }))
            }
            Action::End(code) => return Err(code),
        })
    }
}

type Events = Pin<Box<dyn Stream<Item = Result<WatchSandboxesEvent, Status>> + Send>>;

#[tonic::async_trait]
impl ComputeDriver for ScriptedDriver {
    async fn get_capabilities(
        &self,
        _: Request<GetCapabilitiesRequest>,
    ) -> Result<Response<GetCapabilitiesResponse>, Status> {
        Ok(Response::new(GetCapabilitiesResponse {
            driver_name: "scripted".into(),
            driver_version: env!("CARGO_PKG_VERSION").into(),
            supports_sandbox_authentication: true,
            ..Default::default()
        }))
    }

    async fn validate_sandbox_create(
        &self,
        _: Request<ValidateSandboxCreateRequest>,
    ) -> Result<Response<ValidateSandboxCreateResponse>, Status> {
        Ok(Response::new(ValidateSandboxCreateResponse {}))
    }

    async fn get_sandbox(&self, r: Request<GetSandboxRequest>) -> Result<Response<GetSandboxResponse>, Status> {
        let r = r.into_inner();
        let about = About { id: &r.sandbox_id, name: &r.sandbox_name, ..Default::default() };
        self.answer(Call::Get, about, |state, _| match state.truth.get(&r.sandbox_id) {
            Some(sandbox) => Ok(GetSandboxResponse { sandbox: Some(sandbox.clone()) }),
            None => Err(Status::not_found(format!("sandbox {} not found", r.sandbox_name))),
        })
        .await
    }

    async fn list_sandboxes(
        &self,
        _: Request<ListSandboxesRequest>,
    ) -> Result<Response<ListSandboxesResponse>, Status> {
        self.answer(Call::List, About::default(), |state, _| {
            Ok(ListSandboxesResponse { sandboxes: state.truth.values().cloned().collect() })
        })
        .await
    }

    async fn create_sandbox(
        &self,
        r: Request<CreateSandboxRequest>,
    ) -> Result<Response<CreateSandboxResponse>, Status> {
        let sandbox = r.into_inner().sandbox.unwrap_or_default();
        let made = format!("scripted://{}", sandbox.name);
        let about = About { id: &sandbox.id, name: &sandbox.name, ..Default::default() };
        self.answer(Call::Create, about, |_, identity| {
            Ok(CreateSandboxResponse { runtime_identity: identity.unwrap_or(made) })
        })
        .await
    }

    async fn stop_sandbox(&self, r: Request<StopSandboxRequest>) -> Result<Response<StopSandboxResponse>, Status> {
        let r = r.into_inner();
        let about = About { id: &r.sandbox_id, name: &r.sandbox_name, lifecycle_epoch: r.lifecycle_epoch };
        self.answer(Call::Stop, about, |_, _| Ok(StopSandboxResponse {})).await
    }

    async fn start_sandbox(&self, r: Request<StartSandboxRequest>) -> Result<Response<StartSandboxResponse>, Status> {
        let r = r.into_inner();
        let made = format!("scripted://{}", r.sandbox_name);
        let about = About { id: &r.sandbox_id, name: &r.sandbox_name, lifecycle_epoch: r.lifecycle_epoch };
        self.answer(Call::Start, about, |_, identity| {
            Ok(StartSandboxResponse { runtime_identity: identity.unwrap_or(made) })
        })
        .await
    }

    async fn delete_sandbox(
        &self,
        r: Request<DeleteSandboxRequest>,
    ) -> Result<Response<DeleteSandboxResponse>, Status> {
        let r = r.into_inner();
        let about = About { id: &r.sandbox_id, name: &r.sandbox_name, ..Default::default() };
        self.answer(Call::Delete, about, |state, _| {
            Ok(DeleteSandboxResponse { deleted: state.truth.shift_remove(&r.sandbox_id).is_some() })
        })
        .await
    }

    type WatchSandboxesStream = Events;

    async fn watch_sandboxes(
        &self,
        _: Request<WatchSandboxesRequest>,
    ) -> Result<Response<Self::WatchSandboxesStream>, Status> {
        let driver = self.clone();
        debug!("snapshot stream opened");
        let watch = self.change(|state| {
            state.watches += 1;
            state.watches
        });
        let stream = async_stream::stream! {
            while let Some(event) = driver.next_event(watch).await {
                let ends = event.is_err();
                yield event;
                if ends {
                    break;
                }
            }
        };
        Ok(Response::new(Box::pin(stream)))
    }

    async fn ensure_workspace(
        &self,
        _: Request<EnsureWorkspaceRequest>,
    ) -> Result<Response<EnsureWorkspaceResponse>, Status> {
        Ok(Response::new(EnsureWorkspaceResponse {}))
    }

    async fn delete_workspace(
        &self,
        _: Request<DeleteWorkspaceRequest>,
    ) -> Result<Response<DeleteWorkspaceResponse>, Status> {
        Ok(Response::new(DeleteWorkspaceResponse {}))
    }
}
