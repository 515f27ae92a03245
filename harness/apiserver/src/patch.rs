//! Merge patch (RFC 7396) and JSON patch (RFC 6902), with the server's deviations.

use json_patch::{AddOperation, Patch, PatchOperation};
use serde_json::{Map, Value};

use crate::body::{self, go_kind, parse_error};
use crate::error::ApiError;
use crate::strategic;

/// The patch types that the server can apply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PatchKind {
    Merge,
    Json,
    Strategic,
    /// Server-side apply, which is more than a function of the stored object.
    Apply,
}

impl PatchKind {
    /// From the request's `Content-Type`.
    pub(crate) fn of(content_type: &str, custom: bool) -> Result<PatchKind, ApiError> {
        match content_type {
            "application/merge-patch+json" => Ok(PatchKind::Merge),
            "application/json-patch+json" => Ok(PatchKind::Json),
            "application/strategic-merge-patch+json" if !custom => Ok(PatchKind::Strategic),
            "application/strategic-merge-patch+json" => Err(ApiError::unsupported_media(
                "application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml",
            )),
            "application/apply-patch+yaml" => Ok(PatchKind::Apply),
            "application/apply-patch+cbor" => Err(ApiError::unsupported("request bodies as application/cbor")),
            _ => Err(ApiError::unsupported_patch()),
        }
    }

    /// Applies a patch body to an object.
    pub(crate) fn apply(self, object: &Value, body: &[u8]) -> Result<Value, ApiError> {
        match self {
            PatchKind::Merge | PatchKind::Strategic => {
                let patch = decode(body)?;
                let Value::Object(patch) = &patch else {
                    return Err(wrong_kind(&patch, "map[string]interface {}"));
                };
                let mut object = object.clone();
                if self == PatchKind::Merge {
                    merge(&mut object, patch);
                } else {
                    strategic::merge(&mut object, patch)?;
                }
                Ok(object)
            }
            PatchKind::Json => json(object, body),
            PatchKind::Apply => Err(ApiError::internal("an apply is no patch of the stored object alone")),
        }
    }
}

fn decode(body: &[u8]) -> Result<Value, ApiError> {
    serde_json::from_slice(body)
        .map_err(|error| ApiError::bad_request(format!("error decoding patch: {}", parse_error(&error))))
}

fn wrong_kind(found: &Value, wanted: &str) -> ApiError {
    let found = go_kind(found);
    ApiError::bad_request(format!(
        "error decoding patch: json: cannot unmarshal {found} into Go value of type {wanted}"
    ))
}

fn merge(target: &mut Value, patch: &Map<String, Value>) {
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    let target = target.as_object_mut().expect("made an object above");
    for (key, change) in patch {
        match change {
            Value::Null => {
                target.remove(key);
            }
            Value::Object(inner) => merge(target.entry(key.clone()).or_insert(Value::Null), inner),
            other => {
                target.insert(key.clone(), other.clone());
            }
        }
    }
}

fn json(object: &Value, body: &[u8]) -> Result<Value, ApiError> {
    let raw = decode(body)?;
    let Value::Array(operations) = &raw else {
        return Err(wrong_kind(&raw, "[]handlers.jsonPatchOp"));
    };
    if operations.len() > MOST_OPERATIONS {
        let found = operations.len();
        return Err(ApiError::too_large(&format!(
            "The allowed maximum operations in a JSON patch is {MOST_OPERATIONS}, got {found}"
        )));
    }
    let refused = || ApiError::unprocessable("the server rejected our request due to an error in our request");
    let mut object = object.clone();
    let mut copied = 0;
    for operation in operations {
        let operation: PatchOperation = serde_json::from_value(operation.clone()).map_err(|_| refused())?;
        // Each operation may take up the result of those before it, and so on.
        if let PatchOperation::Copy(copy) = &operation {
            copied += object.pointer(copy.from.as_str()).map_or(0, |value| value.to_string().len());
            if copied > body::LIMIT {
                return Err(ApiError::too_large(&format!(
                    "the copies of a JSON patch add {copied} bytes, of which {} are allowed",
                    body::LIMIT
                )));
            }
        }
        if nesting(&object, &operation) > DEEPEST {
            return Err(ApiError::unprocessable("the patch nests values too deeply"));
        }
        let operation = match operation {
            // The server's library sets an absent key of a present map.
            PatchOperation::Replace(replace) if absent_key(&object, replace.path.as_str()) => {
                PatchOperation::Add(AddOperation { path: replace.path, value: replace.value })
            }
            // To it an absent key is null; clients test for that before they add the first finalizer.
            PatchOperation::Test(test) if test.value.is_null() && absent_key(&object, test.path.as_str()) => continue,
            other => other,
        };
        json_patch::patch(&mut object, &Patch(vec![operation])).map_err(|_| refused())?;
    }
    Ok(object)
}

/// A JSON patch may have this many operations.
const MOST_OPERATIONS: usize = 10_000;
/// Values may not be nested deeper than this by a JSON patch: whoever reads them recurses.
const DEEPEST: usize = 256;

/// How deep the value of an operation lies in the object, with what is in it.
fn nesting(object: &Value, operation: &PatchOperation) -> usize {
    let steps = |path: &str| path.matches('/').count();
    let at = |path: &str| object.pointer(path).map_or(0, depth);
    match operation {
        PatchOperation::Add(add) => steps(add.path.as_str()) + depth(&add.value),
        PatchOperation::Replace(replace) => steps(replace.path.as_str()) + depth(&replace.value),
        PatchOperation::Move(moved) => steps(moved.path.as_str()) + at(moved.from.as_str()),
        PatchOperation::Copy(copy) => steps(copy.path.as_str()) + at(copy.from.as_str()),
        PatchOperation::Remove(_) | PatchOperation::Test(_) => 0,
    }
}

fn depth(value: &Value) -> usize {
    match value {
        Value::Array(list) => 1 + list.iter().map(depth).max().unwrap_or(0),
        Value::Object(map) => 1 + map.values().map(depth).max().unwrap_or(0),
        _ => 0,
    }
}

fn absent_key(object: &Value, path: &str) -> bool {
    let parent = path.rfind('/').map(|end| &path[..end]);
    object.pointer(path).is_none() && parent.and_then(|p| object.pointer(p)).is_some_and(Value::is_object)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_json_patch_cannot_grow_an_object_without_end() {
        let object = json!({"a": {"b": "x".repeat(1_000)}});
        let apply = |operations: Vec<Value>| {
            let applied = PatchKind::Json.apply(&object, Value::from(operations).to_string().as_bytes());
            applied.map_err(|error| error.code)
        };
        // Each copy of all there is doubles it.
        let doubling =
            |n: usize| (0..n).map(|at| json!({"op": "copy", "from": "", "path": format!("/c{at}")})).collect();
        assert!(apply(doubling(10)).is_ok());
        assert_eq!(apply(doubling(40)), Err(413));
        // Each of these goes deeper by a hundred.
        let deep = (0..100).fold(json!({}), |inner, _| json!({ "n": inner }));
        let deeper = |n: usize| -> Vec<Value> {
            let path = |at: usize| format!("/a{}", "/n".repeat(100 * at + 1));
            (0..n).map(|at| json!({"op": "add", "path": path(at), "value": deep})).collect()
        };
        assert!(apply(deeper(2)).is_ok());
        assert_eq!(apply(deeper(3)), Err(422));
        let test = json!({"op": "test", "path": "/z", "value": null});
        assert!(apply(vec![test.clone(); 10_000]).is_ok());
        assert_eq!(apply(vec![test; 10_001]), Err(413));
    }

    #[test]
    fn merge_patches_set_merge_and_remove() {
        let table = [
            (json!({"a": 1}), json!({"a": 2}), json!({"a": 2})),
            (json!({"a": 1}), json!({"b": {"c": null, "d": 1}}), json!({"a": 1, "b": {"d": 1}})),
            (json!({"a": {"b": 1, "c": 2}}), json!({"a": {"b": null}}), json!({"a": {"c": 2}})),
            (json!({"a": [1, 2]}), json!({"a": [3]}), json!({"a": [3]})),
            (json!({"a": 1}), json!({"a": {"b": 1}}), json!({"a": {"b": 1}})),
            (json!({"a": 1}), json!({}), json!({"a": 1})),
            (json!({"a": 1}), json!({"b": null}), json!({"a": 1})),
        ];
        for (object, patch, expected) in table {
            assert_eq!(PatchKind::Merge.apply(&object, patch.to_string().as_bytes()), Ok(expected), "{patch}");
        }
    }

    #[test]
    fn json_patches_follow_the_rfc_but_replace_adds_a_missing_key() {
        let object = json!({"m": {"k": "v"}, "l": [1]});
        let ok = [
            (json!([{"op": "replace", "path": "/m/new", "value": 1}]), json!({"m": {"k": "v", "new": 1}, "l": [1]})),
            (json!([{"op": "add", "path": "/l/-", "value": 2}]), json!({"m": {"k": "v"}, "l": [1, 2]})),
            (
                json!([{"op": "test", "path": "/m/k", "value": "v"}, {"op": "remove", "path": "/m/k"}]),
                json!({"m": {}, "l": [1]}),
            ),
            (json!([{"op": "test", "path": "/m/none", "value": null}]), json!({"m": {"k": "v"}, "l": [1]})),
        ];
        for (patch, expected) in ok {
            assert_eq!(PatchKind::Json.apply(&object, patch.to_string().as_bytes()), Ok(expected), "{patch}");
        }
        let refused = [
            (json!([{"op": "test", "path": "/m/k", "value": "w"}]), 422),
            (json!([{"op": "remove", "path": "/m/none"}]), 422),
            (json!([{"op": "dance", "path": "/m/k"}]), 422),
            (json!([{"op": "replace", "path": "/none/deep", "value": 1}]), 422),
            (json!({"op": "remove", "path": "/m/k"}), 400),
        ];
        for (patch, code) in refused {
            let error = PatchKind::Json.apply(&object, patch.to_string().as_bytes()).expect_err("refused");
            assert_eq!(error.code, code, "{patch}");
        }
    }
}
