//! Watch events as lines of text, and the difference of two runs.
use std::fmt::Write;

use indexmap::IndexMap;
use serde_json::Value;

use crate::recording::Seen;

/// The sequences that are compared, by title.
type Sequences = IndexMap<String, Vec<String>>;

/// Differences, sequence by sequence, as a diff with all lines; empty if there are none.
pub(crate) fn difference(recorded: &[Seen], ours: &[Seen]) -> String {
    let (recorded, ours) = (sequences(recorded), sequences(ours));
    let mut text = String::new();
    let none = Vec::new();
    for title in recorded.keys().chain(ours.keys().filter(|title| !recorded.contains_key(*title))) {
        let (a, b) = (recorded.get(title).unwrap_or(&none), ours.get(title).unwrap_or(&none));
        if a != b {
            let _ = writeln!(text, "{title}:\n{}", diff(a, b));
        }
    }
    text
}

/// The events of each object and the writes for each Sandbox.
fn sequences(seen: &[Seen]) -> Sequences {
    let mut by_revision: Vec<&Seen> = seen.iter().collect();
    by_revision.sort_by_key(|seen| revision(&seen.object));
    let mut sequences = writes(&by_revision);
    for seen in by_revision {
        let title = format!("events of {}", name(&seen.object));
        if seen.object["kind"] == "Service" && seen.change == "MODIFIED" && marked(&seen.object) {
            continue;
        }
        let line = line(seen);
        let lines = sequences.entry(title).or_default();
        if lines.last() != Some(&line) {
            lines.push(line);
        }
    }
    sequences.sort_by(|a, _, b, _| b.starts_with("writes").cmp(&a.starts_with("writes")));
    sequences
}

fn revision(object: &Value) -> u64 {
    let text = object["metadata"]["resourceVersion"].as_str().unwrap_or_default();
    text.parse().unwrap_or_else(|_| panic!("an event has a revision: {object}"))
}

fn name(object: &Value) -> String {
    format!("{} {}", object["kind"].as_str().unwrap_or("?"), object["metadata"]["name"].as_str().unwrap_or("?"))
}

/// Is it on its way out?
fn marked(object: &Value) -> bool {
    !object["metadata"]["deletionTimestamp"].is_null()
}

/// One event, with everything that is compared.
fn line(seen: &Seen) -> String {
    let (object, meta) = (&seen.object, &seen.object["metadata"]);
    let mut text = format!("{} {}", seen.change, name(object));
    let mut field = |title: &str, value: &Value| {
        let empty = value.is_null()
            || value.as_object().is_some_and(serde_json::Map::is_empty)
            || value.as_array().is_some_and(Vec::is_empty);
        if !empty {
            let _ = write!(text, " {title}={}", value.as_str().map_or_else(|| value.to_string(), str::to_owned));
        }
    };
    let spec = &object["spec"];
    let status = &object["status"];
    for key in ["generation", "labels", "annotations"] {
        field(key, &meta[key]);
    }
    for owner in meta["ownerReferences"].as_array().into_iter().flatten() {
        field("owner", &format!("{}/{}", owner["kind"], owner["name"]).replace('"', "").into());
        field("controller", &owner["controller"]);
        field("blocking", &owner["blockOwnerDeletion"]);
    }
    if marked(object) && object["kind"] != "Service" {
        field("terminating", &meta["deletionGracePeriodSeconds"]);
    }
    if object["kind"] != "Service" {
        field("finalizers", &meta["finalizers"]);
    }
    match object["kind"].as_str().unwrap_or_default() {
        "Sandbox" => {
            field("mode", &spec["operatingMode"]);
            for key in ["selector", "service", "serviceFQDN", "podIPs", "nodeName"] {
                field(key, &status[key]);
            }
        }
        "Pod" => {
            field("node", &spec["nodeName"]);
            let claims = spec["volumes"].as_array().into_iter().flatten();
            for volume in claims.filter(|volume| !volume["persistentVolumeClaim"].is_null()) {
                field("volume", volume);
            }
            field("phase", &status["phase"]);
            field("podIPs", &status["podIPs"]);
        }
        "Service" => {
            field("selector", &spec["selector"]);
            field("clusterIP", &spec["clusterIP"]);
        }
        _ => {
            field("accessModes", &spec["accessModes"]);
            field("resources", &spec["resources"]);
        }
    }
    for condition in status["conditions"].as_array().into_iter().flatten() {
        let _ = write!(text, "\n      {}", self::condition(condition));
        let message = condition["message"].as_str().unwrap_or_default();
        if !message.is_empty() {
            let _ = write!(text, ": {message}");
        }
    }
    text
}

fn condition(condition: &Value) -> String {
    let part = |key: &str| condition[key].as_str().unwrap_or_default().to_owned();
    let generation = condition["observedGeneration"].as_i64().map(|g| format!("@{g}")).unwrap_or_default();
    format!("{}={}/{}{generation}", part("type"), part("status"), part("reason"))
}

/// What happened to each living Sandbox and what its controller wrote for it, over all kinds, by revision.
fn writes(by_revision: &[&Seen]) -> Sequences {
    let mut sequences = Sequences::new();
    let mut last: IndexMap<String, &Value> = IndexMap::new();
    for Seen { change, object } in by_revision.iter().copied() {
        let own_name = object["metadata"]["name"].as_str().unwrap_or_default();
        let before = last.insert(name(object), object);
        let owner = object["metadata"]["ownerReferences"][0]["name"].as_str();
        let sandbox = owner.unwrap_or(own_name);
        let alive = last.get(&format!("Sandbox {sandbox}")).is_some_and(|s| !marked(s));
        let mut told = Vec::new();
        match object["kind"].as_str().unwrap_or_default() {
            "Sandbox" if change == "MODIFIED" => {
                let differs = |pointer: &str| before.and_then(|b| b.pointer(pointer)) != object.pointer(pointer);
                if differs("/metadata/generation") {
                    told.push(format!("generation {}", object["metadata"]["generation"]));
                }
                if differs("/metadata/annotations/agents.x-k8s.io~1pod-name") {
                    told.push(format!("tracks {}", object["metadata"]["annotations"]["agents.x-k8s.io/pod-name"]));
                }
                if before.is_none_or(|before| timeless(&before["status"]) != timeless(&object["status"])) {
                    let conditions = object["status"]["conditions"].as_array().into_iter().flatten();
                    told.push(format!("says {}", conditions.map(condition).collect::<Vec<_>>().join(" ")));
                }
            }
            "Sandbox" => told.push(change.to_lowercase()),
            kind if owner.is_some() && alive => {
                if change == "ADDED" {
                    told.push(format!("creates {kind}"));
                } else if marked(object) && !before.is_some_and(marked) {
                    told.push(format!("{kind} is to go"));
                }
            }
            _ => {}
        }
        if change == "DELETED" {
            last.shift_remove(&name(object));
        }
        if !told.is_empty() {
            sequences.entry(format!("writes of the controller for {sandbox}")).or_default().extend(told);
        }
    }
    sequences
}

/// A status without its times.
fn timeless(status: &Value) -> Value {
    let mut status = status.clone();
    for condition in status["conditions"].as_array_mut().into_iter().flatten() {
        condition["lastTransitionTime"].take();
    }
    status
}

/// Two lists as a diff by longest common subsequence.
fn diff(a: &[String], b: &[String]) -> String {
    let mut common = vec![vec![0_usize; b.len() + 1]; a.len() + 1];
    for i in (0..a.len()).rev() {
        for j in (0..b.len()).rev() {
            let here = if a[i] == b[j] { common[i + 1][j + 1] + 1 } else { 0 };
            common[i][j] = here.max(common[i + 1][j]).max(common[i][j + 1]);
        }
    }
    let (mut i, mut j, mut text) = (0, 0, String::new());
    while i < a.len() || j < b.len() {
        let (sign, line) = if i < a.len() && j < b.len() && a[i] == b[j] {
            (i, j) = (i + 1, j + 1);
            (' ', &a[i - 1])
        } else if j == b.len() || i < a.len() && common[i + 1][j] >= common[i][j + 1] {
            i += 1;
            ('-', &a[i - 1])
        } else {
            j += 1;
            ('+', &b[j - 1])
        };
        let _ = writeln!(text, "  {sign} {line}");
    }
    text
}
