//! Bytes on the wire, and the hooks that a harness uses.

use std::io;

use photofinish_apiserver::{ApiServer, ConnInfo};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

fn connect(server: &ApiServer) -> DuplexStream {
    let (ours, theirs) = tokio::io::duplex(1 << 16);
    let server = server.clone();
    tokio::spawn(async move {
        let one = futures::stream::iter([io::Result::Ok(theirs)]);
        server.serve(one, |_| ConnInfo { client: "raw".into(), connection: 7 }).await
    });
    ours
}

/// Reads until the text ends with `end`.
async fn read_until(io: &mut DuplexStream, end: &str) -> String {
    let mut text = Vec::new();
    while !text.ends_with(end.as_bytes()) {
        let mut byte = [0];
        io.read_exact(&mut byte).await.expect("more to come");
        text.push(byte[0]);
    }
    String::from_utf8(text).expect("text")
}

async fn read_chunk(io: &mut DuplexStream) -> String {
    let size = read_until(io, "\r\n").await;
    let size = usize::from_str_radix(size.trim_end(), 16).expect("a chunk size");
    let mut chunk = vec![0; size + 2];
    io.read_exact(&mut chunk).await.expect("a chunk");
    chunk.truncate(size);
    String::from_utf8(chunk).expect("text")
}

fn namespace(name: &str) -> serde_json::Value {
    json!({"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": name}})
}

#[tokio::test(start_paused = true)]
async fn a_watch_sends_its_headers_at_once_then_each_event_as_a_chunk_and_ends_cleanly() {
    let server = ApiServer::builder().build();
    let mut io = connect(&server);
    let revision = server.store().revision();
    let request = format!(
        "GET /api/v1/namespaces?watch=1&resourceVersion={revision}&timeoutSeconds=5 HTTP/1.1\r\nhost: a\r\n\r\n"
    );
    io.write_all(request.as_bytes()).await.expect("writes");
    let headers = read_until(&mut io, "\r\n\r\n").await;
    assert!(headers.starts_with("HTTP/1.1 200 OK\r\n"), "{headers}");
    assert!(headers.contains("content-type: application/json\r\n"), "{headers}");
    assert!(headers.contains("transfer-encoding: chunked\r\n"), "{headers}");

    let writer = server.as_writer("replay");
    writer.put(namespace("a")).expect("writes");
    writer.put(namespace("b")).expect("writes");
    for name in ["a", "b"] {
        let chunk = read_chunk(&mut io).await;
        assert!(chunk.ends_with("}\n"), "{chunk}");
        let event: serde_json::Value = serde_json::from_str(&chunk).expect("one event");
        assert_eq!((&event["type"], &event["object"]["metadata"]["name"]), (&json!("ADDED"), &json!(name)));
    }
    assert_eq!(read_until(&mut io, "0\r\n\r\n").await, "0\r\n\r\n", "the time is up: a clean end");
    // The connection can be used again.
    io.write_all(b"GET /readyz HTTP/1.1\r\nhost: a\r\n\r\n").await.expect("writes");
    assert!(read_until(&mut io, "\r\n\r\nok").await.starts_with("HTTP/1.1 200 OK\r\n"));
}

#[tokio::test]
async fn a_writer_keeps_what_it_is_given_but_for_the_revision() {
    let server = ApiServer::builder().build();
    let writer = server.as_writer("replay");
    let recorded = json!({
        "kind": "Sandbox", "apiVersion": "agents.x-k8s.io/v1beta1",
        "metadata": {"name": "s", "namespace": "nowhere", "uid": "recorded", "generation": 7, "resourceVersion": "5365"},
        "spec": {"operatingMode": "Suspended"}, "status": {"selector": "x"},
    });
    let revision = writer.put(recorded.clone()).expect("writes");
    let stored = server.store().get("sandboxes", "nowhere", "s").expect("stored");
    assert_eq!(stored["metadata"]["resourceVersion"], revision.to_string());
    let mut expected = recorded.clone();
    expected["metadata"]["resourceVersion"] = revision.to_string().into();
    assert_eq!(*stored, expected);
    assert_eq!(writer.put(recorded.clone()), Ok(revision + 1), "the same state is written again");
    assert_eq!(writer.delete(&recorded), Ok(revision + 2));
    assert_eq!(server.store().get("sandboxes", "nowhere", "s"), None);
    let unknown = json!({"kind": "Widget", "apiVersion": "v1", "metadata": {"name": "w"}});
    assert_eq!(
        writer.put(unknown).expect_err("no such type").to_string(),
        "objects of kind \"Widget\" in \"v1\" are not stored by this server"
    );
}

#[cfg(feature = "sim")]
mod sim {
    use futures::StreamExt;
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::api::{PostParams, WatchEvent, WatchParams};
    use kube::{Api, Client, ResourceExt};
    use photofinish_apiserver::sim::SimHooks;
    use photofinish_sim::choices::{Choices, Source};
    use photofinish_sim::gate::{Gates, Release};
    use photofinish_sim::trace::Trace;

    use super::*;

    fn map(name: &str) -> ConfigMap {
        serde_json::from_value(json!({"metadata": {"name": name}})).expect("a map")
    }

    #[tokio::test(start_paused = true)]
    async fn a_held_watch_shows_nothing_until_it_is_released_event_by_event() {
        let trace = Trace::new();
        let choices = Choices::benign();
        let gates = Gates::new(trace.clone(), choices.clone());
        let server = ApiServer::builder().hooks(SimHooks::new(trace.clone(), choices, gates.clone())).build();
        let maps: Api<ConfigMap> = Api::default_namespaced(Client::new(server.as_client("driver"), "default"));
        let from = server.store().revision().to_string();
        let mut events = maps.watch(&WatchParams::default(), &from).await.expect("watches").boxed();
        gates.hold("driver/configmaps", "late").expect("a free name");
        for name in ["a", "b", "c"] {
            maps.create(&PostParams::default(), &map(name)).await.expect("creates");
        }
        let wait = std::time::Duration::from_secs(5);
        assert!(tokio::time::timeout(wait, events.next()).await.is_err(), "held");
        assert_eq!(gates.backlog("late").iter().map(|meta| meta.object.as_str()).collect::<Vec<_>>(), ["a", "b", "c"]);
        let mut next = async || match events.next().await.expect("goes on").expect("no error") {
            WatchEvent::Added(map) => map.name_any(),
            other => panic!("unexpected {other:?}"),
        };
        gates.release("late", Release::Until(Box::new(|meta| meta.value["metadata"]["name"] == "b"))).expect("held");
        assert_eq!((next().await, next().await), ("a".to_owned(), "b".to_owned()));
        gates.release("late", Release::All).expect("held");
        assert_eq!(next().await, "c");
        let seen: Vec<String> = trace.with(|entries| {
            let watched = entries.iter().filter(|entry| entry.kind == "watch");
            watched.map(|e| format!("{} {}", e.name, e.field("object").unwrap_or_default())).collect()
        });
        assert_eq!(seen, ["ADDED a", "ADDED b", "ADDED c"]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_pinned_delay_slows_one_call() {
        let trace = Trace::new();
        let pins = "call/driver/CREATE/configmaps/b#1=+2s".parse().expect("pins");
        let choices = Choices::new(Source::Benign, pins, trace.clone());
        let gates = Gates::new(trace.clone(), choices.clone());
        let server = ApiServer::builder().hooks(SimHooks::new(trace, choices, gates)).build();
        let maps: Api<ConfigMap> = Api::default_namespaced(Client::new(server.as_client("driver"), "default"));
        let mut took = Vec::new();
        for name in ["a", "b"] {
            let began = tokio::time::Instant::now();
            maps.create(&PostParams::default(), &map(name)).await.expect("creates");
            took.push(began.elapsed().as_secs());
        }
        assert_eq!(took, [0, 2]);
    }
}
