//! The garbage collector: removes what has lost its owners, and settles foreground and orphaning deletions.
//!
//! Like the real one it watches metadata alone, keeps a graph of owners and dependents, and before it deletes anything
//! asks the server about owners that it has not seen go. A volume claim's protection, which is another controller of
//! the real controller-manager, runs along.

mod graph;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures::stream::{SelectAll, select_all};
use futures::{Stream, StreamExt};
use kube::api::{ApiResource, DeleteParams, Patch, PatchParams, Preconditions, PropagationPolicy};
use kube::core::PartialObjectMeta;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Config, Event, watcher};
use kube::{Api, Client};
use serde_json::json;
use tokio::time::{Instant, sleep_until};

use super::pvc_protection::{self, Seen};
use super::{BoxError, kinds};
use graph::{Action, Graph, Node};

/// Time from noticing to acting, unless it is said.
const TAKES: Duration = Duration::from_millis(50);

/// Runs until its watches cannot be kept up, which is never, as long as the server speaks Kubernetes.
///
/// # Errors
/// If the server refuses what it needs for good.
pub async fn run(client: Client) -> Result<(), BoxError> {
    run_taking(client, TAKES).await
}

/// As [`run`], with so much time from noticing to acting. A real collector that has nothing else to do takes some
/// milliseconds.
///
/// # Errors
/// As [`run`].
pub async fn run_taking(client: Client, takes: Duration) -> Result<(), BoxError> {
    let kinds = kinds::owning(&client).await?;
    let events = watch_all(&client, &kinds);
    let (seen, events_of_claims) = tokio::sync::mpsc::unbounded_channel();
    let collector = Collector {
        client: client.clone(),
        claims: seen,
        kinds,
        graph: Graph::default(),
        takes,
        listed: BTreeMap::new(),
        enqueued: 0,
        due: BTreeSet::new(),
        queued: BTreeMap::new(),
    };
    let protection = pvc_protection::run(client, events_of_claims);
    tokio::select! {
        biased;
        result = collector.run(events) => result,
        () = protection => Ok(()),
    }
}

type Metadata = PartialObjectMeta<kube::core::DynamicObject>;
type Observed = (usize, Result<Event<Metadata>, watcher::Error>);
type Events = SelectAll<std::pin::Pin<Box<dyn Stream<Item = Observed> + Send>>>;

fn watch_all(client: &Client, kinds: &[ApiResource]) -> Events {
    select_all(kinds.iter().enumerate().map(|(kind, resource)| {
        let api: Api<Metadata> = Api::all_with(client.clone(), resource);
        // One request a type instead of two.
        let events = watcher(api, Config::default().streaming_lists()).default_backoff();
        events.map(move |event| (kind, event)).boxed()
    }))
}

struct Collector {
    client: Client,
    kinds: Vec<ApiResource>,
    claims: tokio::sync::mpsc::UnboundedSender<Seen>,
    graph: Graph,
    /// Uids listed since a type's list began.
    listed: BTreeMap<usize, BTreeSet<String>>,
    takes: Duration,
    enqueued: u64,
    /// What to look at, by when, and in the order in which it came up.
    due: BTreeSet<(Instant, u64, String)>,
    queued: BTreeMap<String, Instant>,
}

impl Collector {
    async fn run(mut self, mut events: Events) -> Result<(), BoxError> {
        loop {
            let next = self.due.first().map(|(at, ..)| *at);
            tokio::select! {
                biased;
                seen = events.next() => match seen {
                    Some((kind, event)) => self.observe(kind, event),
                    None => return Ok(()),
                },
                () = sleep_until(next.unwrap_or_else(Instant::now)), if next.is_some() => {
                    if let Some((_, _, uid)) = self.due.pop_first() {
                        self.queued.remove(&uid);
                        self.settle(&uid).await;
                    }
                }
            }
        }
    }

    /// Tells the protection of claims what concerns it.
    fn tell_claims(&self, kind: usize, event: &Event<Metadata>) {
        let told = match (&*self.kinds[kind].plural, event) {
            ("persistentvolumeclaims", Event::Apply(claim) | Event::InitApply(claim)) => {
                pvc_protection::dying(&claim.metadata)
            }
            ("pods", Event::Delete(pod)) => Some(Seen::PodsWent(pod.metadata.namespace.clone())),
            ("pods", Event::InitDone) => Some(Seen::PodsWent(None)),
            _ => None,
        };
        if let Some(told) = told {
            // The receiver lives as long as this collector runs.
            let _ = self.claims.send(told);
        }
    }

    fn observe(&mut self, kind: usize, event: Result<Event<Metadata>, watcher::Error>) {
        if let Ok(event) = &event {
            self.tell_claims(kind, event);
        }
        let touched = match event {
            Ok(Event::Apply(object)) => self.graph.apply(Node::new(kind, &object.metadata)),
            Ok(Event::InitApply(object)) => {
                let node = Node::new(kind, &object.metadata);
                self.listed.entry(kind).or_default().insert(node.uid.clone());
                self.graph.apply(node)
            }
            Ok(Event::Delete(object)) => self.graph.remove(object.metadata.uid.as_deref().unwrap_or_default()),
            Ok(Event::Init) => {
                self.listed.insert(kind, BTreeSet::new());
                Vec::new()
            }
            Ok(Event::InitDone) => {
                let listed = self.listed.remove(&kind).unwrap_or_default();
                self.graph.keep(kind, &listed)
            }
            Err(error) => {
                tracing::debug!(%error, resource = self.kinds[kind].plural, "watching");
                Vec::new()
            }
        };
        for uid in touched {
            self.enqueue(uid, self.takes);
        }
    }

    fn enqueue(&mut self, uid: String, after: Duration) {
        if !self.queued.contains_key(&uid) {
            let at = Instant::now() + after;
            self.queued.insert(uid.clone(), at);
            self.enqueued += 1;
            self.due.insert((at, self.enqueued, uid));
        }
    }

    /// Does what there is to do about one object.
    async fn settle(&mut self, uid: &str) {
        let Some(node) = self.graph.node(uid).cloned() else { return };
        let Some(absent) = self.absent_owners(&node).await else {
            // The server could not be asked: later.
            return self.enqueue(uid.to_owned(), super::RETRY);
        };
        let action = self.graph.action(&node, &absent);
        let result = match action {
            Action::None => Ok(()),
            Action::Delete(policy) => self.delete(&node, policy).await,
            Action::Disown(owners) => self.disown(&node, &owners).await,
            Action::Finish(finalizer) => self.finish(&node, finalizer).await,
            Action::LookAt(dependents) => {
                for dependent in dependents {
                    self.enqueue(dependent, Duration::ZERO);
                }
                Ok(())
            }
            Action::OrphanDependents(dependents) => {
                let mut result = Ok(());
                for dependent in dependents.iter().filter_map(|uid| self.graph.node(uid).cloned()) {
                    result = result.and(self.disown(&dependent, std::slice::from_ref(&node.uid)).await);
                }
                match result {
                    Ok(()) => self.finish(&node, "orphan").await,
                    failed => failed,
                }
            }
        };
        if let Err(error) = result {
            tracing::debug!(%error, object = node.name, "collecting");
            self.enqueue(uid.to_owned(), super::RETRY);
        }
    }

    /// Which of the owners do not exist. `None`: the server did not say.
    async fn absent_owners(&self, node: &Node) -> Option<BTreeSet<String>> {
        let mut absent = BTreeSet::new();
        for owner in &node.owners {
            if self.graph.holds(&owner.uid, node) {
                continue;
            }
            if self.graph.saw_go(&owner.uid) {
                absent.insert(owner.uid.clone());
                continue;
            }
            let group = owner.api_version.rsplit_once('/').map_or("", |(group, _)| group);
            // An owner of a type that is not watched counts as present.
            let Some(kind) = self.kinds.iter().find(|k| k.kind == owner.kind && k.group == group) else { continue };
            match self.api(kind, &node.namespace).get_metadata(&owner.name).await {
                Ok(found) if found.metadata.uid.as_deref() == Some(&owner.uid) => {}
                Ok(_) => {
                    absent.insert(owner.uid.clone());
                }
                Err(kube::Error::Api(status)) if status.code == 404 => {
                    absent.insert(owner.uid.clone());
                }
                Err(_) => return None,
            }
        }
        Some(absent)
    }

    fn api(&self, kind: &ApiResource, namespace: &str) -> Api<kube::core::DynamicObject> {
        Api::namespaced_with(self.client.clone(), namespace, kind)
    }

    fn api_of(&self, node: &Node) -> Api<kube::core::DynamicObject> {
        self.api(&self.kinds[node.kind], &node.namespace)
    }

    async fn delete(&self, node: &Node, policy: PropagationPolicy) -> kube::Result<()> {
        let params = DeleteParams {
            propagation_policy: Some(policy),
            preconditions: Some(Preconditions { uid: Some(node.uid.clone()), resource_version: None }),
            ..DeleteParams::default()
        };
        settled(self.api_of(node).delete(&node.name, &params).await.map(|_| ()))
    }

    /// Takes owners off an object.
    async fn disown(&self, node: &Node, owners: &[String]) -> kube::Result<()> {
        let api = self.api_of(node);
        let current = match api.get_metadata(&node.name).await {
            Ok(current) if current.metadata.uid.as_deref() == Some(&node.uid) => current.metadata,
            Ok(_) => return Ok(()),
            Err(error) => return settled(Err(error)),
        };
        let kept: Vec<_> =
            current.owner_references.into_iter().flatten().filter(|o| !owners.contains(&o.uid)).collect();
        let change = json!({"metadata": {"ownerReferences": kept, "resourceVersion": current.resource_version}});
        settled(api.patch_metadata(&node.name, &PatchParams::default(), &Patch::Merge(change)).await.map(|_| ()))
    }

    /// Takes a finalizer off an object.
    async fn finish(&self, node: &Node, finalizer: &str) -> kube::Result<()> {
        let api = self.api_of(node);
        let current = match api.get_metadata(&node.name).await {
            Ok(current) if current.metadata.uid.as_deref() == Some(&node.uid) => current.metadata,
            Ok(_) => return Ok(()),
            Err(error) => return settled(Err(error)),
        };
        let kept: Vec<_> = current.finalizers.into_iter().flatten().filter(|f| f != finalizer).collect();
        let change = json!({"metadata": {"finalizers": kept, "resourceVersion": current.resource_version}});
        settled(api.patch_metadata(&node.name, &PatchParams::default(), &Patch::Merge(change)).await.map(|_| ()))
    }
}

/// An object that is gone, or has become another one, needs nothing more. A stale patch is tried again.
fn settled(result: kube::Result<()>) -> kube::Result<()> {
    match result {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        Err(kube::Error::Api(status)) if status.code == 409 && status.message.contains("UID in the precondition") => {
            Ok(())
        }
        other => other,
    }
}
