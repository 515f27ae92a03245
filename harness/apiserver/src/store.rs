//! The shared history, and the oracle's view of it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::{Value, json};

use crate::clock;
use crate::crd;
use crate::history::History;
use crate::ownership::Author;
use crate::resource::{AGENTS, Resource, SandboxVersions, registry};
use crate::write::{self, Subject, Way};

/// The objects of a cluster with their whole history. Cheap to clone; all clones are one store.
///
/// Reads through it are an oracle's: they cost no request, leave no trace, and see the latest state.
#[derive(Clone, Debug)]
pub struct Store {
    history: Arc<Mutex<History>>,
    /// Owners of fields are kept.
    pub(crate) owners: bool,
}

impl Store {
    pub(crate) fn new(sandbox: SandboxVersions, webhook: bool, owners: bool) -> Store {
        let installed = crd::installed_sandbox(sandbox, webhook);
        let mut history = History::new(registry(sandbox, webhook));
        history.webhook = webhook;
        if let Some(table) = position(&history, "customresourcedefinitions") {
            history.preload(table, &format!("sandboxes.{AGENTS}"), installed);
        }
        Store { history: Arc::new(Mutex::new(history)), owners }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, History> {
        // A panic while the lock was held is a bug of this crate that the panicking test reports; the data is sound,
        // since every change is one call of `commit`.
        self.history.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The object in its storage version. `resource` is the plural name; `namespace` is ignored for types without.
    pub fn get(&self, resource: &str, namespace: &str, name: &str) -> Option<Arc<Value>> {
        let history = self.lock();
        let table = position(&history, resource)?;
        let key = history.tables[table].resource.key(namespace, name);
        history.get(table, &key).map(|object| object.value().clone())
    }

    /// The objects of a type in one namespace, or with an empty `namespace` in all of them, ordered by key.
    pub fn list(&self, resource: &str, namespace: &str) -> Vec<Arc<Value>> {
        let history = self.lock();
        let Some(table) = position(&history, resource) else { return Vec::new() };
        let table = &history.tables[table];
        let prefix = prefix(&table.resource, namespace);
        let all = table.live.range(prefix.clone()..).take_while(|(key, _)| key.starts_with(&prefix));
        all.map(|(_, object)| object.value().clone()).collect()
    }

    /// Makes a namespace as a client would, if it is not there yet.
    pub fn create_namespace(&self, name: &str) {
        let mut history = self.lock();
        let Some(table) = position(&history, "namespaces") else { return };
        if history.get(table, name).is_some() {
            return;
        }
        let resource = history.tables[table].resource.clone();
        let body = json!({"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": name}});
        let author = Author { manager: history.process, subresource: "", tracked: self.owners };
        let subject = Subject { resource: &resource, version: 0, namespace: "", name, author };
        if let Ok(namespace) = write::created(subject, body, Way::Whole, clock::now(), String::new) {
            history.commit(table, name, Some(namespace));
        }
    }

    /// The revision of the latest write of any type.
    pub fn revision(&self) -> u64 {
        self.lock().revision()
    }

    /// Makes watches from every revision seen so far fail with 410 on every server, as after a restart of a real one,
    /// whose watch cache begins at a new revision. Open watches go on.
    pub fn forget_watch_cache(&self) {
        self.lock().close_window();
    }

    /// The definition of a type has changed: all servers build its watch cache anew, and its open watches end, cleanly
    /// and with no ERROR. `resource` is the plural name.
    pub fn redefine(&self, resource: &str) {
        let mut history = self.lock();
        if let Some(table) = position(&history, resource) {
            history.rebuild(table);
        }
    }

    /// Compacts the history, as API servers themselves do every few minutes: exact lists and continue tokens below
    /// `revision` fail with 410. Watches go on, and may start wherever watch caches reach.
    pub fn compact(&self, revision: u64) {
        self.lock().compact(revision, true);
    }

    /// Compacts the storage behind the servers' back, as an administrator of etcd may: types that are cached are still
    /// read from the servers' snapshots, those that are not (Events) fail with 410 below `revision`.
    pub fn compact_storage(&self, revision: u64) {
        self.lock().compact(revision, false);
    }
}

/// The position of a type, by its plural name alone: of built-in types, or else the first that a CRD made.
pub(crate) fn position(history: &History, plural: &str) -> Option<usize> {
    history.tables.iter().position(|table| table.resource.plural == plural && !table.serving.retired)
}

/// What the keys of a namespace's objects begin with; everything when it is empty.
pub(crate) fn prefix(resource: &Resource, namespace: &str) -> String {
    if resource.namespaced && !namespace.is_empty() { format!("{namespace}/") } else { String::new() }
}
