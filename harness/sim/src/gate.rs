//! Held streams: a gate sits between whoever produces a stream's items and whoever consumes them.
//!
//! Order is always kept: an item that is held or late holds back all that follow it. So a gate shows what any cluster may
//! show, a stream that lags, and nothing that it may not.
//!
//! ```
//! use photofinish_sim::choices::Choices;
//! use photofinish_sim::gate::{Gates, Meta, Release};
//! use photofinish_sim::trace::Trace;
//! use futures::{FutureExt, StreamExt};
//!
//! let gates = Gates::new(Trace::new(), Choices::benign());
//! let (sender, mut receiver) = gates.open::<u32>("driver/sandboxes");
//! let meta = |kind: &str| Meta { object: "demo".into(), kind: kind.into(), value: Default::default() };
//!
//! gates.hold("driver/sandboxes", "late")?;
//! sender.send(meta("ADDED"), 1);
//! sender.send(meta("MODIFIED"), 2);
//! assert_eq!(receiver.next().now_or_never(), None);
//! assert_eq!(gates.release("late", Release::AllButLast)?, 1);
//! assert_eq!(receiver.next().now_or_never(), Some(Some(1)));
//! assert_eq!(receiver.next().now_or_never(), None);
//! # Ok::<(), photofinish_sim::gate::GateError>(())
//! ```

use crate::choices::{Choices, DelaySpec, key};
use crate::legality::{Fault, Legality};
use crate::trace::Trace;
use futures::Stream;
use indexmap::IndexMap;
use std::collections::VecDeque;
use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tokio::time::{Instant, Sleep};

/// An event of a watch reaches its client late, and so do all that follow it.
pub static WATCH_DELAY: Fault = Fault {
    name: "watch-delay",
    legality: Legality::Always,
    contract: "A watch delivers its events in order of resourceVersion; nothing says how soon.",
};

/// The extra delay that each item is asked for, under `watch/<stream>/<object>#<n>`.
pub static ITEM_DELAY: DelaySpec =
    DelaySpec { fault: &WATCH_DELAY, odds: 0.1, min: Duration::from_millis(1), max: Duration::from_secs(10) };

/// What a gate tells of an item to those who hold, release or choose.
#[derive(Clone, Debug, PartialEq)]
pub struct Meta {
    /// The object that the item is about, such as its `metadata.name`; empty if none (a bookmark).
    pub object: String,
    /// The item's kind, such as `MODIFIED`.
    pub kind: String,
    /// The object, for conditions.
    pub value: Arc<serde_json::Value>,
}

/// Which of the held items to let go. All but [`Release::All`] leave the hold in place for items to come.
pub enum Release {
    /// All, and lift the hold.
    All,
    /// All but the newest.
    AllButLast,
    /// The first so many, or all if there are fewer.
    Count(usize),
    /// All up to and including the first that matches.
    Until(Box<dyn Fn(&Meta) -> bool + Send>),
}

impl fmt::Debug for Release {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Release::All => f.write_str("all"),
            Release::AllButLast => f.write_str("all-but-last"),
            Release::Count(n) => write!(f, "{n}"),
            Release::Until(_) => f.write_str("until a condition"),
        }
    }
}

/// Why a hold or a release was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GateError {
    /// Each hold needs a name of its own.
    #[error("hold `{name}`: the name is taken by a hold of {stream}; release that one first or choose another name")]
    Taken {
        /// The name.
        name: String,
        /// The stream that the earlier hold of this name holds.
        stream: String,
    },
    /// Nothing is held under this name.
    #[error("release `{name}`: no hold of that name; there are: {}", listed(holds))]
    Unknown {
        /// The name.
        name: String,
        /// The holds that there are.
        holds: Vec<String>,
    },
    /// None of the held items meets the condition; nothing was released.
    #[error("release `{name}`: none of the {held} held items meets the condition: {}", listed(items))]
    NoMatch {
        /// The hold.
        name: String,
        /// How many items it holds.
        held: usize,
        /// The held items, as `MODIFIED demo`.
        items: Vec<String>,
    },
}

fn listed(names: &[String]) -> String {
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}

/// All gates of a world. Clones share them.
#[derive(Clone)]
pub struct Gates(Arc<Shared>);

struct Shared {
    trace: Trace,
    choices: Choices,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Number of streams opened so far: the id of the next.
    opened: u64,
    /// Number of items sent so far, over all streams.
    sent: u64,
    /// Holds by name.
    holds: IndexMap<String, Hold>,
    /// Items so far by stream key and object, over all streams of that key.
    counts: IndexMap<String, IndexMap<String, u64>>,
    /// Open streams, in the order in which they were opened.
    lanes: IndexMap<u64, Lane>,
}

struct Hold {
    stream: String,
}

/// What is on its way through one open stream.
struct Lane {
    stream: String,
    /// Not yet taken by the consumer, oldest first.
    items: VecDeque<Item>,
    /// The producer is gone.
    ended: bool,
    /// The consumer, if it waits.
    waiting: Option<Waker>,
}

struct Item {
    /// Position among all items sent.
    seq: u64,
    meta: Meta,
    /// Not before this instant.
    due: Option<Instant>,
    /// The holds that have not let it go.
    held_by: Vec<String>,
}

impl Gates {
    /// The gates of a world. Holds and releases are entries of the trace; delays come from the choices.
    pub fn new(trace: Trace, choices: Choices) -> Gates {
        Gates(Arc::new(Shared { trace, choices, state: Mutex::default() }))
    }

    /// Opens a stream under a key such as `driver/sandboxes`. Several streams may share a key, one after the other or at
    /// the same time: a hold of the key holds them all, and their items are counted together.
    pub fn open<T: Send + 'static>(&self, stream: &str) -> (GateSender<T>, GateReceiver<T>) {
        let mut state = self.state();
        let id = state.opened;
        state.opened += 1;
        state.counts.entry(stream.to_owned()).or_default();
        let lane = Lane { stream: stream.to_owned(), items: VecDeque::new(), ended: false, waiting: None };
        state.lanes.insert(id, lane);
        let values = Arc::new(Mutex::new(VecDeque::new()));
        let sender = GateSender { gates: self.clone(), id, stream: stream.to_owned(), values: values.clone() };
        (sender, GateReceiver { gates: self.clone(), id, values, sleep: None })
    }

    /// Holds all streams of this key, those opened later as well, from what their consumers have not taken yet.
    ///
    /// # Errors
    /// If there is a hold of that name.
    pub fn hold(&self, stream: &str, name: &str) -> Result<(), GateError> {
        let mut state = self.state();
        if let Some(hold) = state.holds.get(name) {
            return Err(GateError::Taken { name: name.to_owned(), stream: hold.stream.clone() });
        }
        state.holds.insert(name.to_owned(), Hold { stream: stream.to_owned() });
        for item in state.items_mut(stream) {
            item.held_by.push(name.to_owned());
        }
        drop(state);
        let text = format!("hold {stream} as {name}");
        self.0.trace.entry("net", "hold").text(text).field("stream", stream).field("as", name).record();
        Ok(())
    }

    /// Lets held items go, in order, and says how many. An item that several holds hold goes when the last one lets it.
    ///
    /// # Errors
    /// If there is no such hold, or none of its items meets the condition.
    pub fn release(&self, name: &str, what: Release) -> Result<usize, GateError> {
        let mut state = self.state();
        let Some(hold) = state.holds.get(name) else {
            return Err(GateError::Unknown { name: name.to_owned(), holds: state.holds.keys().cloned().collect() });
        };
        let stream = hold.stream.clone();
        let (seqs, backlog): (Vec<u64>, Vec<Meta>) = state.backlog(name).into_iter().unzip();
        let count = match &what {
            Release::All => backlog.len(),
            Release::AllButLast => backlog.len().saturating_sub(1),
            Release::Count(n) => backlog.len().min(*n),
            Release::Until(matches) => match backlog.iter().position(matches) {
                Some(at) => at + 1,
                None => {
                    let items = backlog.iter().map(|m| format!("{} {}", m.kind, m.object)).collect();
                    return Err(GateError::NoMatch { name: name.to_owned(), held: backlog.len(), items });
                }
            },
        };
        if let Some(last) = count.checked_sub(1).map(|at| seqs[at]) {
            let first = state.items_mut(&stream).filter(|item| item.seq <= last);
            first.for_each(|item| item.held_by.retain(|h| h != name));
        }
        if matches!(what, Release::All) {
            state.holds.shift_remove(name);
        }
        let wakers: Vec<_> =
            state.lanes.values_mut().filter(|l| l.stream == stream).filter_map(|l| l.waiting.take()).collect();
        drop(state);
        let draft = self.0.trace.entry("net", "release").text(format!("release {name}: {count} of {}", backlog.len()));
        draft
            .field("stream", stream)
            .field("as", name)
            .field("what", format_args!("{what:?}"))
            .field("count", count)
            .record();
        wakers.into_iter().for_each(Waker::wake);
        Ok(count)
    }

    /// What a hold holds, oldest first; empty if there is no such hold.
    pub fn backlog(&self, name: &str) -> Vec<Meta> {
        self.state().backlog(name).into_iter().map(|(_, meta)| meta).collect()
    }

    /// Names of the holds, oldest first.
    pub fn holds(&self) -> Vec<String> {
        self.state().holds.keys().cloned().collect()
    }

    /// Keys of all streams opened so far, in the order of their first opening.
    pub fn streams(&self) -> Vec<String> {
        self.state().counts.keys().cloned().collect()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Gates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gates").field("streams", &self.streams()).field("holds", &self.holds()).finish()
    }
}

impl State {
    fn items_mut<'a>(&'a mut self, stream: &'a str) -> impl Iterator<Item = &'a mut Item> {
        self.lanes.values_mut().filter(move |lane| lane.stream == stream).flat_map(|lane| &mut lane.items)
    }

    /// What a hold holds, oldest first, each with its position among all items sent.
    fn backlog(&self, name: &str) -> Vec<(u64, Meta)> {
        let items = self.lanes.values().flat_map(|lane| &lane.items);
        let held = items.filter(|item| item.held_by.iter().any(|h| h == name));
        let mut held: Vec<_> = held.map(|item| (item.seq, item.meta.clone())).collect();
        held.sort_by_key(|(seq, _)| *seq);
        held
    }
}

/// The producer's end of a stream. Dropping it ends the stream, behind all items that are still on their way.
pub struct GateSender<T> {
    gates: Gates,
    id: u64,
    stream: String,
    values: Arc<Mutex<VecDeque<T>>>,
}

impl<T> GateSender<T> {
    /// Sends an item. Never waits; an item for a consumer that is gone is dropped.
    pub fn send(&self, meta: Meta, value: T) {
        let mut state = self.gates.state();
        if !state.lanes.contains_key(&self.id) {
            return;
        }
        let count = state.counts.entry(self.stream.clone()).or_default().entry(meta.object.clone()).or_default();
        *count += 1;
        let delay = self.gates.0.choices.delay(&item_key(&self.stream, &meta.object, *count), &ITEM_DELAY);
        let due = (!delay.is_zero()).then(|| Instant::now() + delay);
        let held_by =
            state.holds.iter().filter(|(_, hold)| hold.stream == self.stream).map(|(name, _)| name.clone()).collect();
        let seq = state.sent;
        state.sent += 1;
        let Some(lane) = state.lanes.get_mut(&self.id) else { return };
        lane.items.push_back(Item { seq, meta, due, held_by });
        lock(&self.values).push_back(value);
        let waiting = lane.waiting.take();
        drop(state);
        waiting.into_iter().for_each(Waker::wake);
    }

    /// Whether the consumer is gone.
    pub fn is_closed(&self) -> bool {
        !self.gates.state().lanes.contains_key(&self.id)
    }
}

/// `watch/<stream>/<object>#<n>`.
fn item_key(stream: &str, object: &str, n: u64) -> String {
    let item = format!("{object}#{n}");
    let parts: Vec<_> = ["watch"].into_iter().chain(stream.split('/')).chain([item.as_str()]).collect();
    key(&parts)
}

impl<T> fmt::Debug for GateSender<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "GateSender({})", self.stream)
    }
}

impl<T> Drop for GateSender<T> {
    fn drop(&mut self) {
        let mut state = self.gates.state();
        let waiting = state.lanes.get_mut(&self.id).and_then(|lane| {
            lane.ended = true;
            lane.waiting.take()
        });
        drop(state);
        waiting.into_iter().for_each(Waker::wake);
    }
}

/// The consumer's end: a stream of the items, each when it is neither held nor late. Read it inside a tokio runtime.
pub struct GateReceiver<T> {
    gates: Gates,
    id: u64,
    values: Arc<Mutex<VecDeque<T>>>,
    sleep: Option<Pin<Box<Sleep>>>,
}

impl<T> Stream for GateReceiver<T> {
    type Item = T;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<T>> {
        loop {
            let due = {
                let mut state = self.gates.state();
                let lane = state.lanes.get_mut(&self.id).expect("a stream is open as long as its receiver lives");
                match lane.items.front() {
                    None if lane.ended => return Poll::Ready(None),
                    Some(item) if item.held_by.is_empty() => match item.due.filter(|&due| due > Instant::now()) {
                        Some(due) => due,
                        None => {
                            lane.items.pop_front();
                            return Poll::Ready(lock(&self.values).pop_front());
                        }
                    },
                    _ => {
                        lane.waiting = Some(cx.waker().clone());
                        return Poll::Pending;
                    }
                }
            };
            let sleep = self.sleep.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(due)));
            if sleep.deadline() != due {
                sleep.as_mut().reset(due);
            }
            std::task::ready!(sleep.as_mut().poll(cx));
        }
    }
}

impl<T> fmt::Debug for GateReceiver<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "GateReceiver({})", self.id)
    }
}

impl<T> Drop for GateReceiver<T> {
    fn drop(&mut self) {
        self.gates.state().lanes.shift_remove(&self.id);
    }
}

fn lock<T>(values: &Mutex<VecDeque<T>>) -> MutexGuard<'_, VecDeque<T>> {
    values.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
#[path = "gate_tests.rs"]
mod tests;
