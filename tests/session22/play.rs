//! A simulated cluster with our controller, the recorded requests, and watches like the recorder's.
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::{StreamExt, TryStreamExt};
use kube::Client;
use kube::core::{DynamicObject, WatchEvent};
use photofinish_apiserver::ApiServer;
use photofinish_openshell::BoxError;
use photofinish_openshell::cluster::controller::{self, Profile};
use photofinish_sim::choices::Choices;
use photofinish_sim::host::HostSpec;
use photofinish_sim::trace::Trace;
use photofinish_sim::world::{World, WorldConfig, on_own_thread};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep_until};

use crate::recording::{Do, Recording, Seen, Step};
use crate::support;

const NAMESPACE: &str = "as2";
/// When the script starts: a whole second, and late enough for the controller's first lists.
const START: Duration = Duration::from_secs(2);
/// How long the cluster is given after the last request.
const SETTLE: Duration = Duration::from_secs(3);
const WATCHED: [&str; 4] = [
    "/apis/agents.x-k8s.io/v1beta1/namespaces/as2/sandboxes",
    "/api/v1/namespaces/as2/pods",
    "/api/v1/namespaces/as2/services",
    "/api/v1/namespaces/as2/persistentvolumeclaims",
];

/// Plays the recording's requests and returns what the watches saw, in order of arrival.
pub(crate) fn run(recording: &Recording) -> Vec<Seen> {
    let seen: Arc<Mutex<Vec<Seen>>> = Arc::default();
    let script: Arc<[Step]> = recording.script.clone().into();
    let result = Arc::clone(&seen);
    on_own_thread(move || {
        let mut builder = World::builder(WorldConfig::default(), Trace::new(), Choices::benign());
        let server = ApiServer::builder().build();
        builder.host("api", HostSpec::new(), move |ctx| support::api(ctx, server.clone()));
        builder.host("agent-sandbox", HostSpec::new(), |ctx| async move {
            controller::run(ctx.wire.kube("http://api", NAMESPACE), Profile::V056, controller::Config::default()).await
        });
        builder.host("garbage-collector", HostSpec::new(), |ctx| async move {
            photofinish_apiserver::actors::garbage_collector::run(ctx.wire.kube("http://api", NAMESPACE)).await?;
            Ok(())
        });
        builder.host("recorder", HostSpec::new(), move |ctx| {
            record(ctx.wire.kube("http://api", NAMESPACE), Arc::clone(&script), Arc::clone(&result))
        });
        let mut world = builder.build();
        world.start_all();
        let ended = world.run_until(Duration::from_secs(60), |world| !world.is_up("recorder").expect("it is a host"));
        assert!(matches!(ended, Ok(true)), "the script did not end: {ended:?}");
        let failures: Vec<String> = world.trace().with(|entries| {
            let failed = entries.iter().filter(|e| e.kind == "panic" || e.kind == "host" && e.field("error").is_some());
            failed.map(|e| e.text.clone()).collect()
        });
        assert!(failures.is_empty(), "{failures:#?}");
    });
    let seen = std::mem::take(&mut *seen.lock().unwrap_or_else(PoisonError::into_inner));
    assert!(!seen.is_empty(), "the watches saw nothing");
    seen
}

async fn record(client: Client, script: Arc<[Step]>, seen: Arc<Mutex<Vec<Seen>>>) -> Result<(), BoxError> {
    let start = Instant::now() + START;
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}});
    send(&client, "POST", "/api/v1/namespaces", Some("application/json"), &namespace).await?;
    for path in WATCHED {
        let request = http::Request::get(format!("{path}?watch=1")).body(vec![])?;
        let mut events = client.request_events::<DynamicObject>(request).await?.boxed();
        let seen = Arc::clone(&seen);
        tokio::spawn(async move {
            while let Ok(Some(event)) = events.try_next().await {
                if let Some(event) = as_seen(event) {
                    seen.lock().unwrap_or_else(PoisonError::into_inner).push(event);
                }
            }
        });
    }
    let mut last = Duration::ZERO;
    for Step { at_ms, action } in script.iter() {
        last = Duration::from_secs_f64(at_ms / 1e3);
        sleep_until(start + last).await;
        perform(&client, action).await.map_err(|e| format!("{} at {at_ms} ms: {e}", action.case))?;
    }
    sleep_until(start + last + SETTLE).await;
    Ok(())
}

fn as_seen(event: WatchEvent<DynamicObject>) -> Option<Seen> {
    let (change, object) = match event {
        WatchEvent::Added(object) => ("ADDED", object),
        WatchEvent::Modified(object) => ("MODIFIED", object),
        WatchEvent::Deleted(object) => ("DELETED", object),
        WatchEvent::Bookmark(_) | WatchEvent::Error(_) => return None,
    };
    let mut object = serde_json::to_value(object).expect("it came as JSON");
    if let Some(meta) = object["metadata"].as_object_mut() {
        meta.remove("managedFields");
    }
    Some(Seen { change: change.into(), object })
}

/// Sends one recorded request. Every one of them succeeded, so an error fails the test.
async fn perform(client: &Client, action: &Do) -> Result<(), BoxError> {
    let mut body = action.body.clone();
    if let Some(time) = body.pointer_mut("/spec/shutdownTime") {
        let seconds: i64 = time
            .as_str()
            .and_then(|t| t.strip_prefix('+')?.strip_suffix('s')?.parse().ok())
            .ok_or_else(|| format!("expected a shutdownTime like +3s, found {time}"))?;
        // The script starts at a whole second, and its first requests fall into that second.
        let at = k8s_openapi::jiff::Timestamp::now().as_second() + seconds;
        *time = k8s_openapi::jiff::Timestamp::from_second(at)?.to_string().into();
    }
    let query: Vec<String> = action.query.iter().map(|(key, value)| format!("{key}={value}")).collect();
    let separator = if query.is_empty() { "" } else { "?" };
    let path = format!("{}{separator}{}", action.path, query.join("&"));
    send(client, &action.method, &path, action.content_type.as_deref(), &body).await
}

async fn send(client: &Client, method: &str, path: &str, content: Option<&str>, body: &Value) -> Result<(), BoxError> {
    let mut request = http::Request::builder().method(method).uri(path);
    if let Some(content) = content {
        request = request.header("Content-Type", content);
    }
    let body = if body.is_null() { vec![] } else { serde_json::to_vec(body)? };
    client.request::<Value>(request.body(body)?).await?;
    Ok(())
}
