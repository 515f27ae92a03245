//! The work queue: each key is worked on by one pass at a time, changes during a pass lead to one more, and failures
//! are tried again after 5 ms, doubled up to 1 000 s.
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use tokio::time::Instant;

const BACKOFF_FIRST: Duration = Duration::from_millis(5);
const BACKOFF_MAX: Duration = Duration::from_secs(1000);

/// Keys that wait for a pass.
#[derive(Debug)]
pub struct Queue<K> {
    ready: VecDeque<K>,
    dirty: BTreeSet<K>,
    running: BTreeSet<K>,
    later: BTreeMap<K, Instant>,
    failures: BTreeMap<K, u32>,
}

impl<K> Default for Queue<K> {
    fn default() -> Self {
        Queue {
            ready: VecDeque::new(),
            dirty: BTreeSet::new(),
            running: BTreeSet::new(),
            later: BTreeMap::new(),
            failures: BTreeMap::new(),
        }
    }
}

impl<K: Ord + Clone> Queue<K> {
    /// A pass is wanted now, or after the one that runs.
    pub fn add(&mut self, key: K) {
        if self.dirty.insert(key.clone()) && !self.running.contains(&key) {
            self.ready.push_back(key);
        }
    }
    /// A pass is wanted at that time; the earliest wish counts.
    pub fn add_at(&mut self, key: K, at: Instant) {
        let due = self.later.entry(key).or_insert(at);
        *due = at.min(*due);
    }
    /// The next key to work on, marked as running until [`Queue::succeeded`] or [`Queue::failed`].
    pub fn pop(&mut self, now: Instant) -> Option<K> {
        let due: Vec<K> = self.later.iter().filter(|(_, at)| **at <= now).map(|(key, _)| key.clone()).collect();
        for key in due {
            self.later.remove(&key);
            self.add(key);
        }
        let key = self.ready.pop_front()?;
        self.dirty.remove(&key);
        self.running.insert(key.clone());
        Some(key)
    }
    /// When the next delayed key is due.
    pub fn next_due(&self) -> Option<Instant> {
        self.later.values().min().copied()
    }
    /// How many keys are being worked on.
    pub fn running(&self) -> usize {
        self.running.len()
    }
    /// The pass of this key went through.
    pub fn succeeded(&mut self, key: &K) {
        self.failures.remove(key);
        self.done(key);
    }
    /// The pass of this key failed; it is tried again.
    pub fn failed(&mut self, key: &K, now: Instant) {
        let failures = self.failures.entry(key.clone()).or_default();
        let delay = BACKOFF_FIRST.saturating_mul(1 << (*failures).min(18)).min(BACKOFF_MAX);
        *failures += 1;
        self.add_at(key.clone(), now + delay);
        self.done(key);
    }
    fn done(&mut self, key: &K) {
        self.running.remove(key);
        if self.dirty.contains(key) {
            self.ready.push_back(key.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_never_worked_on_twice_at_once_and_changes_meanwhile_lead_to_one_more_pass() {
        let now = Instant::now();
        let mut queue = Queue::default();
        queue.add("a");
        queue.add("a");
        queue.add("b");
        assert_eq!((queue.pop(now), queue.pop(now), queue.pop(now)), (Some("a"), Some("b"), None));
        queue.add("a");
        queue.add("a");
        assert_eq!(queue.pop(now), None, "a is running");
        queue.succeeded(&"a");
        assert_eq!((queue.pop(now), queue.pop(now)), (Some("a"), None));
        assert_eq!(queue.running(), 2);
    }
    #[test]
    fn failures_wait_5_10_20_ms_and_so_on_up_to_1000_s_and_a_success_starts_over() {
        let now = Instant::now();
        let mut queue = Queue::default();
        let mut wait = || {
            queue.add("a");
            queue.pop(now).expect("it was added");
            queue.failed(&"a", now);
            let due = queue.next_due().expect("a retry is due") - now;
            queue.later.clear();
            due
        };
        assert_eq!([wait(), wait(), wait()].map(|d| d.as_millis()), [5, 10, 20]);
        let last = (0..30).map(|_| wait()).last();
        assert_eq!(last, Some(Duration::from_secs(1000)));
        queue.add("a");
        queue.pop(now).expect("it was added");
        queue.succeeded(&"a");
        queue.add("a");
        queue.pop(now).expect("it was added");
        queue.failed(&"a", now);
        assert_eq!(queue.next_due(), Some(now + BACKOFF_FIRST));
    }
    #[test]
    fn of_two_delays_the_earlier_one_counts() {
        let now = Instant::now();
        let mut queue = Queue::default();
        queue.add_at("a", now + Duration::from_secs(2));
        queue.add_at("a", now + Duration::from_secs(1));
        queue.add_at("a", now + Duration::from_secs(3));
        assert_eq!(queue.pop(now), None);
        assert_eq!(queue.pop(now + Duration::from_secs(1)), Some("a"));
        assert_eq!(queue.next_due(), None);
    }
}
