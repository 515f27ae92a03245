//! Discovery: what a server tells about its groups, versions and types, in the old documents and in the aggregated one
//! (Kubernetes docs: "The Kubernetes API: discovery").

use std::cmp::Reverse;
use std::sync::LazyLock;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use serde_json::{Map, Value, json};

mod document;

use crate::crd;
use crate::defaults::base64;
use crate::digest::sha256;
use crate::error::ApiError;
use crate::history::{History, Table};
use crate::openapi;
use crate::resource::{Resource, Subresource};
use crate::response::Body;
use crate::reviews;
use crate::route::MISSING;

/// The order in which a real server lists its own groups; those of CRDs come after them.
const GROUPS: [&str; 20] = [
    "apiregistration.k8s.io",
    "apps",
    "events.k8s.io",
    "authentication.k8s.io",
    "authorization.k8s.io",
    "autoscaling",
    "batch",
    "certificates.k8s.io",
    "networking.k8s.io",
    "policy",
    "rbac.authorization.k8s.io",
    "storage.k8s.io",
    "admissionregistration.k8s.io",
    "apiextensions.k8s.io",
    "scheduling.k8s.io",
    "coordination.k8s.io",
    "node.k8s.io",
    "discovery.k8s.io",
    "resource.k8s.io",
    "flowcontrol.apiserver.k8s.io",
];

const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// A group with its types.
struct Group<'a> {
    name: &'a str,
    /// The preferred one first.
    versions: Vec<&'a str>,
    /// With their version in this group, and its position.
    types: Vec<(&'a Resource, &'a str, usize)>,
}

/// An answer under `/api`, `/apis` and `/openapi`.
pub(crate) fn answer(history: &History, path: &str, headers: &HeaderMap) -> Result<Response<Body>, ApiError> {
    let accept = headers.get(header::ACCEPT).and_then(|v| v.to_str().ok()).unwrap_or_default();
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    let groups = groups(history);
    let document = match parts.as_slice() {
        [] => json!({"paths": paths(&groups)}),
        ["openapi", rest @ ..] => return openapi::answer(history, rest, accept),
        ["api"] | ["apis"] if asks_for(accept, Wanted::Aggregated) => {
            return Ok(aggregated(&groups, parts[0] == "api", headers));
        }
        ["api" | "apis", ..] if !asks_for(accept, Wanted::Plain) => return Err(ApiError::only_these_media()),
        ["api"] => json!({
            "kind": "APIVersions", "versions": ["v1"],
            "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": host(headers)}],
        }),
        ["apis"] => {
            let named: Vec<Value> = groups.iter().filter(|g| !g.name.is_empty()).map(group).collect();
            json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": named})
        }
        ["api", "v1"] => resource_list(&groups, "", "v1").ok_or_else(ApiError::no_such_resource)?,
        ["apis", name] => {
            let found = groups.iter().find(|g| g.name == *name).ok_or_else(ApiError::no_such_path)?;
            let mut document = group(found);
            document["kind"] = "APIGroup".into();
            document["apiVersion"] = "v1".into();
            document
        }
        ["apis", name, version] => resource_list(&groups, name, version).ok_or_else(|| {
            let builtin =
                groups.iter().any(|g| g.name == *name && g.types.iter().any(|(resource, ..)| !resource.custom));
            if builtin { ApiError::no_such_resource() } else { ApiError::no_such_path() }
        })?,
        _ => return Err(ApiError::no_such_resource()),
    };
    Ok(json_answer(document.to_string().into()))
}

fn json_answer(bytes: Bytes) -> Response<Body> {
    let mut response = Response::new(Body::full(bytes));
    let headers = response.headers_mut();
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

fn host(headers: &HeaderMap) -> &str {
    headers.get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or("localhost")
}

#[derive(Clone, Copy, PartialEq)]
enum Wanted {
    Plain,
    Aggregated,
}

/// Whether the first media type that this server has is of that kind.
fn asks_for(accept: &str, wanted: Wanted) -> bool {
    if accept.trim().is_empty() {
        return wanted == Wanted::Plain;
    }
    let known = accept.split(',').find_map(|media| {
        let mut parts = media.split(';').map(str::trim);
        let base = parts.next().unwrap_or_default();
        let parameters: Vec<&str> = parts.collect();
        let json = matches!(base, "application/json" | "*/*" | "application/*");
        let shaped = parameters.iter().any(|p| p.starts_with("as="));
        match (json, shaped) {
            (true, false) => Some(Wanted::Plain),
            (true, true) if parameters.contains(&"as=APIGroupDiscoveryList") && parameters.contains(&"v=v2") => {
                Some(Wanted::Aggregated)
            }
            _ => None,
        }
    });
    known == Some(wanted)
}

/// Stable versions before beta before alpha, and newer ones first.
pub(crate) fn priority(version: &str) -> (Reverse<u8>, Reverse<u32>, Reverse<u32>) {
    let number = |text: &str| text.parse::<u32>().unwrap_or(0);
    let Some(rest) = version.strip_prefix('v') else { return (Reverse(0), Reverse(0), Reverse(0)) };
    for (stage, rank) in [("alpha", 1), ("beta", 2)] {
        if let Some((major, minor)) = rest.split_once(stage) {
            return (Reverse(rank), Reverse(number(major)), Reverse(number(minor)));
        }
    }
    (Reverse(3), Reverse(number(rest)), Reverse(0))
}

fn groups(history: &History) -> Vec<Group<'_>> {
    let served: Vec<&Table> = history.tables.iter().filter(|table| !table.serving.retired).collect();
    let rank = |group: &str| match group {
        "" => 0,
        other => 1 + GROUPS.iter().position(|known| *known == other).unwrap_or(GROUPS.len()),
    };
    let types = served.iter().map(|table| &*table.resource).chain(UNSTORED.iter());
    let mut places: Vec<(&str, &str, usize, &Resource)> =
        types.flat_map(|of| of.places().map(move |(group, version, at)| (group, version, at, of))).collect();
    places.sort_by_key(|(group, version, _, resource)| {
        (rank(group), *group, priority(version), *version, &*resource.plural)
    });
    let mut groups: Vec<Group<'_>> = Vec::new();
    for (name, version, at, resource) in places {
        if groups.last().is_none_or(|group| group.name != name) {
            groups.push(Group { name, versions: Vec::new(), types: Vec::new() });
        }
        let Some(group) = groups.last_mut() else { continue };
        if group.versions.last() != Some(&version) {
            group.versions.push(version);
        }
        group.types.push((resource, version, at));
    }
    groups
}

fn group_version(group: &str, version: &str) -> String {
    if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") }
}

fn group(group: &Group<'_>) -> Value {
    let entry = |version: &&str| json!({"groupVersion": group_version(group.name, version), "version": version});
    let versions: Vec<Value> = group.versions.iter().map(entry).collect();
    json!({"name": group.name, "preferredVersion": versions[0], "versions": versions})
}

fn paths(groups: &[Group<'_>]) -> Vec<String> {
    let mut paths: Vec<String> = [
        "/api",
        "/api/v1",
        "/apis",
        "/apis/",
        "/healthz",
        "/livez",
        "/openapi/v3",
        "/openapi/v3/",
        "/readyz",
        "/version",
    ]
    .map(String::from)
    .to_vec();
    for group in groups.iter().filter(|group| !group.name.is_empty()) {
        paths.push(format!("/apis/{}", group.name));
        paths.extend(group.versions.iter().map(|version| format!("/apis/{}/{version}", group.name)));
    }
    paths.sort();
    paths
}

/// Types that are answered and never stored, or not even answered: clients ask for them by name.
static UNSTORED: LazyLock<Vec<Resource>> = LazyLock::new(|| {
    let mut missing = Resource::reviewed("", MISSING, "ComponentStatus", false);
    missing.names.short = vec!["cs".into()];
    let reviewed = reviews::ALL.iter().map(|of| Resource::reviewed(of.group, of.plural, of.kind, of.namespaced));
    reviewed.chain([Resource::reviewed("", "bindings", "Binding", true), missing]).collect()
});

fn is_stored(resource: &Resource) -> bool {
    resource.custom || !UNSTORED.iter().any(|of| of.group == resource.group && of.plural == resource.plural)
}

/// The verbs of a type. A CRD's come in an order of their own.
pub(crate) fn verbs(resource: &Resource) -> &'static [&'static str] {
    match (resource.custom, &*resource.plural) {
        (false, MISSING) => &["get", "list"],
        (false, _) if !is_stored(resource) => &["create"],
        (true, _) => &["delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"],
        (false, "namespaces") => &["create", "delete", "get", "list", "patch", "update", "watch"],
        (false, _) => &["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"],
    }
}

/// `APIResourceList` of one version of a group.
fn resource_list(groups: &[Group<'_>], name: &str, version: &str) -> Option<Value> {
    let group = groups.iter().find(|g| g.name == name && g.versions.contains(&version))?;
    let mut entries = Vec::new();
    for (resource, _, at) in group.types.iter().filter(|(_, of, _)| *of == version) {
        let mut entry = json!({
            "name": resource.plural, "singularName": resource.names.singular, "namespaced": resource.namespaced,
            "kind": resource.kind, "verbs": verbs(resource),
        });
        lists(resource, &mut entry);
        if is_stored(resource) {
            entry["storageVersionHash"] = storage_hash(resource).into();
        }
        entries.push(entry);
        for sub in resource.subresources(*at) {
            let Subresource { name, kind, verbs, .. } = &sub;
            let mut entry = json!({
                "name": format!("{}/{name}", resource.plural), "singularName": "", "namespaced": resource.namespaced,
                "kind": kind, "verbs": verbs,
            });
            if let Some((group, version)) = sub.group_version {
                entry["group"] = group.into();
                entry["version"] = version.into();
            }
            entries.push(entry);
        }
    }
    let mut list =
        json!({"kind": "APIResourceList", "groupVersion": group_version(name, version), "resources": entries});
    if !name.is_empty() {
        list["apiVersion"] = "v1".into();
    }
    Some(list)
}

fn lists(resource: &Resource, entry: &mut Value) {
    for (member, list) in [("shortNames", &resource.names.short), ("categories", &resource.names.categories)] {
        if !list.is_empty() {
            entry[member] = json!(list);
        }
    }
}

/// Tells clients when objects are stored in another version than before.
fn storage_hash(resource: &Resource) -> String {
    // CRDs are stored in a version that is no longer served.
    let version = if resource.group == crd::GROUP { "v1beta1" } else { &*resource.versions[0] };
    let text = format!("{}/{version}/{}", resource.group, resource.kind);
    base64(&sha256(text.as_bytes())[..8])
}

fn aggregated(groups: &[Group<'_>], core: bool, headers: &HeaderMap) -> Response<Body> {
    let items = groups.iter().filter(|g| g.name.is_empty() == core).map(document::Group::of).collect();
    let (bytes, tag) = document::List { metadata: Value::Object(Map::new()), items }.with_tag();
    let same = headers.get(header::IF_NONE_MATCH).is_some_and(|known| known.as_bytes() == tag.as_bytes());
    let mut response = Response::new(Body::full(if same { Bytes::new() } else { bytes.into() }));
    if same {
        *response.status_mut() = StatusCode::NOT_MODIFIED;
    } else {
        response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(AGGREGATED));
    }
    let headers = response.headers_mut();
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("public"));
    headers.insert(header::VARY, HeaderValue::from_static("Accept"));
    if let Ok(tag) = HeaderValue::from_str(&tag) {
        headers.insert(header::ETAG, tag);
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_preferred_as_their_names_promise_stability() {
        let mut versions = ["v1alpha1", "v1beta1", "v2", "v1", "v1beta2", "nightly", "v10"];
        versions.sort_by_key(|version| priority(version));
        assert_eq!(versions, ["v10", "v2", "v1", "v1beta2", "v1beta1", "v1alpha1", "nightly"]);
    }

    #[test]
    fn the_first_media_type_that_is_known_decides() {
        let v2 = AGGREGATED;
        let v2beta1 = "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList";
        let table = [
            ("", Some(Wanted::Plain)),
            ("application/json", Some(Wanted::Plain)),
            ("application/vnd.kubernetes.protobuf, */*", Some(Wanted::Plain)),
            (&format!("{v2},{v2beta1},application/json"), Some(Wanted::Aggregated)),
            (v2beta1, None),
            ("application/vnd.kubernetes.protobuf", None),
        ];
        for (accept, expected) in table {
            for wanted in [Wanted::Plain, Wanted::Aggregated] {
                assert_eq!(asks_for(accept, wanted), expected == Some(wanted), "{accept}");
            }
        }
    }
}
