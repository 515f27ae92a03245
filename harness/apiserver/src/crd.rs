//! Custom resource definitions: objects that make types (Kubernetes docs: "Extend the Kubernetes API with
//! CustomResourceDefinitions").

mod admit;
mod lifecycle;
mod names;
mod sandbox;

use std::borrow::Cow;
use std::sync::{Arc, OnceLock};

use serde_json::{Value, json};

use self::names::Outcome;
use crate::clock;
use crate::ownership::shape::Shape;
use crate::resource::{FieldLabel, Held, Names, Resource, SandboxVersions};
use crate::schema::Schema;

pub(crate) use admit::{complete, mistakes};
pub(crate) use lifecycle::{Agenda, Cache, Serving, attend, definition_changed, install_at_once, marked, settle};

/// Group of the CRD type itself.
pub(crate) const GROUP: &str = "apiextensions.k8s.io";

/// The finalizer that keeps a CRD until its objects are gone.
pub(crate) const CLEANUP: &str = "customresourcecleanup.apiextensions.k8s.io";

/// What a CRD says, read once.
#[derive(Debug)]
pub(crate) struct Definition {
    /// In the order of [`Resource::versions`]: the storage version first.
    pub(crate) versions: Vec<CustomVersion>,
    /// How objects get from one version to another.
    pub(crate) conversion: Conversion,
}

/// One version of a custom resource.
#[derive(Debug)]
pub(crate) struct CustomVersion {
    pub(crate) served: bool,
    /// The text of the `Warning` that each request in a deprecated version gets.
    pub(crate) deprecation: Option<String>,
    pub(crate) schema: Schema,
    /// How its objects are split into fields that have owners.
    pub(crate) shape: Shape,
    /// The schema as it was written, for OpenAPI.
    pub(crate) source: Value,
    /// Has a `status` that only the `/status` subresource writes.
    pub(crate) has_status: bool,
    pub(crate) scale: Option<ScalePaths>,
    pub(crate) columns: Vec<Column>,
    /// `selectableFields`.
    pub(crate) fields: Vec<FieldLabel>,
}

/// `spec.conversion`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Conversion {
    /// Another `apiVersion`, and what the requested version's schema knows.
    None,
    /// The agent-sandbox webhook, played by this server.
    Sandbox,
    /// A webhook that nobody plays: as if nothing listened at its address.
    Unreachable {
        /// What the API server would post to.
        url: String,
        /// `host:port`.
        address: String,
    },
}

/// The members behind the `scale` subresource, as paths of member names.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ScalePaths {
    pub(crate) spec: Cow<'static, str>,
    pub(crate) status: Cow<'static, str>,
    pub(crate) selector: Option<Cow<'static, str>>,
}

impl ScalePaths {
    /// Those of the built-in workloads.
    pub(crate) const BUILTIN: ScalePaths =
        ScalePaths { spec: Cow::Borrowed(".spec.replicas"), status: Cow::Borrowed(".status.replicas"), selector: None };
}

/// One of `additionalPrinterColumns`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Column {
    pub(crate) name: String,
    /// `string`, `integer`, `number`, `boolean`, `date`.
    pub(crate) kind: String,
    pub(crate) format: String,
    pub(crate) description: String,
    pub(crate) priority: i64,
    pub(crate) path: String,
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn texts(value: &Value) -> Vec<Cow<'static, str>> {
    value.as_array().into_iter().flatten().map(|v| text(v).into()).collect()
}

/// The type that a CRD object defines. `webhook`: the conversion of Sandbox is played by this server.
pub(crate) fn resource(crd: &Value, webhook: bool) -> Resource {
    let spec = &crd["spec"];
    let mut versions: Vec<&Value> = spec["versions"].as_array().into_iter().flatten().collect();
    // Stable: the storage version first, the others as they were written.
    versions.sort_by_key(|version| version["storage"] != true);
    let names = names(crd);
    let (group, kind) = (text(&spec["group"]), text(&names["kind"]));
    let storage = versions.first().map(|v| text(&v["name"])).unwrap_or_default();
    let conversion = conversion(spec, &group, webhook);
    let plays_sandbox = conversion == Conversion::Sandbox;
    let custom: Vec<CustomVersion> =
        versions.iter().map(|version| custom_version(version, &group, &kind, &storage)).collect();
    Resource {
        versions: versions.iter().map(|v| text(&v["name"]).into()).collect(),
        plural: text(&names["plural"]).into(),
        namespaced: spec["scope"] != "Cluster",
        webhook: plays_sandbox,
        custom: true,
        counts_generation: true,
        has_status: custom.iter().any(|version| version.has_status),
        fields: &[],
        scales: false,
        held: Held::Objects,
        names: Names {
            singular: names["singular"].as_str().map_or_else(|| kind.to_lowercase(), str::to_owned).into(),
            list: names["listKind"].as_str().map_or_else(|| format!("{kind}List"), str::to_owned).into(),
            short: texts(&names["shortNames"]),
            categories: texts(&names["categories"]),
        },
        group: group.into(),
        kind: kind.into(),
        definition: Some(Arc::new(Definition { versions: custom, conversion })),
    }
}

/// The names under which a type is served: those that were accepted, once it was established.
fn names(crd: &Value) -> &Value {
    let accepted = &crd["status"]["acceptedNames"];
    if is(crd, "Established") && accepted["plural"].as_str().is_some_and(|plural| !plural.is_empty()) {
        accepted
    } else {
        &crd["spec"]["names"]
    }
}

fn conversion(spec: &Value, group: &str, webhook: bool) -> Conversion {
    if spec["conversion"]["strategy"] != "Webhook" {
        return Conversion::None;
    }
    if webhook && group == crate::resource::AGENTS && spec["names"]["plural"] == "sandboxes" {
        return Conversion::Sandbox;
    }
    let client = &spec["conversion"]["webhook"]["clientConfig"];
    let url = match client["url"].as_str() {
        Some(url) => url.to_owned(),
        None => {
            let service = &client["service"];
            let port = service["port"].as_i64().unwrap_or(443);
            let path = service["path"].as_str().unwrap_or_default();
            format!("https://{}.{}.svc:{port}{path}", text(&service["name"]), text(&service["namespace"]))
        }
    };
    let host = url.split("://").nth(1).unwrap_or_default().split('/').next().unwrap_or_default();
    let address = if host.contains(':') { host.to_owned() } else { format!("{host}:443") };
    Conversion::Unreachable { url, address }
}

fn custom_version(version: &Value, group: &str, kind: &str, storage: &str) -> CustomVersion {
    let name = text(&version["name"]);
    let source = version["schema"]["openAPIV3Schema"].clone();
    let scale = version["subresources"].get("scale").filter(|scale| scale.is_object());
    let deprecated = version["deprecated"] == true;
    let deprecation = deprecated.then(|| match version["deprecationWarning"].as_str() {
        Some(warning) => warning.to_owned(),
        None => format!("{group}/{name} {kind} is deprecated; use {group}/{storage} {kind}"),
    });
    let column = |column: &Value| Column {
        name: text(&column["name"]),
        kind: text(&column["type"]),
        format: text(&column["format"]),
        description: match column["description"].as_str() {
            Some(description) => description.to_owned(),
            None => format!("Custom resource definition column (in JSONPath format): {}", text(&column["jsonPath"])),
        },
        priority: column["priority"].as_i64().unwrap_or(0),
        path: text(&column["jsonPath"]),
    };
    CustomVersion {
        served: version["served"] == true,
        deprecation,
        schema: Schema::compile(&source),
        shape: Shape::of_schema(&source).with_metadata(),
        source,
        has_status: version["subresources"].get("status").is_some_and(Value::is_object),
        scale: scale.map(|scale| ScalePaths {
            spec: text(&scale["specReplicasPath"]).into(),
            status: text(&scale["statusReplicasPath"]).into(),
            selector: scale["labelSelectorPath"].as_str().map(|path| path.to_owned().into()),
        }),
        columns: version["additionalPrinterColumns"].as_array().into_iter().flatten().map(column).collect(),
        fields: version["selectableFields"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|field| FieldLabel {
                label: text(&field["jsonPath"]).trim_start_matches('.').to_owned().into(),
                absent: "",
            })
            .collect(),
    }
}

/// `status` of a CRD after a look at its names. `establish`: the type is served from now on, if it was not before.
fn named(crd: &Value, outcome: Outcome, establish: bool, now: &str) -> Value {
    let Outcome { names, conflict } = outcome;
    let mut conditions = crd["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let mut set = |kind: &str, status: &str, reason: &str, message: &str| {
        let known = conditions.iter().position(|condition| condition["type"] == kind);
        let since = known.map(|at| &conditions[at]).filter(|condition| condition["status"] == status);
        let since = since.map_or(now.into(), |condition| condition["lastTransitionTime"].clone());
        let condition = json!({
            "type": kind, "status": status, "lastTransitionTime": since, "reason": reason, "message": message,
        });
        match known {
            Some(at) => conditions[at] = condition,
            None => conditions.push(condition),
        }
    };
    match &conflict {
        None => set("NamesAccepted", "True", "NoConflicts", "no conflicts found"),
        Some((reason, message)) => set("NamesAccepted", "False", reason, message),
    }
    let accepted = "the initial names have been accepted";
    match (is(crd, "Established"), &conflict) {
        (true, _) => {}
        (false, Some(_)) => set("Established", "False", "NotAccepted", "not all names are accepted"),
        (false, None) if establish => set("Established", "True", "InitialNamesAccepted", accepted),
        (false, None) => set("Established", "False", "Installing", accepted),
    }
    json!({"conditions": conditions, "acceptedNames": names, "storedVersions": crd["status"]["storedVersions"]})
}

/// The CRD of Sandbox as it is stored once it was installed.
pub(crate) fn installed_sandbox(versions: SandboxVersions, webhook: bool) -> Value {
    let mut crd = known_sandbox(versions, webhook).definition.clone();
    establish(&mut crd);
    crd
}

/// Turns a CRD as a client would send it into one that is established.
pub(crate) fn establish(crd: &mut Value) {
    let now = clock::rfc3339(clock::now());
    complete(crd);
    crd["metadata"]["uid"] = clock::uid().into();
    crd["metadata"]["creationTimestamp"] = now.as_str().into();
    crd["metadata"]["generation"] = 1.into();
    let all = Outcome { names: crd["spec"]["names"].clone(), conflict: None };
    crd["status"] = named(crd, all, true, &now);
}

/// The type that [`installed_sandbox`] makes.
pub(crate) fn sandbox_type(versions: SandboxVersions, webhook: bool) -> Resource {
    known_sandbox(versions, webhook).resource.clone()
}

/// Reads and compiles what all servers share, once for the process.
pub(crate) fn prepare() {
    for versions in [SandboxVersions::Both, SandboxVersions::V1alpha1Only] {
        for version in known_sandbox(versions, true).resource.definition.iter().flat_map(|d| &d.versions) {
            // Looking for mistakes compiles every rule.
            version.schema.mistakes("", &mut Vec::new());
        }
    }
}

/// The CRD of Sandbox as written, and the type it makes: the same for every server, and dear to make.
struct Known {
    definition: Value,
    resource: Resource,
}

fn known_sandbox(versions: SandboxVersions, webhook: bool) -> &'static Known {
    static KNOWN: [OnceLock<Known>; 4] = [const { OnceLock::new() }; 4];
    KNOWN[usize::from(versions == SandboxVersions::Both) * 2 + usize::from(webhook)].get_or_init(|| {
        let mut definition = sandbox::definition(versions, webhook);
        complete(&mut definition);
        let resource = resource(&definition, webhook);
        Known { definition, resource }
    })
}

/// Whether a condition of a CRD is true.
fn is(crd: &Value, condition: &str) -> bool {
    let conditions = crd["status"]["conditions"].as_array();
    conditions.into_iter().flatten().any(|c| c["type"] == condition && c["status"] == "True")
}

#[cfg(test)]
mod tests;
