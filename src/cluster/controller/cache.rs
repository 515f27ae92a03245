//! What the controller has seen: one informer per kind, read by passes.
use std::sync::Arc;

use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod, Service};
use kube::Resource;
use kube::runtime::watcher::Event;

use crate::cluster::informer::{Informer, Key};

use super::rules::name_hash;
use super::sandbox::{KIND, NAME_HASH, Sandbox, controller_of};

/// A watch event of one of the kinds that the controller watches.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "a change lives for one step of the loop")]
pub enum Change {
    /// A Sandbox changed.
    Sandbox(Event<Sandbox>),
    /// A Pod changed.
    Pod(Event<Pod>),
    /// A Service changed.
    Service(Event<Service>),
    /// A claim changed; no reason to reconcile.
    Claim(Event<PersistentVolumeClaim>),
}

/// All informers.
#[derive(Debug, Default)]
pub struct Cache {
    sandboxes: Informer<Sandbox>,
    pods: Informer<Pod>,
    services: Informer<Service>,
    claims: Informer<PersistentVolumeClaim>,
}

impl Cache {
    /// Takes a change in; returns the Sandboxes to reconcile for it: itself, or the owner.
    pub fn apply(&mut self, change: Change) -> Vec<Key> {
        let mut keys = match change {
            Change::Sandbox(event) => self.sandboxes.apply(event).iter().map(|s| Key::of(&**s)).collect(),
            Change::Pod(event) => owners(&self.pods.apply(event)),
            Change::Service(event) => owners(&self.services.apply(event)),
            Change::Claim(event) => {
                self.claims.apply(event);
                vec![]
            }
        };
        keys.dedup();
        keys
    }
    /// Has every kind been listed once? Before that, absence means nothing.
    pub fn synced(&self) -> bool {
        self.sandboxes.synced() && self.pods.synced() && self.services.synced() && self.claims.synced()
    }
    /// The Sandbox of this key.
    pub fn sandbox(&self, key: &Key) -> Option<Arc<Sandbox>> {
        self.sandboxes.get(key)
    }
    /// The Pods that a Sandbox's pass looks at: by hash label, by the tracked name, by its own name; in name order.
    pub fn pods_of(&self, sandbox: &Sandbox) -> Vec<Arc<Pod>> {
        let hash = name_hash(sandbox.name());
        let wanted = |key: &Key, pod: &Pod| {
            let label = pod.metadata.labels.as_ref().and_then(|labels| labels.get(NAME_HASH));
            label == Some(&hash) || key.name == sandbox.name() || sandbox.tracked_pod() == Some(&key.name)
        };
        let pods = self.pods.in_namespace(sandbox.namespace());
        pods.filter(|(key, pod)| wanted(key, pod)).map(|(_, pod)| Arc::clone(pod)).collect()
    }
    /// The Service of the Sandbox's name.
    pub fn service_of(&self, key: &Key) -> Option<Arc<Service>> {
        self.services.get(key)
    }
    /// Is there a claim of this name?
    pub fn has_claim(&self, namespace: &str, name: &str) -> bool {
        self.claims.get(&Key { namespace: namespace.to_owned(), name: name.to_owned() }).is_some()
    }
}

/// The Sandboxes that control these objects.
fn owners<K: Resource>(objects: &[Arc<K>]) -> Vec<Key> {
    let owner = |object: &Arc<K>| {
        let owner = controller_of(object.meta()).filter(|owner| owner.kind == KIND)?;
        Some(Key { namespace: Key::of(&**object).namespace, name: owner.name.clone() })
    };
    objects.iter().filter_map(owner).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(name: &str, owner: Option<&str>) -> Pod {
        let owners = owner.map(|owner| {
            let sandbox = Sandbox {
                metadata: kube::core::ObjectMeta { name: Some(owner.into()), ..Default::default() },
                ..Default::default()
            };
            vec![sandbox.owner_reference()]
        });
        Pod {
            metadata: kube::core::ObjectMeta {
                name: Some(name.into()),
                namespace: Some("ns".into()),
                owner_references: owners,
                ..Default::default()
            },
            ..Default::default()
        }
    }
    fn key(name: &str) -> Key {
        Key { namespace: "ns".into(), name: name.into() }
    }

    #[test]
    fn a_list_replaces_what_was_known_and_touches_what_it_no_longer_has() {
        let mut cache = Cache::default();
        assert_eq!(cache.apply(Change::Pod(Event::Apply(pod("old", Some("s1"))))), [key("s1")]);
        assert!(cache.apply(Change::Pod(Event::Init)).is_empty());
        assert!(cache.apply(Change::Pod(Event::InitApply(pod("new", Some("s2"))))).is_empty());
        assert!(cache.pods.get(&key("old")).is_some(), "a list that has not ended changes nothing");
        assert_eq!(cache.apply(Change::Pod(Event::InitDone)), [key("s1"), key("s2")]);
        assert!(cache.pods.get(&key("old")).is_none());
        assert!(cache.pods.synced() && !cache.synced(), "the other kinds are still unlisted");
    }
    #[test]
    fn a_pod_that_loses_its_owner_is_a_reason_to_look_at_the_owner_it_had() {
        let mut cache = Cache::default();
        cache.apply(Change::Pod(Event::Apply(pod("p", Some("s1")))));
        assert_eq!(cache.apply(Change::Pod(Event::Apply(pod("p", None)))), [key("s1")]);
        assert!(cache.apply(Change::Pod(Event::Delete(pod("p", None)))).is_empty());
    }
    #[test]
    fn a_sandbox_sees_the_pod_of_its_own_name_even_if_it_is_foreign() {
        let mut cache = Cache::default();
        cache.apply(Change::Pod(Event::Apply(pod("s1", None))));
        cache.apply(Change::Pod(Event::Apply(pod("other", None))));
        let mut sandbox = Sandbox::default();
        sandbox.metadata.name = Some("s1".into());
        sandbox.metadata.namespace = Some("ns".into());
        let names: Vec<_> = cache.pods_of(&sandbox).iter().map(|pod| pod.metadata.name.clone()).collect();
        assert_eq!(names, [Some("s1".to_owned())]);
    }
}
