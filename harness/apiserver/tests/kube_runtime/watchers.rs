//! Watchers that list and watch, that take pages, and that stream their lists.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::runtime::reflector::{self, Store};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, ResourceExt};
use serde_json::json;

use crate::weather::{self, Weather, each_seed, in_the_end};

/// A store that a watcher keeps for ever.
fn reflect(client: Client, config: watcher::Config) -> Store<ConfigMap> {
    let (reader, writer) = reflector::store();
    let maps: Api<ConfigMap> = Api::default_namespaced(client);
    let stream = watcher(maps, config).default_backoff().reflect(writer).for_each(|_| std::future::ready(()));
    tokio::spawn(stream);
    reader
}

/// Resource versions by name.
fn seen(store: &Store<ConfigMap>) -> BTreeMap<String, String> {
    store.state().iter().map(|map| (map.name_any(), map.resource_version().unwrap_or_default())).collect()
}

async fn run(seed: u64) -> usize {
    let mut weather = Weather::new(seed);
    let stores = [
        reflect(weather.client(0, "lister"), watcher::Config::default()),
        reflect(weather.client(0, "pager"), watcher::Config::default().page_size(2)),
        reflect(weather.client(1, "streamer"), watcher::Config::default().streaming_lists()),
    ];
    let writer: Api<ConfigMap> = Api::default_namespaced(weather.client(1, "writer"));
    for n in 0..25 {
        let name = format!("m{}", weather.below(5));
        // Whether a write arrives, or its answer, is the weather's business.
        match weather.below(8) {
            0..5 => {
                let change = json!({"data": {"n": n.to_string()}});
                let new = serde_json::from_value(json!({"metadata": {"name": name}, "data": {"n": n.to_string()}}));
                if writer.patch(&name, &PatchParams::default(), &Patch::Merge(change)).await.is_err() {
                    drop(writer.create(&PostParams::default(), &new.expect("a map")).await);
                }
            }
            5 | 6 => drop(writer.delete(&name, &DeleteParams::default()).await),
            _ if weather.below(3) == 0 => weather.restart_a_server(),
            _ => {}
        }
        weather.pause(Duration::from_secs(2)).await;
    }
    let truth = || weather::stored(&weather.front, "configmaps", "/metadata/resourceVersion");
    in_the_end(
        || stores.iter().all(|store| seen(store) == truth()),
        || format!("seed {seed}: {:?}, but there is {:?}", stores.each_ref().map(seen), truth()),
    )
    .await;
    weather.faults()
}

#[test]
fn watchers_end_with_the_right_store_whatever_happens_seeds_0_to_499() {
    each_seed(0..500, run);
}

#[test]
fn watchers_end_with_the_right_store_whatever_happens_seeds_500_to_999() {
    each_seed(500..1_000, run);
}
