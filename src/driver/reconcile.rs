//! The driver's own reconciliation: every 30 s while a watch is open it brings each sandbox's resource and companions
//! into line, whoever left them behind.
//!
//! For each resource the first rule that matches acts, and no other in that round. Patches are tried once, at the
//! resourceVersion that the decision was made on: a conflict is left to the next round.
use super::error::DriverError;
use super::fences::fences;
use super::kube_calls::{Change, NETWORK_POLICIES, PODS, sandboxes};
use super::markers;
use super::names;
use super::resource::{Pod, Sandbox, SandboxVersion};
use super::{Driver, now_ms};
use crate::remedy::Remedy;
use kube::api::{DeleteParams, Preconditions};
use rules::{Action, Next, Seen, Wanted};

pub(super) use strangers::Strangers;

mod rules;
mod strangers;

impl Driver {
    /// One round over all sandboxes of this gateway, one after another. A failure concerns one sandbox only.
    pub(super) async fn reconcile(&self) -> Result<(), DriverError> {
        let all = self.find_all().await?;
        self.strangers.keep(|id| all.iter().any(|listed| listed.id() == id));
        for listed in all {
            // Busy: an operation of this process is at it.
            let Some(_gate) = self.gates.try_enter(listed.id()) else { continue };
            if let Err(e) = self.reconcile_one(&listed).await {
                tracing::warn!(sandbox_id = listed.id(), error = %e, "sandbox could not be reconciled");
            }
        }
        Ok(())
    }

    async fn reconcile_one(&self, listed: &Sandbox) -> Result<(), DriverError> {
        let version = self.version().await?;
        let ns = Some(listed.namespace());
        let read = self.kube.get::<Sandbox>(sandboxes(version), ns, listed.name()).await?;
        let Some(sandbox) = read.filter(|s| s.uid() == listed.uid() && s.id() == listed.id()) else { return Ok(()) };
        let mut seen = Seen::new(&sandbox);
        match self.admit(sandbox.namespace()).await {
            Err(DriverError::Precondition(why)) => seen.refused = Some(why),
            result => result?,
        }
        let action = loop {
            match rules::next(&seen, now_ms(), self.config.remedies) {
                Next::Read(wanted) => self.read(&mut seen, wanted).await?,
                Next::Act(action) => break action,
            }
        };
        self.act(version, &sandbox, action).await
    }

    /// Reads what a rule wants to know.
    async fn read(&self, seen: &mut Seen<'_>, wanted: Wanted) -> Result<(), DriverError> {
        let (sandbox, ns) = (seen.sandbox, Some(seen.sandbox.namespace()));
        match wanted {
            Wanted::Fences => {
                let [(workload, _), (supervisor, _)] = fences();
                let workload = self.kube.get(NETWORK_POLICIES, ns, workload).await.into();
                seen.fences = Some([workload, self.kube.get(NETWORK_POLICIES, ns, supervisor).await.into()]);
            }
            Wanted::TrackedPod => {
                seen.tracked_pod = Some(self.kube.get::<Pod>(PODS, ns, sandbox.workload_pod()).await?.is_some());
            }
            Wanted::Workload => seen.workload = Some(self.kube.get(PODS, ns, sandbox.name()).await.into()),
            Wanted::Parts => seen.parts = Some(self.parts(sandbox).await),
        }
        Ok(())
    }

    async fn act(&self, version: SandboxVersion, sandbox: &Sandbox, action: Action) -> Result<(), DriverError> {
        let change = match action {
            Action::Nothing => return Ok(()),
            Action::DeleteResource => return self.delete_stale(version, sandbox).await,
            Action::CleanUp => return self.delete_present_generation(sandbox).await,
            Action::Suspend(why) => {
                // Whatever was under way. The Pods are left to the controller, the completion to a later round.
                tracing::warn!(sandbox_id = sandbox.id(), why, "sandbox is suspended");
                let why = Some(&*why).filter(|_| self.config.remedies.has(Remedy::SuspensionSaysWhy));
                Change::of(markers::suspending_because(now_ms(), why)).run(version, false)
            }
            Action::FinishReleasing => {
                self.delete_present_supervisor(sandbox).await?;
                Change::of(markers::suspending(now_ms())).run(version, false)
            }
            Action::CompleteStop => {
                self.delete_present_generation(sandbox).await?;
                Change::of(markers::stop_completed())
            }
            Action::CompleteBootstrap => Change::of(markers::bootstrap_completed()),
            Action::Publish(available) => match markers::readiness_changed(sandbox, available) {
                Some(change) => Change::of(change),
                None => return Ok(()),
            },
        };
        self.patch_or_leave(version, sandbox, change).await
    }

    async fn delete_present_generation(&self, sandbox: &Sandbox) -> Result<(), DriverError> {
        self.delete_present_supervisor(sandbox).await?;
        let generation = sandbox.annotation(names::GENERATION);
        self.delete_secrets(sandbox.namespace(), sandbox.id(), &[generation]).await
    }

    /// Deletes the supervisor Pod of the run that the resource stands for. One of another run may be that of a start which
    /// another driver is at and which the resource does not tell yet; one that is there a round later is left over.
    async fn delete_present_supervisor(&self, sandbox: &Sandbox) -> Result<(), DriverError> {
        let goes = |pod: &Pod| {
            pod.annotation(names::GENERATION) == sandbox.annotation(names::GENERATION)
                || !self.config.remedies.has(Remedy::CleanUpSparesANewRun)
                || self.strangers.seen_again(sandbox.id(), pod.uid())
        };
        self.delete_supervisor_if(sandbox.namespace(), sandbox.id(), goes).await
    }

    /// Deletes the resource of a create that did not get on, unless it has changed since it was read.
    async fn delete_stale(&self, version: SandboxVersion, sandbox: &Sandbox) -> Result<(), DriverError> {
        tracing::warn!(sandbox_id = sandbox.id(), "a create did not complete in time, deleting its resource");
        let as_read = Preconditions {
            uid: Some(sandbox.uid().to_owned()),
            resource_version: Some(sandbox.resource_version().to_owned()),
        };
        let params = DeleteParams::background().preconditions(as_read);
        let ns = Some(sandbox.namespace());
        match self.kube.delete(sandboxes(version), ns, sandbox.name(), &params).await {
            Err(e) if !e.is_not_found() && !e.is_conflict() => Err(e.into()),
            _ => Ok(()),
        }
    }

    /// One try; a conflict is left to the next round.
    async fn patch_or_leave(
        &self,
        version: SandboxVersion,
        decided_on: &Sandbox,
        change: Change,
    ) -> Result<(), DriverError> {
        match self.kube.patch_once(version, decided_on, &change).await {
            Err(e) if e.is_conflict() => {
                tracing::info!(sandbox_id = decided_on.id(), error = %e, "left to the next round");
                Ok(())
            }
            result => Ok(result.map(drop)?),
        }
    }
}
