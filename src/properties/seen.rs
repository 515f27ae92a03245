//! What must hold of what clients saw, and of the order in which snapshots took effect.

use std::collections::{BTreeMap, BTreeSet};

use photofinish::property::Tally;
use photofinish::temporal::Statement;
use photofinish_sim::trace::Entry;

use super::{Change, Snapshots, accepted, refusal, reported_stopped, says, tally_if};

/// No Get, List or Watch shows Provisioning after Stopped without an accepted start in between, or one that is open.
///
/// What a client sees was on its way for a while. The versions of the row tell whether it is from before that start,
/// or from before the Stopped that another call has shown. A row that fell back to Stopped while an accepted start of it
/// is unsettled is not at rest: that start may still be seen.
pub(super) fn seen_stopped_stays() -> Statement {
    Statement::new(|entries| {
        let mut tally = Tally::default();
        // By sandbox: the first entry that showed it Stopped and the row's version then; by id: version of the last
        // commit; by sandbox: that version when a start was accepted.
        let mut seen: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
        let (mut committed, mut begun) = (BTreeMap::new(), BTreeMap::<&str, u64>::new());
        // By sandbox, the id of its row; by id, the versions of the row at which a start was unsettled.
        let (mut ids, mut unsettled) = (BTreeMap::new(), BTreeMap::<&str, BTreeSet<u64>>::new());
        for e in entries {
            if let Some(name) = accepted(e, &["create", "start", "delete"]) {
                seen.remove(name);
                let version = e.field("sandbox_id").and_then(|id| committed.get(id)).copied().unwrap_or_default();
                begun.insert(name, version);
                ids.extend(e.field("sandbox_id").map(|id| (name, id)));
                continue;
            }
            if says(e, "store commit").is_some()
                && let (Some(id), Some(version)) = (e.field("id"), number(e, "resource_version"))
            {
                committed.insert(id, version);
                if e.field("start_attempt").is_some_and(|attempt| !attempt.is_empty()) {
                    unsettled.entry(id).or_default().insert(version);
                }
                continue;
            }
            let shown = e.kind == "seen" || e.kind == "reply" && e.field("code") == Some("0");
            let (Some(name), Some(phase)) = (e.field("sandbox"), e.field("phase")) else { continue };
            let version = number(e, "version");
            if !shown || version.is_some_and(|v| begun.get(name).is_some_and(|begun| v < *begun)) {
                continue;
            }
            let at_rest = || {
                let unsettled = ids.get(name).and_then(|id| unsettled.get(id));
                version.is_none_or(|v| unsettled.is_none_or(|versions| !versions.contains(&v)))
            };
            if phase == "Stopped" && at_rest() {
                seen.entry(name).or_insert((e.id, version.unwrap_or_default()));
                tally.judged();
            } else if phase == "Provisioning"
                && let Some((before, then)) = seen.get(name)
                && version.is_none_or(|v| v > *then)
            {
                let why =
                    format!("{} shows {name} Provisioning after it was seen Stopped, and nobody started it", e.name);
                tally.violated(e.id, why, [*before]);
            }
        }
        tally.verdict()
    })
}

fn number(e: &Entry, field: &str) -> Option<u64> {
    e.field(field)?.parse().ok()
}

/// A start that was asked for after a client was told Stopped is judged when it is accepted, or when its answer comes.
pub(super) fn start_from_stopped_is_accepted() -> Statement {
    Statement::new(|entries| {
        let mut tally = Tally::default();
        // By sandbox: the reply that reported Stopped; by the entry of a start's request: its sandbox and that reply.
        let (mut stopped, mut asked) = (BTreeMap::new(), BTreeMap::new());
        for e in entries {
            if let Some(name) = reported_stopped(e) {
                stopped.insert(name, e.id);
            } else if let Some(name) = accepted(e, &["start", "delete"]) {
                stopped.remove(name);
                // What its driver makes of it is no refusal.
                let open = asked.len();
                asked.retain(|_, (sandbox, _)| *sandbox != name);
                tally_if(&mut tally, asked.len() < open && e.field("op") == Some("start"));
            } else if e.kind == "op" && e.name == "start" {
                if let Some(sandbox) = e.field("sandbox")
                    && let Some(reported) = stopped.get(sandbox)
                {
                    asked.insert(e.id.to_string(), (sandbox, *reported));
                }
            } else if e.kind == "reply"
                && e.name == "start"
                && let Some((_, reported)) = e.field("asked").and_then(|a| asked.remove(a))
            {
                tally.judged();
                if let Err(why) = refusal("StartSandbox", e) {
                    tally.violated(e.id, why, [reported].into_iter().chain(e.cause));
                }
            }
        }
        tally.verdict()
    })
}

/// What a snapshot tells the gateway: conditions and the like, operation and phase of the marker.
type Said<'a> = [Option<&'a str>; 3];

/// I13. An older snapshot that says the same as the newest one is no step back: what moves the row is something else that has
/// changed meanwhile, as that its session is gone.
pub(super) fn causal_order() -> Statement {
    Statement::new(|entries| {
        let (mut tally, mut snapshots) = (Tally::default(), Snapshots::default());
        // By sandbox id: the highest version of the resource that reached the gateway, with what it said; and the one being
        // applied, if it is older and says something else.
        let mut newest: BTreeMap<&str, (u64, Said<'_>)> = BTreeMap::new();
        let mut older = None;
        for e in entries {
            if let Some(sent) = snapshots.received(e) {
                let version = sent.field("resource_version").and_then(|v| v.parse::<u64>().ok());
                let (Some(version), Some(id)) = (version, sent.field("sandbox_id")) else { continue };
                let said = ["says", "operation", "bootstrap_phase"].map(|field| sent.field(field));
                let known = newest.entry(id).or_insert((version, said));
                let is_same = said[0].is_some() && said == known.1;
                older = (version < known.0 && !is_same).then_some((id, sent.id));
                if version >= known.0 {
                    *known = (version, said);
                }
                tally.judged();
            } else if let Some(c) = Change::of(e)
                && c.by == "snapshot"
                && let Some((id, sent)) = older
                && e.field("sandbox_id") == Some(id)
            {
                let why = format!("a snapshot older than one before it moved {} {} -> {}", c.sandbox, c.old, c.new);
                tally.violated(e.id, why, [sent]);
            } else if says(e, "snapshot stream opened").is_some() {
                older = None;
            }
        }
        tally.verdict()
    })
}
