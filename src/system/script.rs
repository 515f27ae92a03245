//! A drawn script: each step of it is a choice, so that it is swept, replayed, pinned and shrunk like any other.
//!
//! | key | values |
//! |---|---|
//! | `op/1`, `op/2` ... | what is done: `stop.demo`, `kubectl-delete.demo.workload`, `session-drop`, `none` ... |
//! | `when/2`, `when/3` ... | before it: `settled`, `at-once`, or after so many changes of rows and objects: `change.3` |
//!
//! Without a seed the script is the usual life: create, stop, start, and nothing more. What cannot be done (a start of a
//! sandbox that was never created) is asked all the same: that is what clients do.
use super::hands::{Deed, Kubectl};
use super::rig::Rig;
use super::state::Object;
use super::{SANDBOX, WORKSPACE};
use crate::client::Call;
use crate::pb::openshell::SandboxSpec;
use crate::properties::oracle;
use photofinish::scenario::yaml::Node;
use photofinish::scene::{Scene, StepError};
use photofinish::system::{Action, Parsed, Scope};
use std::fmt;
use std::time::Duration;

pub(super) const USAGE: &str = "script: {sandboxes: [NAME, ...], steps: COUNT}";

/// How long a script waits for sandboxes to come to rest before it goes on.
const PATIENCE: Duration = Duration::from_secs(60);
/// What is called at rest has been so for this long.
const QUIET: Duration = Duration::from_secs(2);
/// How long a machine is down that reboots.
const REBOOT: Duration = Duration::from_secs(10);
/// What a benign run does, sandbox 1 only.
const USUAL: [&str; 3] = ["create", "stop", "start"];
/// How often the usual step is drawn where the step before it in weight is 1.
const FIRST_IS_USUAL: u32 = 60;
/// How often nothing is done: what makes scripts shorter.
const NOTHING: u32 = 12;

/// One step.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Op {
    Nothing,
    /// A client's request: `create`, `start`, `stop`, `delete`.
    Ask(&'static str, String),
    /// The main process ends, with this code.
    Exit(String, i32),
    /// Somebody deletes an object.
    Kubectl(Object, String),
    /// All supervisors lose their connections.
    SessionDrop,
    /// The machine that sandboxes run on reboots; `true`: gateway and driver run on it, too.
    NodeLoss(bool),
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Op::Nothing => f.write_str("none"),
            Op::Ask(what, sandbox) => write!(f, "{what}.{sandbox}"),
            Op::Exit(sandbox, code) => write!(f, "exit.{sandbox}.{code}"),
            Op::Kubectl(object, sandbox) => write!(f, "kubectl-delete.{sandbox}.{}", object.word()),
            Op::SessionDrop => f.write_str("session-drop"),
            Op::NodeLoss(false) => f.write_str("node-loss"),
            Op::NodeLoss(true) => f.write_str("node-loss.with-gateway"),
        }
    }
}

/// All that a step may be, with weights: the usual one first.
fn ops(sandboxes: &[String], step: usize) -> Vec<(Op, u32)> {
    let mut all = vec![(Op::Nothing, NOTHING), (Op::SessionDrop, 4), (Op::NodeLoss(false), 2), (Op::NodeLoss(true), 2)];
    for (n, name) in sandboxes.iter().enumerate() {
        // Most scripts are about one sandbox: races are seldom between two.
        let part = if n == 0 { 4 } else { 1 };
        let asked = [("create", 2), ("start", 3), ("stop", 4), ("delete", 2)];
        all.extend(asked.map(|(what, weight)| (Op::Ask(what, name.clone()), weight * part)));
        all.extend([0, 1].map(|code| (Op::Exit(name.clone(), code), part / 2)));
        let objects = [Object::Workload, Object::Supervisor, Object::Resource];
        all.extend(objects.map(|object| (Op::Kubectl(object, name.clone()), part / 2)));
    }
    let usual = USUAL.get(step).zip(sandboxes.first()).map(|(what, name)| Op::Ask(what, name.clone()));
    let at = all.iter().position(|(op, _)| *op == usual.clone().unwrap_or(Op::Nothing)).unwrap_or(0);
    let (usual, weight) = all.remove(at);
    // A script that creates nothing first is about nothing.
    all.insert(0, (usual, if step == 0 { FIRST_IS_USUAL * 4 } else { weight }));
    all
}

/// What a step may wait for, with weights.
const WHENS: [(&str, u32); 6] =
    [("settled", 6), ("at-once", 2), ("change.1", 2), ("change.2", 1), ("change.4", 1), ("change.8", 1)];

#[derive(Debug)]
struct Script {
    sandboxes: Vec<String>,
    steps: usize,
}

/// `script: {sandboxes: [demo, other], steps: 8}`
pub(super) fn script(node: &Node, scope: &mut Scope<'_>) -> Parsed {
    let mut fields = node.fields(USAGE)?;
    let names = fields.required("sandboxes")?.list("a list of names")?.iter();
    let sandboxes = names.map(|name| scope.declare(SANDBOX, name)).collect::<Result<Vec<_>, _>>()?;
    let at = fields.required("steps")?;
    let steps = at.number("how many steps at most")? as usize;
    if steps == 0 || sandboxes.is_empty() {
        return Err(at.expected("at least one step, over at least one sandbox"));
    }
    fields.finish()?;
    Ok(Box::new(Script { sandboxes, steps }))
}

impl Action for Script {
    fn act(&self, scene: &mut Scene<'_>) -> Result<(), StepError> {
        for step in 0..self.steps {
            let ops = ops(&self.sandboxes, step);
            let words: Vec<String> = ops.iter().map(|(op, _)| op.to_string()).collect();
            let weighed: Vec<(&str, u32)> = words.iter().map(String::as_str).zip(ops.iter().map(|(_, w)| *w)).collect();
            let op = &ops[scene.choices().weigh(&format!("op/{}", step + 1), &weighed)].0;
            if *op == Op::Nothing {
                continue;
            }
            if step > 0 {
                let when = WHENS[scene.choices().weigh(&format!("when/{}", step + 1), &WHENS)].0;
                self.wait(scene, when)?;
            }
            let trace = scene.trace().clone();
            let word = op.to_string();
            let done = trace.entry("step", word.split('.').next().unwrap_or_default().to_owned());
            trace.set_ambient_cause(Some(done.host("world").text(format!("{}: {word}", step + 1)).record()));
            op.act(scene)?;
            trace.set_ambient_cause(None);
        }
        self.wait(scene, "settled")
    }
}

impl Script {
    fn wait(&self, scene: &mut Scene<'_>, when: &str) -> Result<(), StepError> {
        if let Some(count) = when.strip_prefix("change.") {
            let mut left: u32 = count.parse().unwrap_or(1);
            let from = scene.trace().len() as u64;
            scene.wait_for_entry(from, PATIENCE, |e| {
                let changed =
                    e.kind == oracle::STATE || e.kind == "log" && e.text.starts_with("Sandbox phase changed ");
                left -= u32::from(changed && left > 0);
                left == 0
            })?;
        } else if when == "settled" {
            scene.run_for(QUIET)?;
            let at_rest = |rig: &mut Rig| {
                let resting =
                    |phase: Option<&str>| matches!(phase, None | Some("Ready" | "Stopped" | "Completed" | "Error"));
                let answered = rig.client().unanswered().is_empty();
                answered && self.sandboxes.iter().all(|name| resting(rig.row(name).and_then(|r| r.phase.as_deref())))
            };
            scene.wait(PATIENCE, at_rest)?;
        }
        Ok(())
    }
}

impl Op {
    fn act(&self, scene: &mut Scene<'_>) -> Result<(), StepError> {
        match self {
            Op::Nothing => {}
            Op::Ask(what, sandbox) => {
                let call = match *what {
                    "create" => {
                        let spec = SandboxSpec {
                            command: vec!["sleep".to_owned(), "infinity".to_owned()],
                            workspace_volume: "1Gi".to_owned(),
                            ..SandboxSpec::default()
                        };
                        scene.live::<Rig>().specs.insert(sandbox.clone(), spec.clone());
                        Call::Create(spec)
                    }
                    "start" => Call::Start,
                    "stop" => Call::Stop,
                    _ => Call::Delete,
                };
                // Whatever is answered, and whether or not it is in time: `when` says how long the next step waits.
                scene.live::<Rig>().client().ask(sandbox, WORKSPACE, call);
            }
            Op::Exit(sandbox, code) => {
                let rig = scene.live::<Rig>();
                let id = rig.row(sandbox).filter(|row| row.phase.is_some()).map(|row| row.id.clone());
                if let Some(id) = id {
                    rig.exits().report(&id, *code);
                }
            }
            Op::Kubectl(object, sandbox) => {
                if object.of(scene.live(), sandbox).is_some() {
                    Kubectl { deed: Deed::Delete, object: *object, sandbox: sandbox.clone() }.act(scene)?;
                }
            }
            Op::SessionDrop => {
                for gateway in up(scene, &["gateway", "gateway-2"]) {
                    scene.world().reset(gateway, "supervisor")?;
                }
            }
            Op::NodeLoss(with_gateway) => reboot(scene, *with_gateway)?,
        }
        Ok(())
    }
}

/// Those of these hosts that there are.
fn up(scene: &mut Scene<'_>, hosts: &[&'static str]) -> Vec<&'static str> {
    hosts.iter().copied().filter(|host| scene.world().is_up(host).is_ok()).collect()
}

/// The node loses power and comes back: no container on it has survived, as its kubelet finds.
fn reboot(scene: &mut Scene<'_>, with_gateway: bool) -> Result<(), StepError> {
    let gateways = up(scene, &["gateway", "gateway-2"]);
    let mut lost = vec!["kubelet", "supervisor"];
    if with_gateway {
        lost.extend(up(scene, &["driver", "driver-2"]));
        lost.extend(&gateways);
    }
    for host in &lost {
        scene.world().power_off(host)?;
    }
    for gateway in gateways.iter().filter(|_| !with_gateway) {
        // What the gateway still holds of its sessions is answered with RST by the machine that has come back.
        scene.world().reset(gateway, "supervisor")?;
    }
    scene.run_for(REBOOT)?;
    for host in &lost {
        scene.world().start(host)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(step: usize) -> Vec<String> {
        let sandboxes = ["demo".to_owned(), "other".to_owned()];
        ops(&sandboxes, step).iter().map(|(op, _)| op.to_string()).collect()
    }

    #[test]
    fn without_a_seed_a_sandbox_is_created_stopped_and_started() {
        let usual: Vec<String> = (0..5).map(|step| names(step)[0].clone()).collect();
        assert_eq!(usual, ["create.demo", "stop.demo", "start.demo", "none", "none"]);
    }

    #[test]
    fn every_step_has_the_same_words_each_once() {
        let mut first = names(0);
        first.sort_unstable();
        for step in 1..8 {
            let mut all = names(step);
            all.sort_unstable();
            assert_eq!(all, first);
            all.dedup();
            assert_eq!(all.len(), first.len());
        }
        for word in ["delete.other", "exit.demo.1", "kubectl-delete.demo.resource", "node-loss.with-gateway"] {
            assert!(first.iter().any(|w| w == word), "{word}");
        }
    }
}
