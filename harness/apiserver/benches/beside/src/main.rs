//! The verbs that kube-fake-client has, there and here, by the same code: a `kube::Api` over a client in memory.

use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Client, Error};
use photofinish_apiserver::ApiServer;
use serde_json::json;

const OBJECTS: u32 = 10_000;
const ROUNDS: usize = 3;

fn config_map(n: u32) -> ConfigMap {
    serde_json::from_value(json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": name(n), "namespace": "default", "labels": {"shard": (n % 10).to_string()}},
        "data": {"text": "x".repeat(800)},
    }))
    .expect("a ConfigMap")
}

fn name(n: u32) -> String {
    format!("m{n:06}")
}

/// Processor time of the process so far: the client may have threads.
fn cpu() -> Duration {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call fills in the structure that it is given, and this clock exists on every Linux.
    assert_eq!(unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut now) }, 0);
    Duration::new(now.tv_sec.cast_unsigned(), u32::try_from(now.tv_nsec).expect("below a second"))
}

/// What each verb costs, by name.
async fn verbs(client: Client) -> Result<Vec<(&'static str, Duration)>, Error> {
    let api: Api<ConfigMap> = Api::namespaced(client, "default");
    let mut costs = Vec::new();
    let mut began = cpu();
    let mut spent = |verb, count: u32| {
        costs.push((verb, (cpu() - began) / count));
        began = cpu();
    };
    for n in 0..OBJECTS {
        api.create(&PostParams::default(), &config_map(n)).await?;
    }
    spent("create", OBJECTS);
    for n in 0..OBJECTS {
        api.get(&name(n)).await?;
    }
    spent("get", OBJECTS);
    for _ in 0..10 {
        let found = api.list(&ListParams::default().labels("shard=3")).await?;
        assert_eq!(found.items.len(), 1_000);
    }
    spent("list of 10 000 by a label that 1 in 10 has", 10);
    for n in 0..1_000 {
        let patch = json!({"metadata": {"annotations": {"n": n.to_string()}}});
        api.patch(&name(n), &PatchParams::default(), &Patch::Merge(&patch)).await?;
    }
    spent("merge patch", 1_000);
    for n in 0..1_000 {
        let mut object = api.get(&name(n)).await?;
        object.data.get_or_insert_default().insert("more".into(), "data".into());
        api.replace(&name(n), &PostParams::default(), &object).await?;
    }
    spent("get and replace", 1_000);
    for n in 0..1_000 {
        api.delete(&name(n), &DeleteParams::default()).await?;
    }
    spent("delete", 1_000);
    Ok(costs)
}

/// The least of several rounds, each with a client of its own.
async fn least(client: impl AsyncFn() -> Client) -> Result<Vec<(&'static str, Duration)>, Error> {
    let mut least = verbs(client().await).await?;
    for _ in 1..ROUNDS {
        for (kept, (_, cost)) in least.iter_mut().zip(verbs(client().await).await?) {
            kept.1 = kept.1.min(cost);
        }
    }
    Ok(least)
}

async fn compare() -> Result<(), Error> {
    let here = least(async || Client::new(ApiServer::builder().build(), "default")).await?;
    let there = least(async || kube_fake_client::ClientBuilder::new().build().await.expect("a client")).await?;
    println!("{:<58} {:>14} {:>16}", "through kube::Api, a client in memory, one thread", "here", "kube-fake-client");
    for ((verb, here), (_, there)) in here.into_iter().zip(there) {
        let times = there.as_secs_f64() / here.as_secs_f64();
        println!("{verb:<58} {:>14} {:>16} {times:>7.1}x", format!("{here:.1?}"), format!("{there:.1?}"));
    }
    Ok(())
}

fn main() -> Result<(), Error> {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime").block_on(compare())
}
