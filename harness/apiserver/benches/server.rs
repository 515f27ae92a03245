//! What requests cost in memory, without a network: `cargo bench -p photofinish-apiserver`.

use std::time::{Duration, Instant};

use bytes::Bytes;
use futures::FutureExt;
use http::Request;
use http_body_util::{BodyExt, Full};
use photofinish_apiserver::{ApiServer, Body};
use serde_json::json;
use tower::Service;

fn send(server: &ApiServer, method: &str, uri: &str, body: String) -> http::Response<Body> {
    let request = Request::builder().method(method).uri(uri).body(Full::new(Bytes::from(body))).expect("a request");
    server.clone().call(request).now_or_never().expect("answers without waiting").expect("never fails")
}

fn config_map(name: &str, label: u32) -> String {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "labels": {"shard": label.to_string()}},
        "data": {"text": "x".repeat(800)},
    })
    .to_string()
}

fn report(what: &str, count: u32, total: Duration) {
    println!(
        "{what:<55} {:>9.2} us each, {count} in {:.1} ms",
        total.as_secs_f64() * 1e6 / f64::from(count),
        total.as_secs_f64() * 1e3
    );
}

fn main() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let _inside = runtime.enter();
    let maps = "/api/v1/namespaces/default/configmaps";

    let server = ApiServer::builder().build();
    send(&server, "POST", maps, config_map("a", 0));
    let get = |count: u32| {
        let began = Instant::now();
        for _ in 0..count {
            let response = send(&server, "GET", "/api/v1/namespaces/default/configmaps/a", String::new());
            let body = response.into_body().collect().now_or_never().expect("ready").expect("never fails");
            assert!(body.to_bytes().len() > 800);
        }
        began.elapsed()
    };
    get(1_000);
    report("GET of a 1 KB object", 100_000, get(100_000));

    let patch = |count: u32| {
        let began = Instant::now();
        for n in 0..count {
            let body = json!({"metadata": {"annotations": {"n": n.to_string()}}}).to_string();
            let request = Request::patch("/api/v1/namespaces/default/configmaps/a")
                .header("content-type", "application/merge-patch+json")
                .body(Full::new(Bytes::from(body)))
                .expect("a request");
            let response = server.clone().call(request).now_or_never().expect("ready").expect("never fails");
            assert_eq!(response.status(), 200);
        }
        began.elapsed()
    };
    report("merge patch of a 1 KB object", 20_000, patch(20_000));

    let pods = "/api/v1/namespaces/default/pods";
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"},
        "spec": {"containers": [{"name": "c", "image": "img:1", "env": [{"name": "A", "value": "1"}]}]},
    });
    assert_eq!(send(&server, "POST", pods, pod.to_string()).status(), 201);
    let status = |count: u32| {
        let began = Instant::now();
        for n in 0..count {
            let body = json!({"status": {"phase": "Running", "message": n.to_string(), "conditions": [
                {"type": "Ready", "status": "True"}, {"type": "ContainersReady", "status": "True"},
            ]}});
            let request = Request::patch(format!("{pods}/p/status"))
                .header("content-type", "application/strategic-merge-patch+json")
                .body(Full::new(Bytes::from(body.to_string())))
                .expect("a request");
            let response = server.clone().call(request).now_or_never().expect("ready").expect("never fails");
            assert_eq!(response.status(), 200);
        }
        began.elapsed()
    };
    report("status patch of a pod", 20_000, status(20_000));

    let watched = ApiServer::builder().build();
    let mut watches: Vec<_> =
        (0..100).map(|_| send(&watched, "GET", &format!("{maps}?watch=1"), String::new()).into_body()).collect();
    for watch in &mut watches {
        assert!(watch.frame().now_or_never().is_none(), "nothing to show yet");
    }
    let began = Instant::now();
    for n in 0..2_000 {
        assert_eq!(send(&watched, "POST", maps, config_map(&format!("m{n}"), n)).status(), 201);
        for watch in &mut watches {
            watch.frame().now_or_never().expect("an event").expect("no end").expect("never fails");
        }
    }
    report("create, and its event read by 100 watches", 2_000, began.elapsed());

    let large = ApiServer::builder().build();
    for n in 0..10_000 {
        send(&large, "POST", maps, config_map(&format!("m{n:05}"), n % 10));
    }
    let list = |count: u32| {
        let began = Instant::now();
        for _ in 0..count {
            let response = send(&large, "GET", &format!("{maps}?labelSelector=shard%3D3"), String::new());
            response.into_body().collect().now_or_never().expect("ready").expect("never fails");
        }
        began.elapsed()
    };
    list(2);
    report("list of 10 000 objects by a label that 1 in 10 has", 50, list(50));

    let replay = |count: u32| {
        let mut watch = send(&large, "GET", &format!("{maps}?watch=1&resourceVersion=1"), String::new()).into_body();
        let began = Instant::now();
        for _ in 0..count {
            watch.frame().now_or_never().expect("an event").expect("no end").expect("never fails");
        }
        began.elapsed()
    };
    report("event of a watch replay, first time", 10_000, replay(10_000));
    report("event of a watch replay, again", 10_000, replay(10_000));
}
