//! Kubelet, scheduler and garbage collector, each with a client of its own, over HTTP on in-memory pipes.
//!
//! Time is tokio's paused clock: it jumps whenever everybody waits.
#![cfg(feature = "actors")]

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures::StreamExt;
use hyper_util::rt::TokioIo;
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim, Pod};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, ResourceExt};
use photofinish_apiserver::actors::{garbage_collector, kubelet, scheduler};
use photofinish_apiserver::{ApiServer, ConnInfo};
use serde_json::json;
use tokio::io::DuplexStream;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};

/// A server behind HTTP/1.1, and clients that connect to it.
#[derive(Clone)]
struct Cluster {
    server: ApiServer,
    connections: mpsc::UnboundedSender<DuplexStream>,
    made: Arc<AtomicU64>,
}

impl Cluster {
    fn start() -> Cluster {
        let server = ApiServer::builder().build();
        let (connections, mut incoming) = mpsc::unbounded_channel();
        let serving = server.clone();
        tokio::spawn(async move {
            let incoming = async_stream(&mut incoming);
            serving.serve(incoming, |_| ConnInfo { client: "test".into(), connection: 1 }).await
        });
        Cluster { server, connections, made: Arc::default() }
    }

    /// A client that opens its own connections.
    fn client(&self) -> Client {
        let (connections, made) = (self.connections.clone(), self.made.clone());
        let connector = tower::service_fn(move |_: http::Uri| {
            let (ours, theirs) = tokio::io::duplex(1 << 16);
            made.fetch_add(1, Ordering::Relaxed);
            let sent = connections.send(theirs).map_err(|_| io::Error::from(io::ErrorKind::ConnectionRefused));
            std::future::ready(sent.map(|()| Plain(TokioIo::new(ours))))
        });
        let http = hyper_util::client::legacy::Client::builder(hyper_util::rt::TokioExecutor::new()).build(connector);
        let based = tower::ServiceBuilder::new()
            .layer(kube::client::middleware::BaseUriLayer::new(http::Uri::from_static("http://api")))
            .service(http);
        Client::new(based, "default")
    }
}

fn async_stream(
    incoming: &mut mpsc::UnboundedReceiver<DuplexStream>,
) -> impl futures::Stream<Item = io::Result<DuplexStream>> + '_ {
    futures::stream::poll_fn(|cx| incoming.poll_recv(cx).map(|io| io.map(Ok)))
}

/// The client's half of a pipe, as hyper-util wants it.
struct Plain(TokioIo<DuplexStream>);

impl hyper_util::client::legacy::connect::Connection for Plain {
    fn connected(&self) -> hyper_util::client::legacy::connect::Connected {
        hyper_util::client::legacy::connect::Connected::new()
    }
}

impl hyper::rt::Read for Plain {
    fn poll_read(
        mut self: std::pin::Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
        buf: hyper::rt::ReadBufCursor<'_>,
    ) -> std::task::Poll<io::Result<()>> {
        std::pin::Pin::new(&mut self.0).poll_read(cx, buf)
    }
}

impl hyper::rt::Write for Plain {
    fn poll_write(
        mut self: std::pin::Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
        buf: &[u8],
    ) -> std::task::Poll<io::Result<usize>> {
        std::pin::Pin::new(&mut self.0).poll_write(cx, buf)
    }

    fn poll_flush(
        mut self: std::pin::Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<io::Result<()>> {
        std::pin::Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(
        mut self: std::pin::Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<io::Result<()>> {
        std::pin::Pin::new(&mut self.0).poll_shutdown(cx)
    }
}

fn pod(name: &str, gates: &[&str]) -> Pod {
    let gates: Vec<_> = gates.iter().map(|gate| json!({"name": gate})).collect();
    serde_json::from_value(json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
        "spec": {"containers": [{"name": "c", "image": "img:1"}], "schedulingGates": gates},
    }))
    .expect("a pod")
}

fn phase(pod: &Pod) -> &str {
    pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default()
}

/// Polls until a condition holds; fails after a virtual minute.
async fn eventually(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(60);
    while !holds().await {
        assert!(Instant::now() < end, "never: {what}");
        sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_pod_runs_once_its_gates_are_gone_and_ends_after_its_deletion() {
    let cluster = Cluster::start();
    tokio::spawn(kubelet::run(cluster.client(), kubelet::KubeletConfig::default()));
    tokio::spawn(scheduler::run(cluster.client()));
    let pods: Api<Pod> = Api::default_namespaced(cluster.client());
    pods.create(&PostParams::default(), &pod("p", &["a/gate"])).await.expect("creates");
    sleep(Duration::from_secs(5)).await;
    assert_eq!(phase(&pods.get("p").await.expect("reads")), "Pending", "gated");

    let ungate = json!({"spec": {"schedulingGates": []}});
    pods.patch("p", &PatchParams::default(), &Patch::Merge(ungate)).await.expect("patches");
    let began = Instant::now();
    eventually("running", async || phase(&pods.get("p").await.expect("reads")) == "Running").await;
    let took = began.elapsed();
    assert!((Duration::from_millis(250)..Duration::from_millis(400)).contains(&took), "{took:?}");
    let running = pods.get("p").await.expect("reads");
    let status = running.status.as_ref().expect("a status");
    assert_eq!(status.pod_ip.as_deref(), Some("10.1.0.1"));
    let ready = status.conditions.iter().flatten().find(|c| c.type_ == "Ready").expect("a condition");
    assert_eq!(ready.status, "True");
    assert_eq!(running.spec.as_ref().and_then(|spec| spec.node_name.as_deref()), Some("n1"));

    let deleted = pods.delete("p", &DeleteParams::default()).await.expect("deletes").left().expect("still there");
    assert_eq!(deleted.metadata.deletion_grace_period_seconds, Some(30));
    eventually("gone", async || pods.get_opt("p").await.expect("reads").is_none()).await;
}

#[tokio::test(start_paused = true)]
async fn a_slow_kubelet_is_slow_where_its_pace_says_so_but_keeps_the_grace_period() {
    let cluster = Cluster::start();
    let pace: photofinish_apiserver::actors::Pace = Arc::new(|key, normal| match key {
        "start/pod/p#1" => Duration::from_secs(7),
        "stop/pod/p#1" => Duration::from_secs(900),
        _ => normal,
    });
    let config = kubelet::KubeletConfig { pace, ..kubelet::KubeletConfig::default() };
    tokio::spawn(kubelet::run(cluster.client(), config));
    tokio::spawn(scheduler::run(cluster.client()));
    let pods: Api<Pod> = Api::default_namespaced(cluster.client());
    pods.create(&PostParams::default(), &pod("p", &[])).await.expect("creates");
    sleep(Duration::from_secs(6)).await;
    assert_eq!(phase(&pods.get("p").await.expect("reads")), "Pending");
    sleep(Duration::from_secs(2)).await;
    assert_eq!(phase(&pods.get("p").await.expect("reads")), "Running");
    pods.delete("p", &DeleteParams::default()).await.expect("deletes");
    sleep(Duration::from_secs(29)).await;
    assert!(pods.get_opt("p").await.expect("reads").is_some());
    sleep(Duration::from_secs(2)).await;
    assert!(pods.get_opt("p").await.expect("reads").is_none());
}

fn owned(name: &str, owners: &[&ConfigMap]) -> ConfigMap {
    let owners: Vec<_> = owners
        .iter()
        .map(|owner| {
            json!({
                "apiVersion": "v1", "kind": "ConfigMap", "name": owner.name_any(), "uid": owner.uid(),
                "blockOwnerDeletion": true,
            })
        })
        .collect();
    serde_json::from_value(json!({"metadata": {"name": name, "ownerReferences": owners}})).expect("a map")
}

#[tokio::test(start_paused = true)]
async fn dependents_follow_their_owner_in_the_background_in_the_foreground_or_stay() {
    let cluster = Cluster::start();
    tokio::spawn(garbage_collector::run(cluster.client()));
    let maps: Api<ConfigMap> = Api::default_namespaced(cluster.client());
    let make = async |name: &str, owners: &[&ConfigMap]| {
        maps.create(&PostParams::default(), &owned(name, owners)).await.expect("creates")
    };
    let exists = async |name: &str| maps.get_opt(name).await.expect("reads").is_some();
    let policies = [
        ("Background", DeleteParams::background(), false),
        ("Foreground", DeleteParams::foreground(), false),
        ("Orphan", DeleteParams::orphan(), true),
    ];
    for (policy, params, stays) in policies {
        let owner = make("owner", &[]).await;
        let other = make("other", &[]).await;
        make("only", &[&owner]).await;
        make("shared", &[&owner, &other]).await;
        sleep(Duration::from_secs(1)).await;
        let began = Instant::now();
        maps.delete("owner", &params).await.expect("deletes");
        assert_eq!(exists("owner").await, policy != "Background", "{policy}");
        eventually("settled", async || !exists("owner").await && exists("only").await == stays).await;
        if policy == "Background" {
            assert!(began.elapsed() < Duration::from_millis(200), "{:?}", began.elapsed());
        }
        eventually("disowned", async || {
            let shared = maps.get("shared").await.expect("reads");
            shared.owner_references().len() == 1
        })
        .await;
        for name in ["only", "shared", "other"] {
            if exists(name).await {
                maps.delete(name, &DeleteParams::default()).await.expect("deletes");
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_dependent_of_an_owner_that_never_was_is_collected() {
    let cluster = Cluster::start();
    tokio::spawn(garbage_collector::run(cluster.client()));
    let maps: Api<ConfigMap> = Api::default_namespaced(cluster.client());
    let ghost: ConfigMap =
        serde_json::from_value(json!({"metadata": {"name": "ghost", "uid": "no-such-uid"}})).expect("a map");
    maps.create(&PostParams::default(), &owned("orphan", &[&ghost])).await.expect("creates");
    eventually("collected", async || maps.get_opt("orphan").await.expect("reads").is_none()).await;
}

#[tokio::test(start_paused = true)]
async fn a_protected_volume_claim_goes_when_no_pod_uses_it() {
    let cluster = Cluster::start();
    tokio::spawn(garbage_collector::run(cluster.client()));
    let claims: Api<PersistentVolumeClaim> = Api::default_namespaced(cluster.client());
    let pods: Api<Pod> = Api::default_namespaced(cluster.client());
    let claim = serde_json::from_value(json!({
        "metadata": {"name": "data"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    }));
    claims.create(&PostParams::default(), &claim.expect("a claim")).await.expect("creates");
    let mut user = pod("p", &[]);
    let volume = serde_json::from_value(json!({"name": "v", "persistentVolumeClaim": {"claimName": "data"}}));
    user.spec.as_mut().expect("a spec").volumes = Some(vec![volume.expect("a volume")]);
    pods.create(&PostParams::default(), &user).await.expect("creates");
    claims.delete("data", &DeleteParams::default()).await.expect("deletes");
    sleep(Duration::from_secs(5)).await;
    assert!(claims.get_opt("data").await.expect("reads").is_some(), "a pod uses it");
    pods.delete("p", &DeleteParams::default()).await.expect("deletes");
    eventually("gone", async || claims.get_opt("data").await.expect("reads").is_none()).await;
}

#[tokio::test(start_paused = true)]
async fn actors_come_back_when_their_watch_has_expired() {
    let cluster = Cluster::start();
    tokio::spawn(kubelet::run(cluster.client(), kubelet::KubeletConfig::default()));
    tokio::spawn(scheduler::run(cluster.client()));
    let pods: Api<Pod> = Api::default_namespaced(cluster.client());
    // Watches end after 290 s at the client's wish, and each resumption is told 410, since no bookmark is that fresh.
    for round in 0..3 {
        for _ in 0..300 {
            sleep(Duration::from_secs(1)).await;
            cluster.server.store().forget_watch_cache();
        }
        let name = format!("p{round}");
        pods.create(&PostParams::default(), &pod(&name, &[])).await.expect("creates");
        eventually("running", async || phase(&pods.get(&name).await.expect("reads")) == "Running").await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_kubelet_that_lists_again_while_a_pod_ends_still_ends_it() {
    let cluster = Cluster::start();
    // The pod takes its whole grace period of 600 s; the watch ends after 290 s, and the list after it is complete.
    let config = kubelet::KubeletConfig { stop: Duration::from_secs(900), ..kubelet::KubeletConfig::default() };
    tokio::spawn(kubelet::run(cluster.client(), config));
    tokio::spawn(scheduler::run(cluster.client()));
    let pods: Api<Pod> = Api::default_namespaced(cluster.client());
    pods.create(&PostParams::default(), &pod("p", &[])).await.expect("creates");
    eventually("running", async || phase(&pods.get("p").await.expect("reads")) == "Running").await;
    let began = Instant::now();
    pods.delete("p", &DeleteParams::default().grace_period(600)).await.expect("deletes");
    // Behind the last bookmark of the first watch, which comes 2 s before its end.
    sleep(Duration::from_millis(288_500)).await;
    cluster.server.store().forget_watch_cache();
    sleep(Duration::from_secs(310)).await;
    assert!(pods.get_opt("p").await.expect("reads").is_some());
    eventually("gone", async || pods.get_opt("p").await.expect("reads").is_none()).await;
    assert!(began.elapsed() < Duration::from_secs(605), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn each_client_has_connections_of_its_own_and_a_watch_gets_its_headers_at_once() {
    let cluster = Cluster::start();
    let (one, two) = (cluster.client(), cluster.client());
    let list = async |client: Client| {
        let maps: Api<ConfigMap> = Api::default_namespaced(client);
        maps.list(&Default::default()).await.expect("lists");
    };
    list(one.clone()).await;
    list(one.clone()).await;
    list(two).await;
    assert_eq!(cluster.made.load(Ordering::Relaxed), 2);
    // An empty watch sends no event, yet the call returns.
    let maps: Api<ConfigMap> = Api::default_namespaced(one);
    let mut events = watcher(maps.clone(), watcher::Config::default()).applied_objects().boxed();
    let made = serde_json::from_value(json!({"metadata": {"name": "a"}})).expect("a map");
    let (seen, _) = tokio::join!(events.next(), async {
        sleep(Duration::from_secs(1)).await;
        maps.create(&PostParams::default(), &made).await.expect("creates");
    });
    assert_eq!(seen.expect("goes on").expect("no error").name_any(), "a");
}
