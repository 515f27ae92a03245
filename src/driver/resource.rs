//! The Sandbox resource as the driver reads it: one view over `v1alpha1` and `v1beta1`.
//!
//! The view holds only what the driver decides on. What it does not name (containers, volumes, ...) is skipped while a
//! response is parsed, and never written back: all writes are merge patches.
use super::names;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::ApiResource;
use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer};
use std::borrow::Cow;

/// A served version of the Sandbox API.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SandboxVersion {
    /// `v1alpha1`: the run switch is `spec.replicas`, 0 or 1.
    V1alpha1,
    /// `v1beta1`: the run switch is `spec.operatingMode`, Running or Suspended.
    V1beta1,
}

impl SandboxVersion {
    /// As it stands in paths and in `apiVersion`.
    pub fn as_str(self) -> &'static str {
        match self {
            SandboxVersion::V1alpha1 => "v1alpha1",
            SandboxVersion::V1beta1 => "v1beta1",
        }
    }
    /// Group and version, as in `apiVersion`.
    pub fn api_version(self) -> String {
        format!("{}/{}", names::SANDBOX_GROUP, self.as_str())
    }
    /// What `kube`'s dynamic API needs to know.
    pub fn api_resource(self) -> ApiResource {
        ApiResource {
            group: names::SANDBOX_GROUP.into(),
            version: self.as_str().into(),
            api_version: self.api_version(),
            kind: "Sandbox".into(),
            plural: "sandboxes".into(),
        }
    }
    /// The spec field and value that turn the workload on or off.
    pub fn run_switch(self, run: bool) -> (&'static str, serde_json::Value) {
        match (self, run) {
            (SandboxVersion::V1alpha1, run) => ("replicas", i32::from(run).into()),
            (SandboxVersion::V1beta1, true) => ("operatingMode", "Running".into()),
            (SandboxVersion::V1beta1, false) => ("operatingMode", "Suspended".into()),
        }
    }
}

/// An object as the driver reads it: metadata, and of spec and status what `P` and `U` name.
///
/// Leaner than `kube`'s `Object`: nothing is flattened, so that a response is parsed in one pass.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(bound(deserialize = "P: Deserialize<'de> + Default, U: Deserialize<'de>"))]
pub struct View<P, U> {
    /// Metadata.
    pub metadata: ObjectMeta,
    /// What is wanted.
    #[serde(default)]
    pub spec: P,
    /// What was seen; absent until somebody writes it.
    #[serde(default = "Option::default")]
    pub status: Option<U>,
}

/// A Sandbox resource, of either version.
pub type Sandbox = View<SandboxSpec, SandboxStatus>;
/// A Pod.
pub type Pod = View<PodSpec, PodStatus>;
/// A Namespace.
pub type Namespace = View<IgnoredAny, NamespaceStatus>;
/// A NetworkPolicy; its spec is compared as a whole.
pub type NetworkPolicy = View<serde_json::Value, IgnoredAny>;
/// An object of which only the metadata matters.
pub type Metadata = View<IgnoredAny, IgnoredAny>;

/// The part of the spec that the driver decides on.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SandboxSpec {
    /// `v1beta1`: Running or Suspended.
    pub operating_mode: Option<String>,
    /// `v1alpha1`: 0 or 1; absent means 1.
    pub replicas: Option<i64>,
    /// Template of the workload Pod.
    pub pod_template: PodTemplate,
}

/// A Pod template, as far as the driver reads it.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct PodTemplate {
    /// Spec of the Pod.
    pub spec: PodTemplateSpec,
}

/// A Pod template's spec, as far as the driver reads it.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodTemplateSpec {
    /// Seconds that the Pod may take to end; absent means 30.
    pub termination_grace_period_seconds: Option<u64>,
}

/// The status, as far as the driver reads it.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SandboxStatus {
    /// Conditions of the controller.
    pub conditions: Vec<Condition>,
    /// Instance id; no controller of agent-sandbox writes it.
    pub agent_pod: String,
}

/// A status condition.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Condition {
    /// Ready, Suspended, ...
    #[serde(rename = "type")]
    pub type_: String,
    /// True, False or Unknown.
    pub status: String,
    /// One word.
    pub reason: String,
    /// One sentence.
    pub message: String,
    /// RFC 3339; null in a condition whose writer did not say.
    #[serde(deserialize_with = "null_is_default")]
    pub last_transition_time: String,
    /// `metadata.generation` of the object that the writer looked at.
    pub observed_generation: Option<i64>,
}

/// A Pod's spec, as far as the driver reads it.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodSpec {
    /// What keeps the Pod from being scheduled.
    pub scheduling_gates: Vec<SchedulingGate>,
    /// Seconds that the Pod may take to end; absent means 30.
    pub termination_grace_period_seconds: Option<u64>,
}

/// A scheduling gate.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct SchedulingGate {
    /// Its name.
    pub name: String,
}

/// A Pod's status, as far as the driver reads it.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodStatus {
    /// Pending, Running, Succeeded or Failed.
    pub phase: String,
    /// Conditions of the kubelet.
    pub conditions: Vec<Condition>,
}

/// A Namespace's status, as far as the driver reads it.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct NamespaceStatus {
    /// Active or Terminating.
    pub phase: String,
}

/// Servers write `null` for an unset time.
fn null_is_default<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(deserializer: D) -> Result<T, D::Error> {
    Option::deserialize(deserializer).map(Option::unwrap_or_default)
}

impl<P, U> View<P, U> {
    /// A label's value; empty if it has none.
    pub fn label(&self, key: &str) -> &str {
        self.metadata.labels.as_ref().and_then(|l| l.get(key)).map_or("", String::as_str)
    }
    /// An annotation's value.
    pub fn annotation(&self, key: &str) -> Option<&str> {
        self.metadata.annotations.as_ref().and_then(|a| a.get(key)).map(String::as_str)
    }
    /// The object's name.
    pub fn name(&self) -> &str {
        self.metadata.name.as_deref().unwrap_or_default()
    }
    /// The object's namespace.
    pub fn namespace(&self) -> &str {
        self.metadata.namespace.as_deref().unwrap_or_default()
    }
    /// The object's uid.
    pub fn uid(&self) -> &str {
        self.metadata.uid.as_deref().unwrap_or_default()
    }
    /// The object's resourceVersion.
    pub fn resource_version(&self) -> &str {
        self.metadata.resource_version.as_deref().unwrap_or_default()
    }
    /// Is it being deleted?
    pub fn is_terminating(&self) -> bool {
        self.metadata.deletion_timestamp.is_some()
    }
}

impl Pod {
    /// Running and ready.
    pub fn is_ready(&self) -> bool {
        let ready = |s: &PodStatus| s.conditions.iter().any(|c| c.type_ == "Ready" && c.status == "True");
        !self.is_terminating() && self.status.as_ref().is_some_and(ready)
    }
    /// Have all its containers ended for good?
    pub fn has_ended(&self) -> bool {
        self.status.as_ref().is_some_and(|s| matches!(s.phase.as_str(), "Succeeded" | "Failed"))
    }
    /// Is the object with this uid its controller?
    pub fn is_controlled_by(&self, uid: &str) -> bool {
        let owners = self.metadata.owner_references.as_deref().unwrap_or_default();
        owners.iter().any(|o| o.controller == Some(true) && o.uid == uid)
    }
}

impl Sandbox {
    /// The sandbox's id.
    pub fn id(&self) -> &str {
        self.label(names::SANDBOX_ID)
    }
    /// Name of the workload Pod: the one that the controller tracks, else the CR's own name.
    pub fn workload_pod(&self) -> &str {
        self.annotation(names::POD_NAME).filter(|n| !n.is_empty()).unwrap_or(self.name())
    }
    /// Does the spec ask for a running workload?
    pub fn should_run(&self) -> bool {
        match (&self.spec.operating_mode, self.spec.replicas) {
            (Some(mode), _) => mode != "Suspended",
            (None, Some(replicas)) => replicas > 0,
            (None, None) => true,
        }
    }
    /// The condition of this type that was written for exactly the present `metadata.generation`.
    pub fn current_condition(&self, type_: &str) -> Option<&Condition> {
        let conditions = &self.status.as_ref()?.conditions;
        let generation = self.metadata.generation?;
        conditions.iter().find(|c| c.type_ == type_ && c.observed_generation == Some(generation))
    }
    /// Has the controller reported on it at exactly the present `metadata.generation`? What it read before does not count.
    pub fn is_observed(&self) -> bool {
        let (Some(status), Some(generation)) = (&self.status, self.metadata.generation) else { return false };
        status.conditions.iter().any(|c| c.observed_generation == Some(generation))
    }
    /// Is that condition there, with this status?
    pub fn has_current(&self, type_: &str, status: &str) -> bool {
        self.current_condition(type_).is_some_and(|c| c.status == status)
    }
}

impl<P, U> kube::Resource for View<P, U> {
    type DynamicType = ApiResource;
    type Scope = kube::core::DynamicResourceScope;

    fn kind(dt: &ApiResource) -> Cow<'_, str> {
        dt.kind.as_str().into()
    }
    fn group(dt: &ApiResource) -> Cow<'_, str> {
        dt.group.as_str().into()
    }
    fn version(dt: &ApiResource) -> Cow<'_, str> {
        dt.version.as_str().into()
    }
    fn api_version(dt: &ApiResource) -> Cow<'_, str> {
        dt.api_version.as_str().into()
    }
    fn plural(dt: &ApiResource) -> Cow<'_, str> {
        dt.plural.as_str().into()
    }
    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }
    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn sandbox(spec: serde_json::Value) -> Sandbox {
        serde_json::from_value(json!({"metadata": {"name": "demo"}, "spec": spec})).expect("a Sandbox")
    }

    #[test]
    fn both_run_switches_are_read() {
        for (spec, runs) in [
            (json!({}), true),
            (json!({"replicas": 1}), true),
            (json!({"replicas": 0}), false),
            (json!({"operatingMode": "Running"}), true),
            (json!({"operatingMode": "Suspended"}), false),
            (json!({"operatingMode": "Running", "replicas": 0}), true),
        ] {
            assert_eq!(sandbox(spec.clone()).should_run(), runs, "{spec}");
        }
    }

    #[test]
    fn what_a_version_writes_it_reads_back() {
        for version in [SandboxVersion::V1alpha1, SandboxVersion::V1beta1] {
            for run in [true, false] {
                let (field, value) = version.run_switch(run);
                assert_eq!(sandbox(json!({ field: value })).should_run(), run, "{version:?}");
            }
        }
    }

    #[test]
    fn a_condition_counts_only_for_the_generation_it_was_written_for() {
        let mut cr: Sandbox = serde_json::from_value(json!({
            "metadata": {"name": "demo", "generation": 2},
            "status": {"conditions": [{"type": "Ready", "status": "True", "observedGeneration": 2}]},
        }))
        .expect("a Sandbox");
        assert!(cr.has_current("Ready", "True"));
        assert!(!cr.has_current("Ready", "False"));
        cr.metadata.generation = Some(3);
        assert!(!cr.has_current("Ready", "True"));
    }

    #[test]
    fn a_condition_without_a_time_is_read() {
        let unset = json!({"type": "Ready", "status": "True", "lastProbeTime": null, "lastTransitionTime": null});
        let object = json!({"metadata": {}, "spec": {}, "status": {"phase": "Running", "conditions": [unset]}});
        assert!(serde_json::from_value::<Pod>(object).expect("a Pod").is_ready());
    }

    #[test]
    fn the_workload_pod_is_the_tracked_one_or_bears_the_name_of_the_resource() {
        let mut cr = sandbox(json!({}));
        assert_eq!(cr.workload_pod(), "demo");
        cr.metadata.annotations = Some([(names::POD_NAME.to_owned(), "other".to_owned())].into());
        assert_eq!(cr.workload_pod(), "other");
    }
}
