//! What a round of the reconciler does about one sandbox, as a pure function of what it has read.
//!
//! Rules are tried in the order of [`next`]; the first that matches acts, and no other in that round. An object is read
//! only once a rule asks for it, so a round that an early rule ends costs no more than that rule.
use super::super::convert::Availability;
use super::super::fences::{Drift, fences, has_drifted, is_altered};
use super::super::kube_calls::Read;
use super::super::markers::{Marker, Operation, Phase, ready_to_complete};
use super::super::names;
use super::super::readiness::{Parts, identity};
use super::super::resource::{NetworkPolicy, Pod, Sandbox};
use super::super::stop::may_get_a_pod;
use crate::remedy::{Remedies, Remedy};

/// What a round knows of a sandbox; `None` is what it has not read yet.
#[derive(Debug)]
pub(super) struct Seen<'a> {
    /// The resource, as just read.
    pub(super) sandbox: &'a Sandbox,
    /// Why its namespace may hold no sandbox of this gateway (any more).
    pub(super) refused: Option<String>,
    /// The workload fence and the supervisor's policy.
    pub(super) fences: Option<[Read<NetworkPolicy>; 2]>,
    /// Is the Pod there that the controller tracks?
    pub(super) tracked_pod: Option<bool>,
    /// The workload Pod.
    pub(super) workload: Option<Read<Pod>>,
    /// What the sandbox depends on.
    pub(super) parts: Option<Parts>,
}

impl<'a> Seen<'a> {
    pub(super) fn new(sandbox: &'a Sandbox) -> Self {
        Seen { sandbox, refused: None, fences: None, tracked_pod: None, workload: None, parts: None }
    }
}

/// What a rule has to know before it can decide.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    /// [`Seen::fences`].
    Fences,
    /// [`Seen::tracked_pod`].
    TrackedPod,
    /// [`Seen::workload`].
    Workload,
    /// [`Seen::parts`].
    Parts,
}

/// What the round does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// Nothing, until something changes.
    Nothing,
    /// Straight to stop/suspending, for this reason. The Pods are left to the controller.
    Suspend(String),
    /// Go on with a stop at releasing: the supervisor Pod goes, then the run switch.
    FinishReleasing,
    /// Complete a stop whose workload Pod is gone.
    CompleteStop,
    /// Complete a create or restart whose sandbox is up.
    CompleteBootstrap,
    /// Delete the resource of a create that nobody will complete.
    DeleteResource,
    /// Delete companions that a suspended sandbox does not need.
    CleanUp,
    /// Publish whether the sandbox is available.
    Publish(bool),
}

/// The next step of a round.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// Read this, and ask again.
    Read(Wanted),
    /// Do this, and leave the rest to the next round.
    Act(Action),
}

/// The rules, a to k. `now_ms` is wall clock time.
pub(super) fn next(seen: &Seen<'_>, now_ms: i64, remedies: Remedies) -> Next {
    use Next::{Act, Read};

    let (sandbox, marker) = (seen.sandbox, Marker::of(seen.sandbox));
    if let Some(why) = &seen.refused {
        return Act(Action::Suspend(why.clone()));
    }
    match (marker.map(|m| m.phase), seen.tracked_pod) {
        (Some(Phase::Releasing), _) => return Act(Action::FinishReleasing),
        (Some(Phase::Suspending), None) => return Read(Wanted::TrackedPod),
        (Some(Phase::Suspending), Some(there)) => {
            let over = !there && !may_get_a_pod(sandbox, remedies);
            return Act(if over { Action::CompleteStop } else { Action::Nothing });
        }
        _ => {}
    }
    let should_run = sandbox.should_run();
    let Some(fences) = &seen.fences else { return Read(Wanted::Fences) };
    if let Some(why) = fence_trouble(sandbox, fences, drift(should_run || marker.is_some(), remedies)) {
        return Act(Action::Suspend(why.into()));
    }
    if let Some(marker) = marker {
        return bootstrap(seen, &marker, now_ms, remedies);
    }
    if !should_run {
        return Act(Action::CleanUp);
    }
    let Some(workload) = &seen.workload else { return Read(Wanted::Workload) };
    let Some(parts) = &seen.parts else { return Read(Wanted::Parts) };
    match (lost_dependency(sandbox, workload, parts, remedies), parts.availability()) {
        (Some(why), _) => Act(Action::Suspend(why.into())),
        // What could not be read is no news.
        (None, Availability::Unknown) => Act(Action::Nothing),
        (None, availability) => Act(Action::Publish(availability == Availability::Available)),
    }
}

/// A bootstrap that nobody completed: completed now, or given up when it cannot be any more, or is stale.
fn bootstrap(seen: &Seen<'_>, marker: &Marker, now_ms: i64, remedies: Remedies) -> Next {
    if ready_to_complete(seen.sandbox, remedies) {
        match seen.parts.as_ref().map(Parts::availability) {
            None => return Next::Read(Wanted::Parts),
            Some(Availability::Available) => return Next::Act(Action::CompleteBootstrap),
            Some(_) => {}
        }
    }
    if remedies.has(Remedy::EndedPodIsLost) {
        let Some(workload) = &seen.workload else { return Next::Read(Wanted::Workload) };
        let Some(parts) = &seen.parts else { return Next::Read(Wanted::Parts) };
        if let Some(why) = ended(seen.sandbox, workload, &parts.supervisor) {
            return Next::Act(Action::Suspend(why.into()));
        }
    }
    let installed = seen.sandbox.annotation(names::SUPERVISOR_UID).is_some();
    Next::Act(match reap(marker, installed, now_ms, remedies) {
        Reap::Wait => Action::Nothing,
        Reap::Suspend => Action::Suspend("the bootstrap did not complete in time".into()),
        Reap::Delete => Action::DeleteResource,
    })
}

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
///
/// As reported only the uid of the workload Pod counts, not whether it has ended (remedy `ended-pod-is-lost`).
fn lost_dependency(sandbox: &Sandbox, workload: &Read<Pod>, parts: &Parts, remedies: Remedies) -> Option<&'static str> {
    let other = |read, noted| identity(read, sandbox.annotation(noted)) == Availability::Unavailable;
    if other(workload, names::WORKLOAD_UID) {
        Some("the workload Pod is not the noted one")
    } else if other(&parts.supervisor, names::SUPERVISOR_UID) {
        Some("the supervisor Pod is not the noted one")
    } else if matches!(parts.service, Read::Absent) {
        Some("the boundary Service is missing")
    } else if parts.availability() == Availability::Unavailable {
        Some("a dependency is unavailable")
    } else if remedies.has(Remedy::EndedPodIsLost) {
        ended(sandbox, workload, &parts.supervisor)
    } else {
        None
    }
}

/// Has a Pod of the present generation ended? The reason, in words. Nothing restarts it, so no bootstrap will complete; a
/// Pod that is not noted may still be replaced.
fn ended(sandbox: &Sandbox, workload: &Read<Pod>, supervisor: &Read<Pod>) -> Option<&'static str> {
    let ended = |read: &Read<Pod>, noted| {
        let over = matches!(read, Read::There(pod) if pod.has_ended());
        over && identity(read, sandbox.annotation(noted)) == Availability::Available
    };
    if ended(workload, names::WORKLOAD_UID) {
        Some("the workload Pod has ended")
    } else if ended(supervisor, names::SUPERVISOR_UID) {
        Some("the supervisor Pod has ended")
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

/// What is wrong with the fences, if anything.
fn fence_trouble(sandbox: &Sandbox, read: &[Read<NetworkPolicy>; 2], drift: Drift) -> Option<&'static str> {
    let [(_, workload_spec), (_, supervisor_spec)] = fences();
    let [workload, supervisor] = read;
    if is_altered(workload, &workload_spec) || is_altered(supervisor, &supervisor_spec) {
        Some("a fence was altered")
    } else if has_drifted(sandbox, workload, drift) {
        Some("the workload fence was replaced")
    } else {
        None
    }
}

#[cfg(test)]
mod tests;
