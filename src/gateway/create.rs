//! CreateSandbox: the row first, then the compute, then the binding of one to the other.

use std::collections::BTreeMap;
use std::sync::Arc;

use tonic::{Code, Status};
use tracing::warn;
use uuid::Uuid;

use crate::pb::compute::{self, DeleteSandboxRequest, DriverSandbox, DriverSandboxSpec};
use crate::pb::openshell::{CreateSandboxRequest, ObjectMeta, Sandbox, SandboxPhase, SandboxSpec};

use crate::remedy::Remedy;

use super::admission;
use super::core::{Gateway, store_status};
use super::record::{AUTH_EPOCH, COMPUTE_DRIVER, GENERATION_ID, RUNTIME_IDENTITY, Row, TOKEN_ID, new_attempt};
use super::rows::{By, accepted};
use super::service::refused;
use super::store::StoreError;

/// Workspace of requests that name none.
pub(crate) const DEFAULT_WORKSPACE: &str = "default";
/// Attempts at a row that others write too.
const ATTEMPTS: u32 = 3;

/// The row that a create request asks for, as it is first stored.
fn new_row(request: CreateSandboxRequest, driver_name: &str, now_ms: i64) -> Sandbox {
    let mut annotations = request.annotations;
    annotations.extend([
        (COMPUTE_DRIVER.to_owned(), driver_name.to_owned()),
        (GENERATION_ID.to_owned(), Uuid::new_v4().to_string()),
        (AUTH_EPOCH.to_owned(), "1".to_owned()),
        (TOKEN_ID.to_owned(), Uuid::new_v4().to_string()),
    ]);
    let metadata = ObjectMeta {
        id: Uuid::new_v4().to_string(),
        name: request.name,
        workspace: request.workspace,
        labels: request.labels,
        annotations,
        ..Default::default()
    };
    let attempt = new_attempt(now_ms);
    let mut row = Sandbox {
        metadata: Some(metadata),
        spec: Some(request.spec.unwrap_or_default()),
        start_attempt: attempt.attempt_id.clone(),
        ..Default::default()
    };
    let message = "the sandbox is being created";
    row.set_phase(SandboxPhase::Provisioning, "False", "Provisioning", message, now_ms);
    row.status_mut().provisioning = Some(attempt);
    row.begin_epoch();
    row
}

/// What the driver is told to make of a row.
pub(crate) fn driver_sandbox(row: &Sandbox) -> DriverSandbox {
    let meta = row.metadata.clone().unwrap_or_default();
    let SandboxSpec { command, image, environment, workspace_volume, log_level, .. } =
        row.spec.clone().unwrap_or_default();
    let spec = DriverSandboxSpec {
        log_level,
        environment,
        sandbox_token: row.annotation(TOKEN_ID).into(),
        command,
        launch_authentication: row.annotation(TOKEN_ID).into(),
        image,
        workspace_volume,
        generation_id: row.annotation(GENERATION_ID).into(),
        lifecycle_epoch: row.issued_epoch,
        ..Default::default()
    };
    DriverSandbox { id: meta.id, name: meta.name, workspace: meta.workspace, spec: Some(spec), ..Default::default() }
}

/// Does this code leave open whether the driver has made the sandbox? Its own refusals and failures do not: it has
/// undone what it had begun.
fn is_ambiguous(code: Code) -> bool {
    matches!(code, Code::Unknown | Code::Unavailable | Code::Cancelled | Code::DeadlineExceeded)
}

fn validate(request: &CreateSandboxRequest) -> Result<(), Status> {
    if request.name.is_empty() {
        return Err(Status::invalid_argument("a sandbox needs a name"));
    }
    match request.spec.as_ref().map_or("", |s| &s.restart_policy) {
        "" | "Never" | "OnFailure" | "Always" => Ok(()),
        other => {
            Err(Status::invalid_argument(format!("restart policy must be Never, OnFailure or Always, not {other:?}")))
        }
    }
}

impl Gateway {
    /// Creates a sandbox and returns its row, still Provisioning or already further.
    ///
    /// The driver is called within the request: a client that goes away leaves a Provisioning row behind, which the
    /// driver's snapshots or the provisioning deadline settle.
    pub(crate) async fn create(self: &Arc<Self>, mut request: CreateSandboxRequest) -> Result<Sandbox, Status> {
        validate(&request)?;
        if request.workspace.is_empty() {
            request.workspace = DEFAULT_WORKSPACE.into();
        }
        let name = request.name.clone();
        let failed = |e: Status| Status::new(e.code(), format!("create sandbox failed: {}", e.message()));
        let capabilities = self.capabilities().await.map_err(failed)?;
        let row = new_row(request, &capabilities.driver_name, self.rows.now_ms());
        let id = row.id().to_owned();

        let _gate = self.gates.lock(&id).await;
        self.noting(&id, self.create_row(row, &name, capabilities.supports_sandbox_authentication)).await
    }

    /// Stores the row and has the driver make its compute. The caller holds the gate.
    async fn create_row(&self, row: Sandbox, name: &str, authenticates: bool) -> Result<Sandbox, Status> {
        let id = row.id().to_owned();
        let row = {
            let _lock = self.mutations.lock(&id).await;
            match self.rows.create(row) {
                Err(StoreError::AlreadyExists { .. }) => {
                    return Err(refused("create", name, "", admission::already_exists(name).into()));
                }
                created => created.map_err(|e| store_status("create sandbox", e))?,
            }
        };
        accepted("create", &row);

        let request = compute::CreateSandboxRequest { sandbox: Some(driver_sandbox(&row)) };
        match self.driver().create_sandbox(request).await {
            Ok(reply) => {
                let identity = reply.into_inner().runtime_identity;
                self.created(&row, &identity, authenticates).await
            }
            Err(status) if is_ambiguous(status.code()) && self.config.remedies.has(Remedy::AmbiguousCreateKeepsRow) => {
                Err(Status::internal(format!("create sandbox failed: {}; the sandbox may be there", status.message())))
            }
            Err(status) => {
                let _lock = self.mutations.lock(&id).await;
                self.sessions.disconnect(&id);
                if let Err(error) = self.rows.delete("create-failed", &id) {
                    warn!(%error, sandbox_id = %id, "the row of a failed create was not removed");
                }
                let code = match status.code() {
                    code @ (Code::AlreadyExists | Code::FailedPrecondition) => code,
                    _ => Code::Internal,
                };
                Err(Status::new(code, format!("create sandbox failed: {}", status.message())))
            }
        }
    }

    /// Binds the row to the compute that the driver has made.
    async fn created(&self, row: &Sandbox, identity: &str, authenticates: bool) -> Result<Sandbox, Status> {
        let id = row.id();
        if authenticates && identity.is_empty() {
            self.compensate_create(row).await;
            return Err(Status::internal("create sandbox failed: the driver returned no runtime identity"));
        }
        let allowed = [SandboxPhase::Provisioning, SandboxPhase::Ready];
        self.bind_runtime("create", id, row.annotation(GENERATION_ID), identity, &allowed).await
    }

    /// Undoes a create whose compute cannot be trusted: the row becomes Deleting, the driver deletes.
    async fn compensate_create(&self, row: &Sandbox) {
        let id = row.id();
        {
            let _lock = self.mutations.lock(id).await;
            let deleting = |row: &mut Sandbox| {
                let now_ms = self.rows.now_ms();
                row.set_phase(SandboxPhase::Deleting, "False", "Deleting", "the create could not be completed", now_ms);
                row.start_attempt.clear();
            };
            if let Err(error) = self.rows.update(By::Worker, "create-compensate", id, 0, deleting) {
                warn!(%error, sandbox_id = %id, "the row of an incomplete create was not marked");
            }
        }
        let request = DeleteSandboxRequest { sandbox_id: id.into(), sandbox_name: row.name().into() };
        if let Err(status) = self.driver().delete_sandbox(request).await {
            warn!(error = %status.message(), sandbox_id = %id, "compute of an incomplete create was not deleted");
        }
    }

    /// Stores the identity of the compute that a create or start has made, while the row still is in one of the allowed
    /// phases and of the same generation.
    pub(crate) async fn bind_runtime(
        &self,
        op: &str,
        id: &str,
        generation: &str,
        identity: &str,
        allowed: &[SandboxPhase],
    ) -> Result<Sandbox, Status> {
        let failed = |e| store_status(&format!("{op} sandbox"), e);
        let changed = || Status::aborted(format!("sandbox lifecycle changed while {op} completed"));
        let _lock = self.mutations.lock(id).await;
        let mut attempt = 0;
        loop {
            attempt += 1;
            let row = self.rows.get(id).map_err(failed)?.ok_or_else(changed)?;
            if !allowed.contains(&row.phase()) || row.annotation(GENERATION_ID) != generation {
                return Err(changed());
            }
            let bind = |row: &mut Sandbox| {
                row.meta_mut().annotations.insert(RUNTIME_IDENTITY.into(), identity.into());
            };
            match self.rows.update(By::Worker, "bind", id, row.version(), bind) {
                Err(StoreError::Conflict { .. }) if attempt < ATTEMPTS => {}
                written => return written.map_err(failed),
            }
        }
    }
}

/// The identity of the run that the next start begins: one epoch more, a token of its own. The generation id stays.
pub(crate) fn next_identity(annotations: &mut BTreeMap<String, String>) {
    let epoch = annotations.get(AUTH_EPOCH).and_then(|e| e.parse::<u64>().ok()).unwrap_or(0);
    annotations.insert(AUTH_EPOCH.into(), (epoch + 1).to_string());
    annotations.insert(TOKEN_ID.into(), Uuid::new_v4().to_string());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request() -> CreateSandboxRequest {
        let spec = SandboxSpec { command: vec!["sleep".into(), "infinity".into()], ..Default::default() };
        CreateSandboxRequest {
            name: "demo".into(),
            workspace: "default".into(),
            spec: Some(spec),
            ..Default::default()
        }
    }

    #[test]
    fn a_new_row_is_provisioning_with_an_armed_attempt_that_is_in_flight() {
        let row = new_row(request(), "kubernetes", 1_000);
        assert_eq!(row.phase(), SandboxPhase::Provisioning);
        let attempt = row.status.as_ref().unwrap().provisioning.as_ref().unwrap();
        assert_eq!((attempt.deadline_ms, &attempt.attempt_id), (301_000, &row.start_attempt));
        assert_eq!((row.annotation(AUTH_EPOCH), row.annotation(COMPUTE_DRIVER)), ("1", "kubernetes"));
        let sent = driver_sandbox(&row);
        let spec = sent.spec.unwrap();
        assert_eq!((sent.id.as_str(), sent.name.as_str(), sent.workspace.as_str()), (row.id(), "demo", "default"));
        assert_eq!(spec.command, ["sleep", "infinity"]);
        assert_eq!(
            (spec.generation_id.as_str(), spec.launch_authentication.as_str()),
            (row.annotation(GENERATION_ID), row.annotation(TOKEN_ID))
        );
    }

    #[test]
    fn a_start_gets_the_next_epoch_and_a_token_of_its_own_but_keeps_the_generation() {
        let mut row = new_row(request(), "kubernetes", 0);
        let (token, generation) = (row.annotation(TOKEN_ID).to_owned(), row.annotation(GENERATION_ID).to_owned());
        next_identity(&mut row.meta_mut().annotations);
        assert_eq!(row.annotation(AUTH_EPOCH), "2");
        assert_ne!(row.annotation(TOKEN_ID), token);
        assert_eq!(row.annotation(GENERATION_ID), generation);
    }

    #[test]
    fn a_request_that_cannot_be_served_is_refused_with_what_was_expected() {
        assert!(validate(&request()).is_ok());
        let nameless = CreateSandboxRequest { name: String::new(), ..request() };
        assert_eq!(validate(&nameless).unwrap_err().code(), Code::InvalidArgument);
        for (policy, served) in [("Never", true), ("OnFailure", true), ("Always", true), ("Sometimes", false)] {
            let mut r = request();
            r.spec.as_mut().unwrap().restart_policy = policy.into();
            let answer = validate(&r);
            assert_eq!(answer.is_ok(), served, "{policy}");
            if let Err(refused) = answer {
                assert_eq!(refused.code(), Code::InvalidArgument);
                assert!(refused.message().contains("Never"), "{refused}");
            }
        }
    }
}
