//! What a gateway sees through WatchSandboxes.
use super::cluster::{Cluster, ID, managed, shared};
use crate::driver::names;
use crate::pb::compute::watch_sandboxes_event::Payload;
use crate::pb::compute::*;
use crate::remedy::{Remedies, Remedy};
use photofinish_apiserver::SandboxVersions;
use std::time::Duration;
use tokio::time::timeout;

impl Cluster {
    async fn watch(&mut self) -> Seen {
        let stream = self.driver.watch_sandboxes(WatchSandboxesRequest {}).await.expect("opened").into_inner();
        Seen(stream)
    }
}

struct Seen(tonic::Streaming<WatchSandboxesEvent>);

impl Seen {
    /// What comes within `limit` of the paused clock.
    async fn within(&mut self, limit: Duration) -> Vec<Payload> {
        let mut seen = Vec::new();
        let _ = timeout(limit, async {
            while let Some(event) = self.0.message().await.expect("the stream lives") {
                seen.extend(event.payload);
            }
        })
        .await;
        seen
    }
    /// The same, in short: `Bootstrapping=True Ready=False/DependenciesNotReady Suspended=..`, `deleted`, ...
    async fn told(&mut self, limit: Duration) -> Vec<String> {
        self.within(limit).await.iter().map(in_short).collect()
    }
}

fn in_short(payload: &Payload) -> String {
    match payload {
        Payload::Deleted(d) => format!("deleted {}", d.sandbox_id),
        Payload::PlatformEvent(e) => format!("event {}", e.event),
        Payload::Sandbox(SandboxEvent { sandbox }) => {
            let Some(status) = sandbox.as_ref().and_then(|s| s.status.as_ref()) else { return "no status".into() };
            let interesting = ["Bootstrapping", "Ready", "Suspended"];
            let told = interesting.iter().filter_map(|t| status.conditions.iter().find(|c| c.r#type == *t));
            told.map(|c| format!("{}={}/{}", c.r#type, c.status, c.reason)).collect::<Vec<_>>().join(" ")
        }
    }
}

fn distinct(mut told: Vec<String>) -> Vec<String> {
    told.dedup();
    told
}

const STARTING: &str = "Bootstrapping=True/SandboxRuntimeGenerationStarting Ready=False/DependenciesNotReady";
const STOPPED: &str = "Ready=False/DependenciesNotReady Suspended=True/PodTerminated";

#[tokio::test(start_paused = true)]
async fn as_reported_a_stop_is_told_as_a_start_until_its_last_event() {
    let mut cluster = Cluster::v1beta1(managed()).await;
    cluster.create_and_settle().await;
    let mut seen = cluster.watch().await;
    seen.within(Duration::from_secs(5)).await;
    cluster.stop().await.expect("stopped");
    let told = seen.told(Duration::from_secs(5)).await;
    assert!(told.len() >= 6, "stop begun, switched off, three of the controller, completed: {told:#?}");
    assert_eq!(distinct(told), [STARTING, STOPPED]);
}

#[tokio::test(start_paused = true)]
async fn with_stop_marker_is_not_start_a_stop_is_never_told_as_a_start() {
    let f1 = Remedies::as_reported().with(Remedy::StopMarkerIsNotStart);
    let mut cluster = Cluster::new(managed(), SandboxVersions::Both, f1).await;
    cluster.create_and_settle().await;
    let mut seen = cluster.watch().await;
    seen.within(Duration::from_secs(5)).await;
    cluster.stop().await.expect("stopped");
    let told = distinct(seen.told(Duration::from_secs(5)).await);
    assert!(told.iter().all(|t| !t.contains("Bootstrapping")), "{told:#?}");
    assert!(
        told.iter().all(|t| t.contains("Ready=False/DependenciesNotReady")),
        "never terminal, never ready: {told:#?}"
    );
    assert_eq!(told.last().map(String::as_str), Some(STOPPED));
}

#[tokio::test(start_paused = true)]
async fn a_create_and_a_restart_are_told_as_starts_until_ready() {
    for remedies in [Remedies::as_reported(), Remedies::recommended()] {
        let mut cluster = Cluster::new(managed(), SandboxVersions::Both, remedies).await;
        let mut seen = cluster.watch().await;
        let identity = cluster.create().await.expect("created");
        let told = distinct(seen.told(Duration::from_secs(5)).await);
        assert_eq!(told.last().map(String::as_str), Some("Ready=True/DependenciesReady Suspended=False/NotSuspended"));
        assert!(told[..told.len() - 1].iter().all(|t| t == STARTING || t == "no status"), "{told:#?}");

        cluster.stop().await.expect("stopped");
        seen.within(Duration::from_secs(5)).await;
        cluster.start(&identity, "launch-2").await.expect("started");
        let told = distinct(seen.told(Duration::from_secs(5)).await);
        assert_eq!(told, [STARTING, "Ready=True/DependenciesReady Suspended=False/NotSuspended"], "{remedies:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn each_event_is_converted_with_six_reads_of_the_present() {
    let mut cluster = Cluster::v1beta1(managed()).await;
    cluster.create_and_settle().await;
    let mut seen = cluster.watch().await;
    seen.within(Duration::from_secs(5)).await;
    cluster.requests();
    cluster.patch_sandbox(serde_json::json!({"metadata": {"annotations": {"touched": "yes"}}})).await;
    assert_eq!(seen.within(Duration::from_secs(5)).await.len(), 1);
    let mut requests = cluster.requests();
    requests.sort();
    assert_eq!(
        requests,
        [
            "GET networkpolicies/openshell-supervisor-egress",
            "GET networkpolicies/openshell-workload-fence",
            "GET pods/demo",
            "GET pods/os-supervisor-ID",
            "GET pods/os-supervisor-ID",
            "GET services/os-boundary-ID",
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn every_half_minute_all_sandboxes_are_pushed_again() {
    let mut cluster = Cluster::v1beta1(managed()).await;
    cluster.create_and_settle().await;
    let mut seen = cluster.watch().await;
    let ready = "Ready=True/DependenciesReady Suspended=False/NotSuspended";
    assert_eq!(seen.told(Duration::from_secs(29)).await, [ready], "the first list of the watch");
    assert_eq!(seen.told(Duration::from_secs(2)).await, [ready], "the first push");
    assert_eq!(seen.told(Duration::from_secs(60)).await, [ready, ready], "and on");
}

#[tokio::test(start_paused = true)]
async fn a_deleted_sandbox_is_told_by_its_id() {
    let mut cluster = Cluster::v1beta1(managed()).await;
    cluster.create_and_settle().await;
    let mut seen = cluster.watch().await;
    seen.within(Duration::from_secs(5)).await;
    cluster.delete().await.expect("deleted");
    assert_eq!(seen.told(Duration::from_secs(5)).await.last(), Some(&format!("deleted {ID}")));
}

#[tokio::test(start_paused = true)]
async fn in_shared_mode_the_events_of_known_pods_are_forwarded() {
    let mut cluster = Cluster::v1beta1(shared()).await;
    cluster.create_and_settle().await;
    let mut seen = cluster.watch().await;
    seen.within(Duration::from_secs(5)).await;
    let events: kube::Api<k8s_openapi::api::core::v1::Event> = kube::Api::namespaced(cluster.outsider(), "all");
    for (name, about) in [("e1", "team--demo"), ("e2", "somebody-else"), ("e3", &names::supervisor_pod(ID))] {
        let event = serde_json::json!({
            "metadata": {"name": name, "namespace": "all"},
            "involvedObject": {"kind": "Pod", "name": about, "namespace": "all"},
            "reason": "Pulled", "message": format!("image of {about}"), "type": "Normal",
        });
        events.create(&Default::default(), &serde_json::from_value(event).expect("an event")).await.expect("created");
    }
    let supervisor = format!("event Pulled: image of {}", names::supervisor_pod(ID));
    assert_eq!(seen.told(Duration::from_secs(5)).await, ["event Pulled: image of team--demo", supervisor.as_str()]);
}

#[tokio::test(start_paused = true)]
async fn nobody_watches_and_reconciles_for_a_gateway_that_hung_up() {
    let mut cluster = Cluster::v1beta1(managed()).await;
    cluster.create_and_settle().await;
    let seen = cluster.watch().await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    drop(seen);
    tokio::time::sleep(Duration::from_secs(1)).await;
    cluster.requests();
    tokio::time::sleep(Duration::from_secs(300)).await;
    assert_eq!(cluster.requests(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn a_gateway_that_does_not_read_holds_the_driver_up_but_loses_nothing() {
    let mut cluster = Cluster::v1beta1(managed()).await;
    cluster.create_and_settle().await;
    let mut seen = cluster.watch().await;
    for n in 0..1000 {
        let patch = serde_json::json!({"metadata": {"annotations": {"n": n.to_string()}}});
        cluster.patch_sandbox(patch).await;
    }
    let told = seen.within(Duration::from_secs(20)).await;
    assert_eq!(told.len(), 1001, "the first list and each change");
}
