//! What holds for requests of all types: times, indentation, reviews; and for definitions that claim the same names.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Full};
use photofinish_apiserver::{ApiServer, Call, Hooks, Treatment};
use serde_json::{Value, json};
use tokio::time::Instant;
use tower::ServiceExt;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

async fn send(server: &ApiServer, method: &str, uri: &str, body: Value) -> (u16, Value) {
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let request = Request::builder().method(method).uri(uri).body(Full::new(Bytes::from(body))).expect("a request");
    let response = server.clone().oneshot(request).await.expect("an answer");
    let status = response.status().as_u16();
    let bytes = response.into_body().collect().await.expect("whole").to_bytes();
    (status, serde_json::from_slice(&bytes).unwrap_or(Value::Null))
}

async fn get(server: &ApiServer, uri: &str) -> (u16, Value) {
    send(server, "GET", uri, Value::Null).await
}

fn names(list: &Value) -> Vec<&str> {
    let items = list["items"].as_array().expect("a list");
    items.iter().map(|item| item["metadata"]["name"].as_str().expect("a name")).collect()
}

/// A server whose storage needs ten seconds for everything.
struct Slow;

impl Hooks for Slow {
    fn request(&self, _call: &Call) -> Treatment {
        Treatment { before: Duration::from_secs(10), ..Treatment::default() }
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_that_names_a_time_gets_504_after_it_and_is_not_done_later() {
    let server = ApiServer::builder().hooks(Arc::new(Slow)).build();
    let map = |name: &str| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}});
    let began = Instant::now();
    let (status, timed_out) = send(&server, "POST", &format!("{MAPS}?timeout=5s"), map("late")).await;
    assert_eq!((status, &timed_out["reason"], began.elapsed().as_secs()), (504, &json!("Timeout"), 5));
    assert_eq!(timed_out.get("kind"), None, "the one answer without a kind");
    assert_eq!(send(&server, "POST", &format!("{MAPS}?timeout=11s"), map("in-time")).await.0, 201);
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(names(&get(&server, MAPS).await.1), ["in-time"]);
}

#[tokio::test]
async fn people_get_indented_json_when_they_ask_for_it_or_use_curl() {
    let server = ApiServer::builder().build();
    let text = async |query: &str, agent: &str| {
        let uri = format!("/api/v1/namespaces/default{query}");
        let request = Request::get(uri).header("user-agent", agent).body(Full::<Bytes>::default()).expect("a request");
        let response = server.clone().oneshot(request).await.expect("an answer");
        String::from_utf8(response.into_body().collect().await.expect("whole").to_bytes().to_vec()).expect("text")
    };
    let plain = text("", "a-client").await;
    assert!(!plain.contains('\n'), "{plain}");
    let pretty = text("?pretty=true", "a-client").await;
    assert!(pretty.contains("\n  \"metadata\": {\n    \""), "{pretty}");
    assert_eq!(text("", "curl/8.9").await, pretty);
    assert_eq!(text("?pretty=false", "curl/8.9").await, plain);
    let parse = |text: &str| serde_json::from_str::<Value>(text).expect("JSON");
    assert_eq!(parse(&pretty), parse(&plain));
}

#[tokio::test]
async fn reviews_are_answered_and_not_stored() {
    let server = ApiServer::builder().build();
    let before = server.store().revision();
    let review =
        json!({"spec": {"resourceAttributes": {"namespace": "default", "verb": "create", "resource": "pods"}}});
    let access = "/apis/authorization.k8s.io/v1";
    let (status, answer) = send(&server, "POST", &format!("{access}/selfsubjectaccessreviews"), review).await;
    assert_eq!((status, &answer["status"]), (201, &json!({"allowed": true})));
    assert_eq!(server.store().revision(), before);
    assert_eq!(get(&server, &format!("{access}/selfsubjectaccessreviews")).await.0, 405);
    assert_eq!(get(&server, &format!("{access}/nothings")).await.0, 404);
    let (_, listed) = get(&server, access).await;
    let found: Vec<&Value> = listed["resources"].as_array().expect("a list").iter().map(|of| &of["name"]).collect();
    let all =
        ["localsubjectaccessreviews", "selfsubjectaccessreviews", "selfsubjectrulesreviews", "subjectaccessreviews"];
    assert_eq!(found, all);
}

fn definition(plural: &str, kind: &str, short: &str) -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.toy.test")},
        "spec": {
            "group": "toy.test", "scope": "Namespaced",
            "names": {"plural": plural, "kind": kind, "shortNames": [short]},
            "versions": [{
                "name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}},
            }],
        },
    })
}

/// Status and reason of the conditions `NamesAccepted` and `Established`.
fn conditions(crd: &Value) -> Vec<String> {
    let conditions = crd["status"]["conditions"].as_array().into_iter().flatten();
    conditions.map(|c| ["type", "status", "reason"].map(|key| c[key].as_str().unwrap_or_default()).join(" ")).collect()
}

#[tokio::test(start_paused = true)]
async fn a_definition_that_claims_a_taken_name_waits_until_it_is_free() {
    const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let server = ApiServer::builder().build();
    for crd in [definition("cars", "Car", "c"), definition("coaches", "Coach", "c")] {
        assert_eq!(send(&server, "POST", CRDS, crd).await.0, 201);
        tokio::time::sleep(Duration::from_secs(3)).await;
    }
    let (_, coaches) = get(&server, &format!("{CRDS}/coaches.toy.test")).await;
    assert_eq!(conditions(&coaches), ["NamesAccepted False ShortNamesConflict", "Established False NotAccepted"]);
    assert_eq!(coaches["status"]["conditions"][0]["message"], "\"c\" is already in use");
    assert_eq!(coaches["status"]["acceptedNames"].get("shortNames"), None);
    assert_eq!(get(&server, "/apis/toy.test/v1/coaches").await.0, 404);
    assert_eq!(send(&server, "DELETE", &format!("{CRDS}/cars.toy.test"), Value::Null).await.0, 200);
    tokio::time::sleep(Duration::from_secs(3)).await;
    let (_, coaches) = get(&server, &format!("{CRDS}/coaches.toy.test")).await;
    assert_eq!(conditions(&coaches), ["NamesAccepted True NoConflicts", "Established True InitialNamesAccepted"]);
    assert_eq!(coaches["status"]["acceptedNames"]["shortNames"], json!(["c"]));
    let mut status = 0;
    for _ in 0..3 {
        tokio::time::sleep(Duration::from_secs(1)).await;
        status = get(&server, "/apis/toy.test/v1/coaches").await.0;
    }
    assert_eq!(status, 200);
}
