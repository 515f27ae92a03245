//! What is to be done about nodes and pods, as functions of their states.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, NodeCondition, Pod, Taint, Toleration};
use serde_json::{Value, json};

const UNREACHABLE: &str = "node.kubernetes.io/unreachable";
const NOT_READY: &str = "node.kubernetes.io/not-ready";

fn condition<'a>(node: &'a Node, kind: &str) -> Option<&'a NodeCondition> {
    node.status.as_ref()?.conditions.iter().flatten().find(|condition| condition.type_ == kind)
}

/// The node's Ready is Unknown.
pub(super) fn unknown(node: &Node) -> bool {
    condition(node, "Ready").is_some_and(|ready| ready.status == "Unknown")
}

/// The pod's Ready is True.
pub(super) fn ready(pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
    conditions.into_iter().flatten().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

/// The conditions of a node that has fallen silent, where they are to change.
pub(super) fn silenced(node: &Node, silent: bool, now: &str) -> Option<Value> {
    if !silent || unknown(node) {
        return None;
    }
    let row = |kind: &str| {
        let (reason, message) = match condition(node, kind) {
            Some(_) => ("NodeStatusUnknown", "Kubelet stopped posting node status."),
            None => ("NodeStatusNeverUpdated", "Kubelet never posted node status."),
        };
        json!({"type": kind, "status": "Unknown", "reason": reason, "message": message, "lastTransitionTime": now})
    };
    Some(["Ready", "MemoryPressure", "DiskPressure", "PIDPressure"].into_iter().map(row).collect())
}

/// The node's taints, where they are to change: those of other kinds stay.
pub(super) fn taints(node: &Node, silent: bool, now: &str) -> Option<Value> {
    let ready = condition(node, "Ready").map(|ready| ready.status.as_str());
    let wanted = match (silent, ready) {
        (true, _) | (false, Some("Unknown")) => Some(UNREACHABLE),
        (false, Some("True")) => None,
        (false, _) => Some(NOT_READY),
    };
    let old = node.spec.as_ref().and_then(|spec| spec.taints.clone()).unwrap_or_default();
    let ours = |taint: &Taint| taint.key == UNREACHABLE || taint.key == NOT_READY;
    let fits = |taint: &Taint, effect: &str| Some(taint.key.as_str()) == wanted && taint.effect == effect;
    let mut next: Vec<Value> =
        old.iter().filter(|taint| !ours(taint)).map(|taint| serde_json::to_value(taint).unwrap_or_default()).collect();
    for (key, effect) in wanted.iter().flat_map(|key| [(key, "NoSchedule"), (key, "NoExecute")]) {
        next.push(match old.iter().find(|taint| fits(taint, effect)) {
            Some(taint) => serde_json::to_value(taint).unwrap_or_default(),
            None if effect == "NoExecute" => json!({"key": key, "effect": effect, "timeAdded": now}),
            None => json!({"key": key, "effect": effect}),
        });
    }
    let before: Vec<Value> = old.iter().map(|taint| serde_json::to_value(taint).unwrap_or_default()).collect();
    let same = before.len() == next.len() && before.iter().all(|taint| next.contains(taint));
    (!same).then_some(Value::Array(next))
}

fn driving(node: &Node) -> impl Iterator<Item = &Taint> {
    let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_ref());
    taints.into_iter().flatten().filter(|taint| taint.effect == "NoExecute")
}

/// Whether the node has a taint that drives pods away.
pub(super) fn drives_away(node: &Node) -> bool {
    driving(node).next().is_some()
}

/// How long the pod may stay on the node: for ever (`None`), or the shortest time for which it tolerates what drives
/// pods away.
pub(super) fn tolerates_for(pod: &Pod, node: &Node) -> Option<Duration> {
    let tolerations = pod.spec.as_ref().and_then(|spec| spec.tolerations.as_ref());
    let tolerations: Vec<&Toleration> = tolerations.into_iter().flatten().collect();
    let mut shortest = None::<Duration>;
    for taint in driving(node) {
        let mut tolerated = Some(Duration::ZERO);
        for toleration in tolerations.iter().filter(|toleration| super::super::scheduler::tolerates(toleration, taint))
        {
            // Negative periods count as none.
            let seconds = toleration.toleration_seconds.map(|s| Duration::from_secs(s.max(0).unsigned_abs()));
            tolerated = match (tolerated, seconds) {
                (Some(Duration::ZERO), seconds) => seconds,
                (Some(known), Some(seconds)) => Some(known.min(seconds)),
                (known, None) => known,
                (None, seconds) => seconds,
            };
        }
        shortest = match (shortest, tolerated) {
            (Some(known), Some(time)) => Some(known.min(time)),
            (known, None) => known,
            (None, time) => time,
        };
    }
    shortest
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(ready: &str, taints: Value) -> Node {
        let node = json!({
            "metadata": {"name": "n1"}, "spec": {"taints": taints},
            "status": {"conditions": [{"type": "Ready", "status": ready}]},
        });
        serde_json::from_value(node).expect("a node")
    }

    fn pod(tolerations: Value) -> Pod {
        serde_json::from_value(json!({"spec": {"containers": [], "tolerations": tolerations}})).expect("a pod")
    }

    #[test]
    fn a_silent_node_becomes_unknown_once() {
        assert!(silenced(&node("True", json!([])), false, "t").is_none());
        assert!(silenced(&node("Unknown", json!([])), true, "t").is_none());
        let conditions = silenced(&node("True", json!([])), true, "t").expect("changes");
        assert_eq!(conditions[0]["status"], "Unknown");
        assert_eq!(conditions[0]["reason"], "NodeStatusUnknown");
        assert_eq!(conditions[1]["reason"], "NodeStatusNeverUpdated");
    }

    #[test]
    fn taints_follow_readiness_and_leave_others_alone() {
        let other = json!({"key": "gpu", "effect": "NoSchedule"});
        let silent = taints(&node("Unknown", json!([other])), true, "t").expect("changes");
        let keys: Vec<&str> = silent.as_array().expect("a list").iter().filter_map(|t| t["key"].as_str()).collect();
        assert_eq!(keys, ["gpu", UNREACHABLE, UNREACHABLE]);
        let again = node(
            "Unknown",
            json!([other, {"key": UNREACHABLE, "effect": "NoSchedule"}, {"key": UNREACHABLE, "effect": "NoExecute"}]),
        );
        assert!(taints(&again, true, "t").is_none(), "already there");
        let back = node("True", json!([other, {"key": UNREACHABLE, "effect": "NoExecute"}]));
        assert_eq!(taints(&back, false, "t"), Some(json!([other])));
        let ill = taints(&node("False", json!([])), false, "t").expect("changes");
        assert_eq!(ill[1]["key"], NOT_READY);
    }

    #[test]
    fn a_pod_stays_as_long_as_it_tolerates_every_taint_that_drives_pods_away() {
        let lost = node("Unknown", json!([{"key": UNREACHABLE, "effect": "NoExecute"}]));
        let known = |seconds: Value| json!([{"key": UNREACHABLE, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": seconds}]);
        let table = [
            (json!([]), Some(0)),
            (known(json!(300)), Some(300)),
            (known(json!(-1)), Some(0)),
            (json!([{"key": UNREACHABLE, "operator": "Exists"}]), None),
            (json!([{"operator": "Exists"}]), None),
            (json!([{"key": NOT_READY, "operator": "Exists"}]), Some(0)),
        ];
        for (tolerations, seconds) in table {
            let expected = seconds.map(Duration::from_secs);
            assert_eq!(tolerates_for(&pod(tolerations.clone()), &lost), expected, "{tolerations}");
        }
        assert_eq!(tolerates_for(&pod(json!([])), &node("True", json!([]))), None);
    }
}
