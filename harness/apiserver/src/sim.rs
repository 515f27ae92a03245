//! The server inside a world: held watch streams, choices, trace.
//!
//! | what | key or entry |
//! |---|---|
//! | extra delay before a call is handled | choice `call/<client>/<VERB>/<resource>/<name>#<n>`; no name for collections |
//! | a watch stream, which can be held | gate stream `<client>/<resource>`, of one object `<client>/<resource>/<name>`; each event also asks `watch/<client>/<resource>/<object>#<n>` |
//! | an answer | entry `http`, named by the verb: `client`, `path`, `status`, `rv` of a write, `connection` |
//! | an event handed to a stream's body | entry `watch`, named by its type: `stream`, `object`, `rv` |

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use futures::Stream as _;
use indexmap::IndexMap;
use photofinish_sim::choices::{Choices, DelaySpec, key};
use photofinish_sim::gate::{GateReceiver, GateSender, Gates, Meta};
use photofinish_sim::legality::{Fault, Legality};
use photofinish_sim::trace::Trace;

use crate::hooks::{Call, Handed, Hooks, Stream, Treatment, WatchItem, WatchPipe};

/// A call waits in the server before it is handled.
pub static CALL_DELAY: Fault = Fault {
    name: "call-delay",
    legality: Legality::Always,
    contract: "A request takes effect at some moment between its sending and its answer; nothing says how soon.",
};

/// A pod's containers take longer to start.
pub static POD_START: Fault = Fault {
    name: "pod-start-delay",
    legality: Legality::Always,
    contract: "A pod stays Pending for as long as its images and volumes take; nothing bounds it.",
};

/// A pod's containers take longer to end, within the grace period.
pub static POD_STOP: Fault = Fault {
    name: "pod-stop-delay",
    legality: Legality::Always,
    contract: "A container may use its whole termination grace period.",
};

/// The faults of an API server and its neighbours that a run can draw or pin.
pub static FAULTS: &[&Fault] = &[&CALL_DELAY, &POD_START, &POD_STOP];

/// The extra delay that each call is asked for.
pub static CALL: DelaySpec =
    DelaySpec { fault: &CALL_DELAY, odds: 0.05, min: Duration::from_millis(1), max: Duration::from_secs(5) };

/// The pace of actors in a world: what is normal, and the extra delay chosen under the point's key.
#[cfg(feature = "actors")]
pub fn pace(choices: Choices) -> crate::actors::Pace {
    Arc::new(move |key, normal| {
        let fault = if key.starts_with("stop/") { &POD_STOP } else { &POD_START };
        let spec = DelaySpec { fault, odds: 0.1, min: Duration::from_millis(10), max: Duration::from_secs(20) };
        normal + choices.delay(key, &spec)
    })
}

/// [`Hooks`] that put a server into a world.
pub struct SimHooks {
    trace: Trace,
    choices: Choices,
    gates: Gates,
    /// Calls so far by key.
    counts: Mutex<IndexMap<String, u64>>,
}

impl std::fmt::Debug for SimHooks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SimHooks").field("gates", &self.gates).finish_non_exhaustive()
    }
}

impl SimHooks {
    /// Hooks that record in `trace`, ask `choices`, and pass watch events through `gates`.
    pub fn new(trace: Trace, choices: Choices, gates: Gates) -> Arc<SimHooks> {
        Arc::new(SimHooks { trace, choices, gates, counts: Mutex::default() })
    }
}

/// `call/<client>/<VERB>/<resource>/<name>`, without empty parts.
fn call_key(call: &Call) -> String {
    let verb = call.verb.as_str().to_uppercase();
    let resource = match call.subresource.as_str() {
        "" => call.resource.clone(),
        subresource => format!("{}.{subresource}", call.resource),
    };
    let parts = ["call", &call.conn.client, &verb, &resource, &call.name];
    key(&parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>())
}

impl Hooks for SimHooks {
    fn request(&self, call: &Call) -> Treatment {
        let key = call_key(call);
        let key = {
            let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
            let count = counts.entry(key.clone()).or_default();
            *count += 1;
            format!("{key}#{count}")
        };
        Treatment { before: self.choices.delay(&key, &CALL), ..Treatment::default() }
    }

    fn answered(&self, call: &Call, status: u16, rv: Option<u64>) {
        let client = &call.conn.client;
        let verb = call.verb.as_str();
        let written = rv.map(|rv| format!(" at rv {rv}")).unwrap_or_default();
        let mut draft = self
            .trace
            .entry("http", verb)
            .text(format!("{client}: {verb} {} -> {status}{written}", call.path))
            .field("client", client)
            .field("path", &call.path)
            .field("status", status);
        if let Some(rv) = rv {
            draft = draft.field("rv", rv);
        }
        draft.field("connection", call.conn.connection).record();
    }

    fn watch_stream(&self, stream: Stream<'_>) -> Box<dyn WatchPipe> {
        let Stream { client, resource, name } = stream;
        let stream = match name {
            Some(name) => format!("{client}/{resource}/{name}"),
            None => format!("{client}/{resource}"),
        };
        let (sender, receiver) = self.gates.open(&stream);
        Box::new(Gated { stream, trace: self.trace.clone(), sender, receiver })
    }
}

struct Gated {
    stream: String,
    trace: Trace,
    sender: GateSender<WatchItem>,
    receiver: GateReceiver<WatchItem>,
}

impl WatchPipe for Gated {
    fn send(&mut self, item: WatchItem) {
        let meta = Meta { object: item.object.clone(), kind: item.kind.as_str().to_owned(), value: item.value.clone() };
        self.sender.send(meta, item);
    }

    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Handed> {
        match Pin::new(&mut self.receiver).poll_next(cx) {
            Poll::Ready(Some(item)) => {
                let kind = item.kind.as_str();
                self.trace
                    .entry("watch", kind)
                    .text(format!("{}: {kind} {} at rv {}", self.stream, item.object, item.revision))
                    .field("stream", &self.stream)
                    .field("object", &item.object)
                    .field("rv", item.revision)
                    .record();
                Poll::Ready(Handed::Item(item))
            }
            // The sender lives in this pipe: the stream cannot end before the pipe does.
            Poll::Ready(None) | Poll::Pending => Poll::Pending,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hooks::ConnInfo;
    use crate::request::Verb;

    fn call(verb: Verb, name: &str, subresource: &str) -> Call {
        Call {
            conn: ConnInfo { client: "driver".into(), connection: 3 },
            verb,
            path: "/api/v1/namespaces/d/pods".into(),
            resource: "pods".into(),
            name: name.into(),
            subresource: subresource.into(),
            continues: false,
        }
    }

    #[test]
    fn a_call_is_named_by_client_verb_resource_and_object() {
        let table = [
            (call(Verb::Get, "demo", ""), "call/driver/GET/pods/demo"),
            (call(Verb::List, "", ""), "call/driver/LIST/pods"),
            (call(Verb::Patch, "demo", "status"), "call/driver/PATCH/pods.status/demo"),
        ];
        for (call, key) in table {
            assert_eq!(call_key(&call), key);
        }
    }

    #[test]
    fn the_same_call_twice_asks_two_choices_and_is_delayed_by_a_pin() {
        let trace = Trace::new();
        let pins = "call/driver/GET/pods/demo#2=+1s".parse().expect("pins");
        let choices = Choices::new(photofinish_sim::choices::Source::Benign, pins, trace.clone());
        let hooks = SimHooks::new(trace.clone(), choices.clone(), Gates::new(trace, choices));
        let get = call(Verb::Get, "demo", "");
        assert_eq!(hooks.request(&get).before, Duration::ZERO);
        assert_eq!(hooks.request(&get).before, Duration::from_secs(1));
    }

    #[test]
    fn an_answer_is_an_entry_of_the_trace() {
        let trace = Trace::new();
        let choices = Choices::benign();
        let hooks = SimHooks::new(trace.clone(), choices.clone(), Gates::new(trace.clone(), choices));
        hooks.answered(&call(Verb::Create, "demo", ""), 201, Some(7));
        trace.with(|entries| {
            let entry = &entries[0];
            assert_eq!((&*entry.kind, &*entry.name), ("http", "create"));
            assert_eq!(entry.text, "driver: create /api/v1/namespaces/d/pods -> 201 at rv 7");
            let fields = ["client", "status", "rv", "connection"].map(|f| entry.field(f).unwrap_or("none").to_owned());
            assert_eq!(fields, ["driver", "201", "7", "3"]);
        });
    }
}
