//! The helpers of kube-rs, unmodified, against a server that shows every fault which a cluster may show.
//!
//! In memory, on tokio's paused clock; faults are drawn by seed.
#![cfg(feature = "sim")]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::runtime::controller::Action;
use kube::runtime::finalizer::{Event, finalizer};
use kube::runtime::reflector::{self, Store};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, ResourceExt};
use photofinish_apiserver::ApiServer;
use photofinish_apiserver::sim::SimHooks;
use photofinish_apiserver::sim::faults::Enabled;
use photofinish_sim::choices::{Choices, Source};
use photofinish_sim::gate::Gates;
use photofinish_sim::trace::Trace;
use serde_json::json;
use tokio::time::{Instant, sleep};

fn client(server: &ApiServer, name: &str) -> Client {
    Client::new(server.as_client(name), "default")
}

/// A store that a watcher keeps for ever.
fn reflect(server: &ApiServer, name: &str, config: watcher::Config) -> Store<ConfigMap> {
    let (reader, writer) = reflector::store();
    let maps: Api<ConfigMap> = Api::default_namespaced(client(server, name));
    let stream = watcher(maps, config).default_backoff().reflect(writer).for_each(|_| std::future::ready(()));
    tokio::spawn(stream);
    reader
}

/// Resource versions by name.
fn stored(store: &Store<ConfigMap>) -> BTreeMap<String, String> {
    store.state().iter().map(|map| (map.name_any(), map.resource_version().unwrap_or_default())).collect()
}

fn truth(server: &ApiServer) -> BTreeMap<String, String> {
    let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
    let all = server.store().list("configmaps", "default");
    all.iter().map(|map| (text(&map["metadata"]["name"]), text(&map["metadata"]["resourceVersion"]))).collect()
}

struct Draw(u64);

impl Draw {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

/// Watchers that list and watch, and that stream their lists, on two servers that lag, refuse, break and restart.
async fn weather(seed: u64) -> usize {
    let trace = Trace::new();
    let choices = Choices::new(Source::Seed(seed), Default::default(), trace.clone());
    let hooks =
        SimHooks::with_faults(trace.clone(), choices.clone(), Gates::new(trace, choices.clone()), Enabled::all());
    let front = ApiServer::builder().servers(&["a", "b"]).hooks(hooks).build();
    let servers = ["a", "b"].map(|name| front.server(name).expect("named"));
    let stores = [
        reflect(&servers[0], "lister", watcher::Config::default()),
        reflect(&servers[0], "pager", watcher::Config::default().page_size(2)),
        reflect(&servers[1], "streamer", watcher::Config::default().streaming_lists()),
    ];
    let writer: Api<ConfigMap> = Api::default_namespaced(client(&servers[1], "writer"));
    let mut draw = Draw(seed);
    for n in 0..25 {
        let name = format!("m{}", draw.below(5));
        // Whether a write arrives, or its answer, is the weather's business.
        match draw.below(8) {
            0..5 => {
                let change = json!({"data": {"n": n.to_string()}});
                let new = serde_json::from_value(json!({"metadata": {"name": name}, "data": {"n": n.to_string()}}));
                if writer.patch(&name, &PatchParams::default(), &Patch::Merge(change)).await.is_err() {
                    drop(writer.create(&PostParams::default(), &new.expect("a map")).await);
                }
            }
            5 | 6 => drop(writer.delete(&name, &DeleteParams::default()).await),
            _ if draw.below(3) == 0 => servers[draw.below(2) as usize].restart(),
            _ => {}
        }
        sleep(Duration::from_millis(draw.below(2_000))).await;
    }
    let gives_up = Instant::now() + Duration::from_secs(3_600);
    while !stores.iter().all(|store| stored(store) == truth(&front)) {
        let states: Vec<_> = stores.iter().map(stored).collect();
        assert!(Instant::now() < gives_up, "seed {seed}: {states:?}, but there is {:?}", truth(&front));
        sleep(Duration::from_millis(500)).await;
    }
    choices.points().iter().filter(|point| point.taken != point.default).count()
}

fn in_weather(seeds: std::ops::Range<u64>) {
    let mut faults = 0;
    for seed in seeds.clone() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
        faults += runtime.expect("a runtime").block_on(weather(seed));
    }
    assert!(faults as u64 > 5 * (seeds.end - seeds.start), "only {faults} faults in {seeds:?}");
}

#[test]
fn watchers_end_with_the_right_store_whatever_happens_seeds_0_to_499() {
    in_weather(0..500);
}

#[test]
fn watchers_end_with_the_right_store_whatever_happens_seeds_500_to_999() {
    in_weather(500..1_000);
}

/// A holder of a Lease, as leader election does it: takes it if it is free or has run out, and renews it.
async fn holds(leases: &Api<Lease>, who: &str, seen: &mut (String, Instant)) -> bool {
    const DURATION: Duration = Duration::from_secs(15);
    let spec = || {
        let time = k8s_openapi::jiff::Timestamp::now();
        json!({"holderIdentity": who, "leaseDurationSeconds": 15, "renewTime": format!("{time:.6}")})
    };
    let Ok(lease) = leases.get_opt("leader").await else { return false };
    let Some(lease) = lease else {
        let new = json!({"metadata": {"name": "leader"}, "spec": spec()});
        return leases.create(&PostParams::default(), &serde_json::from_value(new).expect("a lease")).await.is_ok();
    };
    let revision = lease.resource_version().unwrap_or_default();
    if seen.0 != revision {
        // The term counts from when its renewal is seen.
        *seen = (revision.clone(), Instant::now());
    }
    let holder = lease.spec.and_then(|spec| spec.holder_identity).unwrap_or_default();
    if holder != who && seen.1.elapsed() < DURATION {
        return false;
    }
    let change = json!({"metadata": {"resourceVersion": revision}, "spec": spec()});
    match leases.patch("leader", &PatchParams::default(), &Patch::Merge(change)).await {
        Ok(lease) => {
            *seen = (lease.resource_version().unwrap_or_default(), Instant::now());
            true
        }
        Err(_) => false,
    }
}

#[tokio::test(start_paused = true)]
async fn a_lease_has_one_holder_at_a_time_and_another_one_after_its_term() {
    let server = ApiServer::builder().build();
    let api = |name| -> Api<Lease> { Api::default_namespaced(client(&server, name)) };
    let (a, b) = (api("a"), api("b"));
    let never = || (String::new(), Instant::now());
    let (mut seen_a, mut seen_b) = (never(), never());
    for _ in 0..20 {
        assert!(holds(&a, "a", &mut seen_a).await);
        assert!(!holds(&b, "b", &mut seen_b).await);
        sleep(Duration::from_secs(2)).await;
    }
    // a is gone.
    let began = Instant::now();
    while !holds(&b, "b", &mut seen_b).await {
        sleep(Duration::from_secs(2)).await;
    }
    assert!((12..=16).contains(&began.elapsed().as_secs()), "{:?}", began.elapsed());
    assert!(!holds(&a, "a", &mut seen_a).await, "its revision is stale");
}

#[tokio::test(start_paused = true)]
async fn a_finalizer_of_the_runtime_cleans_up_before_its_object_goes() {
    let server = ApiServer::builder().build();
    let maps: Api<ConfigMap> = Api::default_namespaced(client(&server, "controller"));
    let map = serde_json::from_value(json!({"metadata": {"name": "a"}})).expect("a map");
    maps.create(&PostParams::default(), &map).await.expect("creates");
    let (applied, cleaned) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    let reconcile = async || {
        let current = Arc::new(maps.get("a").await.expect("reads"));
        let (applied, cleaned) = (applied.clone(), cleaned.clone());
        let outcome = finalizer(&maps, "test.io/cleanup", current, |event| async move {
            let counter = match event {
                Event::Apply(_) => applied,
                Event::Cleanup(_) => cleaned,
            };
            counter.fetch_add(1, Ordering::Relaxed);
            Ok::<_, std::io::Error>(Action::await_change())
        });
        outcome.await.expect("reconciles")
    };
    // The first pass adds the finalizer, the second applies.
    reconcile().await;
    reconcile().await;
    assert_eq!((applied.load(Ordering::Relaxed), cleaned.load(Ordering::Relaxed)), (1, 0));
    maps.delete("a", &DeleteParams::default()).await.expect("deletes");
    assert!(maps.get("a").await.expect("still there").metadata.deletion_timestamp.is_some());
    reconcile().await;
    assert_eq!(cleaned.load(Ordering::Relaxed), 1);
    assert!(maps.get_opt("a").await.expect("reads").is_none());
}
