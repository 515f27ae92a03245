//! StopSandbox, and the same steps as part of a start.
use super::error::DriverError;
use super::kube_calls::{Change, PODS, SECRETS, sandboxes};
use super::markers::{self, Marker, Phase};
use super::names::{self, pull_secret_copy, sandbox_secret, supervisor_secret};
use super::resource::{Pod, Sandbox, SandboxVersion};
use super::{Driver, Mode, now_ms};
use crate::remedy::{Remedies, Remedy};
use kube::api::{DeleteParams, Preconditions, PropagationPolicy};
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// Seconds that a Pod may take to end if it says nothing.
const DEFAULT_GRACE_S: u64 = 30;
/// What is waited for beyond a Pod's grace.
const MARGIN: Duration = Duration::from_secs(30);
const FIRST_POLL: Duration = Duration::from_millis(250);
const LONGEST_POLL: Duration = Duration::from_secs(2);
const SUPERVISOR_POLL: Duration = Duration::from_millis(100);

fn limit(grace_s: Option<u64>) -> Duration {
    Duration::from_secs(grace_s.unwrap_or(DEFAULT_GRACE_S)) + MARGIN
}

/// What a stop has to do before it waits, one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Left {
    /// Note that it has begun: `stop/releasing`.
    begin: bool,
    /// Delete the supervisor's Pod and wait until it is gone: it ends its work while the workload it talks to is still there.
    release: bool,
    /// Switch the resource off: `stop/suspending`.
    suspend: bool,
}

/// Where a stop takes up a resource, given the phase of its marker: what an earlier stop has done is not done again.
/// Without the remedy `supervisor-goes-first` the resource is switched off at once.
fn left(phase: Option<Phase>, remedies: Remedies) -> Left {
    let has_begun = matches!(phase, Some(Phase::Releasing | Phase::Suspending));
    let suspend = phase != Some(Phase::Suspending);
    let release = suspend && remedies.has(Remedy::SupervisorGoesFirst);
    Left { begin: release && !has_begun, release, suspend }
}

/// May a resource that is switched off and has no workload Pod yet get one? A controller that has not heard of the switch may
/// make it anew; one that has reported on the present generation has. Without the remedy `stop-is-observed` nobody asks.
pub(super) fn may_get_a_pod(sandbox: &Sandbox, remedies: Remedies) -> bool {
    !sandbox.is_observed() && remedies.has(Remedy::StopIsObserved)
}

/// Has the resource stopped, given whether its workload Pod is gone? `v1beta1` has to say so at its present generation;
/// `v1alpha1` has no way to say it. Without the remedy `stop-waits-for-the-pod` the word of `v1beta1` is enough.
fn has_stopped(version: SandboxVersion, sandbox: &Sandbox, pod_gone: bool, remedies: Remedies) -> bool {
    match version {
        SandboxVersion::V1alpha1 => pod_gone && !may_get_a_pod(sandbox, remedies),
        SandboxVersion::V1beta1 if remedies.has(Remedy::GoneIsStopped) => pod_gone,
        SandboxVersion::V1beta1 => {
            sandbox.has_current("Suspended", "True") && (pod_gone || !remedies.has(Remedy::StopWaitsForThePod))
        }
    }
}

/// Will it never stop, since its Pod belongs to somebody else?
fn cannot_stop(sandbox: &Sandbox) -> bool {
    sandbox.current_condition("Suspended").is_some_and(|c| c.status == "False" && c.reason == "PodNotOwned")
}

impl Driver {
    /// Stops the sandbox and waits until its Pods are gone. A stopped one is stopped again: the marker reappears.
    #[tracing::instrument(name = "kubernetes.stop_sandbox", skip_all, fields(sandbox_id = id, sandbox_name = name))]
    pub(super) async fn stop_sandbox(&self, id: &str, name: &str, epoch: u64) -> Result<(), DriverError> {
        let _gate = self.gates.enter(id).await;
        let mut found = self.find(id).await?;
        if found.is_empty() {
            return Err(DriverError::NotFound(format!("sandbox {id} does not exist")));
        }
        self.stop_resource(&found.swap_remove(0), self.epoch(epoch)).await
    }

    /// The stop of this resource, as just listed; the caller holds the sandbox's gate. A stop that only is a part of
    /// something else has no lifecycle epoch: 0.
    pub(super) async fn stop_resource(&self, sandbox: &Sandbox, epoch: u64) -> Result<(), DriverError> {
        let version = self.version().await?;
        let (ns, resource, id) = (sandbox.namespace(), sandbox.name(), sandbox.id());
        let left = left(Marker::of(sandbox).map(|m| m.phase), self.config.remedies);
        if left.begin {
            let begun = Change::of(markers::stop_begun(now_ms()).of_epoch(epoch));
            self.kube.patch_retrying(version, ns, resource, &begun).await?;
        }
        tracing::info!(sandbox_api_version = %version.as_str(), "Prepared Kubernetes sandbox stop");
        if left.release {
            self.delete_supervisor(ns, id).await?;
        }
        if left.suspend {
            let suspend = Change::of(markers::suspending(now_ms()).of_epoch(epoch)).run(version, false);
            self.kube.patch_retrying(version, ns, resource, &suspend).await?;
        }
        let stopped = self.wait_until_stopped(version, sandbox).await?;
        self.delete_generations(ns, id, &[stopped.annotation(names::GENERATION)]).await?;
        self.kube.patch_retrying(version, ns, resource, &Change::of(markers::stop_completed().of_epoch(epoch))).await?;
        Ok(())
    }

    /// Polls resource and workload Pod until the stop is complete; the resource as last read.
    async fn wait_until_stopped(&self, version: SandboxVersion, listed: &Sandbox) -> Result<Sandbox, DriverError> {
        let (ns, resource, pod) = (listed.namespace(), listed.name(), listed.workload_pod());
        let limit = limit(listed.spec.pod_template.spec.termination_grace_period_seconds);
        let deadline = Instant::now() + limit;
        let mut pause = FIRST_POLL;
        loop {
            let read = self.kube.get::<Sandbox>(sandboxes(version), Some(ns), resource).await?;
            let sandbox = read.ok_or_else(|| DriverError::NotFound(format!("sandbox {ns}/{resource} was deleted")))?;
            if cannot_stop(&sandbox) {
                return Err(DriverError::Message(format!("Pod {ns}/{pod} is not owned by the sandbox of its name")));
            }
            let gone = self.kube.get::<Pod>(PODS, Some(ns), pod).await?.is_none();
            if has_stopped(version, &sandbox, gone, self.config.remedies) {
                return Ok(sandbox);
            }
            if Instant::now() + pause > deadline {
                let seconds = limit.as_secs();
                let what =
                    format!("sandbox {ns}/{resource} did not stop within {seconds} s (workload Pod gone: {gone})");
                return Err(DriverError::Message(what));
            }
            sleep(pause).await;
            pause = (pause * 2).min(LONGEST_POLL);
        }
    }

    /// Deletes the supervisor Pod, if there is one, and waits until it is gone.
    pub(super) async fn delete_supervisor(&self, namespace: &str, id: &str) -> Result<(), DriverError> {
        self.delete_supervisor_if(namespace, id, |_| true).await
    }

    /// The same for a Pod that `goes`.
    pub(super) async fn delete_supervisor_if(
        &self,
        namespace: &str,
        id: &str,
        goes: impl FnOnce(&Pod) -> bool,
    ) -> Result<(), DriverError> {
        let name = names::supervisor_pod(id);
        let Some(pod) = self.kube.get::<Pod>(PODS, Some(namespace), &name).await?.filter(goes) else { return Ok(()) };
        let params = DeleteParams {
            propagation_policy: Some(PropagationPolicy::Foreground),
            preconditions: Some(Preconditions { uid: Some(pod.uid().to_owned()), resource_version: None }),
            ..Default::default()
        };
        match self.kube.delete(PODS, Some(namespace), &name, &params).await {
            Err(e) if e.is_not_found() => return Ok(()),
            result => result?,
        }
        let limit = limit(pod.spec.termination_grace_period_seconds);
        let deadline = Instant::now() + limit;
        loop {
            match self.kube.get::<Pod>(PODS, Some(namespace), &name).await? {
                Some(there) if there.uid() == pod.uid() => {}
                _ => return Ok(()),
            }
            if Instant::now() + SUPERVISOR_POLL > deadline {
                let seconds = limit.as_secs();
                let what = format!("supervisor Pod {namespace}/{name} was not deleted within {seconds} s");
                return Err(DriverError::Message(what));
            }
            sleep(SUPERVISOR_POLL).await;
        }
    }

    /// Deletes the supervisor Pod and the Secrets of these generations.
    pub(super) async fn delete_generations(
        &self,
        namespace: &str,
        id: &str,
        generations: &[Option<&str>],
    ) -> Result<(), DriverError> {
        self.delete_supervisor(namespace, id).await?;
        self.delete_secrets(namespace, id, generations).await
    }

    /// Deletes the Secrets of these generations.
    pub(super) async fn delete_secrets(
        &self,
        namespace: &str,
        id: &str,
        generations: &[Option<&str>],
    ) -> Result<(), DriverError> {
        for generation in generations.iter().flatten().filter(|g| !g.is_empty()) {
            self.kube.delete_if_there(SECRETS, namespace, &sandbox_secret(id, generation)).await?;
            self.kube.delete_if_there(SECRETS, namespace, &supervisor_secret(id, generation)).await?;
            if let Mode::Managed { .. } = self.config.mode {
                for secret in &self.config.image_pull_secrets {
                    self.kube.delete_if_there(SECRETS, namespace, &pull_secret_copy(secret, id, generation)).await?;
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn suspended(status: &str, reason: &str, observed: i64) -> Sandbox {
        let condition =
            json!({"type": "Suspended", "status": status, "reason": reason, "observedGeneration": observed});
        let object = json!({"metadata": {"generation": 3}, "status": {"conditions": [condition]}});
        serde_json::from_value(object).expect("a Sandbox")
    }

    #[test]
    fn v1beta1_has_stopped_when_it_says_so_at_its_generation_and_the_pod_is_gone() {
        use SandboxVersion::*;
        let says_so = suspended("True", "PodTerminated", 3);
        for (version, sandbox, pod_gone, stopped) in [
            (V1beta1, &says_so, true, true),
            (V1beta1, &says_so, false, false),
            (V1beta1, &suspended("True", "PodTerminated", 2), true, false),
            (V1beta1, &suspended("False", "PodTerminating", 3), true, false),
            (V1beta1, &Sandbox::default(), true, false),
            (V1alpha1, &Sandbox::default(), true, true),
            (V1alpha1, &says_so, false, false),
        ] {
            let has = |remedies| has_stopped(version, sandbox, pod_gone, remedies);
            assert_eq!(has(Remedies::as_reported()), stopped, "{version:?} gone={pod_gone} {sandbox:?}");
        }
        let wrong = Remedies::as_reported().with(Remedy::GoneIsStopped);
        assert!(has_stopped(V1beta1, &Sandbox::default(), true, wrong), "the mutant asks nobody else");
        let before = Remedies::as_reported().without(Remedy::StopWaitsForThePod);
        assert!(has_stopped(V1beta1, &says_so, false, before), "before the fix a Pod that still ends did not matter");
        assert!(!has_stopped(V1alpha1, &says_so, false, before));
    }

    #[test]
    fn v1alpha1_has_stopped_once_its_controller_has_reported_on_the_present_generation() {
        let off = |conditions: Value| -> Sandbox {
            let object = json!({"metadata": {"generation": 3}, "status": {"conditions": conditions}});
            serde_json::from_value(object).expect("a Sandbox")
        };
        let ready = |observed: i64| json!([{"type": "Ready", "status": "True", "observedGeneration": observed}]);
        let observed = Remedies::as_reported().with(Remedy::StopIsObserved);
        for (sandbox, pod_gone, stopped) in [
            (off(ready(3)), true, true),
            (off(ready(3)), false, false),
            (off(ready(2)), true, false),
            (off(json!([{"type": "Ready", "status": "True"}])), true, false),
            (off(json!([])), true, false),
            (Sandbox::default(), true, false),
        ] {
            let has = |remedies| has_stopped(SandboxVersion::V1alpha1, &sandbox, pod_gone, remedies);
            assert_eq!(has(observed), stopped, "gone={pod_gone} {sandbox:?}");
            assert_eq!(has(Remedies::as_reported()), pod_gone, "as reported the Pod alone counts");
        }
    }

    #[test]
    fn b3_a_stop_takes_up_each_marker_where_it_stands() {
        let merged = Remedies::as_reported();
        let before = merged.without(Remedy::SupervisorGoesFirst);
        let what = |(begin, release, suspend)| Left { begin, release, suspend };
        for (row, phase, expected, expected_before) in [
            ("running, or stopped: no marker", None, (true, true, true), (false, false, true)),
            ("create/preparing, restart/preparing", Some(Phase::Preparing), (true, true, true), (false, false, true)),
            ("create/released, restart/released", Some(Phase::Released), (true, true, true), (false, false, true)),
            ("a phase of another driver", Some(Phase::Unknown), (true, true, true), (false, false, true)),
            ("stop/releasing", Some(Phase::Releasing), (false, true, true), (false, false, true)),
            (
                "stop/suspending, or a lost dependency",
                Some(Phase::Suspending),
                (false, false, false),
                (false, false, false),
            ),
        ] {
            assert_eq!(left(phase, merged), what(expected), "{row}");
            assert_eq!(left(phase, before), what(expected_before), "{row}, as it was before the fix");
        }
    }

    #[test]
    fn a_pod_of_somebody_else_is_never_waited_for() {
        assert!(cannot_stop(&suspended("False", "PodNotOwned", 3)));
        assert!(!cannot_stop(&suspended("False", "PodNotOwned", 2)), "said of an older generation");
        assert!(!cannot_stop(&suspended("False", "PodTerminating", 3)));
    }

    #[test]
    fn the_wait_is_the_grace_of_the_pod_and_half_a_minute() {
        assert_eq!(limit(None), Duration::from_secs(60));
        assert_eq!(limit(Some(0)), Duration::from_secs(30));
        assert_eq!(limit(Some(300)), Duration::from_secs(330));
    }
}
