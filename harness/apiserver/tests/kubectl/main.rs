//! kubectl against this server, over a real socket. Where there is no kubectl, the tests say so and check nothing.

mod rig;

use std::time::Duration;

use serde_json::{Value, json};

/// The rig, or an early return that says why.
macro_rules! rig {
    () => {
        match $crate::rig::Rig::start() {
            Some(rig) => rig,
            None => {
                eprintln!("kubectl is not installed here: nothing was checked");
                return;
            }
        }
    };
}

mod changes;
mod creates;
mod messages;

const POD: &str = r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p","labels":{"app":"x"}},
    "spec":{"containers":[{"name":"c","image":"img:1"}]}}"#;

fn config_map(name: &str, data: Value) -> String {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}).to_string()
}

#[test]
fn create_and_get_show_objects_as_tables_json_and_yaml() {
    let rig = rig!();
    assert_eq!(rig.input(POD).ok("create -f -"), "pod/p created\n");
    let table = rig.ok("get pods");
    let mut lines = table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    assert_eq!(lines.next().expect("a header"), ["NAME", "READY", "STATUS", "RESTARTS", "AGE"]);
    assert_eq!(lines.next().expect("a row")[..4], ["p", "0/1", "Pending", "0"]);
    assert!(rig.ok("get pods -o wide").contains("NOMINATED NODE"));
    assert!(rig.ok("get pod p -o yaml").contains("schedulerName: default-scheduler"));
    let object: Value = serde_json::from_str(&rig.ok("get pod p -o json")).expect("JSON");
    assert_eq!(object["spec"]["restartPolicy"], "Always");
    assert_eq!(rig.ok("get po,cm -o name"), "pod/p\n");
    assert!(rig.fails("get pod nosuch").contains("pods \"nosuch\" not found"));
    assert!(rig.fails("get gadgets").contains("the server doesn't have a resource type \"gadgets\""));
}

#[test]
fn selectors_and_chunks_reach_the_server() {
    let rig = rig!();
    for n in 0..5 {
        rig.input(&config_map(&format!("c{n}"), json!({"k": "v"}))).ok("create -f -");
    }
    rig.ok("label cm c1 app=x");
    assert_eq!(rig.ok("get cm -l app=x -o name"), "configmap/c1\n");
    assert_eq!(rig.ok("get cm -l app!=x,!nosuch -o name").lines().count(), 4);
    assert_eq!(rig.ok("get cm --field-selector metadata.name=c3 -o name"), "configmap/c3\n");
    assert_eq!(rig.ok("get cm --chunk-size 2 -o name").lines().count(), 5);
    assert_eq!(rig.ok("get cm --chunk-size 2 --no-headers").lines().count(), 5);
}

#[test]
fn a_watch_shows_each_change_as_a_row() {
    let rig = rig!();
    rig.input(&config_map("a", json!({}))).ok("create -f -");
    let watch = rig.background("get cm -w");
    watch.wait_for("a ");
    rig.ok("patch cm a --type merge -p {\"data\":{\"k\":\"v\"}}");
    rig.input(&config_map("b", json!({"k": "v", "l": "w"}))).ok("create -f -");
    watch.wait_for("b ");
    let rows: Vec<Vec<String>> =
        watch.text().lines().map(|line| line.split_whitespace().take(2).map(str::to_owned).collect()).collect();
    assert_eq!(rows, [["NAME", "DATA"], ["a", "0"], ["a", "1"], ["b", "2"]]);
}

#[test]
fn apply_creates_changes_and_removes_what_it_had_applied() {
    let rig = rig!();
    let applied = |data: Value| rig.input(&config_map("a", data)).ok("apply -f -");
    assert_eq!(applied(json!({"k": "v", "l": "w"})), "configmap/a created\n");
    assert_eq!(applied(json!({"k": "v", "l": "w"})), "configmap/a unchanged\n");
    assert_eq!(applied(json!({"k": "x"})), "configmap/a configured\n");
    assert_eq!(rig.ok("get cm a -o jsonpath={.data}"), r#"{"k":"x"}"#);
    rig.input(POD).ok("apply -f -");
    assert_eq!(rig.input(POD).ok("apply -f -"), "pod/p unchanged\n");
    assert_eq!(rig.input(&POD.replace("img:1", "img:2")).ok("apply -f -"), "pod/p configured\n");
}

#[test]
fn server_side_apply_owns_fields_and_takes_them_by_force() {
    let rig = rig!();
    let applied =
        |data: Value, more: &str| rig.input(&config_map("a", data)).run(&format!("apply --server-side {more} -f -"));
    let first = applied(json!({"k": "v", "l": "w"}), "--field-manager=one");
    assert_eq!((first.code, first.stdout.as_str()), (0, "configmap/a serverside-applied\n"), "{}", first.stderr);
    let conflict = applied(json!({"k": "x"}), "--field-manager=two");
    assert_ne!(conflict.code, 0);
    assert!(conflict.stderr.contains("conflict with \"one\": .data.k"), "{}", conflict.stderr);
    assert_eq!(applied(json!({"k": "x"}), "--field-manager=two --force-conflicts").code, 0);
    assert_eq!(applied(json!({"l": "w"}), "--field-manager=one").code, 0);
    assert_eq!(rig.ok("get cm a -o jsonpath={.data}"), r#"{"k":"x","l":"w"}"#);
    let owners = rig.ok("get cm a --show-managed-fields -o jsonpath={.metadata.managedFields[*].manager}");
    assert_eq!(owners, "one two");
}

#[test]
fn patches_of_three_types_labels_and_annotations_change_objects() {
    let rig = rig!();
    rig.input(POD).ok("create -f -");
    rig.ok(r#"patch pod p -p {"metadata":{"labels":{"s":"1"}}}"#);
    rig.ok(r#"patch pod p --type merge -p {"metadata":{"labels":{"m":"2"}}}"#);
    rig.ok(r#"patch pod p --type json -p [{"op":"add","path":"/metadata/labels/j","value":"3"}]"#);
    rig.ok("label pod p l=4");
    rig.ok("annotate pod p note=5");
    let object: Value = serde_json::from_str(&rig.ok("get pod p -o json")).expect("JSON");
    assert_eq!(object["metadata"]["labels"], json!({"app": "x", "s": "1", "m": "2", "j": "3", "l": "4"}));
    assert_eq!(object["metadata"]["annotations"]["note"], "5");
    assert!(rig.fails("label pod p l=6").contains("already has a value"));
    rig.ok("label pod p l-");
    assert!(
        rig.fails(r#"patch pod p -p {"spec":{"containers":[{"name":"c","command":["x"]}]}}"#)
            .contains("pod updates may not change fields")
    );
}

#[test]
fn deletes_wait_for_finalizers_and_leave_their_own() {
    let rig = rig!();
    for name in ["a", "b", "c"] {
        rig.input(&config_map(name, json!({}))).ok("create -f -");
    }
    assert_eq!(rig.ok("delete cm a"), "configmap \"a\" deleted\n");
    rig.ok("delete cm b --cascade=orphan --wait=false");
    assert_eq!(rig.ok("get cm b -o jsonpath={.metadata.finalizers}"), r#"["orphan"]"#);
    rig.ok("delete cm c --cascade=foreground --wait=false");
    assert_eq!(rig.ok("get cm c -o jsonpath={.metadata.finalizers}"), r#"["foregroundDeletion"]"#);
    let held = r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"d","finalizers":["test.io/held"]}}"#;
    rig.input(held).ok("create -f -");
    let waiting = rig.background("delete cm d");
    std::thread::sleep(Duration::from_millis(300));
    assert!(waiting.runs(), "the finalizer holds it");
    rig.ok(r#"patch cm d --type merge -p {"metadata":{"finalizers":null}}"#);
    waiting.wait_for("deleted");
    rig.eventually(Duration::from_secs(30), || !waiting.runs());
    assert!(rig.fails("get cm d").contains("not found"));
}

#[test]
fn waits_end_when_the_condition_holds() {
    let rig = rig!();
    rig.input(POD).ok("create -f -");
    let waiting = rig.background("wait --for=condition=Ready pod/p --timeout 30s");
    let status = r#"patch pod p --subresource status --type merge -p {"status":{"conditions":[{"type":"Ready","status":"True"}]}}"#;
    rig.ok(status);
    waiting.wait_for("pod/p condition met");
    rig.ok("wait --for=jsonpath={.spec.restartPolicy}=Always pod/p --timeout 5s");
    rig.ok("delete pod p");
    rig.ok("wait --for=delete pod/p --timeout 5s");
}

#[test]
fn describe_and_events_tell_of_an_object() {
    let rig = rig!();
    rig.input(POD).ok("create -f -");
    let uid = rig.ok("get pod p -o jsonpath={.metadata.uid}");
    let event = json!({
        "apiVersion": "v1", "kind": "Event", "metadata": {"name": "p.1"}, "type": "Warning", "reason": "Odd",
        "message": "something odd", "count": 1, "source": {"component": "test"},
        "firstTimestamp": "2026-11-29T16:15:18Z", "lastTimestamp": "2026-11-29T16:15:18Z",
        "involvedObject": {"apiVersion": "v1", "kind": "Pod", "name": "p", "namespace": "default", "uid": uid},
    });
    rig.input(&event.to_string()).ok("create -f -");
    let described = rig.ok("describe pod p");
    for part in ["Name: ", "app=x", "img:1", "Odd", "something odd"] {
        assert!(described.contains(part), "{part:?} in\n{described}");
    }
    assert!(rig.ok("events").contains("something odd"));
    assert!(rig.ok("get events").contains("pod/p"));
}

#[test]
fn the_types_can_be_listed_and_explained() {
    let rig = rig!();
    let types = rig.ok("api-resources");
    for line in ["pods po v1 true Pod", "sandboxes sandbox agents.x-k8s.io/v1beta1 true Sandbox"] {
        let found = types.lines().any(|l| l.split_whitespace().collect::<Vec<_>>().join(" ") == line);
        assert!(found, "{line:?} in\n{types}");
    }
    assert!(rig.ok("api-versions").contains("agents.x-k8s.io/v1alpha1\n"));
    let explained = rig.ok("explain sandboxes.spec.operatingMode");
    assert!(explained.contains("FIELD: operatingMode <string>") && explained.contains("Suspended"), "{explained}");
    assert!(rig.ok("explain sandbox --recursive").contains("shutdownPolicy"));
    assert!(rig.ok("explain configmap").contains("KIND:       ConfigMap"));
    assert!(rig.ok("version").contains("Server Version: v1.36.2"));
    assert_eq!(rig.ok("get --raw /readyz"), "ok");
}

#[test]
fn custom_resources_come_with_their_crd_and_go_with_it() {
    let rig = rig!();
    let crd = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.toy.test"},
        "spec": {
            "group": "toy.test", "scope": "Namespaced",
            "names": {"plural": "widgets", "kind": "Widget", "shortNames": ["wd"]},
            "versions": [{
                "name": "v1", "served": true, "storage": true, "subresources": {"status": {}, "scale": {
                    "specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}},
                "additionalPrinterColumns": [{"name": "Replicas", "type": "integer", "jsonPath": ".spec.replicas"}],
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                    "spec": {"type": "object", "properties": {"replicas": {"type": "integer", "minimum": 0, "default": 1}}},
                    "status": {"type": "object", "properties": {"replicas": {"type": "integer"}}},
                }}},
            }],
        },
    });
    assert_eq!(
        rig.input(&crd.to_string()).ok("apply -f -"),
        "customresourcedefinition.apiextensions.k8s.io/widgets.toy.test created\n"
    );
    rig.ok("wait --for=condition=Established crd/widgets.toy.test --timeout 10s");
    let widget = |spec: Value| {
        json!({"apiVersion": "toy.test/v1", "kind": "Widget", "metadata": {"name": "w"}, "spec": spec}).to_string()
    };
    rig.eventually(Duration::from_secs(10), || rig.input(&widget(json!({}))).run("apply -f -").code == 0);
    let table = rig.ok("get wd");
    assert_eq!(table.split_whitespace().collect::<Vec<_>>(), ["NAME", "REPLICAS", "w", "1"]);
    assert_eq!(rig.ok("scale widget w --replicas 3"), "widget.toy.test/w scaled\n");
    assert_eq!(rig.ok("get widget w -o jsonpath={.spec.replicas}/{.metadata.generation}"), "3/2");
    assert!(
        rig.fails(r#"patch widget w --type merge -p {"spec":{"replicas":-1}}"#)
            .contains("should be greater than or equal to 0")
    );
    let odd = widget(json!({"replicas": 2, "junk": 1}));
    assert!(rig.input(&odd).fails("apply -f -").contains("unknown field \"spec.junk\""));
    rig.ok("delete crd widgets.toy.test");
    // Whether it is the type or its list that is missing depends on what kubectl remembers.
    rig.fails("get widgets");
}
