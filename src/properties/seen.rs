//! What must hold of what clients saw, and of the order in which snapshots took effect.

use std::collections::BTreeMap;

use photofinish::property::Tally;
use photofinish::temporal::Statement;

use super::{Change, Snapshots, accepted, says};

/// No Get, List or Watch shows Provisioning after Stopped without an accepted start in between.
pub(super) fn seen_stopped_stays() -> Statement {
    Statement::new(|entries| {
        let mut tally = Tally::default();
        let mut seen: BTreeMap<&str, u64> = BTreeMap::new();
        for e in entries {
            if let Some(name) = accepted(e, &["create", "start", "delete"]) {
                seen.remove(name);
                continue;
            }
            let shown = e.kind == "seen" || e.kind == "reply" && e.field("code") == Some("0");
            let (Some(name), Some(phase)) = (e.field("sandbox"), e.field("phase")) else { continue };
            if !shown {
                continue;
            }
            if phase == "Stopped" {
                seen.entry(name).or_insert(e.id);
                tally.judged();
            } else if phase == "Provisioning"
                && let Some(before) = seen.get(name)
            {
                let why =
                    format!("{} shows {name} Provisioning after it was seen Stopped, and nobody started it", e.name);
                tally.violated(e.id, why, [*before]);
            }
        }
        tally.verdict()
    })
}

/// I13.
pub(super) fn causal_order() -> Statement {
    Statement::new(|entries| {
        let (mut tally, mut snapshots) = (Tally::default(), Snapshots::default());
        // By sandbox id: the highest version of the resource that reached the gateway, and the one being applied, if older.
        let mut newest: BTreeMap<&str, u64> = BTreeMap::new();
        let mut older = None;
        for e in entries {
            if let Some(sent) = snapshots.received(e) {
                let version = sent.field("resource_version").and_then(|v| v.parse::<u64>().ok());
                let (Some(version), Some(id)) = (version, sent.field("sandbox_id")) else { continue };
                let known = newest.entry(id).or_insert(version);
                older = (version < *known).then_some((id, sent.id));
                *known = version.max(*known);
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
