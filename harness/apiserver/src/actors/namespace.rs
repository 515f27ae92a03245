//! The namespace controller: empties namespaces that are deleted, and lets them go when nothing is left.
//!
//! Its pace is that of a real controller-manager: the first look five seconds after the deletion, and again every five
//! seconds while something is left.

use std::collections::BTreeSet;
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams};
use kube::core::PartialObjectMeta;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{Config, Event, watcher};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::{BoxError, kinds, persist};
use crate::clock;

/// From the deletion of a namespace to the first look, and from one look to the next.
const LOOKS: Duration = Duration::from_secs(5);

/// Runs until its watch cannot be kept up, which is never, as long as the server speaks Kubernetes.
///
/// # Errors
/// If the server refuses what it needs for good.
pub async fn run(client: Client) -> Result<(), BoxError> {
    let kinds = kinds::namespaced(&client).await?;
    let namespaces: Api<PartialObjectMeta<Namespace>> = Api::all(client.clone());
    let mut events = watcher(namespaces, Config::default()).default_backoff().boxed();
    let mut ending = BTreeSet::new();
    let mut tasks = JoinSet::new();
    while let Some(event) = events.next().await {
        while tasks.try_join_next().is_some() {}
        match event {
            Ok(Event::Apply(namespace) | Event::InitApply(namespace)) if dying(&namespace) => {
                if ending.insert(namespace.uid().unwrap_or_default()) {
                    tasks.spawn(end(client.clone(), kinds.clone(), namespace.name_any()));
                }
            }
            Ok(_) => {}
            Err(error) => tracing::debug!(%error, "watching namespaces"),
        }
    }
    Ok(())
}

fn dying(namespace: &PartialObjectMeta<Namespace>) -> bool {
    namespace.metadata.deletion_timestamp.is_some()
}

/// Looks until the namespace is gone.
async fn end(client: Client, kinds: Vec<ApiResource>, name: String) {
    loop {
        sleep(LOOKS).await;
        match look(&client, &kinds, &name).await {
            Ok(true) => return,
            Ok(false) => {}
            Err(error) => tracing::debug!(%error, namespace = name, "ending"),
        }
    }
}

/// Deletes what is there. True: the namespace is gone.
async fn look(client: &Client, kinds: &[ApiResource], name: &str) -> kube::Result<bool> {
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let Some(namespace) = namespaces.get_opt(name).await? else { return Ok(true) };
    let (all, mut left) = (ListParams::default(), Vec::new());
    for kind in kinds {
        let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), name, kind);
        if persist(|| api.list_metadata(&all)).await?.items.is_empty() {
            continue;
        }
        api.delete_collection(&DeleteParams::default(), &all).await?;
        let rest = persist(|| api.list_metadata(&all)).await?.items;
        let finalizers = rest.iter().flat_map(|object| object.finalizers().iter().cloned()).collect();
        if !rest.is_empty() {
            left.push(Left { kind: qualified(kind), count: rest.len(), finalizers });
        }
        // What ends gracefully goes first: the rest may be what it needs to end.
        if kind.plural == "pods" && !rest.is_empty() {
            break;
        }
    }
    let before = serde_json::to_value(&namespace.status).unwrap_or_default();
    let conditions = conditions(&before["conditions"], &left, &clock::rfc3339(clock::now()));
    let change = json!({"status": {"conditions": conditions}});
    namespaces.patch_status(name, &PatchParams::default(), &Patch::Merge(change)).await?;
    if !left.is_empty() {
        return Ok(false);
    }
    let mut last = serde_json::to_value(&namespace).map_err(kube::Error::SerdeError)?;
    last["spec"]["finalizers"] = json!([]);
    if let Some(metadata) = last["metadata"].as_object_mut() {
        metadata.remove("resourceVersion");
    }
    let body = last.to_string().into_bytes();
    let request = http::Request::put(format!("/api/v1/namespaces/{name}/finalize"))
        .header("content-type", "application/json")
        .body(body)
        .map_err(|error| kube::Error::BuildRequest(kube::core::request::Error::BuildRequest(error)))?;
    client.request::<Value>(request).await?;
    Ok(true)
}

fn qualified(kind: &ApiResource) -> String {
    if kind.group.is_empty() { format!("{}.", kind.plural) } else { format!("{}.{}", kind.plural, kind.group) }
}

/// What is left of one type.
struct Left {
    kind: String,
    count: usize,
    finalizers: Vec<String>,
}

/// The five conditions of a namespace that ends. Those that stay as they were keep their time.
fn conditions(before: &Value, left: &[Left], now: &str) -> Value {
    let instances = |count: usize| format!("has {count} resource instances");
    let content: Vec<String> = left.iter().map(|left| format!("{} {}", left.kind, instances(left.count))).collect();
    let mut finalizers: Vec<(String, usize)> = Vec::new();
    for name in left.iter().flat_map(|left| &left.finalizers) {
        match finalizers.iter_mut().find(|(known, _)| known == name) {
            Some((_, count)) => *count += 1,
            None => finalizers.push((name.clone(), 1)),
        }
    }
    finalizers.sort();
    let finalizing: Vec<String> =
        finalizers.iter().map(|(name, count)| format!("{name} in {count} resource instances")).collect();
    let row = |kind: &str, trouble: Option<(&str, String)>, fine: (&str, &str)| {
        let status = if trouble.is_some() { "True" } else { "False" };
        let (reason, message) = trouble.unwrap_or((fine.0, fine.1.to_owned()));
        let old = before.as_array().into_iter().flatten().find(|c| c["type"] == kind && c["status"] == status);
        let since = old.map_or_else(|| now.into(), |old| old["lastTransitionTime"].clone());
        json!({"type": kind, "status": status, "lastTransitionTime": since, "reason": reason, "message": message})
    };
    let some = |texts: &[String], reason, prefix: &str| {
        (!texts.is_empty()).then(|| (reason, format!("{prefix}{}", texts.join(", "))))
    };
    json!([
        row(
            "NamespaceDeletionDiscoveryFailure",
            None,
            ("ResourcesDiscovered", "All resources successfully discovered"),
        ),
        row(
            "NamespaceDeletionGroupVersionParsingFailure",
            None,
            ("ParsedGroupVersions", "All legacy kube types successfully parsed"),
        ),
        row(
            "NamespaceDeletionContentFailure",
            None,
            ("ContentDeleted", "All content successfully deleted, may be waiting on finalization"),
        ),
        row(
            "NamespaceContentRemaining",
            some(&content, "SomeResourcesRemain", "Some resources are remaining: "),
            ("ContentRemoved", "All content successfully removed"),
        ),
        row(
            "NamespaceFinalizersRemaining",
            some(&finalizing, "SomeFinalizersRemain", "Some content in the namespace has finalizers remaining: "),
            ("ContentHasNoFinalizers", "All content-preserving finalizers finished"),
        ),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_name_what_is_left_and_keep_the_time_of_what_did_not_change() {
        let left =
            [Left { kind: "configmaps.".into(), count: 2, finalizers: vec!["b".into(), "a".into(), "b".into()] }];
        let first = conditions(&Value::Null, &left, "t1");
        assert_eq!(first[3]["message"], "Some resources are remaining: configmaps. has 2 resource instances");
        assert_eq!(
            first[4]["message"],
            "Some content in the namespace has finalizers remaining: a in 1 resource instances, b in 2 resource instances"
        );
        let second = conditions(&first, &[], "t2");
        let times: Vec<&str> =
            second.as_array().expect("a list").iter().filter_map(|c| c["lastTransitionTime"].as_str()).collect();
        assert_eq!(times, ["t1", "t1", "t1", "t2", "t2"]);
    }
}
