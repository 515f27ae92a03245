//! The scheduler, as far as nodes with room for everybody need one: binds pods that have no scheduling gates.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::core::v1::{Node, Pod, Taint, Toleration};
use kube::api::{Patch, PatchParams, PostParams};
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{Config, Event, watcher};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::{BoxError, persist};
use crate::clock;

/// Time from a pod's arrival to its binding.
const TAKES: Duration = Duration::from_millis(10);

/// The node that all pods are bound to, where nodes are not looked at.
pub const NODE: &str = "n1";

/// Binds every pod to the node [`NODE`], whether or not there is such an object.
///
/// Runs until its watch cannot be kept up, which is never, as long as the server speaks Kubernetes.
///
/// # Errors
/// If the server refuses the watch for good.
pub async fn run(client: Client) -> Result<(), BoxError> {
    let mut scheduler = Scheduler::new(client.clone(), None);
    let mut events = watcher(Api::<Pod>::all(client), unbound()).default_backoff().boxed();
    while let Some(event) = events.next().await {
        scheduler.pod(event);
    }
    Ok(())
}

/// Binds pods to nodes that exist, are not cordoned and have no taint that the pod does not tolerate: the one with the
/// fewest pods bound by this scheduler, the first by name of several. A pod that fits nowhere is told so in its
/// conditions, and waits.
///
/// # Errors
/// If the server refuses the watches for good.
pub async fn run_on_nodes(client: Client) -> Result<(), BoxError> {
    let mut scheduler = Scheduler::new(client.clone(), Some(BTreeMap::new()));
    let mut pods = watcher(Api::<Pod>::all(client.clone()), unbound()).default_backoff().boxed();
    let mut nodes = watcher(Api::<Node>::all(client), Config::default()).default_backoff().boxed();
    loop {
        tokio::select! {
            biased;
            Some(event) = nodes.next() => scheduler.node(event),
            Some(event) = pods.next() => scheduler.pod(event),
            else => return Ok(()),
        }
    }
}

fn unbound() -> Config {
    Config::default().fields("spec.nodeName=")
}

struct Scheduler {
    client: Client,
    /// Nodes by name, and how many pods were sent to each; `None`: all pods go to [`NODE`].
    nodes: Option<BTreeMap<String, (Node, u64)>>,
    /// Unbound pods by uid, and whether they were placed.
    pods: BTreeMap<String, (Pod, bool)>,
    tasks: JoinSet<()>,
}

impl Scheduler {
    fn new(client: Client, nodes: Option<BTreeMap<String, (Node, u64)>>) -> Scheduler {
        Scheduler { client, nodes, pods: BTreeMap::new(), tasks: JoinSet::new() }
    }

    fn pod(&mut self, event: Result<Event<Pod>, kube::runtime::watcher::Error>) {
        while self.tasks.try_join_next().is_some() {}
        match event {
            Ok(Event::Apply(pod) | Event::InitApply(pod)) if wants_node(&pod) => {
                let Some(uid) = pod.uid() else { return };
                let placed = self.pods.get(&uid).is_some_and(|(_, placed)| *placed);
                self.pods.insert(uid.clone(), (pod, placed));
                self.place(&uid);
            }
            // Bound, or deleted: it left the selection either way.
            Ok(Event::Delete(pod)) => drop(self.pods.remove(&pod.uid().unwrap_or_default())),
            Ok(_) => {}
            Err(error) => tracing::debug!(%error, "watching pods"),
        }
    }

    fn node(&mut self, event: Result<Event<Node>, kube::runtime::watcher::Error>) {
        let nodes = self.nodes.get_or_insert_default();
        match event {
            Ok(Event::Apply(node) | Event::InitApply(node)) => {
                let sent = nodes.get(&node.name_any()).map_or(0, |(_, sent)| *sent);
                nodes.insert(node.name_any(), (node, sent));
            }
            Ok(Event::Delete(node)) => drop(nodes.remove(&node.name_any())),
            Ok(_) => return,
            Err(error) => return tracing::debug!(%error, "watching nodes"),
        }
        let waiting: Vec<String> =
            self.pods.iter().filter(|(_, (_, placed))| !placed).map(|(uid, _)| uid.clone()).collect();
        waiting.iter().for_each(|uid| self.place(uid));
    }

    fn place(&mut self, uid: &str) {
        let Some((pod, placed)) = self.pods.get_mut(uid).filter(|(_, placed)| !placed) else { return };
        let (namespace, name) = (pod.namespace().unwrap_or_default(), pod.name_any());
        let node = match &mut self.nodes {
            None => NODE.to_owned(),
            Some(nodes) => match choose(pod, nodes) {
                Some(node) => {
                    if let Some((_, sent)) = nodes.get_mut(&node) {
                        *sent += 1;
                    }
                    node
                }
                None => {
                    if !told(pod) {
                        let refused = unschedulable(nodes.len());
                        self.tasks.spawn(tell(self.client.clone(), namespace, name, uid.to_owned(), refused));
                    }
                    return;
                }
            },
        };
        *placed = true;
        self.tasks.spawn(bind(self.client.clone(), namespace, name, uid.to_owned(), node));
    }
}

fn wants_node(pod: &Pod) -> bool {
    let gates = pod.spec.as_ref().and_then(|spec| spec.scheduling_gates.as_ref());
    pod.metadata.deletion_timestamp.is_none() && gates.is_none_or(Vec::is_empty)
}

/// Whether the pod was told that it fits nowhere.
fn told(pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
    conditions.into_iter().flatten().any(|c| c.type_ == "PodScheduled" && c.reason.as_deref() == Some("Unschedulable"))
}

/// Whether a toleration covers a taint (API concepts: taints and tolerations).
pub(super) fn tolerates(toleration: &Toleration, taint: &Taint) -> bool {
    let any = |text: &Option<String>| text.as_deref().is_none_or(str::is_empty);
    let exists = toleration.operator.as_deref() == Some("Exists");
    let key = if any(&toleration.key) { exists } else { toleration.key.as_deref() == Some(taint.key.as_str()) };
    let effect = any(&toleration.effect) || toleration.effect.as_deref() == Some(taint.effect.as_str());
    let value = exists || toleration.value.as_deref().unwrap_or("") == taint.value.as_deref().unwrap_or("");
    key && effect && value
}

fn fits(pod: &Pod, node: &Node) -> bool {
    let spec = node.spec.as_ref();
    let cordoned = spec.and_then(|spec| spec.unschedulable).unwrap_or(false);
    let tolerations = pod.spec.as_ref().and_then(|spec| spec.tolerations.as_ref());
    let tolerated = |taint: &Taint| tolerations.into_iter().flatten().any(|toleration| tolerates(toleration, taint));
    let taints = spec.and_then(|spec| spec.taints.as_ref());
    let mut hard = taints.into_iter().flatten().filter(|taint| taint.effect != "PreferNoSchedule");
    !cordoned && hard.all(tolerated)
}

fn choose(pod: &Pod, nodes: &BTreeMap<String, (Node, u64)>) -> Option<String> {
    let fitting = nodes.iter().filter(|(_, (node, _))| fits(pod, node));
    fitting.min_by_key(|(name, (_, sent))| (*sent, (*name).clone())).map(|(name, _)| name.clone())
}

fn unschedulable(nodes: usize) -> Value {
    let message = match nodes {
        0 => "no nodes available to schedule pods".to_owned(),
        nodes => {
            format!("0/{nodes} nodes are available: {nodes} node(s) had untolerated taint(s) or were unschedulable.")
        }
    };
    let now = clock::rfc3339(clock::now());
    json!({
        "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message,
        "lastTransitionTime": now,
    })
}

async fn tell(client: Client, namespace: String, name: String, uid: String, condition: Value) {
    let api: Api<Pod> = Api::namespaced(client, &namespace);
    let change = Patch::Strategic(json!({"metadata": {"uid": uid}, "status": {"conditions": [condition]}}));
    let params = PatchParams::default();
    if let Err(error) = persist(|| api.patch_status(&name, &params, &change)).await {
        tracing::debug!(%error, pod = name, "telling that it fits nowhere");
    }
}

async fn bind(client: Client, namespace: String, name: String, uid: String, node: String) {
    tokio::time::sleep(TAKES).await;
    let api: Api<Pod> = Api::namespaced(client, &namespace);
    let binding = json!({
        "apiVersion": "v1", "kind": "Binding", "metadata": {"name": name, "namespace": namespace, "uid": uid},
        "target": {"apiVersion": "v1", "kind": "Node", "name": node},
    });
    let params = PostParams::default();
    let bound = persist(|| api.create_subresource::<_, Value>("binding", &name, &params, &binding)).await;
    if let Err(error) = bound {
        tracing::debug!(%error, pod = name, "binding");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn toleration(value: Value) -> Toleration {
        serde_json::from_value(value).expect("a toleration")
    }

    #[test]
    fn tolerations_match_by_key_effect_and_value() {
        let taint: Taint =
            serde_json::from_value(json!({"key": "k", "value": "v", "effect": "NoExecute"})).expect("a taint");
        let table = [
            (json!({"key": "k", "operator": "Exists"}), true),
            (json!({"key": "k", "value": "v"}), true),
            (json!({"key": "k", "operator": "Equal", "value": "w"}), false),
            (json!({"key": "k", "operator": "Exists", "effect": "NoSchedule"}), false),
            (json!({"operator": "Exists"}), true),
            (json!({"key": "other", "operator": "Exists"}), false),
        ];
        for (toleration_, matches) in table {
            assert_eq!(tolerates(&toleration(toleration_.clone()), &taint), matches, "{toleration_}");
        }
    }

    #[test]
    fn a_pod_goes_to_the_node_with_the_fewest_pods_that_it_fits_on() {
        let node = |spec: Value| -> Node { serde_json::from_value(json!({"spec": spec})).expect("a node") };
        let pod = Pod::default();
        let taint = json!({"taints": [{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}]});
        let mut nodes = BTreeMap::from([
            ("a".to_owned(), (node(taint), 0)),
            ("b".to_owned(), (node(json!({})), 2)),
            ("c".to_owned(), (node(json!({})), 1)),
            ("d".to_owned(), (node(json!({"unschedulable": true})), 0)),
        ]);
        assert_eq!(choose(&pod, &nodes), Some("c".into()));
        nodes.remove("b");
        nodes.remove("c");
        assert_eq!(choose(&pod, &nodes), None);
    }
}
