//! What else happened around a session: compaction, a restart, and what controllers did.
//!
//! Some of it the server's own hosts play (namespace controller, garbage collector). What other controllers wrote while a
//! session was recorded (the CA map and ServiceAccount of a new namespace, the scheduler's Event) is taken from the watch
//! lines that show it. Where that is most of a session, [`others`] derives whole requests.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use photofinish_apiserver::actors::{garbage_collector, namespace};
use photofinish_apiserver::{ApiServer, Call, Hooks, Treatment, Verb};
use serde_json::{Value, json};

use crate::compare::Names;
use crate::others;

/// Something that happens at a moment of a session, in milliseconds since its start.
pub(crate) struct Happening {
    pub(crate) at_ms: f64,
    pub(crate) what: What,
}

pub(crate) enum What {
    /// The servers compact the history to the present, or storage is compacted behind their backs.
    Compaction { told: bool },
    /// A controller writes this state.
    Put(Value),
    /// A controller asks this of the server.
    Write(Value),
    /// The scheduler finds no node for this pod.
    Unschedulable(&'static str, &'static str),
}

/// How soon an idle garbage collector acts.
const IDLE: Duration = Duration::from_millis(4);

/// A server on which custom resources are being initialized for a while after a restart.
struct Cold;

impl Hooks for Cold {
    fn initializing(&self, _server: &str, resource: &str) -> Duration {
        if resource == "sandboxes" { Duration::from_millis(145) } else { Duration::ZERO }
    }
}

/// A server that takes as long for a list as the recorded one did, which is longer than some clients wait.
struct Busy;

impl Hooks for Busy {
    fn request(&self, call: &Call) -> Treatment {
        let lists = call.verb == Verb::List;
        Treatment { before: if lists { Duration::from_micros(1_400) } else { Duration::ZERO }, ..Treatment::default() }
    }
}

/// The server of a session. The CRDs were installed without their conversion webhook, but where their controller ran.
pub(crate) fn server(name: &str) -> ApiServer {
    let builder = ApiServer::builder().conversion_webhook(name.starts_with("22")).process_name("hyper");
    let builder = if name.starts_with("26") { builder.servers(&["a", "b"]) } else { builder };
    match &name[..2] {
        "13" if name.starts_with("13a") => builder.hooks(Arc::new(Cold)).build(),
        "28" => builder.hooks(Arc::new(Busy)).build(),
        _ => builder.build(),
    }
}

/// The server that an exchange of the session was with: the second of two, where its case says so.
pub(crate) fn server_of(server: &ApiServer, exchange: &Value) -> ApiServer {
    let second = exchange["case"].as_str().is_some_and(|case| case.contains(" on B"));
    match server.server("b").filter(|_| second) {
        Some(second) => second,
        None => server.clone(),
    }
}

/// What was there before the recording began, beyond what all sessions find.
pub(crate) fn before(server: &ApiServer, name: &str, exchanges: &[Value], names: &mut Names) {
    match &name[..2] {
        // The server had been restarted some time before: its cache does not reach back to the beginning.
        "11" => server.restart(),
        "13" => restarted(server, exchanges, names),
        "22" => {
            for object in others::there_before(exchanges) {
                server.store().create_namespace(object["metadata"]["namespace"].as_str().expect("a namespace"));
                names.learn(revision(object), server.as_writer("earlier").put(object.clone()).expect("stored"));
            }
        }
        "07" | "17" | "19" => left_by_others(server, exchanges, names),
        "20" => drop(tokio::spawn(namespace::run(controller_manager(server)))),
        "21" => drop(tokio::spawn(garbage_collector::run_taking(controller_manager(server), IDLE))),
        _ => {}
    }
}

/// A client by the name of the program that the controllers ran in.
fn controller_manager(server: &ApiServer) -> Client {
    let named = |mut request: http::Request<kube::client::Body>| {
        request.headers_mut().insert(http::header::USER_AGENT, http::HeaderValue::from_static("hyper/v1.36.2"));
        request
    };
    let service = tower::ServiceBuilder::new().map_request(named).service(server.as_client("controller-manager"));
    Client::new(service, "default")
}

/// What earlier sessions had left, as far as a list over all namespaces shows it: what no request of this session made.
fn left_by_others(server: &ApiServer, exchanges: &[Value], names: &mut Names) {
    let first =
        exchanges.iter().filter(|e| e["request"]["method"] != "GET").map(|e| revision_in(&e["response"]["body"]));
    let first = first.filter(|revision| *revision > 0).min().unwrap_or(u64::MAX);
    let mut there: BTreeMap<u64, Value> = BTreeMap::new();
    // What a list counts and does not show, since nobody asked for its next page.
    let mut unseen = Vec::new();
    let of_all = |e: &&Value| !e["request"]["path"].as_str().unwrap_or_default().contains("/namespaces/");
    for exchange in exchanges.iter().filter(of_all) {
        let body = &exchange["response"]["body"];
        let listed = body["items"].as_array().into_iter().flatten().filter(|item| revision(item) < first);
        for item in listed {
            let mut item = item.clone();
            if item["kind"] == "PartialObjectMetadata" {
                // Only CRDs are listed so: one of another's kind.
                let of = server.store().get("customresourcedefinitions", "", "sandboxes.agents.x-k8s.io");
                let metadata = item["metadata"].take();
                item = Value::clone(&of.expect("is installed"));
                item["metadata"] = metadata;
            } else {
                item["kind"] = body["kind"].as_str().unwrap_or_default().trim_end_matches("List").into();
                item["apiVersion"] = body["apiVersion"].clone();
            }
            there.insert(revision(&item), item);
        }
        if let Some(count) = body["metadata"]["remainingItemCount"].as_u64().filter(|_| !goes_on(exchange, exchanges)) {
            let last = body["items"].as_array().and_then(|items| items.last()).expect("a page holds something");
            let kind = body["kind"].as_str().unwrap_or_default().trim_end_matches("List");
            for n in 0..count {
                let metadata = json!({"name": format!("zz{n}"), "namespace": last["metadata"]["namespace"]});
                unseen.push(json!({"kind": kind, "apiVersion": body["apiVersion"], "metadata": metadata}));
            }
        }
    }
    for object in unseen {
        server.store().create_namespace(object["metadata"]["namespace"].as_str().unwrap_or_default());
        server.as_writer("earlier").put(object).expect("stored");
    }
    for (recorded, object) in there {
        if let Some(namespace) = object["metadata"]["namespace"].as_str() {
            server.store().create_namespace(namespace);
        }
        names.learn(recorded, server.as_writer("earlier").put(object).expect("stored"));
    }
}

/// Whether somebody asked for the next page of a list.
fn goes_on(exchange: &Value, exchanges: &[Value]) -> bool {
    let token = &exchange["response"]["body"]["metadata"]["continue"];
    exchanges.iter().any(|other| other["request"]["query"]["continue"] == *token)
}

/// Zero where there is none.
fn revision_in(object: &Value) -> u64 {
    object["metadata"]["resourceVersion"].as_str().and_then(|rv| rv.parse().ok()).unwrap_or(0)
}

/// The lists at an old revision tell what was there then. Two revisions that clients had seen, then the restart.
fn restarted(server: &ApiServer, exchanges: &[Value], names: &mut Names) {
    let writer = server.as_writer("earlier");
    let mut there: Vec<Value> = Vec::new();
    for exchange in exchanges {
        let list = &exchange["response"]["body"];
        let kind = list["kind"].as_str().unwrap_or_default().trim_end_matches("List");
        for item in list["items"].as_array().into_iter().flatten() {
            let mut item = item.clone();
            item["kind"] = kind.into();
            item["apiVersion"] = list["apiVersion"].clone();
            there.push(item);
        }
    }
    there.sort_by_key(revision);
    for object in there {
        let namespace = object["metadata"]["namespace"].as_str().expect("a namespace");
        server.store().create_namespace(namespace);
        let recorded = revision(&object);
        names.learn(recorded, writer.put(object).expect("stored"));
    }
    let later =
        json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"namespace": "kube-system", "name": "later"}});
    for seen in [1211, 1311] {
        names.learn(seen, server.store().revision());
        writer.put(later.clone()).expect("stored");
    }
    server.restart();
}

fn revision(object: &Value) -> u64 {
    object["metadata"]["resourceVersion"].as_str().and_then(|rv| rv.parse().ok()).expect("a revision")
}

/// What happens during a session, in order.
pub(crate) fn during(name: &str, exchanges: &[Value]) -> Vec<Happening> {
    let mut all = match name {
        "11-compaction-410-direct" => vec![Happening { at_ms: 481.3, what: What::Compaction { told: false } }],
        // Two rounds of the servers' compactor passed in a pause of 50 s.
        _ if name.starts_with("11") => vec![Happening { at_ms: 40_000.0, what: What::Compaction { told: true } }],
        _ if name.starts_with("20") => {
            let mut all = created_by_others(exchanges);
            all.push(Happening { at_ms: 25.0, what: What::Unschedulable("nk", "p") });
            all
        }
        _ if name.starts_with("26") => {
            let mut all = created_by_others(exchanges);
            all.retain(|h| matches!(&h.what, What::Put(object) if object["metadata"]["name"] == "kube-root-ca.crt"));
            all.extend(four_writers(exchanges));
            all
        }
        _ if name.starts_with("21") => created_by_others(exchanges),
        _ if name.starts_with("23") => one_after_the_other(exchanges),
        _ => Vec::new(),
    };
    all.sort_by(|a, b| a.at_ms.total_cmp(&b.at_ms));
    all
}

/// Session 26: four clients created ConfigMaps in turns, of which the first one's first three requests were recorded.
fn four_writers(exchanges: &[Value]) -> Vec<Happening> {
    const FIRST: u64 = 8165;
    let recorded = |name: &str| exchanges.iter().find(|e| e["request"]["body"]["metadata"]["name"] == name);
    let path = &recorded("o000").expect("recorded")["request"]["path"];
    let mut all = Vec::new();
    let mut at_ms = 0.0;
    for n in 0..56 {
        let name = format!("{}{:03}", ["o", "p", "q", "r"][n % 4], n / 4);
        if let Some(exchange) = recorded(&name) {
            at_ms = exchange["t_ms"].as_f64().expect("milliseconds");
            continue;
        }
        let body = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"k": "v"}});
        let request = json!({"method": "POST", "path": path, "headers": {"Accept": "application/json"}, "body": body});
        let made = json!({"resourceVersion": (FIRST + n as u64).to_string()});
        at_ms += 1.0;
        all.push(Happening { at_ms, what: What::Write(json!({"made": made, "request": request})) });
    }
    all
}

/// Session 23: a client created one object after the other, and only the first namespace was recorded.
fn one_after_the_other(exchanges: &[Value]) -> Vec<Happening> {
    let lines = exchanges.iter().flat_map(|exchange| exchange["response"]["stream"].as_array().into_iter().flatten());
    let created = lines.map(|line| {
        let object = &line["line"]["object"];
        let made = json!({"uid": object["metadata"]["uid"], "resourceVersion": object["metadata"]["resourceVersion"]});
        let what = What::Write(json!({"made": made, "request": others::create(object)}));
        Happening { at_ms: line["ms"].as_f64().unwrap_or_default(), what }
    });
    created.collect()
}

/// Objects that watches show as they were made, and that no recorded request made. They were made right before the first
/// request whose answer shows a newer revision, or right behind the last one before they were shown.
fn created_by_others(exchanges: &[Value]) -> Vec<Happening> {
    let answers: Vec<(u64, f64)> = exchanges
        .iter()
        .filter_map(|exchange| {
            let revision = exchange["response"]["body"]["metadata"]["resourceVersion"].as_str()?.parse().ok()?;
            Some((revision, exchange["t_ms"].as_f64()?))
        })
        .collect();
    let mut made: BTreeSet<String> = exchanges
        .iter()
        .filter_map(|exchange| exchange["response"]["body"]["metadata"]["uid"].as_str().map(str::to_owned))
        .collect();
    let mut found: Vec<Happening> = Vec::new();
    let lines = exchanges.iter().flat_map(|exchange| exchange["response"]["stream"].as_array().into_iter().flatten());
    for line in lines.filter(|line| line["line"]["type"] == "ADDED") {
        let object = &line["line"]["object"];
        let uid = object["metadata"]["uid"].as_str().unwrap_or_default();
        if !made.insert(uid.to_owned()) {
            continue;
        }
        let newer = answers.iter().filter(|(seen, _)| *seen > revision(object));
        let Some((_, next)) = newer.min_by_key(|(seen, _)| *seen) else { continue };
        let shown = line["ms"].as_f64().unwrap_or_default();
        let begun = exchanges.iter().filter_map(|exchange| exchange["t_ms"].as_f64()).filter(|at| *at < shown);
        let at_ms = (next - 0.01).min(begun.fold(0.0, f64::max) + 1.0);
        found.push(Happening { at_ms, what: What::Put(object.clone()) });
    }
    found
}

/// Lets it happen.
pub(crate) async fn happen(server: &ApiServer, what: &What, names: &mut Names) {
    let store = server.store();
    match what {
        What::Compaction { told: true } => store.compact(store.revision()),
        What::Compaction { told: false } => store.compact_storage(store.revision()),
        What::Unschedulable(namespace, name) => {
            let pods: Api<Pod> = Api::namespaced(controller_manager(server), namespace);
            let condition = json!({
                "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no node",
                "lastProbeTime": null, "lastTransitionTime": "2026-11-29T16:25:37Z", "observedGeneration": 1,
            });
            let change = Patch::Strategic(json!({"status": {"conditions": [condition]}}));
            pods.patch_status(name, &PatchParams::default(), &change).await.expect("patches");
        }
        What::Write(line) => others::write(server, line, names).await,
        What::Put(object) => {
            let mut translated = names.translate_body(object);
            translated["metadata"]["name"] = object["metadata"]["name"].clone();
            let revision_here = server.as_writer("others").put(translated).expect("stored");
            names.learn(revision(object), revision_here);
        }
    }
}
