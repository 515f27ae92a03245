//! Sets of field paths in the form in which `managedFields` stores them (`FieldsV1`).
//!
//! A set is a JSON object. Its keys are path elements: `f:name` (member of an object), `k:{...}` (list element by its
//! keys), `v:...` (element of a list of scalars). A path is a member of the set if its node is `{}` or has a `.`.
//! All functions work on that JSON in place: most writes touch few paths of few owners.

use serde_json::{Map, Value};

/// A node of a set, or the set as a whole.
pub(crate) type Paths = Map<String, Value>;

const SELF: &str = ".";

/// Whether the path of this node is a member. Not meaningful for the root.
pub(crate) fn is_member(node: &Paths) -> bool {
    node.is_empty() || node.contains_key(SELF)
}

/// A node from its two facts; `None` where there is nothing to say.
pub(crate) fn node(member: bool, mut children: Paths) -> Option<Paths> {
    if member && !children.is_empty() {
        children.insert(SELF.into(), Value::Object(Map::new()));
    }
    (member || !children.is_empty()).then_some(children)
}

/// The nodes below, with their path elements.
pub(crate) fn children(node: &Paths) -> impl Iterator<Item = (&String, &Paths)> {
    node.iter().filter(|(key, _)| *key != SELF).filter_map(|(key, child)| Some((key, child.as_object()?)))
}

pub(crate) fn child<'a>(node: &'a Paths, element: &str) -> Option<&'a Paths> {
    node.get(element)?.as_object()
}

/// Adds the paths of `more` below `set`.
pub(crate) fn union(set: &mut Paths, more: &Paths) {
    for (element, theirs) in children(more) {
        match set.get_mut(element) {
            Some(Value::Object(ours)) => {
                let member = is_member(ours) || is_member(theirs);
                union(ours, theirs);
                if member && !ours.is_empty() {
                    ours.insert(SELF.into(), Value::Object(Map::new()));
                }
            }
            _ => {
                set.insert(element.clone(), Value::Object(theirs.clone()));
            }
        }
    }
}

/// Takes the paths of `less` out of `set`.
pub(crate) fn subtract(set: &mut Paths, less: &Paths) {
    for (element, theirs) in children(less) {
        let Some(Value::Object(ours)) = set.get_mut(element) else { continue };
        let member = is_member(ours) && !is_member(theirs);
        ours.remove(SELF);
        subtract(ours, theirs);
        if ours.is_empty() && !member {
            set.remove(element);
        } else if member && !ours.is_empty() {
            ours.insert(SELF.into(), Value::Object(Map::new()));
        }
    }
}

/// The paths that are in both.
pub(crate) fn intersection(one: &Paths, other: &Paths) -> Paths {
    let (small, large) = if one.len() <= other.len() { (one, other) } else { (other, one) };
    let mut common = Map::new();
    for (element, ours) in children(small) {
        let Some(theirs) = child(large, element) else { continue };
        if let Some(both) = node(is_member(ours) && is_member(theirs), intersection(ours, theirs)) {
            common.insert(element.clone(), Value::Object(both));
        }
    }
    common
}

/// The members as conflict messages write them: `.spec.containers[name="c"].image`.
pub(crate) fn shown(set: &Paths) -> Vec<String> {
    fn walk(prefix: &str, set: &Paths, out: &mut Vec<String>) {
        for (element, node) in children(set) {
            let path = format!("{prefix}{}", shown_element(element));
            if is_member(node) {
                out.push(path.clone());
            }
            walk(&path, node, out);
        }
    }
    let mut out = Vec::new();
    walk("", set, &mut out);
    out
}

fn shown_element(element: &str) -> String {
    match element.split_once(':') {
        Some(("f", name)) => format!(".{name}"),
        Some(("v", value)) => format!("[={value}]"),
        Some(("k", keys)) => {
            let keys: Map<String, Value> = serde_json::from_str(keys).unwrap_or_default();
            let pairs: Vec<String> = keys.iter().map(|(key, value)| format!("{key}={value}")).collect();
            format!("[{}]", pairs.join(","))
        }
        Some((_, index)) => format!("[{index}]"),
        None => element.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn set(value: Value) -> Paths {
        value.as_object().expect("a set").clone()
    }

    #[test]
    fn sets_are_joined_and_taken_apart_path_by_path() {
        let table = [
            // set, other, union, difference, intersection
            (json!({}), json!({}), json!({}), json!({}), json!({})),
            (
                json!({"f:data": {".": {}, "f:x": {}, "f:y": {}}}),
                json!({"f:data": {"f:x": {}, "f:z": {}}}),
                json!({"f:data": {".": {}, "f:x": {}, "f:y": {}, "f:z": {}}}),
                json!({"f:data": {".": {}, "f:y": {}}}),
                json!({"f:data": {"f:x": {}}}),
            ),
            (
                json!({"f:data": {".": {}, "f:x": {}}}),
                json!({"f:data": {"f:x": {}}}),
                json!({"f:data": {".": {}, "f:x": {}}}),
                json!({"f:data": {}}),
                json!({"f:data": {"f:x": {}}}),
            ),
            (
                json!({"f:data": {}}),
                json!({"f:data": {"f:x": {}}}),
                json!({"f:data": {".": {}, "f:x": {}}}),
                json!({"f:data": {}}),
                json!({}),
            ),
            (
                json!({"f:data": {"f:x": {}}}),
                json!({"f:data": {".": {}, "f:x": {}}}),
                json!({"f:data": {".": {}, "f:x": {}}}),
                json!({}),
                json!({"f:data": {"f:x": {}}}),
            ),
        ];
        for (one, other, union_of, difference, common) in table {
            let (one, other) = (set(one), set(other));
            let mut joined = one.clone();
            union(&mut joined, &other);
            assert_eq!(Value::Object(joined), union_of);
            let mut left = one.clone();
            subtract(&mut left, &other);
            assert_eq!(Value::Object(left), difference);
            assert_eq!(Value::Object(intersection(&one, &other)), common);
        }
    }

    #[test]
    fn paths_are_shown_as_conflicts_name_them() {
        let paths = set(json!({
            "f:data": {"f:a": {}},
            "f:metadata": {"f:finalizers": {"v:\"x/y\"": {}}},
            "f:spec": {"f:containers": {"k:{\"name\":\"c\"}": {".": {}, "f:image": {}}}},
        }));
        assert_eq!(
            shown(&paths),
            [
                ".data.a",
                ".metadata.finalizers[=\"x/y\"]",
                ".spec.containers[name=\"c\"]",
                ".spec.containers[name=\"c\"].image"
            ]
        );
    }
}
