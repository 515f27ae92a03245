//! A node that boots: none of its containers has survived, and its kubelet says so before it does anything else.
use crate::BoxError;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};

/// Reports the end of all Pods of this node that ran when it went down and are not to run again (restart policy Never).
/// Those that were being deleted are left to the kubelet, and those that had not started yet it starts.
///
/// # Errors
/// If the API server refuses, or is not there.
pub async fn booted(client: Client, node: &str) -> Result<(), BoxError> {
    let bound = ListParams::default().fields(&format!("spec.nodeName={node}"));
    for pod in Api::<Pod>::all(client.clone()).list(&bound).await?.items.iter().filter(|pod| has_ended(pod)) {
        let api: Api<Pod> = Api::namespaced(client.clone(), &pod.namespace().unwrap_or_default());
        let status = Patch::Strategic(ended(pod, &Timestamp::now().to_string()));
        api.patch_status(&pod.name_any(), &PatchParams::default(), &status).await?;
    }
    Ok(())
}

fn has_ended(pod: &Pod) -> bool {
    let ran = pod.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Running");
    let again = pod.spec.as_ref().and_then(|spec| spec.restart_policy.as_deref()) != Some("Never");
    ran && !again && pod.metadata.deletion_timestamp.is_none()
}

/// The status of a Pod whose containers are not to be found.
fn ended(pod: &Pod, now: &str) -> Value {
    let condition = |kind: &str| json!({"type": kind, "status": "False", "lastTransitionTime": now});
    let terminated = json!({
        "exitCode": 137, "reason": "ContainerStatusUnknown", "finishedAt": now,
        "message": "The container could not be located when the pod was terminated",
    });
    let known = pod.status.iter().flat_map(|status| status.container_statuses.iter().flatten());
    let containers: Vec<Value> = known
        .map(|c| {
            let state = json!({"terminated": terminated, "running": null});
            json!({"name": c.name, "image": c.image, "imageID": c.image_id, "restartCount": c.restart_count,
                   "ready": false, "started": false, "state": state})
        })
        .collect();
    json!({"metadata": {"uid": pod.uid()}, "status": {
        "phase": "Failed",
        "conditions": [condition("Ready"), condition("ContainersReady")],
        "containerStatuses": containers,
    }})
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(phase: &str, policy: &str, deleted: bool) -> Pod {
        let deletion = deleted.then_some("2026-09-21T10:00:00Z");
        serde_json::from_value(json!({
            "metadata": {"name": "demo", "uid": "u", "deletionTimestamp": deletion},
            "spec": {"containers": [{"name": "main"}], "restartPolicy": policy},
            "status": {"phase": phase, "containerStatuses": [
                {"name": "main", "image": "i", "imageID": "i@sha256:0", "ready": true, "restartCount": 0},
            ]},
        }))
        .expect("a Pod")
    }

    #[test]
    fn a_boot_ends_what_ran_and_is_not_run_again() {
        for (pod, expected) in [
            (pod("Running", "Never", false), true),
            (pod("Running", "Always", false), false),
            (pod("Running", "Never", true), false),
            (pod("Pending", "Never", false), false),
            (pod("Failed", "Never", false), false),
        ] {
            assert_eq!(has_ended(&pod), expected, "{pod:?}");
        }
    }

    #[test]
    fn its_status_names_each_container_and_takes_readiness_back() {
        let status = &ended(&pod("Running", "Never", false), "2026-09-21T10:00:00Z")["status"];
        assert_eq!(status["phase"], "Failed");
        assert!(status["conditions"].as_array().expect("conditions").iter().all(|c| c["status"] == "False"));
        assert_eq!(status["containerStatuses"][0]["state"]["terminated"]["exitCode"], 137);
        assert_eq!(status["containerStatuses"][0]["name"], "main");
    }
}
