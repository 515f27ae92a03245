//! Where a harness looks on and takes hold: calls before and after, and every watch stream.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use serde_json::Value;

use crate::history::EventType;
use crate::request::Verb;

/// Who is on the other end of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnInfo {
    /// Name of the client, as traces and stream keys show it.
    pub client: String,
    /// Number of the connection.
    pub connection: u64,
}

impl Default for ConnInfo {
    fn default() -> ConnInfo {
        ConnInfo { client: "local".into(), connection: 0 }
    }
}

/// One request, as far as hooks need to know it.
#[derive(Clone, Debug)]
pub struct Call {
    /// Who asks.
    pub conn: ConnInfo,
    /// What is asked. Paths outside of all resources count as [`Verb::Get`].
    pub verb: Verb,
    /// Path without the query.
    pub path: String,
    /// Plural name of the resource, empty outside of all resources.
    pub resource: String,
    /// Name of the object; of a new object as in its body; empty for collections.
    pub name: String,
    /// `status`, `binding`, ...; empty for the object itself.
    pub subresource: String,
}

/// One event on its way to a watcher.
#[derive(Clone, Debug)]
pub struct WatchItem {
    /// What it says happened.
    pub kind: EventType,
    /// `metadata.name` of the object; empty for bookmarks and errors.
    pub object: String,
    /// Revision of the event; zero for errors.
    pub revision: u64,
    /// The object as JSON, in the version of the stream.
    pub value: Arc<Value>,
    /// What goes over the wire: the event's JSON and a newline.
    pub line: Bytes,
}

/// The way of one watch stream's events from the server to the body of the response. Order must be kept.
pub trait WatchPipe: Send {
    /// Takes an event. Never waits.
    fn send(&mut self, item: WatchItem);

    /// The next event to hand to the body. Wakes the task when one comes that was not ready. The pipe never ends by
    /// itself.
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<WatchItem>;
}

/// A harness around the server. All methods have the behaviour of a plain server by default.
pub trait Hooks: Send + Sync {
    /// A request has been read. The answer is extra time to wait before it is handled.
    fn request(&self, call: &Call) -> Option<Duration> {
        let _ = call;
        None
    }

    /// The server answers. `rv` is the revision that a write made.
    fn answered(&self, call: &Call, status: u16, rv: Option<u64>) {
        let _ = (call, status, rv);
    }

    /// A watch begins: of a collection, or of the one object of this `name` in it.
    fn watch_stream(&self, client: &str, resource: &str, name: Option<&str>) -> Box<dyn WatchPipe> {
        let _ = (client, resource, name);
        Box::new(Straight::default())
    }
}

/// No harness.
#[derive(Debug, Default)]
pub(crate) struct Plain;

impl Hooks for Plain {}

/// A pipe that holds nothing back.
#[derive(Debug, Default)]
pub struct Straight(VecDeque<WatchItem>);

impl WatchPipe for Straight {
    fn send(&mut self, item: WatchItem) {
        self.0.push_back(item);
    }

    // The task that sends is the one that polls, and it polls again after it has sent.
    fn poll_next(&mut self, _cx: &mut Context<'_>) -> Poll<WatchItem> {
        self.0.pop_front().map_or(Poll::Pending, Poll::Ready)
    }
}
