//! The ordered record of a run: what happened, when in virtual time, on which host, and why.
//!
//! Everything that tells runs apart is in here, and nothing else: two runs are the same if their traces have the same
//! [hash](Trace::hash). So nothing that the world does not control (addresses, real clocks, hash order) may be recorded.
//!
//! ```
//! use photofinish_sim::trace::Trace;
//!
//! let trace = Trace::new();
//! let request = trace.entry("op", "stop").host("client").field("sandbox", "demo").text("stop demo").record();
//! trace.entry("reply", "stop").host("client").field("code", 9).cause(request).record();
//!
//! trace.with(|entries| {
//!     assert_eq!(entries[1].field("code"), Some("9"));
//!     assert_eq!(entries[1].cause, Some(request));
//! });
//! ```

use crate::memory::{Appender, Region};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::fmt::{self, Display};
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, TryLockError};
use xxhash_rust::xxh3::Xxh3;

/// Position of an entry in its trace: 0, 1, 2 ...
pub type EntryId = u64;

/// One thing that happened in a run. Serialised as one JSON object on a line of its own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Position in the trace.
    pub id: EntryId,
    /// Virtual time since the world's start, nanoseconds.
    pub at_ns: u64,
    /// The host on which it happened; `world` outside any host.
    pub host: Cow<'static, str>,
    /// What sort of thing: `log`, `span`, `http`, `watch`, `net`, `host`, `choice`, `panic` ...
    pub kind: Cow<'static, str>,
    /// Which of its sort: a level, a verb, a span's name, a choice's key ...
    pub name: Cow<'static, str>,
    /// The line that a human reads.
    pub text: String,
    /// Details by name, in the order in which they were recorded.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fields: Vec<(Cow<'static, str>, String)>,
    /// Names of the host's tracing spans around it, outermost first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub spans: Vec<String>,
    /// The entry that made this one happen, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<EntryId>,
}

impl Entry {
    /// The value of the first field called `name`.
    pub fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_str())
    }
}

/// `   1.400000s gateway    log/info  Sandbox phase changed ...`
impl Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (s, us) = (self.at_ns / 1_000_000_000, self.at_ns % 1_000_000_000 / 1_000);
        write!(f, "{s:>5}.{us:06}s {:<12} {:<16} ", self.host, format!("{}/{}", self.kind, self.name))?;
        if !self.spans.is_empty() {
            write!(f, "{}: ", self.spans.join(":"))?;
        }
        f.write_str(&self.text)
    }
}

/// A handle on a run's trace. Clones record into the same trace.
#[derive(Clone)]
pub struct Trace(Arc<Inner>);

struct Inner {
    /// The cause of entries that name none; [`NO_CAUSE`] for none.
    ambient: AtomicU64,
    log: Mutex<Log>,
    /// Entries that could not wait for `log`.
    late: Mutex<Vec<Entry>>,
    observer: OnceLock<Observer>,
    filter: Mutex<Option<Filter>>,
    /// Is there a filter? Most traces have none, and then nobody asks for its lock.
    is_filtered: AtomicBool,
}

/// Looks at entries as they are recorded.
struct Observer {
    /// Of an entry that is about to be recorded: whether it is to be shown. Most are not, and need not be copied.
    interest: Box<dyn Fn(&Entry) -> bool + Send + Sync>,
    look: Box<dyn Fn(&Entry) + Send + Sync>,
}
/// Says which entries are kept.
type Filter = Box<dyn FnMut(&Entry) -> bool + Send>;

const NO_CAUSE: u64 = u64::MAX;

/// The trace of the run that this process is there for.
static OF_THIS_PROCESS: OnceLock<Trace> = OnceLock::new();

/// The trace of the run that this process is there for; `None` in a process that no zygote forked.
pub fn of_this_process() -> Option<&'static Trace> {
    OF_THIS_PROCESS.get()
}

pub(crate) fn set_of_this_process(trace: Trace) {
    let set = OF_THIS_PROCESS.set(trace);
    assert!(set.is_ok(), "a process runs one world");
}

impl Trace {
    /// An empty trace in memory of its own.
    #[expect(clippy::new_without_default, reason = "an empty trace is made on purpose, once a run")]
    pub fn new() -> Trace {
        Trace::with_sink(None)
    }

    /// A trace that is also written, entry by entry, to memory shared with other processes.
    pub(crate) fn shared(region: Region) -> Trace {
        Trace::with_sink(Some(region.into_appender()))
    }

    fn with_sink(sink: Option<Appender>) -> Trace {
        let log = Log { entries: Vec::new(), hash: Xxh3::new(), line: Vec::new(), sink, full: false };
        Trace(Arc::new(Inner {
            ambient: AtomicU64::new(NO_CAUSE),
            log: Mutex::new(log),
            late: Mutex::default(),
            observer: OnceLock::new(),
            filter: Mutex::default(),
            is_filtered: AtomicBool::new(false),
        }))
    }

    /// Shows `look` each entry of `interest` right after it was recorded, inside the step that recorded it. It may record
    /// entries of its own, which it is shown, too. A trace has one observer; false: it has one already.
    pub fn observe(
        &self,
        interest: impl Fn(&Entry) -> bool + Send + Sync + 'static,
        look: impl Fn(&Entry) + Send + Sync + 'static,
    ) -> bool {
        self.0.observer.set(Observer { interest: Box::new(interest), look: Box::new(look) }).is_ok()
    }

    /// From now on only entries that `filter` says yes to are recorded: a long run's trace would not fit into its memory.
    /// The filter sees each entry, so it may count what it leaves out; it must not record. What is left out is not part
    /// of the run's hash, and its [id](Draft::record) is that of the entry before. Panics are always recorded.
    pub fn keep(&self, filter: impl FnMut(&Entry) -> bool + Send + 'static) {
        self.set_filter(Some(Box::new(filter)));
    }

    /// From now on every entry is recorded, as from the beginning.
    pub fn keep_all(&self) {
        self.set_filter(None);
    }

    fn set_filter(&self, filter: Option<Filter>) {
        self.0.is_filtered.store(filter.is_some(), Ordering::Relaxed);
        *self.0.filter.lock().unwrap_or_else(PoisonError::into_inner) = filter;
    }

    fn is_kept(&self, entry: &Entry) -> bool {
        if !self.0.is_filtered.load(Ordering::Relaxed) {
            return true;
        }
        let mut filter = self.0.filter.lock().unwrap_or_else(PoisonError::into_inner);
        filter.as_mut().is_none_or(|keeps| keeps(entry))
    }

    /// Begins an entry. Time is now, the host is the one that runs now, the cause is the ambient one.
    pub fn entry(&self, kind: impl Into<Cow<'static, str>>, name: impl Into<Cow<'static, str>>) -> Draft<'_> {
        let host = match crate::state::current_host() {
            Some(host) => Cow::Owned(host.to_string()),
            None => Cow::Borrowed("world"),
        };
        let entry = Entry {
            id: 0,
            at_ns: crate::state::now().as_nanos() as u64,
            host,
            kind: kind.into(),
            name: name.into(),
            text: String::new(),
            fields: Vec::new(),
            spans: Vec::new(),
            cause: self.ambient_cause(),
        };
        Draft { trace: self, entry }
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.lock().entries.len()
    }

    /// Whether nothing has been recorded.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Reads the entries. `f` must not record into this trace.
    pub fn with<R>(&self, f: impl FnOnce(&[Entry]) -> R) -> R {
        f(&self.lock().entries)
    }

    /// XXH3-128 over the entries, each as its JSON line: 32 hexadecimal digits. Equal hashes, equal runs.
    pub fn hash(&self) -> String {
        hex(self.lock().hash.digest128())
    }

    /// What was written to the memory that other processes see, and [`Trace::write_again`] takes.
    pub(crate) fn written(&self) -> Vec<u8> {
        self.lock().log.sink.as_ref().map(Appender::lines).unwrap_or_default()
    }

    /// Writes what is known so far to the memory that other processes see, which was reset meanwhile.
    pub(crate) fn write_again(&self, written: &[u8]) {
        if let Some(sink) = &mut self.lock().log.sink {
            sink.write_again(written);
        }
    }

    /// Sets the cause of entries that name none: what led to all that the running host does now.
    pub fn set_ambient_cause(&self, cause: Option<EntryId>) {
        self.0.ambient.store(cause.unwrap_or(NO_CAUSE), Ordering::Relaxed);
    }

    /// The cause of entries that name none.
    pub fn ambient_cause(&self) -> Option<EntryId> {
        Some(self.0.ambient.load(Ordering::Relaxed)).filter(|&id| id != NO_CAUSE)
    }

    fn lock(&self) -> Locked<'_> {
        // A panic inside `with` leaves the entries as they were, so a poisoned lock is as good as any.
        Locked { log: self.0.log.lock().unwrap_or_else(PoisonError::into_inner), late: &self.0.late }
    }

    fn try_lock(&self) -> Option<Locked<'_>> {
        let log = match self.0.log.try_lock() {
            Ok(log) => log,
            Err(TryLockError::Poisoned(log)) => log.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        Some(Locked { log, late: &self.0.late })
    }
}

impl fmt::Debug for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Trace")
    }
}

/// The hash that [`Trace::hash`] gives for a trace whose entries are these JSON lines.
pub fn hash_of_lines(lines: &[u8]) -> String {
    hex(xxhash_rust::xxh3::xxh3_128(lines))
}

fn hex(hash: u128) -> String {
    format!("{hash:032x}")
}

/// An entry that is being written. It is part of the trace once it is [recorded](Draft::record).
#[must_use = "an entry is part of the trace once it is recorded"]
#[derive(Debug)]
pub struct Draft<'a> {
    trace: &'a Trace,
    entry: Entry,
}

impl Draft<'_> {
    pub(crate) fn host_name(&self) -> &Cow<'static, str> {
        &self.entry.host
    }

    /// The host on which it happened, if not the running one.
    pub fn host(mut self, host: impl Into<Cow<'static, str>>) -> Self {
        self.entry.host = host.into();
        self
    }

    /// The line that a human reads.
    pub fn text(mut self, text: impl Into<String>) -> Self {
        self.entry.text = text.into();
        self
    }

    /// Adds a detail.
    pub fn field(mut self, name: impl Into<Cow<'static, str>>, value: impl Display) -> Self {
        self.entry.fields.push((name.into(), value.to_string()));
        self
    }

    /// Names of the tracing spans around it, outermost first.
    pub fn spans(mut self, spans: Vec<String>) -> Self {
        self.entry.spans = spans;
        self
    }

    /// The entry that made it happen, if not the ambient one.
    pub fn cause(mut self, cause: impl Into<Option<EntryId>>) -> Self {
        self.entry.cause = cause.into();
        self
    }

    /// Appends it to the trace, unless a [filter](Trace::keep) leaves it out. Once the trace's memory is full nothing is appended: the id is then the last entry's.
    pub fn record(self) -> EntryId {
        if !self.trace.is_kept(&self.entry) {
            return (self.trace.len() as EntryId).saturating_sub(1);
        }
        let observer = self.trace.0.observer.get().filter(|observer| (observer.interest)(&self.entry));
        let Some(observer) = observer else { return self.trace.lock().push(self.entry) };
        let mut entry = self.entry.clone();
        entry.id = self.trace.lock().push(self.entry);
        (observer.look)(&entry);
        entry.id
    }

    /// Appends it, without ever waiting: while somebody reads or writes the trace, it is appended right after them.
    pub(crate) fn record_even_if_busy(self) {
        let late = || self.trace.0.late.lock().unwrap_or_else(PoisonError::into_inner);
        late().push(self.entry);
        // Whoever holds the lock now appends it when they are done.
        drop(self.trace.try_lock());
    }
}

struct Log {
    entries: Vec<Entry>,
    hash: Xxh3,
    /// The entry that is being written, kept for its allocation.
    line: Vec<u8>,
    sink: Option<Appender>,
    full: bool,
}

impl Log {
    fn push(&mut self, mut entry: Entry) -> EntryId {
        entry.id = self.entries.len() as EntryId;
        if self.full {
            return entry.id - 1;
        }
        self.serialise(&entry);
        if let Some(sink) = &mut self.sink
            && !sink.append(&self.line)
        {
            entry.text = format!("the trace is full: it takes {} bytes; what follows is not recorded", sink.capacity());
            entry.kind = "end".into();
            entry.name = "trace-full".into();
            entry.fields.clear();
            entry.spans.clear();
            self.full = true;
            self.serialise(&entry);
            if let Some(sink) = &mut self.sink {
                sink.last(&self.line);
            }
        }
        self.hash.update(&self.line);
        self.entries.push(entry);
        self.entries.len() as EntryId - 1
    }

    fn serialise(&mut self, entry: &Entry) {
        self.line.clear();
        serde_json::to_writer(&mut self.line, entry).expect("an entry has only strings and numbers");
        self.line.push(b'\n');
    }
}

/// The log, locked. Entries that came meanwhile and could not wait are appended when it is unlocked.
struct Locked<'a> {
    log: MutexGuard<'a, Log>,
    late: &'a Mutex<Vec<Entry>>,
}

impl Deref for Locked<'_> {
    type Target = Log;
    fn deref(&self) -> &Log {
        &self.log
    }
}

impl DerefMut for Locked<'_> {
    fn deref_mut(&mut self) -> &mut Log {
        &mut self.log
    }
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        let late = std::mem::take(&mut *self.late.lock().unwrap_or_else(PoisonError::into_inner));
        for entry in late {
            self.log.push(entry);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_leaves_entries_out_and_may_count_them() {
        let trace = Trace::new();
        let first = trace.entry("log", "info").text("one").record();
        let (seen, all) = (Arc::new(AtomicU64::new(0)), trace.hash());
        let count = seen.clone();
        trace.keep(move |entry| {
            count.fetch_add(1, Ordering::Relaxed);
            entry.name == "warn"
        });
        assert_eq!(trace.entry("log", "info").text("two").record(), first, "nothing new to refer to");
        assert_eq!(trace.hash(), all, "what is left out is no part of the run");
        assert_eq!(trace.entry("log", "warn").text("three").record(), first + 1);
        trace.entry("panic", "panic").record_even_if_busy();
        trace.keep_all();
        trace.entry("log", "info").text("four").record();
        assert_eq!((trace.len(), seen.load(Ordering::Relaxed)), (4, 2));
    }

    #[test]
    fn ids_count_from_zero_and_defaults_are_filled_in() {
        let trace = Trace::new();
        assert_eq!(trace.entry("log", "info").text("hello").record(), 0);
        assert_eq!(trace.entry("log", "info").host("gateway").field("n", 1).field("n", 2).record(), 1);
        trace.with(|entries| {
            assert_eq!((entries[0].id, entries[0].host.as_ref(), entries[0].cause), (0, "world", None));
            assert_eq!((entries[1].id, entries[1].host.as_ref()), (1, "gateway"));
            assert_eq!(entries[1].field("n"), Some("1"));
            assert_eq!(entries[1].field("m"), None);
        });
        assert_eq!(trace.len(), 2);
    }

    #[test]
    fn the_ambient_cause_is_the_cause_of_entries_that_name_none() {
        let trace = Trace::new();
        trace.set_ambient_cause(Some(7));
        trace.entry("a", "a").record();
        trace.entry("a", "a").cause(3).record();
        trace.entry("a", "a").cause(None).record();
        trace.set_ambient_cause(None);
        trace.entry("a", "a").record();
        let causes: Vec<_> = trace.with(|entries| entries.iter().map(|e| e.cause).collect());
        assert_eq!(causes, [Some(7), Some(3), None, None]);
    }

    #[test]
    fn equal_entries_give_equal_hashes_and_any_difference_another() {
        let hash = |value: &str| {
            let trace = Trace::new();
            trace.entry("log", "info").text("one").record();
            trace.entry("log", "info").text("two").field("k", value).record();
            trace.hash()
        };
        assert_eq!(hash("v"), hash("v"));
        assert_ne!(hash("v"), hash("w"));
        assert_eq!(hash("v").len(), 32);
        assert_ne!(Trace::new().hash(), hash("v"));
    }

    #[test]
    fn shared_memory_holds_the_same_entries_and_the_same_hash() {
        let region = Region::create(1 << 20).unwrap();
        let theirs = Region::map(std::os::fd::AsFd::as_fd(&region).try_clone_to_owned().unwrap()).unwrap();
        let trace = Trace::shared(theirs);
        trace.entry("log", "info").text("line\nbreak and \"quotes\"").field("k", "v").record();
        trace.entry("span", "s").spans(vec!["outer".into()]).cause(0).record();
        let read: Vec<Entry> =
            serde_json::Deserializer::from_slice(region.lines()).into_iter().map(Result::unwrap).collect();
        trace.with(|entries| assert_eq!(entries, read));
        assert_eq!(hash_of_lines(region.lines()), trace.hash());
        assert_eq!(region.lines().iter().filter(|&&b| b == b'\n').count(), 2);
    }

    #[test]
    fn a_full_trace_says_so_in_its_last_entry_and_goes_on() {
        let region = Region::create(16 << 10).unwrap();
        let theirs = Region::map(std::os::fd::AsFd::as_fd(&region).try_clone_to_owned().unwrap()).unwrap();
        let trace = Trace::shared(theirs);
        let ids: Vec<_> = (0..1000).map(|_| trace.entry("log", "info").text("x".repeat(100)).record()).collect();
        let last = trace.len() as EntryId - 1;
        assert!(last > 10 && ids.iter().all(|&id| id <= last) && ids[999] == last);
        trace.with(|entries| {
            assert_eq!((&*entries[last as usize].kind, &*entries[last as usize].name), ("end", "trace-full"))
        });
        assert_eq!(hash_of_lines(region.lines()), trace.hash());
    }

    #[test]
    fn an_entry_that_cannot_wait_is_appended_after_the_reader_that_holds_the_trace() {
        let trace = Trace::new();
        trace.entry("a", "first").record();
        trace.with(|entries| {
            trace.entry("panic", "panic").record_even_if_busy();
            assert_eq!(entries.len(), 1);
        });
        let names: Vec<_> = trace.with(|entries| entries.iter().map(|e| e.name.clone().into_owned()).collect());
        assert_eq!(names, ["first", "panic"]);
        trace.entry("panic", "free").record_even_if_busy();
        assert_eq!(trace.len(), 3);
    }

    #[test]
    fn an_entry_is_shown_as_one_line() {
        let trace = Trace::new();
        trace.entry("log", "info").host("gateway").text("ready").spans(vec!["a".into(), "b".into()]).record();
        let line = trace.with(|entries| entries[0].to_string());
        assert_eq!(line, "    0.000000s gateway      log/info         a:b: ready");
    }
}
