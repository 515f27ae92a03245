//! What the driver does by itself, with a watch open, about sandboxes that somebody left in disorder.
use super::cluster::{Cluster, ID, managed};
use crate::driver::{markers, names};
use crate::pb::compute::{WatchSandboxesEvent, WatchSandboxesRequest};
use crate::remedy::Remedies;
use kube::Api;
use kube::api::{DeleteParams, PostParams};
use photofinish_apiserver::SandboxVersions;
use serde_json::{Value, json};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

impl Cluster {
    async fn open(&mut self) -> tonic::Streaming<WatchSandboxesEvent> {
        self.driver.watch_sandboxes(WatchSandboxesRequest {}).await.expect("opened").into_inner()
    }
    async fn mark(&self, marks: markers::Annotations, spec: Value) {
        self.patch_sandbox(json!({"metadata": {"annotations": marks.into_json()}, "spec": spec})).await;
    }
    async fn delete_as_outsider<K>(&self, name: &str)
    where
        K: kube::Resource<DynamicType = (), Scope = kube::core::NamespaceResourceScope>
            + Clone
            + std::fmt::Debug
            + serde::de::DeserializeOwned,
    {
        let api: Api<K> = Api::namespaced(self.outsider(), self.namespace);
        api.delete(name, &DeleteParams::default()).await.expect("deleted");
    }
    /// Within two rounds the sandbox is suspended, and after the next it is at rest.
    async fn is_stopped_by_the_driver(&self) {
        self.until("the sandbox is at rest", |c| {
            c.marker().is_none() && c.sandbox()["spec"]["operatingMode"] == "Suspended"
        })
        .await;
        assert!(self.object("pods", "demo").is_none(), "no workload Pod");
        assert!(self.object("pods", &names::supervisor_pod(ID)).is_none(), "no supervisor Pod");
        assert!(self.object("persistentvolumeclaims", "workspace-demo").is_some(), "the volume stays");
    }
}

fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
    i64::try_from(since.as_millis()).expect("not that late")
}

#[tokio::test(start_paused = true)]
async fn a_running_sandbox_that_lacks_nothing_is_left_alone() {
    let mut cluster = Cluster::v1beta1(managed()).await;
    cluster.create_and_settle().await;
    let before = cluster.sandbox();
    let _watch = cluster.open().await;
    tokio::time::sleep(Duration::from_secs(200)).await;
    assert_eq!(cluster.sandbox(), before);
}

#[tokio::test(start_paused = true)]
async fn a_stopped_sandbox_is_left_alone() {
    let mut cluster = Cluster::v1beta1(managed()).await;
    cluster.create_and_settle().await;
    cluster.stop().await.expect("stopped");
    tokio::time::sleep(Duration::from_secs(5)).await;
    let before = cluster.sandbox();
    let _watch = cluster.open().await;
    tokio::time::sleep(Duration::from_secs(200)).await;
    assert_eq!(cluster.sandbox(), before);
}

#[tokio::test(start_paused = true)]
async fn a_stop_that_was_left_at_any_point_is_finished() {
    for (marks, spec) in [
        (markers::stop_begun(now_ms()), json!({})),
        (markers::suspending(now_ms()), json!({"operatingMode": "Suspended"})),
    ] {
        let mut cluster = Cluster::v1beta1(managed()).await;
        cluster.create_and_settle().await;
        cluster.mark(marks, spec).await;
        let _watch = cluster.open().await;
        cluster.is_stopped_by_the_driver().await;
        assert_eq!(cluster.annotation(names::GENERATION), None);
    }
}

#[tokio::test(start_paused = true)]
async fn a_sandbox_that_lost_a_dependency_is_suspended_and_keeps_its_volume() {
    use k8s_openapi::api::core::v1::{Pod, Service};
    use k8s_openapi::api::networking::v1::NetworkPolicy;
    for lost in ["supervisor", "workload", "service", "fence"] {
        let mut cluster = Cluster::v1beta1(managed()).await;
        cluster.create_and_settle().await;
        match lost {
            "supervisor" => cluster.delete_as_outsider::<Pod>(&names::supervisor_pod(ID)).await,
            "workload" => cluster.delete_as_outsider::<Pod>("demo").await,
            "service" => cluster.delete_as_outsider::<Service>(&names::boundary_service(ID)).await,
            _ => cluster.delete_as_outsider::<NetworkPolicy>(names::WORKLOAD_FENCE).await,
        }
        tokio::time::sleep(Duration::from_secs(5)).await;
        let _watch = cluster.open().await;
        assert_eq!(cluster.marker().as_deref(), Some("stop/suspending"), "{lost}: straight there, in one patch");
        cluster.is_stopped_by_the_driver().await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_altered_or_replaced_fence_suspends_a_running_sandbox() {
    for replaced in [false, true] {
        let mut cluster = Cluster::v1beta1(managed()).await;
        cluster.create_and_settle().await;
        let api: Api<k8s_openapi::api::networking::v1::NetworkPolicy> = Api::namespaced(cluster.outsider(), "os-team");
        if replaced {
            let mut fence = api.get(names::WORKLOAD_FENCE).await.expect("there");
            api.delete(names::WORKLOAD_FENCE, &DeleteParams::default()).await.expect("deleted");
            fence.metadata.resource_version = None;
            fence.metadata.uid = None;
            api.create(&Default::default(), &fence).await.expect("created");
        } else {
            let open = kube::api::Patch::Merge(json!({"spec": {"policyTypes": ["Ingress"]}}));
            api.patch(names::WORKLOAD_FENCE, &Default::default(), &open).await.expect("patched");
        }
        let _watch = cluster.open().await;
        assert_eq!(cluster.marker().as_deref(), Some("stop/suspending"), "replaced: {replaced}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_bootstrap_that_nobody_completed_is_completed() {
    let mut cluster = Cluster::v1beta1(managed()).await;
    // The completion task's own patch is refused; it does not try twice.
    cluster.meddle(|line, _| (line == "PATCH sandboxes/demo bootstrap completed").then_some(409));
    cluster.create().await.expect("created");
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(cluster.marker().as_deref(), Some("create/released"));
    cluster.meddle_no_more();
    let _watch = cluster.open().await;
    assert_eq!(cluster.marker(), None);
    assert_eq!(cluster.annotation(names::READINESS).as_deref(), Some("ready"));
}

#[tokio::test(start_paused = true)]
async fn a_stale_create_is_deleted_and_a_stale_restart_is_suspended() {
    for operation in ["create", "restart"] {
        let mut cluster = Cluster::v1beta1(managed()).await;
        cluster.create_and_settle().await;
        let old = now_ms() - markers::BOOTSTRAP_GRACE_MS;
        let marks = match operation {
            "create" => markers::create_preparing(old, "g", "{}", "info"),
            _ => markers::restart_preparing(old, "s", "g", "u"),
        };
        cluster.mark(marks, json!({})).await;
        let _watch = cluster.open().await;
        match operation {
            "create" => assert!(cluster.object("sandboxes", "demo").is_none()),
            _ => assert_eq!(cluster.marker().as_deref(), Some("stop/suspending")),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_fresh_bootstrap_is_waited_for() {
    let mut cluster = Cluster::v1beta1(managed()).await;
    cluster.create_and_settle().await;
    cluster.mark(markers::create_preparing(now_ms(), "g", "{}", "info"), json!({})).await;
    let _watch = cluster.open().await;
    assert_eq!(cluster.marker().as_deref(), Some("create/preparing"));
}

#[tokio::test(start_paused = true)]
async fn a_sandbox_that_is_being_worked_on_is_skipped() {
    let mut cluster = Cluster::v1beta1(managed()).await;
    cluster.create_and_settle().await;
    cluster.requests();
    let mut other = cluster.driver.clone();
    let stop = crate::pb::compute::StopSandboxRequest {
        sandbox_id: ID.into(),
        sandbox_name: "demo".into(),
        ..Default::default()
    };
    let stopping = tokio::spawn(async move { other.stop_sandbox(stop).await });
    cluster.until("the stop is under way", |c| c.marker().as_deref() == Some("stop/suspending")).await;
    let _watch = cluster.open().await;
    stopping.await.expect("no panic").expect("stopped");
    let completions = cluster.requests().iter().filter(|l| l.ends_with("stop completed")).count();
    assert_eq!(completions, 1, "by the stop itself, not by the reconciler as well");
}

#[tokio::test(start_paused = true)]
async fn companions_of_a_suspended_sandbox_are_cleaned_up() {
    let mut cluster = Cluster::v1beta1(managed()).await;
    cluster.create_and_settle().await;
    // Somebody suspends it past the driver: no marker, both Pods' companions stay.
    cluster.patch_sandbox(json!({"spec": {"operatingMode": "Suspended"}})).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert!(cluster.object("pods", &names::supervisor_pod(ID)).is_some());
    let _watch = cluster.open().await;
    assert!(cluster.object("pods", &names::supervisor_pod(ID)).is_none());
    assert!(cluster.api.store().list("secrets", "os-team").is_empty());
}

/// A start at another driver makes it before it writes to the resource; a start that died leaves it behind.
#[tokio::test(start_paused = true)]
async fn a_supervisor_pod_of_another_run_goes_in_the_second_round_that_finds_it() {
    for (remedies, spared) in [(Remedies::as_reported(), false), (Remedies::recommended(), true)] {
        let mut cluster = Cluster::new(managed(), SandboxVersions::Both, remedies).await;
        cluster.create_and_settle().await;
        let name = names::supervisor_pod(ID);
        let mut pod = cluster.object("pods", &name).expect("a supervisor Pod");
        cluster.stop().await.expect("stopped");
        tokio::time::sleep(Duration::from_secs(5)).await;
        let annotations = json!({names::GENERATION: "the-next"});
        pod["metadata"] = json!({"name": name, "labels": pod["metadata"]["labels"], "annotations": annotations});
        let spec = pod["spec"].as_object_mut().expect("a spec");
        spec.remove("nodeName");
        let api: Api<k8s_openapi::api::core::v1::Pod> = Api::namespaced(cluster.outsider(), cluster.namespace);
        let pod = serde_json::from_value(json!({"metadata": pod["metadata"], "spec": pod["spec"]})).expect("a Pod");
        api.create(&PostParams::default(), &pod).await.expect("created");
        let there = |cluster: &Cluster| {
            cluster.object("pods", &name).is_some_and(|pod| pod["metadata"]["deletionTimestamp"].is_null())
        };
        let _watch = cluster.open().await;
        assert_eq!(there(&cluster), spared, "{remedies:?}: the round at the opening of the watch");
        tokio::time::sleep(Duration::from_secs(29)).await;
        assert_eq!(there(&cluster), spared, "{remedies:?}");
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert!(!there(&cluster), "{remedies:?}: the next round");
    }
}

#[tokio::test(start_paused = true)]
async fn a_change_of_readiness_is_published_and_only_a_change() {
    let mut cluster = Cluster::v1beta1(managed()).await;
    cluster.create_and_settle().await;
    let api: Api<k8s_openapi::api::core::v1::Pod> = Api::namespaced(cluster.outsider(), "os-team");
    let unready = json!({"status": {"conditions": [{"type": "Ready", "status": "False"}]}});
    let patch = kube::api::Patch::Merge(unready);
    api.patch_status(&names::supervisor_pod(ID), &Default::default(), &patch).await.expect("patched");
    let _watch = cluster.open().await;
    assert_eq!(cluster.annotation(names::READINESS).as_deref(), Some("unavailable"));
    assert_eq!(cluster.marker(), None, "degraded, not lost");
    tokio::time::sleep(Duration::from_secs(200)).await;
    let published = cluster.requests().iter().filter(|l| l.contains("readiness=")).count();
    assert_eq!(published, 1);
}

#[tokio::test(start_paused = true)]
async fn a_namespace_that_is_no_longer_ours_suspends_its_sandboxes() {
    let mut cluster = Cluster::v1beta1(managed()).await;
    cluster.create_and_settle().await;
    let api: Api<k8s_openapi::api::core::v1::Namespace> = Api::all(cluster.outsider());
    let foreign = kube::api::Patch::Merge(json!({"metadata": {"labels": {names::GATEWAY_ID: "other"}}}));
    api.patch("os-team", &Default::default(), &foreign).await.expect("patched");
    let _watch = cluster.open().await;
    assert_eq!(cluster.marker().as_deref(), Some("stop/suspending"));
}
