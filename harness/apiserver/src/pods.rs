//! Rules of pods alone: what an update may change, binding, and graceful deletion.

use serde_json::{Map, Value, json};

use crate::clock;
use crate::error::{ApiError, Cause};
use crate::resource::Resource;

/// A change of `spec` that an update may not make.
///
/// Allowed: images, `activeDeadlineSeconds`, more tolerations, a raised negative grace period, fewer scheduling gates,
/// and while gates are left also node selector and affinity.
pub(crate) fn spec_changes(current: &Value, next: &Value) -> Option<Cause> {
    let (old, new) = (&current["spec"], &next["spec"]);
    if old == new {
        return None;
    }
    let gates = |spec: &Value| spec["schedulingGates"].as_array().cloned().unwrap_or_default();
    if let Some(added) = gates(new).iter().find(|gate| !gates(old).contains(gate)) {
        let what = format!(
            "only deletion is allowed, but found new scheduling gate '{}'",
            added["name"].as_str().unwrap_or_default()
        );
        return Some(Cause::forbidden("spec.schedulingGates", what));
    }
    let gated = !gates(old).is_empty();
    let kept = |spec: &Value| -> Map<String, Value> {
        let mut kept = spec.as_object().cloned().unwrap_or_default();
        for free in ["activeDeadlineSeconds", "tolerations", "schedulingGates", "terminationGracePeriodSeconds"] {
            kept.remove(free);
        }
        if gated {
            kept.remove("nodeSelector");
            kept.remove("affinity");
        }
        for list in ["containers", "initContainers"] {
            for container in kept.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
                if let Some(container) = container.as_object_mut() {
                    container.remove("image");
                }
            }
        }
        kept
    };
    let tolerations = |spec: &Value| spec["tolerations"].as_array().cloned().unwrap_or_default();
    let fewer_tolerations = tolerations(old).iter().any(|t| !tolerations(new).contains(t));
    let grace = |spec: &Value| spec["terminationGracePeriodSeconds"].as_i64();
    let grace_changed = grace(old) != grace(new) && !(grace(old) < Some(0) && grace(new) == Some(1));
    (kept(old) != kept(new) || fewer_tolerations || grace_changed).then(|| {
        Cause::forbidden(
            "spec",
            "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)",
        )
    })
}

/// The pod with the ephemeral containers of another, and nothing else of it.
pub(crate) fn with_ephemeral(current: &Value, incoming: &Value) -> Value {
    let mut next = current.clone();
    if let (Some(spec), Some(list)) = (next["spec"].as_object_mut(), incoming["spec"].get("ephemeralContainers")) {
        spec.insert("ephemeralContainers".into(), list.clone());
    }
    next
}

/// Ephemeral containers come, and neither change nor go.
pub(crate) fn ephemeral_changes(current: &Value, next: &Value) -> Option<Cause> {
    let list = |pod: &Value| pod["spec"]["ephemeralContainers"].as_array().cloned().unwrap_or_default();
    let after = list(next);
    list(current).iter().find_map(|old| {
        let name = old["name"].as_str().unwrap_or_default();
        let what = match after.iter().find(|new| new["name"] == old["name"]) {
            Some(new) if new == old => return None,
            Some(_) => "changed",
            None => "removed",
        };
        let why = format!("existing ephemeral containers {name:?} may not be {what}\n");
        Some(Cause::forbidden("spec.ephemeralContainers", why))
    })
}

/// The pod with the resources of another's containers, and nothing else of it.
pub(crate) fn resized(current: &Value, incoming: &Value) -> Value {
    let mut next = current.clone();
    for list in ["containers", "initContainers"] {
        let wanted = incoming["spec"][list].as_array();
        for container in next["spec"].get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
            let same = wanted.into_iter().flatten().find(|other| other["name"] == container["name"]);
            for field in ["resources", "resizePolicy"] {
                if let Some(value) = same.and_then(|other| other.get(field)) {
                    container[field] = value.clone();
                }
            }
        }
    }
    next
}

/// The pod as a binding to `node` leaves it.
pub(crate) fn bound(pod: &Value, name: &str, node: &str, now: u64) -> Result<Value, ApiError> {
    let refused = |why: String| Err(ApiError::conflict_on("pods/binding", name, why));
    if pod["metadata"].get("deletionTimestamp").is_some() {
        return refused(format!("pod {name} is being deleted, cannot be assigned to a host"));
    }
    if let Some(assigned) = pod["spec"]["nodeName"].as_str().filter(|node| !node.is_empty()) {
        return refused(format!("pod {name} is already assigned to node {assigned:?}"));
    }
    if pod["spec"]["schedulingGates"].as_array().is_some_and(|gates| !gates.is_empty()) {
        return refused(format!("pod {name} has non-empty .spec.schedulingGates"));
    }
    let mut pod = pod.clone();
    pod["spec"]["nodeName"] = node.into();
    set_condition(
        &mut pod,
        json!({
            "type": "PodScheduled", "status": "True", "lastProbeTime": null, "lastTransitionTime": clock::rfc3339(now),
        }),
    );
    Ok(pod)
}

/// The pod marked as about to be evicted, unless nothing will be left of it to look at.
pub(crate) fn disrupted(pod: &Value, now: u64) -> Option<Value> {
    if grace(pod, None) == 0 || pod["metadata"].get("deletionTimestamp").is_some() {
        return None;
    }
    let mut pod = pod.clone();
    set_condition(
        &mut pod,
        json!({
            "type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI",
            "message": "Eviction API: evicting", "lastProbeTime": null, "lastTransitionTime": clock::rfc3339(now),
        }),
    );
    Some(pod)
}

fn set_condition(pod: &mut Value, condition: Value) {
    let Some(status) = pod.get_mut("status").and_then(Value::as_object_mut) else { return };
    let list = status.entry("conditions").or_insert_with(|| json!([]));
    let Some(list) = list.as_array_mut() else { return };
    match list.iter_mut().find(|c| c["type"] == condition["type"]) {
        Some(slot) => *slot = condition,
        None => list.push(condition),
    }
}

/// Grace period in seconds that a deletion gets: as asked, else as the spec says; none where no kubelet has the pod,
/// or where it has already ended.
pub(crate) fn grace(pod: &Value, asked: Option<i64>) -> i64 {
    let unbound = pod["spec"]["nodeName"].as_str().unwrap_or_default().is_empty();
    let ended = matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed"));
    if unbound || ended {
        return 0;
    }
    let of_spec = pod["spec"]["terminationGracePeriodSeconds"].as_i64();
    match asked.or(of_spec).unwrap_or(30) {
        // Negative periods mean the shortest that is not immediate.
        negative if negative < 0 => 1,
        seconds => seconds,
    }
}

/// Whether the type has grace periods at all.
pub(crate) fn graceful(resource: &Resource) -> bool {
    resource.group.is_empty() && resource.plural == "pods"
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod() -> Value {
        json!({
            "metadata": {"name": "p"},
            "spec": {
                "containers": [{"name": "c", "image": "1"}], "terminationGracePeriodSeconds": 30,
                "schedulingGates": [{"name": "a"}, {"name": "b"}], "tolerations": [{"key": "x"}],
            },
            "status": {"phase": "Pending"},
        })
    }

    #[test]
    fn updates_of_a_pod_spec_are_allowed_or_not_as_the_table_says() {
        let table = [
            ("/spec/containers/0/image", json!("2"), None),
            ("/spec/schedulingGates", json!([{"name": "b"}]), None),
            ("/spec/schedulingGates", json!([{"name": "z"}]), Some("spec.schedulingGates")),
            ("/spec/tolerations", json!([{"key": "x"}, {"key": "y"}]), None),
            ("/spec/tolerations", json!([]), Some("spec")),
            ("/spec/terminationGracePeriodSeconds", json!(5), Some("spec")),
            ("/spec/containers/0/name", json!("d"), Some("spec")),
            ("/metadata/name", json!("not looked at"), None),
        ];
        for (path, value, refused) in table {
            let mut next = pod();
            *next.pointer_mut(path).expect(path) = value;
            assert_eq!(spec_changes(&pod(), &next).map(|c| c.field).as_deref(), refused, "{path}");
        }
    }

    #[test]
    fn binding_needs_a_pod_without_node_and_gates() {
        let gated = bound(&pod(), "p", "n1", 0).expect_err("gated");
        assert!(gated.message().ends_with("pod p has non-empty .spec.schedulingGates"));
        let mut free = pod();
        free["spec"]["schedulingGates"] = json!([]);
        let placed = bound(&free, "p", "n1", 0).expect("binds");
        assert_eq!(placed["spec"]["nodeName"], "n1");
        assert_eq!(placed["status"]["conditions"][0]["type"], "PodScheduled");
        let twice = bound(&placed, "p", "n2", 0).expect_err("bound");
        assert!(twice.message().ends_with("pod p is already assigned to node \"n1\""));
    }

    #[test]
    fn the_grace_period_is_zero_without_a_kubelet_to_wait_for() {
        let mut bound = pod();
        bound["spec"]["nodeName"] = "n1".into();
        let mut done = bound.clone();
        done["status"]["phase"] = "Succeeded".into();
        let table = [
            (pod(), None, 0),
            (pod(), Some(9), 0),
            (bound.clone(), None, 30),
            (bound.clone(), Some(5), 5),
            (bound.clone(), Some(0), 0),
            (bound, Some(-1), 1),
            (done, None, 0),
        ];
        for (pod, asked, seconds) in table {
            assert_eq!(grace(&pod, asked), seconds);
        }
    }
}
