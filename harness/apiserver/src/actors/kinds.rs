//! The types that controllers of whole clusters look at.

use kube::api::{Api, ApiResource, DynamicObject, ListParams};
use kube::{Client, Error};

use super::{BoxError, persist};

fn resource(group: &str, version: &str, kind: &str, plural: &str) -> ApiResource {
    let api_version = if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
    ApiResource { group: group.into(), version: version.into(), api_version, kind: kind.into(), plural: plural.into() }
}

/// The types that own or are owned.
pub(super) async fn owning(client: &Client) -> Result<Vec<ApiResource>, BoxError> {
    let mut kinds = vec![
        resource("", "v1", "Pod", "pods"),
        resource("", "v1", "Service", "services"),
        resource("", "v1", "Secret", "secrets"),
        resource("", "v1", "ConfigMap", "configmaps"),
        resource("", "v1", "ServiceAccount", "serviceaccounts"),
        resource("", "v1", "PersistentVolumeClaim", "persistentvolumeclaims"),
        resource("networking.k8s.io", "v1", "NetworkPolicy", "networkpolicies"),
    ];
    kinds.extend(sandbox(client).await?);
    Ok(kinds)
}

/// All types in namespaces, in the order in which a namespace is emptied: what ends gracefully first.
pub(super) async fn namespaced(client: &Client) -> Result<Vec<ApiResource>, BoxError> {
    let mut kinds = vec![
        resource("", "v1", "Pod", "pods"),
        resource("", "v1", "Secret", "secrets"),
        resource("", "v1", "Event", "events"),
        resource("", "v1", "ServiceAccount", "serviceaccounts"),
        resource("", "v1", "ConfigMap", "configmaps"),
    ];
    kinds.extend(sandbox(client).await?);
    kinds.extend([
        resource("", "v1", "PersistentVolumeClaim", "persistentvolumeclaims"),
        resource("", "v1", "Service", "services"),
        resource("coordination.k8s.io", "v1", "Lease", "leases"),
        resource("networking.k8s.io", "v1", "NetworkPolicy", "networkpolicies"),
    ]);
    Ok(kinds)
}

/// Sandboxes, if they are served. In which version is asked of the server.
async fn sandbox(client: &Client) -> Result<Option<ApiResource>, BoxError> {
    let first = ListParams::default().limit(1);
    for version in ["v1beta1", "v1alpha1"] {
        let sandbox = resource("agents.x-k8s.io", version, "Sandbox", "sandboxes");
        let api: Api<DynamicObject> = Api::all_with(client.clone(), &sandbox);
        match persist(|| api.list_metadata(&first)).await {
            Ok(_) => return Ok(Some(sandbox)),
            Err(Error::Api(status)) if status.code == 404 => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(None)
}
