//! The protection of volume claims that pods use: takes the finalizer off a deleted claim once no pod names it.

use std::collections::BTreeMap;

use futures::StreamExt;
use futures::stream::select;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use kube::api::{ListParams, Patch, PatchParams};
use kube::core::PartialObjectMeta;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{Config, Event, watcher};
use kube::{Api, Client};
use serde_json::json;

use super::{BoxError, persist};

const FINALIZER: &str = "kubernetes.io/pvc-protection";

enum Seen {
    /// A claim is deleted and protected.
    Dying {
        namespace: String,
        name: String,
    },
    /// A pod of that namespace went.
    PodGone {
        namespace: String,
    },
    Other,
}

pub(super) async fn run(client: Client) -> Result<(), BoxError> {
    let claims = watcher(Api::<PartialObjectMeta<PersistentVolumeClaim>>::all(client.clone()), Config::default());
    let claims = claims.default_backoff().map(|event| match event {
        Ok(Event::Apply(claim) | Event::InitApply(claim))
            if claim.metadata.deletion_timestamp.is_some()
                && claim.metadata.finalizers.iter().flatten().any(|f| f == FINALIZER) =>
        {
            Seen::Dying {
                namespace: claim.metadata.namespace.unwrap_or_default(),
                name: claim.metadata.name.unwrap_or_default(),
            }
        }
        _ => Seen::Other,
    });
    let pods = watcher(Api::<PartialObjectMeta<Pod>>::all(client.clone()), Config::default());
    let pods = pods.default_backoff().map(|event| match event {
        Ok(Event::Delete(pod)) => Seen::PodGone { namespace: pod.metadata.namespace.unwrap_or_default() },
        _ => Seen::Other,
    });
    let mut events = select(claims, pods).boxed();
    let mut waiting: BTreeMap<String, Vec<String>> = BTreeMap::new();
    while let Some(event) = events.next().await {
        let (namespace, names) = match event {
            Seen::Dying { namespace, name } => (namespace, vec![name]),
            Seen::PodGone { namespace } => {
                let names = waiting.remove(&namespace).unwrap_or_default();
                (namespace, names)
            }
            Seen::Other => continue,
        };
        for name in names {
            let free = persist(|| release(&client, &namespace, &name)).await;
            match free {
                Ok(true) => {}
                Ok(false) => {
                    let names = waiting.entry(namespace.clone()).or_default();
                    if !names.contains(&name) {
                        names.push(name);
                    }
                }
                Err(error) => tracing::debug!(%error, claim = name, "releasing"),
            }
        }
    }
    Ok(())
}

/// Takes the finalizer off, unless a pod uses the claim (false).
async fn release(client: &Client, namespace: &str, name: &str) -> kube::Result<bool> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let used = pods.list(&ListParams::default()).await?.items.iter().any(|pod| uses(pod, name));
    if used {
        return Ok(false);
    }
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(client.clone(), namespace);
    let claim = match claims.get_metadata(name).await {
        Ok(claim) => claim.metadata,
        Err(kube::Error::Api(status)) if status.code == 404 => return Ok(true),
        Err(error) => return Err(error),
    };
    let kept: Vec<_> = claim.finalizers.into_iter().flatten().filter(|f| f != FINALIZER).collect();
    let change = json!({"metadata": {"finalizers": kept, "resourceVersion": claim.resource_version}});
    match claims.patch_metadata(name, &PatchParams::default(), &Patch::Merge(change)).await {
        Ok(_) => Ok(true),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(true),
        // Changed meanwhile: the change comes as an event.
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(false),
        Err(error) => Err(error),
    }
}

fn uses(pod: &Pod, claim: &str) -> bool {
    let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    volumes.filter_map(|v| v.persistent_volume_claim.as_ref()).any(|source| source.claim_name == claim)
}
