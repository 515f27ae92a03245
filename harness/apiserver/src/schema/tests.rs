//! Schemas as tables: what is pruned, filled in and refused.

use serde_json::{Value, json};

use super::Schema;

fn texts(schema: &Value, object: &Value, old: Option<&Value>) -> Vec<String> {
    let causes = Schema::compile(schema).validate(object, old);
    causes.iter().map(|cause| format!("{} {}: {}", cause.reason, cause.field, cause.message)).collect()
}

fn spec(of: Value) -> Value {
    json!({"type": "object", "properties": {"spec": of}})
}

#[test]
fn members_that_no_schema_names_are_pruned_and_reported_with_their_place() {
    let schema = Schema::compile(&json!({"type": "object", "properties": {"spec": {
        "type": "object",
        "properties": {
            "list": {"type": "array", "items": {"type": "object", "properties": {"name": {"type": "string"}}}},
            "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": {
                "strict": {"type": "object", "properties": {"a": {"type": "string"}}}}},
            "map": {"type": "object", "additionalProperties": {"type": "object", "properties": {"v": {}}}},
            "whole": {"type": "object", "x-kubernetes-embedded-resource": true, "properties": {"spec": {"type": "object"}}},
        },
    }}}));
    let mut object = json!({
        "apiVersion": "g/v1", "kind": "K", "metadata": {"name": "n", "labels": {"a": "b"}}, "other": 1,
        "spec": {
            "junk": 1, "list": [{"name": "x"}, {"name": "y", "extra": {}}],
            "free": {"any": [1, {"z": null}], "strict": {"a": "b", "c": 1}},
            "map": {"k": {"v": 1, "w": 2}}, "whole": {"kind": "P", "metadata": {"x": 1}, "spec": {}, "status": {}},
        },
    });
    let unknown = schema.prune(&mut object);
    assert_eq!(
        unknown,
        ["other", "spec.junk", "spec.free.strict.c", "spec.list[1].extra", "spec.map.k.w", "spec.whole.status"]
    );
    assert_eq!(
        object["spec"],
        json!({
            "list": [{"name": "x"}, {"name": "y"}],
            "free": {"any": [1, {"z": null}], "strict": {"a": "b"}},
            "map": {"k": {"v": 1}}, "whole": {"kind": "P", "metadata": {"x": 1}, "spec": {}},
        })
    );
    assert_eq!(object["metadata"]["labels"]["a"], "b");
}

#[test]
fn defaults_are_filled_in_from_the_outside_and_only_where_their_parent_is() {
    let schema = Schema::compile(&spec(json!({"type": "object", "properties": {
        "mode": {"type": "string", "default": "Running"},
        "maybe": {"type": "string", "nullable": true, "default": "x"},
        "nested": {"type": "object", "default": {}, "properties": {"depth": {"type": "integer", "default": 1}}},
        "list": {"type": "array", "items": {"type": "object", "properties": {"port": {"type": "integer", "default": 80}}}},
    }})));
    let filled = |mut object: Value| {
        schema.fill(&mut object);
        object
    };
    assert_eq!(filled(json!({})), json!({}), "without a spec there is nothing to fill");
    assert_eq!(
        filled(json!({"spec": {"mode": null, "maybe": null, "list": [{}, {"port": 1}]}})),
        json!({"spec": {
            "mode": "Running", "maybe": null, "nested": {"depth": 1}, "list": [{"port": 80}, {"port": 1}]}})
    );
}

#[test]
fn values_that_do_not_fit_are_refused_in_the_recorded_words() {
    let table = [
        (
            json!({"type": "object", "required": ["b", "a"]}),
            json!({}),
            vec!["FieldValueRequired spec.b: Required value", "FieldValueRequired spec.a: Required value"],
        ),
        (
            json!({"type": "string"}),
            json!(5),
            vec![
                "FieldValueTypeInvalid spec: Invalid value: \"integer\": spec in body must be of type string: \"integer\"",
            ],
        ),
        (
            json!({"type": "string"}),
            json!(null),
            vec!["FieldValueTypeInvalid spec: Invalid value: \"null\": spec in body must be of type string: \"null\""],
        ),
        (json!({"type": "string", "nullable": true}), json!(null), vec![]),
        (json!({"type": "integer"}), json!(1.0), vec![]),
        (
            json!({"type": "integer"}),
            json!(1.5),
            vec![
                "FieldValueTypeInvalid spec: Invalid value: \"number\": spec in body must be of type integer: \"number\"",
            ],
        ),
        (
            json!({"type": "string", "enum": ["Running", "Suspended"]}),
            json!("Nope"),
            vec![
                "FieldValueNotSupported spec: Unsupported value: \"Nope\": supported values: \"Running\", \"Suspended\"",
            ],
        ),
        (
            json!({"type": "integer", "minimum": 0}),
            json!(-1),
            vec!["FieldValueInvalid spec: Invalid value: -1: spec in body should be greater than or equal to 0"],
        ),
        (
            json!({"type": "integer", "maximum": 5, "exclusiveMaximum": true}),
            json!(5),
            vec!["FieldValueInvalid spec: Invalid value: 5: spec in body should be less than 5"],
        ),
        (
            json!({"type": "string", "minLength": 1}),
            json!(""),
            vec!["FieldValueInvalid spec: Invalid value: \"\": spec in body should be at least 1 chars long"],
        ),
        (
            json!({"type": "string", "maxLength": 2}),
            json!("abc"),
            vec!["FieldValueTooLong spec: Too long: may not be more than 2 bytes"],
        ),
        (
            json!({"type": "string", "pattern": "^[a-z]+$"}),
            json!("A"),
            vec!["FieldValueInvalid spec: Invalid value: \"A\": spec in body should match '^[a-z]+$'"],
        ),
        (json!({"type": "string", "pattern": "^\\p{Lu}$"}), json!("\u{c4}"), vec![]),
        (
            json!({"type": "string", "format": "date-time"}),
            json!("yesterday"),
            vec![
                "FieldValueTypeInvalid spec: Invalid value: \"yesterday\": spec in body must be of type date-time: \"yesterday\"",
            ],
        ),
        (
            json!({"x-kubernetes-int-or-string": true, "anyOf": [{"type": "integer"}, {"type": "string"}]}),
            json!("50%"),
            vec![],
        ),
        (
            json!({"x-kubernetes-int-or-string": true}),
            json!(true),
            vec![
                "FieldValueTypeInvalid spec: Invalid value: \"boolean\": spec in body must be of type string: \"boolean\"",
            ],
        ),
        (
            json!({"type": "array", "maxItems": 1, "items": {"type": "integer"}}),
            json!([1, 2]),
            vec!["FieldValueTooMany spec: Too many: 2: must have at most 1 items"],
        ),
        (
            json!({"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}}),
            json!(["a", "a"]),
            vec!["FieldValueDuplicate spec[1]: Duplicate value: \"a\""],
        ),
        (
            json!({"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"],
                   "items": {"type": "object", "properties": {"k": {"type": "string"}}}}),
            json!([{"k": "a"}, {"k": "a", "v": 1}]),
            vec!["FieldValueDuplicate spec[1]: Duplicate value: {\"k\":\"a\"}"],
        ),
        (
            json!({"oneOf": [{"required": ["a"]}, {"required": ["b"]}]}),
            json!({"a": 1, "b": 1}),
            vec![
                "FieldValueInvalid spec: Invalid value: {\"a\":1,\"b\":1}: \"spec\" must validate one and only one schema (oneOf). Found 2 valid alternatives",
            ],
        ),
        (
            json!({"not": {"required": ["a"]}}),
            json!({"a": 1}),
            vec!["FieldValueInvalid spec: Invalid value: {\"a\":1}: \"spec\" must not validate the schema (not)"],
        ),
    ];
    for (of, value, expected) in table {
        assert_eq!(texts(&spec(of.clone()), &json!({"spec": value}), None), expected, "{of}");
    }
}

#[test]
fn what_an_update_leaves_alone_is_not_complained_about() {
    let schema = spec(json!({"type": "object", "properties": {
        "mode": {"type": "string", "enum": ["A"]}, "n": {"type": "integer"},
        "list": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"], "items": {
            "type": "object", "properties": {"k": {"type": "string"}, "v": {"type": "string", "maxLength": 1}}}},
    }}));
    let old = json!({"spec": {"mode": "B", "list": [{"k": "x", "v": "long"}]}});
    let next = json!({"spec": {"mode": "B", "n": 1, "list": [{"k": "y", "v": "s"}, {"k": "x", "v": "long"}]}});
    assert_eq!(texts(&schema, &next, Some(&old)), Vec::<String>::new());
    assert_eq!(texts(&schema, &next, None).len(), 2);
}

#[test]
fn rules_are_evaluated_where_they_stand_and_see_the_old_value() {
    let schema = spec(json!({
        "type": "object",
        "properties": {
            "min": {"type": "integer"}, "max": {"type": "integer"}, "name": {"type": "string", "x-kubernetes-validations": [
                {"rule": "self == oldSelf", "message": "name is immutable"}]},
        },
        "x-kubernetes-validations": [
            {"rule": "self.min <= self.max", "messageExpression": "'at most ' + string(self.max)", "fieldPath": ".min"},
            {"rule": "has(self.name)", "reason": "FieldValueRequired", "message": "a name is needed"},
        ],
    }));
    let good = json!({"spec": {"min": 1, "max": 2, "name": "a"}});
    assert_eq!(texts(&schema, &good, None), Vec::<String>::new());
    assert_eq!(
        texts(&schema, &json!({"spec": {"min": 3, "max": 2}}), None),
        [
            "FieldValueInvalid spec.min: Invalid value: at most 2",
            "FieldValueRequired spec: Required value: a name is needed",
        ]
    );
    let renamed = json!({"spec": {"min": 1, "max": 2, "name": "b"}});
    assert_eq!(
        texts(&schema, &renamed, Some(&good)),
        ["FieldValueInvalid spec.name: Invalid value: name is immutable"]
    );
    assert_eq!(
        texts(&schema, &json!({"spec": {"min": "x", "max": 2}}), None).last().map(String::as_str),
        Some(
            "FieldValueInvalid <nil>: Invalid value: null: some validation rules were not checked because the object was invalid; correct the existing errors to complete validation"
        )
    );
}

#[test]
fn expressions_that_do_not_compile_are_found_with_their_place() {
    let schema = Schema::compile(&spec(json!({
        "type": "string", "pattern": "(", "x-kubernetes-validations": [{"rule": "self ==", "message": "m"}],
    })));
    let mut found = Vec::new();
    schema.mistakes("s", &mut found);
    let places: Vec<&str> = found.iter().map(|(place, _)| place.as_str()).collect();
    assert_eq!(places, ["s.properties[spec].pattern", "s.properties[spec].x-kubernetes-validations[0].rule"]);
}
