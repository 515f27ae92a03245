//! The two NetworkPolicies of a namespace that fence its Pods in. All sandboxes of the namespace share them; nobody owns
//! them.
use super::Driver;
use super::error::DriverError;
use super::kube_calls::{NETWORK_POLICIES, Read};
use super::names::{self, *};
use super::resource::{NetworkPolicy, Sandbox};
use serde_json::{Value, json};

/// Name and spec of the fence of the workload Pods: only their own supervisor, in and out.
fn workload_fence() -> (&'static str, Value) {
    let supervisors = json!({"podSelector": {"matchLabels": {COMPONENT: COMPONENT_SUPERVISOR}}});
    let spec = json!({
        "podSelector": {"matchLabels": {COMPONENT: COMPONENT_WORKLOAD}},
        "policyTypes": ["Ingress", "Egress"],
        "ingress": [{"from": [supervisors]}],
        "egress": [{"to": [supervisors]}],
    });
    (WORKLOAD_FENCE, spec)
}

/// Name and spec of the policy of the supervisor Pods: out to anywhere, in only from workloads.
fn supervisor_egress() -> (&'static str, Value) {
    let spec = json!({
        "podSelector": {"matchLabels": {COMPONENT: COMPONENT_SUPERVISOR}},
        "policyTypes": ["Ingress", "Egress"],
        "ingress": [{"from": [{"podSelector": {"matchLabels": {COMPONENT: COMPONENT_WORKLOAD}}}]}],
        "egress": [{}],
    });
    (SUPERVISOR_EGRESS, spec)
}

/// Both, in the order in which they are read and made.
pub(super) fn fences() -> [(&'static str, Value); 2] {
    [workload_fence(), supervisor_egress()]
}

/// Is this fence another than the one that this driver makes? An absent or unread one is not.
pub(super) fn is_altered(read: &Read<NetworkPolicy>, spec: &Value) -> bool {
    matches!(read, Read::There(policy) if policy.spec != *spec)
}

/// When a fence counts as another than the noted one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Drift {
    /// It does not matter.
    Never,
    /// If it differs from what is noted; without a note (the generation is not installed yet) it does not.
    IfNoted,
    /// If it differs from what is noted, even if that is nothing.
    Always,
}

/// Is the workload fence another object, or another generation of it, than the one that the sandbox started behind?
/// Without the fence there is nothing to compare.
pub(super) fn has_drifted(sandbox: &Sandbox, read: &Read<NetworkPolicy>, drift: Drift) -> bool {
    let Read::There(policy) = read else { return false };
    let (uid, generation) = fence_identity(policy);
    let differs = |key, now: &str| match (sandbox.annotation(key), drift) {
        (_, Drift::Never) => false,
        (None, drift) => drift == Drift::Always,
        (Some(then), _) => then != now,
    };
    differs(names::NETWORK_POLICY_UID, &uid) || differs(names::NETWORK_POLICY_GENERATION, &generation)
}

/// Uid and generation of a fence, as the annotations keep them.
pub(super) fn fence_identity(policy: &NetworkPolicy) -> (String, String) {
    (policy.uid().to_owned(), policy.metadata.generation.unwrap_or_default().to_string())
}

impl Driver {
    /// Makes sure that both fences are there and are as they should be: GET, else POST; a POST that lost against
    /// another is read again and compared.
    pub(super) async fn ensure_fences(&self, namespace: &str) -> Result<(), DriverError> {
        for (name, spec) in fences() {
            let fence = match self.kube.get::<NetworkPolicy>(NETWORK_POLICIES, Some(namespace), name).await? {
                Some(fence) => fence,
                None => self.make_fence(namespace, name, &spec).await?,
            };
            if fence.spec != spec {
                let message = format!("network policy {namespace}/{name} differs from the one that sandboxes need");
                return Err(DriverError::Precondition(message));
            }
        }
        Ok(())
    }

    async fn make_fence(&self, namespace: &str, name: &str, spec: &Value) -> Result<NetworkPolicy, DriverError> {
        let object = json!({
            "apiVersion": "networking.k8s.io/v1",
            "kind": "NetworkPolicy",
            "metadata": {"name": name, "namespace": namespace, "labels": {MANAGED_BY: MANAGED_BY_OPENSHELL}},
            "spec": spec,
        });
        match self.kube.create(NETWORK_POLICIES, Some(namespace), &object).await {
            Err(e) if e.is_already_exists() => {
                let there = self.kube.get(NETWORK_POLICIES, Some(namespace), name).await?;
                there.ok_or_else(|| DriverError::Message(format!("network policy {namespace}/{name} came and went")))
            }
            result => Ok(result?),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(uid: &str, generation: i64, spec: Value) -> Read<NetworkPolicy> {
        let object = json!({"metadata": {"uid": uid, "generation": generation}, "spec": spec});
        Read::There(serde_json::from_value(object).expect("a policy"))
    }
    fn behind(uid: &str, generation: &str) -> Sandbox {
        let annotations = json!({NETWORK_POLICY_UID: uid, NETWORK_POLICY_GENERATION: generation});
        serde_json::from_value(json!({"metadata": {"annotations": annotations}})).expect("a Sandbox")
    }

    #[test]
    fn a_fence_is_altered_when_it_is_there_and_differs() {
        let [(_, spec), (_, other)] = fences();
        assert!(!is_altered(&policy("u", 1, spec.clone()), &spec));
        assert!(is_altered(&policy("u", 1, other), &spec));
        assert!(!is_altered(&Read::Absent, &spec) && !is_altered(&Read::Unread, &spec));
    }

    #[test]
    fn a_fence_has_drifted_when_its_uid_or_generation_is_not_the_noted_one() {
        let cr = behind("u", "1");
        for (read, drifted) in [
            (policy("u", 1, json!({})), false),
            (policy("u", 2, json!({})), true),
            (policy("v", 1, json!({})), true),
            (Read::Absent, false),
            (Read::Unread, false),
        ] {
            assert_eq!(has_drifted(&cr, &read, Drift::IfNoted), drifted, "{read:?}");
            assert_eq!(has_drifted(&cr, &read, Drift::Always), drifted, "{read:?}");
            assert!(!has_drifted(&cr, &read, Drift::Never), "{read:?}");
        }
        let (nothing, fence) = (Sandbox::default(), policy("u", 1, json!({})));
        assert!(!has_drifted(&nothing, &fence, Drift::IfNoted), "nothing noted yet");
        assert!(has_drifted(&nothing, &fence, Drift::Always), "nothing noted any more");
    }
}
