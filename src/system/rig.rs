//! The live state of a running world: what steps act on and wait for.
use super::WORKSPACE;
use super::state::Identity;
use crate::client::Client;
use crate::cluster::replay::{Player, Sink};
use crate::cluster::supervisor::Exits;
use crate::gateway::ScriptedDriver;
use crate::gateway::store::Store;
use crate::pb::openshell::{Sandbox, SandboxSpec};
use crate::{BoxError, driver::names};
use futures::Stream;
use indexmap::IndexMap;
use k8s_openapi::api::core::v1::{Pod, PodStatus};
use kube::runtime::watcher::Event;
use photofinish::reading::ObjectState;
use photofinish::system::Live;
use photofinish_apiserver::{ApiServer, Past, Writer};
use photofinish_sim::trace::{Entry, Trace};
use serde_json::Value;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::mpsc;

/// What a sandbox's row says, as the gateway's log tells it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Row {
    /// Id that the gateway gave it.
    pub(super) id: String,
    /// Phase by name; none once the row is gone.
    pub(super) phase: Option<String>,
}

/// The running system.
pub struct Rig {
    client: Client,
    api: Option<ApiServer>,
    driver: Option<ScriptedDriver>,
    supervisors: SupervisorPods,
    exits: Exits,
    /// Rows by sandbox name.
    rows: IndexMap<String, Row>,
    trace: Trace,
    /// Entries of the trace that `rows` knows already.
    seen: usize,
    /// Recorded streams that are being played, by sandbox.
    pub(super) players: IndexMap<String, Player<Writes>>,
    /// What sandboxes were last created from.
    pub(super) specs: IndexMap<String, SandboxSpec>,
    /// What identified a sandbox when the script noted it.
    pub(super) noted: IndexMap<String, Identity>,
    /// The gateway's rows, as they are stored.
    store: Store,
    /// Keeps the gateway's database.
    anchor: rusqlite::Connection,
}

impl Rig {
    pub(super) fn new(trace: Trace, database: rusqlite::Connection, store: Store) -> Rig {
        Rig {
            client: Client::default(),
            api: None,
            driver: None,
            supervisors: SupervisorPods::default(),
            exits: Exits::default(),
            rows: IndexMap::new(),
            trace,
            seen: 0,
            players: IndexMap::new(),
            specs: IndexMap::new(),
            noted: IndexMap::new(),
            store,
            anchor: database,
        }
    }
    pub(super) fn cluster(&mut self, api: ApiServer) {
        self.api = Some(api);
    }
    pub(super) fn scripted(&mut self, driver: ScriptedDriver) -> ScriptedDriver {
        self.driver = Some(driver.clone());
        driver
    }
    /// The script's end of the client.
    pub(super) fn client(&self) -> &Client {
        &self.client
    }
    /// The simulated API server, if there is a cluster.
    pub(super) fn api(&self) -> Option<&ApiServer> {
        self.api.as_ref()
    }
    /// The scripted driver, if that is what the gateway talks to.
    pub(super) fn driver(&self) -> Option<&ScriptedDriver> {
        self.driver.as_ref()
    }
    pub(super) fn supervisors(&self) -> SupervisorPods {
        self.supervisors.clone()
    }
    /// Exits of main processes that supervisors report.
    pub(super) fn exits(&self) -> Exits {
        self.exits.clone()
    }
    /// The row of a sandbox, if there ever was one.
    pub(super) fn row(&mut self, sandbox: &str) -> Option<&Row> {
        self.catch_up();
        self.rows.get(sandbox)
    }
    /// The gateway's database.
    pub(super) fn database(&self) -> &Store {
        &self.store
    }
    /// Somebody else begins to write into the gateway's database, or is done.
    pub(super) fn lock_database(&self, statement: &str) -> Result<(), BoxError> {
        Ok(self.anchor.execute_batch(statement)?)
    }
    /// The row of a sandbox as it is stored now.
    pub(super) fn stored(&self, sandbox: &str) -> Option<Sandbox> {
        self.store.sandbox_named(WORKSPACE, sandbox).ok().flatten()
    }
    /// In words, for messages.
    pub(super) fn phase(&mut self, sandbox: &str) -> &str {
        self.row(sandbox).map_or("unknown to the gateway", |r| r.phase.as_deref().unwrap_or("gone"))
    }
    /// The sandbox's custom resource as it is stored now.
    pub(super) fn resource(&self, sandbox: &str) -> Option<Arc<Value>> {
        let all = self.api()?.store().list("sandboxes", "");
        all.into_iter().find(|o| o["metadata"]["labels"][names::SANDBOX_NAME] == sandbox)
    }

    fn catch_up(&mut self) {
        if self.trace.len() > self.seen {
            let trace = self.trace.clone();
            trace.with(|entries| {
                entries[self.seen..].iter().for_each(|e| self.note(e));
                self.seen = entries.len();
            });
        }
    }
    fn note(&mut self, e: &Entry) {
        let field = |name| e.field(name).unwrap_or_default().to_owned();
        if e.kind != "log" || !e.host.starts_with("gateway") {
        } else if e.text.starts_with("Sandbox phase changed ") {
            let row = Row { id: field("sandbox_id"), phase: Some(field("new_phase")) };
            self.rows.insert(field("sandbox_name"), row);
        } else if e.text.starts_with("request accepted ") && e.field("op") == Some("create") {
            let row = Row { id: field("sandbox_id"), phase: Some("Provisioning".to_owned()) };
            self.rows.insert(field("sandbox_name"), row);
        } else if e.text.starts_with("store commit ") && e.field("phase") == Some("") {
            let id = field("id");
            if let Some(row) = self.rows.values_mut().find(|r| r.id == id) {
                row.phase = None;
            }
        }
    }
}

impl Live for Rig {
    fn oracle(&mut self) -> Option<Box<dyn FnMut()>> {
        let api = self.api.clone()?;
        Some(Box::new(crate::properties::oracle::observe(api, self.trace.clone())))
    }
    fn objects(&self) -> Vec<ObjectState> {
        let past = self.api.iter().flat_map(|api| api.store().past());
        let state = |past: Past| ObjectState {
            revision: past.revision,
            resource: past.resource,
            namespace: past.namespace,
            name: past.name,
            object: past.object.map(Arc::unwrap_or_clone),
        };
        past.map(state).collect()
    }
    fn pending(&self) -> Vec<String> {
        self.client.unanswered().into_iter().map(|id| format!("the reply to the client's call {id}")).collect()
    }
}

/// Where replayed states go: into the store of the simulated API server, as a writer of its own.
pub(super) struct Writes(pub(super) Writer);

impl Sink for Writes {
    fn put(&mut self, object: Value) -> Result<(), BoxError> {
        Ok(self.0.put(object).map(drop)?)
    }
    fn remove(&mut self, object: Value) -> Result<(), BoxError> {
        Ok(self.0.delete(&object).map(drop)?)
    }
}

/// The supervisor Pods of a world without a cluster: the script says which run.
#[derive(Clone, Default)]
pub(super) struct SupervisorPods(Arc<Mutex<Pods>>);

#[derive(Default)]
struct Pods {
    told: Vec<Event<Pod>>,
    sender: Option<mpsc::UnboundedSender<Event<Pod>>>,
    /// Pods made so far: each run of a sandbox has one of its own.
    made: u64,
}

impl SupervisorPods {
    /// What happened so far, then what happens: as a watch that was just opened.
    pub(super) fn stream(&self) -> impl Stream<Item = Event<Pod>> + Unpin + Send + use<> {
        let mut pods = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (sender, receiver) = mpsc::unbounded_channel();
        for event in &pods.told {
            // The receiver is alive: it is in this function.
            let _ = sender.send(event.clone());
        }
        pods.sender = Some(sender);
        tokio_stream::wrappers::UnboundedReceiverStream::new(receiver)
    }
    /// The supervisor Pod of this sandbox runs (a new one), or is gone.
    pub(super) fn run(&self, sandbox_id: &str, runs: bool) {
        let mut pods = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        pods.made += u64::from(runs);
        let mut pod = Pod::default();
        pod.metadata.name = Some(format!("os-supervisor-{sandbox_id}"));
        pod.metadata.namespace = Some(super::NAMESPACE.to_owned());
        pod.metadata.uid = Some(format!("supervisor-{}", pods.made));
        pod.metadata.labels = Some([(names::SANDBOX_ID.to_owned(), sandbox_id.to_owned())].into());
        pod.status = Some(PodStatus { phase: Some("Running".to_owned()), ..PodStatus::default() });
        let event = if runs { Event::Apply(pod) } else { Event::Delete(pod) };
        if let Some(sender) = &pods.sender {
            // A supervisor host that is down hears it when it starts again.
            let _ = sender.send(event.clone());
        }
        pods.told.push(event);
    }
}
