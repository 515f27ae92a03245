//! StartSandbox: a fresh generation of a stopped sandbox, in the same Sandbox resource and volume.
use super::Driver;
use super::convert::Availability;
use super::error::DriverError;
use super::kube_calls::{Change, PODS};
use super::markers::{self, Marker, Operation, Phase, ready_to_complete};
use super::names::{self, RuntimeIdentity};
use super::objects::{self, Identity, Launch, MainProcess};
use super::resource::{Metadata, Sandbox, SandboxVersion};
use super::{now_ms, random_token};
use crate::pb::compute::StartSandboxRequest;
use crate::remedy::Remedies;
use std::sync::Arc;

/// What a start does about the marker that it finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Finding {
    /// Nothing under way.
    Nothing,
    /// Refuse: the first bootstrap is not over. A stop that still releases its supervisor is taken for one, too.
    Refuse,
    /// This very start is already released: complete it, if its dependencies are available.
    MayComplete,
    /// Stop what is there, all the way, and look again.
    StopFirst,
}

fn finding(sandbox: &Sandbox, session: &str, remedies: Remedies) -> Finding {
    let Some(marker) = Marker::of(sandbox) else { return Finding::Nothing };
    if marker.phase != Phase::Suspending && marker.operation != Operation::Restart {
        return Finding::Refuse;
    }
    let same = sandbox.annotation(names::BOOTSTRAP_SESSION) == Some(session);
    if same && ready_to_complete(sandbox, remedies) { Finding::MayComplete } else { Finding::StopFirst }
}

/// Names a start request without telling its token: equal for the same launch, whoever repeats it (FNV-1a, 64 bits).
fn session(request: &StartSandboxRequest) -> String {
    let parts = [&request.generation_id, &request.launch_authentication];
    let bytes = parts.into_iter().flat_map(|p| p.bytes().chain([0]));
    let hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |h, b| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3));
    format!("{hash:016x}")
}

/// The one resource that the request means, among those found under its sandbox id.
fn the_expected(mut found: Vec<Sandbox>, expected: &RuntimeIdentity, id: &str) -> Result<Sandbox, DriverError> {
    let sandbox = match found.len() {
        0 => return Err(DriverError::NotFound(format!("sandbox {id} does not exist"))),
        1 => found.swap_remove(0),
        n => return Err(DriverError::Precondition(format!("{n} sandbox resources bear the id {id}"))),
    };
    if (sandbox.namespace(), sandbox.uid()) != (&expected.namespace, &expected.sandbox_uid) {
        let is = format!("{}/{}", sandbox.namespace(), sandbox.uid());
        let message = format!("sandbox {id} is not the expected one: is {is}, expected {expected}");
        return Err(DriverError::Precondition(message));
    }
    Ok(sandbox)
}

impl Driver {
    /// Starts the sandbox and answers with its runtime identity while it is still marked as bootstrapping.
    #[tracing::instrument(
        name = "kubernetes.start_sandbox",
        skip_all,
        fields(sandbox_id = request.sandbox_id, sandbox_name = request.sandbox_name)
    )]
    pub(super) async fn start_sandbox(
        self: &Arc<Self>,
        request: &StartSandboxRequest,
    ) -> Result<RuntimeIdentity, DriverError> {
        let id = request.sandbox_id.as_str();
        for (what, value) in
            [("generation id", &request.generation_id), ("launch authentication", &request.launch_authentication)]
        {
            if value.is_empty() {
                return Err(DriverError::Precondition(format!("sandbox {id} cannot be started without {what}")));
            }
        }
        let expected = RuntimeIdentity::parse(&request.expected_runtime_identity).ok_or_else(|| {
            let given = &request.expected_runtime_identity;
            DriverError::Precondition(format!("expected runtime identity {given:?} of sandbox {id} is not one"))
        })?;
        let session = session(request);
        let _gate = self.gates.enter(id).await;
        let (sandbox, version) = loop {
            let sandbox = the_expected(self.find(id).await?, &expected, id)?;
            let version = self.version().await?;
            let ns = sandbox.namespace();
            self.admit(ns).await?;
            match finding(&sandbox, &session, self.config.remedies) {
                Finding::Nothing => {}
                Finding::Refuse => {
                    let message = format!("initial bootstrap of sandbox {id} is not completed");
                    return Err(DriverError::Precondition(message));
                }
                Finding::MayComplete if self.parts(&sandbox).await.availability() == Availability::Available => {
                    let completed = Change::of(markers::bootstrap_completed());
                    match self.kube.patch_once(version, &sandbox, &completed).await {
                        Ok(_) => return Ok(present_identity(&sandbox)),
                        Err(e) if e.is_conflict() => {}
                        Err(e) => return Err(e.into()),
                    }
                    continue;
                }
                Finding::MayComplete | Finding::StopFirst => {
                    self.stop_resource(&sandbox, 0).await?;
                    continue;
                }
            }
            if self.kube.get::<Metadata>(PODS, Some(ns), sandbox.name()).await?.is_some() {
                self.stop_resource(&sandbox, 0).await?;
                continue;
            }
            break (sandbox, version);
        };
        self.launch(&sandbox, version, request, &session).await
    }

    /// A fresh generation of a sandbox that is off and has no Pods.
    async fn launch(
        self: &Arc<Self>,
        sandbox: &Sandbox,
        version: SandboxVersion,
        request: &StartSandboxRequest,
        session: &str,
    ) -> Result<RuntimeIdentity, DriverError> {
        let ns = sandbox.namespace();
        let process = sandbox.annotation(names::MAIN_PROCESS_SPEC).unwrap_or("{}");
        let main_process: MainProcess = serde_json::from_str(process)
            .map_err(|e| DriverError::Message(format!("annotation {}: {e}", names::MAIN_PROCESS_SPEC)))?;
        let launch = Launch {
            who: Identity {
                id: sandbox.id().to_owned(),
                name: sandbox.label(names::SANDBOX_NAME).to_owned(),
                workspace: sandbox.label(names::SANDBOX_WORKSPACE).to_owned(),
                namespace: ns.to_owned(),
                resource: sandbox.name().to_owned(),
            },
            sandbox_uid: sandbox.uid().to_owned(),
            version,
            generation: random_token(),
            launch_authentication: request.launch_authentication.clone(),
            sandbox_token: String::new(),
            main_process,
            log_level: sandbox.annotation(names::LOG_LEVEL).unwrap_or_default().to_owned(),
            epoch: self.epoch(request.lifecycle_epoch),
        };
        self.ensure_fences(ns).await?;
        let generations = [sandbox.annotation(names::GENERATION), Some(launch.generation.as_str())];
        self.delete_generations(ns, sandbox.id(), &generations).await?;
        let pod = objects::supervisor_pod(&self.config, &launch);
        let supervisor: Metadata = self.kube.create(PODS, Some(ns), &pod).await?;

        if let Err(e) = self.run_generation(&launch, supervisor.uid(), session).await {
            tracing::warn!(error = %e, "sandbox could not be started, stopping it again");
            return Err(self.roll_back(sandbox, e).await);
        }
        self.spawn_completion(&launch);
        Ok(RuntimeIdentity {
            namespace: ns.to_owned(),
            sandbox_uid: launch.sandbox_uid,
            supervisor_uid: supervisor.uid().to_owned(),
        })
    }

    /// The patch that starts the generation, and its installation.
    async fn run_generation(&self, launch: &Launch, supervisor_uid: &str, session: &str) -> Result<(), DriverError> {
        let ns = launch.who.namespace.as_str();
        let marks =
            markers::restart_preparing(now_ms(), session, &launch.generation, supervisor_uid).of_epoch(launch.epoch);
        let template = serde_json::json!({"spec": launch.pod_template_of_generation(&self.config)});
        let change = Change::of(marks).run(launch.version, true).spec("podTemplate", template);
        self.kube.patch_retrying(launch.version, ns, &launch.who.resource, &change).await?;
        let around = self.surroundings(ns).await?;
        let fence = self.workload_fence(ns).await?;
        self.install(launch, supervisor_uid, &around, fence).await
    }

    /// Stops what a failed start left; the error to answer with.
    async fn roll_back(&self, sandbox: &Sandbox, cause: DriverError) -> DriverError {
        let id = sandbox.id();
        let stopped = async {
            let mut found = self.find(id).await?;
            if found.is_empty() { Ok(()) } else { self.stop_resource(&found.swap_remove(0), 0).await }
        };
        match stopped.await {
            Ok(()) => cause,
            Err(e) => DriverError::Message(format!("{cause}; rollback remains pending: {e}")),
        }
    }
}

/// The identity of the generation that this resource notes.
fn present_identity(sandbox: &Sandbox) -> RuntimeIdentity {
    RuntimeIdentity {
        namespace: sandbox.namespace().to_owned(),
        sandbox_uid: sandbox.uid().to_owned(),
        supervisor_uid: sandbox.annotation(names::SUPERVISOR_UID).unwrap_or_default().to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn marked(operation: Option<&str>, phase: &str, session: &str, ready: bool) -> Sandbox {
        let mut annotations = json!({
            names::BOOTSTRAPPING: "true", names::BOOTSTRAP_PHASE: phase, names::BOOTSTRAP_SESSION: session,
        });
        if let Some(operation) = operation {
            annotations[names::BOOTSTRAP_OPERATION] = operation.into();
        }
        let ready = if ready { "True" } else { "False" };
        serde_json::from_value(json!({
            "metadata": {"generation": 1, "annotations": annotations},
            "status": {"conditions": [{"type": "Ready", "status": ready, "observedGeneration": 1}]},
        }))
        .expect("a Sandbox")
    }

    #[test]
    fn what_a_start_does_depends_on_the_marker_that_it_finds() {
        use Finding::*;
        let finding = |cr: &Sandbox| finding(cr, "s", Remedies::as_reported());
        assert_eq!(finding(&Sandbox::default()), Nothing);
        for (operation, phase, session, ready, expected) in [
            (Some("create"), "preparing", "", false, Refuse),
            (Some("create"), "released", "s", true, Refuse),
            (Some("stop"), "releasing", "s", true, Refuse),
            (None, "released", "s", true, Refuse),
            (Some("hibernate"), "released", "s", true, Refuse),
            (Some("stop"), "suspending", "s", true, StopFirst),
            (Some("create"), "suspending", "s", false, StopFirst),
            (None, "suspending", "s", false, StopFirst),
            (Some("restart"), "preparing", "s", true, StopFirst),
            (Some("restart"), "released", "other", true, StopFirst),
            (Some("restart"), "released", "s", false, StopFirst),
            (Some("restart"), "released", "s", true, MayComplete),
        ] {
            let cr = marked(operation, phase, session, ready);
            assert_eq!(finding(&cr), expected, "{operation:?}/{phase} session={session:?} ready={ready}");
        }
    }

    #[test]
    fn a_start_is_repeated_only_with_the_same_token_and_generation() {
        let request = |generation: &str, token: &str| StartSandboxRequest {
            generation_id: generation.into(),
            launch_authentication: token.into(),
            ..Default::default()
        };
        assert_eq!(session(&request("g", "t")), session(&request("g", "t")));
        for other in [request("g", "u"), request("h", "t"), request("gt", ""), request("", "gt")] {
            assert_ne!(session(&request("g", "t")), session(&other));
        }
        assert!(!session(&request("g", "secret")).contains("secret"));
    }

    #[test]
    fn only_the_expected_resource_is_started() {
        let at = |ns: &str, uid: &str| -> Sandbox {
            serde_json::from_value(json!({"metadata": {"namespace": ns, "uid": uid}})).expect("a Sandbox")
        };
        let expected = RuntimeIdentity::parse("kubernetes://ns/u/old-supervisor").expect("an identity");
        assert!(the_expected(vec![at("ns", "u")], &expected, "id").is_ok());
        assert!(matches!(the_expected(vec![], &expected, "id"), Err(DriverError::NotFound(_))));
        for found in [vec![at("ns", "v")], vec![at("other", "u")], vec![at("ns", "u"), at("ns", "u")]] {
            assert!(matches!(the_expected(found, &expected, "id"), Err(DriverError::Precondition(_))));
        }
    }
}
