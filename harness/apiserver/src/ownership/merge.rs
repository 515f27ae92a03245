//! Server-side apply on values: a configuration laid over the live object, and fields taken away that nobody applies
//! any more.

use serde_json::{Map, Value};

use super::compare::{elements, item};
use super::set::{Paths, child, children, is_member};
use super::shape::Shape;

/// The live value with the configuration laid over it.
pub(crate) fn merge(live: &Value, config: &Value, shape: &Shape) -> Value {
    match (live, config) {
        _ if matches!(shape, Shape::Atomic) => config.clone(),
        (Value::Object(old), Value::Object(new)) => {
            let mut out = old.clone();
            for (name, value) in new {
                let merged = match old.get(name) {
                    Some(before) => merge(before, value, shape.member(name)),
                    None => value.clone(),
                };
                out.insert(name.clone(), merged);
            }
            Value::Object(out)
        }
        (Value::Array(old), Value::Array(new)) => merge_lists(old, new, shape).unwrap_or_else(|| config.clone()),
        _ => config.clone(),
    }
}

/// Elements of both lists. Those of the configuration keep its order; others keep their place before the next common
/// element, or go first.
fn merge_lists(old: &[Value], new: &[Value], shape: &Shape) -> Option<Value> {
    let (old, new) = (elements(old, shape)?, elements(new, shape)?);
    let applied = |element: &str| new.iter().any(|(other, _)| other == element);
    let mut out = Vec::with_capacity(old.len().max(new.len()));
    let mut rest = old.iter();
    let mut next = rest.next();
    for (element, config) in &new {
        while let Some((other, value)) = next {
            if applied(other) {
                break;
            }
            out.push(Value::clone(value));
            next = rest.next();
        }
        match old.iter().find(|(other, _)| other == element) {
            Some((_, live)) => out.push(merge(live, config, item(shape))),
            None => out.push(Value::clone(config)),
        }
        while next.is_some_and(|(other, _)| applied(other) && passed(&new, element, other)) {
            next = rest.next();
        }
    }
    let left = next.into_iter().chain(rest).filter(|(other, _)| !applied(other));
    out.extend(left.map(|(_, value)| Value::clone(value)));
    Some(Value::Array(out))
}

/// Whether `other` stands at or before `element`, and so is in the merged list already.
fn passed(new: &[(String, &Value)], element: &str, other: &str) -> bool {
    let place = |name: &str| new.iter().position(|(other, _)| other == name);
    place(other) <= place(element)
}

/// Removes what was in `last` and is in none of `kept`: the sets of all owners after the apply.
pub(crate) fn prune(value: &mut Value, last: &Paths, kept: &[&Paths], shape: &Shape) {
    let inner: Vec<(&String, &Paths, Vec<&Paths>)> = children(last)
        .map(|(element, node)| (element, node, kept.iter().filter_map(|set| child(set, element)).collect()))
        .collect();
    match value {
        Value::Object(map) => {
            for (element, node, kept) in inner {
                let Some(name) = element.strip_prefix("f:") else { continue };
                // A field with owned fields below it is owned itself.
                if kept.is_empty() {
                    map.remove(name);
                } else if let Some(value) = map.get_mut(name) {
                    prune(value, node, &kept, shape.member(name));
                }
            }
        }
        Value::Array(list) => {
            let names: Vec<String> = match elements(list, shape) {
                Some(all) => all.into_iter().map(|(element, _)| element).collect(),
                None => return,
            };
            let mut names = names.into_iter();
            list.retain_mut(|value| {
                let name = names.next().unwrap_or_default();
                let Some((_, node, kept)) = inner.iter().find(|(element, ..)| **element == name) else { return true };
                if is_member(node) && !kept.iter().any(|set| is_member(set)) {
                    return false;
                }
                prune(value, node, kept, item(shape));
                true
            });
        }
        _ => {}
    }
}

/// Only what the endpoint takes: everything but `status`, or nothing but that.
pub(crate) fn scoped(mut set: Paths, status: bool, custom: bool) -> Paths {
    if !status {
        set.remove("f:status");
    } else if custom {
        set.retain(|element, _| element == "f:status");
    } else {
        set.remove("f:spec");
    }
    set
}

/// An empty set.
pub(crate) fn none() -> Paths {
    Map::new()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::shape;
    use super::*;
    use crate::resource::{SandboxVersions, registry};

    fn shape_of(plural: &str) -> Shape {
        let all = registry(SandboxVersions::Both, true);
        shape::of(all.iter().find(|r| r.plural == plural).expect("registered"), 0).clone()
    }

    #[test]
    fn configurations_are_merged_by_the_shape_of_the_type() {
        let names = |list: &[&str]| json!(list.iter().map(|n| json!({"name": n})).collect::<Vec<_>>());
        let table: [(&[&str], &[&str], &[&str]); 6] = [
            (&["a", "b"], &["b"], &["a", "b"]),
            (&["a", "b"], &["c"], &["a", "b", "c"]),
            (&["a", "b"], &["b", "a"], &["b", "a"]),
            (&["a", "x", "b"], &["b", "a"], &["b", "a", "x"]),
            (&[], &["c"], &["c"]),
            (&["a"], &[], &["a"]),
        ];
        for (live, config, expected) in table {
            let (live, config) =
                (json!({"spec": {"containers": names(live)}}), json!({"spec": {"containers": names(config)}}));
            let merged = merge(&live, &config, &shape_of("pods"));
            assert_eq!(merged["spec"]["containers"], names(expected), "{config} over {live}");
        }
        let live = json!({"metadata": {"finalizers": ["a"]}, "spec": {"nodeSelector": {"a": "1"}}});
        let config = json!({"metadata": {"finalizers": ["b"]}, "spec": {"nodeSelector": {"b": "2"}}});
        let expected = json!({"metadata": {"finalizers": ["a", "b"]}, "spec": {"nodeSelector": {"b": "2"}}});
        assert_eq!(merge(&live, &config, &shape_of("pods")), expected);
    }

    #[test]
    fn what_nobody_applies_any_more_goes() {
        let mut value = json!({
            "data": {"a": "1", "b": "1", "c": "1"},
            "metadata": {"labels": {"x": "1"}, "finalizers": ["p/q", "r/s"]},
        });
        let last = json!({
            "f:data": {"f:a": {}, "f:b": {}}, "f:metadata": {"f:labels": {"f:x": {}}, "f:finalizers": {"v:\"p/q\"": {}}},
        });
        let kept = json!({"f:data": {"f:b": {}}, "f:metadata": {"f:finalizers": {"v:\"r/s\"": {}}}});
        let (last, kept) = (last.as_object().expect("a set"), kept.as_object().expect("a set"));
        prune(&mut value, last, &[kept], &shape_of("configmaps"));
        assert_eq!(value, json!({"data": {"b": "1", "c": "1"}, "metadata": {"finalizers": ["r/s"]}}));
    }
}
