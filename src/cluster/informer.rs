//! An informer's store: the objects of one kind as last seen, fed by the events of a `kube` watcher.
use std::collections::BTreeMap;
use std::sync::Arc;

use kube::Resource;
use kube::runtime::watcher::Event;

/// Namespace and name of an object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    /// The namespace.
    pub namespace: String,
    /// The name in it.
    pub name: String,
}

impl Key {
    /// The key of this object.
    pub fn of<K: Resource>(object: &K) -> Self {
        let meta = object.meta();
        Key { namespace: meta.namespace.clone().unwrap_or_default(), name: meta.name.clone().unwrap_or_default() }
    }
}

/// The objects of one kind, as last seen.
#[derive(Debug)]
pub struct Informer<K> {
    objects: BTreeMap<Key, Arc<K>>,
    /// Objects of a list that has not ended yet.
    listing: Option<BTreeMap<Key, Arc<K>>>,
    synced: bool,
}

impl<K> Default for Informer<K> {
    fn default() -> Self {
        Informer { objects: BTreeMap::new(), listing: None, synced: false }
    }
}

impl<K: Resource> Informer<K> {
    /// Takes an event in; returns the objects that it is about, before and after.
    ///
    /// A finished list replaces everything: what is not in it is gone, and is returned as well.
    pub fn apply(&mut self, event: Event<K>) -> Vec<Arc<K>> {
        match event {
            Event::Apply(object) => {
                let object = Arc::new(object);
                let before = self.objects.insert(Key::of(&*object), Arc::clone(&object));
                before.into_iter().chain([object]).collect()
            }
            Event::Delete(object) => {
                let before = self.objects.remove(&Key::of(&object));
                before.into_iter().chain([Arc::new(object)]).collect()
            }
            Event::Init => {
                self.listing = Some(BTreeMap::new());
                vec![]
            }
            Event::InitApply(object) => {
                self.listing.get_or_insert_default().insert(Key::of(&object), Arc::new(object));
                vec![]
            }
            Event::InitDone => {
                self.synced = true;
                let listed = self.listing.take().unwrap_or_default();
                let before = std::mem::replace(&mut self.objects, listed);
                before.into_values().chain(self.objects.values().cloned()).collect()
            }
        }
    }
    /// The object of this key.
    pub fn get(&self, key: &Key) -> Option<Arc<K>> {
        self.objects.get(key).cloned()
    }
    /// Has the kind been listed once? Before that, absence means nothing.
    pub fn synced(&self) -> bool {
        self.synced
    }
    /// The objects of a namespace, in name order.
    pub fn in_namespace<'a>(&'a self, namespace: &'a str) -> impl Iterator<Item = (&'a Key, &'a Arc<K>)> {
        let from = Key { namespace: namespace.to_owned(), name: String::new() };
        self.objects.range(from..).take_while(move |(key, _)| key.namespace == namespace)
    }
}
