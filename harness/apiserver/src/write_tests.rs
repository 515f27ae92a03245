use serde_json::json;

use super::*;
use crate::history::EventType;
use crate::resource::{SandboxVersions, registry};

fn resource(plural: &str) -> Resource {
    registry(SandboxVersions::Both, true).into_iter().find(|r| r.plural == plural).expect("registered")
}

fn subject<'a>(resource: &'a Resource, name: &'a str) -> Subject<'a> {
    let author = Author { manager: "test", subresource: "", tracked: true };
    Subject { resource, version: 0, namespace: "d", name, author }
}

/// A sandbox as it is stored at revision 5, with `extra` merged over its metadata.
fn stored(resource: &Resource, extra: Value) -> Object {
    let mut value = json!({
        "apiVersion": "agents.x-k8s.io/v1beta1", "kind": "Sandbox",
        "metadata": {"name": "s", "namespace": "d", "uid": "u1", "generation": 1, "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {"operatingMode": "Running", "shutdownPolicy": "Retain", "podTemplate": {}},
        "status": {"selector": "a"},
    });
    let metadata = metadata_mut(&mut value);
    metadata.extend(extra.as_object().cloned().unwrap_or_default());
    Object::new(resource, 5, value, EventType::Added)
}

fn sent(object: &Object, change: impl FnOnce(&mut Value)) -> Value {
    let mut value = Value::clone(object.value());
    change(&mut value);
    value
}

fn changed(result: Result<Updated, ApiError>) -> Value {
    match result {
        Ok(Updated::Changed(value)) => value,
        other => panic!("expected a change, got {other:?}"),
    }
}

#[test]
fn the_generation_counts_changes_of_the_spec_alone() {
    let sandboxes = resource("sandboxes");
    let object = stored(&sandboxes, json!({}));
    let table: [(&str, Value, i64); 5] = [
        ("/spec/operatingMode", json!("Suspended"), 2),
        ("/spec/service", json!(true), 2),
        ("/metadata/labels", json!({"a": "b"}), 1),
        ("/metadata/annotations", json!({"a": "b"}), 1),
        ("/metadata/finalizers", json!(["x/y"]), 1),
    ];
    for (path, value, generation) in table {
        let next = sent(&object, |o| {
            let (parent, key) = path.rsplit_once('/').expect("a path");
            o.pointer_mut(parent).and_then(Value::as_object_mut).expect("a map").insert(key.into(), value);
        });
        let next = changed(updated(subject(&sandboxes, "s"), Part::Main, &object, next, Way::Whole, 0));
        assert_eq!(next["metadata"]["generation"], generation, "{path}");
    }
}

#[test]
fn a_write_that_changes_nothing_of_its_part_is_no_write() {
    let sandboxes = resource("sandboxes");
    let object = stored(&sandboxes, json!({}));
    let table: [(&str, Part, Value); 4] = [
        ("identical", Part::Main, sent(&object, |_| {})),
        ("a status on the main path", Part::Main, sent(&object, |o| o["status"] = json!({"selector": "b"}))),
        ("a generation", Part::Main, sent(&object, |o| o["metadata"]["generation"] = 9.into())),
        (
            "a spec and labels on the status path",
            Part::Status,
            sent(&object, |o| {
                o["spec"]["operatingMode"] = "Suspended".into();
                o["metadata"]["labels"] = json!({"a": "b"});
            }),
        ),
    ];
    for (what, part, next) in table {
        assert_eq!(
            updated(subject(&sandboxes, "s"), part, &object, next, Way::Whole, 0),
            Ok(Updated::Unchanged),
            "{what}"
        );
    }
}

#[test]
fn the_status_path_of_core_types_takes_labels_too() {
    let pods = resource("pods");
    let value = json!({
        "metadata": {"name": "p", "namespace": "d", "uid": "u1", "generation": 1},
        "spec": {"containers": [{"name": "c", "image": "img:1"}]}, "status": {"phase": "Pending"},
    });
    let mut value = value;
    defaults::apply(&pods, 0, &mut value);
    let object = Object::new(&pods, 5, value, EventType::Added);
    let next = sent(&object, |o| {
        o["metadata"]["labels"] = json!({"a": "b"});
        o["spec"]["containers"][0]["image"] = "img:2".into();
        o["status"]["phase"] = "Running".into();
    });
    let next = changed(updated(subject(&pods, "p"), Part::Status, &object, next, Way::Patch, 0));
    assert_eq!(next["metadata"]["labels"], json!({"a": "b"}));
    assert_eq!(next["spec"]["containers"][0]["image"], "img:1");
    assert_eq!(next["status"]["phase"], "Running");
    assert_eq!(next["metadata"]["generation"], 1);
}

#[test]
fn preconditions_of_updates_fail_as_the_table_says() {
    let sandboxes = resource("sandboxes");
    let configmaps = resource("configmaps");
    let object = stored(&sandboxes, json!({}));
    let map = Object::new(
        &configmaps,
        5,
        json!({"metadata": {"name": "s", "namespace": "d", "uid": "u1"}}),
        EventType::Added,
    );
    type Change = fn(&mut Value);
    type Row<'a> = (&'a Resource, &'a Object, &'a str, Change, bool, Option<u16>);
    let none: Change = |o| {
        metadata_mut(o).remove("resourceVersion");
    };
    let stale: Change = |o| o["metadata"]["resourceVersion"] = "4".into();
    let other: Change = |o| o["metadata"]["uid"] = "u2".into();
    let renamed: Change = |o| o["metadata"]["name"] = "t".into();
    let moved: Change = |o| o["metadata"]["namespace"] = "e".into();
    let dying: Change = |o| o["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
    let table: [Row<'_>; 11] = [
        (&sandboxes, &object, "custom, no revision", none, true, Some(422)),
        (&configmaps, &map, "core, no revision", none, true, None),
        (&sandboxes, &object, "patch, no revision", none, false, None),
        (&sandboxes, &object, "stale", stale, true, Some(409)),
        (&sandboxes, &object, "patch to stale", stale, false, Some(409)),
        (&sandboxes, &object, "another uid", other, true, Some(409)),
        (&sandboxes, &object, "patch to another uid", other, false, Some(422)),
        (&sandboxes, &object, "another name", renamed, true, Some(400)),
        (&sandboxes, &object, "another namespace", moved, true, Some(400)),
        (&configmaps, &map, "put into termination", dying, true, Some(422)),
        (&configmaps, &map, "patched into termination", dying, false, None),
    ];
    for (resource, object, what, change, put, code) in table {
        let way = if put { Way::Whole } else { Way::Patch };
        let result = updated(subject(resource, "s"), Part::Main, object, sent(object, change), way, 0);
        assert_eq!(result.err().map(|error| error.code), code, "{what}");
    }
}

#[test]
fn a_terminating_object_goes_with_its_last_finalizer_and_takes_no_new_one() {
    let sandboxes = resource("sandboxes");
    let object = stored(
        &sandboxes,
        json!({"finalizers": ["x/y"], "deletionTimestamp": "2026-01-01T00:00:00Z", "deletionGracePeriodSeconds": 0}),
    );
    let without = sent(&object, |o| {
        metadata_mut(o).remove("finalizers");
    });
    match updated(subject(&sandboxes, "s"), Part::Main, &object, without, Way::Whole, 0) {
        Ok(Updated::Released(last)) => {
            assert_eq!(last["metadata"].get("finalizers"), None);
            assert_eq!(last["metadata"]["resourceVersion"], "5", "the answer carries the old revision");
        }
        other => panic!("expected the object to go, got {other:?}"),
    }
    let more = sent(&object, |o| o["metadata"]["finalizers"] = json!(["x/y", "x/z"]));
    let refused = updated(subject(&sandboxes, "s"), Part::Main, &object, more, Way::Whole, 0).expect_err("refused");
    assert_eq!(refused.code, 422);
    let alive = sent(&object, |o| {
        metadata_mut(o).remove("deletionTimestamp");
    });
    assert_eq!(
        updated(subject(&sandboxes, "s"), Part::Main, &object, alive, Way::Patch, 0),
        Ok(Updated::Unchanged),
        "nobody comes back to life"
    );
}

#[test]
fn names_are_given_generated_or_refused() {
    let configmaps = resource("configmaps");
    let long = "g".repeat(70);
    let table = [
        (json!({"name": "a"}), Ok("a".to_owned())),
        (json!({"generateName": "gen-"}), Ok("gen-xxxxx".to_owned())),
        (json!({"name": "a", "generateName": "gen-"}), Ok("a".to_owned())),
        (json!({"generateName": long}), Ok(format!("{}xxxxx", "g".repeat(58)))),
        (json!({}), Err(422)),
        (json!({"name": "Bad_Name"}), Err(422)),
        (json!({"name": "a..b"}), Err(422)),
    ];
    for (metadata, expected) in table {
        let mut body = json!({"metadata": metadata});
        let named = name(&configmaps, &mut body, || "xxxxx".into());
        assert_eq!(named.map_err(|error| error.code), expected, "{metadata}");
    }
}
