//! What must hold whatever the order of events: the invariants of the two reports as temporal properties.
//!
//! They read what the running code says (its own tracing events), what clients asked and were told, and what the
//! [`oracle`] notes of the cluster. Most are checked in every run. Where one sets a limit, the limit is that of the
//! code's own loops (sweep, deadline, reconcile) with some margin, and a run that ends before it shows nothing.
use photofinish::property::{Property, Tally};
use photofinish::temporal::{Statement, after};
use photofinish_sim::trace::{Entry, EntryId};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

mod cluster;
mod facts;
mod intake;
pub mod oracle;
mod reading;
mod rows;
mod seen;

pub use reading::{grid, meetings, reading};

/// Period of the gateway's sweep, within which a row must have left a state that a snapshot contradicts.
const SWEEP: Duration = Duration::from_secs(60);

/// All properties, in the order in which reports name them.
pub fn all() -> Vec<Property> {
    vec![
        Property::new(
            "stopped-is-stable",
            "A row that reached Stopped stays Stopped until a start or delete is accepted, or its resource is found missing.",
            stopped_is_stable(),
        )
        .without_exception(),
        Property::new(
            "stop-is-idempotent",
            "After a client was told Stopped, every StopSandbox succeeds until a start or delete is accepted, unless its resource is gone.",
            stop_is_idempotent(),
        )
        .without_exception(),
        Property::new(
            "stop-snapshot-is-inert",
            "A snapshot of a resource whose bootstrap operation is stop moves no Stopped, Completed or Error row.",
            stop_snapshot_is_inert(),
        )
        .without_exception(),
        Property::new(
            "start-leaves-stopped",
            "A row that fell back to Stopped after an accepted start leaves it within one sweep of a create or restart snapshot, unless that start is undone.",
            start_leaves_stopped(),
        )
        .without_exception(),
        Property::new(
            "ready-has-a-session",
            "A Ready row has a supervisor session, and no stop was accepted since its last start.",
            rows::ready_has_a_session(),
        )
        .always(),
        Property::new(
            "stopped-is-at-rest",
            "A Stopped row's resource is off and unmarked within 180 s, and has no Pods.",
            cluster::stopped_is_at_rest(),
        )
        .always(),
        Property::new(
            "nothing-waits-for-ever",
            "No row stays Provisioning, Starting or Stopping for more than 480 s after the last accepted request.",
            rows::nothing_waits_for_ever(),
        )
        .without_exception(),
        Property::new(
            "no-dead-end",
            "Every row but a Deleting one admits a start or a stop, or a deadline will see to it, or an Error's Pods still end.",
            rows::no_dead_end(),
        )
        .without_exception(),
        Property::new(
            "volume-survives",
            "The volume of a sandbox that once was Ready stays until a delete is accepted, whatever fails.",
            cluster::volume_survives(),
        )
        .without_exception(),
        Property::new(
            "deleting-is-final",
            "A row that is being deleted goes within 480 s, or is restored by the recovery of a failed delete; no snapshot revives it.",
            rows::deleting_is_final(),
        )
        .always(),
        Property::new(
            "no-orphan",
            "A resource for which no row stands is gone within 420 s.",
            cluster::no_orphan(),
        )
        .always(),
        Property::new(
            "no-ghost",
            "A row of 300 s or more whose resource is gone is removed, or becomes an Error, within three sweeps.",
            cluster::no_ghost(),
        )
        .always(),
        Property::new(
            "stop-ends-off",
            "A resource whose stop has begun is off when its marker goes: nothing else ends a stop.",
            cluster::stop_ends_off(),
        )
        .always(),
        Property::new(
            "one-of-each",
            "A sandbox has at most one live workload Pod and one live supervisor Pod, and is Ready only with two of one run.",
            cluster::one_of_each(),
        )
        .always(),
        Property::new(
            "causal-order",
            "No snapshot moves a row if it is older than one that the gateway had before, unless the driver was asked again.",
            seen::causal_order(),
        )
        .always(),
        Property::new(
            "stopped-does-not-run",
            "When a client is told that its stop is done, and until the next start, no workload of the sandbox runs.",
            cluster::stopped_does_not_run(),
        )
        .always(),
        Property::new(
            "row-and-resource-agree",
            "Once all is quiet, a Ready row has both Pods, and one that comes up has something that comes up, or a deadline.",
            cluster::row_and_resource_agree(),
        )
        .always(),
        Property::new(
            "seen-stopped-stays",
            "No Get, List or Watch shows Provisioning after Stopped without an accepted start in between or still open.",
            seen::seen_stopped_stays(),
        )
        .always(),
        Property::new(
            "supervisor-ends-first",
            "A stop that was asked for switches the resource off only once the supervisor's Pod is gone.",
            cluster::supervisor_ends_first(),
        )
        .always(),
        Property::new(
            "stopped-makes-no-pod",
            "After a client was told that its stop is done no workload Pod is made until the next start.",
            cluster::stopped_makes_no_pod(),
        )
        .always(),
        Property::new(
            "rows-come-from-creates",
            "A row is made by a create: no snapshot and no sweep makes one.",
            intake::rows_come_from_creates(),
        )
        .always(),
        Property::new(
            "lost-session-is-no-error",
            "The end of a supervisor's session makes no Error of a Ready row: it may come back.",
            intake::lost_session_is_no_error(),
        )
        .always(),
        Property::new(
            "lost-snapshot-is-made-up-for",
            "A snapshot that could not be applied is followed by another, or by a look of the sweep, within 150 s.",
            intake::lost_snapshot_is_made_up_for(),
        )
        .always(),
        Property::new(
            "row-locks-are-brief",
            "Nobody waits 3 s or more for the lock of a row: it is not held over a driver call.",
            intake::row_locks_are_brief(),
        )
        .always(),
        Property::new(
            "exit-ends-its-own-run",
            "An exit that is reported of the present run is noted within 10 s; one of a run before moves no row.",
            intake::exit_ends_its_own_run(),
        )
        .always(),
        Property::new(
            "only-rows-take-names",
            "A create is refused as already there by the row that has its name, and by nothing else.",
            intake::only_rows_take_names(),
        ),
        Property::new(
            "deleted-row-goes-with-its-resource",
            "A row that is being deleted is gone within 90 s of its resource.",
            cluster::deleted_row_goes_with_its_resource(),
        ),
        Property::new(
            "starts-do-not-overlap",
            "No driver begins a start of a sandbox while another one is at it.",
            cluster::starts_do_not_overlap(),
        ),
        Property::new(
            "rest-is-undisturbed",
            "A resource that is off and unmarked is marked anew at most twice before the next accepted request.",
            cluster::rest_is_undisturbed(),
        ),
        Property::new(
            "start-from-stopped-is-accepted",
            "After a client was told Stopped, StartSandbox is accepted, whatever becomes of it then.",
            seen::start_from_stopped_is_accepted(),
        ),
        Property::new(
            "never-made-anew",
            "A sandbox keeps the resource it was created with, and so its volume, until a delete is accepted.",
            cluster::never_made_anew(),
        ),
        Property::new(
            "start-reaches-ready",
            "An accepted start leads to Ready, unless a stop or delete is accepted first.",
            after(|e| accepted(e, &["start"]).map(str::to_owned))
                .until(|name: &String, e| accepted(e, &["stop", "delete"]) == Some(name))
                .eventually("Ready", |name, e| Change::of(e).is_some_and(|c| c.sandbox == name && c.new == "Ready")),
        ),
    ]
}

/// A committed phase change, as the gateway logs it.
struct Change<'a> {
    sandbox: &'a str,
    old: &'a str,
    new: &'a str,
    by: &'a str,
}

impl<'a> Change<'a> {
    fn of(e: &'a Entry) -> Option<Change<'a>> {
        let e = says(e, "Sandbox phase changed")?;
        let field = |name| e.field(name).unwrap_or_default();
        Some(Change {
            sandbox: e.field("sandbox_name")?,
            old: e.field("old_phase")?,
            new: e.field("new_phase")?,
            by: field("by"),
        })
    }
}

/// The entry, if it is a host's log event with this message.
fn says<'a>(e: &'a Entry, message: &str) -> Option<&'a Entry> {
    let rest = e.text.strip_prefix(message)?;
    (e.kind == "log" && (rest.is_empty() || rest.starts_with(' '))).then_some(e)
}

/// The sandbox of a request that the gateway accepted, if its operation is one of these.
fn accepted<'a>(e: &'a Entry, operations: &[&str]) -> Option<&'a str> {
    let e = says(e, "request accepted")?;
    operations.contains(&e.field("op")?).then(|| e.field("sandbox_name"))?
}

/// The sandbox that a reply reports as Stopped.
fn reported_stopped(e: &Entry) -> Option<String> {
    let stopped = e.kind == "reply" && e.field("code") == Some("0") && e.field("phase") == Some("Stopped");
    stopped.then(|| e.field("sandbox").map(str::to_owned))?
}

/// A gateway that is gone answers nothing, and what a client's library makes of that is no refusal: CANCELLED, UNKNOWN,
/// DEADLINE_EXCEEDED, UNAVAILABLE.
fn refusal(rpc: &str, e: &Entry) -> Result<(), String> {
    match e.field("code") {
        Some("0" | "1" | "2" | "4" | "14") => Ok(()),
        _ => Err(format!("{rpc} of a sandbox that was reported Stopped got {}", answer(e))),
    }
}

/// "FAILED_PRECONDITION: message" from a reply's entry.
fn answer(e: &Entry) -> String {
    let code = e.field("code").and_then(|c| c.parse().ok()).map(tonic::Code::from_i32);
    let name = code.map_or("no code", crate::client::code_name);
    format!("{name}: {}", e.field("message").unwrap_or_default())
}

/// A row that fell back to Stopped while an accepted start of it is unsettled is not at rest: that start may still be
/// seen ("start-leaves-stopped").
fn stopped_is_stable() -> Statement {
    Statement::new(|entries| {
        let mut tally = Tally::default();
        // By sandbox: the entry at which it came to rest; by id: has its row an unsettled start?
        let (mut stopped, mut in_flight) = (BTreeMap::new(), BTreeMap::new());
        for e in entries {
            if let Some(c) = Change::of(e) {
                let missing = c.new == "Error" && c.by == "missing";
                if let Some(since) = stopped.remove(c.sandbox).filter(|_| c.old == "Stopped" && !missing) {
                    let why = format!("the gateway moved {} Stopped -> {} with no start accepted", c.sandbox, c.new);
                    tally.violated(e.id, why, [since].into_iter().chain(e.cause));
                }
                let starts = e.field("sandbox_id").and_then(|id| in_flight.get(id)).copied().unwrap_or(false);
                if c.new == "Stopped" && !starts {
                    tally.judged();
                    stopped.insert(c.sandbox, e.id);
                }
            } else if let Some(name) = accepted(e, &["start", "delete"]) {
                stopped.remove(name);
            } else if says(e, "store commit").is_some()
                && let (Some(id), Some(attempt)) = (e.field("id"), e.field("start_attempt"))
            {
                in_flight.insert(id, !attempt.is_empty());
            }
        }
        tally.verdict()
    })
}

/// A client may be told Stopped of a sandbox whose resource somebody has just deleted: the gateway hears of that later.
fn stop_is_idempotent() -> Statement {
    Statement::new(|entries| {
        let mut tally = Tally::default();
        // By sandbox: the first reply since then that reported it Stopped; those whose resource is gone.
        let (mut stopped, mut gone) = (BTreeMap::<String, EntryId>::new(), BTreeSet::new());
        for e in entries {
            if let Some((name, is_gone)) = resource_of(e) {
                if is_gone {
                    stopped.remove(name);
                    gone.insert(name);
                } else {
                    gone.remove(name);
                }
                continue;
            }
            if let Some(name) = accepted(e, &["start", "delete"]) {
                stopped.remove(name);
                continue;
            }
            if e.kind == "reply"
                && e.name == "stop"
                && let Some(reported) = e.field("sandbox").and_then(|name| stopped.get(name))
                && e.field("asked").and_then(|a| a.parse::<EntryId>().ok()).is_some_and(|asked| asked > *reported)
            {
                tally.judged();
                if let Err(why) = refusal("StopSandbox", e) {
                    tally.violated(e.id, why, [*reported].into_iter().chain(e.cause));
                }
            }
            if let Some(name) = reported_stopped(e).filter(|name| !gone.contains(&**name)) {
                stopped.entry(name).or_insert(e.id);
            }
        }
        tally.verdict()
    })
}

/// The sandbox of a resource that was written or deleted, by whomever, and whether it is gone now.
fn resource_of(e: &Entry) -> Option<(&str, bool)> {
    let of_resource = e.kind == oracle::STATE && e.name == "resource";
    of_resource.then(|| Some((e.field("sandbox")?, e.field("gone") == Some("true"))))?
}

/// The sandbox whose resource was written, and whether that is off now with no operation under way.
fn rests(e: &Entry) -> Option<(&str, bool)> {
    let (name, _) = resource_of(e).filter(|(_, gone)| !gone)?;
    Some((name, e.field("run") == Some("off") && e.field("marker").unwrap_or_default().is_empty()))
}

/// The snapshots on their way from the driver to the gateway.
///
/// A stream is a queue and the gateway applies it in order, so the n-th snapshot received is the n-th sent since each
/// side opened its end of the watch.
#[derive(Default)]
struct Snapshots<'a> {
    /// By replica: each gateway watches a driver of its own.
    streams: BTreeMap<&'a str, Stream<'a>>,
}

#[derive(Default)]
struct Stream<'a> {
    sent: Vec<&'a Entry>,
    received: usize,
}

impl<'a> Snapshots<'a> {
    /// The driver's entry of the snapshot that this entry says was received.
    fn received(&mut self, e: &'a Entry) -> Option<&'a Entry> {
        if e.kind != "log" {
            return None;
        }
        let replica = e.host.strip_prefix("driver").or_else(|| e.host.strip_prefix("gateway")).unwrap_or(&e.host);
        let stream = self.streams.entry(replica).or_default();
        if says(e, "snapshot stream opened").is_some() {
            stream.sent.clear();
        } else if says(e, "driver watch: opened").is_some() {
            stream.received = 0;
        } else if says(e, "snapshot sent").is_some() {
            stream.sent.push(e);
        } else if says(e, "snapshot received").is_some() {
            stream.received += 1;
            return stream.sent.get(stream.received - 1).copied();
        }
        None
    }
}

fn stop_snapshot_is_inert() -> Statement {
    Statement::new(|entries| {
        let mut tally = Tally::default();
        let (mut snapshots, mut applied) = (Snapshots::default(), None);
        for e in entries {
            if let Some(sent) = snapshots.received(e) {
                applied = (sent.field("operation") == Some("stop")).then_some(sent);
                tally_if(&mut tally, applied.is_some());
            } else if let Some(sent) = applied
                && let Some(c) = Change::of(e)
                && matches!(c.by, "snapshot" | "live")
                && sent.field("sandbox_name") == Some(c.sandbox)
                && matches!(c.old, "Stopped" | "Completed" | "Error")
            {
                let phase = sent.field("bootstrap_phase").unwrap_or_default();
                let why =
                    format!("a snapshot of the stop itself (stop/{phase}) moved {} {} -> {}", c.sandbox, c.old, c.new);
                tally.violated(e.id, why, [sent.id]);
            }
        }
        tally.verdict()
    })
}

fn tally_if(tally: &mut Tally, judged: bool) {
    if judged {
        tally.judged();
    }
}

fn start_leaves_stopped() -> Statement {
    Statement::new(|entries| {
        let mut tally = Tally::default();
        let mut snapshots = Snapshots::default();
        // By sandbox: its phase; the accepted start that no stop, delete or Ready has settled; the snapshot that must
        // move it, with the time by which it must have moved.
        let (mut phase, mut start, mut due) =
            (BTreeMap::new(), BTreeMap::new(), BTreeMap::<&str, (&Entry, u64)>::new());
        // Sandboxes whose resource is off and unmarked: what was begun is undone, and its snapshots are of the past.
        let mut at_rest = BTreeSet::new();
        for e in entries {
            due.retain(|name, (sent, at)| {
                let late = e.at_ns > *at;
                if late {
                    let why = format!("{name} is still Stopped a sweep after the snapshot of its accepted start");
                    tally.violated(e.id, why, [sent.id]);
                }
                !late
            });
            if let Some(c) = Change::of(e) {
                phase.insert(c.sandbox, c.new);
                if c.new != "Stopped" {
                    due.remove(c.sandbox);
                }
                if c.new == "Ready" {
                    start.remove(c.sandbox);
                }
            } else if let Some(name) = accepted(e, &["start"]) {
                start.insert(name, e.id);
            } else if let Some(name) = accepted(e, &["stop", "delete"]) {
                start.remove(name);
                due.remove(name);
            } else if let Some((name, rests)) = rests(e) {
                if rests {
                    due.remove(name);
                    at_rest.insert(name);
                } else {
                    at_rest.remove(name);
                }
            } else if let Some(sent) = snapshots.received(e)
                && let Some(name) = sent.field("sandbox_name")
                && matches!(sent.field("operation"), Some("create" | "restart"))
                && phase.get(name) == Some(&"Stopped")
                && start.contains_key(name)
                && !at_rest.contains(name)
            {
                tally.judged();
                due.entry(name).or_insert((sent, e.at_ns + SWEEP.as_nanos() as u64));
            }
        }
        tally.verdict()
    })
}

#[cfg(test)]
mod tests;
