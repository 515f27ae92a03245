//! What a reconcile decides, as pure functions of what it read: the next writes for the claims, the Pod and the
//! Service of a Sandbox. [`super::status`] holds the other half, the conditions.
//!
//! A pass asks in the order in which the controller writes: [`expiry`], [`claims`], [`pod`], [`service`], and the
//! status last.
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{
    PersistentVolumeClaim, PersistentVolumeClaimVolumeSource, Pod, PodSpec, Service, ServiceSpec, Volume,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

use super::profile::Profile;
use super::sandbox::{
    ADOPTABLE, Map, NAME_HASH, POD_NAME, PROPAGATED_ANNOTATIONS, PROPAGATED_LABELS, Sandbox, controller_of,
};
use super::status::READY;

/// The value of label `agents.x-k8s.io/sandbox-name-hash`: FNV-1a of the name, 32 bits, eight hex digits.
pub fn name_hash(name: &str) -> String {
    let hash = name.bytes().fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    format!("{hash:08x}")
}

/// Where a Sandbox stands with its shutdown time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expiry {
    /// It has none.
    Never,
    /// It expires after this long.
    In(Duration),
    /// It has expired and its status does not say so yet: that is written first.
    Unmarked,
    /// It has expired and says so: Pod and Service are deleted, and the Sandbox too if its policy is Delete.
    Marked,
}

/// Has the shutdown time come, and was that said?
pub fn expiry(sandbox: &Sandbox, now: Timestamp) -> Expiry {
    let Some(at) = &sandbox.spec.shutdown_time else { return Expiry::Never };
    match Duration::try_from(at.0.duration_since(now)) {
        Ok(left) if !left.is_zero() => Expiry::In(left),
        _ if sandbox.condition(READY).is_some_and(|c| c.reason == "SandboxExpired") => Expiry::Marked,
        _ => Expiry::Unmarked,
    }
}

/// Does the policy ask for the Sandbox itself to go when it has expired?
pub fn deleted_when_expired(sandbox: &Sandbox) -> bool {
    sandbox.spec.shutdown_policy.as_deref() == Some("Delete")
}

/// What a pass knows of the Pod when it comes to the status.
#[derive(Clone, Debug, PartialEq)]
pub enum PodState {
    /// There is none.
    Absent,
    /// This one, as the pass read it or as the API server answered its creation.
    Present(Arc<Pod>),
    /// The Sandbox is suspended, and a Pod that it does not own bears the name.
    Foreign,
    /// More than one Pod is owned; nothing is done until that is cleared up.
    Multiple(usize),
    /// The pass failed before it knew.
    Unknown,
}

/// One write for the Pod.
#[derive(Clone, Debug, PartialEq)]
pub enum PodStep {
    /// Set (`Some`) or take away (`None`) the annotation that names the tracked Pod.
    Track(Option<String>),
    /// Delete the Pod of this name, with its own grace period.
    Delete(String),
    /// Create this Pod; the answer is the Pod from here on.
    Create(Box<Pod>),
    /// Merge-patch the Pod of this name, so that the Sandbox owns it; the answer is the Pod from here on.
    Adopt(String, Value),
}

/// The writes for the Pod, in order, and what is known after them.
#[derive(Clone, Debug, PartialEq)]
pub struct PodPlan {
    /// The writes, in order.
    pub steps: Vec<PodStep>,
    /// What is known of the Pod; the answer of a `Create` or `Adopt` step takes its place.
    pub state: PodState,
}

/// Decides about the Pod, as this profile does. `pods` are those of the namespace that bear the hash label, or the tracked name, or the
/// Sandbox's own name, in name order. An error is a refusal in words, for the Ready condition.
pub fn pod(profile: Profile, sandbox: &Sandbox, pods: &[Arc<Pod>]) -> Result<PodPlan, String> {
    let owned: Vec<&Arc<Pod>> = pods.iter().filter(|pod| sandbox.controls(&pod.metadata)).collect();
    if owned.len() > 1 && profile.tells_pods_apart() {
        return Ok(PodPlan { steps: vec![], state: PodState::Multiple(owned.len()) });
    }
    let mut steps = Vec::new();
    let mut tracked = sandbox.tracked_pod();
    let named = |name: &str| pods.iter().find(|pod| pod.metadata.name.as_deref() == Some(name));
    if tracked.is_some_and(|name| named(name).is_none()) {
        steps.push(PodStep::Track(None));
        tracked = None;
    }
    // Of several the older versions know the one that they look up by name.
    let looked_up = |pod: &&&Arc<Pod>| pod.metadata.name.as_deref() == Some(tracked.unwrap_or(sandbox.name()));
    let owned = owned.iter().find(looked_up).or(owned.first()).map(|pod| Arc::clone(pod));
    let candidate = owned.clone().or_else(|| named(tracked.unwrap_or(sandbox.name())).cloned());

    if sandbox.suspended() {
        let state = match (owned, candidate) {
            (Some(pod), _) => {
                if pod.metadata.deletion_timestamp.is_none() {
                    steps.push(PodStep::Delete(pod_name(&pod)));
                }
                if profile.sees_the_ending_pod() {
                    return Ok(PodPlan { steps, state: PodState::Present(pod) });
                }
                PodState::Absent
            }
            (None, Some(_)) if profile.sees_the_ending_pod() => PodState::Foreign,
            (None, Some(_)) => PodState::Absent,
            (None, None) => PodState::Absent,
        };
        if tracked.is_some() {
            steps.push(PodStep::Track(None));
        }
        return Ok(PodPlan { steps, state });
    }

    let (name, state) = match candidate {
        Some(pod) => {
            if !sandbox.controls(&pod.metadata) {
                steps.push(PodStep::Adopt(pod_name(&pod), adoption(sandbox, &pod)?));
            }
            (pod_name(&pod), PodState::Present(pod))
        }
        None => {
            steps.push(PodStep::Create(Box::new(pod_of(sandbox)?)));
            (sandbox.name().to_owned(), PodState::Absent)
        }
    };
    if tracked != Some(name.as_str()) {
        steps.push(PodStep::Track(Some(name)));
    }
    Ok(PodPlan { steps, state })
}

fn pod_name(pod: &Pod) -> String {
    pod.metadata.name.clone().unwrap_or_default()
}

/// The patch that makes an ownerless Pod the Sandbox's, or why it may not be taken.
fn adoption(sandbox: &Sandbox, pod: &Pod) -> Result<Value, String> {
    let name = pod_name(pod);
    if let Some(owner) = controller_of(&pod.metadata) {
        return Err(format!("cannot adopt pod {name:?}: it is controlled by {} {:?}", owner.kind, owner.name));
    }
    let hash = name_hash(sandbox.name());
    let label = |key| pod.metadata.labels.as_ref().and_then(|labels| labels.get(key));
    if label(NAME_HASH) != Some(&hash) && label(ADOPTABLE).is_none() {
        return Err(format!(
            "cannot adopt unowned pod {name:?}: missing required pool authorization label ({ADOPTABLE:?}) \
             or sandbox tracking label ({NAME_HASH:?})"
        ));
    }
    let mut owners = pod.metadata.owner_references.clone().unwrap_or_default();
    owners.push(sandbox.owner_reference());
    Ok(json!({"metadata": {"labels": {NAME_HASH: hash}, "ownerReferences": owners}}))
}

/// The merge patch that sets or takes away the annotation of the tracked Pod, given the Sandbox's annotations.
///
/// It is the difference of the object before and after. So taking away the only annotation sends
/// `annotations: null`, and that also erases annotations that others added since the object was read.
pub fn track_patch(annotations: Option<&Map>, to: Option<&str>) -> Value {
    match to {
        Some(name) => json!({"metadata": {"annotations": {POD_NAME: name}}}),
        None if annotations.is_some_and(|map| map.keys().any(|key| key != POD_NAME)) => {
            json!({"metadata": {"annotations": {POD_NAME: null}}})
        }
        None => json!({"metadata": {"annotations": null}}),
    }
}

/// The Pod of a Sandbox, from its template as it stands now.
fn pod_of(sandbox: &Sandbox) -> Result<Pod, String> {
    let template = &sandbox.spec.pod_template;
    let mut labels = template.metadata.labels.clone();
    labels.insert(NAME_HASH.into(), name_hash(sandbox.name()));
    let mut annotations = template.metadata.annotations.clone();
    for (key, from) in
        [(PROPAGATED_LABELS, &template.metadata.labels), (PROPAGATED_ANNOTATIONS, &template.metadata.annotations)]
    {
        if !from.is_empty() {
            annotations.insert(key.into(), from.keys().cloned().collect::<Vec<_>>().join(","));
        }
    }
    let mut spec: PodSpec = serde_json::from_value(template.spec.clone())
        .map_err(|e| format!("spec.podTemplate.spec is no pod spec: {e}"))?;
    for claim in &sandbox.spec.volume_claim_templates {
        let name = claim.metadata.name.clone().unwrap_or_default();
        let volumes = spec.volumes.get_or_insert_default();
        volumes.retain(|volume| volume.name != name);
        let claim_name = claim_name(&name, sandbox);
        let source = PersistentVolumeClaimVolumeSource { claim_name, read_only: None };
        volumes.push(Volume { name, persistent_volume_claim: Some(source), ..Volume::default() });
    }
    Ok(Pod {
        metadata: owned_meta(sandbox, sandbox.name().into(), labels, annotations),
        spec: Some(spec),
        status: None,
    })
}

fn owned_meta(sandbox: &Sandbox, name: String, labels: Map, annotations: Map) -> ObjectMeta {
    ObjectMeta {
        name: Some(name),
        namespace: Some(sandbox.namespace().into()),
        labels: Some(labels),
        annotations: (!annotations.is_empty()).then_some(annotations),
        owner_references: Some(vec![sandbox.owner_reference()]),
        ..ObjectMeta::default()
    }
}

fn claim_name(template: &str, sandbox: &Sandbox) -> String {
    format!("{template}-{}", sandbox.name())
}

/// The claims that are missing, given which names exist.
pub fn claims(sandbox: &Sandbox, exists: impl Fn(&str) -> bool) -> Result<Vec<PersistentVolumeClaim>, String> {
    let mut missing = Vec::new();
    for template in &sandbox.spec.volume_claim_templates {
        let volume = template.metadata.name.as_deref().unwrap_or_default();
        let name = claim_name(volume, sandbox);
        if exists(&name) {
            continue;
        }
        let mut labels = template.metadata.labels.clone();
        labels.insert(NAME_HASH.into(), name_hash(sandbox.name()));
        missing.push(PersistentVolumeClaim {
            metadata: owned_meta(sandbox, name, labels, template.metadata.annotations.clone()),
            spec: serde_json::from_value(template.spec.clone())
                .map_err(|e| format!("volumeClaimTemplates {volume:?}: spec is no claim spec: {e}"))?,
            status: None,
        });
    }
    Ok(missing)
}

/// Does the Sandbox want a Service of its name?
pub fn wants_service(sandbox: &Sandbox) -> bool {
    sandbox.spec.service == Some(true)
}

/// The Service to create, if one is wanted and none is there; an error if the name is taken.
pub fn service(sandbox: &Sandbox, present: Option<&Service>) -> Result<Option<Service>, String> {
    if !wants_service(sandbox) {
        return Ok(None);
    }
    match present {
        Some(service) if sandbox.controls(&service.metadata) => Ok(None),
        Some(_) => Err(format!("service {:?} exists and is not controlled by this sandbox", sandbox.name())),
        None => {
            let hash = Map::from([(NAME_HASH.to_owned(), name_hash(sandbox.name()))]);
            Ok(Some(Service {
                metadata: owned_meta(sandbox, sandbox.name().into(), hash.clone(), Map::new()),
                spec: Some(ServiceSpec {
                    cluster_ip: Some("None".into()),
                    selector: Some(hash),
                    ..ServiceSpec::default()
                }),
                status: None,
            }))
        }
    }
}

#[cfg(test)]
mod tests;
