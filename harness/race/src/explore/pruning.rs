//! Which alternatives of a benign run's choices need not be run, since another schedule shows the same.
//!
//! Each rule speaks of the benign run: of what happens in it while something would be late. All but [`NOT_LEGAL`] name the
//! schedule that an alternative is like ([`Pruned::like`]), so that `exhaust --audit` can run both and compare.
//!
//! | reason | the schedule that it is like |
//! |---|---|
//! | [`NOTHING_BEFORE`], [`NOTHING_BETWEEN`] | the benign one; a shorter delay |
//! | [`NOBODY_LOOKS`] | the same, of a watch event: only what its client does counts |
//! | [`SAME_READ`] | a read that is handled later, of what nobody writes meanwhile |
//! | [`NEXT_CALL`] | the answer before it, later |
//! | [`READ_HAS_NO_EFFECT`] | a read's `504` |
//! | [`TAKEN_ALIKE`] | a refusal or a break of another kind, of a client that does not tell them apart |
use std::collections::BTreeMap;

use photofinish_sim::choices::{Pins, parse_delay};
use photofinish_sim::legality::Allowed;
use photofinish_sim::trace::Entry;

use super::choices::ChoicePoint;
use super::exhaust::Plan;

/// How long what an event sets off is taken to last: alternatives are alike only if nothing happens so long after either.
const AFTERMATH_NS: u64 = 1_000_000_000;
/// How long nobody is taken to give up waiting: a time-out that is never reached is in no trace, so of what somebody waits
/// for, a longer delay is not like a shorter one, however quiet the benign run is between their ends.
const PATIENCE_NS: u64 = 1_000_000_000;
/// How soon what a client does for an event or an answer is seen: what comes later is the work of a timer.
const REACTION_NS: u64 = 2_000_000;
/// How soon after an answer a call comes that waited for nothing but that.
const NEXT_NS: u64 = 1_000_000;

/// Why an alternative is not run: nothing in the benign run happens before a delay is over.
pub const NOTHING_BEFORE: &str = "nothing happens before the delay is over";
/// Why an alternative is not run: nothing in the benign run happens between the ends of two delays.
pub const NOTHING_BETWEEN: &str = "nothing happens between this delay's end and a shorter one's";
/// Why an alternative is not run: whom the event is for does nothing while it is late, and nobody else sees it.
pub const NOBODY_LOOKS: &str = "the client of the watch does nothing while the event is late";
/// Why an alternative is not run: a read that takes effect and is answered 504 is one that has none and is answered 504.
pub const READ_HAS_NO_EFFECT: &str = "a read has no effect, so it fails as its `504` does";
/// Why an alternative is not run: what is read is the same at either moment, and so is when the answer comes.
pub const SAME_READ: &str = "nobody writes meanwhile what is read, so a late answer is as a late request";
/// Why an alternative is not run: the client makes the call as soon as it has the answer before it, and does nothing else.
pub const NEXT_CALL: &str = "its client waits for the answer before it only, so it is late as that is";
/// Why an alternative is not run: the client tells it from none of the others.
pub const TAKEN_ALIKE: &str = "its client takes `429`, `500`, `503` as `504`, and `torn` as `reset`";
/// Why an alternative is not run: it is not legal.
pub const NOT_LEGAL: &str = "no cluster of this kind does it";

/// An alternative that is not run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pruned {
    /// The choice.
    pub key: String,
    /// What it would take.
    pub value: String,
    /// Why it is not run.
    pub why: &'static str,
    /// The schedule that shows the same, with no pin for the benign one; `None` if there is none, since it is not legal.
    pub like: Option<Pins>,
}

impl Pruned {
    /// The schedule that is not run.
    pub fn pins(&self) -> Pins {
        pins(&self.key, &self.value)
    }
}

fn pins(key: &str, value: &str) -> Pins {
    let mut pins = Pins::default();
    pins.insert(key, value);
    pins
}

/// What is to be run, of the choices of a benign run and its trace. Choices that the script decides are left alone.
///
/// `alike` says of which clients of the API it is known that they take 429, 500, 503 and 504 alike, and a watch that breaks
/// within a line as one that breaks between two.
pub fn plan(
    points: &[ChoicePoint],
    entries: &[Entry],
    allowed: Allowed,
    scripted: &Pins,
    alike: &dyn Fn(&str) -> bool,
) -> Plan {
    let traffic = Traffic::of(entries);
    let open: Vec<&ChoicePoint> =
        points.iter().filter(|p| p.taken == p.default && scripted.get(&p.key).is_none()).collect();
    let calls = Calls::of(points, &traffic);
    let offered: BTreeMap<&str, &ChoicePoint> =
        open.iter().filter(|p| p.permitted(allowed)).map(|p| (p.key.as_str(), *p)).collect();
    let offers = |key: &String, value: &String| offered.get(&**key).is_some_and(|p| p.alternatives.contains(value));
    let mut plan = Plan::default();
    // What each alternative that is not run is like, as far as the rules name it: it may itself not be run.
    let mut likes: BTreeMap<(&str, &str), Option<(String, String)>> = BTreeMap::new();
    for point in open {
        let mut values: Vec<String> = Vec::new();
        // The longest delay so far that differs from those before it, and its end.
        let (mut last, mut before) = (None, point.at_ns);
        for value in &point.alternatives {
            let pruned = |why, like| Pruned { key: point.key.clone(), value: value.clone(), why, like };
            if !point.permitted(allowed) {
                plan.pruned.push(pruned(NOT_LEGAL, None));
                continue;
            }
            let delay = parse_delay(value).map(|delay| delay.as_nanos() as u64);
            let patient = |delay: &u64| last.is_none() || *delay <= PATIENCE_NS;
            let quiet = delay.filter(patient).and_then(|delay| {
                let end = point.at_ns + delay;
                match (traffic.quiet(before, end), watch_of(&point.key)) {
                    (true, _) if last.is_none() => Some(NOTHING_BEFORE),
                    (true, _) => Some(NOTHING_BETWEEN),
                    (false, Some(stream)) => traffic.unseen(stream, before, end).then_some(NOBODY_LOOKS),
                    (false, None) => None,
                }
            });
            let found = match (quiet, delay) {
                (Some(why), _) => Some((why, last.clone().map(|shorter| (point.key.clone(), shorter)))),
                (None, Some(delay)) => {
                    (last, before) = (Some(value.clone()), point.at_ns + delay);
                    calls.like(&point.key, delay).map(|(why, key)| (why, Some((key, value.clone()))))
                }
                (None, None) => {
                    let vain = reads_in_vain(&point.key).map(|key| (READ_HAS_NO_EFFECT, key));
                    let same = vain.or_else(|| taken_alike(&point.key, alike).map(|key| (TAKEN_ALIKE, key)));
                    same.map(|(why, key)| (why, Some((key, value.clone()))))
                }
            };
            match found {
                Some((why, like)) if like.as_ref().is_none_or(|(key, value)| offers(key, value)) => {
                    plan.pruned.push(pruned(why, Some(Pins::default())));
                    likes.insert((&point.key, value), like);
                }
                _ => values.push(value.clone()),
            }
        }
        if !values.is_empty() {
            plan.points.push((point.key.clone(), values));
        }
    }
    for pruned in plan.pruned.iter_mut().filter(|p| p.like.is_some()) {
        let mut like = likes.get(&(pruned.key.as_str(), pruned.value.as_str())).cloned().flatten();
        while let Some(further) = like.as_ref().and_then(|(key, value)| likes.get(&(key.as_str(), value.as_str()))) {
            like = further.clone();
        }
        pruned.like = Some(like.map_or(Pins::default(), |(key, value)| pins(&key, &value)));
    }
    plan
}

/// What a client of the API does, and what reaches it.
#[derive(Default)]
struct Client<'e> {
    /// Calls, and whatever else others can see; sorted.
    acts: Vec<u64>,
    /// Answers and events, with the stream of an event; sorted by time.
    inputs: Vec<(u64, Option<&'e str>)>,
}

/// A benign run's trace, as the rules look at it.
struct Traffic<'e> {
    entries: &'e [Entry],
    /// When somebody did something that others can see; sorted.
    times: Vec<u64>,
    clients: BTreeMap<&'e str, Client<'e>>,
}

impl<'e> Traffic<'e> {
    fn of(entries: &'e [Entry]) -> Traffic<'e> {
        let seen = || entries.iter().filter(|e| e.kind != "choice");
        let mut clients: BTreeMap<&str, Client<'_>> = BTreeMap::new();
        for e in seen() {
            if let Some(client) = e.field("client") {
                let client = clients.entry(client).or_default();
                client.acts.push(e.at_ns);
                client.inputs.push((e.at_ns, None));
            }
            if let Some((stream, client)) = e.field("stream").map(|s| (s, client_of(s))) {
                clients.entry(client).or_default().inputs.push((e.at_ns, Some(stream)));
            }
            if e.kind != "net" {
                clients.entry(&e.host).or_default().acts.push(e.at_ns);
            }
            // What another host records because of something that this client was told or did: it sent something.
            let caused = e.cause.and_then(|id| entries.get(id as usize)).filter(|cause| cause.host != e.host);
            for client in caused.into_iter().flat_map(concerned).filter(|c| *c != e.host && e.field("client").is_none())
            {
                clients.entry(client).or_default().acts.push(e.at_ns);
            }
        }
        Traffic { entries, times: seen().map(|e| e.at_ns).collect(), clients }
    }
    /// Whether nothing happens after `from` until an aftermath behind `to`.
    fn quiet(&self, from: u64, to: u64) -> bool {
        none_within(&self.times, from, to.saturating_add(AFTERMATH_NS))
    }
    /// Whether the client of a stream does nothing and hears nothing else while events of that stream come at `to` instead
    /// of from `from` on, and whether what it does in the aftermath is for what it hears then.
    fn unseen(&self, stream: &str, from: u64, to: u64) -> bool {
        let Some(Client { acts, inputs }) = self.clients.get(client_of(stream)) else { return true };
        let soon = to.saturating_add(REACTION_NS);
        let hears = |(at, of): &(u64, Option<&str>)| *at > from && *at <= soon && *of != Some(stream);
        let by_timer = |act: u64| {
            act > soon
                && act <= to.saturating_add(AFTERMATH_NS)
                && !inputs.iter().any(|(at, _)| *at > to && *at < act && act - at <= REACTION_NS)
        };
        none_within(acts, from, soon) && !inputs.iter().any(hears) && !acts.iter().any(|act| by_timer(*act))
    }
}

/// Whether none of these sorted times is after `from` and not after `to`.
fn none_within(times: &[u64], from: u64, to: u64) -> bool {
    let next = times.partition_point(|at| *at <= from);
    times.get(next).is_none_or(|at| *at > to)
}

/// The client of `<client>/<resource>`, with or without an object.
fn client_of(stream: &str) -> &str {
    stream.split('/').next().unwrap_or(stream)
}

/// Whose doing an entry is, or is for: its host, the client of a request, the client of a watch stream.
fn concerned(e: &Entry) -> impl Iterator<Item = &str> {
    [Some(&*e.host), e.field("client"), e.field("stream").map(client_of)].into_iter().flatten()
}

/// A call of a client, from its point `call/<client>/<VERB>/<resource>/<name>#<n>`. In a benign run it is answered at once.
struct Call<'p> {
    key: &'p str,
    client: &'p str,
    verb: &'p str,
    /// Without its subresource.
    resource: &'p str,
    /// Empty where there is none.
    name: &'p str,
    at_ns: u64,
}

impl<'p> Call<'p> {
    fn of(point: &'p ChoicePoint) -> Option<Call<'p>> {
        let key = point.key.as_str();
        let (parts, number) = key.strip_prefix("call/")?.rsplit_once('#')?;
        if number.contains('/') {
            return None;
        }
        let mut parts = parts.splitn(4, '/');
        let (client, verb, resource) = (parts.next()?, parts.next()?, parts.next().unwrap_or(""));
        let resource = resource.split('.').next().unwrap_or("");
        Some(Call { key, client, verb, resource, name: parts.next().unwrap_or(""), at_ns: point.at_ns })
    }
    fn reads(&self) -> bool {
        matches!(self.verb, "GET" | "LIST")
    }
}

/// The calls of a benign run.
struct Calls<'p> {
    by_key: BTreeMap<&'p str, Call<'p>>,
    /// By resource: when it was written, and the object; no name: any object.
    writes: BTreeMap<&'p str, Vec<(u64, &'p str)>>,
    /// Of a call that waited for nothing but the answer before it: the key of that one.
    after: BTreeMap<&'p str, &'p str>,
}

impl<'p> Calls<'p> {
    fn of(points: &'p [ChoicePoint], traffic: &Traffic<'p>) -> Calls<'p> {
        let by_key: BTreeMap<&str, Call<'p>> =
            points.iter().filter_map(Call::of).map(|call| (call.key, call)).collect();
        let mut writes: BTreeMap<&str, Vec<(u64, &str)>> = BTreeMap::new();
        for call in by_key.values().filter(|call| !call.reads() && call.verb != "WATCH") {
            writes.entry(call.resource).or_default().push((call.at_ns, call.name));
        }
        // Events of a change that no call made: of what, nobody says.
        for e in traffic.entries.iter().filter(|e| e.kind == "watch" && e.name != "BOOKMARK") {
            let Some(resource) = e.field("stream").and_then(|s| s.split('/').nth(1)) else { continue };
            let known = writes.entry(resource).or_default();
            if !known.iter().any(|(at, _)| *at == e.at_ns) {
                known.push((e.at_ns, ""));
            }
        }
        let mut in_order: BTreeMap<&str, Vec<&Call<'p>>> = BTreeMap::new();
        for call in by_key.values() {
            in_order.entry(call.client).or_default().push(call);
        }
        let mut after = BTreeMap::new();
        for (client, calls) in &mut in_order {
            calls.sort_by_key(|call| call.at_ns);
            for (i, pair) in calls.windows(2).enumerate() {
                let (one, next) = (pair[0], pair[1]);
                let alone = (i == 0 || calls[i - 1].at_ns + NEXT_NS < next.at_ns)
                    && calls.get(i + 2).is_none_or(|third| third.at_ns > one.at_ns + NEXT_NS)
                    && one.verb != "WATCH";
                if alone && traffic.only_a_call(client, one.at_ns, next.at_ns) {
                    after.insert(next.key, one.key);
                }
            }
        }
        Calls { by_key, writes, after }
    }
    /// The point where a delay as long is like a delay of this one.
    fn like(&self, key: &str, delay_ns: u64) -> Option<(&'static str, String)> {
        let Some(call) = key.strip_suffix("/reply").and_then(|call| self.by_key.get(call)) else {
            return self.after.get(key).map(|before| (NEXT_CALL, format!("{before}/reply")));
        };
        let until = call.at_ns.saturating_add(delay_ns).saturating_add(REACTION_NS);
        let touched = |(at, name): &(u64, &str)| {
            *at > call.at_ns && *at <= until && (name.is_empty() || call.name.is_empty() || *name == call.name)
        };
        let same = call.reads() && !self.writes.get(call.resource).into_iter().flatten().any(touched);
        same.then(|| (SAME_READ, call.key.to_owned()))
    }
}

impl Traffic<'_> {
    /// Whether all that a client does between an answer and its next call is to make the call, and whether nothing else
    /// makes it do so.
    fn only_a_call(&self, client: &str, answer: u64, call: u64) -> bool {
        if call <= answer || call - answer > NEXT_NS {
            return false;
        }
        let Some(Client { acts, inputs }) = self.clients.get(client) else { return false };
        let hears = |(at, of): &(u64, Option<&str>)| of.is_some() && (answer..=call).contains(at);
        let does = acts.iter().any(|at| *at > answer && *at < call || *at > call && *at <= call + NEXT_NS / 10);
        // Others than the server that answers may have told it something.
        let from = self.entries.partition_point(|e| e.at_ns < answer);
        let to = self.entries.partition_point(|e| e.at_ns <= call);
        let server = |e: &&Entry| e.kind == "http" && e.field("client") == Some(client);
        let Some(server) = self.entries[from..to].iter().find(server).map(|e| &e.host) else { return false };
        let others = |e: &Entry| e.host != *server && e.host != "world" && e.host != client;
        !does && !inputs.iter().any(hears) && !self.entries[from..to].iter().any(others)
    }
}

/// The stream of `watch/<client>/<resource>/<object>#<n>`: of the delay of an event, not of the end of a stream.
fn watch_of(key: &str) -> Option<&str> {
    let event = key.strip_prefix("watch/")?;
    let (stream, object) = event.rsplit_once('/')?;
    // A watch of one object has that in its name as well; of its stream, events are told in full.
    object.contains('#').then_some(stream)
}

/// For `call/<client>/GET/.../timed-out`: the key of the same call's `504`.
fn reads_in_vain(key: &str) -> Option<String> {
    let call = key.strip_suffix("/timed-out")?;
    let verb = call.strip_prefix("call/")?.split('/').nth(1)?;
    matches!(verb.split('#').next(), Some("GET" | "LIST" | "WATCH")).then(|| format!("{call}/504"))
}

/// The key that stands for this one and those like it.
fn taken_alike(key: &str, alike: &dyn Fn(&str) -> bool) -> Option<String> {
    let (point, what) = key.rsplit_once('/')?;
    let (kind, rest) = point.split_once('/')?;
    let stands = match (kind, what) {
        ("call", "429" | "500" | "503") => "504",
        ("watch", "torn") => "reset",
        _ => return None,
    };
    (point.contains('#') && alike(client_of(rest))).then(|| format!("{point}/{stands}"))
}

#[cfg(test)]
#[path = "pruning_tests.rs"]
mod tests;
