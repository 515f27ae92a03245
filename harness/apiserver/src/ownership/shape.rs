//! What field ownership needs to know of types: which lists merge by keys or as sets, and which values are atomic.
//!
//! Source: the `listType`, `listMapKey`, `mapType` and `structType` markers of the API types, as OpenAPI publishes them
//! (`x-kubernetes-list-type` and so on). A field that is not named here has the defaults: objects and maps are owned
//! member by member, lists as a whole.

use std::sync::{Arc, LazyLock};

use serde_json::{Map, Value};

use crate::crd;
use crate::resource::{AGENTS, Resource};

/// How a value is split into fields that can be owned.
#[derive(Clone, Debug)]
pub(crate) enum Shape {
    /// As the value itself suggests: objects by member, lists as a whole.
    Plain,
    /// Owned as a whole.
    Atomic,
    /// A list of scalars, owned element by element.
    Set,
    /// A list of objects, owned by element, and then as the elements' shape says.
    Keyed(Vec<Key>, Arc<Shape>),
    /// An object with some members that differ from the defaults.
    Object(Vec<(String, Shape)>),
    /// An object with free names, whose values are all alike.
    Map(Arc<Shape>),
}

/// A member that identifies an element of a list.
#[derive(Clone, Debug)]
pub(crate) struct Key {
    name: String,
    /// What an element without that member has there.
    default: Option<Value>,
}

static PLAIN: Shape = Shape::Plain;

impl Shape {
    /// The shape of a member of an object of this shape.
    pub(crate) fn member(&self, name: &str) -> &Shape {
        match self {
            Shape::Object(fields) => fields.iter().find(|(field, _)| field == name).map_or(&PLAIN, |(_, shape)| shape),
            Shape::Map(value) => value,
            _ => &PLAIN,
        }
    }

    /// The shape that a schema (OpenAPI v3, as in a CRD) describes.
    pub(crate) fn of_schema(schema: &Value) -> Shape {
        if let Some(items) = schema.get("items") {
            return match schema["x-kubernetes-list-type"].as_str() {
                Some("set") => Shape::Set,
                Some("map") => Shape::Keyed(keys_of(schema), Arc::new(Shape::of_schema(items))),
                _ => Shape::Atomic,
            };
        }
        if schema["x-kubernetes-map-type"] == "atomic" {
            return Shape::Atomic;
        }
        if let Some(values) = schema.get("additionalProperties").filter(|values| values.is_object()) {
            return Shape::Map(Arc::new(Shape::of_schema(values)));
        }
        let declared = schema["properties"].as_object().into_iter().flatten();
        let fields: Vec<(String, Shape)> = declared
            .map(|(name, schema)| (name.clone(), Shape::of_schema(schema)))
            .filter(|(_, shape)| !matches!(shape, Shape::Plain))
            .collect();
        if fields.is_empty() { Shape::Plain } else { Shape::Object(fields) }
    }

    /// The same with the members that every object has.
    pub(crate) fn with_metadata(self) -> Shape {
        let mut fields = match self {
            Shape::Object(fields) => fields,
            _ => Vec::new(),
        };
        fields.retain(|(name, _)| name != "metadata");
        fields.push(("metadata".into(), metadata()));
        Shape::Object(fields)
    }
}

fn keys_of(schema: &Value) -> Vec<Key> {
    let names = schema["x-kubernetes-list-map-keys"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let properties = &schema["items"]["properties"];
    names.map(|name| Key { name: name.to_owned(), default: properties[name].get("default").cloned() }).collect()
}

/// The path element of a list's element: `k:{"name":"c"}`.
pub(crate) fn element(keys: &[Key], item: &Value) -> String {
    let mut chosen = Map::new();
    for key in keys {
        if let Some(value) = item.get(&key.name).or(key.default.as_ref()) {
            chosen.insert(key.name.clone(), value.clone());
        }
    }
    format!("k:{}", Value::Object(chosen))
}

fn object<const N: usize>(fields: [(&str, Shape); N]) -> Shape {
    Shape::Object(fields.into_iter().map(|(name, shape)| (name.to_owned(), shape)).collect())
}

/// A list of objects with such members that merges by these keys. `port` and `containerPort` are only unique together
/// with a protocol.
fn keyed(keys: &[&str], item: Shape) -> Shape {
    let default = |name: &str| (name == "protocol").then(|| Value::from("TCP"));
    let keys = keys.iter().map(|name| Key { name: (*name).to_owned(), default: default(name) }).collect();
    Shape::Keyed(keys, Arc::new(item))
}

fn metadata() -> Shape {
    object([("finalizers", Shape::Set), ("ownerReferences", keyed(&["uid"], Shape::Atomic))])
}

fn conditions() -> Shape {
    keyed(&["type"], Shape::Plain)
}

fn container() -> Shape {
    let references = ["configMapKeyRef", "fieldRef", "fileKeyRef", "resourceFieldRef", "secretKeyRef"];
    let source = object(references.map(|name| (name, Shape::Atomic)));
    object([
        ("env", keyed(&["name"], object([("valueFrom", source)]))),
        ("ports", keyed(&["containerPort", "protocol"], Shape::Plain)),
        ("resources", object([("claims", keyed(&["name"], Shape::Plain))])),
        ("volumeDevices", keyed(&["devicePath"], Shape::Plain)),
        ("volumeMounts", keyed(&["mountPath"], Shape::Plain)),
    ])
}

fn claim_spec() -> Shape {
    object([("dataSource", Shape::Atomic), ("selector", Shape::Atomic)])
}

fn volume() -> Shape {
    let secret = || object([("secretRef", Shape::Atomic)]);
    let template = object([("metadata", metadata()), ("spec", claim_spec())]);
    object([
        ("cephfs", secret()),
        ("cinder", secret()),
        ("csi", object([("nodePublishSecretRef", Shape::Atomic)])),
        ("ephemeral", object([("volumeClaimTemplate", template)])),
        ("flexVolume", secret()),
        ("iscsi", secret()),
        ("rbd", secret()),
        ("scaleIO", secret()),
        ("storageos", secret()),
    ])
}

/// `spec` of a pod, wherever it stands.
fn pod_spec() -> Shape {
    let required = object([("requiredDuringSchedulingIgnoredDuringExecution", Shape::Atomic)]);
    object([
        ("affinity", object([("nodeAffinity", required)])),
        ("containers", keyed(&["name"], container())),
        ("ephemeralContainers", keyed(&["name"], container())),
        ("hostAliases", keyed(&["ip"], Shape::Plain)),
        ("imagePullSecrets", keyed(&["name"], Shape::Atomic)),
        ("initContainers", keyed(&["name"], container())),
        ("nodeSelector", Shape::Atomic),
        ("resourceClaims", keyed(&["name"], Shape::Plain)),
        ("schedulingGates", keyed(&["name"], Shape::Plain)),
        (
            "topologySpreadConstraints",
            keyed(&["topologyKey", "whenUnsatisfiable"], object([("labelSelector", Shape::Atomic)])),
        ),
        ("volumes", keyed(&["name"], volume())),
    ])
}

fn template() -> Shape {
    object([("metadata", metadata()), ("spec", pod_spec())])
}

fn with(spec: Shape, status: Shape) -> Shape {
    object([("spec", spec), ("status", status)]).with_metadata()
}

static POD: LazyLock<Shape> = LazyLock::new(|| {
    let status = object([
        ("conditions", conditions()),
        ("podIPs", keyed(&["ip"], Shape::Plain)),
        ("resourceClaimStatuses", keyed(&["name"], Shape::Plain)),
    ]);
    with(pod_spec(), status)
});

static NODE: LazyLock<Shape> = LazyLock::new(|| {
    let status = object([("addresses", keyed(&["type"], Shape::Plain)), ("conditions", conditions())]);
    with(object([("podCIDRs", Shape::Set)]), status)
});

static SERVICE: LazyLock<Shape> = LazyLock::new(|| {
    let ports = keyed(&["port", "protocol"], Shape::Plain);
    with(object([("ports", ports), ("selector", Shape::Atomic)]), object([("conditions", conditions())]))
});

static SERVICE_ACCOUNT: LazyLock<Shape> = LazyLock::new(|| {
    let named = || keyed(&["name"], Shape::Atomic);
    object([("imagePullSecrets", named()), ("secrets", named())]).with_metadata()
});

static VOLUME_CLAIM: LazyLock<Shape> = LazyLock::new(|| with(claim_spec(), object([("conditions", conditions())])));

static EVENT: LazyLock<Shape> = LazyLock::new(|| {
    object(["involvedObject", "regarding", "related"].map(|name| (name, Shape::Atomic))).with_metadata()
});

static NETWORK_POLICY: LazyLock<Shape> =
    LazyLock::new(|| object([("spec", object([("podSelector", Shape::Atomic)]))]).with_metadata());

/// Workloads, disruption budgets and the like: a selector, a template, conditions.
static WORKLOAD: LazyLock<Shape> = LazyLock::new(|| {
    with(object([("selector", Shape::Atomic), ("template", template())]), object([("conditions", conditions())]))
});

/// A template of jobs.
static CRON_JOB: LazyLock<Shape> = LazyLock::new(|| {
    let job = object([("selector", Shape::Atomic), ("template", template())]);
    with(object([("jobTemplate", object([("metadata", metadata()), ("spec", job)]))]), Shape::Plain)
});

static POD_TEMPLATE: LazyLock<Shape> = LazyLock::new(|| object([("template", template())]).with_metadata());

static QUOTA: LazyLock<Shape> =
    LazyLock::new(|| object([("spec", object([("scopeSelector", Shape::Atomic)]))]).with_metadata());

static INGRESS: LazyLock<Shape> = LazyLock::new(|| {
    let backend = object([("resource", Shape::Atomic)]);
    object([("spec", object([("defaultBackend", backend)]))]).with_metadata()
});

static AUTOSCALER: LazyLock<Shape> = LazyLock::new(|| with(Shape::Plain, object([("conditions", conditions())])));

static ROLE_BINDING: LazyLock<Shape> = LazyLock::new(|| object([("roleRef", Shape::Atomic)]).with_metadata());

static DEFINITION: LazyLock<Shape> = LazyLock::new(|| {
    let status = object([("conditions", conditions()), ("storedVersions", Shape::Atomic)]);
    with(object([("versions", Shape::Atomic)]), status)
});

static OTHER: LazyLock<Shape> = LazyLock::new(|| Shape::Plain.with_metadata());

static SANDBOX: LazyLock<Shape> =
    LazyLock::new(|| object([("spec", object([("podTemplate", object([("spec", pod_spec())]))]))]).with_metadata());

/// The shape of a type's objects in one of its versions.
pub(crate) fn of(resource: &Resource, version: usize) -> &Shape {
    match (&*resource.group, &*resource.plural) {
        // Its installed CRD leaves most of the pod template undeclared.
        (AGENTS, "sandboxes") => &SANDBOX,
        _ if resource.custom => resource.custom_version(version).map_or(&OTHER, |custom| &custom.shape),
        ("", "pods") => &POD,
        ("", "nodes") => &NODE,
        ("", "services") => &SERVICE,
        ("", "serviceaccounts") => &SERVICE_ACCOUNT,
        ("", "persistentvolumeclaims") => &VOLUME_CLAIM,
        ("", "events") => &EVENT,
        ("networking.k8s.io", "networkpolicies") => &NETWORK_POLICY,
        ("rbac.authorization.k8s.io", "rolebindings" | "clusterrolebindings") => &ROLE_BINDING,
        (crd::GROUP, _) => &DEFINITION,
        ("batch", "cronjobs") => &CRON_JOB,
        ("", "podtemplates") => &POD_TEMPLATE,
        ("", "resourcequotas") => &QUOTA,
        ("networking.k8s.io", "ingresses") => &INGRESS,
        ("autoscaling", _) => &AUTOSCALER,
        ("apps", "controllerrevisions") => &OTHER,
        ("", "namespaces" | "replicationcontrollers") | ("apps" | "batch" | "policy", _) => &WORKLOAD,
        _ => &OTHER,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_schema_tells_how_its_lists_merge() {
        let schema = json!({"type": "object", "properties": {
            "plain": {"type": "array", "items": {"type": "string"}},
            "names": {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"},
            "ports": {
                "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["port", "protocol"],
                "items": {"type": "object", "properties": {"port": {}, "protocol": {"default": "TCP"}}},
            },
            "ref": {"type": "object", "x-kubernetes-map-type": "atomic"},
            "text": {"type": "string"},
        }});
        let shape = Shape::of_schema(&schema);
        assert!(matches!(shape.member("plain"), Shape::Atomic));
        assert!(matches!(shape.member("names"), Shape::Set));
        assert!(matches!(shape.member("ref"), Shape::Atomic));
        assert!(matches!(shape.member("text"), Shape::Plain));
        let Shape::Keyed(keys, _) = shape.member("ports") else { panic!("keyed") };
        assert_eq!(element(keys, &json!({"port": 80, "x": 1})), r#"k:{"port":80,"protocol":"TCP"}"#);
    }
}
