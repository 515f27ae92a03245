//! Events, which are one store with two shapes: `v1`, as it is stored, and `events.k8s.io/v1`.

use serde_json::{Map, Value, json};

use crate::error::Cause;

/// The newer of their groups.
pub(crate) const GROUP: &str = "events.k8s.io";

/// Members by their names in `v1` and in `events.k8s.io/v1`.
const NAMES: [(&str, &str); 7] = [
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
    ("reportingComponent", "reportingController"),
];

/// A stored event as `events.k8s.io/v1`.
pub(crate) fn from_core(mut event: Value) -> Value {
    event["apiVersion"] = "events.k8s.io/v1".into();
    let Some(map) = event.as_object_mut() else { return event };
    for (core, other) in NAMES {
        if let Some(value) = map.remove(core) {
            map.insert(other.into(), value);
        }
    }
    for text in ["reportingController", "reportingInstance"] {
        if map.get(text).is_some_and(|value| value == "") {
            map.remove(text);
        }
    }
    event
}

/// An event of `events.k8s.io/v1` as it is stored.
pub(crate) fn to_core(mut event: Value) -> Value {
    event["apiVersion"] = "v1".into();
    let Some(map) = event.as_object_mut() else { return event };
    for (core, other) in NAMES {
        if let Some(value) = map.remove(other) {
            map.insert(core.into(), value);
        }
    }
    fill(map, 0);
    event
}

/// Members that are written even when they are empty.
pub(crate) fn complete(version: usize, event: &mut Value) {
    if let Some(map) = event.as_object_mut() {
        fill(map, version);
    }
}

fn fill(map: &mut Map<String, Value>, version: usize) {
    let members: &[(&str, Value)] = match version {
        0 => &[
            ("eventTime", Value::Null),
            ("source", json!({})),
            ("firstTimestamp", Value::Null),
            ("lastTimestamp", Value::Null),
            ("reportingComponent", "".into()),
            ("reportingInstance", "".into()),
        ],
        _ => &[
            ("eventTime", Value::Null),
            ("deprecatedSource", json!({})),
            ("deprecatedFirstTimestamp", Value::Null),
            ("deprecatedLastTimestamp", Value::Null),
        ],
    };
    for (member, value) in members {
        if !map.contains_key(*member) {
            map.insert((*member).to_owned(), value.clone());
        }
    }
}

/// What is wrong with an event in that version. The newer group asks for more.
pub(crate) fn mistakes(version: usize, event: &Value) -> Vec<Cause> {
    let object = if version == 0 { "involvedObject" } else { "regarding" };
    let empty = |member: &str| event[member].as_str().unwrap_or_default().is_empty();
    if version > 0 && empty("eventTime") {
        return vec![Cause::required("eventTime", "")];
    }
    let namespace = event[object]["namespace"].as_str().unwrap_or_default();
    if namespace != event["metadata"]["namespace"].as_str().unwrap_or_default() {
        let why = "does not match event.namespace";
        return vec![Cause::invalid("involvedObject.namespace", &event[object]["namespace"], why)];
    }
    if empty("eventTime") {
        return Vec::new();
    }
    let controller = if version == 0 { "reportingComponent" } else { "reportingController" };
    let wanted = [controller, "reportingInstance", "action", "reason"];
    wanted.into_iter().filter(|member| empty(member)).map(|member| Cause::required(member, "")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_has_one_shape_for_each_group() {
        let core = json!({
            "kind": "Event", "apiVersion": "v1", "metadata": {"name": "e"}, "involvedObject": {"kind": "Pod"},
            "message": "m", "source": {"component": "c"}, "firstTimestamp": "a", "lastTimestamp": "b", "count": 1,
            "eventTime": null, "reportingComponent": "", "reportingInstance": "", "reason": "R",
        });
        let other = from_core(core.clone());
        assert_eq!(
            other,
            json!({
                "kind": "Event", "apiVersion": "events.k8s.io/v1", "metadata": {"name": "e"}, "regarding": {"kind": "Pod"},
                "note": "m", "deprecatedSource": {"component": "c"}, "deprecatedFirstTimestamp": "a",
                "deprecatedLastTimestamp": "b", "deprecatedCount": 1, "eventTime": null, "reason": "R",
            })
        );
        assert_eq!(to_core(other), core);
    }

    #[test]
    fn each_group_has_its_own_demands() {
        let fields = |version, event: Value| -> Vec<String> {
            mistakes(version, &event).into_iter().map(|cause| cause.field).collect()
        };
        let of = |namespace: &str| json!({"metadata": {"namespace": "d"}, "involvedObject": {"namespace": namespace}});
        assert_eq!(fields(0, of("d")), Vec::<String>::new());
        assert_eq!(fields(0, of("other")), ["involvedObject.namespace"]);
        assert_eq!(fields(1, json!({"metadata": {"namespace": "d"}})), ["eventTime"]);
        let bare = json!({"metadata": {"namespace": "d"}, "regarding": {"namespace": "d"}, "eventTime": "t"});
        assert_eq!(fields(1, bare), ["reportingController", "reportingInstance", "action", "reason"]);
    }
}
