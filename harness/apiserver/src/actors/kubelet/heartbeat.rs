//! The node's signs of life: its object, its Lease, and the times when nobody hears of it.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Node;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, sleep_until};

use crate::actors::Fate;
use crate::clock;

/// A time in which the node does nothing that anybody could see. Clones share it.
#[derive(Clone, Debug)]
pub(super) struct Silence(Arc<tokio::sync::watch::Sender<Instant>>);

impl Default for Silence {
    fn default() -> Silence {
        Silence(Arc::new(tokio::sync::watch::Sender::new(Instant::now())))
    }
}

impl Silence {
    /// Waits until the node can be heard.
    pub(super) async fn over(&self) {
        loop {
            let until = *self.0.borrow();
            if until <= Instant::now() {
                return;
            }
            sleep_until(until).await;
        }
    }

    fn begin(&self, lasts: Duration) {
        self.0.send_replace(Instant::now() + lasts);
    }
}

/// Renews the node's Lease for ever, except in silence.
pub(super) async fn run(client: Client, node: String, period: Duration, fate: Fate, silence: Silence) {
    for beat in 1u64.. {
        if let Some(lasts) = fate(&format!("silent/node/{node}#{beat}")) {
            silence.begin(lasts);
        }
        silence.over().await;
        if let Err(error) = renew(&client, &node).await {
            tracing::debug!(%error, node, "heartbeat");
        }
        sleep(period).await;
    }
}

async fn renew(client: &Client, node: &str) -> kube::Result<()> {
    let nodes: Api<Node> = Api::all(client.clone());
    let known = match nodes.get_opt(node).await? {
        Some(known) => known,
        None => {
            let new = json!({
                "apiVersion": "v1", "kind": "Node",
                "metadata": {"name": node, "labels": {"kubernetes.io/hostname": node, "kubernetes.io/os": "linux"}},
            });
            let new = serde_json::from_value(new).map_err(kube::Error::SerdeError)?;
            nodes.create(&PostParams::default(), &new).await?
        }
    };
    let ready = known.status.iter().flat_map(|status| status.conditions.iter().flatten());
    if !ready.into_iter().any(|condition| condition.type_ == "Ready" && condition.status == "True") {
        nodes.patch_status(node, &PatchParams::default(), &Patch::Strategic(alive(node))).await?;
    }
    let leases: Api<Lease> = Api::namespaced(client.clone(), "kube-node-lease");
    let spec = json!({"holderIdentity": node, "leaseDurationSeconds": 40, "renewTime": clock::micro()});
    let renewal = Patch::Merge(json!({"spec": spec}));
    match leases.patch(node, &PatchParams::default(), &renewal).await {
        Err(kube::Error::Api(status)) if status.code == 404 => {
            let new = json!({"metadata": {"name": node}, "spec": spec});
            let new = serde_json::from_value(new).map_err(kube::Error::SerdeError)?;
            leases.create(&PostParams::default(), &new).await.map(|_| ())
        }
        result => result.map(|_| ()),
    }
}

/// The status of a node that is well.
fn alive(node: &str) -> Value {
    let now = clock::rfc3339(clock::now());
    let row = |kind: &str, status: &str, reason: &str| {
        json!({
            "type": kind, "status": status, "reason": reason, "message": "", "lastHeartbeatTime": now,
            "lastTransitionTime": now,
        })
    };
    json!({"status": {
        "addresses": [{"type": "Hostname", "address": node}],
        "conditions": [
            row("MemoryPressure", "False", "KubeletHasSufficientMemory"),
            row("DiskPressure", "False", "KubeletHasNoDiskPressure"),
            row("PIDPressure", "False", "KubeletHasSufficientPID"),
            row("Ready", "True", "KubeletReady"),
        ],
    }})
}
