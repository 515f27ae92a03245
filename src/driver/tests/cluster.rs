//! A cluster in memory, and what the driver asks of it.
use crate::cluster::controller;
use crate::driver::{Config, Mode, names, run};
use crate::pb::compute::compute_driver_client::ComputeDriverClient;
use crate::pb::compute::*;
use crate::remedy::Remedies;
use futures::{StreamExt, TryStreamExt};
use http_body_util::{BodyExt, Either, Full};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client};
use photofinish_apiserver::{ApiServer, SandboxVersions};
use serde_json::{Value, json};
use std::io;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::task::JoinSet;
use tonic::transport::{Channel, Endpoint};

pub(super) const ID: &str = "5b0c7a52-0000-4000-8000-000000000001";

/// Looks at each request of the driver before the server does. It may refuse it with a status code; [`NEVER`] leaves it
/// without an answer.
type Meddle = Arc<Mutex<Option<Box<dyn FnMut(&str, &ApiServer) -> Option<u16> + Send>>>>;

pub(super) const NEVER: u16 = 0;

/// The options of each deletion, with the request in short.
type Deletions = Arc<Mutex<Vec<(String, Value)>>>;

pub(super) struct Cluster {
    pub(super) api: ApiServer,
    pub(super) driver: ComputeDriverClient<Channel>,
    pub(super) namespace: &'static str,
    /// Name of the sandbox's resource.
    pub(super) resource: &'static str,
    pub(super) version: &'static str,
    requests: Arc<Mutex<Vec<String>>>,
    deletions: Deletions,
    meddle: Meddle,
    /// They end with the cluster.
    _tasks: JoinSet<()>,
}

pub(super) fn managed() -> Mode {
    Mode::Managed { prefix: "os-".into() }
}
pub(super) fn shared() -> Mode {
    Mode::Shared { namespace: "all".into() }
}

impl Cluster {
    pub(super) async fn new(mode: Mode, versions: SandboxVersions, remedies: Remedies) -> Cluster {
        let (namespace, resource) = match mode {
            Mode::Managed { .. } => ("os-team", "demo"),
            Mode::Shared { .. } => ("all", "team--demo"),
        };
        let version = if versions == SandboxVersions::Both { "v1beta1" } else { "v1alpha1" };
        let api = ApiServer::builder().sandbox_versions(versions).build();
        let mut tasks = JoinSet::new();
        let others = Client::new(api.as_client("others"), "default");
        let own = Api::<k8s_openapi::api::core::v1::Namespace>::all(others.clone());
        for name in ["openshell", "all"] {
            let object = serde_json::from_value(json!({"metadata": {"name": name}})).expect("a namespace");
            own.create(&PostParams::default(), &object).await.expect("created");
        }
        let client = others.clone();
        tasks.spawn(async move {
            let profile = match versions {
                SandboxVersions::Both => controller::Profile::V056,
                SandboxVersions::V1alpha1Only => controller::Profile::V046,
            };
            controller::run(client, profile, controller::Config::default()).await.expect("it runs");
        });
        tasks.spawn(kubelet(others));

        let requests = Arc::new(Mutex::new(Vec::new()));
        let (deletions, meddle) = (Deletions::default(), Meddle::default());
        let client = recorded(api.as_client("driver"), requests.clone(), deletions.clone(), meddle.clone());
        let (near, far) = tokio::io::duplex(1 << 16);
        let incoming = tokio_stream::once(Ok::<_, io::Error>(far)).chain(futures::stream::pending());
        let config = Config::new("gw", mode, remedies);
        tasks.spawn(async move { run(config, client, incoming).await.expect("it serves") });
        let near = Arc::new(Mutex::new(Some(hyper_util::rt::TokioIo::new(near))));
        let connector = tower::service_fn(move |_| {
            let io = near.lock().expect("never poisoned").take();
            std::future::ready(io.ok_or(io::Error::from(io::ErrorKind::ConnectionRefused)))
        });
        let channel = Endpoint::from_static("http://driver").connect_with_connector_lazy(connector);
        let driver = ComputeDriverClient::new(channel);
        Cluster { api, driver, namespace, resource, version, requests, deletions, meddle, _tasks: tasks }
    }

    pub(super) async fn v1beta1(mode: Mode) -> Cluster {
        Cluster::new(mode, SandboxVersions::Both, Remedies::as_reported()).await
    }

    /// The driver's requests since the last call, without repeated polls.
    pub(super) fn requests(&self) -> Vec<String> {
        without_polls(std::mem::take(&mut self.requests.lock().unwrap_or_else(PoisonError::into_inner)))
    }

    /// What the driver deleted, with the options that it gave.
    pub(super) fn deletions(&self) -> Vec<(String, Value)> {
        std::mem::take(&mut self.deletions.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(super) async fn create(&mut self) -> Result<String, tonic::Status> {
        let spec = DriverSandboxSpec {
            command: vec!["sleep".into(), "infinity".into()],
            environment: [("B", "2"), ("A", "1")].map(|(k, v)| (k.to_owned(), v.to_owned())).into(),
            launch_authentication: "launch-1".into(),
            workspace_volume: "1Gi".into(),
            generation_id: "generation".into(),
            log_level: "debug".into(),
            ..Default::default()
        };
        let sandbox = DriverSandbox {
            id: ID.into(),
            name: "demo".into(),
            workspace: "team".into(),
            spec: Some(spec),
            ..Default::default()
        };
        let reply = self.driver.create_sandbox(CreateSandboxRequest { sandbox: Some(sandbox) }).await?;
        Ok(reply.into_inner().runtime_identity)
    }
    /// Created, and its bootstrap completed.
    pub(super) async fn create_and_settle(&mut self) -> String {
        let identity = self.create().await.expect("created");
        self.until("the bootstrap completes", |c| c.annotation(names::READINESS) == Some("ready".into())).await;
        self.requests();
        identity
    }
    pub(super) async fn stop(&mut self) -> Result<(), tonic::Status> {
        let request = StopSandboxRequest { sandbox_id: ID.into(), sandbox_name: "demo".into(), ..Default::default() };
        self.driver.stop_sandbox(request).await.map(drop)
    }
    pub(super) async fn start(&mut self, identity: &str, token: &str) -> Result<String, tonic::Status> {
        let request = StartSandboxRequest {
            sandbox_id: ID.into(),
            sandbox_name: "demo".into(),
            launch_authentication: token.into(),
            generation_id: "generation".into(),
            expected_runtime_identity: identity.into(),
            ..Default::default()
        };
        Ok(self.driver.start_sandbox(request).await?.into_inner().runtime_identity)
    }
    pub(super) async fn delete(&mut self) -> Result<bool, tonic::Status> {
        let request = DeleteSandboxRequest { sandbox_id: ID.into(), sandbox_name: "demo".into() };
        Ok(self.driver.delete_sandbox(request).await?.into_inner().deleted)
    }
    pub(super) async fn get(&mut self) -> Result<DriverSandbox, tonic::Status> {
        let request = GetSandboxRequest { sandbox_id: ID.into(), sandbox_name: "demo".into() };
        Ok(self.driver.get_sandbox(request).await?.into_inner().sandbox.expect("a sandbox"))
    }

    /// An object as it is stored.
    pub(super) fn object(&self, plural: &str, name: &str) -> Option<Value> {
        let namespace = if plural == "namespaces" { "" } else { self.namespace };
        self.api.store().get(plural, namespace, name).map(|o| (*o).clone())
    }
    pub(super) fn sandbox(&self) -> Value {
        self.object("sandboxes", self.resource).expect("the sandbox resource exists")
    }
    pub(super) fn annotation(&self, key: &str) -> Option<String> {
        self.sandbox()["metadata"]["annotations"][key].as_str().map(str::to_owned)
    }
    /// Operation and phase of the marker, `stop/releasing`; `None` without one.
    pub(super) fn marker(&self) -> Option<String> {
        let part = |key| self.annotation(key).unwrap_or_default();
        let marked = self.annotation(names::BOOTSTRAPPING).as_deref() == Some("true");
        marked.then(|| format!("{}/{}", part(names::BOOTSTRAP_OPERATION), part(names::BOOTSTRAP_PHASE)))
    }
    /// A client of somebody else.
    pub(super) fn outsider(&self) -> Client {
        Client::new(self.api.as_client("outsider"), "default")
    }
    /// Merges `patch` into the sandbox resource, as somebody else.
    pub(super) async fn patch_sandbox(&self, patch: Value) {
        let path = format!("/apis/agents.x-k8s.io/{}/namespaces/{}/sandboxes", self.version, self.namespace);
        let request = kube::core::Request::new(path)
            .patch(self.resource, &PatchParams::default(), &Patch::Merge(&patch))
            .expect("a request");
        self.outsider().request::<Value>(request).await.expect("patched");
    }
    /// From now on each request of the driver goes through `meddle` first.
    pub(super) fn meddle(&self, meddle: impl FnMut(&str, &ApiServer) -> Option<u16> + Send + 'static) {
        *self.meddle.lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::new(meddle));
    }
    pub(super) fn meddle_no_more(&self) {
        *self.meddle.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Waits, at most ten minutes of the paused clock.
    pub(super) async fn until(&self, what: &str, reached: impl Fn(&Cluster) -> bool) {
        for _ in 0..60_000 {
            if reached(self) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("never: {what}; the resource is {:#}\nrequests: {:#?}", self.sandbox(), self.requests());
    }
}

/// A client whose requests are written down, and may be meddled with, before the server sees them.
fn recorded(api: ApiServer, log: Arc<Mutex<Vec<String>>>, deletions: Deletions, meddle: Meddle) -> Client {
    let service = tower::service_fn(move |request: http::Request<kube::client::Body>| {
        let (api, log, deletions, meddle) = (api.clone(), log.clone(), deletions.clone(), meddle.clone());
        async move {
            let (head, body) = request.into_parts();
            let body = body.collect().await?.to_bytes();
            let value = serde_json::from_slice(&body).unwrap_or_default();
            let line = line(&head, &value);
            if head.method == http::Method::DELETE {
                deletions.lock().unwrap_or_else(PoisonError::into_inner).push((line.clone(), value));
            }
            log.lock().unwrap_or_else(PoisonError::into_inner).push(line.clone());
            let refused = match meddle.lock().unwrap_or_else(PoisonError::into_inner).as_mut() {
                Some(meddle) => meddle(&line, &api),
                None => None,
            };
            if refused == Some(NEVER) {
                std::future::pending::<()>().await;
            }
            if let Some(code) = refused {
                let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": "Meddled"});
                let body = Either::Right(Full::new(bytes::Bytes::from(status.to_string())));
                return Ok(http::Response::builder().status(code).body(body).expect("a response"));
            }
            let request = http::Request::from_parts(head, Full::new(body));
            let response = tower::ServiceExt::oneshot(api, request).await?;
            Ok::<_, tower::BoxError>(response.map(Either::Left))
        }
    });
    Client::new(service, "default")
}

/// A request in short: verb, type, name, and what a patch changes.
fn line(head: &http::request::Parts, body: &Value) -> String {
    let path = head.uri.path();
    let query = head.uri.query().unwrap_or_default();
    let mut parts: Vec<_> = path.split('/').skip(if path.starts_with("/api/") { 3 } else { 4 }).collect();
    if parts.len() > 2 && parts[0] == "namespaces" {
        parts.drain(..2);
    }
    let verb = match head.method.as_str() {
        "GET" if query.contains("watch=") => "WATCH",
        "GET" if parts.len() == 1 => "LIST",
        verb => verb,
    };
    let mut object = parts.join("/").replace(ID, "ID");
    if verb == "POST" {
        let name = body["metadata"]["name"].as_str().unwrap_or_default().replace(ID, "ID");
        object = format!("{object}/{name}");
    }
    if let Some(at) = object.find("-ID-") {
        object.truncate(at + 3); // a generation's name differs each time
        object.push_str("-GEN");
    }
    let what = if verb == "PATCH" { patch_in_short(body) } else { String::new() };
    format!("{verb} {object}{what}")
}

fn patch_in_short(body: &Value) -> String {
    let annotations = &body["metadata"]["annotations"];
    let mut what = String::new();
    if let (Some(operation), Some(phase)) =
        (annotations[names::BOOTSTRAP_OPERATION].as_str(), annotations[names::BOOTSTRAP_PHASE].as_str())
    {
        what += &format!(" {operation}/{phase}");
    } else if let Some(phase) = annotations[names::BOOTSTRAP_PHASE].as_str() {
        what += &format!(" {phase}");
    } else if annotations.get(names::BOOTSTRAPPING).is_some_and(Value::is_null) {
        what += if annotations.get(names::GENERATION).is_some() { " stop completed" } else { " bootstrap completed" };
    } else if annotations.get(names::WORKLOAD_UID).is_some() {
        what += " identities";
    } else if let Some(readiness) = annotations[names::READINESS].as_str() {
        what += &format!(" readiness={readiness}");
    }
    for (field, value) in body["spec"].as_object().into_iter().flatten() {
        what += &if value.is_object() {
            format!(" +{field}")
        } else {
            format!(" {field}={}", value.to_string().replace('"', ""))
        };
    }
    what
}

/// Repetitions of one request, or of two in turn, told once.
fn without_polls(lines: Vec<String>) -> Vec<String> {
    let mut kept: Vec<String> = Vec::new();
    for line in lines {
        let n = kept.len();
        let single = line.starts_with("GET pods") && n >= 1 && kept[n - 1] == line;
        if !single {
            kept.push(line);
        }
        let n = kept.len();
        if n >= 4 && kept[n - 1].starts_with("GET pods") && kept[n - 4..n - 2] == kept[n - 2..] {
            kept.truncate(n - 2);
        }
    }
    kept
}

/// A kubelet, a scheduler and the part of the garbage collector that these tests need.
async fn kubelet(client: Client) {
    let mut pods = pin!(
        watcher::watcher(Api::<Pod>::all(client.clone()), watcher::Config::default())
            .default_backoff()
            .applied_objects()
    );
    let mut sandboxes = pin!(
        watcher::watcher(
            Api::<crate::driver::resource::Sandbox>::all_with(
                client.clone(),
                &crate::driver::resource::SandboxVersion::V1alpha1.api_resource(),
            ),
            watcher::Config::default(),
        )
        .default_backoff()
    );
    loop {
        tokio::select! {
            biased;
            pod = pods.try_next() => if let Ok(Some(pod)) = pod {
                keep(&client, &pod).await;
            },
            event = sandboxes.try_next() => if let Ok(Some(watcher::Event::Delete(gone))) = event {
                let api: Api<Pod> = Api::namespaced(client.clone(), gone.namespace());
                let owned = |p: &Pod| p.metadata.owner_references.iter().flatten().any(|o| o.uid == gone.uid());
                for pod in api.list(&Default::default()).await.expect("listed").items.iter().filter(|p| owned(p)) {
                    let name = pod.metadata.name.as_deref().unwrap_or_default();
                    let _ = api.delete(name, &DeleteParams::default()).await;
                }
            },
        }
    }
}

/// A Pod takes 300 ms to start and 700 ms to end.
async fn keep(client: &Client, pod: &Pod) {
    let name = pod.metadata.name.clone().unwrap_or_default();
    let api: Api<Pod> = Api::namespaced(client.clone(), pod.metadata.namespace.as_deref().unwrap_or_default());
    let spec = pod.spec.clone().unwrap_or_default();
    let phase = pod.status.as_ref().and_then(|s| s.phase.clone()).unwrap_or_default();
    let uid = pod.metadata.uid.clone();
    let finalizers = pod.metadata.finalizers.clone().unwrap_or_default();
    if pod.metadata.deletion_timestamp.is_some() {
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_millis(700)).await;
            // By uid: a Pod of the same name may have come meanwhile.
            let this = Preconditions { uid: uid.clone(), resource_version: None };
            let at_once =
                DeleteParams { grace_period_seconds: Some(0), preconditions: Some(this), ..Default::default() };
            unless_gone(api.delete(&name, &at_once).await);
            let there = api.get_opt(&name).await.expect("read");
            if there.is_some_and(|p| p.metadata.uid == uid) && finalizers.iter().all(|f| f == "foregroundDeletion") {
                let finalized = Patch::Merge(json!({"metadata": {"finalizers": null}}));
                unless_gone(api.patch(&name, &PatchParams::default(), &finalized).await);
            }
        });
    } else if spec.scheduling_gates.is_none_or(|g| g.is_empty()) {
        if spec.node_name.is_none() {
            let target = json!({"kind": "Node", "name": "node"});
            let binding = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": target});
            unless_gone(api.create_subresource::<_, Value>("binding", &name, &PostParams::default(), &binding).await);
        } else if phase == "Pending" {
            tokio::spawn(async move {
                tokio::time::sleep(Duration::from_millis(300)).await;
                let ready = json!([{"type": "Ready", "status": "True"}]);
                let ips = json!([{"ip": "10.0.0.1"}]);
                let status = json!({"phase": "Running", "podIP": "10.0.0.1", "podIPs": ips, "conditions": ready});
                let patch = Patch::Merge(json!({ "status": status }));
                unless_gone(api.patch_status(&name, &PatchParams::default(), &patch).await);
            });
        }
    }
}

/// A Pod that is gone, or was bound already, needs nothing more.
fn unless_gone<T>(result: kube::Result<T>) {
    match result {
        Err(kube::Error::Api(status)) if [404, 409].contains(&status.code) => {}
        result => drop(result.expect("the server does what a kubelet asks")),
    }
}
