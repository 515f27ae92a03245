//! Whatever a client sends: the server does not panic, and what it refuses it refuses with a `Status`.
//!
//! Requests are made of parts that mean something (paths of objects that are there, parameters, objects, patches) and of
//! parts that do not, so that they get past the first check as often as not.
//! `PHOTOFINISH_FUZZ=100000 cargo test -p photofinish-apiserver --test fuzz` looks longer.

use bytes::Bytes;
use futures::FutureExt;
use http::{HeaderValue, Request, StatusCode, header};
use http_body_util::{BodyExt, Full};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use photofinish_apiserver::ApiServer;
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::{Value, json};
use tower::ServiceExt;

#[derive(Clone, Debug)]
struct Sent {
    method: &'static str,
    path: String,
    query: Vec<(String, String)>,
    content_type: &'static str,
    accept: &'static str,
    body: Vec<u8>,
}

const PATHS: [&str; 44] = [
    "/api/v1/namespaces/default/configmaps",
    "/api/v1/namespaces/default/configmaps/a",
    "/api/v1/namespaces/default/configmaps/none",
    "/api/v1/watch/namespaces/default/configmaps/a",
    "/api/v1/configmaps",
    "/api/v1/namespaces",
    "/api/v1/namespaces/default",
    "/api/v1/namespaces/default/finalize",
    "/api/v1/namespaces/default/status",
    "/api/v1/namespaces/default/pods",
    "/api/v1/namespaces/default/pods/p",
    "/api/v1/namespaces/default/pods/p/status",
    "/api/v1/namespaces/default/pods/p/binding",
    "/api/v1/namespaces/default/pods/p/eviction",
    "/api/v1/namespaces/default/pods/p/log",
    "/api/v1/namespaces/default/pods/p/exec",
    "/api/v1/namespaces/default/pods/p/resize",
    "/api/v1/namespaces/default/pods/p/ephemeralcontainers",
    "/api/v1/namespaces/default/services/svc",
    "/api/v1/namespaces/default/secrets",
    "/api/v1/namespaces/default/events",
    "/apis/events.k8s.io/v1/namespaces/default/events",
    "/api/v1/namespaces/default/serviceaccounts/sa/token",
    "/apis/authentication.k8s.io/v1/tokenreviews",
    "/apis/authorization.k8s.io/v1/subjectaccessreviews",
    "/apis/authorization.k8s.io/v1/namespaces/default/localsubjectaccessreviews",
    "/apis/apps/v1/namespaces/default/deployments/d",
    "/apis/apps/v1/namespaces/default/deployments/d/scale",
    "/apis/coordination.k8s.io/v1/namespaces/default/leases",
    "/apis/agents.x-k8s.io/v1beta1/namespaces/default/sandboxes",
    "/apis/agents.x-k8s.io/v1beta1/namespaces/default/sandboxes/s",
    "/apis/agents.x-k8s.io/v1beta1/namespaces/default/sandboxes/s/status",
    "/apis/agents.x-k8s.io/v1alpha1/namespaces/default/sandboxes/s",
    "/apis/agents.x-k8s.io/v1alpha1/namespaces/default/sandboxes/s/scale",
    "/apis/toy.test/v1/namespaces/default/widgets",
    "/apis/toy.test/v1/namespaces/default/widgets/w",
    "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
    "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/widgets.toy.test",
    "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/widgets.toy.test/status",
    "/apis",
    "/api/v1",
    "/openapi/v3/apis/toy.test/v1",
    "/openapi/v2",
    "/",
];

const SEGMENTS: [&str; 16] = [
    "api",
    "apis",
    "v1",
    "v1beta1",
    "apps",
    "namespaces",
    "default",
    "pods",
    "p",
    "status",
    "watch",
    "sandboxes",
    "agents.x-k8s.io",
    "openapi",
    "v3",
    "..",
];

const PARAMETERS: [&str; 20] = [
    "resourceVersion",
    "resourceVersionMatch",
    "limit",
    "continue",
    "watch",
    "timeoutSeconds",
    "allowWatchBookmarks",
    "sendInitialEvents",
    "labelSelector",
    "fieldSelector",
    "fieldManager",
    "force",
    "dryRun",
    "fieldValidation",
    "propagationPolicy",
    "gracePeriodSeconds",
    "orphanDependents",
    "pretty",
    "timeout",
    "includeObject",
];

const VALUES: [&str; 32] = [
    "",
    "0",
    "1",
    "7",
    "-1",
    "true",
    "false",
    "9223372036854775807",
    "-9223372036854775808",
    "99999999999999999999",
    "1.5",
    "Exact",
    "NotOlderThan",
    "All",
    "Strict",
    "Warn",
    "Foreground",
    "Orphan",
    "Background",
    "a=b",
    "a in (b, c)",
    "a notin ()",
    "!a",
    "a>",
    "metadata.name=a",
    "spec.nodeName!=n",
    "status.phase=",
    "5s",
    "-1h",
    "None",
    "manager",
    "é",
];

const MEDIA: [&str; 9] = [
    "application/json",
    "application/merge-patch+json",
    "application/json-patch+json",
    "application/strategic-merge-patch+json",
    "application/apply-patch+yaml",
    "application/yaml",
    "application/vnd.kubernetes.protobuf",
    "text/plain",
    "",
];

const ACCEPTED: [&str; 9] = [
    "application/vnd.kubernetes.protobuf",
    "application/json",
    "application/json;as=Table;v=v1;g=meta.k8s.io,application/json",
    "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io",
    "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io",
    "application/yaml",
    "application/vnd.kubernetes.protobuf, */*",
    "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
    "",
];

/// Objects that the server would take, each with the path of its collection.
fn objects() -> Vec<(&'static str, Value)> {
    let pod_spec = json!({"containers": [{
        "name": "c", "image": "i", "ports": [{"containerPort": 80}], "env": [{"name": "A", "value": "1"}],
        "resources": {"requests": {"cpu": "100m"}},
    }], "terminationGracePeriodSeconds": 5});
    let template = json!({"metadata": {"labels": {"app": "x"}}, "spec": pod_spec});
    let metadata = |name: &str| json!({"name": name, "namespace": "default", "labels": {"a": "b"}, "finalizers": []});
    let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
        "n": {"type": "integer", "default": 3, "minimum": 1}, "s": {"type": "string", "pattern": "^a"},
        "l": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"],
            "items": {"type": "object", "required": ["k"], "properties": {"k": {"type": "string"}}}},
    }, "x-kubernetes-validations": [{"rule": "self.n < 100", "message": "too many"}]}}});
    vec![
        (
            "/api/v1/namespaces/default/configmaps",
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata("a"), "data": {"k": "v"}}),
        ),
        (
            "/api/v1/namespaces/default/pods",
            json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata("p"), "spec": pod_spec, "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}}),
        ),
        (
            "/api/v1/namespaces/default/services",
            json!({"apiVersion": "v1", "kind": "Service", "metadata": metadata("svc"), "spec": {"ports": [{"port": 80}], "selector": {"a": "b"}}}),
        ),
        (
            "/api/v1/namespaces/default/serviceaccounts",
            json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata("sa")}),
        ),
        (
            "/apis/apps/v1/namespaces/default/deployments",
            json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata("d"), "spec": {"replicas": 1, "selector": {"matchLabels": {"app": "x"}}, "template": template}}),
        ),
        (
            "/apis/agents.x-k8s.io/v1beta1/namespaces/default/sandboxes",
            json!({"apiVersion": "agents.x-k8s.io/v1beta1", "kind": "Sandbox", "metadata": metadata("s"), "spec": {"operatingMode": "Running", "podTemplate": template}}),
        ),
        (
            "/apis/coordination.k8s.io/v1/namespaces/default/leases",
            json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata("l"), "spec": {"holderIdentity": "x", "renewTime": "2026-01-01T00:00:00.000000Z"}}),
        ),
        (
            "/api/v1/namespaces/default/events",
            json!({"apiVersion": "v1", "kind": "Event", "metadata": metadata("e"), "involvedObject": {"kind": "Pod", "namespace": "default", "name": "p"}, "count": 1}),
        ),
        (
            "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
            json!({
                "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "widgets.toy.test"},
                "spec": {"group": "toy.test", "scope": "Namespaced", "names": {"plural": "widgets", "kind": "Widget"}, "versions": [{
                    "name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema},
                    "subresources": {"status": {}, "scale": {"specReplicasPath": ".spec.n", "statusReplicasPath": ".status.n"}},
                    "selectableFields": [{"jsonPath": ".spec.s"}],
                    "additionalPrinterColumns": [{"name": "N", "type": "integer", "jsonPath": ".spec.n"}],
                }]},
            }),
        ),
        (
            "/apis/toy.test/v1/namespaces/default/widgets",
            json!({"apiVersion": "toy.test/v1", "kind": "Widget", "metadata": metadata("w"), "spec": {"n": 5, "s": "abc", "l": [{"k": "x"}]}}),
        ),
    ]
}

/// Bodies that are not objects of a collection.
fn others() -> Vec<Value> {
    vec![
        json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "p"}, "target": {"kind": "Node", "name": "n"}}),
        json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p"}, "deleteOptions": {"gracePeriodSeconds": 1}}),
        json!({"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Foreground", "preconditions": {"uid": "u", "resourceVersion": "3"}}),
        json!({"kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": {"name": "d", "namespace": "default"}, "spec": {"replicas": 2}}),
        json!({"kind": "TokenReview", "spec": {"token": "photofinish.e30", "audiences": ["x"]}}),
        json!({"kind": "SubjectAccessReview", "spec": {"user": "u", "resourceAttributes": {"verb": "get"}}}),
        json!({"spec": {"audiences": ["x"], "expirationSeconds": 600, "boundObjectRef": {"kind": "Pod", "name": "p"}}}),
        json!([{"op": "test", "path": "/data/k", "value": "v"}, {"op": "move", "from": "/data/k", "path": "/data/m"}, {"op": "add", "path": "/spec/l/-", "value": {}}]),
        json!({"spec": {"containers": [{"$patch": "delete", "name": "c"}], "$setElementOrder/containers": [{"name": "c"}], "$retainKeys": ["a"]}}),
        json!({"metadata": {"$deleteFromPrimitiveList/finalizers": ["x/y"], "finalizers": ["x/y"], "labels": null}}),
        json!({"metadata": {"managedFields": [{"manager": "m", "operation": "Apply", "fieldsType": "FieldsV1", "fieldsV1": {"f:data": {"f:k": {}, "k:{\"x\"": {}, "v:1": {}}}}]}}),
    ]
}

fn arbitrary_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        (-1.0e300..1.0e300).prop_map(Value::from),
        select(VALUES.to_vec()).prop_map(Value::from),
        any::<String>().prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 12, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((select(vec!["a", "name", "spec", "f:x", "type", "$patch", ""]), inner), 0..4)
                .prop_map(|members| Value::Object(members.into_iter().map(|(k, v)| (k.to_owned(), v)).collect())),
        ]
    })
}

/// Every value inside of a value, the outermost first.
fn places(value: &Value, here: String, all: &mut Vec<String>) {
    all.push(here.clone());
    match value {
        Value::Object(map) => map.iter().for_each(|(key, inner)| {
            places(inner, format!("{here}/{}", key.replace('~', "~0").replace('/', "~1")), all);
        }),
        Value::Array(list) => {
            list.iter().enumerate().for_each(|(at, inner)| places(inner, format!("{here}/{at}"), all));
        }
        _ => {}
    }
}

/// A value with some of its inner values replaced.
fn damaged(mut value: Value, damage: &[(prop::sample::Index, Option<Value>)]) -> Value {
    for (which, with) in damage {
        let mut all = Vec::new();
        places(&value, String::new(), &mut all);
        let place = which.get(&all);
        match (with, place.rsplit_once('/')) {
            (None, Some((parent, key))) => {
                if let Some(Value::Object(map)) = value.pointer_mut(parent) {
                    map.remove(key);
                }
            }
            (with, _) => {
                if let Some(inner) = value.pointer_mut(place) {
                    *inner = with.clone().unwrap_or_default();
                }
            }
        }
    }
    value
}

fn body() -> impl Strategy<Value = Vec<u8>> {
    let bases: Vec<Value> = objects().into_iter().map(|(_, object)| object).chain(others()).collect();
    let damage = prop::collection::vec((any::<prop::sample::Index>(), prop::option::of(arbitrary_json())), 0..4);
    prop_oneof![
        12 => (select(bases), damage).prop_map(|(base, damage)| damaged(base, &damage).to_string().into_bytes()),
        2 => arbitrary_json().prop_map(|value| value.to_string().into_bytes()),
        1 => "[ -~\n]{0,60}".prop_map(String::into_bytes),
        1 => prop::collection::vec(any::<u8>(), 0..40),
        2 => Just(Vec::new()),
    ]
}

fn path() -> impl Strategy<Value = String> {
    let segment = prop_oneof![4 => select(SEGMENTS.to_vec()).prop_map(str::to_owned), 1 => any::<String>()];
    let encoded = segment.prop_map(|text| utf8_percent_encode(&text, NON_ALPHANUMERIC).to_string());
    let made_up = prop::collection::vec(encoded, 0..7).prop_map(|parts| format!("/{}", parts.join("/")));
    prop_oneof![9 => select(PATHS.to_vec()).prop_map(str::to_owned), 1 => made_up]
}

fn query() -> impl Strategy<Value = Vec<(String, String)>> {
    let token = arbitrary_json().prop_map(|value| base64(value.to_string().as_bytes()));
    let page = (any::<i64>(), any::<String>()).prop_map(|(revision, start)| {
        base64(json!({"v": "meta.k8s.io/v1", "rv": revision, "start": start}).to_string().as_bytes())
    });
    let value = prop_oneof![
        8 => select(VALUES.to_vec()).prop_map(str::to_owned),
        1 => any::<String>(),
        1 => "[a-c=!,() innot./-]{0,20}",
        1 => token,
        1 => page,
    ];
    let name = prop_oneof![9 => select(PARAMETERS.to_vec()).prop_map(str::to_owned), 1 => any::<String>()];
    prop::collection::vec((name, value), 0..4)
}

fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let mut text = String::new();
    for chunk in bytes.chunks(3) {
        let number = chunk.iter().fold(0_u32, |n, byte| n << 8 | u32::from(*byte)) << (8 * (3 - chunk.len()));
        let letters = (0..=chunk.len()).map(|at| LETTERS[(number >> (18 - 6 * at) & 63) as usize]);
        text.extend(letters.map(char::from));
    }
    text
}

fn sent() -> impl Strategy<Value = Sent> {
    let method = select(vec!["GET", "POST", "PUT", "PATCH", "PATCH", "DELETE", "HEAD", "OPTIONS"]);
    (method, path(), query(), select(MEDIA.to_vec()), select(ACCEPTED.to_vec()), body()).prop_map(
        |(method, path, query, content_type, accept, body)| Sent { method, path, query, content_type, accept, body },
    )
}

/// A server with one object of each kind.
async fn furnished() -> ApiServer {
    let server = ApiServer::builder().build();
    for (path, object) in objects() {
        let plain = Sent {
            method: "POST",
            path: path.to_owned(),
            query: Vec::new(),
            content_type: "application/json",
            accept: "application/json",
            body: object.to_string().into_bytes(),
        };
        let made = send(&server, &plain).await;
        assert_eq!(made, StatusCode::CREATED, "{path}");
        // A new type is served a moment after its definition.
        tokio::time::sleep(std::time::Duration::from_secs(5)).await;
    }
    server
}

/// Sends it, and looks at the form of the answer.
async fn send(server: &ApiServer, sent: &Sent) -> StatusCode {
    let encode = |text: &str| utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
    let query: Vec<String> =
        sent.query.iter().map(|(name, value)| format!("{}={}", encode(name), encode(value))).collect();
    let uri = format!("{}?{}", sent.path, query.join("&"));
    let request = Request::builder()
        .method(sent.method)
        .uri(uri)
        .header(header::CONTENT_TYPE, sent.content_type)
        .header(header::ACCEPT, sent.accept)
        .header(header::USER_AGENT, "fuzz/1")
        .body(Full::new(Bytes::from(sent.body.clone())))
        .expect("a request");
    let response = server.clone().oneshot(request).await.expect("an answer");
    let (status, media) = (response.status(), response.headers().get(header::CONTENT_TYPE).cloned());
    let mut body = response.into_body();
    let is = |wanted: &'static str| media == Some(HeaderValue::from_static(wanted));
    if http_body::Body::size_hint(&body).exact().is_none() {
        // A watch: what there is to see now is one event a frame, as a line or with its length before it.
        while let Some(Some(frame)) = body.frame().now_or_never() {
            let line = frame.expect("no break").into_data().expect("data");
            if is("application/vnd.kubernetes.protobuf;stream=watch") {
                let (length, event) = line.split_first_chunk::<4>().expect("a length");
                assert_eq!(u32::from_be_bytes(*length) as usize, event.len());
            } else {
                serde_json::from_slice::<Value>(&line).expect("an event");
            }
        }
        return status;
    }
    let bytes = body.collect().await.expect("whole").to_bytes();
    if is("application/vnd.kubernetes.protobuf") {
        assert!(bytes.starts_with(b"k8s\0"), "{bytes:?}");
        let has = |text: &[u8]| bytes.windows(text.len()).any(|window| window == text);
        assert!(status.is_success() || has(b"Status") && has(b"Failure"), "{bytes:?}");
        return status;
    }
    let text = String::from_utf8(bytes.to_vec()).expect("text");
    if status.is_success() || status == StatusCode::NOT_MODIFIED || sent.method == "HEAD" {
        if is("application/json") && !text.is_empty() {
            serde_json::from_str::<Value>(&text).expect("JSON");
        }
        return status;
    }
    if is("application/yaml") {
        assert!(text.contains("kind: Status"), "{text}");
    } else if status == StatusCode::NOT_FOUND && is("text/plain; charset=utf-8") {
        assert_eq!(text, "404 page not found\n");
    } else {
        let answer: Value = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{status} {text}: {error}"));
        assert_eq!(answer["code"], status.as_u16(), "{answer}");
        assert!(answer["kind"] == "Status" || status == StatusCode::GATEWAY_TIMEOUT, "{answer}");
    }
    status
}

/// `PHOTOFINISH_FUZZ` asks for more.
fn cases() -> u32 {
    std::env::var("PHOTOFINISH_FUZZ").ok().and_then(|cases| cases.parse().ok()).unwrap_or(300)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whatever_is_sent_is_answered_and_refusals_are_a_status(requests in prop::collection::vec(sent(), 1..16)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
        runtime.expect("a runtime").block_on(async {
            let server = furnished().await;
            for request in &requests {
                send(&server, request).await;
            }
            // It serves on.
            let version = Sent {
                method: "GET", path: "/version".into(), query: Vec::new(), content_type: "", accept: "", body: Vec::new(),
            };
            assert_eq!(send(&server, &version).await, StatusCode::OK);
        });
    }
}

#[test]
fn damage_reaches_the_inside_of_a_body() {
    let value = json!({"a": [1, {"b": 2}]});
    let mut all = Vec::new();
    places(&value, String::new(), &mut all);
    assert_eq!(all, ["", "/a", "/a/0", "/a/1", "/a/1/b"]);
    assert_eq!(base64(b"{}"), "e30");
}
