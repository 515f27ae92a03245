//! Whole object states, written as given: the replay of recorded streams.

use std::sync::Arc;

use serde_json::Value;

use crate::hooks::{Call, ConnInfo, Hooks};
use crate::request::Verb;
use crate::store::Store;

/// Writes object states without any of the rules of creation and update.
///
/// A recorded state keeps its uid, generation, timestamps and status; only its revision is fresh. What is written is
/// seen by all watches, like any other write.
#[derive(Clone)]
pub struct Writer {
    store: Store,
    hooks: Arc<dyn Hooks>,
    client: String,
}

impl std::fmt::Debug for Writer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Writer").field("client", &self.client).finish_non_exhaustive()
    }
}

/// Why a state could not be written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WriteError {
    /// The server has no such type, or does not store it in that version.
    #[error("objects of kind {kind:?} in {api_version:?} are not stored by this server")]
    UnknownKind {
        /// The object's `kind`.
        kind: String,
        /// The object's `apiVersion`.
        api_version: String,
    },
    /// `metadata.name` (or, for a type in namespaces, `metadata.namespace`) is missing.
    #[error("the object has no metadata.{0}")]
    Unnamed(&'static str),
    /// There is no such object to delete.
    #[error("{0} does not exist")]
    Absent(String),
}

impl Writer {
    pub(crate) fn new(store: Store, hooks: Arc<dyn Hooks>, client: &str) -> Writer {
        Writer { store, hooks, client: client.to_owned() }
    }

    /// Stores the object, in place of the one of that name if there is one. Returns its revision. A state equal to the
    /// stored one is written too.
    pub fn put(&self, object: Value) -> Result<u64, WriteError> {
        let (table, key, call) = self.locate(&object, Verb::Update)?;
        let revision = self.store.lock().commit(table, &key, Some(object)).revision;
        self.hooks.answered(&call, 200, Some(revision));
        Ok(revision)
    }

    /// Removes the object of that kind and name. Only `kind`, `apiVersion` and the names are looked at. Returns the
    /// revision of the deletion.
    pub fn delete(&self, object: &Value) -> Result<u64, WriteError> {
        let (table, key, call) = self.locate(object, Verb::Delete)?;
        let mut history = self.store.lock();
        if history.get(table, &key).is_none() {
            return Err(WriteError::Absent(format!("{} {key}", call.resource)));
        }
        let revision = history.commit(table, &key, None).revision;
        drop(history);
        self.hooks.answered(&call, 200, Some(revision));
        Ok(revision)
    }

    fn locate(&self, object: &Value, verb: Verb) -> Result<(usize, String, Call), WriteError> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let (kind, api_version) = (text(&object["kind"]), text(&object["apiVersion"]));
        let history = self.store.lock();
        let stored = |t: &crate::history::Table| t.resource.kind == kind && t.resource.api_version(0) == api_version;
        let Some(table) = history.tables.iter().position(stored) else {
            return Err(WriteError::UnknownKind { kind, api_version });
        };
        let resource = &history.tables[table].resource;
        let (namespace, name) = (text(&object["metadata"]["namespace"]), text(&object["metadata"]["name"]));
        if name.is_empty() {
            return Err(WriteError::Unnamed("name"));
        }
        if resource.namespaced && namespace.is_empty() {
            return Err(WriteError::Unnamed("namespace"));
        }
        let prefix = if resource.group.is_empty() { "/api" } else { "/apis" };
        let scope = if resource.namespaced { format!("/namespaces/{namespace}") } else { String::new() };
        let call = Call {
            conn: ConnInfo { client: self.client.clone(), connection: 0 },
            verb,
            path: format!("{prefix}/{api_version}{scope}/{}/{name}", resource.plural),
            resource: resource.plural.to_string(),
            name: name.clone(),
            subresource: String::new(),
            continues: false,
        };
        Ok((table, resource.key(&namespace, &name), call))
    }
}
