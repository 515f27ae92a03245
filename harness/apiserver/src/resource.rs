//! The resource types that the server knows, and the few facts in which they differ.

use std::borrow::Cow;

/// Which versions of the agent-sandbox CRD the server serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum SandboxVersions {
    /// `v1beta1` (storage) and `v1alpha1`, converted both ways (agent-sandbox v0.5.0 and later).
    #[default]
    Both,
    /// Only `v1alpha1`, as installed by agent-sandbox up to v0.4.x. `v1beta1` answers like an unserved version.
    V1alpha1Only,
}

/// One resource type: what discovery would say about it, and the rules that depend on the type.
#[derive(Clone, Debug)]
pub(crate) struct Resource {
    /// API group; empty for the core group.
    pub(crate) group: Cow<'static, str>,
    /// Served versions. The first one is the storage version.
    pub(crate) versions: Vec<Cow<'static, str>>,
    /// Plural name, as it appears in paths.
    pub(crate) plural: Cow<'static, str>,
    /// Kind, as it appears in objects.
    pub(crate) kind: Cow<'static, str>,
    /// Objects live in namespaces.
    pub(crate) namespaced: bool,
    /// Versions are converted by the agent-sandbox webhook, rather than by relabelling.
    pub(crate) webhook: bool,
    /// Defined by a CRD. Custom resources differ in error texts, list shape and the demands on PUT.
    pub(crate) custom: bool,
    /// `metadata.generation` counts changes of the desired state.
    pub(crate) counts_generation: bool,
    /// Has a `status` that only the `/status` subresource writes.
    pub(crate) has_status: bool,
    /// Field selectors other than `metadata.name` and `metadata.namespace`.
    pub(crate) fields: &'static [FieldLabel],
}

/// A field label that selectors may name.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FieldLabel {
    /// The label, which is also the dotted path of the field.
    pub(crate) label: &'static str,
    /// What an absent field counts as.
    pub(crate) absent: &'static str,
}

const fn field(label: &'static str) -> FieldLabel {
    FieldLabel { label, absent: "" }
}

impl Resource {
    /// `configmaps` or `sandboxes.agents.x-k8s.io`: how messages name the type.
    pub(crate) fn qualified(&self) -> String {
        qualify(&self.plural, &self.group)
    }

    /// `ConfigMap` or `Sandbox.agents.x-k8s.io`: how validation messages name the kind.
    pub(crate) fn qualified_kind(&self) -> String {
        qualify(&self.kind, &self.group)
    }

    /// `v1` or `agents.x-k8s.io/v1beta1`.
    pub(crate) fn api_version(&self, version: usize) -> String {
        let version = &self.versions[version];
        if self.group.is_empty() { version.to_string() } else { format!("{}/{version}", self.group) }
    }

    /// The position of a served version.
    pub(crate) fn version(&self, name: &str) -> Option<usize> {
        self.versions.iter().position(|v| v == name)
    }

    /// The storage key, in the order in which lists show objects: `namespace/name` or `name`.
    pub(crate) fn key(&self, namespace: &str, name: &str) -> String {
        if self.namespaced { format!("{namespace}/{name}") } else { name.to_owned() }
    }
}

fn qualify(name: &str, group: &str) -> String {
    if group.is_empty() { name.to_owned() } else { format!("{name}.{group}") }
}

/// Group of the Sandbox CRD.
pub(crate) const AGENTS: &str = "agents.x-k8s.io";

fn builtin(group: &'static str, plural: &'static str, kind: &'static str) -> Resource {
    Resource {
        group: group.into(),
        versions: vec!["v1".into()],
        plural: plural.into(),
        kind: kind.into(),
        namespaced: true,
        webhook: false,
        custom: false,
        counts_generation: false,
        has_status: false,
        fields: &[],
    }
}

/// All types of this server.
pub(crate) fn registry(sandbox: SandboxVersions, webhook: bool) -> Vec<Resource> {
    let cluster = |r: Resource| Resource { namespaced: false, ..r };
    let status = |r: Resource| Resource { has_status: true, ..r };
    let generation = |r: Resource| Resource { counts_generation: true, ..r };
    let fields = |r: Resource, fields| Resource { fields, ..r };
    vec![
        fields(cluster(status(builtin("", "namespaces", "Namespace"))), const { &[field("status.phase")] }),
        fields(cluster(status(builtin("", "nodes", "Node"))), const { &[field("spec.unschedulable")] }),
        fields(status(generation(builtin("", "pods", "Pod"))), POD_FIELDS),
        fields(status(builtin("", "services", "Service")), const { &[field("spec.clusterIP"), field("spec.type")] }),
        fields(builtin("", "secrets", "Secret"), const { &[field("type")] }),
        builtin("", "configmaps", "ConfigMap"),
        builtin("", "serviceaccounts", "ServiceAccount"),
        status(builtin("", "persistentvolumeclaims", "PersistentVolumeClaim")),
        fields(builtin("", "events", "Event"), EVENT_FIELDS),
        generation(builtin("networking.k8s.io", "networkpolicies", "NetworkPolicy")),
        builtin("coordination.k8s.io", "leases", "Lease"),
        Resource {
            versions: match sandbox {
                SandboxVersions::Both => vec!["v1beta1".into(), "v1alpha1".into()],
                SandboxVersions::V1alpha1Only => vec!["v1alpha1".into()],
            },
            webhook,
            custom: true,
            counts_generation: true,
            has_status: true,
            ..builtin(AGENTS, "sandboxes", "Sandbox")
        },
    ]
}

const POD_FIELDS: &[FieldLabel] = &[
    field("spec.nodeName"),
    field("spec.restartPolicy"),
    field("spec.schedulerName"),
    field("spec.serviceAccountName"),
    FieldLabel { label: "spec.hostNetwork", absent: "false" },
    field("status.phase"),
    field("status.podIP"),
    field("status.nominatedNodeName"),
];

const EVENT_FIELDS: &[FieldLabel] = &[
    field("involvedObject.kind"),
    field("involvedObject.namespace"),
    field("involvedObject.name"),
    field("involvedObject.uid"),
    field("involvedObject.apiVersion"),
    field("involvedObject.resourceVersion"),
    field("involvedObject.fieldPath"),
    field("reason"),
    field("reportingComponent"),
    field("type"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_sort_as_etcd_sorts_them_not_as_pairs_of_names_do() {
        let pods = builtin("", "pods", "Pod");
        let mut keys = vec![pods.key("a", "x"), pods.key("a-b", "x"), pods.key("a", "b")];
        keys.sort();
        assert_eq!(keys, ["a-b/x", "a/b", "a/x"]);
    }

    #[test]
    fn messages_name_custom_types_with_their_group() {
        let all = registry(SandboxVersions::Both, true);
        let sandbox = all.iter().find(|r| r.custom).expect("registered");
        assert_eq!(sandbox.qualified(), "sandboxes.agents.x-k8s.io");
        assert_eq!(sandbox.api_version(0), "agents.x-k8s.io/v1beta1");
        assert_eq!(
            registry(SandboxVersions::V1alpha1Only, true).last().map(|r| r.api_version(0)),
            Some("agents.x-k8s.io/v1alpha1".into())
        );
    }
}
