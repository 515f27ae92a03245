//! The revision-ordered history. Everything that a client can read is a view of it.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use serde_json::Value;
use tokio::time::{Duration, Instant};

use crate::crd::{self, Agenda, Serving};
use crate::object::{Object, View};
use crate::resource::Resource;
use crate::tokens;

/// One write: the state of one object before and after a revision.
#[derive(Debug)]
pub(crate) struct Change {
    pub(crate) revision: u64,
    pub(crate) key: String,
    /// When it was stored.
    pub(crate) at: Instant,
    /// `None`: the object was created.
    pub(crate) before: Option<Arc<Object>>,
    /// `None`: the object was deleted.
    pub(crate) after: Option<Arc<Object>>,
    /// `before` under this revision, for whoever sees the object go.
    departed: OnceLock<Arc<Object>>,
    /// Lines of events that tell of a modification as of an object that is new, to a watch whose selector has come to
    /// match it, encoded once for all streams: one slot per view.
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
    /// `metadata.name` of the object.
    pub(crate) fn name(&self) -> &str {
        self.key.rsplit('/').next().unwrap_or_default()
    }

    /// The object as a DELETED event shows it: the last state before, under the new revision.
    pub(crate) fn departed(&self, resource: &Resource) -> &Arc<Object> {
        self.departed.get_or_init(|| match &self.before {
            Some(before) => Arc::new(before.departed(resource, self.revision)),
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
        if let Some(line) = self.subject(resource, kind).form(resource, view).shared_line(kind) {
            return line;
        }
        debug_assert_eq!(kind, EventType::Added, "only a modification can be told otherwise: as an object that is new");
        let slots = self.lines.get_or_init(|| (0..View::count(resource)).map(|_| OnceLock::new()).collect());
        slots[view.position()].get_or_init(|| self.subject(resource, kind).form(resource, view).line(kind)).clone()
    }
}

/// What comes before the object in the line of an event.
pub(crate) fn opening(kind: EventType) -> &'static str {
    match kind {
        EventType::Added => r#"{"type":"ADDED","object":"#,
        EventType::Modified => r#"{"type":"MODIFIED","object":"#,
        EventType::Deleted => r#"{"type":"DELETED","object":"#,
        EventType::Bookmark => r#"{"type":"BOOKMARK","object":"#,
        EventType::Error => r#"{"type":"ERROR","object":"#,
    }
}

/// What comes behind it.
pub(crate) const CLOSING: &[u8] = b"}\n";

/// The line of an event: `{"type":...,"object":...}` and a newline.
pub(crate) fn event_line(kind: EventType, object: &[u8]) -> Bytes {
    [opening(kind).as_bytes(), object, CLOSING].concat().into()
}

/// A watch cache keeps at least this many changes of a type ...
const WINDOW: usize = 100;
/// ... and all that are not older than this: it grows as long as its oldest entry is this young.
const WINDOW_AGE: Duration = Duration::from_secs(75);

/// With so many objects of a type, more are kept as JSON alone until somebody looks into them.
const READY: usize = 4_096;

/// The history of one resource type, and its latest state.
#[derive(Debug)]
pub(crate) struct Table {
    pub(crate) resource: Arc<Resource>,
    pub(crate) live: BTreeMap<String, Arc<Object>>,
    /// Changes in the order of their revisions. Complete above `compacted` for exact reads, and above `outdated` for
    /// watches.
    log: VecDeque<Arc<Change>>,
    /// How many changes at the log's beginning have left the window of watch caches.
    outside: usize,
    /// Revision of the newest change that has left it.
    outdated: u64,
    /// Counts the definitions of the type: each rebuilds the watch caches.
    epoch: u64,
    /// Watches of earlier definitions than this one are over.
    over: u64,
    /// Revision at which the latest definition came.
    rebuilt_at: u64,
    /// Told after each change.
    news: tokio::sync::watch::Sender<u64>,
    /// Of a type that a CRD defines: how far its storage is.
    pub(crate) serving: Serving,
}

impl Table {
    fn new(resource: Resource) -> Table {
        Table {
            resource: Arc::new(resource),
            live: BTreeMap::new(),
            log: VecDeque::new(),
            outside: 0,
            outdated: 0,
            epoch: 0,
            over: 0,
            rebuilt_at: 0,
            news: tokio::sync::watch::Sender::new(0),
            serving: Serving::default(),
        }
    }

    /// Revision of the latest change; 0 if there was none.
    pub(crate) fn latest(&self) -> u64 {
        self.log.back().map_or(self.outdated, |change| change.revision)
    }

    /// Which definition of the type this is.
    pub(crate) fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Watches of earlier definitions than this one are over.
    pub(crate) fn over(&self) -> u64 {
        self.over
    }

    /// Revision at which the latest definition came.
    pub(crate) fn rebuilt_at(&self) -> u64 {
        self.rebuilt_at
    }

    /// The revision that a watch cache of this type reaches back to by now, however long it has existed.
    pub(crate) fn outdated(&mut self, now: Instant) -> u64 {
        while self.log.len() - self.outside > WINDOW {
            let oldest = &self.log[self.outside];
            if now.saturating_duration_since(oldest.at) <= WINDOW_AGE {
                break;
            }
            self.outdated = oldest.revision;
            self.outside += 1;
        }
        self.outdated
    }

    /// Forgets what neither an exact read nor a watch can ask for.
    fn trim(&mut self, compacted: u64) {
        while self.outside > 0 && self.log.front().is_some_and(|change| change.revision <= compacted) {
            self.log.pop_front();
            self.outside -= 1;
        }
    }

    /// The object as it was at an older revision.
    pub(crate) fn get_at(&self, key: &str, revision: u64) -> Option<&Arc<Object>> {
        let later = self.log.iter().rev().take_while(|change| change.revision > revision);
        match later.filter(|change| change.key == key).last() {
            Some(change) => change.before.as_ref(),
            None => self.live.get(key),
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
    /// Storage has forgotten what was before this revision.
    compacted: u64,
    /// The servers were told so, and have dropped their snapshots from before it.
    told: u64,
    /// Watches need a revision at or above this one on every server.
    window: u64,
    pub(crate) tables: Vec<Table>,
    /// What is to happen to CRDs and their types.
    pub(crate) agenda: Agenda,
    /// The conversion webhook of Sandbox is played by this server.
    pub(crate) webhook: bool,
    /// The name under which the server itself owns fields.
    pub(crate) process: &'static str,
    /// What was said of tokens a short while ago.
    pub(crate) reviewed: tokens::Reviewed,
}

impl History {
    pub(crate) fn new(resources: Vec<Resource>) -> History {
        // etcd starts at 1, and no client may see revision 0.
        History {
            revision: 1,
            compacted: 0,
            told: 0,
            window: 0,
            tables: resources.into_iter().map(Table::new).collect(),
            agenda: Agenda::default(),
            webhook: true,
            process: "kube-apiserver",
            reviewed: tokens::Reviewed::default(),
        }
    }

    /// The revision of the latest write of any type.
    pub(crate) fn revision(&self) -> u64 {
        self.revision
    }

    /// The oldest revision from which a watch can start on any server.
    pub(crate) fn window(&self) -> u64 {
        self.window
    }

    /// The oldest revision that storage can be asked for.
    pub(crate) fn compacted(&self) -> u64 {
        self.compacted
    }

    /// The oldest revision of which servers may still hold a snapshot.
    pub(crate) fn told(&self) -> u64 {
        self.told
    }

    /// A write of a server's own, such as its lease: the revision moves, and nothing that clients see changes.
    pub(crate) fn tick(&mut self) -> u64 {
        self.revision += 1;
        self.revision
    }

    /// Forgets what a restarted server's watch cache would not hold: watches must start at the present or later.
    ///
    /// A server writes objects of its own when it starts (its lease, for one), so that no revision that a client has
    /// seen before is recent enough.
    pub(crate) fn close_window(&mut self) {
        self.window = self.tick();
    }

    /// The definition of a type has changed: its watch caches are built anew, and the open watches end.
    pub(crate) fn rebuild(&mut self, table: usize) {
        let revision = self.tick();
        let table = &mut self.tables[table];
        table.epoch += 1;
        table.over = table.epoch;
        table.rebuilt_at = revision;
        table.news.send_replace(revision);
    }

    /// Storage drops what was before `revision`. Servers that were `told` drop their snapshots; watches go on from
    /// what the watch caches hold.
    pub(crate) fn compact(&mut self, revision: u64, told: bool) {
        let revision = revision.min(self.revision);
        self.compacted = self.compacted.max(revision);
        if told {
            self.told = self.told.max(revision);
        }
        let now = Instant::now();
        for table in &mut self.tables {
            table.outdated(now);
            table.trim(self.told);
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
        // Of a few objects each is looked into again and again; of very many most are not.
        let make = if table.live.len() < READY { Object::new } else { Object::packed };
        let event = if table.live.contains_key(key) { EventType::Modified } else { EventType::Added };
        let after = value.map(|value| Arc::new(make(&table.resource, revision, value, event)));
        let before = match &after {
            Some(after) => table.live.insert(key.to_owned(), after.clone()),
            None => table.live.remove(key),
        };
        debug_assert!(before.is_some() || after.is_some(), "a change changes something");
        let change = Change {
            revision,
            key: key.to_owned(),
            at: Instant::now(),
            before,
            after,
            departed: OnceLock::new(),
            lines: OnceLock::new(),
        };
        let stored = match &change.after {
            Some(after) => after.clone(),
            None => change.departed(&table.resource).clone(),
        };
        debug_assert!(table.log.back().is_none_or(|last| last.revision < revision), "revisions rise");
        let change = Arc::new(change);
        table.log.push_back(change.clone());
        table.news.send_replace(revision);
        if table.resource.group == crd::GROUP {
            let value = |object: &Option<Arc<Object>>| object.as_ref().map(|object| object.value().clone());
            let (before, after) = (value(&change.before), value(&change.after));
            crd::definition_changed(self, before.as_deref(), after.as_deref());
        }
        stored
    }

    /// Stores an object that was there before everything else, without a revision of its own.
    pub(crate) fn preload(&mut self, table: usize, key: &str, value: Value) {
        let revision = self.revision;
        let table = &mut self.tables[table];
        table.live.insert(key.to_owned(), Arc::new(Object::new(&table.resource, revision, value, EventType::Added)));
    }

    /// Adds a type, or one again that was removed. Its cache is cold.
    pub(crate) fn install(&mut self, resource: Resource) {
        let of = |t: &Table| t.resource.group == resource.group && t.resource.plural == resource.plural;
        let at = self.tables.iter().position(of).unwrap_or_else(|| {
            self.tables.push(Table::new(resource.clone()));
            self.tables.len() - 1
        });
        let table = &mut self.tables[at];
        table.resource = Arc::new(resource);
        table.serving = Serving { cache: crd::Cache::Cold, established: Some(Instant::now()), ..Serving::default() };
        self.rebuild(at);
    }

    /// Changes a type under its objects. Watches that are open go on until [`History::end_watches`].
    pub(crate) fn redefine(&mut self, table: usize, resource: Resource) {
        let over = self.tables[table].over;
        self.rebuild(table);
        let table = &mut self.tables[table];
        table.over = over;
        table.resource = Arc::new(resource);
        table.serving.cache = crd::Cache::Cold;
        // Forms that were made by the old schemas are forgotten.
        for object in table.live.values_mut() {
            *object = Arc::new(object.redefined(&table.resource));
        }
    }

    /// Removes a type. Its objects are gone already.
    pub(crate) fn retire(&mut self, table: usize) {
        self.tables[table].serving.retired = true;
        self.rebuild(table);
    }

    /// Ends the watches of all definitions before this one.
    pub(crate) fn end_watches(&mut self, table: usize, epoch: u64) {
        let table = &mut self.tables[table];
        table.over = table.over.max(epoch);
        table.news.send_modify(|_| {});
    }
}

#[cfg(test)]
mod tests;
