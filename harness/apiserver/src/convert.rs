//! The versions of Sandbox, mapped as the agent-sandbox conversion webhook maps them.
//!
//! `spec.operatingMode` (v1beta1) and `spec.replicas` (v1alpha1) say the same; conditions are copied. What v1alpha1 has
//! and v1beta1 has not is kept by an annotation that only v1beta1 shows: the whole v1alpha1 object of the last write
//! that came in as v1alpha1. On the way back only `status.replicas` is taken from it, and it can be stale.

use serde_json::{Map, Value, json};

use crate::resource::{AGENTS, Resource};
use crate::{autoscaler, events};

/// Where a v1beta1 object keeps the v1alpha1 object that it was made from.
pub(crate) const STATE: &str = "api.agents.x-k8s.io/v1alpha1-sandbox-state";

/// An object of the storage version in another served version.
pub(crate) fn from_storage(resource: &Resource, version: usize, value: Value) -> Value {
    match pair(resource, version) {
        Some(("v1beta1", "v1alpha1")) => to_v1alpha1(value),
        _ if resource.is_in(events::GROUP) && version == 1 => events::from_core(value),
        _ if resource.group == autoscaler::GROUP && version == 1 => autoscaler::to_v1(resource, value),
        _ => relabelled(resource, version, value),
    }
}

/// An object of another served version in the storage version.
pub(crate) fn to_storage(resource: &Resource, version: usize, value: Value) -> Value {
    match pair(resource, version) {
        Some(("v1beta1", "v1alpha1")) => to_v1beta1(value),
        _ if resource.is_in(events::GROUP) && version == 1 => events::to_core(value),
        _ if resource.group == autoscaler::GROUP && version == 1 => autoscaler::to_v2(resource, value),
        // What came in as the storage version was pruned and filled when it was read.
        _ if version == 0 => value,
        _ => relabelled(resource, 0, value),
    }
}

fn pair(resource: &Resource, version: usize) -> Option<(&str, &str)> {
    (resource.webhook && version > 0).then(|| (&*resource.versions[0], &*resource.versions[version]))
}

/// Conversion strategy `None`: another `apiVersion`, and of the object what that version's schema knows. Defaults come
/// from the storage version alone.
fn relabelled(resource: &Resource, version: usize, mut value: Value) -> Value {
    value["apiVersion"] = resource.api_version(version).into();
    if let Some(custom) = resource.custom_version(version) {
        custom.schema.prune(&mut value);
        if version == 0 {
            custom.schema.fill(&mut value);
        }
    }
    value
}

fn to_v1alpha1(mut beta: Value) -> Value {
    beta["apiVersion"] = format!("{AGENTS}/v1alpha1").into();
    let state = take_state(&mut beta);
    let suspended = beta["spec"]["operatingMode"] == "Suspended";
    if let Some(spec) = beta.get_mut("spec").and_then(Value::as_object_mut) {
        spec.remove("operatingMode");
        spec.insert("replicas".into(), i64::from(!suspended).into());
    }
    typed(&mut beta);
    let replicas = match &state {
        Some(original) => original["status"]["replicas"].as_i64().unwrap_or(0),
        None => i64::from(!suspended),
    };
    let mut status = match beta.as_object_mut().and_then(|o| o.remove("status")) {
        Some(Value::Object(status)) => status,
        _ => Map::new(),
    };
    status.remove("nodeName");
    if replicas != 0 {
        status.insert("replicas".into(), replicas.into());
    }
    if !status.is_empty() {
        beta["status"] = Value::Object(status);
    }
    beta
}

fn to_v1beta1(mut alpha: Value) -> Value {
    take_state(&mut alpha);
    typed(&mut alpha);
    // What is stored has no revision in it.
    let revision = alpha["metadata"].as_object_mut().and_then(|metadata| metadata.remove("resourceVersion"));
    let original = alpha.to_string();
    if let Some(revision) = revision {
        alpha["metadata"]["resourceVersion"] = revision;
    }
    let suspended = alpha["spec"]["replicas"] == 0;
    alpha["apiVersion"] = format!("{AGENTS}/v1beta1").into();
    if let Some(spec) = alpha.get_mut("spec").and_then(Value::as_object_mut) {
        spec.remove("replicas");
        spec.insert("operatingMode".into(), if suspended { "Suspended" } else { "Running" }.into());
    }
    if let Some(status) = alpha.get_mut("status").and_then(Value::as_object_mut) {
        status.remove("replicas");
        if status.is_empty() {
            alpha.as_object_mut().map(|o| o.remove("status"));
        }
    }
    alpha["metadata"]["annotations"][STATE] = original.into();
    alpha
}

/// Removes and decodes the annotation that keeps the v1alpha1 object.
fn take_state(object: &mut Value) -> Option<Value> {
    let metadata = object.get_mut("metadata")?.as_object_mut()?;
    let annotations = metadata.get_mut("annotations")?.as_object_mut()?;
    let state = annotations.remove(STATE)?;
    if annotations.is_empty() {
        metadata.remove("annotations");
    }
    serde_json::from_str(state.as_str()?).ok()
}

/// What the webhook's Go types add to whatever passes through them.
fn typed(object: &mut Value) {
    let Some(template) = object.pointer_mut("/spec/podTemplate").and_then(Value::as_object_mut) else { return };
    template.entry("metadata").or_insert_with(|| json!({}));
    let Some(spec) = template.get_mut("spec").and_then(Value::as_object_mut) else { return };
    for list in ["containers", "initContainers"] {
        for container in spec.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
            if let Some(container) = container.as_object_mut() {
                container.entry("resources").or_insert_with(|| json!({}));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn beta(mode: &str, status: Value) -> Value {
        let mut object = json!({
            "apiVersion": "agents.x-k8s.io/v1beta1", "kind": "Sandbox", "metadata": {"name": "s"},
            "spec": {"operatingMode": mode, "podTemplate": {"spec": {"containers": [{"name": "c"}]}}},
        });
        if !status.is_null() {
            object["status"] = status;
        }
        object
    }

    #[test]
    fn the_mode_becomes_replicas_and_status_follows_while_nothing_was_written_as_v1alpha1() {
        let running = to_v1alpha1(beta("Running", Value::Null));
        assert_eq!(running["spec"]["replicas"], 1);
        assert_eq!(
            running["spec"]["podTemplate"],
            json!({"metadata": {}, "spec": {"containers": [{"name": "c", "resources": {}}]}})
        );
        assert_eq!(running["status"], json!({"replicas": 1}));
        let off = to_v1alpha1(beta("Suspended", json!({"conditions": [1], "nodeName": "n1"})));
        assert_eq!(off["spec"]["replicas"], 0);
        assert_eq!(off["status"], json!({"conditions": [1]}));
        assert_eq!(to_v1alpha1(beta("Suspended", Value::Null)).get("status"), None);
    }

    #[test]
    fn a_v1alpha1_object_survives_the_round_trip_with_a_stale_status_replicas() {
        let alpha = json!({
            "apiVersion": "agents.x-k8s.io/v1alpha1", "kind": "Sandbox", "metadata": {"name": "s"},
            "spec": {"replicas": 1}, "status": {"replicas": 1, "selector": "x"},
        });
        let mut sent = alpha.clone();
        sent["metadata"]["resourceVersion"] = "5".into();
        let mut stored = to_v1beta1(sent);
        assert_eq!(stored["metadata"]["resourceVersion"], "5", "a precondition");
        stored["metadata"].as_object_mut().expect("an object").remove("resourceVersion");
        assert_eq!(stored["spec"], json!({"operatingMode": "Running"}));
        assert_eq!(stored["status"], json!({"selector": "x"}));
        assert!(stored["metadata"]["annotations"][STATE].is_string());
        assert_eq!(to_v1alpha1(stored.clone()), alpha);
        stored["spec"]["operatingMode"] = "Suspended".into();
        let later = to_v1alpha1(stored);
        assert_eq!(later["spec"]["replicas"], 0);
        assert_eq!(later["status"]["replicas"], 1, "kept from the last v1alpha1 write");
    }
}
