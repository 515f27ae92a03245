//! What this server supports, as a document: `docs/api-support.md` of the repository is made of this module, and a test
//! compares the two. To write it anew: `UPDATE_DOCS=1 cargo test -p photofinish-apiserver support`.

use std::fmt::Write as _;

use crate::resource::{Held, Resource, SandboxVersions, registry};
use crate::route::MISSING;

/// Types that are served in part, and how.
const PARTIAL: &[(&str, &str)] = &[
    ("CustomResourceDefinition", "webhooks other than Sandbox's are treated as unreachable"),
    ("ControllerRevision", "stored; its data may be changed"),
    ("CronJob", "stored; no controller makes jobs"),
    ("DaemonSet", "stored; no controller makes pods; changes of the template are not counted in its annotation"),
    ("Endpoints", "stored; no controller fills it, and no warning says that it is deprecated"),
    (
        "HorizontalPodAutoscaler",
        "stored; nothing is scaled by it; in the annotations of v1 metrics have the form of v2",
    ),
    ("Ingress", "stored; no controller serves it"),
    ("IngressClass", "stored; no ingress gets a default class"),
    ("LimitRange", "stored; pods do not get its defaults, and are not refused by it"),
    ("PodTemplate", "stored"),
    ("ReplicationController", "stored and scaled; no controller makes pods"),
    ("ResourceQuota", "stored; nothing is counted, and nothing refused by it"),
    ("Deployment", "stored and scaled; no controller makes replica sets"),
    ("EndpointSlice", "stored; no controller fills it"),
    ("Job", "stored; no controller makes pods"),
    ("Namespace", "no default ServiceAccount and no kube-root-ca.crt are made in it"),
    ("Node", "no addresses or capacity of its own; see the actors; proxy: 501"),
    ("PersistentVolume", "stored; no controller binds it"),
    ("PersistentVolumeClaim", "no controller binds it; protected by an actor"),
    ("Pod", "admitted without its ServiceAccount being there; log, exec and the like answer as without a kubelet"),
    ("PodDisruptionBudget", "evictions respect it; no controller counts its pods"),
    ("ReplicaSet", "stored and scaled; no controller makes pods"),
    ("Role", "stored; nothing is authorised by it"),
    ("RoleBinding", "stored; nothing is authorised by it"),
    ("ClusterRole", "stored, not aggregated; nothing is authorised by it"),
    ("ClusterRoleBinding", "stored; nothing is authorised by it"),
    ("PriorityClass", "stored; pods do not get its value"),
    ("Sandbox", "what the pod template may hold is declared only as far as names of list elements go"),
    ("Service", "addresses from 10.0.0.0/16 in their order; no node ports; proxy: 501"),
    ("StatefulSet", "stored and scaled; no controller makes pods"),
    ("StorageClass", "stored; nothing is provisioned"),
];

enum Level {
    Supported,
    Partial(&'static str),
    /// The status with which it is refused, if it is, and what clients do about it.
    Unsupported(Option<u16>, &'static str),
}

use Level::{Partial, Supported, Unsupported};

/// What requests can ask for, beyond types.
const FEATURES: &[(&str, &[(&str, Level)])] = &[
    (
        "Custom resources",
        &[
            (
                "CRDs: create, update, delete with the end of their objects; NamesAccepted with its conflicts, Established, Terminating; only structural schemas",
                Supported,
            ),
            ("served versions, storage version, deprecation warnings", Supported),
            ("conversion strategy None", Supported),
            (
                "conversion webhooks",
                Partial("Sandbox's is played in the process; any other is as if nothing listened there"),
            ),
            (
                "pruning, defaulting, `x-kubernetes-preserve-unknown-fields`, `x-kubernetes-embedded-resource`, `nullable`",
                Supported,
            ),
            (
                "validation: types, required, enum, bounds, lengths, pattern, formats, list types, int-or-string, allOf, anyOf, oneOf, not",
                Supported,
            ),
            ("validation ratcheting", Supported),
            (
                "`x-kubernetes-validations` with transition rules, `messageExpression`, `reason`, `fieldPath`, `optionalOldSelf`",
                Partial("evaluated by kube-cel; no cost limits, no type check; the URL library is missing and refused"),
            ),
            ("subresources status and scale, `selectableFields`, `additionalPrinterColumns`", Supported),
            ("a changed CRD ends its watches and rebuilds its cache: 429 until it is filled", Supported),
        ],
    ),
    (
        "Discovery",
        &[
            ("`/api`, `/apis`, groups, resource lists, aggregated discovery v2 with ETag", Supported),
            ("`/`", Partial("only paths that are served: no metrics, no health of single parts")),
            ("`/version`, `/healthz`, `/livez`, `/readyz`", Supported),
            (
                "OpenAPI v3 index and documents",
                Partial("built-in types: names and types of members, no descriptions; JSON only"),
            ),
            ("OpenAPI v2", Unsupported(Some(501), "clients fall back to v3")),
        ],
    ),
    (
        "Reads",
        &[
            ("get, list, pages, `resourceVersion` and `resourceVersionMatch`, label and field selectors", Supported),
            ("watch, bookmarks, streaming lists", Supported),
            (
                "`PartialObjectMetadata`, `Table` with `includeObject`, also in watches",
                Partial("tables: the columns' descriptions are empty for built-in types"),
            ),
            ("answers in YAML", Partial("single objects and lists")),
            (
                "answers in protobuf",
                Partial(
                    "built-in types, also in watches; members that are new in 1.36 are left out; where a type has no message (custom resources, CustomResourceDefinition), JSON if the client takes it, else 406",
                ),
            ),
            ("answers in CBOR", Unsupported(Some(406), "where only that is accepted")),
        ],
    ),
    (
        "Writes",
        &[
            (
                "create, PUT, JSON patch, merge patch, strategic merge patch, server-side apply, dry run, in JSON or YAML",
                Supported,
            ),
            ("`fieldValidation` with warnings", Supported),
            ("delete with preconditions, grace periods, finalizers, propagation; deletecollection", Supported),
            (
                "bodies in protobuf, as client-go sends built-in types and options",
                Partial("members that are new in 1.36 are dropped; CustomResourceDefinition in protobuf: 501"),
            ),
            ("bodies in CBOR", Unsupported(Some(415), "clients fall back to JSON")),
        ],
    ),
    (
        "Reviews",
        &[
            ("TokenReview, TokenRequest", Partial("tokens are not signed")),
            (
                "SubjectAccessReview, SelfSubjectAccessReview, LocalSubjectAccessReview, SelfSubjectRulesReview",
                Partial("always allowed, as for a cluster administrator: roles and bindings restrict nothing"),
            ),
            ("SelfSubjectReview", Partial("everybody is `system:admin` of `system:masters`")),
        ],
    ),
    (
        "Transport",
        &[
            ("`timeout`: 504, and a write that still waited is not done", Supported),
            ("`pretty`, also unasked for curl and browsers", Supported),
            ("HTTP/1.1, HTTP/2 with prior knowledge", Supported),
            (
                "TLS, authentication, authorisation",
                Unsupported(None, "everybody may do everything; every answer is as to a cluster administrator"),
            ),
        ],
    ),
];

/// The document.
pub(crate) fn markdown() -> String {
    let mut out = String::from(
        "# What the simulated API server supports\n\nGenerated from the code (`harness/apiserver/src/support.rs`); do not edit. What is missing is refused, with a `Status`\nthat names it: 501, unless it says otherwise.\n\n## Types\n\n| group | kind | versions | scope | subresources | support |\n|---|---|---|---|---|---|\n",
    );
    for resource in registry(SandboxVersions::Both, true) {
        type_row(&mut out, &resource);
    }
    out.push_str("\nAny other type that a CRD defines is served as well.\n");
    for (title, features) in FEATURES {
        let _ = write!(out, "\n## {title}\n\n| | support |\n|---|---|\n");
        for (what, level) in *features {
            let level = match level {
                Supported => "supported".to_owned(),
                Partial(how) => format!("partial: {how}"),
                Unsupported(Some(code), why) => format!("unsupported ({code}): {why}"),
                Unsupported(None, why) => format!("unsupported: {why}"),
            };
            let _ = writeln!(out, "| {what} | {level} |");
        }
    }
    let _ = write!(
        out,
        "\n## Types of a real server that are missing here (501)\n\nDiscovery lists it nevertheless: `{MISSING}`.\n"
    );
    out
}

fn group_name(group: &str) -> &str {
    if group.is_empty() { "core" } else { group }
}

fn type_row(out: &mut String, resource: &Resource) {
    let mut subresources: Vec<&str> =
        (0..resource.versions.len()).flat_map(|at| resource.subresources(at)).map(|sub| sub.name).collect();
    subresources.sort_unstable();
    subresources.dedup();
    let scope = if resource.namespaced { "namespaced" } else { "cluster" };
    let partial = PARTIAL.iter().find(|(kind, _)| *kind == resource.kind).map(|(_, how)| *how);
    let level = match (resource.held, partial) {
        (Held::Unknown, _) => "listed by discovery; all requests: 501".to_owned(),
        (Held::Nothing, _) => "partial: empty, as in a new cluster; writes: 501".to_owned(),
        (Held::Objects, Some(how)) => format!("partial: {how}"),
        (Held::Objects, None) => "supported".to_owned(),
    };
    let (group, versions) = (group_name(&resource.group), resource.versions.join(", "));
    let _ =
        writeln!(out, "| {group} | {} | {versions} | {scope} | {} | {level} |", resource.kind, subresources.join(", "));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_committed_document_says_what_the_code_does() {
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/api-support.md");
        if std::env::var_os("UPDATE_DOCS").is_some() {
            std::fs::write(file, markdown()).expect("the file can be written");
        }
        let committed = std::fs::read_to_string(file).unwrap_or_default();
        assert_eq!(committed, markdown(), "write it anew: UPDATE_DOCS=1 cargo test -p photofinish-apiserver support");
    }

    async fn asked(method: &str, path: &str, header: (&str, &str)) -> u16 {
        use http_body_util::Full;
        use tower::ServiceExt;
        let request = http::Request::builder().method(method).uri(path).header(header.0, header.1);
        let request = request.body(Full::<bytes::Bytes>::from("{}")).expect("a request");
        crate::ApiServer::builder().build().oneshot(request).await.expect("an answer").status().as_u16()
    }

    #[tokio::test]
    async fn what_is_called_missing_is_refused_as_it_is_said() {
        let json = ("accept", "application/json");
        assert_eq!(asked("GET", &format!("/api/v1/{MISSING}"), json).await, 501);
        for resource in &registry(SandboxVersions::Both, true) {
            let [read, absent] = match resource.held {
                Held::Objects => continue,
                Held::Nothing => [200, 404],
                Held::Unknown => [501, 501],
            };
            let base = format!("/apis/{}/v1", resource.group);
            let all = format!("{base}/{}", resource.plural);
            for watched in ["", "?watch=1&timeoutSeconds=1"] {
                assert_eq!(asked("GET", &format!("{all}{watched}"), json).await, read, "{all}{watched}");
            }
            let within =
                if resource.namespaced { format!("{base}/namespaces/default/{}", resource.plural) } else { all };
            for (method, below, code) in
                [("POST", "", 501), ("PUT", "/x", 501), ("GET", "/x", absent), ("DELETE", "/x", absent)]
            {
                assert_eq!(asked(method, &format!("{within}{below}"), json).await, code, "{method} {within}{below}");
            }
        }
        for proxied in ["/api/v1/nodes/n/proxy", "/api/v1/namespaces/default/services/s/proxy"] {
            assert_eq!(asked("GET", proxied, json).await, 501, "{proxied}");
        }
        assert_eq!(asked("GET", "/openapi/v2", json).await, 501);
        let maps = "/api/v1/namespaces/default/configmaps";
        assert_eq!(asked("GET", maps, ("accept", "application/cbor")).await, 406);
        assert_eq!(asked("GET", maps, ("accept", "application/cbor, application/json")).await, 200);
        assert_eq!(asked("POST", maps, ("content-type", "application/cbor")).await, 415);
        assert_eq!(asked("PUT", &format!("{maps}/a"), ("content-type", "application/cbor")).await, 415);
        let sandboxes = "/apis/agents.x-k8s.io/v1beta1/sandboxes";
        assert_eq!(asked("GET", sandboxes, ("accept", "application/vnd.kubernetes.protobuf")).await, 406);
        let crds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
        assert_eq!(asked("GET", crds, ("accept", "application/vnd.kubernetes.protobuf")).await, 406);
        assert_eq!(asked("GET", maps, ("accept", "application/vnd.kubernetes.protobuf")).await, 200);
    }

    #[test]
    fn every_remark_is_about_a_type_that_is_served() {
        let all = registry(SandboxVersions::Both, true);
        for (kind, _) in PARTIAL {
            assert!(all.iter().any(|resource| resource.kind == *kind), "{kind}");
        }
    }
}
