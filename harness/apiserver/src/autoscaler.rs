//! HorizontalPodAutoscalers: their defaults, and their two versions. `autoscaling/v1` knows one metric, the use of the
//! CPU; what it does not know of an object it keeps in annotations.
//!
//! Source: Kubernetes API reference, HorizontalPodAutoscaler `autoscaling/v1` and `autoscaling/v2`.

use serde_json::{Map, Value, json};

use crate::defaults::set;
use crate::resource::Resource;

pub(crate) const GROUP: &str = "autoscaling";

/// Where `v1` keeps what it does not know: the annotation, and the place in `v2`.
const KEPT: [(&str, &str, &str); 4] = [
    ("autoscaling.alpha.kubernetes.io/metrics", "spec", "metrics"),
    ("autoscaling.alpha.kubernetes.io/behavior", "spec", "behavior"),
    ("autoscaling.alpha.kubernetes.io/conditions", "status", "conditions"),
    ("autoscaling.alpha.kubernetes.io/current-metrics", "status", "currentMetrics"),
];

/// Defaults that every write fills in.
pub(crate) fn complete(version: usize, object: &mut Value) {
    set(object, "spec", "minReplicas", 1.into());
    if version == 0 {
        complete_metrics(object);
    }
}

/// Four fifths of the requested CPU, unless there is something else to look at; what is said of one direction of scaling
/// is completed.
fn complete_metrics(object: &mut Value) {
    if object["spec"].get("metrics").is_none() {
        object["spec"]["metrics"] = json!([used_cpu(&80.into())]);
    }
    let policy =
        |kind: &str, value: i64, period_s: i64| json!({"type": kind, "value": value, "periodSeconds": period_s});
    let Some(behavior) = object.pointer_mut("/spec/behavior").and_then(Value::as_object_mut) else { return };
    let up = json!({
        "stabilizationWindowSeconds": 0, "selectPolicy": "Max",
        "policies": [policy("Pods", 4, 15), policy("Percent", 100, 15)],
    });
    // No window: the one that the controller was started with.
    let down = json!({"selectPolicy": "Max", "policies": [policy("Percent", 100, 15)]});
    for (name, defaults) in [("scaleUp", up), ("scaleDown", down)] {
        let rules = behavior.entry(name).or_insert_with(|| json!({}));
        if let (Some(rules), Value::Object(defaults)) = (rules.as_object_mut(), defaults) {
            for (member, value) in defaults {
                rules.entry(member).or_insert(value);
            }
        }
    }
}

/// The status of a new one.
pub(crate) fn blank_status() -> Value {
    json!({"desiredReplicas": 0, "currentMetrics": null})
}

fn used_cpu(percent: &Value) -> Value {
    let target = json!({"type": "Utilization", "averageUtilization": percent});
    json!({"type": "Resource", "resource": {"name": "cpu", "target": target}})
}

/// The percentage that a metric of `v2` says of the CPU: what is wanted (`target`) or what is (`current`).
fn cpu_percentage(metric: &Value, of: &str) -> Option<Value> {
    let resource = metric.get("resource").filter(|resource| resource["name"] == "cpu")?;
    resource[of].get("averageUtilization").cloned()
}

/// Takes the use of the CPU out of a list of metrics.
fn take_cpu(list: &mut Value, of: &str) -> Option<Value> {
    let list = list.as_array_mut()?;
    let at = list.iter().position(|metric| cpu_percentage(metric, of).is_some())?;
    cpu_percentage(&list.remove(at), of)
}

/// A `v2` object as `v1` shows it.
pub(crate) fn to_v1(resource: &Resource, mut object: Value) -> Value {
    object["apiVersion"] = resource.api_version(1).into();
    for (section, list, of, name) in [
        ("spec", "metrics", "target", "targetCPUUtilizationPercentage"),
        ("status", "currentMetrics", "current", "currentCPUUtilizationPercentage"),
    ] {
        let Some(part) = object.get_mut(section).and_then(Value::as_object_mut) else { continue };
        let percentage = part.get_mut(list).and_then(|metrics| take_cpu(metrics, of));
        if let Some(percentage) = percentage {
            part.insert(name.to_owned(), percentage);
        }
    }
    if let Some(status) = object.get_mut("status").and_then(Value::as_object_mut) {
        status.entry("currentReplicas").or_insert(0.into());
    }
    for (annotation, section, member) in KEPT {
        let part = object.get_mut(section).and_then(Value::as_object_mut);
        let rest = part.and_then(|part| part.remove(member)).filter(|rest| !is_empty(rest));
        if let Some(rest) = rest {
            set(&mut object, "metadata", "annotations", json!({}));
            object["metadata"]["annotations"][annotation] = rest.to_string().into();
        }
    }
    object
}

/// A `v1` object as it is stored.
pub(crate) fn to_v2(resource: &Resource, mut object: Value) -> Value {
    object["apiVersion"] = resource.api_version(0).into();
    for (annotation, section, member) in KEPT {
        let Some(rest) = take_annotation(&mut object, annotation) else { continue };
        object[section][member] = rest;
    }
    let take = |object: &mut Value, section: &str, member: &str| {
        object.get_mut(section).and_then(Value::as_object_mut).and_then(|part| part.remove(member))
    };
    if let Some(percent) = take(&mut object, "spec", "targetCPUUtilizationPercentage") {
        first(&mut object["spec"]["metrics"], used_cpu(&percent));
    }
    if let Some(percent) = take(&mut object, "status", "currentCPUUtilizationPercentage") {
        let current = json!({"averageUtilization": percent, "averageValue": "0"});
        let metric = json!({"type": "Resource", "resource": {"name": "cpu", "current": current}});
        first(&mut object["status"]["currentMetrics"], metric);
    }
    if let Some(status) = object.get_mut("status").and_then(Value::as_object_mut) {
        // A count that `v2` leaves out when it is zero.
        if status.get("currentReplicas") == Some(&0.into()) {
            status.remove("currentReplicas");
        }
        status.entry("currentMetrics").or_insert(Value::Null);
    }
    complete_metrics(&mut object);
    object
}

fn is_empty(value: &Value) -> bool {
    value.is_null() || value.as_array().is_some_and(Vec::is_empty) || value.as_object().is_some_and(Map::is_empty)
}

fn first(list: &mut Value, element: Value) {
    match list {
        Value::Array(list) => list.insert(0, element),
        other => *other = json!([element]),
    }
}

/// What an annotation keeps. One that is no JSON stays where it is.
fn take_annotation(object: &mut Value, name: &str) -> Option<Value> {
    let annotations = object.pointer_mut("/metadata/annotations")?.as_object_mut()?;
    let kept = serde_json::from_str(annotations.get(name)?.as_str()?).ok()?;
    annotations.remove(name);
    if annotations.is_empty() {
        object["metadata"].as_object_mut()?.remove("annotations");
    }
    Some(kept)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resource::{SandboxVersions, registry};

    fn resource() -> Resource {
        let all = registry(SandboxVersions::Both, true);
        all.into_iter().find(|r| r.plural == "horizontalpodautoscalers").expect("registered")
    }

    #[test]
    fn what_is_left_out_is_filled_in() {
        let mut object = json!({"spec": {"maxReplicas": 3, "behavior": {"scaleDown": {"selectPolicy": "Min"}}}});
        complete(0, &mut object);
        let policy = |kind: &str, value: u8| json!({"type": kind, "value": value, "periodSeconds": 15});
        assert_eq!(
            object["spec"],
            json!({
                "minReplicas": 1, "maxReplicas": 3, "metrics": [used_cpu(&80.into())],
                "behavior": {
                    "scaleUp": {
                        "stabilizationWindowSeconds": 0, "selectPolicy": "Max",
                        "policies": [policy("Pods", 4), policy("Percent", 100)],
                    },
                    "scaleDown": {"selectPolicy": "Min", "policies": [policy("Percent", 100)]},
                },
            })
        );
    }

    #[test]
    fn the_old_version_knows_the_cpu_and_keeps_the_rest_in_annotations() {
        let queue = json!({"type": "External", "external": {"metric": {"name": "q"}, "target": {"type": "Value", "value": "3"}}});
        let stored = json!({
            "kind": "HorizontalPodAutoscaler", "apiVersion": "autoscaling/v2", "metadata": {"name": "a"},
            "spec": {"minReplicas": 1, "maxReplicas": 3, "metrics": [used_cpu(&50.into()), queue]},
            "status": {"desiredReplicas": 2, "currentMetrics": null, "conditions": [{"type": "AbleToScale"}]},
        });
        let shown = to_v1(&resource(), stored.clone());
        assert_eq!(shown["apiVersion"], "autoscaling/v1");
        assert_eq!(shown["spec"], json!({"minReplicas": 1, "maxReplicas": 3, "targetCPUUtilizationPercentage": 50}));
        assert_eq!(shown["status"], json!({"currentReplicas": 0, "desiredReplicas": 2}));
        let annotations = &shown["metadata"]["annotations"];
        assert_eq!(annotations["autoscaling.alpha.kubernetes.io/metrics"], json!([queue]).to_string());
        assert_eq!(annotations.as_object().map(Map::len), Some(2), "{annotations}");
        assert_eq!(to_v2(&resource(), shown), stored);
    }

    #[test]
    fn an_old_object_without_a_target_gets_the_default_one() {
        let sent = json!({"kind": "HorizontalPodAutoscaler", "apiVersion": "autoscaling/v1", "metadata": {"name": "a"}, "spec": {"maxReplicas": 3}});
        let mut completed = sent.clone();
        complete(1, &mut completed);
        assert_eq!(completed["spec"], json!({"minReplicas": 1, "maxReplicas": 3}));
        let stored = to_v2(&resource(), sent);
        assert_eq!(stored["spec"]["metrics"], json!([used_cpu(&80.into())]));
        assert_eq!(stored.get("status"), None);
        assert_eq!(to_v1(&resource(), stored)["spec"]["targetCPUUtilizationPercentage"], 80);
    }
}
