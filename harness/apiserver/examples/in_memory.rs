//! A client and a watcher against a server in memory, and what they see when the server is replaced under them:
//! `cargo run -p photofinish-apiserver --example in_memory`.

use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::PostParams;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, ResourceExt};
use photofinish_apiserver::ApiServer;
use serde_json::json;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let server = ApiServer::builder().build();
    let maps: Api<ConfigMap> = Api::default_namespaced(Client::new(server.as_client("example"), "default"));

    let watched = watcher(maps.clone(), watcher::Config::default()).default_backoff();
    let mut events = watched.touched_objects().boxed();
    let make = async |name: &str| {
        let map = serde_json::from_value(json!({"metadata": {"name": name}}))?;
        maps.create(&PostParams::default(), &map).await?;
        Ok::<_, Box<dyn std::error::Error>>(())
    };

    make("before").await?;
    println!("watched: {}", next(&mut events).await);

    // Its caches are empty now: open watches break, and every revision that was seen is too old to go on from.
    server.restart();
    make("after").await?;
    let mut seen = Vec::new();
    while seen.len() < 2 {
        seen.push(next(&mut events).await);
    }
    println!("listed again after the restart: {}", seen.join(", "));
    println!("in the store, at revision {}: {:?}", server.store().revision(), names(&server));
    Ok(())
}

/// The next object that the watcher tells of; errors are what it recovers from.
async fn next(events: &mut (impl futures::Stream<Item = watcher::Result<ConfigMap>> + Unpin)) -> String {
    loop {
        match tokio::time::timeout(Duration::from_secs(10), events.next()).await {
            Ok(Some(Ok(map))) => return map.name_any(),
            Ok(Some(Err(error))) => println!("recovers from: {error}"),
            Ok(None) | Err(_) => return "nothing".to_owned(),
        }
    }
}

fn names(server: &ApiServer) -> Vec<String> {
    let all = server.store().list("configmaps", "default");
    all.iter().filter_map(|map| map["metadata"]["name"].as_str().map(str::to_owned)).collect()
}
