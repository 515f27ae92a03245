//! The server inside a world: held watch streams, choices, trace.
//!
//! | what | key or entry |
//! |---|---|
//! | a fault | a choice under the key that the table in [`faults`] names |
//! | a watch stream, which can be held | gate stream `<client>/<resource>`, of one object `<client>/<resource>/<name>` |
//! | an answer | entry `http`, named by the verb: `client`, `path`, `status`, `rv` of a write, `connection` |
//! | an event handed to a stream's body | entry `watch`, named by its type: `stream`, `object`, `rv` |

#[cfg(feature = "actors")]
mod actors;
pub mod faults;
mod pipe;

use std::borrow::Cow;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::time::Duration;

use indexmap::IndexMap;
use photofinish_sim::choices::{Choices, key};
use photofinish_sim::gate::Gates;
use photofinish_sim::legality::Fault;
use photofinish_sim::trace::Trace;

#[cfg(feature = "actors")]
pub use actors::{fate, pace};
use faults::Enabled;

use crate::hooks::{Call, Hooks, Refusal, Reply, Stream, Treatment, WatchPipe};

/// How long calls and answers may be late, and changes on their way to a cache.
const LATE: Duration = Duration::from_secs(5);

/// [`Hooks`] that put a server into a world.
pub struct SimHooks {
    trace: Trace,
    questions: Questions,
    gates: Gates,
}

impl std::fmt::Debug for SimHooks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SimHooks")
            .field("questions", &self.questions)
            .field("gates", &self.gates)
            .finish_non_exhaustive()
    }
}

impl SimHooks {
    /// Hooks that record in `trace`, ask `choices`, and pass watch events through `gates`; of the faults, the usual
    /// ones are drawn, or all where the choices [ask for all](Choices::asks_all).
    pub fn new(trace: Trace, choices: Choices, gates: Gates) -> Arc<SimHooks> {
        SimHooks::with_faults(trace, choices, gates, Enabled::usual())
    }

    /// As [`SimHooks::new`], where a seed draws these kinds of faults.
    pub fn with_faults(trace: Trace, choices: Choices, gates: Gates, enabled: Enabled) -> Arc<SimHooks> {
        Arc::new(SimHooks { trace, questions: Questions::new(choices, enabled), gates })
    }

    /// The kinds of faults that a seed draws in this run.
    pub fn enabled(&self) -> &Enabled {
        self.questions.enabled()
    }
}

/// Asks for what is enabled, and for what is pinned.
#[derive(Clone, Debug)]
struct Questions {
    choices: Choices,
    usual: Enabled,
    /// How often each point came by.
    counts: Arc<Mutex<IndexMap<String, u64>>>,
}

impl Questions {
    fn new(choices: Choices, enabled: Enabled) -> Questions {
        Questions { choices, usual: enabled, counts: Arc::default() }
    }

    /// The kinds that may be drawn now: a run's source is another one once its beginning is over.
    fn enabled(&self) -> &Enabled {
        static ALL: LazyLock<Enabled> = LazyLock::new(Enabled::all);
        // A swarm's seed leaves kinds out by itself.
        if self.choices.asks_all() { &ALL } else { &self.usual }
    }

    /// `<key>#<n>`, where n counts this key.
    fn numbered(&self, key: String) -> String {
        let key = match self.choices.named(&key) {
            Cow::Owned(named) => named,
            Cow::Borrowed(_) => key,
        };
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let count = counts.entry(key.clone()).or_default();
        *count += 1;
        format!("{key}#{count}")
    }

    /// Whether any of the points below `key` can come to something.
    fn concerned(&self, key: &str, kinds: &[&'static Fault]) -> bool {
        let enabled = self.enabled();
        kinds.iter().any(|fault| enabled.odds(fault).is_some()) || self.choices.has_pin_below(key)
    }

    /// Odds of a point: those of its kind, none if it is only pinned. `None`: not to be asked.
    fn odds(&self, key: &str, fault: &'static Fault) -> Option<f64> {
        self.enabled().odds(fault).or_else(|| self.choices.has_pin(key).then_some(0.0))
    }

    fn flip(&self, key: &str, fault: &'static Fault) -> bool {
        self.odds(key, fault).is_some_and(|odds| self.choices.flip(key, fault, odds))
    }

    fn delay(&self, key: &str, fault: &'static Fault, longest: Duration) -> Duration {
        let asked = self.odds(key, fault).map(|odds| self.choices.delay(key, &faults::delays(fault, odds, longest)));
        asked.unwrap_or_default()
    }
}

/// `call/<client>/<VERB>/<resource>/<name>`, without empty parts.
fn call_key(call: &Call) -> String {
    let verb = call.verb.as_str().to_ascii_uppercase();
    let resource = match call.subresource.as_str() {
        "" => Cow::Borrowed(&*call.resource),
        subresource => Cow::Owned(format!("{}.{subresource}", call.resource)),
    };
    let parts = ["call", &call.conn.client, &verb, &resource, &call.name];
    match parts.iter().any(|part| part.is_empty()) {
        true => key(&parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>()),
        false => key(&parts),
    }
}

/// `<client>/<resource>`, and the name of the one object that is watched.
fn stream_name(stream: Stream<'_>) -> String {
    match stream.name {
        Some(name) => format!("{}/{}/{name}", stream.client, stream.resource),
        None => format!("{}/{}", stream.client, stream.resource),
    }
}

/// What may become of a call besides being late.
static REFUSALS: [(&Fault, &str, Refusal); 4] = [
    (&faults::REFUSED_429, "429", Refusal::TooManyRequests),
    (&faults::REFUSED_500, "500", Refusal::Internal),
    (&faults::REFUSED_503, "503", Refusal::Unavailable),
    (&faults::REFUSED_504, "504", Refusal::Timeout),
];
/// All that a call may meet besides being late, as asked below.
static CALL_FAULTS: [&Fault; 8] = [
    &faults::REFUSED_429,
    &faults::REFUSED_500,
    &faults::REFUSED_503,
    &faults::REFUSED_504,
    &faults::PAGE_EXPIRED,
    &faults::REPLY_LOST,
    &faults::TIMED_OUT,
    &faults::REPLY_DELAY,
];
static REPLIES: [(&Fault, &str, Reply); 2] =
    [(&faults::REPLY_LOST, "lost", Reply::Lost), (&faults::TIMED_OUT, "timed-out", Reply::TimedOut)];

impl Hooks for SimHooks {
    fn request(&self, call: &Call) -> Treatment {
        let questions = &self.questions;
        let key = questions.numbered(call_key(call));
        // Asked in any case: a script may slow calls down.
        let odds = questions.enabled().odds(&faults::CALL_DELAY).unwrap_or(0.0);
        let before = questions.choices.delay(&key, &faults::delays(&faults::CALL_DELAY, odds, LATE));
        // Most runs neither draw nor pin what follows: their calls need not even make the keys.
        if !questions.concerned(&key, &CALL_FAULTS) {
            return Treatment { before, ..Treatment::default() };
        }
        let flip = |suffix: &str, fault| questions.flip(&format!("{key}/{suffix}"), fault);
        let refused = REFUSALS.iter().find(|(fault, suffix, _)| flip(suffix, fault)).map(|(_, _, refusal)| *refusal);
        let expired = call.continues && flip("expired", &faults::PAGE_EXPIRED);
        let reply = REPLIES.iter().find(|(fault, suffix, _)| flip(suffix, fault)).map(|(_, _, reply)| *reply);
        Treatment {
            before,
            after: questions.delay(&format!("{key}/reply"), &faults::REPLY_DELAY, LATE),
            refused: refused.or(expired.then_some(Refusal::Expired)),
            reply: reply.unwrap_or_default(),
        }
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
        Box::new(pipe::Gated::open(stream_name(stream), self.trace.clone(), self.questions.clone(), &self.gates))
    }

    fn expires(&self, stream: Stream<'_>) -> bool {
        let key = self.questions.numbered(pipe::watch_key(&stream_name(stream), ""));
        self.questions.flip(&format!("{key}/expired"), &faults::WATCH_EXPIRED)
    }

    fn caches_lag(&self) -> bool {
        // Not in the beginning, which many runs share: the points of their caches are counted from its end.
        !self.questions.choices.are_in_the_beginning() && self.questions.concerned("cache", &[&faults::CACHE_LAG])
    }

    fn cache_delay(&self, server: &str, resource: &str, object: &str) -> Duration {
        let key = self.questions.numbered(key(&["cache", server, resource, object]));
        self.questions.delay(&key, &faults::CACHE_LAG, LATE)
    }

    fn initializing(&self, server: &str, resource: &str) -> Duration {
        let key = self.questions.numbered(key(&["cold", server, resource]));
        self.questions.delay(&key, &faults::COLD_START, LATE)
    }

    fn balance(&self, client: &str, servers: usize) -> usize {
        let key = self.questions.numbered(key(&["server", client]));
        // One question a server: stay, or go on to the next one.
        (1..servers)
            .take_while(|at| {
                let key = if *at == 1 { key.clone() } else { format!("{key}/{at}") };
                self.questions.flip(&key, &faults::OTHER_SERVER)
            })
            .count()
    }
}

#[cfg(test)]
#[path = "sim/tests.rs"]
mod tests;
