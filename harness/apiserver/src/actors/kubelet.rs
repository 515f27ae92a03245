//! The kubelet of one node: brings bound pods up, throws some out, takes deleted ones away, and keeps its node alive.
//!
//! Its requests are those of a scripted kubelet that was recorded against a real API server: a status patch when the
//! containers are being created, one when they run, and at the end a delete with a grace period of zero.

mod heartbeat;
mod status;

use std::collections::BTreeMap;
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions};
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{Config, Event, watcher};
use kube::{Api, Client, ResourceExt};
use serde_json::Value;
use tokio::task::{AbortHandle, JoinSet};

use super::{BoxError, Fate, Pace, normal, persist, spared};
use heartbeat::Silence;

/// How a kubelet behaves.
#[derive(Clone)]
pub struct KubeletConfig {
    /// The node whose pods it has. Default `n1`.
    pub node: String,
    /// Time from a pod's binding until its containers run. Default 250 ms.
    pub start: Duration,
    /// Time from a pod's deletion until its containers have ended, at most the grace period. Default 250 ms.
    pub stop: Duration,
    /// Time for the pull of images, before the start. Default none.
    pub pull: Duration,
    /// Time between two renewals of the node's Lease; a node object is made if there is none. Default: no heartbeat,
    /// and no node object.
    pub heartbeat: Option<Duration>,
    /// What is asked at `start/pod/<name>#<n>`, `stop/pod/<name>#<n>` and, if there is a time for it,
    /// `pull/pod/<name>#<n>`, where n counts the pods of that name.
    pub pace: Pace,
    /// What befalls a running pod (`evict/pod/<name>#<n>`: it is thrown out after that time) and the node at its n-th
    /// heartbeat (`silent/node/<node>#<n>`: nobody hears of it for that time).
    pub fate: Fate,
}

impl Default for KubeletConfig {
    fn default() -> KubeletConfig {
        let delay = Duration::from_millis(250);
        KubeletConfig {
            node: "n1".into(),
            start: delay,
            stop: delay,
            pull: Duration::ZERO,
            heartbeat: None,
            pace: normal(),
            fate: spared(),
        }
    }
}

impl std::fmt::Debug for KubeletConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let KubeletConfig { node, start, stop, pull, heartbeat, .. } = self;
        f.debug_struct("KubeletConfig")
            .field("node", node)
            .field("start", start)
            .field("stop", stop)
            .field("pull", pull)
            .field("heartbeat", heartbeat)
            .finish_non_exhaustive()
    }
}

/// Runs until its watch cannot be kept up, which is never, as long as the server speaks Kubernetes.
///
/// # Errors
/// If the server refuses the watch for good.
pub async fn run(client: Client, config: KubeletConfig) -> Result<(), BoxError> {
    let pods: Api<Pod> = Api::all(client.clone());
    let mine = Config::default().fields(&format!("spec.nodeName={}", config.node));
    let mut events = watcher(pods, mine).default_backoff().boxed();
    let silence = Silence::default();
    let mut kubelet = Kubelet {
        client,
        config,
        silence,
        pods: BTreeMap::new(),
        tasks: JoinSet::new(),
        counts: BTreeMap::new(),
        last_ip: 0,
    };
    if let Some(period) = kubelet.config.heartbeat {
        let (client, config, silence) = (kubelet.client.clone(), kubelet.config.clone(), kubelet.silence.clone());
        kubelet.tasks.spawn(async move { heartbeat::run(client, config.node, period, config.fate, silence).await });
    }
    while let Some(event) = events.next().await {
        // Finished tasks are not waited for, only cleared away.
        while kubelet.tasks.try_join_next().is_some() {}
        match event {
            Ok(Event::Apply(pod) | Event::InitApply(pod)) => kubelet.sync(pod),
            Ok(Event::Delete(pod)) => kubelet.forget(&pod.uid().unwrap_or_default()),
            Ok(Event::Init) => kubelet.pods.values_mut().for_each(|worker| worker.listed = false),
            Ok(Event::InitDone) => kubelet.forget_unlisted(),
            Err(error) => tracing::debug!(%error, "watching pods"),
        }
    }
    Ok(())
}

struct Kubelet {
    client: Client,
    config: KubeletConfig,
    silence: Silence,
    /// Pods by uid.
    pods: BTreeMap<String, Worker>,
    tasks: JoinSet<()>,
    /// Pods of each name so far.
    counts: BTreeMap<String, u64>,
    last_ip: u32,
}

/// What is being done about one pod.
struct Worker {
    number: u64,
    starting: Option<AbortHandle>,
    stopping: Option<AbortHandle>,
    /// Seen since the last list began.
    listed: bool,
}

impl Kubelet {
    fn sync(&mut self, pod: Pod) {
        let Some(uid) = pod.uid() else { return };
        self.last_ip = self.last_ip.max(last_octets(&pod));
        let name = pod.name_any();
        let number = match self.pods.get(&uid) {
            Some(worker) => worker.number,
            None => {
                let count = self.counts.entry(name.clone()).or_default();
                *count += 1;
                *count
            }
        };
        let known = self.pods.contains_key(&uid);
        if let Some(worker) = self.pods.get_mut(&uid) {
            worker.listed = true;
        }
        if pod.metadata.deletion_timestamp.is_some() {
            if self.pods.get(&uid).is_some_and(|worker| worker.stopping.is_some()) {
                return;
            }
            if let Some(starting) = self.pods.get_mut(&uid).and_then(|worker| worker.starting.take()) {
                starting.abort();
            }
            let stopping = Some(self.stop(&pod, &uid, number));
            self.pods.insert(uid, Worker { number, starting: None, stopping, listed: true });
            return;
        }
        let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or("Pending");
        if !known {
            // A pod that runs was brought up by an earlier life of this kubelet.
            let starting = (phase == "Pending").then(|| self.start(&pod, &uid, number));
            self.pods.insert(uid, Worker { number, starting, stopping: None, listed: true });
        }
    }

    fn forget(&mut self, uid: &str) {
        if let Some(worker) = self.pods.remove(uid) {
            worker.starting.into_iter().chain(worker.stopping).for_each(|task| task.abort());
        }
    }

    fn forget_unlisted(&mut self) {
        let gone: Vec<String> = self.pods.iter().filter(|(_, w)| !w.listed).map(|(uid, _)| uid.clone()).collect();
        gone.iter().for_each(|uid| self.forget(uid));
    }

    fn start(&mut self, pod: &Pod, uid: &str, number: u64) -> AbortHandle {
        self.last_ip += 1;
        let ip = format!("10.1.{}.{}", self.last_ip >> 8, self.last_ip & 255);
        let name = pod.name_any();
        let delay = (self.config.pace)(&format!("start/pod/{name}#{number}"), self.config.start);
        let api: Api<Pod> = Api::namespaced(self.client.clone(), &pod.namespace().unwrap_or_default());
        let pull = self.config.pull;
        let pull = match pull.is_zero() {
            true => pull,
            false => (self.config.pace)(&format!("pull/pod/{name}#{number}"), pull),
        };
        let evicted = (self.config.fate)(&format!("evict/pod/{name}#{number}"));
        let (uid, pod, silence) = (uid.to_owned(), pod.clone(), self.silence.clone());
        self.tasks.spawn(async move {
            silence.over().await;
            if !patch(&api, &name, status::creating(&pod, &uid)).await {
                return;
            }
            tokio::time::sleep(pull + delay).await;
            silence.over().await;
            if !patch(&api, &name, status::running(&pod, &uid, &ip)).await {
                return;
            }
            if let Some(after) = evicted {
                tokio::time::sleep(after).await;
                silence.over().await;
                patch(&api, &name, status::evicted(&pod, &uid)).await;
            }
        })
    }

    fn stop(&mut self, pod: &Pod, uid: &str, number: u64) -> AbortHandle {
        let name = pod.name_any();
        let grace = Duration::from_secs(pod.metadata.deletion_grace_period_seconds.unwrap_or(30).unsigned_abs());
        let delay = (self.config.pace)(&format!("stop/pod/{name}#{number}"), self.config.stop).min(grace);
        let api: Api<Pod> = Api::namespaced(self.client.clone(), &pod.namespace().unwrap_or_default());
        let params = DeleteParams::default()
            .grace_period(0)
            .preconditions(Preconditions { uid: Some(uid.to_owned()), resource_version: None });
        let silence = self.silence.clone();
        self.tasks.spawn(async move {
            tokio::time::sleep(delay).await;
            silence.over().await;
            if let Err(error) = persist(|| api.delete(&name, &params)).await {
                tracing::debug!(%error, pod = name, "final delete");
            }
        })
    }
}

/// Sends a status. False: the pod is gone, or it is another one by now.
async fn patch(api: &Api<Pod>, name: &str, status: Value) -> bool {
    let (params, patch) = (PatchParams::default(), Patch::Strategic(status));
    match persist(|| api.patch_status(name, &params, &patch)).await {
        Ok(_) => true,
        Err(error) => {
            tracing::debug!(%error, pod = name, "status patch");
            false
        }
    }
}

/// The number behind the pod's address, if this kubelet gave it one.
fn last_octets(pod: &Pod) -> u32 {
    let ip = pod.status.as_ref().and_then(|status| status.pod_ip.as_deref()).unwrap_or_default();
    let mut octets =
        ip.strip_prefix("10.1.").unwrap_or_default().split('.').map(|octet| octet.parse::<u32>().unwrap_or(0));
    octets.next().unwrap_or(0) << 8 | octets.next().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn addresses_are_read_back_as_they_are_given() {
        let pod = |ip: &str| -> Pod { serde_json::from_value(json!({"status": {"podIP": ip}})).expect("a pod") };
        for (ip, number) in [("10.1.0.7", 7), ("10.1.2.1", 513), ("192.168.0.1", 0), ("", 0)] {
            assert_eq!(last_octets(&pod(ip)), number, "{ip}");
        }
    }
}
