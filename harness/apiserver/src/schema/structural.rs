//! Whether a schema is structural: whether the shape of every value can be told from it, which pruning and defaulting
//! need (Kubernetes docs: "Custom resources: specifying a structural schema").
//!
//! Looks at the JSON of a schema rather than at the compiled one, which has forgotten what means nothing to values.

use serde_json::{Map, Value};

use super::{Path, Schema};
use crate::error::Cause;

const TYPES: [&str; 6] = ["array", "boolean", "integer", "number", "object", "string"];

/// Keywords that no schema of a CRD may have.
const FORBIDDEN: [&str; 10] = [
    "$ref",
    "definitions",
    "dependencies",
    "deprecated",
    "discriminator",
    "id",
    "patternProperties",
    "readOnly",
    "writeOnly",
    "xml",
];

/// Keywords that describe a value rather than restrict it: they stand outside of `allOf`, `anyOf`, `oneOf` and `not`.
const DESCRIBING: [&str; 12] = [
    "additionalProperties",
    "default",
    "description",
    "nullable",
    "title",
    "type",
    "x-kubernetes-embedded-resource",
    "x-kubernetes-int-or-string",
    "x-kubernetes-list-map-keys",
    "x-kubernetes-list-type",
    "x-kubernetes-map-type",
    "x-kubernetes-preserve-unknown-fields",
];

/// What a node is to the one above it.
#[derive(Clone, Copy, PartialEq)]
enum Role {
    Root,
    Member,
    Element,
}

/// All that keeps a schema from being structural. `place`: its path in the CRD.
pub(crate) fn mistakes(schema: &Value, place: &str) -> Vec<Cause> {
    let mut causes = Vec::new();
    if let Some(node) = schema.as_object() {
        check(node, place, Role::Root, &mut causes);
    }
    causes
}

fn is_set(node: &Map<String, Value>, key: &str) -> bool {
    node.get(key) == Some(&Value::Bool(true))
}

fn text<'a>(node: &'a Map<String, Value>, key: &str) -> &'a str {
    node.get(key).and_then(Value::as_str).unwrap_or_default()
}

fn check(node: &Map<String, Value>, place: &str, role: Role, causes: &mut Vec<Cause>) {
    let preserves = is_set(node, "x-kubernetes-preserve-unknown-fields");
    let int_or_string = is_set(node, "x-kubernetes-int-or-string");
    let kind = text(node, "type");
    let at = |key: &str| format!("{place}.{key}");
    if kind.is_empty() && !int_or_string && !preserves {
        match role {
            // The root's type is looked at with the version.
            Role::Root => {}
            Role::Member => causes.push(Cause::required(&at("type"), "must not be empty for specified object fields")),
            Role::Element => causes.push(Cause::required(&at("type"), "must not be empty for specified array items")),
        }
    } else if !kind.is_empty() && !TYPES.contains(&kind) {
        causes.push(Cause::unsupported(&at("type"), format_args!("{kind:?}"), &TYPES));
    }
    if int_or_string && !kind.is_empty() {
        causes.push(Cause::invalid(&at("type"), &kind.into(), "must be empty if x-kubernetes-int-or-string is true"));
    }
    forbidden(node, place, causes);
    extensions(node, place, kind, causes);
    if role == Role::Root || is_set(node, "x-kubernetes-embedded-resource") {
        metadata(node, &at("properties[metadata]"), causes);
    }
    for (name, schema) in node.get("properties").and_then(Value::as_object).into_iter().flatten() {
        if let Some(schema) = schema.as_object() {
            check(schema, &at(&format!("properties[{name}]")), Role::Member, causes);
        }
    }
    if let Some(schema) = node.get("additionalProperties").and_then(Value::as_object) {
        check(schema, &at("additionalProperties"), Role::Member, causes);
    }
    match node.get("items") {
        Some(Value::Object(schema)) => check(schema, &at("items"), Role::Element, causes),
        Some(Value::Array(_)) => {
            causes.push(Cause::forbidden(&at("items"), "must be one schema, not one for each element"));
        }
        _ if kind == "array" => causes.push(Cause::required(&at("items"), "must be specified")),
        _ => {}
    }
    for key in ["allOf", "anyOf", "oneOf"] {
        for (n, branch) in node.get(key).and_then(Value::as_array).into_iter().flatten().enumerate() {
            restriction(branch, Some(node), &at(&format!("{key}[{n}]")), place, int_or_string, causes);
        }
    }
    if let Some(branch) = node.get("not") {
        restriction(branch, Some(node), &at("not"), place, false, causes);
    }
    default(node, place, causes);
}

fn forbidden(node: &Map<String, Value>, place: &str, causes: &mut Vec<Cause>) {
    for key in FORBIDDEN.iter().filter(|key| node.contains_key(**key)) {
        causes.push(Cause::forbidden(&format!("{place}.{key}"), format_args!("{key} is not supported")));
    }
    if is_set(node, "uniqueItems") {
        let why = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic";
        causes.push(Cause::forbidden(&format!("{place}.uniqueItems"), why));
    }
    let additional = node.get("additionalProperties");
    if additional == Some(&Value::Bool(false)) {
        let why = "additionalProperties cannot be set to false";
        causes.push(Cause::forbidden(&format!("{place}.additionalProperties"), why));
    } else if additional.is_some() && node.contains_key("properties") {
        let why = "additionalProperties and properties are mutual exclusive";
        causes.push(Cause::forbidden(&format!("{place}.additionalProperties"), why));
    }
}

fn extensions(node: &Map<String, Value>, place: &str, kind: &str, causes: &mut Vec<Cause>) {
    let at = |key: &str| format!("{place}.{key}");
    let preserve = "x-kubernetes-preserve-unknown-fields";
    if node.get(preserve) == Some(&Value::Bool(false)) {
        causes.push(Cause::invalid(&at(preserve), &false.into(), "must be true or undefined"));
    }
    if is_set(node, "x-kubernetes-embedded-resource") {
        if kind != "object" {
            let why = "must be object if x-kubernetes-embedded-resource is true";
            causes.push(Cause::invalid(&at("type"), &kind.into(), why));
        }
        if !is_set(node, preserve) && !node.contains_key("properties") {
            let why = "must not be empty if x-kubernetes-embedded-resource is true without x-kubernetes-preserve-unknown-fields";
            causes.push(Cause::required(&at("properties"), why));
        }
    }
    let list = "x-kubernetes-list-type";
    let keys: Vec<&str> = node
        .get("x-kubernetes-list-map-keys")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    let list_type = text(node, list);
    if !list_type.is_empty() && kind != "array" {
        causes.push(Cause::invalid(&at("type"), &kind.into(), "must be array if x-kubernetes-list-type is specified"));
    }
    let items = node.get("items");
    let of_items = |key: &str| items.and_then(|items| items[key].as_str()).unwrap_or_default();
    match list_type {
        "" | "atomic" => {}
        "set" => {
            let whole = of_items("x-kubernetes-list-type") == "atomic" || of_items("x-kubernetes-map-type") == "atomic";
            if matches!(of_items("type"), "object" | "array") && !whole {
                let why = "items of a set must be scalars or atomic";
                causes.push(Cause::invalid(&at("items.type"), &of_items("type").into(), why));
            }
        }
        "map" => {
            if keys.is_empty() {
                let why = "must not be empty if x-kubernetes-list-type is map";
                causes.push(Cause::required(&at("x-kubernetes-list-map-keys"), why));
            }
            if of_items("type") != "object" {
                let why = "must be object if parent array's x-kubernetes-list-type is map";
                causes.push(Cause::invalid(&at("items.type"), &of_items("type").into(), why));
            }
        }
        other => causes.push(Cause::unsupported(&at(list), format_args!("{other:?}"), &["atomic", "set", "map"])),
    }
    if list_type != "map" && !keys.is_empty() {
        let why = "must be map if x-kubernetes-list-map-keys is non-empty";
        causes.push(Cause::invalid(&at(list), &list_type.into(), why));
    }
    for (n, key) in keys.iter().enumerate() {
        let place = at(&format!("x-kubernetes-list-map-keys[{n}]"));
        let required = items.and_then(|items| items["required"].as_array()).is_some_and(|r| r.iter().any(|r| r == key));
        match items.and_then(|items| items["properties"].get(*key)) {
            None => causes.push(Cause::invalid(&place, &(*key).into(), "must be the name of a property of the items")),
            Some(of) if !required && of.get("default").is_none() => {
                causes.push(Cause::required(&at(&format!("items.properties[{key}].default")), "this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property"));
            }
            Some(_) => {}
        }
        if keys[..n].contains(key) {
            causes.push(Cause {
                reason: "FieldValueDuplicate",
                message: format!("Duplicate value: {key:?}"),
                field: place,
            });
        }
    }
    let map_type = text(node, "x-kubernetes-map-type");
    if !matches!(map_type, "" | "atomic" | "granular") {
        causes.push(Cause::unsupported(
            &at("x-kubernetes-map-type"),
            format_args!("{map_type:?}"),
            &["atomic", "granular"],
        ));
    }
}

/// Of an object's metadata a schema says nothing but what names it may have.
fn metadata(node: &Map<String, Value>, place: &str, causes: &mut Vec<Cause>) {
    let Some(metadata) = node.get("properties").and_then(|properties| properties["metadata"].as_object()) else {
        return;
    };
    if text(metadata, "type") != "object" && metadata.contains_key("type") {
        causes.push(Cause::invalid(&format!("{place}.type"), &text(metadata, "type").into(), "must be object"));
    }
    let allowed = |key: &str| matches!(key, "type" | "description" | "properties");
    let named = metadata.get("properties").and_then(Value::as_object).into_iter().flatten();
    let all_names = named.into_iter().all(|(name, _)| matches!(name.as_str(), "name" | "generateName"));
    if !all_names || metadata.keys().any(|key| !allowed(key)) {
        let why = "must not specify anything other than name and generateName, but metadata is implicitly specified";
        causes.push(Cause::forbidden(place, why));
    }
}

/// A schema below `allOf` and the like. `outside`: the node that describes the same value; `None` where it has none,
/// which has been complained about.
fn restriction(
    branch: &Value,
    outside: Option<&Map<String, Value>>,
    place: &str,
    outer: &str,
    int_or_string: bool,
    causes: &mut Vec<Cause>,
) {
    let Some(node) = branch.as_object() else { return };
    for key in DESCRIBING.iter().filter(|key| node.contains_key(**key)) {
        // An int-or-string may say again which two types it has.
        let said_again = int_or_string && *key == "type" && matches!(text(node, "type"), "integer" | "string");
        if !said_again {
            causes.push(Cause::forbidden(&format!("{place}.{key}"), "must be empty to be structural"));
        }
    }
    for (name, schema) in node.get("properties").and_then(Value::as_object).into_iter().flatten() {
        let described = outside.and_then(|node| node.get("properties")?.get(name)?.as_object());
        let outer = format!("{outer}.properties[{name}]");
        let place = format!("{place}.properties[{name}]");
        let free = outside.is_some_and(|node| node.get("additionalProperties").is_some_and(Value::is_object));
        if outside.is_some() && described.is_none() && !free {
            causes.push(Cause::required(&outer, &format!("because it is defined in {place}")));
        }
        restriction(schema, described, &place, &outer, false, causes);
    }
    if let Some(items) = node.get("items") {
        let described = outside.and_then(|node| node.get("items")?.as_object());
        let (outer, place) = (format!("{outer}.items"), format!("{place}.items"));
        if outside.is_some() && described.is_none() {
            causes.push(Cause::required(&outer, &format!("because it is defined in {place}")));
        }
        restriction(items, described, &place, &outer, false, causes);
    }
    for key in ["allOf", "anyOf", "oneOf"] {
        for (n, branch) in node.get(key).and_then(Value::as_array).into_iter().flatten().enumerate() {
            restriction(branch, outside, &format!("{place}.{key}[{n}]"), outer, int_or_string, causes);
        }
    }
    if let Some(branch) = node.get("not") {
        restriction(branch, outside, &format!("{place}.not"), outer, false, causes);
    }
}

/// A default is a value that the schema would take.
fn default(node: &Map<String, Value>, place: &str, causes: &mut Vec<Cause>) {
    let Some(value) = node.get("default").filter(|value| !value.is_null()) else { return };
    let place = format!("{place}.default");
    let schema = Schema::compile(&Value::Object(node.clone()));
    let mut filled = value.clone();
    schema.fill(&mut filled);
    causes.extend(schema.validate_part(&filled, &Path::Root.member(&place)));
    if schema.prune_part(&mut filled) {
        causes.push(Cause::invalid(&place, value, "must not have unknown fields"));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn fields(schema: Value) -> Vec<String> {
        mistakes(&schema, "s").into_iter().map(|cause| format!("{}: {}", cause.field, cause.message)).collect()
    }

    fn spec(schema: Value) -> Value {
        json!({"type": "object", "properties": {"spec": schema}})
    }

    #[test]
    fn schemas_that_are_structural_pass() {
        let port = json!({"type": "object", "required": ["port"], "properties": {
            "port": {"type": "integer"}, "protocol": {"type": "string", "default": "TCP"},
        }});
        let table = [
            json!({"type": "object"}),
            json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true}),
            json!({"type": "object", "properties": {"metadata": {"type": "object", "properties": {"name": {"type": "string", "maxLength": 9}}}}}),
            spec(json!({"x-kubernetes-preserve-unknown-fields": true})),
            spec(
                json!({"x-kubernetes-int-or-string": true, "anyOf": [{"type": "integer"}, {"type": "string"}], "pattern": "^.$"}),
            ),
            spec(json!({"type": "object", "additionalProperties": {"type": "string"}})),
            spec(
                json!({"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["port", "protocol"], "items": port}),
            ),
            spec(json!({"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}})),
            spec(json!({"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "string"}},
                "oneOf": [{"required": ["a"]}, {"properties": {"b": {"enum": ["x"]}}}], "not": {"required": ["a", "b"]}})),
            spec(
                json!({"type": "object", "default": {"a": 1}, "properties": {"a": {"type": "integer", "default": 2}}}),
            ),
            spec(
                json!({"type": "object", "x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true}),
            ),
        ];
        for schema in table {
            assert_eq!(fields(schema.clone()), [""; 0], "{schema}");
        }
    }

    #[test]
    fn what_hides_the_shape_of_a_value_is_refused_where_it_stands() {
        let table = [
            (json!({}), "s.properties[spec].type: Required value: must not be empty for specified object fields"),
            (
                json!({"type": "text"}),
                "s.properties[spec].type: Unsupported value: \"text\": supported values: \"array\", \"boolean\", \"integer\", \"number\", \"object\", \"string\"",
            ),
            (json!({"type": "array"}), "s.properties[spec].items: Required value: must be specified"),
            (
                json!({"type": "array", "items": {}}),
                "s.properties[spec].items.type: Required value: must not be empty for specified array items",
            ),
            (
                json!({"type": "object", "additionalProperties": {}}),
                "s.properties[spec].additionalProperties.type: Required value: must not be empty for specified object fields",
            ),
            (
                json!({"type": "object", "additionalProperties": false}),
                "s.properties[spec].additionalProperties: Forbidden: additionalProperties cannot be set to false",
            ),
            (
                json!({"type": "object", "properties": {}, "additionalProperties": {"type": "string"}}),
                "s.properties[spec].additionalProperties: Forbidden: additionalProperties and properties are mutual exclusive",
            ),
            (json!({"type": "object", "$ref": "#/x"}), "s.properties[spec].$ref: Forbidden: $ref is not supported"),
            (
                json!({"type": "array", "uniqueItems": true, "items": {"type": "string"}}),
                "s.properties[spec].uniqueItems: Forbidden: uniqueItems cannot be set to true since the runtime complexity becomes quadratic",
            ),
            (
                json!({"type": "string", "anyOf": [{"type": "string"}]}),
                "s.properties[spec].anyOf[0].type: Forbidden: must be empty to be structural",
            ),
            (
                json!({"type": "object", "allOf": [{"properties": {"a": {"minimum": 1}}}]}),
                "s.properties[spec].properties[a]: Required value: because it is defined in s.properties[spec].allOf[0].properties[a]",
            ),
            (
                json!({"type": "object", "x-kubernetes-preserve-unknown-fields": false}),
                "s.properties[spec].x-kubernetes-preserve-unknown-fields: Invalid value: false: must be true or undefined",
            ),
            (
                json!({"type": "string", "x-kubernetes-list-type": "set"}),
                "s.properties[spec].type: Invalid value: \"string\": must be array if x-kubernetes-list-type is specified",
            ),
            (
                json!({"type": "array", "x-kubernetes-list-type": "map", "items": {"type": "object"}}),
                "s.properties[spec].x-kubernetes-list-map-keys: Required value: must not be empty if x-kubernetes-list-type is map",
            ),
            (
                json!({"type": "integer", "default": "x"}),
                "s.properties[spec].default: Invalid value: \"string\": s.properties[spec].default in body must be of type integer: \"string\"",
            ),
            (
                json!({"type": "object", "properties": {"a": {"type": "string"}}, "default": {"b": "x"}}),
                "s.properties[spec].default: Invalid value: {\"b\":\"x\"}: must not have unknown fields",
            ),
            (
                json!({"type": "object", "x-kubernetes-embedded-resource": true}),
                "s.properties[spec].properties: Required value: must not be empty if x-kubernetes-embedded-resource is true without x-kubernetes-preserve-unknown-fields",
            ),
        ];
        for (schema, expected) in table {
            assert_eq!(fields(spec(schema.clone())), [expected], "{schema}");
        }
        let metadata = json!({"type": "object", "properties": {"metadata": {"type": "object", "properties": {"labels": {"type": "object"}}}}});
        assert_eq!(
            fields(metadata),
            [
                "s.properties[metadata]: Forbidden: must not specify anything other than name and generateName, but metadata is implicitly specified"
            ]
        );
    }
}
