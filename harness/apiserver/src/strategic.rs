//! Strategic merge patch: a merge patch that merges the lists of core types by their keys.
//!
//! Source: Kubernetes API conventions, "Strategic merge patch". Which list merges by which key is a property of each
//! type's field; the table below holds those of the types that this server knows.

use serde_json::{Map, Value};

use crate::error::ApiError;

/// Lists of objects that merge, with the key that identifies an element. Other lists are replaced.
const KEYS: &[(&str, &[&str])] = &[
    ("conditions", &["type"]),
    ("containers", &["name"]),
    ("initContainers", &["name"]),
    ("ephemeralContainers", &["name"]),
    ("env", &["name"]),
    ("ports", &["containerPort", "port"]),
    ("volumes", &["name"]),
    ("volumeMounts", &["mountPath"]),
    ("volumeDevices", &["devicePath"]),
    ("imagePullSecrets", &["name"]),
    ("secrets", &["name"]),
    ("schedulingGates", &["name"]),
    ("resourceClaims", &["name"]),
    ("hostAliases", &["ip"]),
    ("podIPs", &["ip"]),
    ("hostIPs", &["ip"]),
    ("topologySpreadConstraints", &["topologyKey"]),
    ("ownerReferences", &["uid"]),
    ("taints", &["key"]),
    ("addresses", &["type"]),
];

/// Lists of texts that merge as sets.
const SETS: &[&str] = &["finalizers"];

const DELETE_FROM: &str = "$deleteFromPrimitiveList/";
/// Texts, or objects with their merge key: the order of a list after the merge.
const ORDER: &str = "$setElementOrder/";
/// The members that an object keeps, with those of the patch.
const RETAIN: &str = "$retainKeys";

/// Applies `patch` to `target`, which is made an object if it is none.
pub(crate) fn merge(target: &mut Value, patch: &Map<String, Value>) -> Result<(), ApiError> {
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    let target = target.as_object_mut().expect("made an object above");
    match directive(patch)? {
        Some("replace") => {
            *target = patch.iter().filter(|(k, _)| *k != "$patch").map(|(k, v)| (k.clone(), v.clone())).collect();
            return Ok(());
        }
        Some("delete") => {
            target.clear();
            return Ok(());
        }
        _ => {}
    }
    if let Some(Value::Array(kept)) = patch.get(RETAIN) {
        if let Some(stranger) = patch.keys().find(|key| !key.starts_with('$') && !kept.iter().any(|k| k == *key)) {
            let text = Value::Array(kept.clone());
            return Err(ApiError::bad_request(format!("the list of $retainKeys {text} does not have {stranger:?}")));
        }
        target.retain(|key, _| kept.iter().any(|k| k == key));
    }
    for (key, change) in patch.iter().filter(|(key, _)| !matches!(key.as_str(), "$patch" | RETAIN)) {
        if let Some(list) = key.strip_prefix(DELETE_FROM) {
            remove_texts(target, list, change);
            continue;
        }
        if key.starts_with(ORDER) {
            // After the lists themselves.
            continue;
        }
        if key.starts_with('$') {
            return Err(ApiError::unsupported(format_args!("the strategic merge directive {key:?}")));
        }
        match change {
            Value::Null => {
                target.remove(key);
            }
            Value::Object(inner) => {
                let slot = target.entry(key.clone()).or_insert(Value::Null);
                merge(slot, inner)?;
                if directive(inner)? == Some("delete") {
                    target.remove(key);
                }
            }
            Value::Array(items) if SETS.contains(&key.as_str()) => add_texts(target, key, items),
            Value::Array(items) => {
                let merged = match merge_key(key, items) {
                    Some(by) => merge_list(target.get(key), items, by)?,
                    None => replaced(items)?,
                };
                target.insert(key.clone(), merged);
            }
            other => {
                target.insert(key.clone(), other.clone());
            }
        }
    }
    for (list, order) in patch.iter().filter_map(|(key, order)| Some((key.strip_prefix(ORDER)?, order.as_array()?))) {
        reorder(target, list, order);
    }
    Ok(())
}

/// Puts the elements of a list that are named in `order` into that order. Others keep their places among them.
fn reorder(target: &mut Map<String, Value>, list: &str, order: &[Value]) {
    let by = merge_key(list, order);
    let Some(Value::Array(elements)) = target.get_mut(list) else { return };
    let same = |one: &Value, other: &Value| match by {
        Some(by) => one.get(by) == other.get(by),
        None => one == other,
    };
    let place = |element: &Value| order.iter().position(|named| same(named, element));
    let before = elements.clone();
    let (mut named, others): (Vec<Value>, Vec<Value>) =
        std::mem::take(elements).into_iter().partition(|element| place(element).is_some());
    named.sort_by_key(place);
    *elements = match by {
        Some(by) => interleave(named, others, &before, by),
        None => named.into_iter().chain(others).collect(),
    };
}

/// The `$patch` member.
fn directive(patch: &Map<String, Value>) -> Result<Option<&str>, ApiError> {
    match patch.get("$patch") {
        None => Ok(None),
        Some(Value::String(name)) if matches!(name.as_str(), "merge" | "replace" | "delete") => Ok(Some(name)),
        Some(other) => Err(ApiError::bad_request(format!("Unknown patch type found: {other}"))),
    }
}

fn merge_key<'a>(list: &str, items: &[Value]) -> Option<&'a str> {
    let (_, candidates) = KEYS.iter().find(|(name, _)| *name == list)?;
    // `ports` is keyed differently in containers and in services: take the key that the elements have.
    candidates
        .iter()
        .copied()
        .find(|key| items.iter().any(|item| item.get(*key).is_some()))
        .or(candidates.first().copied())
}

fn merge_list(current: Option<&Value>, items: &[Value], by: &str) -> Result<Value, ApiError> {
    let replace = items.iter().any(|item| item.get("$patch").is_some_and(|d| d == "replace") && item.get(by).is_none());
    let before: Vec<Value> = match current {
        Some(Value::Array(list)) if !replace => list.clone(),
        _ => Vec::new(),
    };
    let mut list = before.clone();
    let mut patched: Vec<Value> = Vec::new();
    for item in items {
        let Value::Object(change) = item else {
            return Err(ApiError::bad_request(format!(
                "error decoding patch: elements merged by {by:?} must be objects"
            )));
        };
        let Some(key) = change.get(by) else {
            if change.contains_key("$patch") {
                continue;
            }
            return Err(ApiError::bad_request(format!("map: {item} does not contain declared merge key: {by}")));
        };
        let position = list.iter().position(|element| element.get(by) == Some(key));
        match (directive(change)?, position) {
            (Some("delete"), Some(at)) => {
                list.remove(at);
            }
            (Some("delete"), None) => {}
            (_, Some(at)) => {
                let mut element = list.remove(at);
                merge(&mut element, change)?;
                patched.push(element);
            }
            (_, None) => {
                let mut element = Value::Null;
                merge(&mut element, change)?;
                patched.push(element);
            }
        }
    }
    Ok(Value::Array(interleave(patched, list, &before, by)))
}

/// The order of a merged list: patched elements in the patch's order, the others in their old order, and between the
/// two the old order where both have one; a new element goes before an old one.
fn interleave(patched: Vec<Value>, kept: Vec<Value>, before: &[Value], by: &str) -> Vec<Value> {
    let place = |element: &Value| before.iter().position(|old| old.get(by) == element.get(by));
    let mut out = Vec::with_capacity(patched.len() + kept.len());
    let mut kept = kept.into_iter().peekable();
    for element in patched {
        while let (Some(mine), Some(theirs)) = (place(&element), kept.peek().and_then(&place)) {
            if mine < theirs {
                break;
            }
            out.extend(kept.next());
        }
        out.push(element);
    }
    out.extend(kept);
    out
}

/// A list that is replaced as a whole; directives inside of it would be lost.
fn replaced(items: &[Value]) -> Result<Value, ApiError> {
    if items.iter().any(|item| item.get("$patch").is_some()) {
        return Err(ApiError::unsupported("strategic merge directives in a list that this server does not merge"));
    }
    Ok(Value::Array(items.to_vec()))
}

fn add_texts(target: &mut Map<String, Value>, key: &str, items: &[Value]) {
    let slot = target.entry(key.to_owned()).or_insert_with(|| Value::Array(Vec::new()));
    if let Value::Array(list) = slot {
        for item in items {
            if !list.contains(item) {
                list.push(item.clone());
            }
        }
    }
}

fn remove_texts(target: &mut Map<String, Value>, key: &str, items: &Value) {
    if let (Some(Value::Array(list)), Value::Array(items)) = (target.get_mut(key), items) {
        list.retain(|entry| !items.contains(entry));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn lists_merge_by_key_and_other_lists_are_replaced() {
        let table = [
            (
                json!({"conditions": [{"type": "A", "status": "False", "x": 1}, {"type": "B"}]}),
                json!({"conditions": [{"type": "A", "status": "True"}, {"type": "C"}]}),
                json!({"conditions": [{"type": "A", "status": "True", "x": 1}, {"type": "C"}, {"type": "B"}]}),
            ),
            (
                json!({"containers": [{"name": "c", "image": "1", "env": [{"name": "A"}]}]}),
                json!({"containers": [{"name": "c", "image": "2", "env": [{"name": "B"}]}]}),
                json!({"containers": [{"name": "c", "image": "2", "env": [{"name": "B"}, {"name": "A"}]}]}),
            ),
            (
                json!({"containerStatuses": [{"name": "a"}]}),
                json!({"containerStatuses": [{"name": "b"}]}),
                json!({"containerStatuses": [{"name": "b"}]}),
            ),
            (
                json!({"containers": [{"name": "a"}, {"name": "b"}]}),
                json!({"containers": [{"name": "a", "$patch": "delete"}]}),
                json!({"containers": [{"name": "b"}]}),
            ),
            (json!({"finalizers": ["a"]}), json!({"finalizers": ["a", "b"]}), json!({"finalizers": ["a", "b"]})),
            (
                json!({"finalizers": ["a", "b"]}),
                json!({"$deleteFromPrimitiveList/finalizers": ["a"]}),
                json!({"finalizers": ["b"]}),
            ),
            (json!({"labels": {"a": "1"}}), json!({"labels": {"a": null, "b": "2"}}), json!({"labels": {"b": "2"}})),
            (json!({"m": {"a": 1}}), json!({"m": {"$patch": "replace", "b": 2}}), json!({"m": {"b": 2}})),
            (
                json!({"ports": [{"port": 80, "name": "x"}]}),
                json!({"ports": [{"port": 80, "name": "y"}]}),
                json!({"ports": [{"port": 80, "name": "y"}]}),
            ),
            (
                json!({}),
                json!({"state": {"running": {"at": 1}, "waiting": null}}),
                json!({"state": {"running": {"at": 1}}}),
            ),
        ];
        for (mut object, patch, expected) in table {
            merge(&mut object, patch.as_object().expect("an object")).expect("applies");
            assert_eq!(object, expected, "{patch}");
        }
    }

    #[test]
    fn directives_order_lists_and_keep_members() {
        let names = |list: &[&str]| json!(list.iter().map(|n| json!({"name": n})).collect::<Vec<_>>());
        let table = [
            (
                json!({"containers": names(&["a", "b"])}),
                json!({"containers": [{"name": "c"}], "$setElementOrder/containers": names(&["b", "c", "a"])}),
                json!({"containers": names(&["b", "c", "a"])}),
            ),
            (
                json!({"containers": names(&["a", "b", "of-the-server"])}),
                json!({"$setElementOrder/containers": names(&["b", "a"])}),
                json!({"containers": names(&["b", "a", "of-the-server"])}),
            ),
            (
                json!({"finalizers": ["a", "b"]}),
                json!({"$setElementOrder/finalizers": ["c", "a"], "finalizers": ["c"]}),
                json!({"finalizers": ["c", "a", "b"]}),
            ),
            (
                json!({"strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1}}}),
                json!({"strategy": {"$retainKeys": ["type"], "type": "Recreate"}}),
                json!({"strategy": {"type": "Recreate"}}),
            ),
        ];
        for (mut object, patch, expected) in table {
            merge(&mut object, patch.as_object().expect("an object")).expect("applies");
            assert_eq!(object, expected, "{patch}");
        }
        let patch = json!({"$retainKeys": ["a"], "b": 1});
        let error = merge(&mut json!({}), patch.as_object().expect("an object")).expect_err("refused");
        assert_eq!(error.code, 400);
        let patch = json!({"$dance/containers": []});
        let error = merge(&mut json!({}), patch.as_object().expect("an object")).expect_err("refused");
        assert_eq!(error.code, 501);
    }
}
