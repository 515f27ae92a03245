//! The revision-ordered history. Everything that a client can read is a view of it.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use serde_json::Value;

use crate::object::{Object, View};
use crate::resource::Resource;

/// One write: the state of one object before and after a revision.
#[derive(Debug)]
pub(crate) struct Change {
    pub(crate) revision: u64,
    pub(crate) key: String,
    /// `None`: the object was created.
    pub(crate) before: Option<Arc<Object>>,
    /// `None`: the object was deleted.
    pub(crate) after: Option<Arc<Object>>,
    /// `before` under this revision, for whoever sees the object go.
    departed: OnceLock<Arc<Object>>,
    /// Watch lines, encoded once for all streams: one slot per event type and view.
    lines: OnceLock<Box<[OnceLock<Bytes>]>>,
}

/// What a watch event says happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventType {
    /// The object appeared, or came to match the watch's selector.
    Added,
    /// The object changed.
    Modified,
    /// The object went away, or stopped to match the watch's selector.
    Deleted,
    /// A revision up to which the stream is complete.
    Bookmark,
    /// A `Status`; the stream ends after it.
    Error,
}

impl EventType {
    /// As it stands in the `type` member of an event.
    pub fn as_str(self) -> &'static str {
        match self {
            EventType::Added => "ADDED",
            EventType::Modified => "MODIFIED",
            EventType::Deleted => "DELETED",
            EventType::Bookmark => "BOOKMARK",
            EventType::Error => "ERROR",
        }
    }
}

impl Change {
    /// The object as a DELETED event shows it: the last state before, under the new revision.
    pub(crate) fn departed(&self, resource: &Resource) -> &Arc<Object> {
        self.departed.get_or_init(|| match &self.before {
            Some(before) => Arc::new(before.restamped(resource, self.revision)),
            None => unreachable!("only an object that was there can go"),
        })
    }

    /// The object that an event of this type shows.
    pub(crate) fn subject(&self, resource: &Resource, kind: EventType) -> &Arc<Object> {
        match (kind, &self.after) {
            (EventType::Added | EventType::Modified, Some(after)) => after,
            _ => self.departed(resource),
        }
    }

    /// The line of an event of this type, shared between all streams.
    pub(crate) fn line(&self, resource: &Resource, kind: EventType, view: View) -> Bytes {
        let slots = self.lines.get_or_init(|| (0..3 * View::count(resource)).map(|_| OnceLock::new()).collect());
        let row = match kind {
            EventType::Added => 0,
            EventType::Modified => 1,
            _ => 2,
        };
        slots[row * View::count(resource) + view.position()]
            .get_or_init(|| event_line(kind, self.subject(resource, kind).form(resource, view).json()))
            .clone()
    }
}

/// `{"type":...,"object":...}` and the newline that ends an event.
pub(crate) fn event_line(kind: EventType, object: &[u8]) -> Bytes {
    let mut line = Vec::with_capacity(object.len() + 34);
    line.extend_from_slice(b"{\"type\":\"");
    line.extend_from_slice(kind.as_str().as_bytes());
    line.extend_from_slice(b"\",\"object\":");
    line.extend_from_slice(object);
    line.extend_from_slice(b"}\n");
    line.into()
}

/// The history of one resource type, and its latest state.
#[derive(Debug)]
pub(crate) struct Table {
    pub(crate) resource: Arc<Resource>,
    pub(crate) live: BTreeMap<String, Arc<Object>>,
    /// Changes in the order of their revisions, complete above `compacted`.
    log: VecDeque<Arc<Change>>,
    /// Told after each change.
    news: tokio::sync::watch::Sender<u64>,
}

impl Table {
    fn new(resource: Resource) -> Table {
        Table {
            resource: Arc::new(resource),
            live: BTreeMap::new(),
            log: VecDeque::new(),
            news: tokio::sync::watch::Sender::new(0),
        }
    }

    /// Tells when there is a change that the receiver has not seen.
    pub(crate) fn subscribe(&self) -> tokio::sync::watch::Receiver<u64> {
        self.news.subscribe()
    }

    /// The changes after `revision`, oldest first.
    pub(crate) fn since(&self, revision: u64) -> impl Iterator<Item = &Arc<Change>> {
        // Readers are near the end, nearly always.
        let seen = match self.log.back() {
            Some(last) if last.revision <= revision => self.log.len(),
            _ => self.log.partition_point(|change| change.revision <= revision),
        };
        self.log.range(seen..)
    }

    /// The state at an older revision: the present with the later changes undone.
    pub(crate) fn at(&self, revision: u64) -> BTreeMap<String, Arc<Object>> {
        let mut state = self.live.clone();
        for change in self.log.iter().rev().take_while(|change| change.revision > revision) {
            match &change.before {
                Some(before) => state.insert(change.key.clone(), before.clone()),
                None => state.remove(&change.key),
            };
        }
        state
    }
}

/// All types under one counter.
#[derive(Debug)]
pub(crate) struct History {
    revision: u64,
    /// Exact reads need a revision at or above this one.
    compacted: u64,
    /// Watches need a revision at or above this one.
    window: u64,
    pub(crate) tables: Vec<Table>,
}

impl History {
    pub(crate) fn new(resources: Vec<Resource>) -> History {
        // etcd starts at 1, and no client may see revision 0.
        History { revision: 1, compacted: 0, window: 0, tables: resources.into_iter().map(Table::new).collect() }
    }

    /// The revision of the latest write of any type.
    pub(crate) fn revision(&self) -> u64 {
        self.revision
    }

    /// The oldest revision from which a watch can start.
    pub(crate) fn window(&self) -> u64 {
        self.window
    }

    /// The oldest revision that an exact read can ask for.
    pub(crate) fn compacted(&self) -> u64 {
        self.compacted
    }

    /// Forgets what a restarted server's watch cache would not hold: watches must start at the present or later.
    ///
    /// A server writes objects of its own when it starts (its lease, for one), so that no revision that a client has
    /// seen before is recent enough.
    pub(crate) fn close_window(&mut self) {
        self.revision += 1;
        self.window = self.revision;
    }

    /// Drops changes up to `revision`.
    pub(crate) fn compact(&mut self, revision: u64) {
        let revision = revision.min(self.revision);
        self.compacted = self.compacted.max(revision);
        self.window = self.window.max(revision);
        for table in &mut self.tables {
            while table.log.front().is_some_and(|change| change.revision <= revision) {
                table.log.pop_front();
            }
        }
    }

    pub(crate) fn get(&self, table: usize, key: &str) -> Option<&Arc<Object>> {
        self.tables[table].live.get(key)
    }

    /// Stores a new state, or with `None` removes the object. Returns the state that is now stored, or what the
    /// removed object looked like, under the new revision.
    pub(crate) fn commit(&mut self, table: usize, key: &str, value: Option<Value>) -> Arc<Object> {
        self.revision += 1;
        let revision = self.revision;
        let table = &mut self.tables[table];
        let after = value.map(|value| Arc::new(Object::new(&table.resource, revision, value)));
        let before = match &after {
            Some(after) => table.live.insert(key.to_owned(), after.clone()),
            None => table.live.remove(key),
        };
        debug_assert!(before.is_some() || after.is_some(), "a change changes something");
        let change =
            Change { revision, key: key.to_owned(), before, after, departed: OnceLock::new(), lines: OnceLock::new() };
        let stored = match &change.after {
            Some(after) => after.clone(),
            None => change.departed(&table.resource).clone(),
        };
        debug_assert!(table.log.back().is_none_or(|last| last.revision < revision), "revisions rise");
        table.log.push_back(Arc::new(change));
        table.news.send_replace(revision);
        stored
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::resource::{SandboxVersions, registry};

    fn history() -> (History, usize) {
        let history = History::new(registry(SandboxVersions::Both, true));
        let table = history.tables.iter().position(|t| t.resource.plural == "configmaps").expect("registered");
        (history, table)
    }

    fn names(state: &BTreeMap<String, Arc<Object>>) -> Vec<&str> {
        state.keys().map(String::as_str).collect()
    }

    #[test]
    fn every_earlier_revision_can_be_read_again() {
        let (mut history, table) = history();
        let value = |n: i64| Some(json!({"metadata": {"name": "x"}, "data": {"n": n}}));
        let a = history.commit(table, "d/a", value(1)).revision;
        let b = history.commit(table, "d/b", value(1)).revision;
        let changed = history.commit(table, "d/a", value(2)).revision;
        let gone = history.commit(table, "d/b", None).revision;
        let t = &history.tables[table];
        assert_eq!(names(&t.at(a - 1)), Vec::<&str>::new());
        assert_eq!(names(&t.at(a)), ["d/a"]);
        assert_eq!(names(&t.at(b)), ["d/a", "d/b"]);
        assert_eq!(t.at(b)["d/a"].value()["data"]["n"], 1);
        assert_eq!(t.at(changed)["d/a"].value()["data"]["n"], 2);
        assert_eq!(names(&t.at(gone)), ["d/a"]);
    }

    #[test]
    fn a_deletion_has_a_revision_of_its_own_and_the_last_state() {
        let (mut history, table) = history();
        let made = history.commit(table, "d/a", Some(json!({"metadata": {"name": "a"}, "data": {"k": "v"}})));
        let gone = history.commit(table, "d/a", None);
        assert_eq!(gone.revision, made.revision + 1);
        assert_eq!(gone.value()["metadata"]["resourceVersion"], gone.revision.to_string());
        assert_eq!(gone.value()["data"]["k"], "v");
    }

    #[test]
    fn two_streams_share_the_bytes_of_an_event() {
        let (mut history, table) = history();
        history.commit(table, "d/a", Some(json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "a"}})));
        let t = &history.tables[table];
        let change = t.since(0).next().expect("one change");
        let one = change.line(&t.resource, EventType::Added, View::STORAGE);
        let two = change.line(&t.resource, EventType::Added, View::STORAGE);
        assert_eq!(one.as_ptr(), two.as_ptr());
        assert_eq!(
            one,
            r#"{"type":"ADDED","object":{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"a","resourceVersion":"2"}}}
"#
        );
    }
}
