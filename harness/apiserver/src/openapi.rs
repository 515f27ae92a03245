//! OpenAPI v3 documents, one for each group and version: enough for clients that validate, explain and patch.
//!
//! Custom resources are described by their own schemas; built-in types as far as this crate knows their members.

use http::{HeaderValue, Response, header};
use serde_json::{Map, Value, json};

use crate::digest::sha512_hex;
use crate::error::ApiError;
use crate::history::History;
use crate::resource::Resource;
use crate::response::Body;
use crate::schema::builtin;
use crate::typed;

/// An answer under `/openapi`.
pub(crate) fn answer(history: &History, parts: &[&str], accept: &str) -> Result<Response<Body>, ApiError> {
    let json = accept.is_empty()
        || accept.split(',').any(|media| {
            matches!(media.split(';').next().unwrap_or_default().trim(), "application/json" | "*/*" | "application/*")
        });
    let document = match parts {
        ["v2"] => return Err(ApiError::unsupported("OpenAPI v2; ask for /openapi/v3")),
        ["v3", ..] if !json => return Err(ApiError::unsupported("OpenAPI documents that are not JSON")),
        ["v3"] => index(history),
        ["v3", "api", "v1"] => document(history, "", "v1").ok_or_else(ApiError::no_such_path)?,
        ["v3", "apis", group, version] => document(history, group, version).ok_or_else(ApiError::no_such_path)?,
        _ => return Err(ApiError::no_such_path()),
    };
    let mut response = Response::new(Body::full(document.to_string().into()));
    let headers = response.headers_mut();
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
    let kind = if parts.len() == 1 { "text/plain; charset=utf-8" } else { "application/json" };
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    Ok(response)
}

fn types(history: &History) -> impl Iterator<Item = &Resource> {
    history.tables.iter().filter(|table| !table.serving.retired).map(|table| &*table.resource)
}

/// Where the documents are, each with a hash of what it says, so that clients may keep them.
fn index(history: &History) -> Value {
    let mut paths = Map::new();
    for resource in types(history) {
        for (group, version, _) in resource.places() {
            let path = if group.is_empty() { format!("api/{version}") } else { format!("apis/{group}/{version}") };
            if paths.contains_key(&path) {
                continue;
            }
            let Some(document) = document(history, group, version) else { continue };
            let hash = sha512_hex(document.to_string().as_bytes());
            paths.insert(path.clone(), json!({"serverRelativeURL": format!("/openapi/v3/{path}?hash={hash}")}));
        }
    }
    json!({"paths": paths})
}

fn document(history: &History, group: &str, version: &str) -> Option<Value> {
    let (mut paths, mut schemas) = (Map::new(), Map::new());
    for resource in types(history) {
        let Some(at) = resource.places().find(|(g, v, _)| *g == group && *v == version).map(|(_, _, at)| at) else {
            continue;
        };
        let place = Place { resource, group, version };
        let name = schema_name(place);
        schemas.insert(name.clone(), schema(place, at));
        if !resource.custom {
            builtin::components(definition(place), &mut schemas);
        }
        add_paths(place, &name, &mut paths);
    }
    if paths.is_empty() {
        return None;
    }
    schemas.extend(common());
    Some(json!({
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": crate::server::VERSION},
        "paths": paths,
        "components": {"schemas": schemas},
    }))
}

/// A type in one of its groups and versions.
#[derive(Clone, Copy)]
struct Place<'a> {
    resource: &'a Resource,
    group: &'a str,
    version: &'a str,
}

fn definition(Place { resource, group, version }: Place<'_>) -> &str {
    typed::definition(&format!("{group}/{version}"), &resource.kind)
}

/// `io.x-k8s.agents.v1beta1.Sandbox`.
fn schema_name(Place { resource, group, version }: Place<'_>) -> String {
    if group.is_empty() {
        return format!("io.k8s.api.core.{version}.{}", resource.kind);
    }
    if !resource.custom {
        let group = group.split('.').next().unwrap_or_default();
        return format!("io.k8s.api.{group}.{version}.{}", resource.kind);
    }
    let mut parts: Vec<&str> = group.split('.').collect();
    parts.reverse();
    format!("{}.{version}.{}", parts.join("."), resource.kind)
}

fn identity(Place { resource, group, version }: Place<'_>) -> Value {
    json!({"group": group, "version": version, "kind": resource.kind})
}

fn schema(place: Place<'_>, at: usize) -> Value {
    let mut schema = match place.resource.custom_version(at) {
        Some(custom) => custom.source.clone(),
        None => builtin::document(definition(place)),
    };
    if !schema.is_object() {
        schema = json!({"type": "object"});
    }
    let describe = |text: &str| json!({"type": "string", "description": text});
    schema["properties"]["apiVersion"] = describe("The version of the schema that this object follows.");
    schema["properties"]["kind"] = describe("The type of this object.");
    schema["properties"]["metadata"] = json!({
        "description": "What all objects have: names, labels, owners.",
        "allOf": [{"$ref": format!("#/components/schemas/{OBJECT_META}")}], "default": {},
    });
    schema["x-kubernetes-group-version-kind"] = json!([identity(place)]);
    schema
}

const OBJECT_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";

/// Schemas that every document holds.
fn common() -> Map<String, Value> {
    let text = |what: &str| json!({"type": "string", "description": what});
    let map = |what: &str| json!({"type": "object", "description": what, "additionalProperties": {"type": "string", "default": ""}});
    let owner = json!({
        "type": "object", "required": ["apiVersion", "kind", "name", "uid"],
        "properties": {
            "apiVersion": text("The owner's version."), "kind": text("The owner's type."),
            "name": text("The owner's name."), "uid": text("The owner's uid."),
            "controller": {"type": "boolean", "description": "The owner manages this object."},
            "blockOwnerDeletion": {"type": "boolean", "description": "The owner waits for this object when it is deleted in the foreground."},
        },
    });
    let meta = json!({
        "type": "object", "description": "What all objects have.",
        "properties": {
            "name": text("Unique among the objects of a type in a namespace."),
            "generateName": text("What a generated name begins with."),
            "namespace": text("The namespace of the object."),
            "uid": text("Unique for all time."),
            "resourceVersion": text("Changes with every write."),
            "generation": {"type": "integer", "format": "int64", "description": "Counts changes of the desired state."},
            "creationTimestamp": {"type": "string", "format": "date-time", "description": "When the object was created."},
            "deletionTimestamp": {"type": "string", "format": "date-time", "description": "When the object is to be gone."},
            "deletionGracePeriodSeconds": {"type": "integer", "format": "int64", "description": "Seconds between the deletion and the object's end."},
            "labels": map("What selectors select by."),
            "annotations": map("What tools remember about the object."),
            "finalizers": {
                "type": "array", "description": "Who has to act before the object can go.",
                "items": {"type": "string", "default": ""}, "x-kubernetes-list-type": "set",
            },
            "ownerReferences": {
                "type": "array", "description": "Objects that this one goes with.", "items": owner,
                "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["uid"],
            },
            "managedFields": {
                "type": "array", "description": "Which client has set which fields.", "items": {"type": "object"},
                "x-kubernetes-list-type": "atomic",
            },
        },
    });
    Map::from_iter([(OBJECT_META.to_owned(), meta)])
}

fn add_paths(place: Place<'_>, name: &str, paths: &mut Map<String, Value>) {
    let Place { resource, group, version } = place;
    let base = match group {
        "" => format!("/api/{version}"),
        group => format!("/apis/{group}/{version}"),
    };
    let (all, scope) = (format!("{base}/{}", resource.plural), "{namespace}");
    let collection = match resource.namespaced {
        true => format!("{base}/namespaces/{scope}/{}", resource.plural),
        false => all.clone(),
    };
    let content = json!({"application/json": {"schema": {"$ref": format!("#/components/schemas/{name}")}}});
    let operation = |action: &str, writes: bool| {
        let mut operation = json!({
            "tags": [format!("{group}_{version}")],
            "responses": {"200": {"description": "OK", "content": content}},
            "x-kubernetes-action": action,
            "x-kubernetes-group-version-kind": identity(place),
        });
        if writes {
            let parameter =
                |name: &str| json!({"name": name, "in": "query", "schema": {"type": "string", "uniqueItems": true}});
            let parameters: Vec<Value> = ["dryRun", "fieldManager", "fieldValidation"].map(parameter).to_vec();
            operation["parameters"] = parameters.into();
        }
        operation
    };
    if resource.namespaced {
        paths.insert(all, json!({"get": operation("list", false)}));
    }
    paths.insert(
        format!("{collection}/{{name}}"),
        json!({
            "get": operation("get", false), "put": operation("put", true), "patch": operation("patch", true),
            "delete": operation("delete", false),
        }),
    );
    paths.insert(collection, json!({"get": operation("list", false), "post": operation("post", true)}));
}
