//! What must hold of how a gateway takes in what reaches it: snapshots, sessions, exit reports, and one another's rows.
use std::collections::{BTreeMap, BTreeSet};

use photofinish::property::Tally;
use photofinish::temporal::Statement;
use photofinish_sim::trace::Entry;

use super::facts::{Obligations, is_gateway, seconds};
use super::{Change, says};

/// Two sweeps, and the time that they take.
const MADE_UP_FOR: u64 = seconds(150);
/// As the client notes it.
const ALREADY_EXISTS: &str = "6";
/// Attempts at a row that others write too are over by then.
const NOTED: u64 = seconds(10);

/// A row is somebody's wish: what only exists in the cluster makes none.
pub(super) fn rows_come_from_creates() -> Statement {
    Statement::new(|entries| {
        let mut tally = Tally::default();
        let first = |e: &&Entry| says(e, "store commit").is_some() && e.field("resource_version") == Some("1");
        for e in entries.iter().filter(first) {
            tally.judged();
            if let Some(from) = e.spans.iter().find(|s| s.starts_with("driver_watch.") || s.starts_with("sweep.")) {
                let id = e.field("id").unwrap_or_default();
                tally.violated(e.id, format!("a row was made for {id}, which nobody has created, by {from}"), e.cause);
            }
        }
        tally.verdict()
    })
}

/// A.3: a name is taken by a row. A gateway that finds one says so and refuses; what it has accepted has a row of its own.
pub(super) fn only_rows_take_names() -> Statement {
    Statement::new(|entries| {
        let mut tally = Tally::default();
        // By name: refusals of creates whose answers are still to come.
        let mut refused: BTreeMap<&str, u32> = BTreeMap::new();
        for e in entries {
            if says(e, "request refused").is_some() && e.field("op") == Some("create") {
                *refused.entry(e.field("sandbox_name").unwrap_or_default()).or_default() += 1;
            } else if e.kind == "reply" && e.name == "create" {
                tally.judged();
                let name = e.field("sandbox").unwrap_or_default();
                if e.field("code") != Some(ALREADY_EXISTS) {
                    continue;
                }
                match refused.get_mut(name).filter(|n| **n > 0) {
                    Some(n) => *n -= 1,
                    None => {
                        let why = format!("the create of {name} was accepted, and then refused: its name is taken");
                        tally.violated(e.id, why, e.cause);
                    }
                }
            }
        }
        tally.verdict()
    })
}

/// A.10: only Ready is left, and for Provisioning.
pub(super) fn lost_session_is_no_error() -> Statement {
    Statement::new(|entries| {
        let mut tally = Tally::default();
        for e in entries {
            if let Some(c) = Change::of(e).filter(|c| c.by == "session" && c.old == "Ready") {
                tally.judged();
                if c.new == "Error" {
                    tally.violated(e.id, format!("{} is an Error since its session ended", c.sandbox), e.cause);
                }
            }
        }
        tally.verdict()
    })
}

/// A.2: a snapshot gets one attempt; what that loses the next event or the sweep repairs.
pub(super) fn lost_snapshot_is_made_up_for() -> Statement {
    Statement::new(|entries| {
        let (mut tally, mut owed) = (Tally::default(), Obligations::default());
        for e in entries {
            owed.check(e, &mut tally);
            if !is_gateway(&e.host) {
                continue;
            }
            let committed = || says(e, "store commit").and_then(|e| e.field("id"));
            let looked_at = || (e.kind == "span" && e.name == "sweep.sandbox").then(|| e.field("sandbox_id"))?;
            if says(e, "a snapshot of the driver was not applied").is_some() {
                let Some(id) = e.field("sandbox_id") else { continue };
                tally.judged();
                let why = || format!("a snapshot of {id} was lost, and for 150 s nobody has looked at what it said");
                owed.owe(id, true, e, MADE_UP_FOR, why);
            } else if let Some(id) = committed().or_else(looked_at) {
                owed.restart(id);
            } else if says(e, "the sweep ended early").is_some() {
                owed.defer(e.at_ns + MADE_UP_FOR);
            } else if e.kind == "host" {
                // A gateway that is back begins with a list.
                owed = Obligations::default();
            }
        }
        tally.verdict()
    })
}

/// A.2: the lock of a row is never held over a driver call, so nobody waits long for it.
pub(super) fn row_locks_are_brief() -> Statement {
    Statement::new(|entries| {
        let mut tally = Tally::default();
        let mut resumed: BTreeMap<&str, u64> = BTreeMap::new();
        for e in entries.iter().filter(|e| is_gateway(&e.host)) {
            if e.kind == "host" && e.name == "resume" {
                resumed.insert(&e.host, e.at_ns);
            } else if says(e, "request accepted").is_some() {
                tally.judged();
            } else if says(e, "a row's lock is waited for").is_some() {
                tally.judged();
                let waited_ns = e.field("waited_ms").and_then(|ms| ms.parse::<u64>().ok()).unwrap_or(0) * 1_000_000;
                // A process that stood still has not held it any longer by its own clock.
                if resumed.get(&*e.host).is_none_or(|at| *at + waited_ns < e.at_ns) {
                    let id = e.field("sandbox_id").unwrap_or_default();
                    tally.violated(
                        e.id,
                        format!("the row of {id} was locked for {} s", waited_ns / 1_000_000_000),
                        e.cause,
                    );
                }
            }
        }
        tally.verdict()
    })
}

/// What is known of the runs of a sandbox's main process.
#[derive(Default)]
struct Runs<'a> {
    phase: &'a str,
    /// Those whose supervisor has said hello since the last start.
    present: BTreeSet<&'a str>,
    /// Those before.
    past: BTreeSet<&'a str>,
    /// The report that was taken in last, if it is of a run before.
    stale: Option<u64>,
}

/// A.11: the exit of the present run counts, even while the row is Starting; a run before has nothing to say.
pub(super) fn exit_ends_its_own_run() -> Statement {
    Statement::new(|entries| {
        let (mut tally, mut owed) = (Tally::default(), Obligations::default());
        let mut sandboxes: BTreeMap<&str, Runs<'_>> = BTreeMap::new();
        for e in entries {
            owed.check(e, &mut tally);
            if e.kind == "host" {
                // A report that a process took with it is made again, to the next one.
                owed = Obligations::default();
            }
            if says(e, "store commit").is_some() {
                if let Some(id) = e.field("id").filter(|_| matches!(e.field("op"), Some("exit" | "delete" | "deleted")))
                {
                    owed.restart(id);
                }
                continue;
            }
            let Some(id) = e.field("sandbox_id").filter(|_| is_gateway(&e.host)) else { continue };
            let runs = sandboxes.entry(id).or_default();
            let instance = e.field("instance_id").unwrap_or_default();
            if let Some(c) = Change::of(e) {
                if let Some(report) = runs.stale.take().filter(|_| c.by == "exit") {
                    let why = format!("the exit of a run before moved {} {} -> {}", c.sandbox, c.old, c.new);
                    tally.violated(e.id, why, [report]);
                }
                runs.phase = c.new;
                owed.restart(id);
                if c.new == "Starting" {
                    runs.past.append(&mut runs.present);
                }
            } else if says(e, "supervisor session: accepted").is_some() {
                if !runs.past.contains(instance) {
                    runs.present.insert(instance);
                }
            } else if says(e, "main process exit reported").is_some() {
                let present = runs.present.contains(instance);
                runs.stale = runs.past.contains(instance).then_some(e.id);
                tally.judged();
                let why = || format!("the present run of {id} has ended, and the gateway was told and does not say so");
                if present && matches!(runs.phase, "Ready" | "Starting") {
                    owed.owe(id, true, e, NOTED, why);
                }
            }
        }
        tally.verdict()
    })
}
