//! Built-in types as OpenAPI: the names and types of their members, from the table that bodies are checked by.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::OnceLock;

use serde_json::{Map, Value, json};

use crate::typed::TABLE;

/// Definitions by name.
fn definitions() -> &'static BTreeMap<&'static str, &'static str> {
    static ALL: OnceLock<BTreeMap<&str, &str>> = OnceLock::new();
    ALL.get_or_init(|| TABLE.lines().map(|line| line.split_once(' ').unwrap_or((line, ""))).collect())
}

/// The members of a definition: name, type.
fn members(definition: &str) -> impl Iterator<Item = (&'static str, &'static str)> {
    let words = definitions().get(definition).copied().unwrap_or_default().split(' ');
    words.filter_map(|word| word.split_once(':'))
}

/// A definition as OpenAPI.
pub(crate) fn document(definition: &str) -> Value {
    let properties: Map<String, Value> =
        members(definition).map(|(name, kind)| (name.to_owned(), described(kind))).collect();
    json!({"type": "object", "properties": properties})
}

fn described(kind: &str) -> Value {
    match kind {
        "s" => json!({"type": "string"}),
        "t" | "m" => json!({"type": "string", "format": "date-time"}),
        "y" => json!({"type": "string", "format": "byte"}),
        "i" => json!({"type": "integer", "format": "int32"}),
        "l" => json!({"type": "integer", "format": "int64"}),
        "n" => json!({"type": "number", "format": "double"}),
        "b" => json!({"type": "boolean"}),
        "x" | "q" => json!({"type": "string", "x-kubernetes-int-or-string": true}),
        "o" => json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true}),
        _ => match kind.as_bytes()[0] {
            b'[' => json!({"type": "array", "items": described(&kind[1..])}),
            b'{' => json!({"type": "object", "additionalProperties": described(&kind[1..])}),
            _ => json!({"allOf": [{"$ref": format!("#/components/schemas/{}", component(kind))}], "default": {}}),
        },
    }
}

/// The name of a definition among the components of a document.
fn component(definition: &str) -> String {
    format!("io.k8s.api.{definition}")
}

/// All definitions below a type's own, as components of an OpenAPI document.
pub(crate) fn components(definition: &str, into: &mut Map<String, Value>) {
    let mut seen = BTreeSet::new();
    let mut open: Vec<&str> = members(definition).map(|(_, kind)| kind).collect();
    while let Some(kind) = open.pop() {
        let name = kind.trim_start_matches(['[', '{']);
        if name.len() > 1 && seen.insert(name) {
            into.entry(component(name)).or_insert_with(|| document(name));
            open.extend(members(name).map(|(_, kind)| kind));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resource::{Held, SandboxVersions, registry};

    #[test]
    fn every_built_in_type_has_its_members_and_every_definition_that_is_named_is_there() {
        for resource in registry(SandboxVersions::Both, true).into_iter().filter(|of| of.held == Held::Objects) {
            let known = definitions().contains_key(&*resource.kind);
            assert!(resource.custom || known || resource.group == crate::crd::GROUP, "{}", resource.kind);
        }
        for name in definitions().keys() {
            for (member, kind) in members(name) {
                let inner = kind.trim_start_matches(['[', '{']);
                assert!(inner.len() == 1 || definitions().contains_key(inner), "{name}.{member}: {kind}");
            }
        }
    }

    #[test]
    fn components_are_complete() {
        let mut all = Map::new();
        components("Pod", &mut all);
        let text = Value::Object(all.clone()).to_string();
        for reference in text.split("#/components/schemas/").skip(1) {
            let name = reference.split('"').next().unwrap_or_default();
            assert!(all.contains_key(name), "{name}");
        }
        assert!(all.contains_key("io.k8s.api.Container"));
    }
}
