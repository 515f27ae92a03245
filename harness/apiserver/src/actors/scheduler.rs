//! The scheduler, as far as one node with room for everybody needs one: binds pods that have no scheduling gates.

use std::collections::BTreeSet;
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use kube::api::PostParams;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{Config, Event, watcher};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::{BoxError, persist};

/// Time from a pod's arrival to its binding.
const TAKES: Duration = Duration::from_millis(10);

/// The node that all pods are bound to.
pub const NODE: &str = "n1";

/// Runs until its watch cannot be kept up, which is never, as long as the server speaks Kubernetes.
///
/// # Errors
/// If the server refuses the watch for good.
pub async fn run(client: Client) -> Result<(), BoxError> {
    let pods: Api<Pod> = Api::all(client.clone());
    let unbound = Config::default().fields("spec.nodeName=");
    let mut events = watcher(pods, unbound).default_backoff().boxed();
    let mut placed = BTreeSet::new();
    let mut tasks = JoinSet::new();
    while let Some(event) = events.next().await {
        while tasks.try_join_next().is_some() {}
        match event {
            Ok(Event::Apply(pod) | Event::InitApply(pod)) if wants_node(&pod) => {
                let Some(uid) = pod.uid() else { continue };
                if placed.insert(uid.clone()) {
                    tasks.spawn(bind(client.clone(), pod.namespace().unwrap_or_default(), pod.name_any(), uid));
                }
            }
            // Bound, or deleted: it left the selection either way.
            Ok(Event::Delete(pod)) => {
                placed.remove(&pod.uid().unwrap_or_default());
            }
            Ok(_) => {}
            Err(error) => tracing::debug!(%error, "watching pods"),
        }
    }
    Ok(())
}

fn wants_node(pod: &Pod) -> bool {
    let gates = pod.spec.as_ref().and_then(|spec| spec.scheduling_gates.as_ref());
    pod.metadata.deletion_timestamp.is_none() && gates.is_none_or(Vec::is_empty)
}

async fn bind(client: Client, namespace: String, name: String, uid: String) {
    tokio::time::sleep(TAKES).await;
    let api: Api<Pod> = Api::namespaced(client, &namespace);
    let binding = json!({
        "apiVersion": "v1", "kind": "Binding", "metadata": {"name": name, "namespace": namespace, "uid": uid},
        "target": {"apiVersion": "v1", "kind": "Node", "name": NODE},
    });
    let params = PostParams::default();
    let bound = persist(|| api.create_subresource::<_, Value>("binding", &name, &params, &binding)).await;
    if let Err(error) = bound {
        tracing::debug!(%error, pod = name, "binding");
    }
}
