//! CRDs as they are read, completed and refused.

use serde_json::{Value, json};

use super::*;

fn toy() -> Value {
    let version = |name: &str, storage: bool| {
        json!({
            "name": name, "served": true, "storage": storage,
            "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": {"type": "object"}}}},
            "subresources": {"status": {}, "scale": {
                "specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}},
            "selectableFields": [{"jsonPath": ".spec.a"}],
        })
    };
    let mut crd = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.toy.test"},
        "spec": {
            "group": "toy.test", "names": {"plural": "widgets", "kind": "Widget"}, "scope": "Namespaced",
            "versions": [version("v1", false), version("v2", true)],
        },
    });
    complete(&mut crd);
    crd
}

#[test]
fn a_crd_is_completed_as_the_recorded_one_was() {
    let crd = toy();
    assert_eq!(
        crd["spec"]["names"],
        json!({"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"})
    );
    assert_eq!(crd["spec"]["conversion"], json!({"strategy": "None"}));
    assert_eq!(
        crd["status"],
        json!({"conditions": null, "acceptedNames": {"plural": "", "kind": ""}, "storedVersions": ["v2"]})
    );
    assert_eq!(mistakes(&crd, None), []);
}

#[test]
fn the_storage_version_comes_first_and_only_served_ones_are_found() {
    let mut crd = toy();
    crd["spec"]["versions"][0]["served"] = false.into();
    let widgets = resource(&crd, true);
    assert_eq!(widgets.versions, ["v2", "v1"]);
    assert_eq!((widgets.version("v2"), widgets.version("v1")), (Some(0), None));
    assert_eq!(widgets.field_labels(0)[0].label, "spec.a");
    assert_eq!(widgets.scale(0).map(|scale| &*scale.spec), Some(".spec.replicas"));
    assert_eq!(widgets.qualified(), "widgets.toy.test");
}

#[test]
fn a_crd_that_makes_no_sense_is_refused() {
    let table: [(&str, Value, &str); 7] = [
        ("/metadata/name", json!("x.toy.test"), "metadata.name"),
        ("/spec/scope", json!("Everywhere"), "spec.scope"),
        ("/spec/versions/0/storage", json!(true), "spec.versions"),
        ("/spec/versions/0/schema", json!({}), "spec.versions[0].schema.openAPIV3Schema"),
        ("/spec/conversion/strategy", json!("Magic"), "spec.conversion.strategy"),
        (
            "/spec/versions/0/schema/openAPIV3Schema/properties/spec",
            json!({"properties": {"a": {"type": "string"}}}),
            "spec.versions[0].schema.openAPIV3Schema.properties[spec].type",
        ),
        (
            "/spec/versions/1/schema/openAPIV3Schema/properties/spec",
            json!({"type": "object", "x-kubernetes-validations": [{"rule": "self ="}]}),
            "spec.versions[1].schema.openAPIV3Schema.properties[spec].x-kubernetes-validations[0].rule",
        ),
    ];
    for (pointer, value, field) in table {
        let mut crd = toy();
        *crd.pointer_mut(pointer).expect("is there") = value;
        let fields: Vec<String> = mistakes(&crd, None).into_iter().map(|cause| cause.field).collect();
        assert_eq!(fields, [field], "{pointer}");
    }
    let mut renamed = toy();
    renamed["spec"]["names"]["kind"] = "Gadget".into();
    assert_eq!(mistakes(&renamed, Some(&toy()))[0].field, "spec.names.kind");
}

#[test]
fn the_sandbox_that_is_installed_would_pass_as_a_client_s_own() {
    for versions in [SandboxVersions::Both, SandboxVersions::V1alpha1Only] {
        let crd = installed_sandbox(versions, true);
        assert_eq!(mistakes(&crd, None), []);
        assert!(is(&crd, "Established"));
    }
    let sandboxes = resource(&installed_sandbox(SandboxVersions::Both, true), true);
    assert!(sandboxes.webhook);
    assert!(sandboxes.scale(0).is_none(), "v1beta1 has no scale");
    assert!(sandboxes.scale(1).is_some());
}

#[test]
fn a_webhook_that_nobody_plays_has_an_address() {
    let mut crd = toy();
    crd["spec"]["conversion"] =
        json!({"strategy": "Webhook", "webhook": {"clientConfig": {"url": "https://127.0.0.1:9443/convert"}}});
    let made = resource(&crd, true);
    assert_eq!(
        made.definition.map(|d| d.conversion.clone()),
        Some(Conversion::Unreachable {
            url: "https://127.0.0.1:9443/convert".into(),
            address: "127.0.0.1:9443".into()
        })
    );
}
