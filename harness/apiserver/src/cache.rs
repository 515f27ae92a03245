//! One server's watch caches: how far it has come in the shared history.
//!
//! A server learns of each change of a type by a watch of its own on the storage. What it has learned it serves:
//! watches, lists and reads that are content with any revision. Reads that must be consistent go past the cache.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::history::{History, Table};
use crate::hooks::Hooks;

/// How long watches that are open when a server is told to stop stay open, silent.
pub(crate) const FAREWELL: Duration = Duration::from_secs(60);

/// Where a server is in its life. Watches see it change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Life {
    /// Counts the starts.
    pub(crate) number: u64,
    pub(crate) stage: Stage,
    /// Counts what else may make a waiting watch look again.
    stirred: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    Serving,
    /// Told to stop: open watches are silent until then, and everybody else finds nobody.
    Stopping(Instant),
    /// Killed.
    Dead,
}

/// The watch caches of one server.
pub(crate) struct Caches {
    name: String,
    hooks: Arc<dyn Hooks>,
    /// Whether it can be behind at all; if not, nobody need look.
    behind: AtomicBool,
    state: Mutex<State>,
    life: tokio::sync::watch::Sender<Life>,
}

impl std::fmt::Debug for Caches {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Caches").field("name", &self.name).field("life", &*self.life.borrow()).finish_non_exhaustive()
    }
}

#[derive(Debug, Default)]
struct State {
    /// Every change arrives so much later.
    lag: Duration,
    /// Nothing arrives.
    held: bool,
    /// Revision and time of the start; none for a server that was there from the beginning.
    started: Option<(u64, Instant)>,
    lanes: Vec<Lane>,
}

/// The cache of one type.
#[derive(Clone, Debug, Default)]
struct Lane {
    epoch: u64,
    /// The cache was filled at this revision.
    start: u64,
    /// It serves from then on.
    ready: Option<Instant>,
    /// Up to here changes have arrived.
    position: u64,
    /// Up to here changes are in `due`, or have arrived.
    observed: u64,
    due: VecDeque<(u64, Instant)>,
    /// A revision that storage has confirmed to be complete here, and when.
    progress: u64,
    confirmed: Option<Instant>,
}

/// How often storage tells a cache how far it has come, while nothing happens.
const PROGRESS: Duration = Duration::from_secs(5);

/// What a server has of a type at a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    /// Changes up to this revision.
    pub(crate) upto: u64,
    /// When the next change arrives, if one is on its way.
    pub(crate) next: Option<Instant>,
}

impl Caches {
    pub(crate) fn new(name: &str, hooks: Arc<dyn Hooks>) -> Caches {
        let life = Life { number: 0, stage: Stage::Serving, stirred: 0 };
        Caches {
            name: name.to_owned(),
            behind: AtomicBool::new(false),
            hooks,
            state: Mutex::default(),
            life: tokio::sync::watch::Sender::new(life),
        }
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn life(&self) -> tokio::sync::watch::Receiver<Life> {
        self.life.subscribe()
    }

    /// Up to where the server has the changes of a type.
    pub(crate) fn seen(&self, history: &History, table: usize) -> Seen {
        if !self.behind.load(Ordering::Relaxed) {
            if !self.hooks.caches_lag() {
                return Seen { upto: u64::MAX, next: None };
            }
            self.fall_behind(history);
        }
        let mut state = self.state();
        let State { lag, held, .. } = *state;
        let table_ = &history.tables[table];
        let lane = self.lane(&mut state, table, table_);
        self.observe(lane, table_, lag);
        if held {
            return Seen { upto: lane.position, next: None };
        }
        lane.arrive(Instant::now());
        Seen { upto: lane.position, next: lane.due.front().map(|(_, at)| *at) }
    }

    /// Asks for the delay of each change that was not seen yet.
    fn observe(&self, lane: &mut Lane, table: &Table, lag: Duration) {
        for change in table.since(lane.observed) {
            let extra = self.hooks.cache_delay(&self.name, &table.resource.plural, change.name());
            let last = lane.due.back().map_or(change.at, |(_, at)| *at);
            // Changes arrive in their order.
            lane.due.push_back((change.revision, last.max(change.at + lag + extra)));
            lane.observed = change.revision;
        }
    }

    /// The oldest revision from which a watch of this type can start here.
    pub(crate) fn window(&self, history: &mut History, table: usize) -> u64 {
        let outdated = history.tables[table].outdated(Instant::now());
        let started = self.lane(&mut self.state(), table, &history.tables[table]).start;
        history.window().max(outdated).max(started)
    }

    /// Whether the cache of a type is filled.
    pub(crate) fn ready(&self, history: &History, table: usize) -> bool {
        let mut state = self.state();
        let until = self.lane(&mut state, table, &history.tables[table]).ready;
        until.is_none_or(|until| Instant::now() >= until)
    }

    /// The revision that a read from the cache shows, where the cache has changes up to `upto`.
    pub(crate) fn revision(&self, history: &History, table: usize, upto: u64) -> u64 {
        let t = &history.tables[table];
        let mut state = self.state();
        let lane = self.lane(&mut state, table, t);
        let now = Instant::now();
        if upto >= t.latest() && lane.confirmed.is_none_or(|at| now - at >= PROGRESS) {
            lane.confirm(history.revision(), now);
        }
        // Nobody sees revision 0.
        let known = if upto < t.latest() { upto } else { t.latest().max(lane.progress) };
        known.max(lane.start).max(1)
    }

    /// A consistent read makes storage confirm how far the cache has come.
    pub(crate) fn confirm(&self, history: &History, table: usize) {
        let mut state = self.state();
        self.lane(&mut state, table, &history.tables[table]).confirm(history.revision(), Instant::now());
    }

    /// Whether storage can be passed over for an exact read: the cache has a snapshot of that revision.
    pub(crate) fn holds(&self, history: &History, table: usize, revision: u64) -> bool {
        let start = self.lane(&mut self.state(), table, &history.tables[table]).start;
        revision >= start.max(history.told()).max(1)
    }

    /// Every change arrives so much later from now on.
    pub(crate) fn set_lag(&self, history: &History, lag: Duration) {
        self.fall_behind(history);
        self.state().lag = lag;
    }

    /// No change arrives until [`Caches::go_on`].
    pub(crate) fn hold(&self, history: &History) {
        self.fall_behind(history);
        self.state().held = true;
    }

    pub(crate) fn go_on(&self) {
        self.state().held = false;
        self.stir();
    }

    /// From now on the position counts. Up to now everything has arrived, unless it counted before.
    fn fall_behind(&self, history: &History) {
        if self.behind.swap(true, Ordering::Relaxed) {
            return;
        }
        let mut state = self.state();
        for (at, table) in history.tables.iter().enumerate() {
            let lane = self.lane(&mut state, at, table);
            lane.position = history.revision();
            lane.observed = lane.position;
        }
    }

    /// The process ends: at once, or told so and with time for farewells.
    pub(crate) fn stop(&self, stage: Stage) {
        self.life.send_modify(|life| life.stage = stage);
    }

    /// A new process: empty caches, that are filled from the present.
    pub(crate) fn start(&self, history: &mut History) {
        let start = history.tick();
        let mut state = self.state();
        state.started = Some((start, Instant::now()));
        state.held = false;
        state.lanes.clear();
        drop(state);
        self.life.send_modify(|life| {
            life.number += 1;
            life.stage = Stage::Serving;
        });
    }

    /// The cache of a type, built when it is first asked for, or when its definition has changed.
    fn lane<'a>(&self, state: &'a mut State, at: usize, table: &Table) -> &'a mut Lane {
        while state.lanes.len() <= at {
            state.lanes.push(Lane { epoch: u64::MAX, ..Lane::default() });
        }
        let lane = &mut state.lanes[at];
        if lane.epoch != table.epoch() {
            let rebuilt = lane.epoch != u64::MAX;
            let (start, ready) = match state.started {
                _ if rebuilt => (table.rebuilt_at(), None),
                None => (0, None),
                Some((start, at)) => {
                    let wait = self.hooks.initializing(&self.name, &table.resource.plural);
                    (start, (!wait.is_zero()).then_some(at + wait))
                }
            };
            // What was there when the cache was filled has arrived; nobody sees revision 0.
            let position = start.max(1);
            *lane = Lane {
                epoch: table.epoch(),
                start,
                ready,
                position,
                observed: position,
                due: VecDeque::new(),
                progress: start,
                confirmed: None,
            };
        }
        lane
    }

    fn stir(&self) {
        self.life.send_modify(|life| life.stirred += 1);
    }
}

impl Lane {
    fn confirm(&mut self, revision: u64, now: Instant) {
        self.progress = revision;
        self.confirmed = Some(now);
    }

    fn arrive(&mut self, now: Instant) {
        while let Some((revision, _)) = self.due.front().copied().filter(|(_, at)| *at <= now) {
            self.position = revision;
            self.due.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::hooks::Plain;
    use crate::resource::{SandboxVersions, registry};

    fn history() -> (History, usize) {
        let history = History::new(registry(SandboxVersions::Both, true));
        let table = history.tables.iter().position(|t| &*t.resource.plural == "configmaps").expect("registered");
        (history, table)
    }

    fn write(history: &mut History, table: usize, name: &str) -> u64 {
        history.commit(table, &format!("d/{name}"), Some(json!({"metadata": {"name": name}}))).revision
    }

    #[tokio::test(start_paused = true)]
    async fn a_change_arrives_after_the_lag_and_never_before_an_earlier_one() {
        let (mut history, table) = history();
        let caches = Caches::new("a", Arc::new(Plain));
        let before = write(&mut history, table, "x");
        assert_eq!(caches.seen(&history, table).upto, u64::MAX, "a server without lag has everything");
        caches.set_lag(&history, Duration::from_secs(2));
        let first = write(&mut history, table, "x");
        assert_eq!(caches.seen(&history, table).upto, before);
        tokio::time::advance(Duration::from_secs(1)).await;
        caches.set_lag(&history, Duration::ZERO);
        let second = write(&mut history, table, "x");
        let seen = caches.seen(&history, table);
        assert_eq!(seen.upto, before);
        tokio::time::advance(seen.next.expect("on its way") - Instant::now()).await;
        let seen = caches.seen(&history, table);
        assert!(seen.upto == second && first < second, "the later one had to wait for the earlier one");
    }

    #[tokio::test(start_paused = true)]
    async fn a_held_cache_stands_still_until_it_goes_on() {
        let (mut history, table) = history();
        let caches = Caches::new("a", Arc::new(Plain));
        let before = write(&mut history, table, "x");
        caches.hold(&history);
        let after = write(&mut history, table, "x");
        assert_eq!(caches.seen(&history, table), Seen { upto: before, next: None });
        caches.go_on();
        assert_eq!(caches.seen(&history, table).upto, after);
    }

    #[tokio::test(start_paused = true)]
    async fn a_new_process_has_nothing_from_before_its_start() {
        let (mut history, table) = history();
        let caches = Caches::new("a", Arc::new(Plain));
        let before = write(&mut history, table, "x");
        assert!(caches.window(&mut history, table) <= before);
        caches.start(&mut history);
        assert!(caches.window(&mut history, table) > before);
        assert!(!caches.holds(&history, table, before));
    }

    #[tokio::test(start_paused = true)]
    async fn the_window_keeps_young_changes_and_a_hundred() {
        let (mut history, table) = history();
        let caches = Caches::new("a", Arc::new(Plain));
        let revisions: Vec<u64> = (0..150).map(|_| write(&mut history, table, "x")).collect();
        tokio::time::advance(Duration::from_secs(74)).await;
        assert_eq!(caches.window(&mut history, table), 0, "260 changes in a second did not leave a real one");
        tokio::time::advance(Duration::from_secs(2)).await;
        assert_eq!(caches.window(&mut history, table), revisions[49]);
    }
}
