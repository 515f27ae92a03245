//! What somebody does by hand: to objects of the cluster, as with kubectl, and to the gateway's row, as with SQL.
use super::rig::Rig;
use super::state::Object;
use super::{SANDBOX, phase_named};
use crate::driver;
use crate::gateway::phases::phase_name;
use crate::gateway::record::Row;
use crate::pb::openshell::SandboxPhase;
use k8s_openapi::jiff::Timestamp;
use photofinish::scenario::yaml::Node;
use photofinish::scene::{Scene, StepError};
use photofinish::system::{Action, Parsed, Scope};
use serde_json::{Value, json};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Deed {
    /// As `kubectl delete`: a bound Pod gets its grace period, all else is gone at once.
    Delete,
    /// The containers of a Pod have ended and its kubelet says so, as after a reboot.
    Fail,
    /// A spec that is not what its owner made.
    Alter,
    /// Back to what its owner made.
    Mend,
    /// The run switch of the resource goes off.
    SwitchOff,
}

const DEEDS: [(&str, Deed); 5] = [
    ("delete", Deed::Delete),
    ("fail", Deed::Fail),
    ("alter", Deed::Alter),
    ("mend", Deed::Mend),
    ("switch-off", Deed::SwitchOff),
];

#[derive(Debug)]
pub(super) struct Kubectl {
    pub(super) deed: Deed,
    pub(super) object: Object,
    pub(super) sandbox: String,
}

pub(super) const USAGE: &str = "kubectl: {delete | fail | alter | mend | switch-off: workload | supervisor | service | fence | resource, of: NAME}";

/// `kubectl: {delete: workload, of: demo}`
pub(super) fn kubectl(node: &Node, scope: &mut Scope<'_>) -> Parsed {
    let mut fields = node.fields(USAGE)?;
    let mut found = None;
    for (word, deed) in DEEDS {
        if let Some(at) = fields.optional(word) {
            found = Some((deed, at));
        }
    }
    let sandbox = scope.known(SANDBOX, fields.required("of")?)?;
    fields.finish()?;
    let (deed, at) = found.ok_or_else(|| node.expected(USAGE))?;
    let allowed: &[Object] = match deed {
        Deed::Delete => &[Object::Workload, Object::Supervisor, Object::Service, Object::Fence, Object::Resource],
        Deed::Fail => &[Object::Workload, Object::Supervisor],
        Deed::Alter | Deed::Mend => &[Object::Fence],
        Deed::SwitchOff => &[Object::Resource],
    };
    let words = Object::WORDS.iter().filter(|(_, o)| allowed.contains(o)).map(|(word, _)| *word);
    let word = at.word("object", words)?;
    let object = Object::WORDS.iter().find(|(w, _)| *w == word).expect("word() gives one of them").1;
    Ok(Box::new(Kubectl { deed, object, sandbox }))
}

impl Action for Kubectl {
    fn act(&self, scene: &mut Scene<'_>) -> Result<(), StepError> {
        let rig = scene.live::<Rig>();
        let object = self.object.of(rig, &self.sandbox);
        let mut object = object.ok_or_else(|| StepError::impossible(format!("{self:?}: there is no such object")))?;
        let writer = match rig.api() {
            Some(api) => api.as_writer(if self.deed == Deed::Fail { "kubelet" } else { "kubectl" }),
            None => return Err(StepError::impossible("kubectl needs a cluster: driver: real")),
        };
        let now = Timestamp::from_second(driver::now_ms() / 1000).map_err(|e| StepError::Impossible(e.into()))?;
        let gone = match self.deed {
            Deed::Delete => {
                let bound = object["spec"]["nodeName"].is_string() && object["kind"] == "Pod";
                if bound && object["metadata"]["deletionTimestamp"].is_null() {
                    let grace = object["spec"]["terminationGracePeriodSeconds"].as_i64().unwrap_or(30);
                    object["metadata"]["deletionTimestamp"] = now.to_string().into();
                    object["metadata"]["deletionGracePeriodSeconds"] = grace.into();
                }
                !bound
            }
            Deed::Fail => {
                fail(&mut object);
                false
            }
            Deed::Alter => {
                object["spec"]["policyTypes"] = json!(["Ingress"]);
                next_generation(&mut object);
                false
            }
            Deed::Mend => {
                object["spec"]["policyTypes"] = json!(["Ingress", "Egress"]);
                next_generation(&mut object);
                false
            }
            Deed::SwitchOff => {
                match object["spec"]["replicas"].is_null() {
                    true => object["spec"]["operatingMode"] = "Suspended".into(),
                    false => object["spec"]["replicas"] = 0.into(),
                }
                next_generation(&mut object);
                false
            }
        };
        let written = if gone { writer.delete(&object) } else { writer.put(object) };
        written.map(drop).map_err(|e| StepError::Impossible(e.into()))
    }
}

/// What a kubelet says of a Pod whose containers have ended.
fn fail(pod: &mut Value) {
    pod["status"]["phase"] = "Failed".into();
    for condition in pod["status"]["conditions"].as_array_mut().into_iter().flatten() {
        if matches!(condition["type"].as_str(), Some("Ready" | "ContainersReady")) {
            condition["status"] = "False".into();
        }
    }
}

fn next_generation(object: &mut Value) {
    object["metadata"]["generation"] = (object["metadata"]["generation"].as_i64().unwrap_or_default() + 1).into();
}

/// `database: busy`
#[derive(Debug)]
struct Database(bool);

pub(super) fn database(node: &Node, _: &mut Scope<'_>) -> Parsed {
    Ok(Box::new(Database(node.word("state", ["busy", "free"])? == "busy")))
}

impl Action for Database {
    fn act(&self, scene: &mut Scene<'_>) -> Result<(), StepError> {
        let statement = if self.0 { "BEGIN IMMEDIATE" } else { "ROLLBACK" };
        scene.live::<Rig>().lock_database(statement).map_err(StepError::Impossible)
    }
}

#[derive(Debug)]
struct SetPhase {
    sandbox: String,
    phase: SandboxPhase,
}

/// `set-phase: {demo: Stopped}`
pub(super) fn set_phase(node: &Node, scope: &mut Scope<'_>) -> Parsed {
    let (name, phase) = node.entry("{NAME: PHASE}")?;
    let sandbox = scope.known(SANDBOX, name)?;
    let phases = (1..10).filter_map(|n| SandboxPhase::try_from(n).ok()).map(phase_name);
    let phase = phase_named(phase.word("phase", phases)?).expect("word() gives one of them");
    Ok(Box::new(SetPhase { sandbox, phase }))
}

impl Action for SetPhase {
    fn act(&self, scene: &mut Scene<'_>) -> Result<(), StepError> {
        let trace = scene.trace().clone();
        let rig = scene.live::<Rig>();
        let (id, version, old) = match rig.stored(&self.sandbox) {
            Some(row) => (row.id().to_owned(), row.version(), row.phase()),
            None => return Err(StepError::impossible(format!("the gateway has no row of {}", self.sandbox))),
        };
        let change = |row: &mut crate::pb::openshell::Sandbox| row.status_mut().set_phase(self.phase);
        rig.database()
            .compare_and_swap("by hand", &id, version, driver::now_ms(), change)
            .map_err(|e| StepError::Impossible(e.into()))?;
        let (old, new) = (phase_name(old), phase_name(self.phase));
        // As the gateway would have said it: the row's phase is read from its log.
        trace
            .entry("log", "info")
            .host("gateway")
            .text(format!("Sandbox phase changed old_phase={old} new_phase={new} by=hand"))
            .field("old_phase", old)
            .field("new_phase", new)
            .field("sandbox_id", id)
            .field("sandbox_name", &self.sandbox)
            .field("by", "hand")
            .record();
        Ok(())
    }
}
