//! Many at once: watches, writers of one object, and clients that do not read.

use bytes::Bytes;
use futures::FutureExt;
use http::Request;
use http_body_util::{BodyExt, Full};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::PostParams;
use kube::{Api, Client, ResourceExt};
use photofinish_apiserver::{ApiServer, Body, ConnInfo};
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tower::ServiceExt;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

async fn send(server: &ApiServer, method: &str, uri: &str, body: &Value) -> http::Response<Body> {
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let request = Request::builder().method(method).uri(uri).body(Full::new(Bytes::from(body))).expect("a request");
    server.clone().oneshot(request).await.expect("an answer")
}

/// The next event, if there is one now: type and name.
fn ready(watch: &mut Body) -> Option<(String, String)> {
    // Unconstrained: tokio makes a task that reads many things at once pause, whether they are ready or not.
    let frame = tokio::task::unconstrained(watch.frame())
        .now_or_never()?
        .expect("goes on")
        .expect("no break")
        .into_data()
        .expect("data");
    let event: Value = serde_json::from_slice(&frame).expect("an event");
    let text = |value: &Value| value.as_str().expect("a text").to_owned();
    Some((text(&event["type"]), text(&event["object"]["metadata"]["name"])))
}

#[tokio::test(start_paused = true)]
async fn ten_thousand_watches_each_show_each_write_once_and_sleepers_hold_up_nobody() {
    let server = ApiServer::builder().build();
    let mut watches = Vec::new();
    for n in 0..10_000 {
        // A limit is for lists: a watch has none. Each third client looks at what it does not match.
        let query = if n % 3 == 0 { "&labelSelector=none" } else { "&limit=1" };
        watches.push(send(&server, "GET", &format!("{MAPS}?watch=1{query}"), &Value::Null).await.into_body());
    }
    for watch in &mut watches {
        assert_eq!(ready(watch), None);
    }
    for name in ["a", "b"] {
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}});
        assert_eq!(send(&server, "POST", MAPS, &map).await.status(), 201);
    }
    let added = |name: &str| Some(("ADDED".to_owned(), name.to_owned()));
    for (n, watch) in watches.iter_mut().enumerate().filter(|(n, _)| n % 2 == 1) {
        let seen = [ready(watch), ready(watch), ready(watch)];
        let expected = if n % 3 == 0 { [None, None, None] } else { [added("a"), added("b"), None] };
        assert_eq!(seen, expected, "watch {n}");
    }
    // Those that did not read while others did have missed nothing.
    assert_eq!([ready(&mut watches[2]), ready(&mut watches[2])], [added("a"), added("b")]);
}

/// A real socket in real time, and as many threads as there are.
async fn on_a_socket(server: &ApiServer) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("it has one");
    let incoming = futures::stream::unfold(listener, |listener| async move {
        let accepted = listener.accept().await.map(|(io, _)| io);
        Some((accepted, listener))
    });
    let server = server.clone();
    let named = |_: &TcpStream| ConnInfo { client: "tcp".into(), connection: 1 };
    tokio::spawn(async move { server.serve(Box::pin(incoming), named).await });
    format!("http://{address}")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn no_increment_of_many_writers_over_sockets_is_lost_and_each_has_a_revision_of_its_own() {
    const WRITERS: usize = 8;
    const EACH: usize = 25;
    let server = ApiServer::builder().build();
    let uri: http::Uri = on_a_socket(&server).await.parse().expect("a URI");
    let client = || Client::try_from(kube::Config::new(uri.clone())).expect("a client");
    let maps = |client| Api::<ConfigMap>::namespaced(client, "default");
    let counter = serde_json::from_value(json!({"metadata": {"name": "counter"}, "data": {"n": "0"}})).expect("a map");
    maps(client()).create(&PostParams::default(), &counter).await.expect("creates");
    let writers = (0..WRITERS).map(|_| {
        let maps = maps(client());
        tokio::spawn(async move {
            let mut made = Vec::new();
            while made.len() < EACH {
                let mut map = maps.get("counter").await.expect("it is there");
                let n: usize = map.data.as_ref().expect("data")["n"].parse().expect("a number");
                map.data.as_mut().expect("data").insert("n".into(), (n + 1).to_string());
                match maps.replace("counter", &PostParams::default(), &map).await {
                    Ok(stored) => made.push(stored.resource_version().expect("a revision")),
                    Err(kube::Error::Api(status)) if status.code == 409 => {}
                    Err(error) => panic!("{error}"),
                }
            }
            made
        })
    });
    let mut revisions: Vec<String> = Vec::new();
    for made in futures::future::join_all(writers).await {
        revisions.extend(made.expect("no panic"));
    }
    let stored = server.store().get("configmaps", "default", "counter").expect("it is there");
    assert_eq!(stored["data"]["n"], (WRITERS * EACH).to_string());
    revisions.sort();
    revisions.dedup();
    assert_eq!(revisions.len(), WRITERS * EACH);
}

#[tokio::test]
async fn a_client_that_does_not_read_its_socket_does_not_keep_others_waiting() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let server = ApiServer::builder().build();
    let uri = on_a_socket(&server).await;
    let address = uri.trim_start_matches("http://");
    let open = async || {
        let mut io = TcpStream::connect(address).await.expect("connects");
        let request = format!("GET {MAPS}?watch=1 HTTP/1.1\r\nhost: x\r\n\r\n");
        io.write_all(request.as_bytes()).await.expect("writes");
        io
    };
    let (_asleep, mut awake) = (open().await, open().await);
    let mut text: Vec<u8> = Vec::new();
    // Sockets hold a few megabytes at most.
    const COUNT: usize = 200;
    for n in 0..COUNT {
        let map = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": format!("m{n}")},
            "data": {"text": "x".repeat(100_000)},
        });
        assert_eq!(send(&server, "POST", MAPS, &map).await.status(), 201);
        let mut buffer = vec![0; 1 << 16];
        while text.windows(8).filter(|w| w == b"\"ADDED\",").count() <= n {
            let read = awake.read(&mut buffer).await.expect("reads");
            assert!(read > 0, "the stream goes on");
            // What an event begins with is all that is kept of it.
            text.extend(buffer[..read].iter().filter(|byte| **byte != b'x'));
        }
    }
}
