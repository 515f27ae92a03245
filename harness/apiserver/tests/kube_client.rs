//! Real `kube` clients against the server in memory.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::{FutureExt, StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::api::{
    ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams, PostParams,
    Preconditions, WatchEvent, WatchParams,
};
use kube::runtime::controller::Action;
use kube::runtime::{Controller, watcher};
use kube::{Api, Client, Resource, ResourceExt};
use photofinish_apiserver::{ApiServer, SandboxVersions};
use serde_json::json;

fn client(server: &ApiServer) -> Client {
    Client::new(server.as_client("test"), "default")
}

fn sandboxes(client: Client, version: &str) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk("agents.x-k8s.io", version, "Sandbox");
    Api::default_namespaced_with(client, &ApiResource::from_gvk_with_plural(&kind, "sandboxes"))
}

fn sandbox(version: &str, name: &str) -> DynamicObject {
    serde_json::from_value(json!({
        "apiVersion": format!("agents.x-k8s.io/{version}"), "kind": "Sandbox", "metadata": {"name": name},
        "spec": {"podTemplate": {"spec": {"containers": [{"name": "agent", "image": "img:1"}]}}},
    }))
    .expect("a sandbox")
}

fn pod(name: &str) -> Pod {
    serde_json::from_value(json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
        "spec": {"containers": [{"name": "c", "image": "img:1"}]},
    }))
    .expect("a pod")
}

#[tokio::test]
async fn sandboxes_are_created_read_patched_and_deleted() {
    let server = ApiServer::builder().build();
    let api = sandboxes(client(&server), "v1beta1");
    let made = api.create(&PostParams::default(), &sandbox("v1beta1", "demo")).await.expect("creates");
    assert_eq!(made.data["spec"]["operatingMode"], "Running");
    assert_eq!(made.metadata.generation, Some(1));
    assert_eq!(api.list(&ListParams::default()).await.expect("lists").items, vec![made.clone()]);

    let off = json!({"spec": {"operatingMode": "Suspended"}});
    let patched = api.patch("demo", &PatchParams::default(), &Patch::Merge(off)).await.expect("patches");
    assert_eq!(patched.metadata.generation, Some(2));
    let stale = json!({"metadata": {"resourceVersion": made.resource_version()}, "spec": {"operatingMode": "Running"}});
    let refused = api.patch("demo", &PatchParams::default(), &Patch::Merge(stale)).await.expect_err("stale");
    assert!(
        matches!(&refused, kube::Error::Api(status) if status.code == 409 && status.reason == "Conflict"),
        "{refused}"
    );

    let status = json!({"status": {"selector": "x"}, "spec": {"operatingMode": "Running"}});
    let with_status = api.patch_status("demo", &PatchParams::default(), &Patch::Merge(status)).await.expect("patches");
    assert_eq!(with_status.data["status"]["selector"], "x");
    assert_eq!(with_status.data["spec"]["operatingMode"], "Suspended", "the spec is not the status");
    assert_eq!(with_status.metadata.generation, Some(2));

    let other = Preconditions { uid: Some("other".into()), resource_version: None };
    let refused = api.delete("demo", &DeleteParams::default().preconditions(other)).await.expect_err("another uid");
    assert!(matches!(&refused, kube::Error::Api(status) if status.code == 409), "{refused}");
    api.delete("demo", &DeleteParams::default()).await.expect("deletes");
    assert_eq!(api.get_opt("demo").await.expect("reads").map(|s| s.name_any()), None);
}

#[tokio::test]
async fn both_versions_of_a_sandbox_are_one_object() {
    let server = ApiServer::builder().build();
    let (beta, alpha) = (sandboxes(client(&server), "v1beta1"), sandboxes(client(&server), "v1alpha1"));
    alpha.create(&PostParams::default(), &sandbox("v1alpha1", "demo")).await.expect("creates");
    assert_eq!(beta.get("demo").await.expect("reads").data["spec"]["operatingMode"], "Running");
    let off = json!({"spec": {"replicas": 0}});
    alpha.patch("demo", &PatchParams::default(), &Patch::Merge(off)).await.expect("patches");
    let seen = beta.get("demo").await.expect("reads");
    assert_eq!(seen.data["spec"]["operatingMode"], "Suspended");
    assert_eq!(seen.metadata.generation, Some(2));
}

#[tokio::test]
async fn a_cluster_with_v1alpha1_alone_answers_404_for_v1beta1() {
    let server = ApiServer::builder().sandbox_versions(SandboxVersions::V1alpha1Only).build();
    let refused = sandboxes(client(&server), "v1beta1").list(&ListParams::default().limit(1)).await.expect_err("404");
    assert!(matches!(&refused, kube::Error::Api(status) if status.code == 404), "{refused}");
    let made =
        sandboxes(client(&server), "v1alpha1").create(&PostParams::default(), &sandbox("v1alpha1", "demo")).await;
    assert_eq!(made.expect("creates").data["spec"]["replicas"], 1);
}

#[tokio::test]
async fn a_watch_from_a_list_shows_what_comes_after_it() {
    let server = ApiServer::builder().build();
    let api: Api<Pod> = Api::default_namespaced(client(&server));
    api.create(&PostParams::default(), &pod("a")).await.expect("creates");
    let revision =
        api.list(&ListParams::default()).await.expect("lists").metadata.resource_version.expect("a revision");
    let mut events = api.watch(&WatchParams::default(), &revision).await.expect("watches").boxed();
    api.create(&PostParams::default(), &pod("b")).await.expect("creates");
    api.delete("a", &DeleteParams::default()).await.expect("deletes");
    let mut seen = Vec::new();
    while seen.len() < 3 {
        match events.try_next().await.expect("no error").expect("no end") {
            WatchEvent::Added(pod) => seen.push(format!("added {}", pod.name_any())),
            WatchEvent::Modified(pod) => seen.push(format!("modified {}", pod.name_any())),
            WatchEvent::Deleted(pod) => seen.push(format!("deleted {}", pod.name_any())),
            other => panic!("unexpected {other:?}"),
        }
    }
    assert_eq!(seen, ["added b", "modified a", "deleted a"]);
}

#[tokio::test]
async fn a_watcher_of_the_runtime_follows_and_recovers_from_an_expired_revision() {
    let server = ApiServer::builder().build();
    let api: Api<ConfigMap> = Api::default_namespaced(client(&server));
    let map = |name: &str| -> ConfigMap { serde_json::from_value(json!({"metadata": {"name": name}})).expect("a map") };
    api.create(&PostParams::default(), &map("a")).await.expect("creates");
    // One second a watch, so that it has to come back after the cache was forgotten.
    let config = watcher::Config::default().timeout(1);
    let mut events = watcher(api.clone(), config).boxed();
    let mut next = async || loop {
        match tokio::time::timeout(Duration::from_secs(20), events.next()).await.expect("in time").expect("goes on") {
            Ok(watcher::Event::Apply(map) | watcher::Event::InitApply(map)) => return map.name_any(),
            Ok(_) => {}
            // The runtime reports the 410 and starts over.
            Err(watcher::Error::WatchError(status)) => assert_eq!(status.code, 410),
            Err(error) => panic!("{error}"),
        }
    };
    assert_eq!(next().await, "a");
    api.create(&PostParams::default(), &map("b")).await.expect("creates");
    assert_eq!(next().await, "b");
    api.create(&PostParams::default(), &map("c")).await.expect("creates");
    assert_eq!(next().await, "c");
    api.delete("c", &DeleteParams::default()).await.expect("deletes");
    api.delete("b", &DeleteParams::default()).await.expect("deletes");
    server.store().forget_watch_cache();
    api.create(&PostParams::default(), &map("d")).await.expect("creates");
    assert_eq!(next().await, "d");
}

#[tokio::test(start_paused = true)]
async fn a_controller_of_the_runtime_reconciles_its_objects_and_what_they_own() {
    let server = ApiServer::builder().build();
    let maps: Api<ConfigMap> = Api::default_namespaced(client(&server));
    let pods: Api<Pod> = Api::default_namespaced(client(&server));
    // Every map gets a pod of its name.
    let reconcile = async |map: Arc<ConfigMap>, pods: Arc<Api<Pod>>| {
        let mut child = pod(&map.name_any());
        child.metadata.owner_references = map.controller_owner_ref(&()).map(|owner| vec![owner]);
        match pods.create(&PostParams::default(), &child).await {
            Ok(_) => Ok(Action::await_change()),
            Err(kube::Error::Api(status)) if status.reason == "AlreadyExists" => Ok(Action::await_change()),
            Err(error) => Err(error),
        }
    };
    let retry = |_: Arc<ConfigMap>, _: &kube::Error, _: Arc<Api<Pod>>| Action::requeue(Duration::from_secs(1));
    let controller = Controller::new(maps.clone(), watcher::Config::default())
        .owns(pods.clone(), watcher::Config::default())
        .run(move |map, pods| Box::pin(reconcile(map, pods)), retry, Arc::new(pods.clone()));
    let running = tokio::spawn(controller.for_each(|_| std::future::ready(())));
    for name in ["a", "b"] {
        let map = serde_json::from_value(json!({"metadata": {"name": name}})).expect("a map");
        maps.create(&PostParams::default(), &map).await.expect("creates");
    }
    let exist = async || pods.list(&ListParams::default()).await.expect("lists").items.len() == 2;
    until(&exist).await;
    pods.delete("a", &DeleteParams::default()).await.expect("deletes");
    until(&exist).await;
    running.abort();
}

/// Waits, a virtual minute at most.
async fn until(holds: &impl AsyncFn() -> bool) {
    for _ in 0..600 {
        if holds().await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("not within a minute");
}

#[tokio::test]
async fn a_list_and_the_watch_from_it_give_the_state_at_every_moment() {
    let server = ApiServer::builder().build();
    let maps: Api<ConfigMap> = Api::default_namespaced(client(&server));
    let mut state = 1u64;
    let mut draw = |bound: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % bound
    };
    let selected = ListParams::default().labels("in=yes");
    for _ in 0..40 {
        let listed = maps.list(&selected).await.expect("lists");
        let from = listed.metadata.resource_version.expect("a revision");
        let mut seen: BTreeMap<String, ConfigMap> = listed.items.into_iter().map(|map| (map.name_any(), map)).collect();
        let params = WatchParams::default().labels("in=yes").timeout(1);
        let mut events = maps.watch(&params, &from).await.expect("watches").boxed();
        for _ in 0..draw(20) {
            let name = format!("m{}", draw(4));
            let map = json!({"metadata": {"name": name, "labels": {"in": if draw(3) > 0 { "yes" } else { "no" }}}});
            match draw(3) {
                0 => drop(maps.create(&PostParams::default(), &serde_json::from_value(map).expect("a map")).await),
                1 => drop(maps.patch(&name, &PatchParams::default(), &Patch::Merge(map)).await),
                _ => drop(maps.delete(&name, &DeleteParams::default()).await),
            }
        }
        let now = maps.list(&selected).await.expect("lists");
        let now: BTreeMap<String, ConfigMap> = now.items.into_iter().map(|map| (map.name_any(), map)).collect();
        let mut last = from.parse::<u64>().expect("a number");
        while let Some(Some(event)) = events.next().now_or_never() {
            let (map, gone) = match event.expect("no error") {
                WatchEvent::Added(map) | WatchEvent::Modified(map) => (map, false),
                WatchEvent::Deleted(map) => (map, true),
                other => panic!("unexpected {other:?}"),
            };
            let revision = map.resource_version().and_then(|rv| rv.parse().ok()).expect("a revision");
            assert!(revision > last, "revisions rise");
            last = revision;
            match gone {
                true => assert!(seen.remove(&map.name_any()).is_some(), "only what was there goes"),
                false => drop(seen.insert(map.name_any(), map)),
            }
        }
        assert_eq!(seen, now);
    }
}

#[tokio::test]
async fn two_appliers_share_fields_conflict_over_them_and_take_them_over() {
    let server = ApiServer::builder().build();
    let api: Api<ConfigMap> = Api::default_namespaced(client(&server));
    let map = |data: serde_json::Value| {
        Patch::Apply(json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": data}))
    };
    let (one, two) = (PatchParams::apply("one"), PatchParams::apply("two"));
    api.patch("a", &one, &map(json!({"k": "1", "of-one": "1"}))).await.expect("creates");
    let refused = api.patch("a", &two, &map(json!({"k": "2"}))).await.expect_err("a conflict");
    let kube::Error::Api(status) = refused else { panic!("a status") };
    assert_eq!(
        (status.code, status.message.as_str()),
        (409, "Apply failed with 1 conflict: conflict with \"one\": .data.k")
    );
    let taken = api.patch("a", &two.clone().force(), &map(json!({"k": "2"}))).await.expect("takes over");
    assert_eq!(taken.metadata.managed_fields.expect("owners").len(), 2);
    let left = api.patch("a", &one, &map(json!({}))).await.expect("applies less");
    assert_eq!(left.data, Some([("k".to_owned(), "2".to_owned())].into()), "what only one applied is gone");
}

#[tokio::test]
async fn without_managed_fields_an_apply_only_merges() {
    let server = ApiServer::builder().managed_fields(false).build();
    let api: Api<ConfigMap> = Api::default_namespaced(client(&server));
    for (manager, data) in [("one", json!({"a": "1"})), ("two", json!({"a": "2"})), ("one", json!({"b": "1"}))] {
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": data});
        api.patch("a", &PatchParams::apply(manager), &Patch::Apply(map)).await.expect("applies");
    }
    let map = api.get("a").await.expect("is there");
    assert_eq!(map.metadata.managed_fields, None);
    assert_eq!(map.data, Some([("a".to_owned(), "2".to_owned()), ("b".to_owned(), "1".to_owned())].into()));
}
