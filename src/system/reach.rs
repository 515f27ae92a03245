//! A client that wants a sandbox in some phase and does what clients can: it asks, and waits, and asks otherwise.
use super::rig::Rig;
use super::verbs::request;
use super::{SANDBOX, WORKSPACE};
use crate::client::{Call, code_name};
use photofinish::mistake::Mistake;
use photofinish::scenario::yaml::Node;
use photofinish::scene::{Scene, StepError};
use photofinish::system::{Action, Parsed, Scope};
use std::time::Duration;

/// How long a client lets things take their course before it asks again.
const PATIENCE: Duration = Duration::from_secs(10);
/// After how many rounds it deletes what leads nowhere, if it may.
const ROUNDS: usize = 6;
/// How long it waits for one answer.
const ANSWER: Duration = Duration::from_secs(90);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Goal {
    Ready,
    Stopped,
    Gone,
}

#[derive(Debug)]
struct Reach {
    sandbox: String,
    goal: Goal,
    /// May the client delete it and begin anew?
    delete: bool,
    within: Duration,
}

/// `reach: {demo: Ready, within: 10m}`
pub(super) fn reach(node: &Node, scope: &mut Scope<'_>) -> Parsed {
    let usage = "{NAME: Ready | Stopped | gone, or: delete, within: 10m}";
    let (mut what, mut delete, mut within) = (None, false, Duration::from_secs(600));
    for (key, value) in node.entries(usage)? {
        match key.as_text() {
            Some("or") => delete = value.word("other way", ["delete"])? == "delete",
            Some("within") => within = value.duration()?,
            _ if what.is_none() => what = Some((scope.known(SANDBOX, key)?, goal(value)?)),
            _ => return Err(key.expected(usage)),
        }
    }
    let (sandbox, goal) = what.ok_or_else(|| node.expected(usage))?;
    Ok(Box::new(Reach { sandbox, goal, delete, within }))
}

fn goal(node: &Node) -> Result<Goal, Mistake> {
    Ok(match node.word("goal", ["Ready", "Stopped", "gone"])? {
        "Ready" => Goal::Ready,
        "Stopped" => Goal::Stopped,
        _ => Goal::Gone,
    })
}

impl Goal {
    fn is(self, phase: Option<&str>) -> bool {
        phase == self.phase()
    }
    /// The phase of the row; none: there is no row.
    fn phase(self) -> Option<&'static str> {
        match self {
            Goal::Ready => Some("Ready"),
            Goal::Stopped => Some("Stopped"),
            Goal::Gone => None,
        }
    }
    /// What a client may ask in this phase to come nearer, the best first; it takes the next one after a refusal.
    fn calls(self, phase: Option<&str>) -> &'static [&'static str] {
        match (self, phase) {
            (Goal::Gone, _) => &["delete"],
            (_, None) => &["create"],
            (_, Some("Deleting")) => &["delete"],
            (Goal::Ready, Some("Stopped" | "Completed")) => &["start"],
            (Goal::Ready, Some("Starting")) => &["start", "stop"],
            (Goal::Ready, Some("Error")) => &["start", "stop"],
            (_, _) => &["stop", "start"],
        }
    }
}

impl Action for Reach {
    fn act(&self, scene: &mut Scene<'_>) -> Result<(), StepError> {
        let Reach { sandbox, goal, delete, within } = self;
        let deadline = scene.now() + *within;
        let mut asked = Vec::new();
        loop {
            let there = |rig: &mut Rig| goal.is(rig.row(sandbox).and_then(|r| r.phase.as_deref()));
            if there(scene.live()) || scene.wait(PATIENCE, there)? {
                return Ok(());
            }
            let phase = scene.live::<Rig>().row(sandbox).and_then(|r| r.phase.clone());
            let calls = match *delete && phase.is_some() && asked.len() >= ROUNDS {
                true => &["delete"],
                false => goal.calls(phase.as_deref()),
            };
            if phase.is_none() {
                asked.clear();
            }
            let mut last = String::new();
            for name in calls {
                let spec = scene.live::<Rig>().specs.get(sandbox).cloned().unwrap_or_default();
                let call = match *name {
                    "create" => Call::Create(spec),
                    "delete" => Call::Delete,
                    "start" => Call::Start,
                    _ => Call::Stop,
                };
                let reply = match request(scene, sandbox, call, ANSWER) {
                    Err(StepError::Missed(why)) => {
                        last = why;
                        continue;
                    }
                    reply => reply?,
                };
                last = format!("{name} -> {}: {}", code_name(reply.code), reply.message);
                if reply.code == tonic::Code::Ok {
                    break;
                }
            }
            asked.push(last);
            if scene.now() >= deadline {
                let is = scene.live::<Rig>().phase(sandbox).to_owned();
                let goal = goal.phase().unwrap_or("gone");
                let tail = asked.iter().rev().take(3).rev().cloned().collect::<Vec<_>>().join("; ");
                return Err(StepError::Missed(format!(
                    "expected a way for {sandbox} of workspace {WORKSPACE} to {goal} within {within:?}, it is {is}; last asked: {tail}"
                )));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_knows_a_call_for_every_phase() {
        for goal in [Goal::Ready, Goal::Stopped, Goal::Gone] {
            for phase in ["Provisioning", "Ready", "Error", "Deleting", "Unknown", "Stopping", "Stopped", "Starting"] {
                assert!(!goal.calls(Some(phase)).is_empty(), "{goal:?} from {phase}");
            }
            assert!(!goal.calls(None).is_empty(), "{goal:?} from nothing");
        }
        assert_eq!(Goal::Ready.calls(Some("Stopped")), ["start"]);
        assert_eq!(Goal::Ready.calls(Some("Provisioning")), ["stop", "start"]);
    }
}
