//! Commands that change what is there: edit, replace, diff, scale, set, rollout; and those that need a kubelet.

use serde_json::json;

use crate::{POD, config_map};

#[test]
fn an_edit_is_stored_and_one_that_changes_nothing_is_not() {
    let rig = rig!();
    rig.input(&config_map("a", json!({"k": "old"}))).ok("create -f -");
    assert_eq!(rig.env("EDITOR", "sed -i s/old/new/").ok("edit configmap a"), "configmap/a edited\n");
    assert_eq!(rig.ok("get configmap a -o jsonpath={.data.k}"), "new");
    assert!(rig.env("EDITOR", "true").run("edit configmap a").stderr.contains("Edit cancelled, no changes made"));
}

#[test]
fn replace_needs_the_object_and_the_revision_that_it_names() {
    let rig = rig!();
    rig.input(&config_map("a", json!({"k": "1", "l": "1"}))).ok("create -f -");
    let stale = rig.ok("get configmap a -o json");
    assert_eq!(rig.input(&config_map("a", json!({"k": "2"}))).ok("replace -f -"), "configmap/a replaced\n");
    assert_eq!(rig.ok("get configmap a -o jsonpath={.data}"), r#"{"k":"2"}"#);
    assert!(rig.input(&stale).fails("replace -f -").contains("the object has been modified"));
    assert!(rig.input(&config_map("b", json!({}))).fails("replace -f -").contains("configmaps \"b\" not found"));
    let uid = rig.ok("get configmap a -o jsonpath={.metadata.uid}");
    rig.input(&config_map("a", json!({"k": "3"}))).ok("replace --force -f -");
    assert_ne!(rig.ok("get configmap a -o jsonpath={.metadata.uid}"), uid);
}

#[test]
fn a_diff_shows_what_an_apply_would_change_and_changes_nothing() {
    let rig = rig!();
    rig.input(&config_map("a", json!({"k": "old"}))).ok("apply -f -");
    assert_eq!(rig.input(&config_map("a", json!({"k": "old"}))).run("diff -f -").code, 0);
    for way in ["diff -f -", "diff --server-side --force-conflicts -f -"] {
        let changed = rig.input(&config_map("a", json!({"k": "new"}))).run(way);
        assert_eq!(changed.code, 1, "{way}: {}", changed.stderr);
        assert!(changed.stdout.contains("-  k: old") && changed.stdout.contains("+  k: new"), "{}", changed.stdout);
    }
    assert_eq!(rig.ok("get configmap a -o jsonpath={.data.k}"), "old");
}

#[test]
fn a_rollout_is_followed_until_its_status_says_it_is_complete() {
    let rig = rig!();
    rig.ok("create deployment d --image=img:1 --replicas=2");
    assert_eq!(rig.ok("scale deployment d --current-replicas=2 --replicas=3"), "deployment.apps/d scaled\n");
    assert!(
        rig.fails("scale deployment d --current-replicas=2 --replicas=4").contains("Expected replicas to be 2, was 3")
    );
    assert_eq!(rig.ok("set image deployment/d img=img:2"), "deployment.apps/d image updated\n");
    rig.ok("rollout restart deployment d");
    let generation = rig.ok("get deployment d -o jsonpath={.metadata.generation}");
    assert_eq!(generation, "4", "created, scaled, set, restarted");
    let following = rig.background("rollout status deployment d --timeout 60s");
    following.wait_for("Waiting for deployment");
    let counts = json!({"observedGeneration": 4, "replicas": 3, "updatedReplicas": 3, "availableReplicas": 3, "readyReplicas": 3});
    rig.ok(&format!("patch deployment d --subresource status --type merge -p {}", json!({"status": counts})));
    following.wait_for("successfully rolled out");
    assert!(rig.ok("get deployment d").contains("3/3"));
    rig.ok("rollout pause deployment d");
    assert_eq!(rig.ok("get deployment d -o jsonpath={.spec.paused}"), "true");
}

#[test]
fn commands_that_need_a_kubelet_say_that_there_is_none() {
    let rig = rig!();
    rig.input(POD).ok("create -f -");
    // As a server answers for a pod that no node has: there is no log yet.
    assert_eq!(rig.ok("logs p"), "");
    for (arguments, why) in [
        ("exec p -- true", "pod p does not have a host assigned"),
        ("attach p", "pod p does not have a host assigned"),
        ("cp p:/etc/hosts /dev/null", "pod p does not have a host assigned"),
        ("port-forward p 0:80", "pod is not running"),
        ("top pods", "Metrics API not available"),
        ("certificate approve x", "certificatesigningrequests.certificates.k8s.io \"x\" not found"),
    ] {
        let said = rig.fails(arguments);
        assert!(said.contains(why), "{arguments}: {said}");
    }
    rig.ok("debug p --image=tools --profile=general");
    assert_eq!(rig.ok("get pod p -o jsonpath={.spec.ephemeralContainers[*].image}"), "tools");
}

#[test]
fn everybody_may_do_everything() {
    let rig = rig!();
    assert_eq!(rig.ok("auth can-i delete nodes"), "yes\n");
    assert!(rig.ok("auth whoami").contains("Username"));
}

#[test]
fn nodes_are_cordoned_tainted_and_drained_by_evictions() {
    let rig = rig!();
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}});
    rig.input(&node.to_string()).ok("create -f -");
    assert_eq!(rig.ok("cordon n1"), "node/n1 cordoned\n");
    assert_eq!(rig.ok("get node n1 -o jsonpath={.spec.unschedulable}"), "true");
    rig.ok("taint node n1 dedicated=x:NoSchedule");
    rig.input(&POD.replace("\"spec\":{", "\"spec\":{\"nodeName\":\"n1\",")).ok("create -f -");
    assert!(rig.fails("drain n1").contains("declare no controller"));
    // Nobody ends the pod here: no kubelet runs. That it is asked to go is what a drain does.
    let draining = rig.background("drain n1 --force --grace-period=5 --timeout=20s");
    rig.eventually(std::time::Duration::from_secs(30), || {
        !rig.ok("get pod p -o jsonpath={.metadata.deletionTimestamp}").is_empty()
    });
    rig.ok("delete pod p --grace-period=0 --force");
    draining.wait_for("node/n1 drained");
    assert_eq!(rig.ok("uncordon n1"), "node/n1 uncordoned\n");
}
