//! What must hold of rows and cluster together: Pods, volumes and resources, as the oracle sees them.

use std::collections::{BTreeMap, BTreeSet};

use photofinish::property::Tally;
use photofinish::temporal::Statement;
use photofinish_sim::trace::Entry;

use super::facts::{Facts, News, Obligations, seconds};
use super::oracle::STATE;
use super::{Change, accepted, reported_stopped, rests, says};

/// A stop's own limit, the driver's reconcile, and some: by then a stopped sandbox must be at rest.
const AT_REST: u64 = seconds(180);
/// The driver gives a bootstrap up after 300 s, at its next reconcile.
const REAPED: u64 = seconds(420);
/// Age below which the sweep leaves a row without a resource alone.
const GRACE: u64 = seconds(300);
/// Three sweeps.
const SETTLED: u64 = seconds(180);
/// Three sweeps and the reconciles between them.
const SEEN: u64 = seconds(240);
/// A sweep, and some.
const FOLLOWS: u64 = seconds(90);
/// So often a resource at rest may be marked without a request.
const MARKED_AT_REST: u32 = 2;
/// The span of a driver's start.
const START: &str = "kubernetes.start_sandbox";
/// The driver's gateway id.
const OURS: &str = "gateway-0";

/// Judges the sandbox that an entry is about by what is owed of it.
fn owing(
    limit_ns: u64,
    owes: impl for<'f> Fn(&'f Facts<'_>, &'f str) -> Option<(bool, String)> + Send + Sync + 'static,
) -> Statement {
    Statement::new(move |entries| {
        let (mut tally, mut facts, mut owed) = (Tally::default(), Facts::default(), Obligations::default());
        for e in entries {
            owed.check(e, &mut tally);
            let News::Of(id) = facts.note(e) else { continue };
            let Some((owes, why)) = owes(&facts, id) else {
                owed.restart(id);
                continue;
            };
            tally.judged();
            owed.owe(id, owes, e, limit_ns, || why);
        }
        tally.verdict()
    })
}

/// I6.
pub(super) fn stopped_is_at_rest() -> Statement {
    owing(AT_REST, |facts, id| {
        let row = facts.rows.get(id).filter(|row| row.phase == "Stopped")?;
        let running = facts.resource(id).map(|r| (!r.off, r.marker)).unwrap_or_default();
        let pods = facts.pods(id).count();
        let busy = running != (false, "") || pods > 0;
        Some((
            busy,
            format!("{} is Stopped, but not at rest: on {}, marker {:?}, {pods} Pods", row.name, running.0, running.1),
        ))
    })
}

/// Row and resource agree once all is quiet: nothing but what comes round by itself is still to come, so no deadline.
pub(super) fn row_and_resource_agree() -> Statement {
    owing(SEEN, |facts, id| {
        let row = facts.rows.get(id).filter(|row| matches!(row.phase, "Ready" | "Provisioning" | "Starting"))?;
        facts.resource(id)?;
        let both =
            facts.pods(id).any(|p| p.workload && p.is_live()) && facts.pods(id).any(|p| !p.workload && p.is_live());
        match row.phase {
            "Ready" => Some((!both, format!("{} is Ready without both of its Pods", row.name))),
            phase => {
                let idle = facts.is_off_and_empty(id) && !row.deadline_armed;
                Some((idle, format!("{} is {phase} over an empty backend", row.name)))
            }
        }
    })
}

/// I11.
pub(super) fn no_orphan() -> Statement {
    owing(REAPED, |facts, id| {
        let resource = facts.resource(id).filter(|r| r.gateway == OURS)?;
        let orphan = !facts.rows.contains_key(id);
        Some((orphan, format!("the resource {} stays although no row stands for it", resource.object)))
    })
}

/// The other side of I11.
pub(super) fn no_ghost() -> Statement {
    Statement::new(|entries| {
        let (mut tally, mut facts, mut owed) = (Tally::default(), Facts::default(), Obligations::default());
        let mut since: BTreeMap<&str, u64> = BTreeMap::new();
        for e in entries {
            owed.check(e, &mut tally);
            if says(e, "the sweep ended early").is_some() {
                // It could not tell what is gone: the next ones count.
                owed.defer(e.at_ns + SETTLED);
            }
            let News::Of(id) = facts.note(e) else { continue };
            // An Error or Completed row stays, and one that is being deleted has its own property.
            let settled = |phase| matches!(phase, "" | "Error" | "Completed" | "Deleting");
            let Some(row) = facts.rows.get(id).filter(|row| !settled(row.phase)) else {
                owed.restart(id);
                continue;
            };
            tally.judged();
            let age = e.at_ns - *since.entry(id).or_insert(e.at_ns);
            let why = || format!("{} is still {}, though its resource is gone", row.name, row.phase);
            owed.owe(id, facts.lost.contains(id), e, GRACE.saturating_sub(age) + SETTLED, why);
        }
        tally.verdict()
    })
}

/// B.3: a stop that was asked for lets the supervisor end first. After a lost dependency there may be none left to wait
/// for, so that suspension, of which the driver tells, goes straight to the run switch.
pub(super) fn supervisor_ends_first() -> Statement {
    Statement::new(|entries| {
        let (mut tally, mut facts) = (Tally::default(), Facts::default());
        // Sandboxes whose suspension the driver has announced; resources that are on, by uid.
        let (mut announced, mut on) = (BTreeSet::new(), BTreeSet::new());
        for e in entries {
            if says(e, "sandbox is suspended").is_some() {
                announced.extend(e.field("sandbox_id"));
            }
            let News::Of(id) = facts.note(e) else { continue };
            if e.kind != STATE || e.name != "resource" {
                continue;
            }
            let uid = e.field("uid").unwrap_or_default();
            let is_on = e.field("run") == Some("on") && e.field("gone") != Some("true");
            if is_on {
                on.insert(uid);
                continue;
            }
            let switched_off = on.remove(uid) && e.field("marker") == Some("stop/suspending");
            let asked_for = facts.rows.get(id).is_some_and(|row| row.phase == "Stopping");
            if announced.remove(id) || !switched_off || !asked_for {
                continue;
            }
            tally.judged();
            if facts.pods(id).any(|p| !p.workload) {
                let why = format!("the stop of {} switched it off while its supervisor still ran", object(e));
                tally.violated(e.id, why, e.cause);
            }
        }
        tally.verdict()
    })
}

/// What a stop has begun only its own end may end.
pub(super) fn stop_ends_off() -> Statement {
    Statement::new(|entries| {
        let mut tally = Tally::default();
        // By uid: the entry that last showed it under a stop.
        let mut stops = BTreeMap::new();
        for e in entries.iter().filter(|e| e.kind == STATE && e.name == "resource") {
            let field = |name| e.field(name).unwrap_or_default();
            let uid = field("uid");
            if field("gone") == "true" {
                stops.remove(uid);
            } else if field("marker").starts_with("stop/") {
                stops.insert(uid, e.id);
            } else if let Some(stop) = stops.remove(uid) {
                tally.judged();
                if field("run") == "on" {
                    let why = format!(
                        "the stop of {} is forgotten: its resource is on, marked {:?}",
                        object(e),
                        field("marker")
                    );
                    tally.violated(e.id, why, [stop].into_iter().chain(e.cause));
                }
            }
        }
        tally.verdict()
    })
}

/// I10: a row that is being deleted waits for its resource, and for nothing after it.
pub(super) fn deleted_row_goes_with_its_resource() -> Statement {
    owing(FOLLOWS, |facts, id| {
        let row = facts.rows.get(id).filter(|row| row.phase == "Deleting")?;
        let why = format!("the resource of {} is gone, and its row is still Deleting", row.name);
        Some((facts.lost.contains(id), why))
    })
}

/// The other side of I12: two that start a sandbox at once each take the other's Pods for those of a run before.
pub(super) fn starts_do_not_overlap() -> Statement {
    Statement::new(|entries| {
        let mut tally = Tally::default();
        // By sandbox id and driver: the entry at which its start began.
        let mut begun: BTreeMap<(&str, &str), u64> = BTreeMap::new();
        for e in entries {
            if e.kind == "host" {
                begun.retain(|(_, driver), _| *driver != e.host);
            }
            let Some(id) = e.field("sandbox_id").filter(|_| e.name == START) else { continue };
            if e.kind == "span-end" {
                begun.remove(&(id, &*e.host));
            } else if e.kind == "span" {
                tally.judged();
                let other = begun.iter().find(|((of, driver), _)| *of == id && *driver != e.host);
                if let Some(((_, driver), since)) = other {
                    let why = format!("{} begins a start of the sandbox that {driver} is starting", e.host);
                    tally.violated(e.id, why, [*since]);
                }
                begun.insert((id, &e.host), e.id);
            }
        }
        tally.verdict()
    })
}

/// E29: nobody stops what is stopped, but once, should a dependency have been lost, and once more, should that have met
/// somebody else's look.
pub(super) fn rest_is_undisturbed() -> Statement {
    Statement::new(|entries| {
        let mut tally = Tally::default();
        // By sandbox: is its resource at rest, and how often was it taken out of that since the last accepted request?
        let mut resting: BTreeMap<&str, (bool, u32)> = BTreeMap::new();
        for e in entries {
            if let Some(name) = accepted(e, &["create", "start", "stop", "delete"]) {
                resting.remove(name);
            } else if let Some((name, rests)) = rests(e) {
                let (rested, times) = resting.entry(name).or_default();
                *times += u32::from(*rested && !rests);
                if rests {
                    tally.judged();
                } else if *rested && *times > MARKED_AT_REST {
                    let why = format!("{name} was at rest, and its resource is marked for the {times}. time");
                    tally.violated(e.id, why, e.cause);
                }
                *rested = rests;
            }
        }
        tally.verdict()
    })
}

/// A resource stands for its sandbox until a delete, as its volume goes with it.
pub(super) fn never_made_anew() -> Statement {
    Statement::new(|entries| {
        let (mut tally, mut first, mut deleted) = (Tally::default(), BTreeMap::new(), BTreeSet::new());
        for e in entries {
            if accepted(e, &["delete"]).is_some() {
                deleted.extend(e.field("sandbox_id"));
            }
            if e.kind != STATE || e.name != "resource" || e.field("gone") == Some("true") {
                continue;
            }
            let (Some(id), Some(uid)) = (e.field("sandbox_id"), e.field("uid")) else { continue };
            tally.judged();
            let (known, before) = *first.entry(id).or_insert((uid, e.id));
            if known != uid && !deleted.contains(id) {
                let why = format!("{} has another resource than before, and another volume", object(e));
                tally.violated(e.id, why, [before].into_iter().chain(e.cause));
            }
        }
        tally.verdict()
    })
}

/// I12.
pub(super) fn one_of_each() -> Statement {
    Statement::new(|entries| {
        let (mut tally, mut facts) = (Tally::default(), Facts::default());
        for e in entries {
            let News::Of(id) = facts.note(e) else { continue };
            let live = |workload: bool| facts.pods(id).filter(move |p| p.workload == workload && p.is_live());
            if e.kind == STATE && e.name == "pod" {
                tally.judged();
                for (workload, what) in [(true, "workload"), (false, "supervisor")] {
                    if live(workload).count() > 1 {
                        tally.violated(e.id, format!("{} has several live {what} Pods", object(e)), e.cause);
                    }
                }
            }
            if let Some(c) = Change::of(e).filter(|c| c.new == "Ready") {
                tally.judged();
                let runs = (live(true).next().map(|p| p.run), live(false).next().map(|p| p.run));
                if let (Some(workload), Some(supervisor)) = runs
                    && workload != supervisor
                {
                    tally.violated(e.id, format!("{} is Ready with Pods of two runs", c.sandbox), e.cause);
                }
            }
        }
        tally.verdict()
    })
}

/// I14.
pub(super) fn stopped_does_not_run() -> Statement {
    Statement::new(|entries| {
        let (mut tally, mut facts) = (Tally::default(), Facts::default());
        // By sandbox name: the reply that said Stopped, while no start has followed.
        let mut reported: BTreeMap<String, u64> = BTreeMap::new();
        let runs = |facts: &Facts<'_>, id: &str| facts.pods(id).any(|p| p.workload && p.phase == "Running");
        for e in entries {
            let news = facts.note(e);
            if let Some(name) = reported_stopped(e) {
                let row = facts.rows.iter().find(|(_, row)| row.name == name && row.told_to_stop);
                if let Some((id, _)) = row {
                    tally.judged();
                    if runs(&facts, id) {
                        let why = format!("{name} was reported Stopped while its workload ran");
                        tally.violated(e.id, why, e.cause);
                    }
                    reported.insert(name, e.id);
                }
            }
            let News::Of(id) = news else { continue };
            let Some(row) = facts.rows.get(id) else { continue };
            if !row.told_to_stop || row.deleted {
                reported.remove(row.name);
            } else if e.kind == STATE
                && e.name == "pod"
                && let Some(told) = reported.get(row.name)
                && runs(&facts, id)
            {
                tally.violated(e.id, format!("the workload of {} runs after Stopped was reported", row.name), [*told]);
            }
        }
        tally.verdict()
    })
}

/// I6, at once: what is reported to be over is not begun again.
pub(super) fn stopped_makes_no_pod() -> Statement {
    Statement::new(|entries| {
        let (mut tally, mut facts) = (Tally::default(), Facts::default());
        // By sandbox name: the reply that said Stopped, while no start has followed.
        let mut reported: BTreeMap<String, u64> = BTreeMap::new();
        let mut known = BTreeSet::new();
        for e in entries {
            let news = facts.note(e);
            if let Some(name) = reported_stopped(e) {
                let told = facts.rows.values().any(|row| row.name == name && row.told_to_stop);
                if told {
                    tally.judged();
                    reported.entry(name).or_insert(e.id);
                }
            }
            let News::Of(id) = news else { continue };
            let new = e.kind == STATE && e.name == "pod" && known.insert(e.field("uid").unwrap_or_default());
            let Some(row) = facts.rows.get(id) else { continue };
            if !row.told_to_stop || row.deleted {
                reported.remove(row.name);
            } else if new
                && e.field("role") == Some("workload")
                && facts.resource(id).is_some_and(|r| r.off)
                && let Some(told) = reported.get(row.name)
            {
                let why = format!("a workload Pod was made for {} after Stopped was reported", row.name);
                tally.violated(e.id, why, [*told]);
            }
        }
        tally.verdict()
    })
}

/// I9.
pub(super) fn volume_survives() -> Statement {
    Statement::new(|entries| {
        let (mut tally, mut facts) = (Tally::default(), Facts::default());
        // Who deleted what last, by the API server's log; sandbox ids of resources, by uid.
        let (mut deleted, mut owners) = (BTreeMap::new(), BTreeMap::new());
        // By uid: the deletion that a resource went with. Another of its name may come and go before its volume does.
        let mut taken = BTreeMap::new();
        // A row outlives in this map: its resource may go after it.
        let mut rows = BTreeMap::new();
        for e in entries {
            if let News::Of(id) = facts.note(e)
                && let Some(row) = facts.rows.get(id)
            {
                rows.insert(id, row.clone());
            }
            if e.kind == "http" && e.name == "delete" && e.field("status").is_some_and(|s| s.starts_with('2')) {
                let path = e.field("path").unwrap_or_default().split('?').next().unwrap_or_default();
                let mut parts = path.rsplit('/');
                if let (Some(name), Some(plural)) = (parts.next(), parts.next()) {
                    deleted.insert((plural, name), (e.field("client").unwrap_or_default(), e.id));
                }
            }
            if e.kind != STATE {
                continue;
            }
            let field = |name| e.field(name).unwrap_or_default();
            if e.name == "resource" {
                owners.insert(field("uid"), field("sandbox_id"));
                if field("gone") == "true" {
                    let by = deleted.remove(&("sandboxes", field("object")));
                    taken.extend(by.map(|by| (field("uid"), by)));
                }
            } else if e.name == "claim" {
                tally.judged();
                let Some(id) = owners.get(field("owner")).filter(|_| field("gone") == "true") else { continue };
                let Some(row) = rows.get(id).filter(|row| row.was_ready && !row.deleted) else { continue };
                let of_claim = deleted.get(&("persistentvolumeclaims", field("object")));
                let of_resource = taken.get(field("owner"));
                let blamed = match of_claim {
                    Some(("gc", _)) => of_resource.filter(|(by, _)| by.starts_with("driver")),
                    by => by,
                };
                if let Some((by, id)) = blamed {
                    let why = format!("the volume of {} is gone: {by} deleted it, no delete was accepted", row.name);
                    tally.violated(e.id, why, [*id]);
                }
            }
        }
        tally.verdict()
    })
}

fn object(e: &Entry) -> &str {
    e.field("sandbox").unwrap_or_default()
}
