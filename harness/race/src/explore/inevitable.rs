//! When a failure became inevitable: the run is left at its state changes, and goes on with other faults.
use photofinish_sim::choices::{Pins, parse_delay};
use photofinish_sim::source::{Fork, Source};
use photofinish_sim::trace::Entry;

use crate::pool::Job;

/// A place where a run is left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Moment {
    /// The entry after which it is left.
    pub entry: usize,
    /// From when on faults are drawn anew: nanoseconds of virtual time.
    pub from_ns: u64,
}

/// At most so many moments before the entry that broke the property: after entries that tell what happened, spread over
/// the run. The first is its start.
pub fn moments(entries: &[Entry], broke: usize, tells: impl Fn(&Entry) -> bool, most: usize) -> Vec<Moment> {
    let mut all = vec![Moment { entry: 0, from_ns: 0 }];
    for (at, e) in entries.iter().enumerate().take(broke + 1).filter(|(_, e)| tells(e) || e.kind == "choice") {
        let from_ns = e.at_ns + 1;
        match all.last_mut() {
            // What happens at one instant is one moment.
            Some(last) if last.from_ns == from_ns => last.entry = at,
            _ => all.push(Moment { entry: at, from_ns }),
        }
    }
    let most = most.max(2);
    if all.len() <= most {
        return all;
    }
    let last = all.len() - 1;
    (0..most).map(|n| all[n * last / (most - 1)].clone()).collect()
}

/// The run up to a moment, and from there on with the draws of another seed. Its script stays as it was.
pub fn fork(job: &Job, entries: &[Entry], moment: &Moment, draws: u64) -> Job {
    let stays = |e: &&Entry| {
        let value = e.field("value").unwrap_or_default();
        e.kind == "choice" && (e.at_ns < moment.from_ns || is_word(value))
    };
    let taken = entries.iter().filter(stays).filter_map(|e| Some((e.name.as_ref(), e.field("value")?)));
    let pins: Pins = taken.collect();
    let source = Source::Fork(Fork { world: job.source.seed(), draws, from_ns: moment.from_ns });
    Job { source, pins, ..job.clone() }
}

/// Neither a delay nor a fault: a word of a script.
pub(crate) fn is_word(value: &str) -> bool {
    parse_delay(value).is_none() && !matches!(value, "yes" | "no")
}

/// Where the chance of failure rises most: the index of the moment after which it is higher.
pub fn jump(chances: &[f64]) -> Option<usize> {
    let rises = (1..chances.len()).map(|at| (at, chances[at] - chances[at - 1]));
    // The earliest of equals.
    let best = rises.fold(None, |best: Option<(usize, f64)>, rise| match best {
        Some(best) if best.1 >= rise.1 => Some(best),
        _ => Some(rise),
    });
    best.filter(|(_, rise)| *rise > 0.0).map(|(at, _)| at)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(kind: &'static str, at_ns: u64) -> Entry {
        let (host, name) = ("h".into(), "n".into());
        Entry {
            id: 0,
            at_ns,
            host,
            kind: kind.into(),
            name,
            text: String::new(),
            fields: vec![],
            spans: vec![],
            cause: None,
        }
    }

    #[test]
    fn a_run_is_left_at_what_tells_before_the_violation_one_moment_an_instant() {
        let entries = [("log", 1), ("http", 2), ("log", 3), ("log", 3), ("choice", 5), ("log", 9), ("log", 10)];
        let entries = entries.map(|(kind, at)| entry(kind, at));
        let at = |most| -> Vec<(usize, u64)> {
            moments(&entries, 5, |e| e.kind == "log", most).iter().map(|m| (m.entry, m.from_ns)).collect()
        };
        assert_eq!(at(9), [(0, 0), (0, 2), (3, 4), (4, 6), (5, 10)]);
        assert_eq!(at(3), [(0, 0), (3, 4), (5, 10)], "the first and the last are always there");
    }

    #[test]
    fn the_moment_is_where_the_chance_rises_most() {
        for (chances, at) in [
            (&[0.1, 0.1, 0.2, 1.0][..], Some(3)),
            (&[0.0, 0.5, 1.0], Some(1)),
            (&[1.0, 1.0], None),
            (&[0.3], None),
            (&[], None),
        ] {
            assert_eq!(jump(chances), at, "{chances:?}");
        }
    }

    #[test]
    fn words_of_a_script_are_told_from_delays_and_faults() {
        assert!(is_word("stop.demo") && is_word("none") && !is_word("+1.4s") && !is_word("yes") && !is_word("no"));
    }
}
