//! Node lifecycle, namespace controller and a scheduler that looks at nodes, each with a client of its own, in memory.
//!
//! Time is tokio's paused clock: it jumps whenever everybody waits.
#![cfg(feature = "actors")]

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Node, Pod};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use photofinish_apiserver::ApiServer;
use photofinish_apiserver::actors::kubelet::KubeletConfig;
use photofinish_apiserver::actors::{Fate, kubelet, namespace, node_lifecycle, scheduler};
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

fn client(server: &ApiServer, name: &str) -> Client {
    Client::new(server.as_client(name), "default")
}

fn kubelet_of(server: &ApiServer, node: &str, fate: Option<Fate>) -> JoinHandle<()> {
    let mut config =
        KubeletConfig { node: node.into(), heartbeat: Some(Duration::from_secs(10)), ..KubeletConfig::default() };
    if let Some(fate) = fate {
        config.fate = fate;
    }
    let client = client(server, node);
    tokio::spawn(async move { kubelet::run(client, config).await.expect("runs") })
}

fn control_plane(server: &ApiServer) {
    let (scheduling, lifecycle) = (client(server, "scheduler"), client(server, "nodes"));
    tokio::spawn(async move { scheduler::run_on_nodes(scheduling).await.expect("runs") });
    tokio::spawn(async move { node_lifecycle::run(lifecycle, Default::default()).await.expect("runs") });
}

fn pod(name: &str) -> Pod {
    let pod = json!({"metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "img:1"}]}});
    serde_json::from_value(pod).expect("a pod")
}

/// Polls until a condition holds; fails after ten virtual minutes. Returns how long it took.
async fn eventually(what: &str, mut holds: impl AsyncFnMut() -> bool) -> Duration {
    let began = Instant::now();
    while !holds().await {
        assert!(began.elapsed() < Duration::from_secs(600), "never: {what}");
        sleep(Duration::from_millis(50)).await;
    }
    began.elapsed()
}

async fn runs_on(pods: &Api<Pod>, name: &str) -> Option<String> {
    let pod = pods.get_opt(name).await.expect("reads")?;
    let running = pod.status.and_then(|status| status.phase).is_some_and(|phase| phase == "Running");
    pod.spec.and_then(|spec| spec.node_name).filter(|_| running)
}

async fn ready(nodes: &Api<Node>, name: &str) -> String {
    let conditions = nodes.get(name).await.expect("reads").status.and_then(|status| status.conditions);
    let ready = conditions.into_iter().flatten().find(|condition| condition.type_ == "Ready");
    ready.map(|condition| condition.status).unwrap_or_default()
}

#[tokio::test(start_paused = true)]
async fn pods_spread_over_the_nodes_that_have_reported() {
    let server = ApiServer::builder().build();
    control_plane(&server);
    let pods: Api<Pod> = Api::default_namespaced(client(&server, "test"));
    pods.create(&PostParams::default(), &pod("early")).await.expect("creates");
    sleep(Duration::from_secs(20)).await;
    let waiting = pods.get("early").await.expect("reads");
    let told = waiting.status.and_then(|status| status.conditions).unwrap_or_default();
    assert_eq!(told[0].reason.as_deref(), Some("Unschedulable"));
    kubelet_of(&server, "n1", None);
    kubelet_of(&server, "n2", None);
    eventually("bound", async || runs_on(&pods, "early").await.is_some()).await;
    pods.create(&PostParams::default(), &pod("late")).await.expect("creates");
    eventually("bound", async || runs_on(&pods, "late").await.is_some()).await;
    assert_ne!(runs_on(&pods, "early").await, runs_on(&pods, "late").await);
}

#[tokio::test(start_paused = true)]
async fn a_node_that_dies_is_noticed_after_forty_seconds_and_loses_its_pods_after_three_hundred_more() {
    let server = ApiServer::builder().build();
    control_plane(&server);
    let kubelet = kubelet_of(&server, "n1", None);
    let pods: Api<Pod> = Api::default_namespaced(client(&server, "test"));
    let nodes: Api<Node> = Api::all(client(&server, "test"));
    pods.create(&PostParams::default(), &pod("p")).await.expect("creates");
    eventually("running", async || runs_on(&pods, "p").await.is_some()).await;
    kubelet.abort();
    let took = eventually("unknown", async || ready(&nodes, "n1").await == "Unknown").await;
    assert!((30..=50).contains(&took.as_secs()), "40 s after the last heartbeat, at the next look: {took:?}");
    let took =
        eventually("evicted", async || pods.get("p").await.expect("still there").metadata.deletion_timestamp.is_some())
            .await;
    assert!((300..=315).contains(&took.as_secs()), "{took:?}");
    sleep(Duration::from_secs(600)).await;
    assert!(pods.get_opt("p").await.expect("reads").is_some(), "nobody is there to confirm its end");
    pods.create(&PostParams::default(), &pod("q")).await.expect("creates");
    sleep(Duration::from_secs(60)).await;
    assert_eq!(runs_on(&pods, "q").await, None, "no pod goes to a dead node");
    kubelet_of(&server, "n1", None);
    eventually("gone", async || pods.get_opt("p").await.expect("reads").is_none()).await;
    eventually("running", async || runs_on(&pods, "q").await.is_some()).await;
    assert_eq!(ready(&nodes, "n1").await, "True");
}

#[tokio::test(start_paused = true)]
async fn pods_of_a_node_that_was_removed_go_at_once_after_a_quarantine() {
    let server = ApiServer::builder().build();
    control_plane(&server);
    let kubelet = kubelet_of(&server, "n1", None);
    let pods: Api<Pod> = Api::default_namespaced(client(&server, "test"));
    let nodes: Api<Node> = Api::all(client(&server, "test"));
    pods.create(&PostParams::default(), &pod("p")).await.expect("creates");
    eventually("running", async || runs_on(&pods, "p").await.is_some()).await;
    kubelet.abort();
    nodes.delete("n1", &DeleteParams::default()).await.expect("deletes");
    let took = eventually("gone", async || pods.get_opt("p").await.expect("reads").is_none()).await;
    assert!((40..=51).contains(&took.as_secs()), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_node_that_is_silent_for_a_minute_comes_back_with_its_pods() {
    let server = ApiServer::builder().build();
    control_plane(&server);
    let silence: Fate = Arc::new(|key| (key == "silent/node/n1#3").then(|| Duration::from_secs(60)));
    kubelet_of(&server, "n1", Some(silence));
    let pods: Api<Pod> = Api::default_namespaced(client(&server, "test"));
    let nodes: Api<Node> = Api::all(client(&server, "test"));
    pods.create(&PostParams::default(), &pod("p")).await.expect("creates");
    eventually("running", async || runs_on(&pods, "p").await.is_some()).await;
    eventually("unknown", async || ready(&nodes, "n1").await == "Unknown").await;
    eventually("back", async || ready(&nodes, "n1").await == "True").await;
    let untainted =
        async || nodes.get("n1").await.expect("reads").spec.and_then(|spec| spec.taints).is_none_or(|t| t.is_empty());
    eventually("untainted", untainted).await;
    assert!(pods.get("p").await.expect("reads").metadata.deletion_timestamp.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_its_node_throws_out_has_failed_and_stays() {
    let server = ApiServer::builder().build();
    control_plane(&server);
    let fate: Fate = Arc::new(|key| (key == "evict/pod/p#1").then(|| Duration::from_secs(5)));
    kubelet_of(&server, "n1", Some(fate));
    let pods: Api<Pod> = Api::default_namespaced(client(&server, "test"));
    pods.create(&PostParams::default(), &pod("p")).await.expect("creates");
    eventually("running", async || runs_on(&pods, "p").await.is_some()).await;
    sleep(Duration::from_secs(6)).await;
    let status = pods.get("p").await.expect("reads").status.expect("a status");
    assert_eq!((status.phase.as_deref(), status.reason.as_deref()), (Some("Failed"), Some("Evicted")));
}

#[tokio::test(start_paused = true)]
async fn a_namespace_is_emptied_after_five_seconds_and_goes_when_its_last_finalizer_has_gone() {
    let server = ApiServer::builder().build();
    let controller = client(&server, "namespaces");
    tokio::spawn(async move { namespace::run(controller).await.expect("runs") });
    let namespaces: Api<Namespace> = Api::all(client(&server, "test"));
    let named = |name: &str| serde_json::from_value(json!({"metadata": {"name": name}})).expect("a namespace");
    namespaces.create(&PostParams::default(), &named("team")).await.expect("creates");
    let maps: Api<ConfigMap> = Api::namespaced(client(&server, "test"), "team");
    let map = |value: Value| -> ConfigMap { serde_json::from_value(value).expect("a map") };
    maps.create(&PostParams::default(), &map(json!({"metadata": {"name": "a"}}))).await.expect("creates");
    let kept = map(json!({"metadata": {"name": "f", "finalizers": ["test.io/f"]}}));
    maps.create(&PostParams::default(), &kept).await.expect("creates");
    namespaces.delete("team", &DeleteParams::default()).await.expect("deletes");
    let gone = async |name: &str| maps.get_opt(name).await.expect("reads").is_none();
    let took = eventually("emptied", async || gone("a").await).await;
    assert!((4900..5200).contains(&took.as_millis()), "{took:?}");
    sleep(Duration::from_secs(1)).await;
    let status = namespaces.get("team").await.expect("reads").status.expect("a status");
    let remaining = status.conditions.expect("conditions").remove(4);
    assert_eq!(
        remaining.message.as_deref(),
        Some("Some content in the namespace has finalizers remaining: test.io/f in 1 resource instances")
    );
    let free = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    maps.patch("f", &PatchParams::default(), &free).await.expect("patches");
    eventually("gone", async || namespaces.get_opt("team").await.expect("reads").is_none()).await;
    assert!(namespaces.get_opt("default").await.expect("reads").is_some_and(|n| n.name_any() == "default"));
}
