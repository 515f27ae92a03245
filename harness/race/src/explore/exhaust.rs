//! Every alternative of every choice, K at a time, and what need not be run.
use std::collections::{BTreeMap, BTreeSet};

use photofinish_sim::choices::{Pins, parse_delay};
use photofinish_sim::legality::Allowed;
use photofinish_sim::trace::Entry;

use crate::explore::choices::ChoicePoint;

/// How long what an event sets off is taken to last: alternatives are alike only if nothing happens so long after either.
const AFTERMATH_NS: u64 = 1_000_000_000;

/// Why an alternative is not run: nothing in the benign run happens before a delay is over.
pub const NOTHING_BEFORE: &str = "nothing happens before the delay is over";
/// Why an alternative is not run: nothing in the benign run happens between the ends of two delays.
pub const NOTHING_BETWEEN: &str = "nothing happens between this delay's end and a shorter one's";
/// Why an alternative is not run: whom the event is for does nothing while it is late, and nobody else sees it.
pub const NOBODY_LOOKS: &str = "the client of the watch does nothing until the event is there";
/// Why an alternative is not run: a read that takes effect and is answered 504 is one that has none and is answered 504.
pub const READ_HAS_NO_EFFECT: &str = "a read has no effect, so it fails as its `504` does, which is run";
/// Why an alternative is not run: it is not legal.
pub const NOT_LEGAL: &str = "no cluster of this kind does it";

/// What is to be run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// Choices that are left with an alternative, each with the values to run.
    pub points: Vec<(String, Vec<String>)>,
    /// Alternatives that are not run, by reason.
    pub pruned: BTreeMap<&'static str, u64>,
}

impl Plan {
    /// Of the choices of a benign run and its trace. Choices that the script decides are left alone.
    pub fn new(points: &[ChoicePoint], entries: &[Entry], allowed: Allowed, scripted: &Pins) -> Plan {
        // When somebody did something that others can see.
        let times: Vec<u64> = entries.iter().filter(|e| e.kind != "choice").map(|e| e.at_ns).collect();
        let mut of_clients: BTreeMap<&str, Vec<u64>> = BTreeMap::new();
        for (client, e) in entries.iter().filter(|e| e.kind != "choice").flat_map(|e| clients(e).map(move |c| (c, e))) {
            of_clients.entry(client).or_default().push(e.at_ns);
        }
        let quiet = |times: &[u64], from: u64, to: u64| {
            let next = times.partition_point(|at| *at <= from);
            times.get(next).is_none_or(|at| *at > to.saturating_add(AFTERMATH_NS))
        };
        let taken: BTreeSet<&str> = points.iter().map(|p| p.key.as_str()).collect();
        let mut plan = Plan::default();
        for point in points.iter().filter(|p| p.taken == p.default && scripted.get(&p.key).is_none()) {
            if !point.permitted(allowed) {
                *plan.pruned.entry(NOT_LEGAL).or_default() += point.alternatives.len() as u64;
                continue;
            }
            if reads_in_vain(&point.key).is_some_and(|same| taken.contains(&*same)) {
                *plan.pruned.entry(READ_HAS_NO_EFFECT).or_default() += point.alternatives.len() as u64;
                continue;
            }
            // What is late on a watch, only its client can see.
            let watching = watch_of(&point.key).and_then(|client| of_clients.get(client));
            let mut values: Vec<String> = Vec::new();
            let mut before = point.at_ns;
            for value in &point.alternatives {
                if let Some(delay) = parse_delay(value) {
                    let end = point.at_ns + delay.as_nanos() as u64;
                    let unseen = watching.is_some_and(|times| quiet(times, before, end));
                    if unseen || quiet(&times, before, end) {
                        let why = match (values.is_empty(), unseen) {
                            (true, true) => NOBODY_LOOKS,
                            (true, false) => NOTHING_BEFORE,
                            _ => NOTHING_BETWEEN,
                        };
                        *plan.pruned.entry(why).or_default() += 1;
                        continue;
                    }
                    before = end;
                }
                values.push(value.clone());
            }
            if !values.is_empty() {
                plan.points.push((point.key.clone(), values));
            }
        }
        plan
    }
    /// Alternatives that are not run.
    pub fn pruned(&self) -> u64 {
        self.pruned.values().sum()
    }
    /// How many schedules there are with at most `faults` alternatives at once, the benign one included.
    pub fn count(&self, faults: usize) -> u128 {
        // The coefficients of the product of (1 + n x) over all choices with n alternatives.
        let mut ways = vec![0u128; faults + 1];
        ways[0] = 1;
        for (_, values) in &self.points {
            for k in (1..=faults).rev() {
                ways[k] = ways[k].saturating_add(ways[k - 1].saturating_mul(values.len() as u128));
            }
        }
        ways.into_iter().fold(0, u128::saturating_add)
    }
    /// All of them: fewer faults first, then in the order of the choices.
    pub fn schedules(&self, faults: usize) -> Vec<Pins> {
        let mut all = vec![Pins::default()];
        // Each with the first choice that it may add.
        let mut last = vec![(Pins::default(), 0)];
        for _ in 0..faults.min(self.points.len()) {
            let mut next = Vec::new();
            for (pins, from) in &last {
                for (at, (key, values)) in self.points.iter().enumerate().skip(*from) {
                    for value in values {
                        let mut more: Pins = pins.clone();
                        more.insert(key.as_str(), value.as_str());
                        next.push((more, at + 1));
                    }
                }
            }
            all.extend(next.iter().map(|(pins, _)| pins.clone()));
            last = next;
        }
        all
    }
}

/// Whose doing an entry is, or is for: its host, the client of a request, the client of a watch stream.
fn clients(e: &Entry) -> impl Iterator<Item = &str> {
    let of_stream = e.field("stream").map(|stream| stream.split('/').next().unwrap_or(stream));
    [Some(&*e.host), e.field("client"), of_stream].into_iter().flatten()
}

/// The client of `watch/<client>/<resource>/<object>#<n>`: of the delay of an event, not of the end of a stream.
fn watch_of(key: &str) -> Option<&str> {
    let client = key.strip_prefix("watch/")?.split('/').next()?;
    key.rsplit('/').next().is_some_and(|last| last.contains('#')).then_some(client)
}

/// For `call/<client>/GET/.../timed-out`: the key of the same call's `504`.
fn reads_in_vain(key: &str) -> Option<String> {
    let call = key.strip_suffix("/timed-out")?;
    let verb = call.strip_prefix("call/")?.split('/').nth(1)?;
    matches!(verb.split('#').next(), Some("GET" | "LIST" | "WATCH")).then(|| format!("{call}/504"))
}

/// XXH3-128 over the schedules, a line each: 32 hexadecimal digits. Equal hashes, equal lists.
pub fn list_hash(schedules: &[Pins]) -> String {
    let lines: String = schedules.iter().map(|pins| format!("{pins}\n")).collect();
    format!("{:032x}", xxhash_rust::xxh3::xxh3_128(lines.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(key: &str, at_ms: u64, legality: &str, alternatives: &[&str]) -> ChoicePoint {
        let text = |t: &str| t.to_owned();
        ChoicePoint {
            key: text(key),
            default: text("d"),
            taken: text("d"),
            alternatives: alternatives.iter().map(|a| text(a)).collect(),
            fault: None,
            legality: text(legality),
            contract: String::new(),
            at_ns: at_ms * 1_000_000,
        }
    }
    fn entries(at_ms: &[u64]) -> Vec<Entry> {
        let entry = |at: &u64| Entry {
            id: 0,
            at_ns: at * 1_000_000,
            host: "h".into(),
            kind: "log".into(),
            name: "n".into(),
            text: String::new(),
            fields: vec![],
            spans: vec![],
            cause: None,
        };
        at_ms.iter().map(entry).collect()
    }
    fn plan(points: &[ChoicePoint], at_ms: &[u64]) -> Plan {
        Plan::new(points, &entries(at_ms), Allowed::default(), &"s=yes".parse().expect("pins"))
    }

    #[test]
    fn delays_that_nothing_tells_apart_are_run_once() {
        let delays = ["+1ms", "+100ms", "+10s"];
        for (at, times, left) in [
            (0, &[][..], &[][..]),
            (0, &[0, 50], &["+1ms", "+100ms"]),
            (0, &[50, 60_000], &["+1ms", "+100ms"]),
            (0, &[3_000], &["+10s"]),
            (5_000, &[0, 50], &[]),
        ] {
            let plan = plan(&[point("k", at, "always", &delays)], times);
            let values: Vec<&str> = plan.points.iter().flat_map(|(_, v)| v.iter().map(String::as_str)).collect();
            assert_eq!(values, left, "{times:?}");
            assert_eq!(plan.pruned() as usize + values.len(), 3);
        }
    }

    #[test]
    fn a_late_event_of_a_watch_whose_client_is_idle_is_not_run() {
        let delays = ["+1ms", "+100ms", "+10s"];
        let points =
            [point("watch/gc/pods/a#1", 0, "always", &delays), point("watch/driver/pods/a#1", 0, "always", &delays)];
        let of = |client: &'static str, at_ms: u64| {
            let mut entry = entries(&[at_ms]).remove(0);
            entry.fields.push(("client".into(), client.to_owned()));
            entry
        };
        // The driver asks something at 50 ms and 5 s; gc does nothing until 3 s.
        let trace = [of("driver", 50), of("gc", 3_000), of("driver", 5_000)];
        let plan = Plan::new(&points, &trace, Allowed::default(), &Pins::default());
        let left: Vec<(&str, usize)> = plan.points.iter().map(|(key, values)| (key.as_str(), values.len())).collect();
        assert_eq!(left, [("watch/gc/pods/a#1", 1), ("watch/driver/pods/a#1", 3)]);
        assert_eq!(plan.pruned, [(NOBODY_LOOKS, 2)].into());
    }

    #[test]
    fn a_read_without_an_answer_in_time_is_run_once() {
        for (keys, pruned) in [
            (&["call/gc/GET/pods/a#1/504", "call/gc/GET/pods/a#1/timed-out"][..], 1),
            (&["call/gc/LIST/pods#1/504", "call/gc/LIST/pods#1/timed-out"], 1),
            (&["call/gc/GET/pods/a#2/504", "call/gc/GET/pods/a#1/timed-out"], 0),
            (&["call/gc/PATCH/pods/a#1/504", "call/gc/PATCH/pods/a#1/timed-out"], 0),
        ] {
            let points: Vec<_> = keys.iter().map(|key| point(key, 0, "always", &["yes"])).collect();
            let plan = plan(&points, &[]);
            assert_eq!((plan.points.len(), plan.pruned()), (2 - pruned, pruned as u64), "{keys:?}");
        }
    }

    #[test]
    fn what_is_not_legal_or_decided_by_the_script_is_not_run() {
        let points = [
            point("a", 0, "always", &["yes"]),
            point("b", 0, "ha", &["yes"]),
            point("c", 0, "never", &["yes", "more"]),
            point("s", 0, "always", &["yes"]),
            ChoicePoint { taken: "x".into(), ..point("t", 0, "always", &["yes"]) },
        ];
        let plan = plan(&points, &[]);
        assert_eq!(plan.points, [("a".to_owned(), vec!["yes".to_owned()])]);
        assert_eq!(plan.pruned, [(NOT_LEGAL, 3)].into());
    }

    #[test]
    fn schedules_are_counted_before_they_are_made() {
        let points = [
            point("a", 0, "always", &["1", "2"]),
            point("b", 0, "always", &["1"]),
            point("c", 0, "always", &["1", "2", "3"]),
        ];
        let plan = plan(&points, &[]);
        for (faults, count) in [(0, 1), (1, 7), (2, 18), (3, 24), (4, 24)] {
            let schedules = plan.schedules(faults);
            assert_eq!((plan.count(faults), schedules.len()), (count, count as usize), "{faults}");
            let lines: std::collections::BTreeSet<String> = schedules.iter().map(Pins::to_string).collect();
            assert_eq!(lines.len(), schedules.len(), "no schedule twice");
            assert!(schedules.iter().all(|pins| pins.len() <= faults));
        }
        assert_eq!(
            plan.schedules(2)[..8].iter().map(Pins::to_string).collect::<Vec<_>>().join(" "),
            " a=1 a=2 b=1 c=1 c=2 c=3 a=1,b=1"
        );
        assert_ne!(list_hash(&plan.schedules(1)), list_hash(&plan.schedules(2)));
    }
}
