//! Where a harness looks on and takes hold: calls before and after, and every watch stream.

use std::collections::VecDeque;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;

use crate::history::EventType;
use crate::object::Shown;
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
    /// A list that goes on behind an earlier page.
    pub continues: bool,
}

/// What a harness does to a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Treatment {
    /// Time before the server handles it. It is handled even if its client goes meanwhile.
    pub before: Duration,
    /// Time from the handling to the answer.
    pub after: Duration,
    /// Refused without being handled.
    pub refused: Option<Refusal>,
    /// Handled, but what the client gets is this.
    pub reply: Reply,
}

/// How a server refuses what it would do at another time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// 429, to be tried again after a second.
    TooManyRequests,
    /// 500 InternalError.
    Internal,
    /// 503 ServiceUnavailable.
    Unavailable,
    /// 504 Timeout.
    Timeout,
    /// 410 Expired: of a list that goes on behind an earlier page.
    Expired,
}

/// What becomes of the answer to a request that was handled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reply {
    /// It is sent.
    #[default]
    Sent,
    /// The connection breaks before it.
    Lost,
    /// The server gave up waiting for its storage, which did it nevertheless: 504 Timeout.
    TimedOut,
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
    pub value: Shown,
    /// What goes over the wire: the event's JSON and a newline.
    pub line: Bytes,
}

/// The way of one watch stream's events from the server to the body of the response. Order must be kept.
pub trait WatchPipe: Send {
    /// Takes an event. Never waits.
    fn send(&mut self, item: WatchItem);

    /// The next event to hand to the body, or the end of the stream. Wakes the task when one comes that was not ready.
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Handed>;
}

/// What comes out of a watch stream's way.
#[derive(Clone, Debug)]
pub enum Handed {
    /// An event.
    Item(WatchItem),
    /// The server ends the body, as it does when `timeoutSeconds` are over. What was still on its way is dropped.
    End,
    /// The connection breaks.
    Reset,
    /// The connection breaks in the middle of this event.
    Torn(WatchItem),
}

/// A watch stream, as far as hooks need to know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stream<'a> {
    /// Who watches.
    pub client: &'a str,
    /// Plural name of the resource.
    pub resource: &'a str,
    /// Name of the one object that is watched, if it is only one.
    pub name: Option<&'a str>,
}

/// A harness around the server. All methods have the behaviour of a plain server by default.
pub trait Hooks: Send + Sync {
    /// A request has been read. The answer is what is to become of it.
    fn request(&self, call: &Call) -> Treatment {
        let _ = call;
        Treatment::default()
    }

    /// The server answers. `rv` is the revision that a write made.
    fn answered(&self, call: &Call, status: u16, rv: Option<u64>) {
        let _ = (call, status, rv);
    }

    /// A watch begins.
    fn watch_stream(&self, stream: Stream<'_>) -> Box<dyn WatchPipe> {
        let _ = stream;
        Box::new(Straight::default())
    }

    /// A watch goes on from a revision that it has seen. True: it is told that the revision has expired.
    fn expires(&self, stream: Stream<'_>) -> bool {
        let _ = stream;
        false
    }

    /// Whether [`Hooks::cache_delay`] is to be asked, of changes from now on. Once it was, it stays so.
    fn caches_lag(&self) -> bool {
        false
    }

    /// A change of this object was stored. The answer is how much later than usual it arrives in the watch cache of
    /// this server, and with it all later changes of the type.
    fn cache_delay(&self, server: &str, resource: &str, object: &str) -> Duration {
        let _ = (server, resource, object);
        Duration::ZERO
    }

    /// A server has started again, and is asked about a type for the first time. The answer is how long after the start
    /// it refuses what it would serve from its watch cache of the type (429).
    fn initializing(&self, server: &str, resource: &str) -> Duration {
        let _ = (server, resource);
        Duration::ZERO
    }

    /// A connection comes in. The answer is the position of the server that gets it, of several over one history.
    fn balance(&self, client: &str, servers: usize) -> usize {
        let _ = (client, servers);
        0
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
    fn poll_next(&mut self, _cx: &mut Context<'_>) -> Poll<Handed> {
        self.0.pop_front().map_or(Poll::Pending, |item| Poll::Ready(Handed::Item(item)))
    }
}
