//! Several servers over one history, and what becomes of clients when a server lags, stops, dies, restarts, or when the
//! history is compacted. In memory, on tokio's paused clock.

use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use photofinish_apiserver::{ApiServer, Body, Lost};
use serde_json::{Value, json};
use tokio::time::{Instant, timeout};
use tower::ServiceExt;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

async fn try_send(server: &ApiServer, method: &str, uri: &str, body: Value) -> Result<Response<Body>, Lost> {
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let mut request = Request::builder().method(method).uri(uri);
    if method == "PATCH" {
        request = request.header("content-type", "application/merge-patch+json");
    }
    server.clone().oneshot(request.body(Full::new(Bytes::from(body))).expect("a request")).await
}

async fn send(server: &ApiServer, method: &str, uri: &str, body: Value) -> (u16, Value) {
    let response = try_send(server, method, uri, body).await.expect("an answer");
    let status = response.status().as_u16();
    let bytes = response.into_body().collect().await.expect("whole").to_bytes();
    (status, serde_json::from_slice(&bytes).unwrap_or(Value::Null))
}

async fn get(server: &ApiServer, uri: &str) -> (u16, Value) {
    send(server, "GET", uri, Value::Null).await
}

async fn create(server: &ApiServer, name: &str) -> u64 {
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}});
    let (status, made) = send(server, "POST", MAPS, map).await;
    assert_eq!(status, 201, "{made}");
    revision(&made)
}

async fn create_event(server: &ApiServer, name: &str) -> u64 {
    let event = json!({
        "apiVersion": "v1", "kind": "Event", "metadata": {"name": name, "namespace": "default"},
        "involvedObject": {"kind": "Pod", "namespace": "default", "name": "p"},
    });
    let (status, made) = send(server, "POST", "/api/v1/namespaces/default/events", event).await;
    assert_eq!(status, 201, "{made}");
    revision(&made)
}

fn revision(object: &Value) -> u64 {
    object["metadata"]["resourceVersion"].as_str().and_then(|rv| rv.parse().ok()).expect("a revision")
}

fn names(list: &Value) -> Vec<&str> {
    let items = list["items"].as_array().expect("a list");
    items.iter().map(|item| item["metadata"]["name"].as_str().expect("a name")).collect()
}

async fn watch(server: &ApiServer, query: &str) -> Body {
    let response = try_send(server, "GET", &format!("{MAPS}?watch=1{query}"), Value::Null).await.expect("an answer");
    assert_eq!(response.status(), 200);
    response.into_body()
}

/// The next event, within a virtual minute.
async fn next(body: &mut Body) -> Option<Result<Value, Lost>> {
    let frame = timeout(Duration::from_secs(60), body.frame()).await.expect("within a minute")?;
    Some(frame.map(|frame| serde_json::from_slice(&frame.into_data().expect("data")).expect("JSON")))
}

async fn event(body: &mut Body) -> (String, String) {
    let event = next(body).await.expect("no end").expect("no break");
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    (text(&event["type"]), text(&event["object"]["metadata"]["name"]))
}

async fn silent(body: &mut Body, for_: Duration) -> bool {
    timeout(for_, body.frame()).await.is_err()
}

fn two() -> (ApiServer, ApiServer) {
    let front = ApiServer::builder().servers(&["a", "b"]).build();
    (front.server("a").expect("named"), front.server("b").expect("named"))
}

#[tokio::test(start_paused = true)]
async fn a_server_that_lags_serves_old_data_at_revision_zero_and_the_latest_without_one() {
    let (a, b) = two();
    create(&a, "old").await;
    b.fall_behind();
    create(&a, "new").await;
    assert_eq!(names(&get(&a, &format!("{MAPS}?resourceVersion=0")).await.1), ["new", "old"]);
    let (_, stale) = get(&b, &format!("{MAPS}?resourceVersion=0")).await;
    assert_eq!(names(&stale), ["old"], "time travel, for a client that moves from a to b");
    assert_eq!(get(&b, &format!("{MAPS}/new?resourceVersion=0")).await.0, 404);
    assert_eq!(names(&get(&b, MAPS).await.1), ["new", "old"]);
    assert_eq!(get(&b, &format!("{MAPS}/new")).await.0, 200);
    b.catch_up();
    assert_eq!(names(&get(&b, &format!("{MAPS}?resourceVersion=0")).await.1), ["new", "old"]);
}

#[tokio::test(start_paused = true)]
async fn a_stale_list_and_the_watch_from_its_revision_miss_nothing() {
    let (a, b) = two();
    create(&a, "old").await;
    b.fall_behind();
    create(&a, "new").await;
    let (_, stale) = get(&b, &format!("{MAPS}?resourceVersion=0")).await;
    let mut stream = watch(&b, &format!("&resourceVersion={}", revision(&stale))).await;
    assert!(silent(&mut stream, Duration::from_secs(5)).await);
    b.catch_up();
    assert_eq!(event(&mut stream).await, ("ADDED".into(), "new".into()));
}

#[tokio::test(start_paused = true)]
async fn a_read_that_is_not_to_be_older_waits_for_the_cache_and_gives_up_after_three_seconds() {
    let (a, b) = two();
    b.set_lag(Duration::from_secs(2));
    let made = create(&a, "x").await;
    let began = Instant::now();
    let (status, list) = get(&b, &format!("{MAPS}?resourceVersion={made}")).await;
    assert_eq!((status, names(&list)), (200, vec!["x"]));
    assert_eq!(began.elapsed().as_secs(), 2);
    b.fall_behind();
    let made = create(&a, "y").await;
    let began = Instant::now();
    let (status, refusal) = get(&b, &format!("{MAPS}?resourceVersion={made}")).await;
    assert_eq!((status, refusal["reason"].as_str()), (504, Some("Timeout")));
    assert_eq!(began.elapsed().as_secs(), 3);
}

#[tokio::test(start_paused = true)]
async fn watches_of_a_lagging_server_show_the_same_events_later() {
    let (a, b) = two();
    b.set_lag(Duration::from_millis(700));
    let (mut on_a, mut on_b) = (watch(&a, "").await, watch(&b, "").await);
    create(&a, "x").await;
    assert_eq!(event(&mut on_a).await, ("ADDED".into(), "x".into()));
    let began = Instant::now();
    assert_eq!(event(&mut on_b).await, ("ADDED".into(), "x".into()));
    assert!(began.elapsed() >= Duration::from_millis(699), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_bookmark_of_a_lagging_server_does_not_promise_what_has_not_arrived() {
    let (a, b) = two();
    let before = create(&a, "x").await;
    b.fall_behind();
    let mut stream = watch(&b, &format!("&resourceVersion={before}&allowWatchBookmarks=true&timeoutSeconds=300")).await;
    create(&a, "y").await;
    tokio::time::sleep(Duration::from_secs(30)).await;
    let bookmark = next(&mut stream).await.expect("no end").expect("no break");
    assert_eq!((bookmark["type"].as_str(), revision(&bookmark["object"])), (Some("BOOKMARK"), before));
}

#[tokio::test(start_paused = true)]
async fn after_a_restart_even_the_newest_revision_is_too_old_for_a_watch_but_not_for_an_exact_list() {
    let server = ApiServer::builder().build();
    let first = create(&server, "x").await;
    let newest = create(&server, "y").await;
    server.restart();
    let mut stream = watch(&server, &format!("&resourceVersion={newest}")).await;
    let error = next(&mut stream).await.expect("an event").expect("no break");
    assert_eq!((error["type"].as_str(), error["object"]["code"].as_u64()), (Some("ERROR"), Some(410)));
    assert!(next(&mut stream).await.is_none(), "the server ends the stream");
    let (status, list) = get(&server, &format!("{MAPS}?resourceVersion={first}&resourceVersionMatch=Exact")).await;
    assert_eq!((status, names(&list)), (200, vec!["x"]));
    let (_, list) = get(&server, MAPS).await;
    let mut stream = watch(&server, &format!("&resourceVersion={}", revision(&list))).await;
    create(&server, "z").await;
    assert_eq!(event(&mut stream).await, ("ADDED".into(), "z".into()));
}

#[tokio::test(start_paused = true)]
async fn a_killed_server_breaks_its_watches_and_the_other_one_goes_on() {
    let (a, b) = two();
    let (mut on_a, mut on_b) = (watch(&a, "").await, watch(&b, "").await);
    a.kill();
    assert_eq!(next(&mut on_a).await, Some(Err(Lost)));
    assert!(try_send(&a, "GET", MAPS, Value::Null).await.is_err(), "nobody is there");
    let last = create(&b, "x").await;
    assert_eq!(event(&mut on_b).await, ("ADDED".into(), "x".into()));
    create(&b, "y").await;
    let mut resumed = watch(&b, &format!("&resourceVersion={last}")).await;
    assert_eq!(event(&mut resumed).await, ("ADDED".into(), "y".into()), "revisions are the same everywhere");
    a.restart();
    assert_eq!(names(&get(&a, MAPS).await.1), ["x", "y"]);
}

#[tokio::test(start_paused = true)]
async fn a_server_told_to_stop_keeps_its_watches_open_and_silent_for_a_minute() {
    let (a, b) = two();
    let mut stream = watch(&a, "").await;
    a.terminate();
    let began = Instant::now();
    create(&b, "x").await;
    assert!(next(&mut stream).await.is_none(), "a clean end, and nothing before it");
    assert_eq!(began.elapsed().as_secs(), 60);
    assert!(try_send(&a, "GET", MAPS, Value::Null).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn compaction_expires_old_lists_and_pages_but_no_watches() {
    let server = ApiServer::builder().build();
    let first = create(&server, "x").await;
    create(&server, "y").await;
    let (_, page) = get(&server, &format!("{MAPS}?limit=1")).await;
    let token = page["metadata"]["continue"].as_str().expect("more").to_owned();
    let newest = create(&server, "z").await;
    server.store().compact(newest);
    let exact = format!("{MAPS}?resourceVersion={first}&resourceVersionMatch=Exact");
    let (status, refusal) = get(&server, &exact).await;
    assert_eq!((status, refusal["reason"].as_str()), (410, Some("Expired")));
    let (status, refusal) = get(&server, &format!("{MAPS}?limit=1&continue={token}")).await;
    assert_eq!(status, 410);
    let token = refusal["metadata"]["continue"].as_str().expect("an offer to go on inconsistently");
    let (status, rest) = get(&server, &format!("{MAPS}?continue={token}")).await;
    assert_eq!((status, names(&rest)), (200, vec!["y", "z"]));
    let mut stream = watch(&server, &format!("&resourceVersion={first}")).await;
    assert_eq!(event(&mut stream).await, ("ADDED".into(), "y".into()));
}

#[tokio::test(start_paused = true)]
async fn compaction_behind_the_servers_back_is_noticed_only_where_nothing_is_cached() {
    let server = ApiServer::builder().build();
    let first = create(&server, "x").await;
    let event = create_event(&server, "e").await;
    let newest = create_event(&server, "f").await;
    server.store().compact_storage(newest);
    let exact = |path: &str, at| format!("{path}?resourceVersion={at}&resourceVersionMatch=Exact");
    assert_eq!(get(&server, &exact(MAPS, first)).await.0, 200, "the server has a snapshot");
    let events = "/api/v1/namespaces/default/events";
    assert_eq!(get(&server, &exact(events, event)).await.0, 410);
    let from = format!("{events}?watch=1&resourceVersion={event}");
    let response = try_send(&server, "GET", &from, Value::Null).await.expect("an answer");
    let error = next(&mut response.into_body()).await.expect("an event").expect("no break");
    assert_eq!(error["object"]["message"], "The resourceVersion for the provided watch is too old.");
}

#[tokio::test(start_paused = true)]
async fn the_window_of_a_cache_ends_with_the_age_of_its_events_and_keeps_the_last_hundred() {
    let server = ApiServer::builder().build();
    let first = create(&server, "x").await;
    for n in 0..260 {
        let patch = json!({"data": {"n": n.to_string()}});
        assert_eq!(send(&server, "PATCH", &format!("{MAPS}/x"), patch).await.0, 200);
    }
    let mut young = watch(&server, &format!("&resourceVersion={first}")).await;
    assert_eq!(event(&mut young).await.0, "MODIFIED");
    tokio::time::sleep(Duration::from_secs(76)).await;
    let mut old = watch(&server, &format!("&resourceVersion={first}")).await;
    assert_eq!(event(&mut old).await.0, "ERROR");
    let mut recent = watch(&server, &format!("&resourceVersion={}", first + 160)).await;
    assert_eq!(event(&mut recent).await.0, "MODIFIED");
}

#[tokio::test(start_paused = true)]
async fn a_client_that_does_not_read_gets_what_was_buffered_and_a_clean_end() {
    let server = ApiServer::builder().watch_backlog(5).build();
    let mut stream = watch(&server, "").await;
    assert!(silent(&mut stream, Duration::from_millis(1)).await);
    for n in 0..20 {
        create(&server, &format!("m{n:02}")).await;
    }
    let mut seen = Vec::new();
    while let Some(event) = next(&mut stream).await {
        seen.push(event.expect("no break")["object"]["metadata"]["name"].clone());
    }
    assert_eq!(seen, ["m00", "m01", "m02", "m03", "m04"]);
    let mut replay = watch(&server, "&resourceVersion=1").await;
    for n in 0..20 {
        assert_eq!(event(&mut replay).await.1, format!("m{n:02}"), "a replay is no measure of speed");
    }
}

#[tokio::test(start_paused = true)]
async fn a_new_definition_of_a_type_ends_its_watches_and_no_others() {
    let server = ApiServer::builder().build();
    let mut maps = watch(&server, "").await;
    let all = "/apis/agents.x-k8s.io/v1beta1/sandboxes?watch=1";
    let mut sandboxes = try_send(&server, "GET", all, Value::Null).await.expect("an answer").into_body();
    assert!(silent(&mut sandboxes, Duration::from_millis(1)).await);
    server.store().redefine("sandboxes");
    assert!(next(&mut sandboxes).await.is_none());
    assert!(silent(&mut maps, Duration::from_secs(5)).await);
}

#[tokio::test(start_paused = true)]
async fn a_watch_of_a_process_that_was_replaced_breaks_once() {
    let server = ApiServer::builder().build();
    create(&server, "x").await;
    let mut stream = watch(&server, "").await;
    assert_eq!(event(&mut stream).await.1, "x");
    server.restart();
    assert_eq!(next(&mut stream).await, Some(Err(Lost)), "its process is gone");
    assert!(next(&mut stream).await.is_none());
}

/// When bookmarks that mark nothing come, in tenths of seconds since the watch began; until it ends.
async fn bookmarks(server: &ApiServer, query: &str, event_after: Option<Duration>) -> Vec<u128> {
    let began = Instant::now();
    let mut stream = watch(server, query).await;
    if let Some(after) = event_after {
        let server = server.clone();
        tokio::spawn(async move {
            tokio::time::sleep(after).await;
            create(&server, &format!("m{}", server.store().revision())).await;
        });
    }
    let mut found = Vec::new();
    while let Ok(Some(frame)) = timeout(Duration::from_secs(100), stream.frame()).await {
        let event: Value = serde_json::from_slice(&frame.expect("no break").into_data().expect("data")).expect("JSON");
        if event["type"] == "BOOKMARK" && event["object"]["metadata"].get("annotations").is_none() {
            found.push(began.elapsed().as_millis() / 100);
        }
    }
    found
}

#[tokio::test(start_paused = true)]
async fn bookmarks_come_each_minute_before_the_end_and_soon_after_what_a_watch_from_the_present_saw() {
    let server = ApiServer::builder().build();
    let from = create(&server, "m").await;
    let soon = Some(Duration::from_millis(100));
    let asked = "&allowWatchBookmarks=true";
    let table = [
        (format!("{asked}&timeoutSeconds=150&resourceVersion={from}"), None, vec![600, 1200, 1480]),
        (format!("{asked}&timeoutSeconds=5&resourceVersion={from}"), soon, vec![]),
        (format!("{asked}&timeoutSeconds=5&resourceVersion=0"), soon, vec![5, 30]),
        (format!("{asked}&timeoutSeconds=5&resourceVersion=0"), None, vec![30]),
        (format!("&timeoutSeconds=150&resourceVersion={from}"), soon, vec![]),
    ];
    for (query, event_after, expected) in table {
        assert_eq!(bookmarks(&server, &query, event_after).await, expected, "{query} {event_after:?}");
    }
}
