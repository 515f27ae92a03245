//! One pass over one Sandbox: asks the rules, makes the calls in the controller's order, writes the status last.
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod, Service};
use k8s_openapi::jiff::Timestamp;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, Client};

use crate::cluster::informer::Key;

use super::cache::Cache;
use super::profile::Profile;
use super::rules::{self, Expiry, PodState, PodStep};
use super::sandbox::{Map, Sandbox, SandboxStatus};
use super::status::{self, Outcome};

/// What a pass works with.
#[derive(Clone)]
pub(super) struct Reconciler {
    pub(super) client: Client,
    pub(super) profile: Profile,
    pub(super) cache: Arc<Mutex<Cache>>,
}

/// Calls for one Sandbox, and what the pass knows of it so far.
struct Pass<'a> {
    reconciler: &'a Reconciler,
    key: &'a Key,
    sandbox: &'a Sandbox,
    /// The Sandbox's annotations, as the last answer showed them.
    annotations: Option<Map>,
    /// The Sandbox's resourceVersion, as read or as the last answer showed it.
    resource_version: Option<String>,
}

impl Reconciler {
    /// Reconciles one Sandbox; an answer says after how long to look again without a change. An error is tried again.
    pub(super) async fn reconcile(&self, key: &Key) -> Result<Option<Duration>, String> {
        let Some(sandbox) = self.cache().sandbox(key) else { return Ok(None) };
        if sandbox.metadata.deletion_timestamp.is_some() {
            return Ok(None);
        }
        let annotations = sandbox.metadata.annotations.clone();
        let resource_version = sandbox.metadata.resource_version.clone();
        let mut pass = Pass { reconciler: self, key, sandbox: &sandbox, annotations, resource_version };
        let again = match rules::expiry(&sandbox, Timestamp::now()) {
            Expiry::Unmarked => {
                pass.write_status(&status::expired(&sandbox, Timestamp::now())).await?;
                return Ok(None);
            }
            Expiry::Marked => {
                pass.clean_up().await?;
                return Ok(None);
            }
            Expiry::In(left) => Some(left),
            Expiry::Never => None,
        };
        let outcome = pass.children().await;
        let written = pass.write_status(&status::status(self.profile, &sandbox, &outcome, Timestamp::now())).await;
        match outcome.error {
            Some(error) => Err(error),
            None => written.map(|()| again),
        }
    }

    fn cache(&self) -> MutexGuard<'_, Cache> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Pass<'_> {
    /// Brings claims, Pod and Service about, in this order, up to the first error.
    async fn children(&mut self) -> Outcome {
        let mut outcome = Outcome { pod: PodState::Unknown, service: false, error: None };
        outcome.error = self.bring_about(&mut outcome).await.err();
        outcome
    }
    async fn bring_about(&mut self, outcome: &mut Outcome) -> Result<(), String> {
        self.claims().await?;
        outcome.pod = self.pod().await?;
        outcome.service = self.service().await?;
        Ok(())
    }

    async fn claims(&self) -> Result<(), String> {
        let missing = {
            let cache = self.reconciler.cache();
            rules::claims(self.sandbox, |name| cache.has_claim(&self.key.namespace, name))?
        };
        let api: Api<PersistentVolumeClaim> = self.api();
        for claim in missing {
            api.create(&PostParams::default(), &claim).await.map_err(words)?;
        }
        Ok(())
    }

    async fn pod(&mut self) -> Result<PodState, String> {
        let pods = self.reconciler.cache().pods_of(self.sandbox);
        let plan = rules::pod(self.reconciler.profile, self.sandbox, &pods)?;
        let api: Api<Pod> = self.api();
        let mut state = plan.state;
        for step in plan.steps {
            match step {
                PodStep::Track(name) => self.track(name.as_deref()).await?,
                PodStep::Delete(name) => {
                    unless_absent(api.delete(&name, &DeleteParams::default()).await)?;
                }
                PodStep::Create(pod) => {
                    let pod = api.create(&PostParams::default(), &pod).await.map_err(words)?;
                    state = PodState::Present(Arc::new(pod));
                }
                PodStep::Adopt(name, patch) => {
                    let pod = api.patch(&name, &PatchParams::default(), &Patch::Merge(patch)).await.map_err(words)?;
                    state = PodState::Present(Arc::new(pod));
                }
            }
        }
        Ok(state)
    }

    async fn track(&mut self, name: Option<&str>) -> Result<(), String> {
        let patch = Patch::Merge(rules::track_patch(self.annotations.as_ref(), name));
        let after = self.sandboxes().patch(&self.key.name, &PatchParams::default(), &patch).await.map_err(words)?;
        self.annotations = after.metadata.annotations;
        self.resource_version = after.metadata.resource_version;
        Ok(())
    }

    /// Creates the Service if it is wanted and missing; says whether one is there.
    async fn service(&self) -> Result<bool, String> {
        let present = self.reconciler.cache().service_of(self.key);
        match rules::service(self.sandbox, present.as_deref())? {
            None => Ok(present.is_some()),
            Some(service) => {
                let api: Api<Service> = self.api();
                api.create(&PostParams::default(), &service).await.map_err(words)?;
                Ok(true)
            }
        }
    }

    /// The second pass after expiry: Pod and Service go, then the Sandbox itself or most of its status.
    async fn clean_up(&self) -> Result<(), String> {
        let (pods, service) = {
            let cache = self.reconciler.cache();
            (cache.pods_of(self.sandbox), cache.service_of(self.key))
        };
        let api: Api<Pod> = self.api();
        for pod in pods.iter().filter(|pod| self.sandbox.controls(&pod.metadata)) {
            if let (None, Some(name)) = (&pod.metadata.deletion_timestamp, &pod.metadata.name) {
                unless_absent(api.delete(name, &DeleteParams::default()).await)?;
            }
        }
        if service.is_some_and(|service| self.sandbox.controls(&service.metadata)) {
            let api: Api<Service> = self.api();
            unless_absent(api.delete(&self.key.name, &DeleteParams::default()).await)?;
        }
        if rules::deleted_when_expired(self.sandbox) {
            return unless_absent(self.sandboxes().delete(&self.key.name, &DeleteParams::default()).await);
        }
        self.write_status(&status::expired_and_cleaned(self.sandbox)).await
    }

    async fn write_status(&self, new: &SandboxStatus) -> Result<(), String> {
        let old = self.sandbox.status.clone().unwrap_or_default();
        if self.reconciler.profile.locks_status() {
            return if old == *new { Ok(()) } else { self.update_status(new).await };
        }
        let Some(patch) = status::patch(&old, new) else { return Ok(()) };
        let written =
            self.sandboxes().patch_status(&self.key.name, &PatchParams::default(), &Patch::Merge(&patch)).await;
        unless_absent(written)
    }

    /// The whole status, onto the resourceVersion that the pass knows: a conflict fails the pass, and it is tried again.
    async fn update_status(&self, new: &SandboxStatus) -> Result<(), String> {
        let mut update = self.sandbox.clone();
        update.metadata.resource_version = self.resource_version.clone();
        update.status = Some(new.clone());
        unless_absent(self.sandboxes().replace_status(&self.key.name, &PostParams::default(), &update).await)
    }

    fn sandboxes(&self) -> Api<Sandbox> {
        let Reconciler { client, profile, .. } = self.reconciler;
        Api::namespaced_with(client.clone(), &self.key.namespace, &profile.api_version())
    }

    fn api<K>(&self) -> Api<K>
    where
        K: kube::Resource<Scope = k8s_openapi::NamespaceResourceScope>,
        K::DynamicType: Default,
    {
        Api::namespaced(self.reconciler.client.clone(), &self.key.namespace)
    }
}

/// The sentence of a failed call, as a condition shows it.
fn words(error: kube::Error) -> String {
    match error {
        kube::Error::Api(status) => status.message.clone(),
        other => other.to_string(),
    }
}

/// A call on an object that may be gone already, which is just as well.
fn unless_absent<T>(result: Result<T, kube::Error>) -> Result<(), String> {
    match result {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        other => other.map(drop).map_err(words),
    }
}
