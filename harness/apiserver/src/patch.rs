//! Merge patch (RFC 7396) and JSON patch (RFC 6902), with the server's deviations.

use json_patch::{AddOperation, Patch, PatchOperation};
use serde_json::{Map, Value};

use crate::body::{go_kind, parse_error};
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
    let refused = || ApiError::unprocessable("the server rejected our request due to an error in our request");
    let mut object = object.clone();
    for operation in operations {
        let operation: PatchOperation = serde_json::from_value(operation.clone()).map_err(|_| refused())?;
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

fn absent_key(object: &Value, path: &str) -> bool {
    let parent = path.rfind('/').map(|end| &path[..end]);
    object.pointer(path).is_none() && parent.and_then(|p| object.pointer(p)).is_some_and(Value::is_object)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

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
