//! The protection of volume claims that pods use: takes the finalizer off a deleted claim once no pod names it.

use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, Client};
use serde_json::json;
use tokio::sync::mpsc::UnboundedReceiver;

use super::persist;

const FINALIZER: &str = "kubernetes.io/pvc-protection";

/// What the watches of the garbage collector saw.
#[derive(Debug)]
pub(super) enum Seen {
    /// A claim is deleted and protected.
    Dying {
        /// Namespace of the claim.
        namespace: String,
        /// Name of the claim.
        name: String,
    },
    /// Pods of that namespace went, or with `None` of any namespace.
    PodsWent(Option<String>),
}

/// Whether a claim in this state is one to look at.
pub(super) fn dying(claim: &ObjectMeta) -> Option<Seen> {
    let protected = claim.finalizers.iter().flatten().any(|finalizer| finalizer == FINALIZER);
    (claim.deletion_timestamp.is_some() && protected).then(|| Seen::Dying {
        namespace: claim.namespace.clone().unwrap_or_default(),
        name: claim.name.clone().unwrap_or_default(),
    })
}

/// Runs as long as somebody tells it what was seen.
pub(super) async fn run(client: Client, mut seen: UnboundedReceiver<Seen>) {
    // Claims in use.
    let mut waiting: Vec<(String, String)> = Vec::new();
    while let Some(event) = seen.recv().await {
        let looked_at: Vec<(String, String)> = match event {
            Seen::Dying { namespace, name } => vec![(namespace, name)],
            Seen::PodsWent(namespace) => {
                let went = |of: &str| namespace.as_deref().is_none_or(|namespace| namespace == of);
                let (free, kept) = waiting.into_iter().partition(|(of, _): &(String, String)| went(of));
                waiting = kept;
                free
            }
        };
        for (namespace, name) in looked_at {
            match persist(|| release(&client, &namespace, &name)).await {
                Ok(true) => {}
                Ok(false) if waiting.iter().any(|(ns, n)| *ns == namespace && *n == name) => {}
                Ok(false) => waiting.push((namespace, name)),
                Err(error) => tracing::debug!(%error, claim = name, "releasing"),
            }
        }
    }
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
