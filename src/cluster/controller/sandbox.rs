//! The Sandbox resource (`agents.x-k8s.io`, both versions) as far as the controller reads and writes it.
use std::borrow::Cow;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta, OwnerReference, Time};
use kube::core::{DynamicResourceScope, TypeMeta};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// API group of the Sandbox resource.
pub const GROUP: &str = "agents.x-k8s.io";
/// Kind of the resource.
pub const KIND: &str = "Sandbox";
/// Annotation of a Sandbox: name of the Pod that the controller tracks.
pub const POD_NAME: &str = "agents.x-k8s.io/pod-name";
/// Label of Pods, Services and claims: hash of the Sandbox's name.
pub const NAME_HASH: &str = "agents.x-k8s.io/sandbox-name-hash";
/// Label of a Pod made for adoption by any Sandbox.
pub const ADOPTABLE: &str = "agents.x-k8s.io/adoptable";
/// Annotation of a Pod: label keys that came from the Sandbox's template, sorted, with commas between.
pub const PROPAGATED_LABELS: &str = "agents.x-k8s.io/propagated-labels";
/// Annotation of a Pod: annotation keys that came from the Sandbox's template, sorted, with commas between.
pub const PROPAGATED_ANNOTATIONS: &str = "agents.x-k8s.io/propagated-annotations";

/// A version of the Sandbox API.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Version {
    /// The run switch is `spec.replicas`, 0 or 1. The only one up to v0.4.x.
    V1alpha1,
    /// The run switch is `spec.operatingMode`.
    #[default]
    V1beta1,
}

impl Version {
    /// As in paths: `v1beta1`.
    pub fn as_str(self) -> &'static str {
        match self {
            Version::V1alpha1 => "v1alpha1",
            Version::V1beta1 => "v1beta1",
        }
    }
}

/// A Sandbox, of either version.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Sandbox {
    /// Group, version and kind, as it was read.
    #[serde(flatten, default)]
    pub types: Option<TypeMeta>,
    /// Name, labels, generation and so on.
    pub metadata: ObjectMeta,
    /// What is wanted.
    #[serde(default)]
    pub spec: SandboxSpec,
    /// What the controller last said; none before its first status write.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<SandboxStatus>,
}

/// What is wanted of a Sandbox.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SandboxSpec {
    /// `v1alpha1`: how many Pods, 0 or 1; none means 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i32>,
    /// `v1beta1`: `Running` or `Suspended`; none means `Running`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub operating_mode: Option<String>,
    /// Labels, annotations and spec of the Pod to make.
    pub pod_template: PodTemplate,
    /// Volumes that outlive a suspension; immutable.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub volume_claim_templates: Vec<ClaimTemplate>,
    /// Whether a headless Service of the Sandbox's name is wanted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service: Option<bool>,
    /// When the Sandbox expires.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shutdown_time: Option<Time>,
    /// `Delete` or `Retain`: what becomes of the expired Sandbox; none means `Retain`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shutdown_policy: Option<String>,
}

/// A Pod to be.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PodTemplate {
    /// Labels and annotations; other metadata is not taken over.
    pub metadata: TemplateMeta,
    /// The Pod's spec, taken as it is.
    pub spec: Value,
}

/// A claim to be.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ClaimTemplate {
    /// Name (of the volume too), labels and annotations.
    pub metadata: TemplateMeta,
    /// The claim's spec, taken as it is.
    pub spec: Value,
}

/// Metadata of a template.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct TemplateMeta {
    /// Name; claims only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Labels of the object to be.
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub labels: Map,
    /// Annotations of the object to be.
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub annotations: Map,
}

/// Labels or annotations.
pub type Map = std::collections::BTreeMap<String, String>;

/// What the controller says about a Sandbox.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SandboxStatus {
    /// Conditions, in the order in which their types first appeared.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// `v1alpha1`: how many Pods there are; none means 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i32>,
    /// Label selector of the Sandbox's Pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub selector: Option<String>,
    /// Name of the Sandbox's Service.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service: Option<String>,
    /// Full name of that Service in the cluster's DNS.
    #[serde(rename = "serviceFQDN", skip_serializing_if = "Option::is_none")]
    pub service_fqdn: Option<String>,
    /// Addresses of the Pod.
    #[serde(rename = "podIPs", skip_serializing_if = "Vec::is_empty")]
    pub pod_ips: Vec<String>,
    /// Node of the Pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_name: Option<String>,
}

impl Sandbox {
    /// Its name; empty only for an object that no API server ever served.
    pub fn name(&self) -> &str {
        self.metadata.name.as_deref().unwrap_or_default()
    }
    /// Its namespace; empty only for an object that no API server ever served.
    pub fn namespace(&self) -> &str {
        self.metadata.namespace.as_deref().unwrap_or_default()
    }
    /// Its uid; empty only for an object that no API server ever served.
    pub fn uid(&self) -> &str {
        self.metadata.uid.as_deref().unwrap_or_default()
    }
    /// Should its Pod be off?
    pub fn suspended(&self) -> bool {
        match &self.spec.operating_mode {
            Some(mode) => mode == "Suspended",
            None => self.spec.replicas == Some(0),
        }
    }
    /// Name of the Pod that is tracked by annotation, if one is.
    pub fn tracked_pod(&self) -> Option<&str> {
        self.metadata.annotations.as_ref()?.get(POD_NAME).map(String::as_str)
    }
    /// The condition of this type, if the status has it.
    pub fn condition(&self, kind: &str) -> Option<&Condition> {
        self.status.as_ref()?.conditions.iter().find(|c| c.type_ == kind)
    }
    /// The reference by which its Pod, Service and claims name it as their controller.
    pub fn owner_reference(&self) -> OwnerReference {
        OwnerReference {
            api_version: match &self.types {
                Some(types) => types.api_version.clone(),
                None => format!("{GROUP}/{}", Version::default().as_str()),
            },
            kind: KIND.into(),
            name: self.name().into(),
            uid: self.uid().into(),
            controller: Some(true),
            block_owner_deletion: Some(true),
        }
    }
    /// Is this Sandbox the controller of the object with this metadata?
    pub fn controls(&self, object: &ObjectMeta) -> bool {
        controller_of(object).is_some_and(|owner| owner.uid == self.uid())
    }
}

/// The owner reference that is marked as controller.
pub fn controller_of(object: &ObjectMeta) -> Option<&OwnerReference> {
    object.owner_references.iter().flatten().find(|owner| owner.controller == Some(true))
}

impl kube::Resource for Sandbox {
    type DynamicType = Version;
    type Scope = DynamicResourceScope;

    fn kind(_: &Version) -> Cow<'_, str> {
        KIND.into()
    }
    fn group(_: &Version) -> Cow<'_, str> {
        GROUP.into()
    }
    fn version(version: &Version) -> Cow<'_, str> {
        version.as_str().into()
    }
    fn plural(_: &Version) -> Cow<'_, str> {
        "sandboxes".into()
    }
    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }
    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}
