//! The driver's own reconciliation: every 30 s while a watch is open it brings each sandbox's resource and companions
//! into line, whoever left them behind.
//!
//! For each resource the first rule that matches acts, and no other in that round. Patches are tried once, at the
//! resourceVersion that the decision was made on: a conflict is left to the next round.
use super::convert::Availability;
use super::error::DriverError;
use super::fences::{Drift, fences, has_drifted, is_altered};
use super::kube_calls::{Change, NETWORK_POLICIES, PODS, Read, sandboxes};
use super::markers::{self, Marker, Operation, Phase, ready_to_complete};
use super::names;
use super::readiness::{Parts, identity};
use super::resource::{Pod, Sandbox, SandboxVersion};
use super::{Driver, now_ms};
use crate::remedy::{Remedies, Remedy};
use kube::api::{DeleteParams, Preconditions};

/// What is done about a bootstrap that does not get on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reap {
    /// It is not stale yet.
    Wait,
    /// A create: nothing of value exists, the resource is deleted.
    Delete,
    /// Everything else: the resource is suspended and keeps its volume.
    Suspend,
}

fn reap(marker: &Marker, installed: bool, now_ms: i64, remedies: Remedies) -> Reap {
    match marker.operation {
        _ if !marker.is_stale(now_ms) => Reap::Wait,
        // Its supervisor may be up, and the row Ready.
        Operation::Create if installed && remedies.has(Remedy::InstalledCreateIsKept) => Reap::Suspend,
        Operation::Create if remedies.has(Remedy::StaleCreatesStay) => Reap::Wait,
        Operation::Create => Reap::Delete,
        _ => Reap::Suspend,
    }
}

/// Has a sandbox that should run lost what it depends on? The reason, in words.
fn lost_dependency(sandbox: &Sandbox, workload: &Read<Pod>, parts: &Parts) -> Option<&'static str> {
    let other = |read, noted| identity(read, sandbox.annotation(noted)) == Availability::Unavailable;
    if other(workload, names::WORKLOAD_UID) {
        Some("the workload Pod is not the noted one")
    } else if other(&parts.supervisor, names::SUPERVISOR_UID) {
        Some("the supervisor Pod is not the noted one")
    } else if matches!(parts.service, Read::Absent) {
        Some("the boundary Service is missing")
    } else if parts.availability() == Availability::Unavailable {
        Some("a dependency is unavailable")
    } else {
        None
    }
}

/// How the fence is compared with the noted one. A suspended sandbox has noted none: before the fix that counted as
/// drift, and no suspension could ever end it.
fn drift(is_or_will_be_up: bool, remedies: Remedies) -> Drift {
    match is_or_will_be_up {
        true => Drift::IfNoted,
        false if remedies.has(Remedy::DriftSparesTheSuspended) => Drift::Never,
        false => Drift::Always,
    }
}

impl Driver {
    /// One round over all sandboxes of this gateway, one after another. A failure concerns one sandbox only.
    pub(super) async fn reconcile(&self) -> Result<(), DriverError> {
        for listed in self.find_all().await? {
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
        match self.admit(sandbox.namespace()).await {
            Err(DriverError::Precondition(why)) => return self.suspend_for(version, &sandbox, &why).await,
            result => result?,
        }
        let marker = Marker::of(&sandbox);
        match marker.map(|m| m.phase) {
            Some(Phase::Releasing) => return self.finish_releasing(version, &sandbox).await,
            Some(Phase::Suspending) => return self.finish_suspending(version, &sandbox).await,
            _ => {}
        }
        let should_run = sandbox.should_run();
        if let Some(why) =
            self.fence_trouble(&sandbox, drift(should_run || marker.is_some(), self.config.remedies)).await
        {
            return self.suspend_for(version, &sandbox, why).await;
        }
        if let Some(marker) = marker {
            return self.finish_bootstrap(version, &sandbox, &marker).await;
        }
        if !should_run {
            let generation = sandbox.annotation(names::GENERATION);
            return self.delete_generations(sandbox.namespace(), sandbox.id(), &[generation]).await;
        }
        let workload: Read<Pod> = self.kube.get(PODS, ns, sandbox.name()).await.into();
        let parts = self.parts(&sandbox).await;
        if let Some(why) = lost_dependency(&sandbox, &workload, &parts) {
            return self.suspend_for(version, &sandbox, why).await;
        }
        let availability = parts.availability();
        if availability != Availability::Unknown {
            let change = markers::readiness_changed(&sandbox, availability == Availability::Available);
            if let Some(change) = change {
                self.patch_or_leave(version, &sandbox, Change::of(change)).await?;
            }
        }
        Ok(())
    }

    /// A stop that was left at releasing: its supervisor Pod goes, then the run switch.
    async fn finish_releasing(&self, version: SandboxVersion, sandbox: &Sandbox) -> Result<(), DriverError> {
        self.delete_supervisor(sandbox.namespace(), sandbox.id()).await?;
        let change = Change::of(markers::suspending(now_ms())).run(version, false);
        self.patch_or_leave(version, sandbox, change).await
    }

    /// A stop that was left at suspending: complete once the workload Pod is gone.
    async fn finish_suspending(&self, version: SandboxVersion, sandbox: &Sandbox) -> Result<(), DriverError> {
        let ns = sandbox.namespace();
        if self.kube.get::<Pod>(PODS, Some(ns), sandbox.workload_pod()).await?.is_some() {
            return Ok(());
        }
        self.delete_generations(ns, sandbox.id(), &[sandbox.annotation(names::GENERATION)]).await?;
        self.patch_or_leave(version, sandbox, Change::of(markers::stop_completed())).await
    }

    /// A bootstrap that nobody completed: completed now, or given up when stale.
    async fn finish_bootstrap(
        &self,
        version: SandboxVersion,
        sandbox: &Sandbox,
        marker: &Marker,
    ) -> Result<(), DriverError> {
        if ready_to_complete(sandbox, self.config.remedies)
            && self.parts(sandbox).await.availability() == Availability::Available
        {
            return self.patch_or_leave(version, sandbox, Change::of(markers::bootstrap_completed())).await;
        }
        let installed = sandbox.annotation(names::SUPERVISOR_UID).is_some();
        match reap(marker, installed, now_ms(), self.config.remedies) {
            Reap::Wait => Ok(()),
            Reap::Suspend => self.suspend_for(version, sandbox, "the bootstrap did not complete in time").await,
            Reap::Delete => {
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
        }
    }

    /// What is wrong with the fences, if anything.
    async fn fence_trouble(&self, sandbox: &Sandbox, drift: Drift) -> Option<&'static str> {
        let [(workload, workload_spec), (supervisor, supervisor_spec)] = fences();
        let ns = Some(sandbox.namespace());
        let read: Read<_> = self.kube.get(NETWORK_POLICIES, ns, workload).await.into();
        let egress: Read<_> = self.kube.get(NETWORK_POLICIES, ns, supervisor).await.into();
        if is_altered(&read, &workload_spec) || is_altered(&egress, &supervisor_spec) {
            Some("a fence was altered")
        } else if has_drifted(sandbox, &read, drift) {
            Some("the workload fence was replaced")
        } else {
            None
        }
    }

    /// The suspension after a lost dependency: straight to stop/suspending, whatever was under way. The Pods are left
    /// to the agent-sandbox controller, the completion to a later round.
    async fn suspend_for(&self, version: SandboxVersion, sandbox: &Sandbox, why: &str) -> Result<(), DriverError> {
        tracing::warn!(sandbox_id = sandbox.id(), why, "sandbox is suspended");
        let why = Some(why).filter(|_| self.config.remedies.has(Remedy::SuspensionSaysWhy));
        let change = Change::of(markers::suspending_because(now_ms(), why)).run(version, false);
        self.patch_or_leave(version, sandbox, change).await
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::resource::{NetworkPolicy, View};
    use serde_json::{Value, json};

    const NOW: i64 = 1_790_000_000_000;

    #[test]
    fn a_stale_create_is_deleted_and_any_other_stale_bootstrap_is_suspended() {
        let marker =
            |operation, age_ms| Marker { operation, phase: Phase::Released, started_at_ms: Some(NOW - age_ms) };
        for (operation, age_ms, expected) in [
            (Operation::Create, 299_999, Reap::Wait),
            (Operation::Create, 300_000, Reap::Delete),
            (Operation::Restart, 299_999, Reap::Wait),
            (Operation::Restart, 300_000, Reap::Suspend),
            (Operation::Stop, 300_000, Reap::Suspend),
            (Operation::Unknown, 300_000, Reap::Suspend),
            (Operation::Missing, 300_000, Reap::Suspend),
        ] {
            assert_eq!(
                reap(&marker(operation, age_ms), true, NOW, Remedies::as_reported()),
                expected,
                "{operation:?} {age_ms}"
            );
        }
        let (stale, kept) = (marker(Operation::Create, 300_000), Remedy::InstalledCreateIsKept);
        let kept = Remedies::as_reported().with(kept);
        assert_eq!(reap(&stale, true, NOW, kept), Reap::Suspend, "somebody may use it");
        assert_eq!(reap(&stale, false, NOW, kept), Reap::Delete, "nothing of value is in it");
        let stays = Remedies::as_reported().with(Remedy::StaleCreatesStay);
        assert_eq!(reap(&stale, false, NOW, stays), Reap::Wait);
    }

    #[test]
    fn a_running_sandbox_keeps_running_only_with_its_own_pods_and_all_it_depends_on() {
        let annotations = json!({names::WORKLOAD_UID: "w", names::SUPERVISOR_UID: "s"});
        let cr: Sandbox = serde_json::from_value(json!({"metadata": {"annotations": annotations}})).expect("a Sandbox");
        let pod = |uid: &str, phase: &str, ready: &str| -> Read<Pod> {
            let status = json!({"phase": phase, "conditions": [{"type": "Ready", "status": ready}]});
            Read::There(serde_json::from_value(json!({"metadata": {"uid": uid}, "status": status})).expect("a Pod"))
        };
        let policy = || Read::There(NetworkPolicy { metadata: Default::default(), spec: Value::Null, status: None });
        let service = || Read::There(View { metadata: Default::default(), spec: serde::de::IgnoredAny, status: None });
        let parts = |supervisor| Parts {
            supervisor,
            service: service(),
            workload_fence: policy(),
            supervisor_egress: policy(),
        };
        let running = |uid| pod(uid, "Running", "True");
        assert_eq!(lost_dependency(&cr, &running("w"), &parts(running("s"))), None);
        assert_eq!(
            lost_dependency(&cr, &running("w"), &parts(pod("s", "Running", "False"))),
            None,
            "degraded is not lost"
        );
        assert_eq!(lost_dependency(&cr, &Read::Unread, &parts(Read::Unread)), None, "unread is not lost");
        for (workload, parts) in [
            (running("x"), parts(running("s"))),
            (Read::Absent, parts(running("s"))),
            (running("w"), parts(running("x"))),
            (running("w"), parts(Read::Absent)),
            (running("w"), parts(pod("s", "Failed", "False"))),
            (running("w"), Parts { service: Read::Absent, ..parts(running("s")) }),
            (running("w"), Parts { supervisor_egress: Read::Absent, ..parts(running("s")) }),
        ] {
            assert!(lost_dependency(&cr, &workload, &parts).is_some(), "{workload:?} {parts:?}");
        }
        let unnoted = Sandbox::default();
        assert!(lost_dependency(&unnoted, &running("w"), &parts(running("s"))).is_some(), "no uid noted");
    }
}
