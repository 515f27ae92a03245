//! What was written in sessions 22 and 24 by requests that were not recorded, derived from the watch lines that show it.
//!
//! Session 22 holds the requests of its client and of its kubelet only, and session 24 few of those of its eight racing
//! clients. Those of the others, of the sandbox controller, of the scheduler and of the controller manager are seen by
//! what they did: each watch line that no recorded request explains is
//! turned into the request that explains it, by the difference to the state before and by `managedFields`, which say who
//! wrote which fields. The result is committed beside the recording, as the order in which a server takes all requests;
//! `UPDATE_FIXTURES=1 cargo test -p photofinish-apiserver --test transcripts order` writes it anew.
//!
//! Requests that ran at the same time interleaved their writes (a deletion of many objects with the garbage collector's,
//! the two writes of a pod's last deletion with another pod's). A replay answers one request at a time: the revisions and
//! watch lines of such a stretch are put in the order of the requests. Within one object, and between a cause and its
//! consequence, the order stands.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use http_body_util::BodyExt;
use photofinish_apiserver::ApiServer;
use serde_json::{Map, Value, json};
use tower::ServiceExt;

use crate::compare::Names;
use crate::session;

/// Something that was written, as the watches show it.
struct Seen<'a> {
    /// When it was first seen, in milliseconds since the session's start.
    ms: f64,
    kind: &'a str,
    object: &'a Value,
}

/// A request, recorded or derived, that wrote something.
struct Write {
    /// Of a recorded one.
    seq: Option<u64>,
    /// In the recording's numbers.
    revisions: BTreeSet<u64>,
    done_ms: f64,
}

/// The session with its lines in the order of the requests.
pub(crate) fn in_order(exchanges: &mut [Value]) {
    let seen = seen(exchanges);
    let writes = writes(exchanges, &seen);
    let mut numbers = writes.iter().flat_map(|write| &write.revisions).copied().collect::<BTreeSet<u64>>().into_iter();
    let renumbered: BTreeMap<u64, u64> = writes
        .iter()
        .flat_map(|write| &write.revisions)
        .map(|revision| (*revision, numbers.next().expect("as many as before")))
        .collect();
    for exchange in exchanges {
        renumber(exchange, &renumbered);
        if let Some(lines) = exchange["response"]["stream"].as_array_mut() {
            lines.sort_by_key(|line| revision(&line["line"]["object"]));
        }
    }
}

/// The order in which a server takes the requests of a session that is [`in_order`]: `{seq}` of a recorded one, or a
/// derived request; with the uid and the revision of what it made new.
pub(crate) fn derive(exchanges: &[Value]) -> Vec<Value> {
    let seen = seen(exchanges);
    let writes = writes(exchanges, &seen);
    let mut places: Vec<Vec<Value>> = vec![Vec::new(); writes.len() + 1];
    let mut states: BTreeMap<&str, &Value> = BTreeMap::new();
    for (at, write) in writes.iter().enumerate() {
        places[at + 1].push(match write.seq {
            Some(seq) => json!({"seq": seq}),
            None => derived(write, &seen, &states),
        });
        states.extend(write.revisions.iter().filter_map(|r| seen.get(r)).map(|s| (uid(s.object), s.object)));
    }
    let written: BTreeSet<u64> = writes.iter().filter_map(|write| write.seq).collect();
    for exchange in exchanges.iter().filter(|e| !written.contains(&e["seq"].as_u64().expect("a number"))) {
        let began = exchange["t_ms"].as_f64().expect("milliseconds");
        let shown = beaten_by(exchange, &seen).unwrap_or_else(|| revision(&exchange["response"]["body"]));
        let before = |w: &Write| w.done_ms <= began || w.revisions.first().is_some_and(|first| *first <= shown);
        let place = writes.iter().rposition(before).map_or(0, |at| at + 1);
        places[place].push(json!({"seq": exchange["seq"]}));
    }
    places.into_iter().flatten().collect()
}

/// The revision of the write that a failed request lost a race against: the object was made, or deleted, by another.
fn beaten_by(exchange: &Value, seen: &BTreeMap<u64, Seen<'_>>) -> Option<u64> {
    let body = &exchange["response"]["body"];
    let kind = match body["reason"].as_str()? {
        "AlreadyExists" => "ADDED",
        "NotFound" => "DELETED",
        _ => return None,
    };
    let wrote = |s: &Seen<'_>| s.kind == kind && s.object["metadata"]["name"] == body["details"]["name"];
    seen.iter().find(|(_, s)| wrote(s)).map(|(revision, _)| *revision)
}

/// Whether requests of a session are derived.
pub(crate) fn is_derived(name: &str) -> bool {
    ["22", "24"].iter().any(|derived| name.starts_with(derived))
}

/// Objects that were there before the first recorded request.
pub(crate) fn there_before(exchanges: &[Value]) -> Vec<&Value> {
    let first = exchanges.iter().map(|e| revision(&e["response"]["body"])).find(|r| *r > 0).unwrap_or(0);
    let lines = exchanges.iter().flat_map(lines);
    lines.map(|line| &line["line"]["object"]).filter(|object| revision(object) < first).collect()
}

/// Where the order is kept.
pub(crate) fn committed(name: &str) -> PathBuf {
    crate::fixtures().join(format!("{name}.order.jsonl"))
}

/// Does what a controller did.
pub(crate) async fn write(server: &ApiServer, line: &Value, names: &mut Names) {
    let request = session::request(&line["request"], names);
    let shown = format!("{} {}", request.method(), request.uri());
    let response = server.clone().oneshot(request).await.expect("never fails");
    let status = response.status();
    let bytes = response.into_body().collect().await.expect("never fails").to_bytes();
    assert!(status.is_success(), "{shown} -> {status}: {}", String::from_utf8_lossy(&bytes));
    let made: Value = serde_json::from_slice(&bytes).expect("JSON");
    if line.get("made").is_some() {
        names.compare(&json!({"metadata": line["made"]}), &json!({"metadata": made["metadata"]}));
    }
}

fn lines(exchange: &Value) -> impl Iterator<Item = &Value> {
    exchange["response"]["stream"].as_array().into_iter().flatten()
}

/// What the watches show, by revision; in the version in which it was written, where that can be told.
fn seen(exchanges: &[Value]) -> BTreeMap<u64, Seen<'_>> {
    let first = exchanges.iter().map(|e| revision(&e["response"]["body"])).find(|r| *r > 0).unwrap_or(0);
    let mut all: BTreeMap<u64, Seen<'_>> = BTreeMap::new();
    // A watch with a selector shows a change as an arrival: the others come first.
    let (selective, whole): (Vec<&Value>, Vec<&Value>) =
        exchanges.iter().partition(|e| e["request"]["query"].get("fieldSelector").is_some());
    for line in whole.into_iter().chain(selective).flat_map(lines) {
        let (kind, object) = (line["line"]["type"].as_str().expect("a type"), &line["line"]["object"]);
        let (revision, ms) = (revision(object), line["ms"].as_f64().expect("milliseconds"));
        if kind == "BOOKMARK" || revision < first {
            continue;
        }
        let entry = all.entry(revision).or_insert(Seen { ms, kind, object });
        entry.ms = entry.ms.min(ms);
        if object["kind"] == "Event" && object["apiVersion"] == object["metadata"]["managedFields"][0]["apiVersion"] {
            entry.object = object;
        }
    }
    all
}

/// All requests that wrote, in the order of their first revision.
fn writes(exchanges: &[Value], seen: &BTreeMap<u64, Seen<'_>>) -> Vec<Write> {
    let mut taken: BTreeSet<u64> = BTreeSet::new();
    let mut all: Vec<Write> = Vec::new();
    for exchange in
        exchanges.iter().filter(|e| e["request"]["method"] != "GET" && e["response"]["status"].as_u64() < Some(300))
    {
        let body = &exchange["response"]["body"];
        let gone = |uid: &Value| seen.iter().find(|(_, s)| s.kind == "DELETED" && s.object["metadata"]["uid"] == *uid);
        let revisions: BTreeSet<u64> = match body["kind"].as_str() {
            Some("Status") => gone(&body["details"]["uid"]).map(|(r, _)| *r).into_iter().collect(),
            _ => match body["items"].as_array() {
                Some(items) => items.iter().filter_map(|i| gone(&i["metadata"]["uid"])).map(|(r, _)| *r).collect(),
                None => BTreeSet::from([revision(body)]),
            },
        };
        let done_ms = exchange["t_ms"].as_f64().unwrap_or(0.0) + exchange["dur_ms"].as_f64().unwrap_or(0.0);
        all.push(Write { seq: exchange["seq"].as_u64(), revisions: with_marks(&revisions, seen), done_ms });
        taken.extend(all.last().into_iter().flat_map(|write| &write.revisions));
    }
    // From behind: a deletion takes the mark before it along.
    for (revision, shown) in seen.iter().rev() {
        if !taken.contains(revision) {
            let revisions = with_marks(&BTreeSet::from([*revision]), seen);
            taken.extend(&revisions);
            all.push(Write { seq: None, revisions, done_ms: shown.ms });
        }
    }
    all.sort_by_key(|write| write.revisions.first().copied());
    all
}

/// A pod that goes is first marked with a grace period of zero, by the same request.
fn with_marks(revisions: &BTreeSet<u64>, seen: &BTreeMap<u64, Seen<'_>>) -> BTreeSet<u64> {
    let mut out = revisions.clone();
    for revision in revisions {
        let Some(last) = seen.get(revision).filter(|s| s.kind == "DELETED" && s.object["kind"] == "Pod") else {
            continue;
        };
        let before = seen.range(..revision).rev().find(|(_, s)| uid(s.object) == uid(last.object));
        out.extend(before.filter(|(_, s)| s.object["metadata"]["deletionGracePeriodSeconds"] == 0).map(|(r, _)| *r));
    }
    out
}

/// The request that explains what was seen.
fn derived(write: &Write, seen: &BTreeMap<u64, Seen<'_>>, states: &BTreeMap<&str, &Value>) -> Value {
    let shown: Vec<&Seen<'_>> = write.revisions.iter().filter_map(|revision| seen.get(revision)).collect();
    let (first, last) = (shown[0], shown[shown.len() - 1]);
    let (object, metadata) = (first.object, &first.object["metadata"]);
    let before = states.get(uid(object)).copied();
    let dying = |o: &Value| o["metadata"].get("deletionTimestamp").is_some();
    let held = metadata["finalizers"].as_array().is_some_and(|list| !list.is_empty());
    let request = match before {
        None => create(object),
        Some(_) if last.kind == "DELETED" && dying(object) && held => {
            let manager = manager(object, before, "").unwrap_or("hyper");
            patch(object, "", manager, json!({"metadata": {"finalizers": null}}))
        }
        Some(before) if last.kind == "DELETED" || dying(object) && !dying(before) => delete(object),
        Some(before) if object["kind"] == "Pod" && before["spec"].get("nodeName") != object["spec"].get("nodeName") => {
            let target = json!({"kind": "Node", "name": object["spec"]["nodeName"]});
            let names = json!({"name": metadata["name"], "namespace": metadata["namespace"]});
            let body = json!({"apiVersion": "v1", "kind": "Binding", "metadata": names, "target": target});
            json!({"method": "POST", "path": path(object, "/binding"), "headers": json_headers("json"), "body": body})
        }
        Some(before) => {
            let of_status = before.get("status") != object.get("status");
            let part = if of_status { "status" } else { "" };
            let change = difference(&without_server_fields(before), &without_server_fields(object));
            let change = change.expect("something was written");
            match owner(object, part, &change) {
                Some(entry) if entry["operation"] == "Apply" => apply(object, entry),
                Some(entry) => patch(object, part, text(&entry["manager"]), change),
                None => {
                    let manager = manager(object, Some(before), part);
                    patch(object, part, manager.expect("somebody wrote it"), change)
                }
            }
        }
    };
    if before.is_some() {
        return json!({"request": request});
    }
    let made = json!({"uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"]});
    json!({"made": made, "request": request})
}

/// The request that made an object, as its first owner says.
pub(crate) fn create(object: &Value) -> Value {
    let owner = &object["metadata"]["managedFields"][0];
    let mut body = owned(object, &owner["fieldsV1"]);
    for key in ["apiVersion", "kind"] {
        body[key] = object[key].clone();
    }
    for key in ["name", "namespace"] {
        body["metadata"][key] = object["metadata"][key].clone();
    }
    json!({
        "method": "POST", "path": path(object, ""), "query": {"fieldManager": owner["manager"]},
        "headers": json_headers("json"), "body": body,
    })
}

fn delete(object: &Value) -> Value {
    let metadata = &object["metadata"];
    let foreground = metadata["finalizers"].as_array().is_some_and(|list| list.contains(&"foregroundDeletion".into()));
    let policy = if foreground { "Foreground" } else { "Background" };
    let body = json!({
        "apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": policy,
        "preconditions": {"uid": metadata["uid"]},
    });
    json!({"method": "DELETE", "path": path(object, "/"), "headers": json_headers("json"), "body": body})
}

fn patch(object: &Value, part: &str, manager: &str, body: Value) -> Value {
    json!({
        "method": "PATCH", "path": path(object, &format!("/{part}")), "query": {"fieldManager": manager},
        "headers": json_headers("merge-patch+json"), "body": body,
    })
}

fn apply(object: &Value, entry: &Value) -> Value {
    let mut body = owned(object, &entry["fieldsV1"]);
    for key in ["apiVersion", "kind"] {
        body[key] = object[key].clone();
    }
    json!({
        "method": "PATCH", "path": path(object, "/"), "query": {"fieldManager": entry["manager"]},
        "headers": json_headers("apply-patch+yaml"), "body": body,
    })
}

fn json_headers(kind: &str) -> Value {
    json!({"Accept": "application/json", "Content-Type": format!("application/{kind}")})
}

/// The path of the object's collection, or of the object (`/`), or of a part of it (`/status`).
fn path(object: &Value, part: &str) -> String {
    let (version, namespace) = (text(&object["apiVersion"]), text(&object["metadata"]["namespace"]));
    let prefix = if version.contains('/') { "apis" } else { "api" };
    let plural = format!("{}s", text(&object["kind"]).to_lowercase()).replace("sandboxs", "sandboxes");
    let collection = format!("/{prefix}/{version}/namespaces/{namespace}/{plural}");
    match part {
        "" => collection,
        "/" => format!("{collection}/{}", text(&object["metadata"]["name"])),
        part => format!("{collection}/{}{part}", text(&object["metadata"]["name"])),
    }
}

/// Who owns the first field that a change sets.
fn owner<'a>(object: &'a Value, part: &str, change: &Value) -> Option<&'a Value> {
    let (mut at, mut path) = (change, Vec::new());
    while let Some((key, inner)) = at.as_object().and_then(|map| map.iter().find(|(_, value)| !value.is_null())) {
        path.push(format!("f:{key}"));
        at = inner;
    }
    // What is only taken away has no owner any more.
    let sets = !at.is_object();
    let entries = object["metadata"]["managedFields"].as_array().into_iter().flatten();
    let of_part = |entry: &&Value| entry["subresource"].as_str().unwrap_or_default() == part;
    let owns = |entry: &&Value| {
        let leaf = path.iter().try_fold(&entry["fieldsV1"], |fields, key| fields.get(key));
        sets && leaf.is_some()
    };
    entries.filter(of_part).find(owns)
}

/// Who, other than the recording client, owns fields of this part, now or before.
fn manager<'a>(object: &'a Value, before: Option<&'a Value>, part: &str) -> Option<&'a str> {
    let entries = |o: &'a Value| o["metadata"]["managedFields"].as_array().into_iter().flatten();
    entries(object)
        .chain(before.into_iter().flat_map(entries))
        .filter(|entry| entry["subresource"].as_str().unwrap_or_default() == part && entry["manager"] != "recorder")
        .find_map(|entry| entry["manager"].as_str())
}

/// What of the object the fields of a `fieldsV1` name.
fn owned(value: &Value, fields: &Value) -> Value {
    let inner: Map<String, Value> = fields
        .as_object()
        .into_iter()
        .flatten()
        .filter(|(k, _)| *k != ".")
        .map(|(k, v)| (k.clone(), v.clone()))
        .collect();
    match value {
        _ if inner.is_empty() => value.clone(),
        Value::Object(map) => inner
            .iter()
            .filter_map(|(key, child)| {
                let key = key.strip_prefix("f:")?;
                Some((key.to_owned(), owned(map.get(key)?, child)))
            })
            .collect::<Map<String, Value>>()
            .into(),
        Value::Array(list) => list
            .iter()
            .filter_map(|element| {
                let (_, child) = inner.iter().find(|(key, _)| names_element(key, element))?;
                Some(owned(element, child))
            })
            .collect::<Vec<Value>>()
            .into(),
        other => other.clone(),
    }
}

/// Whether `k:{...}` or `v:...` is this element of a list.
fn names_element(key: &str, element: &Value) -> bool {
    let parse = |text: &str| serde_json::from_str::<Value>(text).expect("JSON in a key");
    if let Some(keys) = key.strip_prefix("k:").map(parse) {
        return keys.as_object().into_iter().flatten().all(|(name, value)| element.get(name) == Some(value));
    }
    key.strip_prefix("v:").map(parse).as_ref() == Some(element)
}

/// The merge patch that makes one of the other.
fn difference(before: &Value, after: &Value) -> Option<Value> {
    let (Value::Object(old), Value::Object(new)) = (before, after) else {
        return (before != after).then(|| after.clone());
    };
    let mut patch = Map::new();
    for key in old.keys().filter(|key| !new.contains_key(*key)) {
        patch.insert(key.clone(), Value::Null);
    }
    for (key, value) in new {
        match old.get(key) {
            Some(old) => patch.extend(difference(old, value).map(|change| (key.clone(), change))),
            None => drop(patch.insert(key.clone(), value.clone())),
        }
    }
    (!patch.is_empty()).then(|| patch.into())
}

fn without_server_fields(object: &Value) -> Value {
    let mut object = object.clone();
    if let Some(metadata) = object["metadata"].as_object_mut() {
        metadata.retain(|key, _| !matches!(key.as_str(), "resourceVersion" | "managedFields" | "generation"));
    }
    object
}

fn renumber(value: &mut Value, numbers: &BTreeMap<u64, u64>) {
    match value {
        Value::Object(map) => {
            for (key, inner) in map {
                let known = (key == "resourceVersion").then(|| inner.as_str()?.parse().ok()).flatten();
                match known.and_then(|number: u64| numbers.get(&number)) {
                    Some(number) => *inner = number.to_string().into(),
                    None => renumber(inner, numbers),
                }
            }
        }
        Value::Array(list) => list.iter_mut().for_each(|inner| renumber(inner, numbers)),
        _ => {}
    }
}

fn text(value: &Value) -> &str {
    value.as_str().expect("text")
}

fn uid(object: &Value) -> &str {
    object["metadata"]["uid"].as_str().unwrap_or_default()
}

/// Zero where there is none.
fn revision(object: &Value) -> u64 {
    object["metadata"]["resourceVersion"].as_str().and_then(|text| text.parse().ok()).unwrap_or(0)
}

#[test]
fn the_committed_orders_are_those_that_the_recordings_give() {
    for name in ["22-agent-sandbox-controller", "24-concurrency"] {
        let (_, exchanges) = session::read(&crate::fixtures().join(format!("{name}.jsonl.gz")));
        let text: String = derive(&exchanges).iter().map(|line| format!("{line}\n")).collect();
        let path = committed(name);
        if std::env::var_os("UPDATE_FIXTURES").is_some() {
            std::fs::write(&path, &text).expect("writes");
        }
        let kept = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(kept == text, "{} is not what the recording gives; UPDATE_FIXTURES=1 writes it anew", path.display());
    }
}
