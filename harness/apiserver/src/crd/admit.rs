//! What the server makes of a CRD that a client sends: defaults, and what it refuses.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::error::Cause;
use crate::schema::{Schema, structural};

/// Defaults of a CRD, and the part of its status that does not wait for a controller.
pub(crate) fn complete(crd: &mut Value) {
    complete_spec(crd);
    remember_storage(crd);
}

fn complete_spec(crd: &mut Value) {
    let Some(spec) = crd.get_mut("spec").and_then(Value::as_object_mut) else { return };
    spec.entry("conversion").or_insert_with(|| json!({"strategy": "None"}));
    if spec["conversion"]["strategy"] == "Webhook"
        && let Some(client) =
            spec["conversion"].pointer_mut("/webhook/clientConfig/service").and_then(Value::as_object_mut)
    {
        client.entry("port").or_insert_with(|| 443.into());
    }
    if let Some(names) = spec.get_mut("names").and_then(Value::as_object_mut) {
        let kind = names.get("kind").and_then(Value::as_str).unwrap_or_default().to_owned();
        if !kind.is_empty() {
            names.entry("singular").or_insert_with(|| kind.to_lowercase().into());
            names.entry("listKind").or_insert_with(|| format!("{kind}List").into());
        }
    }
    for version in spec.get_mut("versions").and_then(Value::as_array_mut).into_iter().flatten() {
        let Some(version) = version.as_object_mut() else { continue };
        for flag in ["served", "storage"] {
            version.entry(flag).or_insert_with(|| false.into());
        }
    }
}

/// The name of the storage version.
fn storage_version(crd: &Value) -> &str {
    let versions = crd["spec"]["versions"].as_array();
    let stored = versions.into_iter().flatten().find(|version| version["storage"] == true);
    stored.and_then(|version| version["name"].as_str()).unwrap_or_default()
}

/// What is wrong with a CRD. `old` is the one before an update.
pub(crate) fn mistakes(crd: &Value, old: Option<&Value>) -> Vec<Cause> {
    let mut causes = Vec::new();
    let spec = &crd["spec"];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (group, plural) = (text(&spec["group"]), text(&spec["names"]["plural"]));
    let expected = format!("{plural}.{group}");
    if old.is_none() && crd["metadata"]["name"] != *expected {
        let what = format!("must be spec.names.plural+\".\"+spec.group, {expected:?}");
        causes.push(Cause::invalid("metadata.name", &crd["metadata"]["name"], what));
    }
    if group.is_empty() {
        causes.push(Cause::required("spec.group", ""));
    } else if !group.contains('.') {
        causes.push(Cause::invalid("spec.group", &spec["group"], "should be a domain with at least one dot"));
    }
    for name in ["plural", "singular", "kind", "listKind"] {
        if text(&spec["names"][name]).is_empty() {
            causes.push(Cause::required(&format!("spec.names.{name}"), ""));
        }
    }
    match spec["scope"].as_str().unwrap_or_default() {
        "Namespaced" | "Cluster" => {}
        "" => causes.push(Cause::required("spec.scope", "")),
        other => causes.push(Cause::unsupported("spec.scope", format_args!("{other:?}"), &["Cluster", "Namespaced"])),
    }
    versions(spec, &mut causes);
    match spec["conversion"]["strategy"].as_str().unwrap_or_default() {
        "None" => {}
        "Webhook" if spec["conversion"]["webhook"]["clientConfig"].is_object() => {}
        "Webhook" => causes.push(Cause::required("spec.conversion.webhook.clientConfig", "")),
        other => {
            causes.push(Cause::unsupported(
                "spec.conversion.strategy",
                format_args!("{other:?}"),
                &["None", "Webhook"],
            ));
        }
    }
    if let Some(old) = old {
        immutable(spec, &old["spec"], &mut causes);
    }
    causes
}

fn versions(spec: &Value, causes: &mut Vec<Cause>) {
    let empty = Vec::new();
    let versions = spec["versions"].as_array().unwrap_or(&empty);
    let stored = versions.iter().filter(|version| version["storage"] == true).count();
    let mut names = BTreeSet::new();
    if versions.is_empty() || stored != 1 {
        let what = "must have exactly one version marked as storage version";
        causes.push(Cause::invalid("spec.versions", &spec["versions"], what));
    }
    for (at, version) in versions.iter().enumerate() {
        let place = format!("spec.versions[{at}]");
        let name = version["name"].as_str().unwrap_or_default();
        if name.is_empty() {
            causes.push(Cause::required(&format!("{place}.name"), ""));
        } else if !names.insert(name) {
            let what = "must contain unique version names";
            causes.push(Cause::invalid("spec.versions", &spec["versions"], what));
        }
        let schema = &version["schema"]["openAPIV3Schema"];
        let place = format!("{place}.schema.openAPIV3Schema");
        if !schema.is_object() {
            causes.push(Cause::required(&place, "schemas are required"));
            continue;
        }
        if schema["type"] != "object" {
            let found = if schema["type"].is_null() { json!("") } else { schema["type"].clone() };
            causes.push(match found.as_str() {
                Some("") => Cause::required(&format!("{place}.type"), "must not be empty at the root"),
                _ => Cause::invalid(&format!("{place}.type"), &found, "must be object at the root"),
            });
        }
        causes.extend(structural::mistakes(schema, &place));
        let mut wrong = Vec::new();
        Schema::compile(schema).mistakes(&place, &mut wrong);
        let invalid =
            |(field, what)| Cause { reason: "FieldValueInvalid", message: format!("Invalid value: {what}"), field };
        causes.extend(wrong.into_iter().map(invalid));
    }
}

/// What names a type cannot change under its objects.
fn immutable(spec: &Value, old: &Value, causes: &mut Vec<Cause>) {
    for pointer in ["/group", "/scope", "/names/kind", "/names/plural"] {
        let (now, before) = (spec.pointer(pointer), old.pointer(pointer));
        if now != before {
            let field = format!("spec{}", pointer.replace('/', "."));
            causes.push(Cause::invalid(&field, now.unwrap_or(&Value::Null), "field is immutable"));
        }
    }
}

/// Adds the storage version to the versions that objects may be stored in.
fn remember_storage(crd: &mut Value) {
    let storage = storage_version(crd).to_owned();
    if !crd["status"].is_object() {
        crd["status"] = json!({"conditions": null, "acceptedNames": {"plural": "", "kind": ""}, "storedVersions": []});
    }
    if let Some(stored) = crd["status"]["storedVersions"].as_array_mut()
        && !stored.iter().any(|version| *version == storage)
    {
        stored.push(storage.into());
    }
}
