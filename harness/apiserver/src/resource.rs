//! The resource types that the server knows, and the few facts in which they differ.

use std::borrow::Cow;
use std::sync::Arc;

use crate::crd::{self, CustomVersion, Definition, ScalePaths};
use crate::tokens;

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
    /// All versions; the first one is the storage version. A version that is not served is here too.
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
    /// Field selectors other than `metadata.name` and `metadata.namespace`, of types that no CRD defines.
    pub(crate) fields: &'static [FieldLabel],
    /// Has a `scale` subresource over `spec.replicas` and `status.replicas`, though no CRD says so.
    pub(crate) scales: bool,
    /// Whether there are objects of it.
    pub(crate) held: Held,
    /// Other names of the type.
    pub(crate) names: Names,
    /// What its CRD says of a custom resource.
    pub(crate) definition: Option<Arc<Definition>>,
}

/// A subresource, as discovery tells of it.
#[derive(Clone, Debug)]
pub(crate) struct Subresource {
    pub(crate) name: &'static str,
    pub(crate) kind: Cow<'static, str>,
    /// Of the kind, where that is not the type's own.
    pub(crate) group_version: Option<(&'static str, &'static str)>,
    pub(crate) verbs: &'static [&'static str],
}

/// How discovery names a type, besides its plural and its kind.
#[derive(Clone, Debug, Default)]
pub(crate) struct Names {
    /// `configmap`.
    pub(crate) singular: Cow<'static, str>,
    /// `ConfigMapList`.
    pub(crate) list: Cow<'static, str>,
    /// `cm`.
    pub(crate) short: Vec<Cow<'static, str>>,
    /// `all`: groups of types that a client may ask for by one name.
    pub(crate) categories: Vec<Cow<'static, str>>,
}

/// A field label that selectors may name.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct FieldLabel {
    /// The label, which is also the dotted path of the field.
    pub(crate) label: Cow<'static, str>,
    /// What an absent field counts as.
    pub(crate) absent: &'static str,
}

const fn field(label: &'static str) -> FieldLabel {
    FieldLabel { label: Cow::Borrowed(label), absent: "" }
}

/// What a server holds of a type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Held {
    /// What clients have written.
    Objects,
    /// Nothing, as in a new cluster of real servers: reads are answered, writes are not supported.
    Nothing,
    /// A real server has some of its own making, which this one lacks: no request is supported.
    Unknown,
}

impl Resource {
    /// A type as discovery tells of it whose objects are answered and never stored.
    pub(crate) fn reviewed(
        group: &'static str,
        plural: &'static str,
        kind: &'static str,
        namespaced: bool,
    ) -> Resource {
        Resource { namespaced, ..builtin(group, plural, kind) }
    }

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
        // The other group of a type that is in two.
        if version.contains('/') {
            return version.to_string();
        }
        if self.group.is_empty() { version.to_string() } else { format!("{}/{version}", self.group) }
    }

    /// The position of a served version.
    pub(crate) fn version(&self, name: &str) -> Option<usize> {
        self.versions.iter().position(|v| v == name).filter(|version| self.serves(*version))
    }

    /// The position of a version by the group and name in a path. Events are in two groups.
    pub(crate) fn version_in(&self, group: &str, name: &str) -> Option<usize> {
        if group == self.group { self.version(name) } else { self.version(&format!("{group}/{name}")) }
    }

    /// Whether paths of that group lead to the type.
    pub(crate) fn is_in(&self, group: &str) -> bool {
        let other = |version: &Cow<'_, str>| version.split_once('/').is_some_and(|(of, _)| of == group);
        self.group == group || self.versions.iter().any(other)
    }

    /// Whether requests may name that version.
    pub(crate) fn serves(&self, version: usize) -> bool {
        self.custom_version(version).is_none_or(|custom| custom.served)
    }

    /// The groups and versions in which the type is served, and their positions.
    pub(crate) fn places(&self) -> impl Iterator<Item = (&str, &str, usize)> {
        let served = (0..self.versions.len()).filter(|at| self.serves(*at));
        served.map(|at| match self.versions[at].split_once('/') {
            Some((group, version)) => (group, version, at),
            None => (&*self.group, &*self.versions[at], at),
        })
    }

    /// What the CRD says of one version.
    pub(crate) fn custom_version(&self, version: usize) -> Option<&CustomVersion> {
        self.definition.as_ref().map(|definition| &definition.versions[version])
    }

    /// The paths behind the `scale` subresource, if the version has one.
    pub(crate) fn scale(&self, version: usize) -> Option<&ScalePaths> {
        match &self.definition {
            Some(definition) => definition.versions[version].scale.as_ref(),
            None => self.scales.then_some(const { &ScalePaths::BUILTIN }),
        }
    }

    /// What hangs below the objects of that version.
    pub(crate) fn subresources(&self, version: usize) -> Vec<Subresource> {
        const CHANGES: &[&str] = &["get", "patch", "update"];
        const CONNECTS: &[&str] = &["create", "get"];
        const PROXIES: &[&str] = &["create", "delete", "get", "patch", "update"];
        let own = |name, verbs| Subresource { name, kind: self.kind.clone(), group_version: None, verbs };
        let other = |name, kind: &'static str, group_version, verbs| Subresource {
            name,
            kind: kind.into(),
            group_version,
            verbs,
        };
        let mut all = match (&*self.group, &*self.plural) {
            ("", "pods") => vec![
                other("attach", "PodAttachOptions", None, CONNECTS),
                other("binding", "Binding", None, &["create"]),
                own("ephemeralcontainers", CHANGES),
                other("eviction", "Eviction", Some(("policy", "v1")), &["create"]),
                other("exec", "PodExecOptions", None, CONNECTS),
                own("log", &["get"]),
                other("portforward", "PodPortForwardOptions", None, CONNECTS),
                other("proxy", "PodProxyOptions", None, PROXIES),
                own("resize", CHANGES),
            ],
            ("", "nodes") => vec![other("proxy", "NodeProxyOptions", None, PROXIES)],
            ("", "services") => vec![other("proxy", "ServiceProxyOptions", None, PROXIES)],
            ("", "namespaces") => vec![own("finalize", &["update"])],
            (CERTIFICATES, "certificatesigningrequests") => vec![own("approval", CHANGES)],
            ("", "serviceaccounts") => {
                vec![other("token", "TokenRequest", Some((tokens::GROUP, "v1")), &["create"])]
            }
            _ => Vec::new(),
        };
        let has_status = self.custom_version(version).map_or(self.has_status, |custom| custom.has_status);
        if has_status {
            all.push(own("status", CHANGES));
        }
        if self.scale(version).is_some() {
            all.push(other("scale", "Scale", Some(("autoscaling", "v1")), CHANGES));
        }
        if !self.custom {
            all.sort_by_key(|sub| sub.name);
        }
        all
    }

    /// The field labels that selectors may name in that version.
    pub(crate) fn field_labels(&self, version: usize) -> &[FieldLabel] {
        self.custom_version(version).map_or(self.fields, |custom| &custom.fields)
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
        scales: false,
        held: Held::Objects,
        names: Names {
            singular: kind.to_ascii_lowercase().into(),
            list: format!("{kind}List").into(),
            ..Names::default()
        },
        definition: None,
    }
}

/// Types that discovery lists, since a real server's document is listed whole, and that nobody here does anything with:
/// whoever writes one is told that it is not supported. Those of which a new real server has none are read as empty, so
/// that clients that walk through all that is listed come to their end; for the others that would be a lie.
fn listed_types() -> Vec<Resource> {
    const EXTENDS: &str = "api-extensions";
    // Group, plural, kind, in namespaces, with a status, short name, category.
    const ALL: &[(&str, &str, &str, bool, bool, &str, &str)] = &[
        ("apiregistration.k8s.io", "apiservices", "APIService", false, true, "", EXTENDS),
        (CERTIFICATES, "certificatesigningrequests", "CertificateSigningRequest", false, true, "csr", ""),
        ("networking.k8s.io", "ipaddresses", "IPAddress", false, false, "ip", ""),
        ("networking.k8s.io", "servicecidrs", "ServiceCIDR", false, true, "", ""),
        ("storage.k8s.io", "csidrivers", "CSIDriver", false, false, "", ""),
        ("storage.k8s.io", "csinodes", "CSINode", false, false, "", ""),
        ("storage.k8s.io", "csistoragecapacities", "CSIStorageCapacity", true, false, "", ""),
        ("storage.k8s.io", "volumeattachments", "VolumeAttachment", false, true, "", ""),
        ("storage.k8s.io", "volumeattributesclasses", "VolumeAttributesClass", false, false, "vac", ""),
        (ADMISSION, "mutatingadmissionpolicies", "MutatingAdmissionPolicy", false, false, "", EXTENDS),
        (ADMISSION, "mutatingadmissionpolicybindings", "MutatingAdmissionPolicyBinding", false, false, "", EXTENDS),
        (ADMISSION, "mutatingwebhookconfigurations", "MutatingWebhookConfiguration", false, false, "", EXTENDS),
        (ADMISSION, "validatingadmissionpolicies", "ValidatingAdmissionPolicy", false, true, "", EXTENDS),
        (ADMISSION, "validatingadmissionpolicybindings", "ValidatingAdmissionPolicyBinding", false, false, "", EXTENDS),
        (ADMISSION, "validatingwebhookconfigurations", "ValidatingWebhookConfiguration", false, false, "", EXTENDS),
        ("node.k8s.io", "runtimeclasses", "RuntimeClass", false, false, "", ""),
        ("resource.k8s.io", "deviceclasses", "DeviceClass", false, false, "", ""),
        ("resource.k8s.io", "resourceclaims", "ResourceClaim", true, true, "", ""),
        ("resource.k8s.io", "resourceclaimtemplates", "ResourceClaimTemplate", true, false, "", ""),
        ("resource.k8s.io", "resourceslices", "ResourceSlice", false, false, "", ""),
        (FLOW, "flowschemas", "FlowSchema", false, true, "", ""),
        (FLOW, "prioritylevelconfigurations", "PriorityLevelConfiguration", false, true, "", ""),
    ];
    // Those of which a real server has some: most come with it, CSI nodes with each kubelet.
    const OWN: &[&str] =
        &["apiservices", "ipaddresses", "servicecidrs", "csinodes", "flowschemas", "prioritylevelconfigurations"];
    let some = |name: &'static str| (!name.is_empty()).then_some(Cow::Borrowed(name)).into_iter().collect();
    let made = ALL.iter().map(|&(group, plural, kind, namespaced, has_status, short, category)| {
        let held = if OWN.contains(&plural) { Held::Unknown } else { Held::Nothing };
        let mut resource = Resource { namespaced, has_status, held, ..builtin(group, plural, kind) };
        resource.names.short = some(short);
        resource.names.categories = some(category);
        resource
    });
    made.collect()
}

const CERTIFICATES: &str = "certificates.k8s.io";
const FLOW: &str = "flowcontrol.apiserver.k8s.io";
const ADMISSION: &str = "admissionregistration.k8s.io";

/// All types of a new server.
pub(crate) fn registry(sandbox: SandboxVersions, webhook: bool) -> Vec<Resource> {
    let cluster = |r: Resource| Resource { namespaced: false, ..r };
    let status = |r: Resource| Resource { has_status: true, ..r };
    let generation = |r: Resource| Resource { counts_generation: true, ..r };
    let fields = |r: Resource, fields| Resource { fields, ..r };
    let short = |mut r: Resource, names: &[&'static str]| {
        r.names.short = names.iter().map(|name| Cow::Borrowed(*name)).collect();
        r
    };
    let scales = |r: Resource| Resource { scales: true, ..r };
    let category = |mut r: Resource, name: &'static str| {
        r.names.categories = vec![name.into()];
        r
    };
    let crds = short(builtin(crd::GROUP, "customresourcedefinitions", "CustomResourceDefinition"), &["crd", "crds"]);
    let mut all = vec![
        short(
            fields(cluster(status(builtin("", "namespaces", "Namespace"))), const { &[field("status.phase")] }),
            &["ns"],
        ),
        short(fields(cluster(status(builtin("", "nodes", "Node"))), const { &[field("spec.unschedulable")] }), &["no"]),
        short(category(fields(status(generation(builtin("", "pods", "Pod"))), POD_FIELDS), "all"), &["po"]),
        short(
            category(
                fields(
                    status(builtin("", "services", "Service")),
                    const { &[field("spec.clusterIP"), field("spec.type")] },
                ),
                "all",
            ),
            &["svc"],
        ),
        fields(builtin("", "secrets", "Secret"), const { &[field("type")] }),
        short(builtin("", "configmaps", "ConfigMap"), &["cm"]),
        short(builtin("", "serviceaccounts", "ServiceAccount"), &["sa"]),
        short(status(builtin("", "persistentvolumeclaims", "PersistentVolumeClaim")), &["pvc"]),
        Resource {
            versions: vec!["v1".into(), "events.k8s.io/v1".into()],
            ..short(fields(builtin("", "events", "Event"), EVENT_FIELDS), &["ev"])
        },
        short(generation(builtin("networking.k8s.io", "networkpolicies", "NetworkPolicy")), &["netpol"]),
        builtin("coordination.k8s.io", "leases", "Lease"),
        short(cluster(status(builtin("", "persistentvolumes", "PersistentVolume"))), &["pv"]),
        short(category(scales(status(generation(builtin("apps", "deployments", "Deployment")))), "all"), &["deploy"]),
        short(category(scales(status(generation(builtin("apps", "replicasets", "ReplicaSet")))), "all"), &["rs"]),
        short(category(scales(status(generation(builtin("apps", "statefulsets", "StatefulSet")))), "all"), &["sts"]),
        category(
            fields(status(generation(builtin("batch", "jobs", "Job"))), const { &[field("status.successful")] }),
            "all",
        ),
        short(status(generation(builtin("policy", "poddisruptionbudgets", "PodDisruptionBudget"))), &["pdb"]),
        short(category(status(generation(builtin("apps", "daemonsets", "DaemonSet"))), "all"), &["ds"]),
        builtin("apps", "controllerrevisions", "ControllerRevision"),
        short(category(status(generation(builtin("batch", "cronjobs", "CronJob"))), "all"), &["cj"]),
        short(
            category(
                fields(
                    scales(status(generation(builtin("", "replicationcontrollers", "ReplicationController")))),
                    const { &[FieldLabel { label: Cow::Borrowed("status.replicas"), absent: "0" }] },
                ),
                "all",
            ),
            &["rc"],
        ),
        generation(builtin("", "podtemplates", "PodTemplate")),
        short(status(builtin("", "resourcequotas", "ResourceQuota")), &["quota"]),
        short(builtin("", "limitranges", "LimitRange"), &["limits"]),
        short(builtin("", "endpoints", "Endpoints"), &["ep"]),
        Resource {
            versions: vec!["v2".into(), "v1".into()],
            ..short(
                category(status(builtin("autoscaling", "horizontalpodautoscalers", "HorizontalPodAutoscaler")), "all"),
                &["hpa"],
            )
        },
        short(status(generation(builtin("networking.k8s.io", "ingresses", "Ingress"))), &["ing"]),
        cluster(generation(builtin("networking.k8s.io", "ingressclasses", "IngressClass"))),
        builtin("rbac.authorization.k8s.io", "roles", "Role"),
        builtin("rbac.authorization.k8s.io", "rolebindings", "RoleBinding"),
        cluster(builtin("rbac.authorization.k8s.io", "clusterroles", "ClusterRole")),
        cluster(builtin("rbac.authorization.k8s.io", "clusterrolebindings", "ClusterRoleBinding")),
        short(cluster(builtin("storage.k8s.io", "storageclasses", "StorageClass")), &["sc"]),
        short(cluster(generation(builtin("scheduling.k8s.io", "priorityclasses", "PriorityClass"))), &["pc"]),
        generation(builtin("discovery.k8s.io", "endpointslices", "EndpointSlice")),
        cluster(status(generation(category(crds, "api-extensions")))),
        crd::sandbox_type(sandbox, webhook),
    ];
    all.extend(listed_types());
    all
}

const POD_FIELDS: &[FieldLabel] = &[
    field("spec.nodeName"),
    field("spec.restartPolicy"),
    field("spec.schedulerName"),
    field("spec.serviceAccountName"),
    FieldLabel { label: Cow::Borrowed("spec.hostNetwork"), absent: "false" },
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
        let old = registry(SandboxVersions::V1alpha1Only, true);
        let sandbox = old.iter().find(|r| r.custom).expect("registered");
        assert_eq!(sandbox.api_version(0), "agents.x-k8s.io/v1alpha1");
    }
}
