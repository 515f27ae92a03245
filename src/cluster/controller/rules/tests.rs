//! Decisions of a pass as tables.
use serde_json::{Value, json};

use super::*;

fn sandbox(mode: &str, tracked: Option<&str>) -> Sandbox {
    let mut sandbox: Sandbox = serde_json::from_value(json!({
        "metadata": {"name": "s1", "namespace": "ns", "uid": "u1"},
        "spec": {"operatingMode": mode, "podTemplate": {"spec": {"containers": [{"name": "agent", "image": "img:1"}]}}},
    }))
    .expect("it is a sandbox");
    sandbox.metadata.annotations = tracked.map(|name| Map::from([(POD_NAME.to_owned(), name.to_owned())]));
    sandbox
}

#[derive(Clone, Copy, PartialEq)]
enum Owner {
    Sandbox,
    Other,
    Nobody,
}
use Owner::{Nobody, Other};

fn a_pod(name: &str, owner: Owner, terminating: bool) -> Arc<Pod> {
    let owners = match owner {
        Owner::Sandbox => json!([sandbox("Running", None).owner_reference()]),
        Other => json!([{"apiVersion": "v1", "kind": "Job", "name": "j", "uid": "u7", "controller": true}]),
        Nobody => json!(null),
    };
    let deleted = terminating.then_some("2026-01-01T00:00:00Z");
    let pod = json!({"metadata": {"name": name, "ownerReferences": owners, "deletionTimestamp": deleted}});
    Arc::new(serde_json::from_value(pod).expect("it is a pod"))
}

/// What a plan does, in a few words.
fn told(plan: &Result<PodPlan, String>) -> Vec<String> {
    let plan = match plan {
        Ok(plan) => plan,
        Err(error) => return vec![format!("error: {error}")],
    };
    let step = |step: &PodStep| match step {
        PodStep::Track(None) => "untrack".to_owned(),
        PodStep::Track(Some(name)) => format!("track {name}"),
        PodStep::Delete(name) => format!("delete {name}"),
        PodStep::Create(pod) => format!("create {}", pod_name(pod)),
        PodStep::Adopt(name, _) => format!("adopt {name}"),
    };
    let state = match &plan.state {
        PodState::Present(pod) => format!("= {}", pod_name(pod)),
        other => format!("= {other:?}"),
    };
    plan.steps.iter().map(step).chain([state]).collect()
}

/// What it is about, mode, tracked Pod, Pods there are, what is done.
type Case<'a> = (&'a str, &'a str, Option<&'a str>, Vec<Arc<Pod>>, &'a [&'a str]);

#[test]
fn what_is_done_about_the_pod() {
    let mine = |terminating| vec![a_pod("s1", Owner::Sandbox, terminating)];
    let cases: Vec<Case> = vec![
        ("none yet", "Running", None, vec![], &["create s1", "track s1", "= Absent"]),
        ("running", "Running", Some("s1"), mine(false), &["= s1"]),
        ("its own but untracked", "Running", None, mine(false), &["track s1", "= s1"]),
        ("terminating is still the pod", "Running", Some("s1"), mine(true), &["= s1"]),
        ("lost", "Running", Some("s1"), vec![], &["untrack", "create s1", "track s1", "= Absent"]),
        (
            "tracked under another name",
            "Running",
            Some("warm-3"),
            vec![a_pod("warm-3", Owner::Sandbox, false)],
            &["= warm-3"],
        ),
        ("to suspend", "Suspended", Some("s1"), mine(false), &["delete s1", "= s1"]),
        ("suspending", "Suspended", Some("s1"), mine(true), &["= s1"]),
        ("gone", "Suspended", Some("s1"), vec![], &["untrack", "= Absent"]),
        ("suspended", "Suspended", None, vec![], &["= Absent"]),
        ("suspended, name taken", "Suspended", Some("s1"), vec![a_pod("s1", Other, false)], &["untrack", "= Foreign"]),
        (
            "name taken by a controlled pod",
            "Running",
            None,
            vec![a_pod("s1", Other, false)],
            &["error: cannot adopt pod \"s1\": it is controlled by Job \"j\""],
        ),
        (
            "two",
            "Running",
            Some("s1"),
            vec![a_pod("s1", Owner::Sandbox, false), a_pod("s2", Owner::Sandbox, false)],
            &["= Multiple(2)"],
        ),
        (
            "two, suspended",
            "Suspended",
            Some("s1"),
            vec![a_pod("s1", Owner::Sandbox, false), a_pod("s2", Owner::Sandbox, true)],
            &["= Multiple(2)"],
        ),
    ];
    for (case, mode, tracked, pods, expected) in cases {
        assert_eq!(told(&pod(Profile::V056, &sandbox(mode, tracked), &pods)), expected, "{case}");
    }
}

#[test]
fn a_pod_without_an_owner_is_taken_only_if_a_label_allows_it() {
    let labelled = |key: &str, value: &str| {
        let mut pod = (*a_pod("s1", Nobody, false)).clone();
        pod.metadata.labels = Some(Map::from([(key.to_owned(), value.to_owned())]));
        [Arc::new(pod)]
    };
    let running = sandbox("Running", None);
    let refusal = &["error: cannot adopt unowned pod \"s1\": missing required pool authorization label \
        (\"agents.x-k8s.io/adoptable\") or sandbox tracking label (\"agents.x-k8s.io/sandbox-name-hash\")"];
    assert_eq!(told(&pod(Profile::V056, &running, &labelled("app", "x"))), refusal);
    assert_eq!(
        told(&pod(Profile::V056, &running, &labelled(NAME_HASH, &name_hash("s2")))),
        refusal,
        "that of another sandbox"
    );
    for (key, value) in [(ADOPTABLE, "true"), (NAME_HASH, name_hash("s1").as_str())] {
        let plan = pod(Profile::V056, &running, &labelled(key, value));
        assert_eq!(told(&plan), ["adopt s1", "track s1", "= s1"], "{key}");
        let Ok(PodPlan { steps, .. }) = plan else { unreachable!("it was told above") };
        let Some(PodStep::Adopt(_, patch)) = steps.first() else { unreachable!("it was told above") };
        assert_eq!(patch["metadata"]["ownerReferences"][0]["uid"], "u1");
        assert_eq!(patch["metadata"]["labels"][NAME_HASH], name_hash("s1"));
    }
}

#[test]
fn the_annotation_patch_is_the_difference_of_the_whole_map() {
    let map = |keys: &[&str]| keys.iter().map(|key| ((*key).to_owned(), "v".to_owned())).collect::<Map>();
    let annotations = |value: Value| json!({"metadata": {"annotations": value}});
    assert_eq!(track_patch(None, Some("s1")), annotations(json!({POD_NAME: "s1"})));
    assert_eq!(track_patch(Some(&map(&[POD_NAME, "other"])), None), annotations(json!({POD_NAME: null})));
    assert_eq!(track_patch(Some(&map(&[POD_NAME])), None), annotations(json!(null)), "it was the only one");
}

#[test]
fn the_name_hash_is_what_the_recorded_controller_wrote() {
    for (name, hash) in [("s1", "0851b8c9"), ("s2", "0551b410"), ("s3", "0651b5a3"), ("b1", "8c2c24bc")] {
        assert_eq!(name_hash(name), hash);
    }
}

#[test]
fn a_pod_comes_from_the_template_as_it_stands_with_gates_labels_annotations_and_claims() {
    let mut sandbox = sandbox("Running", None);
    sandbox.spec = serde_json::from_value(json!({
        "podTemplate": {
            "metadata": {"labels": {"b": "2", "a": "1"}, "annotations": {"note": "x"}},
            "spec": {
                "containers": [{"name": "agent", "image": "img:1"}],
                "schedulingGates": [{"name": "openshell.ai/bootstrap"}],
                "volumes": [{"name": "tmp", "emptyDir": {}}, {"name": "workspace", "emptyDir": {}}],
            },
        },
        "volumeClaimTemplates": [{"metadata": {"name": "workspace"}, "spec": {"accessModes": ["ReadWriteOnce"]}}],
    }))
    .expect("it is a spec");
    let pod = pod_of(&sandbox).expect("the template is sound");
    let hash = name_hash("s1");
    assert_eq!(
        serde_json::to_value(&pod).expect("a pod is JSON"),
        json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {
                "name": "s1", "namespace": "ns",
                "labels": {"a": "1", "b": "2", NAME_HASH: hash},
                "annotations": {"note": "x", PROPAGATED_LABELS: "a,b", PROPAGATED_ANNOTATIONS: "note"},
                "ownerReferences": [{
                    "apiVersion": "agents.x-k8s.io/v1beta1", "kind": "Sandbox", "name": "s1", "uid": "u1",
                    "controller": true, "blockOwnerDeletion": true,
                }],
            },
            "spec": {
                "containers": [{"name": "agent", "image": "img:1"}],
                "schedulingGates": [{"name": "openshell.ai/bootstrap"}],
                "volumes": [
                    {"name": "tmp", "emptyDir": {}},
                    {"name": "workspace", "persistentVolumeClaim": {"claimName": "workspace-s1"}},
                ],
            },
        })
    );
    let missing = claims(&sandbox, |_| false).expect("the template is sound");
    assert_eq!(missing.len(), 1);
    assert_eq!(missing[0].metadata.name.as_deref(), Some("workspace-s1"));
    assert!(sandbox.controls(&missing[0].metadata), "so it goes when the sandbox goes");
    assert_eq!(claims(&sandbox, |name| name == "workspace-s1"), Ok(vec![]));
}

#[test]
fn a_template_that_is_no_pod_is_an_error_that_says_where() {
    let mut sandbox = sandbox("Running", None);
    sandbox.spec.pod_template.spec = json!("nonsense");
    let error = pod(Profile::V056, &sandbox, &[]).expect_err("it cannot be created");
    assert!(error.starts_with("spec.podTemplate.spec is no pod spec: "), "{error}");
}

#[test]
fn a_service_is_made_once_if_wanted_and_never_taken_from_another() {
    let mut sandbox = sandbox("Running", None);
    assert_eq!(service(&sandbox, None), Ok(None), "not wanted");
    sandbox.spec.service = Some(true);
    let made = service(&sandbox, None).expect("nothing is in the way").expect("it is wanted");
    let spec = made.spec.clone().expect("it has one");
    assert_eq!(
        (spec.cluster_ip.as_deref(), spec.selector.expect("it has one")[NAME_HASH].as_str()),
        (Some("None"), "0851b8c9")
    );
    assert_eq!(service(&sandbox, Some(&made)), Ok(None), "it is there");
    let foreign = Service::default();
    assert_eq!(
        service(&sandbox, Some(&foreign)),
        Err("service \"s1\" exists and is not controlled by this sandbox".to_owned())
    );
}

#[test]
fn expiry_is_said_first_and_acted_on_second() {
    let now: Timestamp = "2026-11-29T16:27:48Z".parse().expect("it is a time");
    let mut sandbox = sandbox("Running", None);
    assert_eq!(expiry(&sandbox, now), Expiry::Never);
    sandbox.spec = serde_json::from_value(json!({"shutdownTime": "2026-11-29T16:27:52Z"})).expect("it is a spec");
    assert_eq!(expiry(&sandbox, now), Expiry::In(Duration::from_secs(4)));
    let due: Timestamp = "2026-11-29T16:27:52Z".parse().expect("it is a time");
    assert_eq!(expiry(&sandbox, due), Expiry::Unmarked);
    sandbox.status = Some(super::super::status::expired(&sandbox, due));
    assert_eq!(expiry(&sandbox, due), Expiry::Marked);
    assert_eq!(expiry(&sandbox, now), Expiry::In(Duration::from_secs(4)), "a mark counts only after the time");
    assert!(!deleted_when_expired(&sandbox), "kept unless the policy says Delete");
    sandbox.spec.shutdown_policy = Some("Delete".into());
    assert!(deleted_when_expired(&sandbox));
}

#[test]
fn older_versions_forget_a_pod_as_soon_as_they_delete_it() {
    let old = |tracked, pods: &[Arc<Pod>]| told(&pod(Profile::V050, &sandbox("Suspended", tracked), pods));
    let mine = |terminating| [a_pod("s1", Owner::Sandbox, terminating)];
    assert_eq!(old(Some("s1"), &mine(false)), ["delete s1", "untrack", "= Absent"]);
    assert_eq!(old(None, &mine(true)), ["= Absent"], "it still ends, and is nobody's business");
    assert_eq!(old(None, &[a_pod("s1", Other, false)]), ["= Absent"]);
}

#[test]
fn older_versions_know_of_several_pods_the_one_of_their_name() {
    let pods = [a_pod("s0", Owner::Sandbox, false), a_pod("s1", Owner::Sandbox, false)];
    let running = sandbox("Running", Some("s1"));
    assert_eq!(told(&pod(Profile::V046, &running, &pods)), ["= s1"]);
    assert_eq!(told(&pod(Profile::V056, &running, &pods)), ["= Multiple(2)"]);
}

#[test]
fn both_run_switches_suspend_and_owners_are_named_in_the_version_that_was_read() {
    let read = |spec: Value, version: &str| -> Sandbox {
        let object =
            json!({"apiVersion": version, "kind": "Sandbox", "metadata": {"name": "s1", "uid": "u1"}, "spec": spec});
        serde_json::from_value(object).expect("it is a sandbox")
    };
    for (spec, suspended) in [
        (json!({"replicas": 0}), true),
        (json!({"replicas": 1}), false),
        (json!({}), false),
        (json!({"operatingMode": "Suspended"}), true),
        (json!({"operatingMode": "Running"}), false),
    ] {
        assert_eq!(read(spec.clone(), "").suspended(), suspended, "{spec}");
    }
    for version in ["agents.x-k8s.io/v1alpha1", "agents.x-k8s.io/v1beta1"] {
        assert_eq!(read(json!({}), version).owner_reference().api_version, version);
    }
}
