//! As much of JSON Schema (draft 7) as the program's own schemas use; a word that it does not know is a panic.
use serde_json::Value;

/// What is wrong with the value, each with its place; nothing if it fits.
pub(crate) fn errors(schema: &Value, value: &Value) -> Vec<String> {
    let mut found = Vec::new();
    walk(schema, schema, value, "", &mut found);
    found
}

fn walk(root: &Value, schema: &Value, value: &Value, at: &str, found: &mut Vec<String>) {
    for (word, rule) in schema.as_object().expect("a schema is an object") {
        let fits = |schema: &Value| {
            let mut found = Vec::new();
            walk(root, schema, value, at, &mut found);
            found.is_empty()
        };
        let list = || rule.as_array().unwrap_or_else(|| panic!("{word} is a list"));
        let text = || rule.as_str().unwrap_or_else(|| panic!("{word} is a text"));
        let number = || rule.as_u64().unwrap_or_else(|| panic!("{word} is a number")) as usize;
        let mut wrong = |is: bool| {
            if is {
                found.push(format!("{at}: {word} {rule}, found {value}"));
            }
        };
        match word.as_str() {
            "$schema" | "title" | "description" | "default" | "definitions" => {}
            "$ref" => {
                let name = text().strip_prefix('#').expect("references stay inside");
                let schema = root.pointer(name).unwrap_or_else(|| panic!("no definition {name}"));
                walk(root, schema, value, at, found);
            }
            "type" => {
                let is = |kind: &str| match kind {
                    "object" => value.is_object(),
                    "array" => value.is_array(),
                    "string" => value.is_string(),
                    "integer" => value.is_i64() || value.is_u64(),
                    "number" => value.is_number(),
                    "null" => value.is_null(),
                    kind => panic!("an unknown type: {kind}"),
                };
                match rule.as_array() {
                    Some(kinds) => wrong(!kinds.iter().filter_map(Value::as_str).any(is)),
                    None => wrong(!is(text())),
                }
            }
            "const" => wrong(value != rule),
            "enum" => wrong(!list().contains(value)),
            "not" => wrong(fits(rule)),
            "anyOf" => wrong(!list().iter().any(fits)),
            "allOf" => list().iter().for_each(|schema| walk(root, schema, value, at, found)),
            "minimum" => wrong(value.as_f64().is_some_and(|v| v < number() as f64)),
            "minItems" => wrong(value.as_array().is_some_and(|v| v.len() < number())),
            "minProperties" => wrong(value.as_object().is_some_and(|v| v.len() < number())),
            "maxProperties" => wrong(value.as_object().is_some_and(|v| v.len() > number())),
            "required" => {
                let keys: Vec<&str> = list().iter().filter_map(Value::as_str).collect();
                wrong(value.as_object().is_some_and(|v| keys.iter().any(|k| !v.contains_key(*k))));
            }
            "pattern" => wrong(value.as_str().is_some_and(|v| match text() {
                "^[a-z0-9-]+$" => !v.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-'),
                "^pf1:" => !v.starts_with("pf1:"),
                pattern => panic!("an unknown pattern: {pattern}"),
            })),
            "properties" => {
                for (key, schema) in rule.as_object().expect("a map") {
                    if let Some(value) = value.get(key) {
                        walk(root, schema, value, &format!("{at}/{key}"), found);
                    }
                }
            }
            "additionalProperties" => {
                assert_eq!(rule, false, "only `false` is known");
                let known = schema.get("properties").and_then(Value::as_object).expect("properties");
                let unknown = value.as_object().and_then(|v| v.keys().find(|k| !known.contains_key(*k)));
                wrong(unknown.is_some());
            }
            "items" => {
                for (n, value) in value.as_array().into_iter().flatten().enumerate() {
                    walk(root, rule, value, &format!("{at}/{n}"), found);
                }
            }
            word => panic!("an unknown word of JSON Schema: {word}"),
        }
    }
}
