//! Every alternative of every choice, K at a time: the list of schedules.
use std::collections::BTreeMap;
use std::sync::Arc;

use indexmap::IndexSet;
use photofinish_sim::choices::Pins;
use photofinish_sim::legality::Allowed;

use super::choices::ChoicePoint;
use super::pruning::{self, Pruned};
use crate::execute::BEGINNING;
use crate::pool::{Job, Run};
use crate::system::System;

/// What is to be run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// Choices that are left with an alternative, each with the values to run.
    pub points: Vec<(String, Vec<String>)>,
    /// Alternatives that are not run.
    pub pruned: Vec<Pruned>,
}

impl Plan {
    /// Of a benign run that [told its choices](Job::learn) and its trace.
    pub fn of(system: &dyn System, learnt: &Run, allowed: Allowed) -> Plan {
        let alike = |client: &str| system.takes_failures_alike(client);
        pruning::plan(&learnt.points, &learnt.entries, allowed, &learnt.job.scenario.pins, &alike)
    }
    /// How many alternatives are not run, by reason.
    pub fn pruned_why(&self) -> BTreeMap<&'static str, u64> {
        let mut why = BTreeMap::new();
        for pruned in &self.pruned {
            *why.entry(pruned.why).or_default() += 1;
        }
        why
    }
    /// Up to `n` of the alternatives that are not run though they are legal, evenly spread over each reason.
    pub fn sample(&self, n: usize) -> Vec<&Pruned> {
        let mut by_why: BTreeMap<&str, Vec<&Pruned>> = BTreeMap::new();
        for pruned in self.pruned.iter().filter(|p| p.like.is_some()) {
            by_why.entry(pruned.why).or_default().push(pruned);
        }
        let all: usize = by_why.values().map(Vec::len).sum();
        if n >= all {
            return by_why.into_values().flatten().collect();
        }
        let mut left = n;
        let mut sample = Vec::new();
        // The smallest reasons first: what they do not use is left for the others.
        let mut reasons: Vec<Vec<&Pruned>> = by_why.into_values().collect();
        reasons.sort_by_key(Vec::len);
        let count = reasons.len();
        for (i, of_reason) in reasons.into_iter().enumerate() {
            let share = (left / (count - i)).min(of_reason.len());
            left -= share;
            sample.extend((0..share).map(|k| of_reason[k * of_reason.len() / share]));
        }
        sample
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

/// How many schedules, one after the other, share a beginning: enough that it costs little beside them.
const TOGETHER: usize = 64;

/// The runs of these schedules: forked from the benign run, whose choices are `points`, where the first of them leaves
/// it.
pub fn jobs(benign: &Job, points: &[ChoicePoint], schedules: Vec<Pins>) -> impl Iterator<Item = Job> {
    let of_script = points.iter().filter(|point| u128::from(point.at_ns) > BEGINNING.as_nanos());
    let until = benign_until(&schedules, of_script.map(|point| &point.key));
    schedules.into_iter().zip(until).map(|(pins, benign_until)| Job { pins, benign_until, ..benign.clone() })
}

/// For each schedule the choice until which it is as the benign run: the first that any of its neighbours pins, of
/// `choices` in the order in which they are asked. None before the first of these, and for the benign run itself.
fn benign_until(schedules: &[Pins], choices: impl IntoIterator<Item = impl AsRef<str>>) -> Vec<Option<Arc<str>>> {
    let choices: IndexSet<Arc<str>> = choices.into_iter().map(|key| Arc::from(key.as_ref())).collect();
    let first = |pins: &Pins| pins.iter().map(|(key, _)| choices.get_index_of(key)).min().flatten();
    let of_neighbours = |together: &[Pins]| {
        let until = together.iter().filter_map(first).min().map(|index| choices[index].clone());
        let may_wait = |pins: &Pins| first(pins).and_then(|_| until.clone());
        together.iter().map(may_wait).collect::<Vec<_>>()
    };
    schedules.chunks(TOGETHER).flat_map(of_neighbours).collect()
}

/// XXH3-128 over the schedules, a line each: 32 hexadecimal digits. Equal hashes, equal lists.
pub fn list_hash(schedules: &[Pins]) -> String {
    let lines: String = schedules.iter().map(|pins| format!("{pins}\n")).collect();
    format!("{:032x}", xxhash_rust::xxh3::xxh3_128(lines.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan() -> Plan {
        let point = |key: &str, values: &[&str]| (key.to_owned(), values.iter().map(|v| (*v).to_owned()).collect());
        Plan { points: vec![point("a", &["1", "2"]), point("b", &["1"]), point("c", &["1", "2", "3"])], pruned: vec![] }
    }

    #[test]
    fn schedules_are_counted_before_they_are_made() {
        let plan = plan();
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

    #[test]
    fn neighbours_share_what_comes_before_the_first_choice_that_one_of_them_pins() {
        let schedules = |keys: &[&str]| keys.iter().map(|key| key.parse().expect("pins")).collect::<Vec<Pins>>();
        let until = |keys: &[&str]| {
            let found = benign_until(&schedules(keys), ["b", "c", "d"]);
            found.iter().map(|key| key.as_deref().unwrap_or("-").to_owned()).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(until(&["", "c=1", "b=1", "d=1"]), "- b b b");
        assert_eq!(until(&["d=1", "c=1,d=1"]), "c c");
        // `a` is no choice that may be waited for.
        assert_eq!(until(&["a=1", "c=1"]), "- c");
        assert_eq!(until(&["c=1", "a=1,b=1", "d=1"]), "c - c");
        let many: Vec<&str> = [["b=1"; TOGETHER], ["d=1"; TOGETHER]].concat();
        assert_eq!(until(&many), [["b"; TOGETHER], ["d"; TOGETHER]].concat().join(" "));
    }

    #[test]
    fn a_sample_has_each_reason_and_what_is_not_legal_is_like_nothing() {
        let pruned = |why: &'static str, n: usize, legal: bool| {
            let like = legal.then(Pins::default);
            (0..n).map(move |i| Pruned { key: format!("{why}{i}"), value: "yes".into(), why, like: like.clone() })
        };
        let all = pruned("many", 90, true).chain(pruned("few", 2, true)).chain(pruned("no", 5, false));
        let plan = Plan { pruned: all.collect(), ..plan() };
        assert_eq!(plan.pruned_why(), [("few", 2), ("many", 90), ("no", 5)].into());
        for (n, expected) in [(0, [0, 0]), (1, [0, 1]), (4, [2, 2]), (10, [2, 8]), (92, [2, 90]), (1000, [2, 90])] {
            let sample = plan.sample(n);
            let of = |why: &str| sample.iter().filter(|p| p.why == why).count();
            assert_eq!([of("few"), of("many")], expected, "{n}");
            let keys: std::collections::BTreeSet<&str> = sample.iter().map(|p| p.key.as_str()).collect();
            assert_eq!(keys.len(), sample.len(), "none twice");
        }
    }
}
