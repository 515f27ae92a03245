//! What a sandbox depends on, read from the cluster, and the pure rules that judge it.
use super::Driver;
use super::convert::{Availability, Dependencies, Presence};
use super::kube_calls::{NETWORK_POLICIES, PODS, Read, SERVICES};
use super::names;
use super::resource::{Metadata, NetworkPolicy, Pod, Sandbox};

/// The four objects whose state makes up a sandbox's availability.
#[derive(Debug)]
pub(super) struct Parts {
    pub(super) supervisor: Read<Pod>,
    pub(super) service: Read<Metadata>,
    pub(super) workload_fence: Read<NetworkPolicy>,
    pub(super) supervisor_egress: Read<NetworkPolicy>,
}

/// A supervisor Pod: ready is Available, running Degraded, all else Unavailable.
pub(super) fn supervisor_availability(read: &Read<Pod>) -> Availability {
    match read {
        Read::Unread => Availability::Unknown,
        Read::Absent => Availability::Unavailable,
        Read::There(pod) if pod.is_terminating() => Availability::Unavailable,
        Read::There(pod) if pod.is_ready() => Availability::Available,
        Read::There(pod) if pod.status.as_ref().is_some_and(|s| s.phase == "Running") => Availability::Degraded,
        Read::There(_) => Availability::Unavailable,
    }
}

/// An object that only has to be there.
fn presence<T>(read: &Read<T>) -> Availability {
    match read {
        Read::There(_) => Availability::Available,
        Read::Absent => Availability::Unavailable,
        Read::Unread => Availability::Unknown,
    }
}

impl Parts {
    /// Unavailable outweighs Degraded, that Unknown, that Available.
    pub(super) fn availability(&self) -> Availability {
        supervisor_availability(&self.supervisor)
            .max(presence(&self.service))
            .max(presence(&self.workload_fence))
            .max(presence(&self.supervisor_egress))
    }
}

/// Is this Pod the one with the uid that the resource notes? Without a noted uid nothing can be.
pub(super) fn identity(read: &Read<Pod>, noted: Option<&str>) -> Availability {
    match (read, noted) {
        (Read::Unread, Some(_)) => Availability::Unknown,
        (Read::There(pod), Some(uid)) if pod.uid() == uid => Availability::Available,
        _ => Availability::Unavailable,
    }
}

impl Driver {
    /// Reads the four parts at once.
    pub(super) async fn parts(&self, sandbox: &Sandbox) -> Parts {
        let (id, ns) = (sandbox.id(), Some(sandbox.namespace()));
        let (pod, service) = (names::supervisor_pod(id), names::boundary_service(id));
        let (supervisor, service, workload_fence, supervisor_egress) = tokio::join!(
            self.kube.get(PODS, ns, &pod),
            self.kube.get(SERVICES, ns, &service),
            self.kube.get(NETWORK_POLICIES, ns, names::WORKLOAD_FENCE),
            self.kube.get(NETWORK_POLICIES, ns, names::SUPERVISOR_EGRESS),
        );
        Parts {
            supervisor: supervisor.into(),
            service: service.into(),
            workload_fence: workload_fence.into(),
            supervisor_egress: supervisor_egress.into(),
        }
    }

    /// What an event's snapshot needs to know of the present: six reads at once.
    pub(super) async fn dependencies(&self, sandbox: &Sandbox) -> Dependencies {
        let ns = Some(sandbox.namespace());
        let supervisor = names::supervisor_pod(sandbox.id());
        // The supervisor Pod is read twice, for its state and for its uid, by two checks that know nothing of each other.
        let (parts, workload, supervisor) = tokio::join!(
            self.parts(sandbox),
            self.kube.get::<Pod>(PODS, ns, sandbox.name()),
            self.kube.get::<Pod>(PODS, ns, &supervisor),
        );
        let workload = workload.into();
        let identity = identity(&workload, sandbox.annotation(names::WORKLOAD_UID))
            .max(identity(&supervisor.into(), sandbox.annotation(names::SUPERVISOR_UID)));
        let workload = match workload {
            Read::There(_) => Presence::Present,
            Read::Absent => Presence::Absent,
            Read::Unread => Presence::Unread,
        };
        Dependencies { availability: parts.availability(), identity, workload }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn pod(metadata: Value, phase: &str, ready: &str) -> Read<Pod> {
        let status = json!({"phase": phase, "conditions": [{"type": "Ready", "status": ready}]});
        Read::There(serde_json::from_value(json!({"metadata": metadata, "spec": {}, "status": status})).expect("a Pod"))
    }

    #[test]
    fn a_supervisor_pod_is_as_available_as_it_is_ready() {
        use Availability::*;
        let ending = json!({"deletionTimestamp": "2026-08-21T10:00:00Z"});
        for (read, availability) in [
            (pod(json!({}), "Running", "True"), Available),
            (pod(json!({}), "Running", "False"), Degraded),
            (pod(json!({}), "Pending", "False"), Unavailable),
            (pod(json!({}), "Failed", "False"), Unavailable),
            (pod(json!({}), "Succeeded", "False"), Unavailable),
            (pod(ending, "Running", "True"), Unavailable),
            (Read::There(Pod::default()), Unavailable),
            (Read::Absent, Unavailable),
            (Read::Unread, Unknown),
        ] {
            assert_eq!(supervisor_availability(&read), availability, "{read:?}");
        }
    }

    #[test]
    fn the_worst_part_decides_in_the_order_unavailable_degraded_unknown_available() {
        use Availability::*;
        fn there<P: Default, U>() -> Read<super::super::resource::View<P, U>> {
            Read::There(super::super::resource::View { metadata: Default::default(), spec: P::default(), status: None })
        }
        let ready = || pod(json!({}), "Running", "True");
        let running = || pod(json!({}), "Running", "False");
        let all = |supervisor, service, workload_fence, supervisor_egress| {
            Parts { supervisor, service, workload_fence, supervisor_egress }.availability()
        };
        assert_eq!(all(ready(), there(), there(), there()), Available);
        assert_eq!(all(running(), there(), there(), there()), Degraded);
        assert_eq!(all(ready(), Read::Unread, there(), there()), Unknown);
        assert_eq!(all(running(), Read::Unread, there(), there()), Degraded);
        assert_eq!(all(running(), there(), Read::Absent, there()), Unavailable);
        assert_eq!(all(ready(), there(), Read::Unread, Read::Absent), Unavailable);
        assert_eq!(all(Read::Unread, there(), there(), there()), Unknown);
        assert_eq!(all(ready(), Read::Absent, there(), there()), Unavailable);
    }

    #[test]
    fn a_pod_is_the_noted_one_only_by_its_uid() {
        use Availability::*;
        let this = pod(json!({"uid": "u"}), "Running", "True");
        for (read, noted, expected) in [
            (&this, Some("u"), Available),
            (&this, Some("v"), Unavailable),
            (&this, None, Unavailable),
            (&Read::Absent, Some("u"), Unavailable),
            (&Read::Absent, None, Unavailable),
            (&Read::Unread, Some("u"), Unknown),
            (&Read::Unread, None, Unavailable),
        ] {
            assert_eq!(identity(read, noted), expected, "{read:?} {noted:?}");
        }
    }
}
