//! The faults of an API server and its neighbours: one table, from which `docs/faults.md` is made.
//!
//! Each row says what may happen, whether a real cluster may show it, on which sentence of the API's contract that
//! rests, what it does here, and under which key [`Choices`](photofinish_sim::choices::Choices) is asked. A run draws
//! only kinds that are [`Enabled`]; a pinned point is taken whatever is enabled.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use photofinish_sim::choices::DelaySpec;
use photofinish_sim::gate::WATCH_DELAY;
use photofinish_sim::legality::{Fault, Legality};

/// One row of the table.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// Name, legality, and sentence of the contract.
    pub fault: &'static Fault,
    /// How often a seed draws it, 0.0 to 1.0, where a run does not say otherwise.
    pub odds: f64,
    /// Drawn in every run, unless it is switched off.
    pub usual: bool,
    /// What it does.
    pub does: &'static str,
    /// The key under which it is asked for.
    pub key: &'static str,
}

macro_rules! faults {
    ($($(#[$doc:meta])* $ident:ident = $name:literal, $legality:expr, $contract:literal;)*) => {
        $($(#[$doc])* pub static $ident: Fault = Fault { name: $name, legality: $legality, contract: $contract };)*
    };
}

faults! {
    /// A call waits in the server before it is handled.
    CALL_DELAY = "call-delay", Legality::Always,
        "A request takes effect at some moment between its sending and its answer; nothing says how soon.";
    /// The answer to a call comes late.
    REPLY_DELAY = "reply-delay", Legality::Always,
        "A request takes effect at some moment between its sending and its answer; watch events may overtake the answer.";
    /// The answer never comes.
    REPLY_LOST = "reply-lost", Legality::Always,
        "A connection may end at any moment; without an answer, a client cannot know whether its request was carried out.";
    /// The server gives up waiting for its storage.
    TIMED_OUT = "timed-out", Legality::Always,
        "504 Timeout: the request was not finished in time; it may or may not have been carried out.";
    /// 429.
    REFUSED_429 = "refused-429", Legality::Always,
        "429 TooManyRequests: the client should wait for Retry-After and try again; nothing was carried out.";
    /// 500.
    REFUSED_500 = "refused-500", Legality::Always,
        "500 InternalError: the server could not carry the request out, as when its storage elects a new leader.";
    /// 503.
    REFUSED_503 = "refused-503", Legality::Always,
        "503 ServiceUnavailable: nothing behind the address can answer now, as while a server is replaced.";
    /// 504 without effect.
    REFUSED_504 = "refused-504", Legality::Always,
        "504 Timeout: the request was not finished in time; it may or may not have been carried out.";
    /// 410 for the next page.
    PAGE_EXPIRED = "page-expired", Legality::Always,
        "A continue token expires when the storage is compacted, which happens every few minutes: 410 Expired.";
    /// A change is late in a server's watch cache.
    CACHE_LAG = "cache-lag", Legality::Always,
        "At resourceVersion=0 any state may be returned, however old; without one it must be the latest.";
    /// Another of several servers answers.
    OTHER_SERVER = "other-server", Legality::Ha,
        "Clients of several API servers may read older data than they have read before: nothing orders their caches.";
    /// A server has empty caches.
    COLD_START = "cold-start", Legality::Always,
        "429 `storage is (re)initializing`: a watch cache that is being filled serves nothing yet.";
    /// The server ends a watch.
    WATCH_END = "watch-end", Legality::Always,
        "A server may end a watch at any time; the client goes on from the last resourceVersion that it has seen.";
    /// A watch breaks between two events.
    WATCH_RESET = "watch-reset", Legality::Always,
        "A connection may end at any moment; the client goes on from the last resourceVersion that it has seen.";
    /// A watch breaks in the middle of an event.
    WATCH_TORN = "watch-torn", Legality::Always,
        "A connection may end at any moment, in the middle of an event as well.";
    /// A resumed watch is told 410.
    WATCH_EXPIRED = "watch-expired", Legality::Always,
        "Servers keep a history of limited length; a watch from before it gets an ERROR event with code 410, and the client must list again.";
    /// An event is left out.
    WATCH_DROP = "watch-drop", Legality::Never,
        "None: a watch delivers every change after its resourceVersion.";
    /// An event comes twice.
    WATCH_DUPLICATE = "watch-duplicate", Legality::Never,
        "None: a watch delivers every change once.";
    /// Two events change places.
    WATCH_SWAP = "watch-swap", Legality::Never,
        "None: a watch delivers changes in the order of their resourceVersions.";
    /// A pod's containers take longer to start.
    POD_START = "pod-start-delay", Legality::Always,
        "A pod stays Pending for as long as its images and volumes take; nothing bounds it.";
    /// A pod's containers take longer to end, within the grace period.
    POD_STOP = "pod-stop-delay", Legality::Always,
        "A container may use its whole termination grace period.";
    /// A node throws a pod out.
    POD_EVICTED = "pod-evicted", Legality::Always,
        "A node that runs short of a resource ends pods: phase Failed, reason Evicted, and nobody restarts them there.";
    /// A node falls silent for a while.
    NODE_SILENT = "node-silent", Legality::Always,
        "A node whose Lease is not renewed for 40 s becomes NotReady; its pods are deleted after their tolerationSeconds.";
}

/// All kinds, in the order of the documentation.
pub static TABLE: &[Row] = &[
    Row {
        fault: &WATCH_DELAY,
        odds: 0.1,
        usual: true,
        does: "An event, and with it all that follow on that stream, reaches the client up to 10 s later.",
        key: "watch/<client>/<resource>/<object>#<n>",
    },
    row(
        &WATCH_END,
        0.02,
        "The body ends cleanly instead of with this event.",
        "watch/<client>/<resource>/<object>#<n>/end",
    ),
    row(
        &WATCH_RESET,
        0.02,
        "The connection breaks instead of this event.",
        "watch/<client>/<resource>/<object>#<n>/reset",
    ),
    row(
        &WATCH_TORN,
        0.02,
        "Half of this event's line goes out, then the connection breaks.",
        "watch/<client>/<resource>/<object>#<n>/torn",
    ),
    row(
        &WATCH_EXPIRED,
        0.1,
        "The n-th watch on that stream that goes on from a revision gets 410 as its only event.",
        "watch/<client>/<resource>#<n>/expired",
    ),
    row(
        &CACHE_LAG,
        0.1,
        "A change arrives in a server's watch cache up to 5 s later, and with it all later ones of its type: watches lag, `resourceVersion=0` reads are stale.",
        "cache/<server>/<resource>/<object>#<n>",
    ),
    row(
        &OTHER_SERVER,
        0.3,
        "The client's n-th connection goes to another of the servers over the history.",
        "server/<client>#<n>",
    ),
    row(
        &COLD_START,
        0.5,
        "Watches and lists of a type get 429 for up to 5 s after the server's n-th restart.",
        "cold/<server>/<resource>#<n>",
    ),
    Row {
        fault: &CALL_DELAY,
        odds: 0.05,
        usual: true,
        does: "The call is handled up to 5 s later, whether or not its client still waits.",
        key: "call/<client>/<VERB>/<resource>/<name>#<n>",
    },
    row(
        &REPLY_DELAY,
        0.05,
        "The answer comes up to 5 s after the call was handled.",
        "call/<client>/<VERB>/<resource>/<name>#<n>/reply",
    ),
    row(
        &REPLY_LOST,
        0.02,
        "The call is handled, and the connection breaks instead of an answer.",
        "call/<client>/<VERB>/<resource>/<name>#<n>/lost",
    ),
    row(
        &TIMED_OUT,
        0.02,
        "The call is handled, and answered 504.",
        "call/<client>/<VERB>/<resource>/<name>#<n>/timed-out",
    ),
    row(
        &REFUSED_429,
        0.02,
        "429 with Retry-After 1, without effect.",
        "call/<client>/<VERB>/<resource>/<name>#<n>/429",
    ),
    row(&REFUSED_500, 0.02, "500, without effect.", "call/<client>/<VERB>/<resource>/<name>#<n>/500"),
    row(&REFUSED_503, 0.02, "503, without effect.", "call/<client>/<VERB>/<resource>/<name>#<n>/503"),
    row(&REFUSED_504, 0.02, "504, without effect.", "call/<client>/<VERB>/<resource>/<name>#<n>/504"),
    row(
        &PAGE_EXPIRED,
        0.1,
        "A list that goes on with a continue token gets 410.",
        "call/<client>/LIST/<resource>#<n>/expired",
    ),
    Row {
        fault: &POD_START,
        odds: 0.1,
        usual: true,
        does: "The n-th pod of that name takes up to 20 s longer until its containers run.",
        key: "start/pod/<name>#<n>",
    },
    Row {
        fault: &POD_STOP,
        odds: 0.1,
        usual: true,
        does: "The n-th pod of that name takes up to 20 s longer to end, at most its grace period.",
        key: "stop/pod/<name>#<n>",
    },
    row(&POD_EVICTED, 0.05, "The kubelet ends the running pod within 30 s.", "evict/pod/<name>#<n>"),
    row(&NODE_SILENT, 0.02, "The kubelet renews nothing and does nothing for up to 10 min.", "silent/node/<node>#<n>"),
    row(&WATCH_DROP, 0.02, "This event is left out.", "watch/<client>/<resource>/<object>#<n>/drop"),
    row(&WATCH_DUPLICATE, 0.02, "This event comes twice.", "watch/<client>/<resource>/<object>#<n>/duplicate"),
    row(&WATCH_SWAP, 0.02, "This event comes after the next one.", "watch/<client>/<resource>/<object>#<n>/swap"),
];

const fn row(fault: &'static Fault, odds: f64, does: &'static str, key: &'static str) -> Row {
    Row { fault, odds, usual: false, does, key }
}

/// How long a delay of this kind may be, drawn with these odds.
pub(super) const fn delays(fault: &'static Fault, odds: f64, longest: Duration) -> DelaySpec {
    DelaySpec { fault, odds, min: Duration::from_millis(1), max: longest }
}

/// Which kinds a run draws, and how often. What is not enabled happens only where it is pinned.
///
/// Delayed watch events are drawn by the gates of a world and are not switched here.
///
/// ```
/// use photofinish_apiserver::sim::faults::Enabled;
/// let run = Enabled::usual().with("reply-lost")?.with_odds("watch-end", 0.5)?.without("call-delay")?;
/// assert!(run.contains("reply-lost") && !run.contains("call-delay") && !run.contains("refused-429"));
/// # Ok::<(), photofinish_apiserver::sim::faults::UnknownFault>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Enabled(BTreeMap<&'static str, f64>);

impl Default for Enabled {
    fn default() -> Enabled {
        Enabled::usual()
    }
}

/// There is no fault of that name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("fault `{name}`: unknown; there are: {}", names())]
pub struct UnknownFault {
    /// What was asked for.
    pub name: String,
}

fn names() -> String {
    TABLE.iter().map(|row| row.fault.name).collect::<Vec<_>>().join(", ")
}

impl Enabled {
    fn of(wanted: impl Fn(&Row) -> bool) -> Enabled {
        Enabled(TABLE.iter().filter(|row| wanted(row)).map(|row| (row.fault.name, row.odds)).collect())
    }

    /// Late calls, late events and slow pods: what every run draws that does not say otherwise.
    pub fn usual() -> Enabled {
        Enabled::of(|row| row.usual)
    }

    /// Nothing.
    pub fn none() -> Enabled {
        Enabled::of(|_| false)
    }

    /// Every kind. What no cluster shows is drawn only where the run's legality allows it.
    pub fn all() -> Enabled {
        Enabled::of(|_| true)
    }

    /// This kind too, with the odds of the table.
    ///
    /// # Errors
    /// If there is no such kind.
    pub fn with(self, name: &str) -> Result<Enabled, UnknownFault> {
        let odds = find(name)?.odds;
        self.with_odds(name, odds)
    }

    /// This kind too, with these odds, 0.0 to 1.0.
    ///
    /// # Errors
    /// If there is no such kind.
    pub fn with_odds(mut self, name: &str, odds: f64) -> Result<Enabled, UnknownFault> {
        self.0.insert(find(name)?.fault.name, odds.clamp(0.0, 1.0));
        Ok(self)
    }

    /// Without this kind.
    ///
    /// # Errors
    /// If there is no such kind.
    pub fn without(mut self, name: &str) -> Result<Enabled, UnknownFault> {
        self.0.remove(find(name)?.fault.name);
        Ok(self)
    }

    /// Whether this kind is drawn.
    pub fn contains(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    /// How often this kind is drawn; `None` if it is not.
    pub fn odds(&self, fault: &Fault) -> Option<f64> {
        self.0.get(fault.name).copied()
    }

    /// The names of all enabled kinds, sorted.
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        self.0.keys().copied()
    }
}

fn find(name: &str) -> Result<&'static Row, UnknownFault> {
    TABLE.iter().find(|row| row.fault.name == name).ok_or_else(|| UnknownFault { name: name.to_owned() })
}

/// The table as the page `docs/faults.md`.
pub fn markdown() -> String {
    let mut page = String::from(
        "# Faults of the API server and its neighbours\n\n\
         Made from the table in `harness/apiserver/src/sim/faults.rs`; a test compares them.\n\n\
         A fault is `always` legal if any cluster may show it, `ha` if only one with several API servers may, `never` if \
         none may: those are for experiments, and are drawn only where a run allows it. A seed draws the usual kinds, \
         and the others where a run enables them. A pin of the key (`yes`, or a delay such as `+1.4s`) makes it happen \
         whatever is enabled. `<n>` counts from 1; a client is a host of the world.\n\n\
         | fault | legal | usual | odds | what it does | key |\n|---|---|---|---|---|---|\n",
    );
    for Row { fault, odds, usual, does, key } in TABLE {
        let usual = if *usual { "yes" } else { "" };
        let _ = writeln!(page, "| {} | {} | {usual} | {odds} | {does} | `{key}` |", fault.name, fault.legality);
    }
    page.push_str("\n## What the contract says\n\n| fault | contract |\n|---|---|\n");
    for Row { fault, .. } in TABLE {
        let _ = writeln!(page, "| {} | {} |", fault.name, fault.contract);
    }
    page
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_of_the_documentation_is_this_table() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/faults.md");
        let made = markdown();
        if std::env::var_os("BLESS").is_some() {
            std::fs::write(path, &made).expect("docs/faults.md can be written");
        }
        let page = std::fs::read_to_string(path).unwrap_or_default();
        assert!(page == made, "docs/faults.md differs from the table; run this test with BLESS=1");
    }

    #[test]
    fn names_are_unique_and_keys_differ_between_kinds_of_one_point() {
        for (at, row) in TABLE.iter().enumerate() {
            for other in &TABLE[at + 1..] {
                assert!(row.fault.name != other.fault.name && row.key != other.key, "{}", row.fault.name);
            }
        }
    }

    #[test]
    fn an_unknown_name_is_told_with_the_known_ones() {
        let error = Enabled::none().with("watch-ends").expect_err("unknown");
        assert!(error.to_string().contains("watch-end,"), "{error}");
    }

    #[test]
    fn only_faults_that_nothing_allows_are_never_legal() {
        for row in TABLE {
            let allowed = !row.fault.contract.starts_with("None:");
            assert_eq!(row.fault.legality != Legality::Never, allowed, "{}", row.fault.name);
        }
    }
}
