//! From the JSON of an `openAPIV3Schema` to a [`Schema`].

use serde_json::{Map, Value};

use super::{Kind, Limits, ListType, Pattern, Rules, Schema};

impl Schema {
    /// Compiles a schema. Keywords that mean nothing to the server (`description`, `example`) are left out.
    pub(crate) fn compile(json: &Value) -> Schema {
        let empty = Map::new();
        let node = json.as_object().unwrap_or(&empty);
        let flag = |key: &str| node.get(key) == Some(&Value::Bool(true));
        let child = |key: &str| node.get(key).filter(|v| v.is_object()).map(|v| Box::new(Schema::compile(v)));
        let mut schema = Schema {
            kind: kind(node),
            nullable: flag("nullable"),
            properties: node
                .get("properties")
                .and_then(Value::as_object)
                .map(|all| all.iter().map(|(name, schema)| (name.clone(), Schema::compile(schema))).collect())
                .unwrap_or_default(),
            additional: match node.get("additionalProperties") {
                Some(Value::Bool(true)) => Some(Box::new(Schema { preserve: true, ..Schema::default() })),
                _ => child("additionalProperties"),
            },
            items: child("items"),
            preserve: flag("x-kubernetes-preserve-unknown-fields"),
            embedded: flag("x-kubernetes-embedded-resource"),
            list: list_type(node),
            required: texts(node.get("required")),
            default: node.get("default").cloned(),
            fills: false,
            ruled: false,
            limits: limits(node).map(Box::new),
            rules: Rules::of(node).map(Box::new),
        };
        let below = || {
            let additional = schema.additional.as_deref();
            schema.properties.values().chain(additional).chain(schema.items.as_deref())
        };
        // A default of the node itself is its parent's business; the root's own is never used.
        let fills = below().any(|s| s.fills || s.default.is_some());
        let ruled = schema.rules.is_some() || below().any(|s| s.ruled);
        schema.fills = fills;
        schema.ruled = ruled;
        schema
    }

    /// What is wrong with the expressions in a schema at that place: patterns and rules that do not compile.
    pub(crate) fn mistakes(&self, place: &str, found: &mut Vec<(String, String)>) {
        if let Some(pattern) = self.limits.as_ref().and_then(|limits| limits.pattern.as_ref())
            && pattern.regex().is_none()
        {
            let what = format!("must be a valid regular expression, but isn't: {}", pattern.text);
            found.push((format!("{place}.pattern"), what));
        }
        if let Some(rules) = &self.rules {
            let rule = format!("{place}.x-kubernetes-validations[0].rule");
            found.extend(rules.mistakes().into_iter().map(|what| (rule.clone(), what)));
        }
        for (name, schema) in &self.properties {
            schema.mistakes(&format!("{place}.properties[{name}]"), found);
        }
        for (name, schema) in [("additionalProperties", &self.additional), ("items", &self.items)] {
            if let Some(schema) = schema {
                schema.mistakes(&format!("{place}.{name}"), found);
            }
        }
    }
}

fn kind(node: &Map<String, Value>) -> Kind {
    if node.get("x-kubernetes-int-or-string") == Some(&Value::Bool(true)) {
        return Kind::IntOrString;
    }
    match node.get("type").and_then(Value::as_str) {
        Some("object") => Kind::Object,
        Some("array") => Kind::Array,
        Some("string") => Kind::String,
        Some("integer") => Kind::Integer,
        Some("number") => Kind::Number,
        Some("boolean") => Kind::Boolean,
        _ => Kind::Any,
    }
}

fn list_type(node: &Map<String, Value>) -> ListType {
    match node.get("x-kubernetes-list-type").and_then(Value::as_str) {
        Some("set") => ListType::Set,
        Some("map") => ListType::Map(texts(node.get("x-kubernetes-list-map-keys"))),
        _ => ListType::Atomic,
    }
}

fn texts(value: Option<&Value>) -> Vec<String> {
    value.and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}

fn limits(node: &Map<String, Value>) -> Option<Limits> {
    let number = |key: &str| node.get(key).and_then(Value::as_f64);
    let count = |key: &str| node.get(key).and_then(Value::as_u64);
    let bound =
        |key: &str, exclusive: &str| number(key).map(|limit| (limit, node.get(exclusive) == Some(&Value::Bool(true))));
    let branches = |key: &str| -> Vec<Schema> {
        node.get(key).and_then(Value::as_array).into_iter().flatten().map(Schema::compile).collect()
    };
    const KEYWORDS: [&str; 16] = [
        "enum",
        "minimum",
        "maximum",
        "multipleOf",
        "minLength",
        "maxLength",
        "minItems",
        "maxItems",
        "minProperties",
        "maxProperties",
        "pattern",
        "format",
        "allOf",
        "anyOf",
        "oneOf",
        "not",
    ];
    if !KEYWORDS.iter().any(|keyword| node.contains_key(*keyword)) {
        return None;
    }
    // What an int-or-string says of its two types is what its kind says already.
    let int_or_string = kind(node) == Kind::IntOrString;
    Some(Limits {
        one_of_values: node.get("enum").and_then(Value::as_array).cloned(),
        minimum: bound("minimum", "exclusiveMinimum"),
        maximum: bound("maximum", "exclusiveMaximum"),
        multiple_of: number("multipleOf"),
        min_length: count("minLength"),
        max_length: count("maxLength"),
        min_items: count("minItems"),
        max_items: count("maxItems"),
        min_properties: count("minProperties"),
        max_properties: count("maxProperties"),
        pattern: node.get("pattern").and_then(Value::as_str).map(Pattern::new),
        format: node.get("format").and_then(Value::as_str).map(str::to_owned),
        all_of: branches("allOf"),
        any_of: if int_or_string { Vec::new() } else { branches("anyOf") },
        one_of: branches("oneOf"),
        not: node.get("not").map(|not| Box::new(Schema::compile(not))),
    })
}
