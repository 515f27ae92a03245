//! Objects over their revisions: the first state whole, each later one as what changed (RFC 7396).
use indexmap::IndexMap;
use serde::Serialize;
use serde_json::{Map, Value};

use crate::reading::ObjectState;

/// An object and all its states.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Object {
    pub(super) resource: String,
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) states: Vec<State>,
}

/// One revision of an object. Exactly one of the three says what it is like.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct State {
    pub(super) rv: u64,
    /// The entry of the write that made it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) entry: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) whole: Option<Value>,
    /// A merge patch to the state before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) patch: Option<Value>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(super) gone: bool,
}

/// Groups states by object, in the order in which the objects appeared. `entry` finds the write of a revision.
pub(super) fn objects(states: &[ObjectState], entry: impl Fn(u64) -> Option<u64>) -> Vec<Object> {
    let mut all: IndexMap<(&str, &str, &str), Object> = IndexMap::new();
    let mut latest: IndexMap<(&str, &str, &str), &Value> = IndexMap::new();
    for state in states {
        let key = (state.resource.as_str(), state.namespace.as_str(), state.name.as_str());
        let object = all.entry(key).or_insert_with(|| Object {
            resource: state.resource.clone(),
            namespace: state.namespace.clone(),
            name: state.name.clone(),
            states: Vec::new(),
        });
        let before = match &state.object {
            Some(now) => latest.insert(key, now),
            None => latest.swap_remove(&key),
        };
        let patch = before.zip(state.object.as_ref()).and_then(|(before, now)| exact_patch(before, now));
        object.states.push(State {
            rv: state.revision,
            entry: entry(state.revision),
            whole: state.object.clone().filter(|_| patch.is_none()),
            patch,
            gone: state.object.is_none(),
        });
    }
    all.into_values().collect()
}

/// The merge patch from one object to another; `None` where such a patch cannot say it (a `null` in the new one).
fn exact_patch(before: &Value, now: &Value) -> Option<Value> {
    fn diff(before: &Map<String, Value>, now: &Map<String, Value>) -> Option<Map<String, Value>> {
        let mut patch = Map::new();
        for (key, value) in now {
            match (before.get(key), value) {
                (Some(old), new) if old == new => {}
                (Some(Value::Object(old)), Value::Object(new)) => {
                    patch.insert(key.clone(), Value::Object(diff(old, new)?));
                }
                (_, new) if has_null(new) => return None,
                // A patch that is an object is merged into what is there: into nothing if that is no object.
                (_, new) => _ = patch.insert(key.clone(), new.clone()),
            }
        }
        patch.extend(before.keys().filter(|key| !now.contains_key(*key)).map(|key| (key.clone(), Value::Null)));
        Some(patch)
    }
    diff(before.as_object()?, now.as_object()?).map(Value::Object)
}

/// A `null` that a merge patch would take for a removal: those within lists are kept as they are.
fn has_null(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Object(map) => map.values().any(has_null),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn merged(target: &mut Value, patch: &Value) {
        let Value::Object(patch) = patch else { return *target = patch.clone() };
        if !target.is_object() {
            *target = json!({});
        }
        let map = target.as_object_mut().expect("it was made one");
        for (key, value) in patch {
            match value {
                Value::Null => _ = map.remove(key),
                value => merged(map.entry(key.clone()).or_insert(Value::Null), value),
            }
        }
    }

    #[test]
    fn a_patch_makes_the_new_state_of_the_old_one_or_there_is_none() {
        for (before, now, patch) in [
            (json!({"a": 1}), json!({"a": 1}), Some(json!({}))),
            (json!({"a": 1, "b": 2}), json!({"a": 3}), Some(json!({"a": 3, "b": null}))),
            (json!({"a": {"b": 1, "c": 2}}), json!({"a": {"b": 1}}), Some(json!({"a": {"c": null}}))),
            (json!({"a": [1, 2]}), json!({"a": [1, null]}), Some(json!({"a": [1, null]}))),
            (json!({"a": 1}), json!({"a": {"b": 2}}), Some(json!({"a": {"b": 2}}))),
            (json!({"a": {"b": 2}}), json!({"a": 1}), Some(json!({"a": 1}))),
            (json!({"a": 1}), json!({"a": null}), None),
            (json!({"a": 1}), json!({"a": {"b": null}}), None),
        ] {
            let made = exact_patch(&before, &now);
            assert_eq!(made, patch, "{before} {now}");
            if let Some(patch) = made {
                let mut target = before.clone();
                merged(&mut target, &patch);
                assert_eq!(target, now, "{before} {patch}");
            }
        }
    }

    #[test]
    fn an_object_that_comes_back_is_told_whole_again() {
        let state = |revision, object: Option<Value>| ObjectState {
            revision,
            resource: "pods".into(),
            namespace: "n".into(),
            name: "demo".into(),
            object,
        };
        let states = [
            state(1, Some(json!({"a": 1}))),
            state(2, Some(json!({"a": 2}))),
            state(3, None),
            state(5, Some(json!({}))),
        ];
        let all = objects(&states, |rv| (rv != 2).then_some(rv * 10));
        let told: Vec<_> =
            all[0].states.iter().map(|s| (s.rv, s.entry, s.whole.is_some(), s.patch.is_some(), s.gone)).collect();
        let expected = [
            (1, Some(10), true, false, false),
            (2, None, false, true, false),
            (3, Some(30), false, false, true),
            (5, Some(50), true, false, false),
        ];
        assert_eq!((all.len(), told.as_slice()), (1, &expected[..]));
    }
}
