//! What holds for requests of all types: times, indentation, reviews; and for definitions that claim the same names.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Full};
use photofinish_apiserver::{ApiServer, Call, Hooks, Refusal, Reply, Treatment};
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

/// A harness that treats every request alike, and notes what is answered: name, status and revision.
#[derive(Default)]
struct Noting {
    treatment: Treatment,
    answers: Mutex<Vec<(String, u16, Option<u64>)>>,
}

impl Noting {
    fn new(treatment: Treatment) -> Arc<Noting> {
        Arc::new(Noting { treatment, ..Noting::default() })
    }

    /// Name and status of the answers since this was asked last.
    fn take(&self) -> Vec<(String, u16)> {
        let answers = std::mem::take(&mut *self.answers.lock().expect("no panic"));
        answers.into_iter().map(|(name, status, _)| (name, status)).collect()
    }
}

impl Hooks for Noting {
    fn request(&self, _call: &Call) -> Treatment {
        self.treatment
    }

    fn answered(&self, call: &Call, status: u16, rv: Option<u64>) {
        self.answers.lock().expect("no panic").push((call.name.clone(), status, rv));
    }
}

/// Storage needs ten seconds for everything.
fn slow() -> Treatment {
    Treatment { before: Duration::from_secs(10), ..Treatment::default() }
}

fn map(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}})
}

#[tokio::test(start_paused = true)]
async fn each_answer_is_told_once_whoever_gives_it() {
    let late = Treatment { after: Duration::from_secs(10), ..Treatment::default() };
    let refused = Treatment { refused: Some(Refusal::TooManyRequests), ..Treatment::default() };
    let timed_out = Treatment { reply: Reply::TimedOut, ..Treatment::default() };
    let table = [
        // Treatment, query, what the client gets, what the server says of it.
        (Treatment::default(), "", 201, 201),
        (Treatment::default(), "?timeout=5s", 201, 201),
        (Treatment::default(), "?timeout=soon", 400, 400),
        (slow(), "", 201, 201),
        (slow(), "?timeout=11s", 201, 201),
        (slow(), "?timeout=5s", 504, 504),
        (late, "?timeout=11s", 201, 201),
        // The write is done, and its answer comes too late.
        (late, "?timeout=5s", 504, 201),
        (timed_out, "", 504, 201),
        (refused, "", 429, 429),
        (refused, "?timeout=5s", 429, 429),
    ];
    for (treatment, query, got, told) in table {
        let hooks = Noting::new(treatment);
        let server = ApiServer::builder().hooks(hooks.clone()).build();
        assert_eq!(send(&server, "POST", &format!("{MAPS}{query}"), map("a")).await.0, got, "{treatment:?} {query}");
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert_eq!(hooks.take(), [("a".to_owned(), told)], "{treatment:?} {query}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_list_that_waits_for_a_cache_longer_than_it_wants_to_gets_504_and_that_is_told() {
    let hooks = Noting::new(Treatment::default());
    let server = ApiServer::builder().hooks(hooks.clone()).build();
    server.fall_behind();
    assert_eq!(send(&server, "POST", MAPS, map("a")).await.0, 201);
    hooks.take();
    let revision = server.store().revision();
    let uri = format!("{MAPS}?resourceVersion={revision}&timeout=1s");
    assert_eq!(get(&server, &uri).await.0, 504);
    assert_eq!(hooks.take(), [(String::new(), 504)]);
}

#[tokio::test]
async fn a_body_that_is_too_large_is_refused_and_that_is_told() {
    let hooks = Noting::new(Treatment::default());
    let server = ApiServer::builder().hooks(hooks.clone()).build();
    let (status, refusal) = send(&server, "POST", MAPS, json!({"data": "x".repeat(4 << 20)})).await;
    assert_eq!((status, &refusal["reason"]), (413, &json!("RequestEntityTooLarge")));
    assert_eq!(hooks.take(), [(String::new(), 413)]);
}

#[tokio::test(start_paused = true)]
async fn a_request_that_names_a_time_gets_504_after_it_and_is_not_done_later() {
    let server = ApiServer::builder().hooks(Noting::new(slow())).build();
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

#[tokio::test]
async fn a_binding_of_its_own_binds_the_pod_that_it_names() {
    let server = ApiServer::builder().build();
    let pods = "/api/v1/namespaces/default/pods";
    let pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "img:1"}]}});
    assert_eq!(send(&server, "POST", pods, pod).await.0, 201);
    let bindings = "/api/v1/namespaces/default/bindings";
    let binding = |name: &str| json!({"metadata": {"name": name}, "target": {"kind": "Node", "name": "n1"}});
    assert_eq!(send(&server, "POST", bindings, binding("p")).await.0, 201);
    assert_eq!(get(&server, &format!("{pods}/p")).await.1["spec"]["nodeName"], "n1");
    assert_eq!(send(&server, "POST", bindings, binding("p")).await.0, 409, "it has a node");
    assert_eq!(send(&server, "POST", bindings, binding("q")).await.0, 404);
    assert_eq!(get(&server, bindings).await.0, 405);
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
