//! Whatever comes in, the server answers: with what was asked, or with a `Status`. Never with a panic.

use bytes::Bytes;
use futures::FutureExt;
use http::Request;
use http_body_util::{BodyExt, Full};
use photofinish_apiserver::{ApiServer, Body};
use serde_json::{Value, json};
use tower::Service;

/// A small generator of its own, so that a failing case is always the same case.
struct Draw(u64);

impl Draw {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % bound
    }

    fn of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())]
    }

    fn value(&mut self, depth: usize) -> Value {
        match self.below(if depth == 0 { 6 } else { 8 }) {
            0 => Value::Null,
            1 => json!(self.below(2) == 0),
            2 => json!(self.below(100) as i64 - 50),
            3 => json!(1.5),
            4 => json!(self.of(&[
                "",
                "a",
                "ä\u{0}",
                "Running",
                "2026-01-01T00:00:00Z",
                "$patch",
                "99999999999999999999"
            ])),
            5 => json!(["a", "a"]),
            6 => (0..self.below(3)).map(|_| self.value(depth - 1)).collect(),
            _ => {
                let key = self.of(&["name", "type", "$patch", "metadata", "spec", "finalizers", ""]);
                json!({key: self.value(depth - 1)})
            }
        }
    }

    /// Replaces some member somewhere.
    fn spoil(&mut self, value: &mut Value) {
        let deeper = self.below(4) > 0;
        match value {
            Value::Object(map) if deeper && !map.is_empty() => {
                let at = self.below(map.len());
                if let Some(inner) = map.values_mut().nth(at) {
                    self.spoil(inner);
                }
            }
            Value::Array(list) if deeper && !list.is_empty() => {
                let at = self.below(list.len());
                self.spoil(&mut list[at]);
            }
            Value::Object(map) if self.below(2) == 0 => {
                let key = self.of(&[
                    "labels",
                    "annotations",
                    "finalizers",
                    "ownerReferences",
                    "deletionTimestamp",
                    "generation",
                    "uid",
                    "resourceVersion",
                    "generateName",
                    "schedulingGates",
                    "tolerations",
                    "volumes",
                    "ports",
                    "replicas",
                    "status",
                    "conditions",
                    "stringData",
                    "containers",
                    "selector",
                    "egress",
                ]);
                let drawn = self.value(2);
                map.insert(key.into(), drawn);
            }
            other => *other = self.value(3),
        }
    }
}

const TYPES: &[(&str, &str, &str)] = &[
    ("/api/v1", "v1", "pods/Pod"),
    ("/api/v1", "v1", "services/Service"),
    ("/api/v1", "v1", "secrets/Secret"),
    ("/api/v1", "v1", "configmaps/ConfigMap"),
    ("/api/v1", "v1", "events/Event"),
    ("/api/v1", "v1", "persistentvolumeclaims/PersistentVolumeClaim"),
    ("/apis/networking.k8s.io/v1", "networking.k8s.io/v1", "networkpolicies/NetworkPolicy"),
    ("/apis/agents.x-k8s.io/v1beta1", "agents.x-k8s.io/v1beta1", "sandboxes/Sandbox"),
    ("/apis/agents.x-k8s.io/v1alpha1", "agents.x-k8s.io/v1alpha1", "sandboxes/Sandbox"),
];

fn base(api_version: &str, kind: &str, name: &str) -> Value {
    json!({
        "apiVersion": api_version, "kind": kind,
        "metadata": {"name": name, "labels": {"a": "b"}, "finalizers": ["x/y"]},
        "spec": {
            "containers": [{"name": "c", "image": "img:1", "env": [{"name": "A"}], "ports": [{"containerPort": 80}]}],
            "podTemplate": {"spec": {"containers": [{"name": "c"}]}}, "ports": [{"port": 80}], "egress": [{"ports": [{}]}],
            "volumes": [{"name": "v", "secret": {}}],
        },
        "status": {"phase": "Running", "conditions": [{"type": "Ready"}]},
        "involvedObject": {"namespace": "default"},
    })
}

fn call(server: &ApiServer, request: Request<Full<Bytes>>) -> Option<http::Response<Body>> {
    // `None`: the server waits, for a revision that never comes.
    server.clone().call(request).now_or_never().map(|response| response.expect("never fails"))
}

#[tokio::test]
async fn spoiled_requests_get_an_answer_that_says_what_is_wrong() {
    let mut draw = Draw(7);
    let server = ApiServer::builder().build();
    let mut codes = std::collections::BTreeMap::new();
    for _ in 0..20_000 {
        let (root, api_version, names) = draw.of(TYPES);
        let (plural, kind) = names.split_once('/').expect("two names");
        let name = draw.of(&["a", "b", "c"]);
        let mut body = base(api_version, kind, name);
        for _ in 0..draw.below(3) {
            draw.spoil(&mut body);
        }
        let one = format!("{root}/namespaces/default/{plural}/{name}");
        let (method, path) = match draw.below(8) {
            0 | 1 => ("POST", format!("{root}/namespaces/default/{plural}")),
            2 => ("PUT", one),
            3 => ("PATCH", one),
            4 => ("PATCH", format!("{one}/status")),
            5 => ("DELETE", one),
            6 => ("POST", format!("{one}/{}", draw.of(&["binding", "eviction", "status", "scale", "none"]))),
            _ => ("GET", format!("{root}/{plural}")),
        };
        let query = match method {
            "GET" => format!(
                "?{}={}&{}={}",
                draw.of(&[
                    "labelSelector",
                    "fieldSelector",
                    "limit",
                    "resourceVersion",
                    "continue",
                    "resourceVersionMatch"
                ]),
                draw.of(&["a", "a%20in%20(b", "metadata.name%3Da", "-1", "5", "%00", "Exact", "eyJ2IjoxfQ", "%ff%fe"]),
                draw.of(&["watch", "sendInitialEvents", "timeoutSeconds", "allowWatchBookmarks", "limit"]),
                draw.of(&["1", "true", "x", "0"]),
            ),
            _ => draw.of(&["", "", "?dryRun=All", "?dryRun=x", "?propagationPolicy=Foreground"]).to_owned(),
        };
        let media = match method {
            "PATCH" => draw.of(&[
                "application/merge-patch+json",
                "application/json-patch+json",
                "application/strategic-merge-patch+json",
                "text/plain",
            ]),
            _ => "application/json",
        };
        let text = match (media, draw.below(20)) {
            (_, 0) => draw.of(&["", "{", "[]", "null", "\"x\"", "\u{7f}"]).to_owned(),
            ("application/json-patch+json", _) => {
                let op = draw.of(&["add", "remove", "replace", "test", "move"]);
                let path =
                    draw.of(&["/metadata/labels/a", "/spec", "", "/metadata", "/status/conditions/0", "/x/y/z", "no"]);
                json!([{"op": op, "path": path, "from": "/spec", "value": draw.value(2)}]).to_string()
            }
            _ => body.to_string(),
        };
        let request = Request::builder()
            .method(method)
            .uri(format!("{path}{query}"))
            .header("content-type", media)
            .body(Full::new(Bytes::from(text.clone())))
            .expect("a request");
        let Some(response) = call(&server, request) else { continue };
        let code = response.status().as_u16();
        *codes.entry(code).or_insert(0) += 1;
        if code >= 400 {
            let bytes = response.into_body().collect().await.expect("never fails").to_bytes();
            let plain = bytes == "404 page not found\n";
            let status: Value = serde_json::from_slice(&bytes).unwrap_or_default();
            let says = status["message"].as_str().is_some_and(|message| !message.is_empty());
            assert!(plain || says && status["code"] == code, "{method} {path}{query}: {text}: {code} {status}");
            // A real server has no better code for a bad revision.
            let revision = status["message"].as_str().is_some_and(|message| message.contains("resourceVersion"));
            assert!(code != 500 || revision, "{method} {path}{query}: {text}: {status}");
        }
    }
    for code in [200, 201, 400, 404, 409, 422] {
        assert!(codes.get(&code).is_some_and(|count| *count > 50), "too few answers {code}: {codes:?}");
    }
}
