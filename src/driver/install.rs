//! What create and start have in common once the Sandbox resource may run: from its workload Pod to the released gates,
//! and the task that completes the bootstrap later.
use super::error::DriverError;
use super::fences::fence_identity;
use super::kube_calls::{Change, NAMESPACES, NETWORK_POLICIES, PODS, SECRETS, sandboxes};
use super::markers::{self, ready_to_complete};
use super::names::{self, BOOTSTRAP_GATE};
use super::objects::{self, Launch};
use super::resource::{Metadata, NetworkPolicy, Pod, Sandbox};
use super::{Driver, Mode};
use futures::TryStreamExt;
use kube::Api;
use kube::runtime::{WatchStreamExt, watcher::watch_object};
use serde_json::{Value, json};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout};

const POD_POLL: Duration = Duration::from_millis(100);
const POD_LIMIT: Duration = Duration::from_secs(30);
/// How long a bootstrap may take to become complete before it is left to the reconciler.
const COMPLETION_LIMIT: Duration = Duration::from_secs(300);

/// What a generation's companions need to know of the cluster.
pub(super) struct Surroundings {
    pub(super) namespace_uid: String,
    /// Image pull Secrets as they are in their own namespace.
    pub(super) pull_secrets: Vec<Value>,
}

/// Is this the workload Pod that the launch asked for: of this sandbox, and still behind the gate?
fn check_workload(pod: &Pod, launch: &Launch) -> Result<(), DriverError> {
    if pod.label(names::SANDBOX_ID) != launch.who.id {
        let found = pod.label(names::SANDBOX_ID);
        return Err(DriverError::Message(format!("workload Pod {} is of sandbox {found:?}", pod.name())));
    }
    if !pod.spec.scheduling_gates.iter().any(|g| g.name == BOOTSTRAP_GATE) {
        return Err(DriverError::Message(format!(
            "workload Pod {} has no scheduling gate {BOOTSTRAP_GATE}",
            pod.name()
        )));
    }
    Ok(())
}

impl Driver {
    /// Reads the image pull Secrets and the namespace.
    pub(super) async fn surroundings(&self, namespace: &str) -> Result<Surroundings, DriverError> {
        let secrets_of = match self.config.mode {
            Mode::Shared { .. } => namespace,
            Mode::Managed { .. } => &self.config.gateway_namespace,
        };
        let mut pull_secrets = Vec::new();
        for name in &self.config.image_pull_secrets {
            let found = self.kube.get::<Value>(SECRETS, Some(secrets_of), name).await?;
            pull_secrets.push(found.ok_or_else(|| {
                DriverError::Precondition(format!("image pull secret {secrets_of}/{name} does not exist"))
            })?);
        }
        let found = self.kube.get::<Metadata>(NAMESPACES, None, namespace).await?;
        let found = found.ok_or_else(|| DriverError::NotFound(format!("namespace {namespace} does not exist")))?;
        Ok(Surroundings { namespace_uid: found.uid().to_owned(), pull_secrets })
    }

    /// Reads the workload fence: its uid and generation.
    pub(super) async fn workload_fence(&self, namespace: &str) -> Result<(String, String), DriverError> {
        let name = names::WORKLOAD_FENCE;
        let found = self.kube.get::<NetworkPolicy>(NETWORK_POLICIES, Some(namespace), name).await?;
        let missing = || DriverError::Precondition(format!("network policy {namespace}/{name} does not exist"));
        found.as_ref().map(fence_identity).ok_or_else(missing)
    }

    /// Waits for the workload Pod, notes the generation's identities, makes its Secrets, opens both gates.
    pub(super) async fn install(
        &self,
        launch: &Launch,
        supervisor_uid: &str,
        around: &Surroundings,
        fence: (String, String),
    ) -> Result<(), DriverError> {
        let (ns, resource, id) = (launch.who.namespace.as_str(), launch.who.resource.as_str(), &launch.who.id);
        let workload = self.await_workload(launch).await?;
        let read = self.kube.get::<Sandbox>(sandboxes(launch.version), Some(ns), resource).await?;
        if read.is_none_or(|s| s.uid() != launch.sandbox_uid) {
            return Err(DriverError::NotFound(format!("sandbox {ns}/{resource} was deleted")));
        }
        self.admit(ns).await?;
        check_workload(&workload, launch)?;
        let identities = markers::installed(workload.uid(), supervisor_uid, &fence.0, &fence.1);
        self.kube.patch_retrying(launch.version, ns, resource, &Change::of(identities)).await?;

        let token = super::random_token();
        for secret in objects::secrets(&self.config, launch, &token, &around.namespace_uid) {
            self.kube.create::<Metadata>(SECRETS, Some(ns), &secret).await?;
        }
        if let Mode::Managed { .. } = self.config.mode {
            for original in &around.pull_secrets {
                let copy = objects::pull_secret(&self.config, launch, original);
                self.kube.create::<Metadata>(SECRETS, Some(ns), &copy).await?;
            }
        }
        let open = json!({"spec": {"schedulingGates": []}});
        self.kube.merge::<Metadata>(PODS, ns, &names::supervisor_pod(id), &open).await?;
        self.kube.merge::<Metadata>(PODS, ns, workload.name(), &open).await?;
        self.kube.patch_retrying(launch.version, ns, resource, &Change::of(markers::released())).await?;
        Ok(())
    }

    /// Polls for the workload Pod that the agent-sandbox controller makes.
    async fn await_workload(&self, launch: &Launch) -> Result<Pod, DriverError> {
        let (ns, name) = (&launch.who.namespace, &launch.who.resource);
        let deadline = Instant::now() + POD_LIMIT;
        loop {
            match self.kube.get::<Pod>(PODS, Some(ns), name).await? {
                Some(pod) if pod.is_controlled_by(&launch.sandbox_uid) => return Ok(pod),
                Some(_) => return Err(DriverError::Message(format!("Pod {ns}/{name} is not the sandbox's own"))),
                None if Instant::now() + POD_POLL > deadline => {
                    let seconds = POD_LIMIT.as_secs();
                    return Err(DriverError::Message(format!("no workload Pod {ns}/{name} within {seconds} s")));
                }
                None => sleep(POD_POLL).await,
            }
        }
    }

    /// Starts the task that completes this bootstrap as soon as supervisor and resource are ready. What it cannot
    /// complete is left to the reconciler.
    pub(super) fn spawn_completion(self: &Arc<Self>, launch: &Launch) {
        let (driver, launch) = (self.clone(), launch.clone());
        self.spawn(async move {
            match timeout(COMPLETION_LIMIT, driver.complete(&launch)).await {
                Ok(Ok(())) => {}
                Ok(Err(e)) => tracing::info!(error = %e, "bootstrap completion left to the reconciler"),
                Err(_) => tracing::info!("bootstrap not complete in time, left to the reconciler"),
            }
        });
    }

    async fn complete(&self, launch: &Launch) -> Result<(), DriverError> {
        let ns = launch.who.namespace.as_str();
        let pod = kube::core::ApiResource::erase::<k8s_openapi::api::core::v1::Pod>(&());
        let pods: Api<Pod> = Api::namespaced_with(self.kube.client(), ns, &pod);
        wait_until(pods, &names::supervisor_pod(&launch.who.id), Pod::is_ready).await?;

        let resources: Api<Sandbox> = Api::namespaced_with(self.kube.client(), ns, &launch.version.api_resource());
        let ours = |s: &Sandbox| s.uid() == launch.sandbox_uid && ready_to_complete(s, self.config.remedies);
        let ready = wait_until(resources, &launch.who.resource, ours).await?;
        let completed = Change::of(markers::bootstrap_completed());
        self.kube.patch_once(launch.version, &ready, &completed).await?;
        Ok(())
    }
}

/// Watches one object until it is as wanted. The object going away ends the wait with an error.
async fn wait_until<K>(api: Api<K>, name: &str, wanted: impl Fn(&K) -> bool) -> Result<K, DriverError>
where
    K: kube::Resource + Clone + std::fmt::Debug + serde::de::DeserializeOwned + Send + 'static,
{
    let mut states = pin!(watch_object(api, name).default_backoff());
    loop {
        match states.try_next().await {
            Ok(Some(Some(object))) if wanted(&object) => return Ok(object),
            Ok(Some(Some(_))) => {}
            Ok(Some(None) | None) => return Err(DriverError::NotFound(format!("{name} is gone"))),
            // The watcher starts over by itself.
            Err(e) => tracing::debug!(error = %e, name, "watch of one object failed"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::objects::{Identity, MainProcess};
    use crate::driver::resource::SandboxVersion;

    #[test]
    fn only_a_gated_pod_of_the_same_sandbox_is_the_workload() {
        let who = Identity {
            id: "id".into(),
            name: "demo".into(),
            workspace: "team".into(),
            namespace: "ns".into(),
            resource: "demo".into(),
        };
        let launch = Launch {
            who,
            sandbox_uid: "u".into(),
            version: SandboxVersion::V1beta1,
            generation: "g".into(),
            launch_authentication: "t".into(),
            sandbox_token: String::new(),
            main_process: MainProcess::default(),
            log_level: String::new(),
            epoch: 0,
        };
        let pod = |id: &str, gates: Value| -> Pod {
            let metadata = json!({"name": "demo", "labels": {names::SANDBOX_ID: id}});
            serde_json::from_value(json!({"metadata": metadata, "spec": {"schedulingGates": gates}})).expect("a Pod")
        };
        assert!(check_workload(&pod("id", json!([{"name": BOOTSTRAP_GATE}])), &launch).is_ok());
        assert!(check_workload(&pod("other", json!([{"name": BOOTSTRAP_GATE}])), &launch).is_err());
        assert!(check_workload(&pod("id", json!([])), &launch).is_err());
        assert!(check_workload(&pod("id", json!([{"name": "else"}])), &launch).is_err());
    }
}
