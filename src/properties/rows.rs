//! What must hold of the gateway's rows: sessions behind Ready, a way out of every phase, an end of every wait.

use photofinish::property::Tally;
use photofinish::temporal::Statement;

use super::facts::{Facts, News, Obligations, seconds};
use super::{Change, accepted};

/// A sweep, the owner row of a lost session, and some.
const NOTICED: u64 = seconds(120);
/// Three sweeps: what they all leave as it is, nothing will change.
const THREE_SWEEPS: u64 = seconds(190);
/// A provisioning deadline of 300 s, a sweep, and a driver call that takes its time.
const LONGEST_WAIT: u64 = seconds(480);

/// I5.
pub(super) fn ready_has_a_session() -> Statement {
    Statement::new(|entries| {
        let (mut tally, mut facts, mut owed) = (Tally::default(), Facts::default(), Obligations::default());
        for e in entries {
            owed.check(e, &mut tally);
            let told_to_stop = Change::of(e).is_some_and(|c| {
                e.field("sandbox_id").and_then(|id| facts.rows.get(id)).is_some_and(|r| r.told_to_stop)
                    && c.by != "recovery"
            });
            let News::Of(id) = facts.note(e) else { continue };
            let session = facts.has_session(id, e.at_ns);
            if let Some(c) = Change::of(e).filter(|c| c.new == "Ready") {
                tally.judged();
                if told_to_stop {
                    tally.violated(e.id, format!("{} became Ready after its stop was accepted", c.sandbox), e.cause);
                }
                if !session && matches!(c.by, "snapshot" | "live" | "sweep") {
                    let why = format!("{} became Ready without a session of its supervisor", c.sandbox);
                    tally.violated(e.id, why, e.cause);
                }
            }
            let Some(row) = facts.rows.get(id) else {
                owed.restart(id);
                continue;
            };
            let alone = row.phase == "Ready" && !session;
            owed.owe(id, alone, e, NOTICED, || format!("{} stays Ready, but its supervisor has no session", row.name));
        }
        tally.verdict()
    })
}

/// I7.
pub(super) fn nothing_waits_for_ever() -> Statement {
    Statement::new(|entries| {
        let (mut tally, mut facts, mut owed) = (Tally::default(), Facts::default(), Obligations::default());
        for e in entries {
            owed.check(e, &mut tally);
            let News::Of(id) = facts.note(e) else { continue };
            if accepted(e, &["start", "stop"]).is_some() {
                owed.restart(id);
            }
            let Some(row) = facts.rows.get(id) else {
                owed.restart(id);
                continue;
            };
            let waits = matches!(row.phase, "Provisioning" | "Starting" | "Stopping");
            if waits {
                tally.judged();
            }
            owed.owe(id, waits, e, LONGEST_WAIT, || format!("{} has waited for 480 s ({})", row.name, row.phase));
        }
        tally.verdict()
    })
}

/// I8.
pub(super) fn no_dead_end() -> Statement {
    Statement::new(|entries| {
        let (mut tally, mut facts) = (Tally::default(), Facts::default());
        // Nothing will move it: an Error is sticky, and an empty backend tells nothing new. Else it is only slow.
        let (mut dead, mut slow) = (Obligations::default(), Obligations::default());
        for e in entries {
            dead.check(e, &mut tally);
            slow.check(e, &mut tally);
            let News::Of(id) = facts.note(e) else { continue };
            let Some(row) = facts.rows.get(id) else {
                dead.restart(id);
                slow.restart(id);
                continue;
            };
            tally.judged();
            // Nothing can be started before they have ended, and only their node can say that they have.
            let ends = row.phase == "Error" && facts.pods(id).any(|pod| pod.ending);
            let closed = row.admits.is_empty() && !matches!(row.phase, "Deleting" | "") && !row.deadline_armed && !ends;
            let empty = facts.is_off_and_empty(id);
            let why = || match empty {
                true => format!(
                    "{} is {} over an empty backend, and neither start nor stop is admitted",
                    row.name, row.phase
                ),
                false => format!("{} is {}, and neither start nor stop is admitted", row.name, row.phase),
            };
            dead.owe(id, closed && (empty || row.phase == "Error"), e, THREE_SWEEPS, why);
            slow.owe(id, closed, e, LONGEST_WAIT, why);
        }
        tally.verdict()
    })
}

/// I10.
pub(super) fn deleting_is_final() -> Statement {
    Statement::new(|entries| {
        let (mut tally, mut facts, mut owed) = (Tally::default(), Facts::default(), Obligations::default());
        for e in entries {
            owed.check(e, &mut tally);
            if let Some(c) = Change::of(e).filter(|c| c.old == "Deleting" && c.by != "recovery") {
                let why = format!("{} was being deleted and is {} again (by {})", c.sandbox, c.new, c.by);
                tally.violated(e.id, why, e.cause);
            }
            let News::Of(id) = facts.note(e) else { continue };
            let Some(row) = facts.rows.get(id) else {
                owed.restart(id);
                continue;
            };
            let deleting = row.phase == "Deleting";
            if deleting {
                tally.judged();
            }
            owed.owe(id, deleting, e, LONGEST_WAIT, || format!("{} is still being deleted after 480 s", row.name));
        }
        tally.verdict()
    })
}
