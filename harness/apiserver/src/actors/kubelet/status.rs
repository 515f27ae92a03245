//! The statuses that a kubelet reports of a pod.

use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

use crate::clock;

fn conditions(ready: bool, now: &str) -> Value {
    let status = |yes: bool| if yes { "True" } else { "False" };
    ["PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady"]
        .into_iter()
        .map(|kind| json!({"type": kind, "status": status(ready || kind == "Initialized"), "lastTransitionTime": now}))
        .collect()
}

fn containers(pod: &Pod, ready: bool, state: &Value) -> Value {
    let spec = pod.spec.as_ref().map(|spec| spec.containers.as_slice()).unwrap_or_default();
    let status = |name: &str, image: &str| {
        let base = image.split(':').next().unwrap_or(image);
        json!({
            "name": name, "ready": ready, "started": ready, "restartCount": 0,
            "image": image, "imageID": format!("{base}@sha256:0"), "state": state,
        })
    };
    spec.iter().map(|c| status(&c.name, c.image.as_deref().unwrap_or_default())).collect()
}

pub(super) fn creating(pod: &Pod, uid: &str) -> Value {
    let now = clock::rfc3339(clock::now());
    json!({"metadata": {"uid": uid}, "status": {
        "phase": "Pending", "hostIP": "127.0.0.1", "startTime": now,
        "conditions": conditions(false, &now),
        "containerStatuses": containers(pod, false, &json!({"waiting": {"reason": "ContainerCreating"}})),
    }})
}

pub(super) fn running(pod: &Pod, uid: &str, ip: &str) -> Value {
    let now = clock::rfc3339(clock::now());
    json!({"metadata": {"uid": uid}, "status": {
        "phase": "Running", "podIP": ip, "podIPs": [{"ip": ip}],
        "conditions": conditions(true, &now),
        "containerStatuses": containers(pod, true, &json!({"running": {"startedAt": now}, "waiting": null})),
    }})
}

/// The node ran short of memory, and ended the pod.
pub(super) fn evicted(pod: &Pod, uid: &str) -> Value {
    let now = clock::rfc3339(clock::now());
    let terminated = json!({
        "terminated": {"exitCode": 137, "reason": "Error", "finishedAt": now}, "running": null, "waiting": null,
    });
    let mut conditions = conditions(false, &now);
    if let Some(list) = conditions.as_array_mut() {
        list.push(json!({
            "type": "DisruptionTarget", "status": "True", "reason": "TerminationByKubelet", "lastTransitionTime": now,
            "message": "The node was low on resource: memory.",
        }));
    }
    json!({"metadata": {"uid": uid}, "status": {
        "phase": "Failed", "reason": "Evicted", "message": "The node was low on resource: memory.",
        "conditions": conditions,
        "containerStatuses": containers(pod, false, &terminated),
    }})
}
