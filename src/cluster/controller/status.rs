//! The status of a Sandbox as a pure function of what a pass found: conditions, their order, and when it is written.
use k8s_openapi::api::core::v1::{Pod, PodCondition};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use k8s_openapi::jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::profile::Profile;
use super::rules::{PodState, name_hash, wants_service};
use super::sandbox::{NAME_HASH, Sandbox, SandboxStatus};

/// Type of the condition that says whether the Sandbox is usable.
pub const READY: &str = "Ready";
const SUSPENDED: &str = "Suspended";
const POD_SCHEDULED: &str = "PodScheduled";
const FINISHED: &str = "Finished";

/// What a pass found, when it comes to the status.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// The Pod.
    pub pod: PodState,
    /// Whether the Service of the Sandbox exists.
    pub service: bool,
    /// Why the pass could not go on, in words.
    pub error: Option<String>,
}

/// The status after a pass of this profile that read `sandbox` and found `outcome`.
///
/// Conditions carry the generation of the Sandbox that was read, which may be older than the stored one. A condition's
/// transition time moves only when its status does; a new type goes behind those that are there.
pub fn status(profile: Profile, sandbox: &Sandbox, outcome: &Outcome, now: Timestamp) -> SandboxStatus {
    let mut status = sandbox.status.clone().unwrap_or_default();
    if outcome.error.is_none() {
        let service = wants_service(sandbox).then(|| sandbox.name().to_owned());
        status.selector = Some(format!("{NAME_HASH}={}", name_hash(sandbox.name())));
        status.service_fqdn = service.as_ref().map(|name| format!("{name}.{}.svc.cluster.local", sandbox.namespace()));
        status.service = service;
    }
    match &outcome.pod {
        PodState::Present(pod) => {
            match profile.counts_replicas() {
                true => status.replicas = Some(1),
                false => status.node_name = pod.spec.as_ref().and_then(|spec| spec.node_name.clone()),
            }
            status.pod_ips = pod_ips(pod);
        }
        PodState::Absent | PodState::Foreign => {
            status.replicas = None;
            status.node_name = None;
            status.pod_ips = vec![];
        }
        PodState::Multiple(_) | PodState::Unknown => {}
    }
    let mut write = Writer { conditions: &mut status.conditions, generation: sandbox.metadata.generation, now };
    let suspended = suspended(profile, sandbox, outcome);
    let at_rest = suspended.as_ref().is_some_and(|said| said.status == "True");
    if let Some(suspended) = suspended {
        write.set(SUSPENDED, suspended);
    }
    if profile.mirrors_scheduling() {
        write.set_or_remove(POD_SCHEDULED, pod_scheduled(&outcome.pod));
    }
    write.set(READY, ready(profile, sandbox, outcome, at_rest));
    write.set_or_remove(FINISHED, finished(&outcome.pod));
    status
}

/// The status of an expired Sandbox, first write: the rest stays as it was.
pub fn expired(sandbox: &Sandbox, now: Timestamp) -> SandboxStatus {
    let mut status = sandbox.status.clone().unwrap_or_default();
    let mut write = Writer { conditions: &mut status.conditions, generation: sandbox.metadata.generation, now };
    write.set(READY, Said::new("False", "SandboxExpired", "Sandbox has expired"));
    write.set_or_remove(POD_SCHEDULED, None);
    status
}

/// The status of an expired Sandbox that is kept, once its Pod and Service are deleted: the conditions alone.
pub fn expired_and_cleaned(sandbox: &Sandbox) -> SandboxStatus {
    let conditions = sandbox.status.as_ref().map(|status| status.conditions.clone()).unwrap_or_default();
    SandboxStatus { conditions, ..SandboxStatus::default() }
}

/// The merge patch of the status subresource that turns `old` into `new`; none if there is nothing worth a write.
///
/// It carries no resourceVersion: what a pass concluded from a stale cache is written through and corrected by a later
/// pass. A change of the node's name alone waits until the Sandbox is Ready.
pub fn patch(old: &SandboxStatus, new: &SandboxStatus) -> Option<Value> {
    let fields = |status: &SandboxStatus| match serde_json::to_value(status) {
        Ok(Value::Object(fields)) => fields,
        other => unreachable!("a status is an object of plain fields: {other:?}"),
    };
    let (old, new_fields) = (fields(old), fields(new));
    let mut changed = Map::new();
    for key in old.keys().chain(new_fields.keys()) {
        if old.get(key) != new_fields.get(key) {
            changed.insert(key.clone(), new_fields.get(key).cloned().unwrap_or(Value::Null));
        }
    }
    let ready = new.conditions.iter().any(|c| c.type_ == READY && c.status == "True");
    let node_alone = changed.len() == 1 && changed.contains_key("nodeName");
    if changed.is_empty() || node_alone && !ready {
        return None;
    }
    Some(json!({"status": changed}))
}

/// Status, reason and message of a condition to be.
#[derive(Clone, Debug, PartialEq)]
struct Said {
    status: String,
    reason: String,
    message: String,
}

impl Said {
    fn new(status: &str, reason: &str, message: impl Into<String>) -> Self {
        Said { status: status.into(), reason: reason.into(), message: message.into() }
    }
}

struct Writer<'a> {
    conditions: &'a mut Vec<Condition>,
    generation: Option<i64>,
    now: Timestamp,
}

impl Writer<'_> {
    fn set(&mut self, kind: &str, said: Said) {
        let at = self.conditions.iter().position(|c| c.type_ == kind);
        let kept = at.filter(|at| self.conditions[*at].status == said.status);
        let last_transition_time = match kept {
            Some(at) => self.conditions[at].last_transition_time.clone(),
            None => Time(whole_second(self.now)),
        };
        let condition = Condition {
            last_transition_time,
            message: said.message,
            observed_generation: self.generation,
            reason: said.reason,
            status: said.status,
            type_: kind.into(),
        };
        match at {
            Some(at) => self.conditions[at] = condition,
            None => self.conditions.push(condition),
        }
    }
    fn set_or_remove(&mut self, kind: &str, said: Option<Said>) {
        match said {
            Some(said) => self.set(kind, said),
            None => self.conditions.retain(|c| c.type_ != kind),
        }
    }
}

/// Condition times are stored to the second, so that is how they are compared.
fn whole_second(at: Timestamp) -> Timestamp {
    Timestamp::from_second(at.as_second()).unwrap_or(at)
}

/// What is said of Suspended; none leaves the condition as it is.
fn suspended(profile: Profile, sandbox: &Sandbox, outcome: &Outcome) -> Option<Said> {
    if !sandbox.suspended() {
        return profile.says_not_suspended().then(|| Said::new("False", "NotSuspended", "Sandbox is not suspended"));
    }
    if !profile.says_suspended() {
        return None;
    }
    // An older version knows no Pod that ends, and no trouble with it.
    let pod = if profile.sees_the_ending_pod() { &outcome.pod } else { &PodState::Absent };
    Some(match pod {
        PodState::Present(_) => Said::new("False", "PodTerminating", "Pod is terminating. Sandbox is suspending"),
        PodState::Absent => Said::new("True", "PodTerminated", "Pod has been terminated. Sandbox is suspended"),
        PodState::Foreign => Said::new("False", "PodNotOwned", "A pod of this name belongs to someone else"),
        PodState::Multiple(_) | PodState::Unknown => {
            Said::new("Unknown", "PodStateUnknown", "State of the pod could not be read")
        }
    })
}

/// The Pod's own condition, mirrored; none without a Pod.
fn pod_scheduled(pod: &PodState) -> Option<Said> {
    let pod = match pod {
        PodState::Present(pod) => pod,
        PodState::Absent | PodState::Foreign => return None,
        PodState::Multiple(_) | PodState::Unknown => {
            let message = "Pod state is unknown. Pod scheduling cannot be determined";
            return Some(Said::new("Unknown", "PodSchedulingUnknown", message));
        }
    };
    Some(match pod_condition(pod, POD_SCHEDULED) {
        Some(seen) => Said {
            status: seen.status.clone(),
            reason: seen.reason.clone().filter(|r| !r.is_empty()).unwrap_or_else(|| POD_SCHEDULED.into()),
            message: seen.message.clone().unwrap_or_default(),
        },
        None => {
            let message = "Pod has not reported a PodScheduled condition yet";
            Said::new("Unknown", "PodSchedulingUnknown", message)
        }
    })
}

fn ready(profile: Profile, sandbox: &Sandbox, outcome: &Outcome, at_rest: bool) -> Said {
    if let Some(error) = &outcome.error {
        return Said::new("False", "ReconcilerError", format!("Error seen: {error}"));
    }
    if let PodState::Multiple(count) = outcome.pod {
        return Said::new("False", "MultiplePods", format!("{count} pods belong to this sandbox, expected one"));
    }
    if sandbox.suspended() && !profile.is_ready_when_off() {
        let message = if at_rest { "Sandbox is suspended" } else { "Sandbox is suspending" };
        return Said::new("False", "SandboxSuspended", message);
    }
    if let Some(end) = finished(&outcome.pod).filter(|_| profile.tells_pods_apart()) {
        return Said::new("False", &end.reason, end.message);
    }
    let (pod_ready, pod) = match sandbox.suspended() {
        true => (true, "Pod is not wanted".to_owned()),
        false => pod_readiness(&outcome.pod),
    };
    let (service_ready, service) = match (wants_service(sandbox), outcome.service) {
        (false, _) => (true, ""),
        (true, true) => (true, "; Service Exists"),
        (true, false) => (false, "; Service does not exist"),
    };
    let message = format!("{pod}{service}");
    match pod_ready && service_ready {
        true => Said::new("True", "DependenciesReady", message),
        false => Said::new("False", "DependenciesNotReady", message),
    }
}

/// Ready = Running, its own Ready condition True, and an address. A deletion timestamp does not matter.
fn pod_readiness(pod: &PodState) -> (bool, String) {
    let PodState::Present(pod) = pod else { return (false, "Pod does not exist".into()) };
    let ready = pod_condition(pod, READY).is_some_and(|c| c.status == "True");
    match (phase(pod), ready, pod_ips(pod).is_empty()) {
        ("Running", true, false) => (true, "Pod is Ready".into()),
        ("Running", true, true) => (false, "Pod is Ready but has no IP".into()),
        ("Running", false, _) => (false, "Pod is Running but not Ready".into()),
        (phase, ..) => (false, format!("Pod exists with phase: {phase}")),
    }
}

fn finished(pod: &PodState) -> Option<Said> {
    let PodState::Present(pod) = pod else { return None };
    match phase(pod) {
        "Succeeded" => Some(Said::new("True", "PodSucceeded", "Pod succeeded")),
        "Failed" => Some(Said::new("True", "PodFailed", "Pod failed")),
        _ => None,
    }
}

fn phase(pod: &Pod) -> &str {
    pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or("Pending")
}

fn pod_condition<'a>(pod: &'a Pod, kind: &str) -> Option<&'a PodCondition> {
    pod.status.as_ref()?.conditions.iter().flatten().find(|c| c.type_ == kind)
}

fn pod_ips(pod: &Pod) -> Vec<String> {
    let Some(status) = &pod.status else { return vec![] };
    let ips: Vec<String> = status.pod_ips.iter().flatten().map(|ip| ip.ip.clone()).collect();
    if ips.is_empty() { status.pod_ip.iter().cloned().collect() } else { ips }
}

#[cfg(test)]
mod by_version;
#[cfg(test)]
mod tests;
