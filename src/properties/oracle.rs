//! What is true in the cluster, noted into the trace as it changes: hosts never see these entries, properties do.
//!
//! | name | fields |
//! |---|---|
//! | `resource` | object (the CR's name), sandbox, sandbox_id, gateway, uid, run (`on`, `off`), marker (`stop/suspending` or empty), ending, workload_uid, supervisor_uid |
//! | `pod` | object, sandbox, sandbox_id, uid, role (`workload`, `supervisor`), phase, ending, run (generation token) |
//! | `claim` | object, uid, owner (uid of the CR) |
//!
//! Each has `gone=true` once the object is no longer stored.

use std::collections::BTreeMap;

use photofinish_apiserver::ApiServer;
use photofinish_sim::trace::Trace;
use serde_json::Value;

use crate::driver::names;

/// Kind of these entries.
pub const STATE: &str = "state";

type Fields = Vec<(&'static str, String)>;
type Read = fn(&Value) -> Option<Fields>;

/// What is followed: plural, name of the entry, what is noted of an object.
const FOLLOWED: [(&str, &str, Read); 3] =
    [("sandboxes", "resource", resource), ("pods", "pod", pod), ("persistentvolumeclaims", "claim", claim)];

/// A hook for [`photofinish::system::Live::oracle`].
pub fn observe(api: ApiServer, trace: Trace) -> impl FnMut() {
    let mut seen: BTreeMap<(usize, String), Fields> = BTreeMap::new();
    let mut revision = 0;
    move || {
        let now = api.store().revision();
        if now == revision {
            return;
        }
        revision = now;
        let mut present = BTreeMap::new();
        for (n, (plural, _, read)) in FOLLOWED.iter().enumerate() {
            for object in api.store().list(plural, "") {
                let uid = text(&object, "/metadata/uid").to_owned();
                present.extend(read(&object).map(|fields| ((n, uid), fields)));
            }
        }
        for (key, fields) in &present {
            if seen.get(key) != Some(fields) {
                note(&trace, key.0, fields, false);
            }
        }
        for (key, fields) in &seen {
            if !present.contains_key(key) {
                note(&trace, key.0, fields, true);
            }
        }
        seen = present;
    }
}

fn note(trace: &Trace, followed: usize, fields: &Fields, gone: bool) {
    let name = FOLLOWED[followed].1;
    let shown = fields.iter().filter(|(key, value)| !key.ends_with("uid") && !key.ends_with("id") && !value.is_empty());
    let mut words: Vec<String> = shown.map(|(key, value)| format!("{key}={value}")).collect();
    words.extend(gone.then(|| "gone".to_owned()));
    let draft = trace.entry(STATE, name).host("world").text(format!("{name} {}", words.join(" ")));
    let draft = fields.iter().fold(draft, |draft, (key, value)| draft.field(*key, value));
    draft.field("gone", gone).record();
}

fn text<'v>(object: &'v Value, pointer: &str) -> &'v str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}
fn in_map<'v>(object: &'v Value, map: &str, key: &str) -> &'v str {
    object["metadata"][map][key].as_str().unwrap_or_default()
}
fn ending(object: &Value) -> (&'static str, String) {
    ("ending", object["metadata"]["deletionTimestamp"].is_string().to_string())
}

fn resource(object: &Value) -> Option<Fields> {
    let label = |key| in_map(object, "labels", key).to_owned();
    let annotation = |key| in_map(object, "annotations", key);
    let spec = &object["spec"];
    let off = spec["operatingMode"] == "Suspended" || spec["replicas"] == 0;
    let marker = match annotation(names::BOOTSTRAPPING) {
        "true" => format!("{}/{}", annotation(names::BOOTSTRAP_OPERATION), annotation(names::BOOTSTRAP_PHASE)),
        _ => String::new(),
    };
    let id = label(names::SANDBOX_ID);
    (!id.is_empty()).then(|| {
        vec![
            ("object", text(object, "/metadata/name").to_owned()),
            ("sandbox", label(names::SANDBOX_NAME)),
            ("sandbox_id", id),
            ("gateway", label(names::GATEWAY_ID)),
            ("uid", text(object, "/metadata/uid").to_owned()),
            ("run", if off { "off" } else { "on" }.to_owned()),
            ("marker", marker),
            ending(object),
            ("workload_uid", annotation(names::WORKLOAD_UID).to_owned()),
            ("supervisor_uid", annotation(names::SUPERVISOR_UID).to_owned()),
        ]
    })
}

fn pod(object: &Value) -> Option<Fields> {
    let label = |key| in_map(object, "labels", key).to_owned();
    let (id, role) = (label(names::SANDBOX_ID), label(names::COMPONENT));
    let of_volume = || {
        let secret = object.pointer("/spec/volumes")?.as_array()?.iter().find(|v| v["name"] == "sandbox-secret")?;
        let name = secret["secret"]["secretName"].as_str()?;
        name.strip_prefix("os-sandbox-")?.strip_prefix(&*id)?.strip_prefix('-')
    };
    let run = match in_map(object, "annotations", names::GENERATION) {
        "" => of_volume().unwrap_or_default(),
        generation => generation,
    };
    (!id.is_empty() && !role.is_empty()).then(|| {
        vec![
            ("object", text(object, "/metadata/name").to_owned()),
            ("sandbox", label(names::SANDBOX_NAME)),
            ("sandbox_id", id.clone()),
            ("uid", text(object, "/metadata/uid").to_owned()),
            ("role", role),
            ("phase", text(object, "/status/phase").to_owned()),
            ending(object),
            ("run", run.to_owned()),
        ]
    })
}

fn claim(object: &Value) -> Option<Fields> {
    let owners = object.pointer("/metadata/ownerReferences")?.as_array()?;
    let owner = owners.iter().find(|o| o["kind"] == "Sandbox")?["uid"].as_str()?;
    Some(vec![
        ("object", text(object, "/metadata/name").to_owned()),
        ("uid", text(object, "/metadata/uid").to_owned()),
        ("owner", owner.to_owned()),
    ])
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn at<'f>(fields: &'f Fields, key: &str) -> &'f str {
        &fields.iter().find(|(k, _)| *k == key).expect("the field").1
    }

    #[test]
    fn a_resource_is_on_or_off_in_the_words_of_either_api_version() {
        let labels = json!({names::SANDBOX_ID: "id", names::SANDBOX_NAME: "demo"});
        for (spec, run) in [
            (json!({"operatingMode": "Suspended"}), "off"),
            (json!({"operatingMode": "Running"}), "on"),
            (json!({"replicas": 0}), "off"),
            (json!({"replicas": 1}), "on"),
            (json!({}), "on"),
        ] {
            let read = resource(&json!({"metadata": {"labels": labels}, "spec": spec})).expect("ours");
            assert_eq!((at(&read, "run"), at(&read, "marker")), (run, ""));
        }
        let annotations = json!({
            names::BOOTSTRAPPING: "true", names::BOOTSTRAP_OPERATION: "stop", names::BOOTSTRAP_PHASE: "suspending",
        });
        let read = resource(&json!({"metadata": {"labels": labels, "annotations": annotations}})).expect("ours");
        assert_eq!(at(&read, "marker"), "stop/suspending");
        assert_eq!(resource(&json!({"metadata": {"name": "foreign"}})), None);
    }

    #[test]
    fn both_pods_of_a_run_show_its_generation() {
        let labels = |role: &str| json!({names::SANDBOX_ID: "id", names::COMPONENT: role});
        let workload = json!({
            "metadata": {"labels": labels("workload")},
            "spec": {"volumes": [{"name": "sandbox-secret", "secret": {"secretName": "os-sandbox-id-abc"}}]},
        });
        let supervisor =
            json!({"metadata": {"labels": labels("supervisor"), "annotations": {names::GENERATION: "abc"}}});
        assert_eq!(at(&pod(&workload).expect("a Pod"), "run"), "abc");
        assert_eq!(at(&pod(&supervisor).expect("a Pod"), "run"), "abc");
    }
}
