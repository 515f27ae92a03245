//! The node lifecycle controller: notices nodes that fall silent, taints them, and evicts their pods.
//!
//! A kubelet renews its node's Lease every ten seconds. If the controller sees no renewal for forty, the node's Ready
//! becomes Unknown, it gets the `unreachable` taints, and its pods are no longer ready. Pods that tolerate the taint
//! only for a while (300 s, by the defaults of admission) are deleted after it. As a dead kubelet does not confirm the
//! end of its pods, they stay terminating until the node is back or its object is gone.

mod rules;

use std::collections::BTreeMap;
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, Preconditions};
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{Config, Event, watcher};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};
use tokio::time::{Instant, MissedTickBehavior, interval};

use super::{BoxError, persist};
use crate::clock;

/// How the controller behaves.
#[derive(Clone, Debug)]
pub struct NodeLifecycleConfig {
    /// How long a node may be silent. Default 40 s.
    pub grace: Duration,
    /// Time between two looks at all nodes. Default 5 s.
    pub period: Duration,
    /// How long pods of a node whose object is gone are left alone. Default 40 s.
    pub quarantine: Duration,
}

impl Default for NodeLifecycleConfig {
    fn default() -> NodeLifecycleConfig {
        let secs = Duration::from_secs;
        NodeLifecycleConfig { grace: secs(40), period: secs(5), quarantine: secs(40) }
    }
}

/// Runs until its watches cannot be kept up, which is never, as long as the server speaks Kubernetes.
///
/// # Errors
/// If the server refuses what it needs for good.
pub async fn run(client: Client, config: NodeLifecycleConfig) -> Result<(), BoxError> {
    let leases: Api<Lease> = Api::namespaced(client.clone(), "kube-node-lease");
    let mut leases = watcher(leases, Config::default()).default_backoff().boxed();
    let nodes: Api<Node> = Api::all(client.clone());
    let mut nodes = watcher(nodes, Config::default()).default_backoff().boxed();
    let mut looks = interval(config.period);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut controller = Controller {
        client,
        config,
        beats: BTreeMap::new(),
        nodes: BTreeMap::new(),
        removed: false,
        lost: BTreeMap::new(),
    };
    loop {
        tokio::select! {
            biased;
            Some(event) = leases.next() => match event {
                Ok(Event::Apply(lease) | Event::InitApply(lease)) => controller.beat(&lease),
                Ok(_) => {}
                Err(error) => tracing::debug!(%error, "watching leases"),
            },
            Some(event) = nodes.next() => match event {
                Ok(Event::Apply(node) | Event::InitApply(node)) => controller.see(node),
                Ok(Event::Delete(node)) => {
                    controller.removed = true;
                    controller.nodes.remove(&node.name_any());
                }
                Ok(_) => {}
                Err(error) => tracing::debug!(%error, "watching nodes"),
            },
            _ = looks.tick() => {
                if let Err(error) = controller.look().await {
                    tracing::debug!(%error, "looking at nodes");
                }
            }
            else => return Ok(()),
        }
    }
}

/// The last sign of life of a node.
struct Beat {
    /// What the Lease or the status said; opaque.
    text: String,
    /// When it was seen to change, on this controller's clock.
    at: Instant,
}

struct Controller {
    client: Client,
    config: NodeLifecycleConfig,
    beats: BTreeMap<String, Beat>,
    nodes: BTreeMap<String, Seen>,
    /// Some node's object was removed.
    removed: bool,
    /// Nodes that pods name and that do not exist, and since when.
    lost: BTreeMap<String, Instant>,
}

/// A node, and since when it has a taint that drives pods away.
struct Seen {
    node: Node,
    tainted: Option<Instant>,
}

impl Controller {
    fn beat(&mut self, lease: &Lease) {
        let renewed = lease.spec.as_ref().and_then(|spec| spec.renew_time.as_ref());
        self.note(lease.name_any(), format!("{renewed:?}"));
    }

    /// A sign of life counts from when it is seen: clocks of other machines may be wrong.
    fn note(&mut self, node: String, text: String) {
        if self.beats.get(&node).is_none_or(|beat| beat.text != text) {
            self.beats.insert(node, Beat { text, at: Instant::now() });
        }
    }

    fn see(&mut self, node: Node) {
        let name = node.name_any();
        self.beats.entry(name.clone()).or_insert_with(|| Beat { text: String::new(), at: Instant::now() });
        let since = self.nodes.get(&name).and_then(|seen| seen.tainted);
        let tainted = rules::drives_away(&node).then(|| since.unwrap_or_else(Instant::now));
        self.nodes.insert(name, Seen { node, tainted });
    }

    async fn look(&mut self) -> kube::Result<()> {
        let now = Instant::now();
        let names: Vec<String> = self.nodes.keys().cloned().collect();
        for name in names {
            let silent = self.beats.get(&name).is_none_or(|beat| now - beat.at > self.config.grace);
            let Some(seen) = self.nodes.get(&name) else { continue };
            let time = clock::rfc3339(clock::now());
            if let Some(conditions) = rules::silenced(&seen.node, silent, &time) {
                self.set_status(&name, json!({"status": {"conditions": conditions}})).await?;
                // The taints follow with the next look, which sees the new state.
            }
            let Some(seen) = self.nodes.get(&name) else { continue };
            if let Some(taints) = rules::taints(&seen.node, silent, &time) {
                self.set_taints(&name, taints).await?;
            }
        }
        self.evict(now).await
    }

    async fn set_status(&mut self, name: &str, change: Value) -> kube::Result<()> {
        let api: Api<Node> = Api::all(self.client.clone());
        let (params, patch) = (PatchParams::default(), Patch::Strategic(change));
        let node = persist(|| api.patch_status(name, &params, &patch)).await?;
        self.see(node);
        Ok(())
    }

    async fn set_taints(&mut self, name: &str, taints: Value) -> kube::Result<()> {
        let api: Api<Node> = Api::all(self.client.clone());
        let (params, patch) = (PatchParams::default(), Patch::Merge(json!({"spec": {"taints": taints}})));
        let node = persist(|| api.patch(name, &params, &patch)).await?;
        self.see(node);
        Ok(())
    }

    /// What becomes of the pods of nodes that are silent, not ready, or gone.
    async fn evict(&mut self, now: Instant) -> kube::Result<()> {
        if self.nodes.values().all(|seen| seen.tainted.is_none()) && !self.removed {
            return Ok(());
        }
        let api: Api<Pod> = Api::all(self.client.clone());
        let bound = ListParams::default().fields("spec.nodeName!=");
        let pods = persist(|| api.list(&bound)).await?.items;
        let mut missing = BTreeMap::new();
        for pod in pods {
            let name = pod.spec.as_ref().and_then(|spec| spec.node_name.clone()).unwrap_or_default();
            match self.nodes.get(&name) {
                Some(Seen { node, tainted: Some(since) }) => {
                    if rules::unknown(node) && rules::ready(&pod) {
                        self.mark_not_ready(&pod).await;
                    }
                    let due = rules::tolerates_for(&pod, node).map(|tolerated| *since + tolerated);
                    if due.is_some_and(|due| now >= due) && pod.metadata.deletion_timestamp.is_none() {
                        self.delete(&pod, true).await;
                    }
                }
                Some(_) => {}
                None => {
                    let since = self.lost.get(&name).copied().unwrap_or(now);
                    missing.insert(name, since);
                    if now - since >= self.config.quarantine {
                        self.delete(&pod, false).await;
                    }
                }
            }
        }
        self.lost = missing;
        Ok(())
    }

    async fn mark_not_ready(&self, pod: &Pod) {
        let api: Api<Pod> = Api::namespaced(self.client.clone(), &pod.namespace().unwrap_or_default());
        let now = clock::rfc3339(clock::now());
        let change = json!({"metadata": {"uid": pod.uid()}, "status": {"conditions": [
            {"type": "Ready", "status": "False", "lastTransitionTime": now},
        ]}});
        let patched = api.patch_status(&pod.name_any(), &PatchParams::default(), &Patch::Strategic(change)).await;
        if let Err(error) = patched {
            tracing::debug!(%error, pod = pod.name_any(), "marking as not ready");
        }
    }

    /// An eviction is a deletion with the pod's own grace; pods of nodes that are gone go at once.
    async fn delete(&self, pod: &Pod, gracefully: bool) {
        let api: Api<Pod> = Api::namespaced(self.client.clone(), &pod.namespace().unwrap_or_default());
        let mut params =
            DeleteParams::default().preconditions(Preconditions { uid: pod.uid(), resource_version: None });
        if !gracefully {
            params = params.grace_period(0);
        }
        if let Err(error) = api.delete(&pod.name_any(), &params).await {
            tracing::debug!(%error, pod = pod.name_any(), "evicting");
        }
    }
}
