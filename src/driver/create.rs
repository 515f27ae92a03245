//! CreateSandbox and its validation.
use super::error::{CallError, DriverError};
use super::kube_calls::{CALL_TIMEOUT, Change, PODS, SERVICES, sandboxes};
use super::markers;
use super::names::{MAX_NAME, RuntimeIdentity, is_dns_label};
use super::objects::{self, Identity, Launch, MainProcess, Workload};
use super::resource::{Metadata, Sandbox};
use super::workspace::security_range;
use super::{Config, Driver, Mode, now_ms, random_token};
use crate::pb::compute::{DriverSandbox, DriverSandboxSpec};
use crate::remedy::Remedy;
use kube::api::{DeleteParams, Preconditions};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{sleep, timeout};

/// Attempts at taking back what a create that got no clear answer may have made.
const TAKE_BACKS: u32 = 3;
const TAKE_BACK_PAUSE: Duration = Duration::from_secs(1);

/// Who the sandbox of this request will be.
///
/// Errors: invalid argument, naming the field.
pub(super) fn validate(config: &Config, sandbox: &DriverSandbox) -> Result<Identity, DriverError> {
    for (field, value) in [("id", &sandbox.id), ("name", &sandbox.name), ("workspace", &sandbox.workspace)] {
        if !is_dns_label(value) {
            let rule = "lower-case letters, digits and '-' inside, at most 63";
            return Err(DriverError::InvalidArgument(format!("sandbox {field} {value:?} is not a DNS label: {rule}")));
        }
    }
    let namespace = config.namespace_of(&sandbox.workspace);
    let resource = config.resource_name(&sandbox.workspace, &sandbox.name);
    for (what, value) in [("namespace", &namespace), ("resource name", &resource)] {
        if value.len() > MAX_NAME {
            let message = format!("{what} {value:?} has {} characters, at most {MAX_NAME} are allowed", value.len());
            return Err(DriverError::InvalidArgument(message));
        }
    }
    Ok(Identity {
        id: sandbox.id.clone(),
        name: sandbox.name.clone(),
        workspace: sandbox.workspace.clone(),
        namespace,
        resource,
    })
}

impl Driver {
    /// Creates the sandbox and answers with its runtime identity while it is still marked as bootstrapping.
    #[tracing::instrument(
        name = "kubernetes.create_sandbox",
        skip_all,
        fields(sandbox_id = sandbox.id, sandbox_name = sandbox.name)
    )]
    pub(super) async fn create_sandbox(
        self: &Arc<Self>,
        sandbox: &DriverSandbox,
    ) -> Result<RuntimeIdentity, DriverError> {
        let who = validate(&self.config, sandbox)?;
        let _gate = self.gates.enter(&who.id).await;
        let ns = who.namespace.clone();
        if let Mode::Managed { .. } = self.config.mode {
            self.ensure_workspace(&who.workspace).await?;
        }
        self.admit(&ns).await?;
        let version = self.version().await?;
        let security = security_range(&self.namespace(&ns).await?);
        self.ensure_fences(&ns).await?;

        let spec = sandbox.spec.clone().unwrap_or_default();
        let mut launch = Launch {
            who,
            sandbox_uid: String::new(),
            version,
            generation: random_token(),
            launch_authentication: spec.launch_authentication.clone(),
            sandbox_token: spec.sandbox_token.clone(),
            main_process: MainProcess {
                command: spec.command.clone(),
                tty: spec.tty,
                await_attachment: spec.await_main_process_attachment,
            },
            log_level: spec.log_level.clone(),
            epoch: self.epoch(spec.lifecycle_epoch),
        };
        let created = match self.create_resource(&launch, workload(spec, security)).await {
            Ok(created) => created,
            Err(e) => {
                if e.leaves_open() && self.config.remedies.has(Remedy::LostCreateIsTakenBack) {
                    self.take_back(&launch).await;
                }
                return Err(e.into());
            }
        };
        launch.sandbox_uid = created.uid().to_owned();
        match self.furnish(&launch).await {
            Ok(supervisor_uid) => {
                self.spawn_completion(&launch);
                Ok(RuntimeIdentity { namespace: ns, sandbox_uid: launch.sandbox_uid, supervisor_uid })
            }
            Err(e) => {
                let resource = &launch.who.resource;
                tracing::warn!(error = %e, "sandbox could not be created, deleting its resource");
                if let Err(e) =
                    self.kube.delete(sandboxes(version), Some(&ns), resource, &DeleteParams::default()).await
                {
                    tracing::warn!(error = %e, "the resource of a failed create could not be deleted");
                }
                Err(e)
            }
        }
    }

    /// Deletes the resource of this launch if it was made although nobody said so, in a few attempts that together take no
    /// longer than a call may. Should they fail, or should it be made later still, the reconcile gives it up when it is stale.
    async fn take_back(&self, launch: &Launch) {
        let attempts = async {
            for attempt in 1..=TAKE_BACKS {
                let Err(e) = self.take_back_once(launch).await else { return };
                tracing::warn!(error = %e, attempt, "the resource of a lost create could not be taken back");
                if attempt == TAKE_BACKS || self.config.remedies.has(Remedy::AsksOnce) {
                    return;
                }
                sleep(TAKE_BACK_PAUSE).await;
            }
        };
        if timeout(CALL_TIMEOUT, attempts).await.is_err() {
            tracing::warn!("the resource of a lost create could not be taken back in time");
        }
    }

    async fn take_back_once(&self, launch: &Launch) -> Result<(), CallError> {
        for made in self.find(&launch.who.id).await? {
            let params = DeleteParams::background()
                .preconditions(Preconditions { uid: Some(made.uid().to_owned()), resource_version: None });
            let (ns, resource) = (Some(made.namespace()), made.name());
            self.kube.delete(sandboxes(launch.version), ns, resource, &params).await?;
        }
        Ok(())
    }

    async fn create_resource(&self, launch: &Launch, workload: Workload) -> Result<Sandbox, CallError> {
        let process = serde_json::to_string(&launch.main_process).expect("strings and bools have a JSON text");
        let marks =
            markers::create_preparing(now_ms(), &launch.generation, &process, &launch.log_level).of_epoch(launch.epoch);
        let object = objects::sandbox(&self.config, launch, &workload, marks);
        self.kube.create(sandboxes(launch.version), Some(&launch.who.namespace), &object).await
    }

    /// Everything after the resource: companions, the run switch, the first generation. The supervisor Pod's uid.
    async fn furnish(&self, launch: &Launch) -> Result<String, DriverError> {
        let ns = launch.who.namespace.as_str();
        let around = self.surroundings(ns).await?;
        let service = objects::boundary_service(&self.config, launch);
        self.kube.create::<Metadata>(SERVICES, Some(ns), &service).await?;
        let pod = objects::supervisor_pod(&self.config, launch);
        let supervisor: Metadata = self.kube.create(PODS, Some(ns), &pod).await?;
        let fence = self.workload_fence(ns).await?;
        let run = Change::only_run(launch.version, true);
        self.kube.patch_retrying(launch.version, ns, &launch.who.resource, &run).await?;
        self.install(launch, supervisor.uid(), &around, fence).await?;
        Ok(supervisor.uid().to_owned())
    }
}

fn workload(spec: DriverSandboxSpec, security: Option<objects::SecurityRange>) -> Workload {
    Workload {
        image: spec.image,
        environment: spec.environment.into_iter().collect(),
        volume: spec.workspace_volume,
        security,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::remedy::Remedies;

    fn request(id: &str, name: &str, workspace: &str) -> DriverSandbox {
        DriverSandbox { id: id.into(), name: name.into(), workspace: workspace.into(), ..Default::default() }
    }

    #[test]
    fn what_cannot_become_an_object_name_is_refused_before_any_request() {
        let shared = Config::new("gw", Mode::Shared { namespace: "all".into() }, Remedies::NONE);
        let managed = Config::new("gw", Mode::Managed { prefix: "os-".into() }, Remedies::NONE);
        let long = "x".repeat(60);
        for (config, request, good) in [
            (&shared, request("id", "demo", "team"), true),
            (&managed, request("id", "demo", "team"), true),
            (&shared, request("", "demo", "team"), false),
            (&shared, request("id", "", "team"), false),
            (&shared, request("id", "demo", ""), false),
            (&shared, request("id", "Demo", "team"), false),
            (&shared, request("a,b", "demo", "team"), false),
            (&shared, request("id", &long, "team"), false),
            (&managed, request("id", &long, "team"), true),
            (&managed, request("id", "demo", &format!("{long}x")), false),
        ] {
            let verdict = validate(config, &request);
            assert_eq!(verdict.is_ok(), good, "{:?} {request:?}: {verdict:?}", config.mode);
            assert!(good || matches!(verdict, Err(DriverError::InvalidArgument(_))));
        }
        let who = validate(&shared, &request("id", "demo", "team")).expect("valid");
        assert_eq!((who.namespace.as_str(), who.resource.as_str()), ("all", "team--demo"));
    }
}
