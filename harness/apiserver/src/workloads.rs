//! Defaults of the built-in types that this server stores without a controller: workloads, budgets, roles, storage.

use serde_json::{Map, Value, json};

use crate::defaults::{self, fill, set};
use crate::resource::Resource;

/// Defaults that every write fills in. `false`: the type is none of these.
pub(crate) fn apply(resource: &Resource, object: &mut Value) -> bool {
    match (&*resource.group, &*resource.plural) {
        ("apps", "deployments") => {
            spec(
                object,
                &[
                    ("replicas", 1.into()),
                    ("strategy", json!({"type": "RollingUpdate"})),
                    ("revisionHistoryLimit", 10.into()),
                    ("progressDeadlineSeconds", 600.into()),
                ],
            );
            if object["spec"]["strategy"]["type"] == "RollingUpdate" {
                nested(
                    object,
                    "/spec/strategy",
                    "rollingUpdate",
                    &[("maxUnavailable", "25%".into()), ("maxSurge", "25%".into())],
                );
            }
            template(object, "Always");
        }
        ("apps", "replicasets") => {
            spec(object, &[("replicas", 1.into())]);
            template(object, "Always");
        }
        ("apps", "statefulsets") => {
            spec(
                object,
                &[
                    ("replicas", 1.into()),
                    ("podManagementPolicy", "OrderedReady".into()),
                    ("updateStrategy", json!({"type": "RollingUpdate"})),
                    ("revisionHistoryLimit", 10.into()),
                    ("persistentVolumeClaimRetentionPolicy", json!({"whenDeleted": "Retain", "whenScaled": "Retain"})),
                ],
            );
            if object["spec"]["updateStrategy"]["type"] == "RollingUpdate" {
                nested(object, "/spec/updateStrategy", "rollingUpdate", &[("partition", 0.into())]);
            }
            template(object, "Always");
        }
        ("apps", "daemonsets") => {
            spec(object, &[("updateStrategy", json!({"type": "RollingUpdate"})), ("revisionHistoryLimit", 10.into())]);
            if object["spec"]["updateStrategy"]["type"] == "RollingUpdate" {
                nested(
                    object,
                    "/spec/updateStrategy",
                    "rollingUpdate",
                    &[("maxUnavailable", 1.into()), ("maxSurge", 0.into())],
                );
            }
            template(object, "Always");
        }
        ("", "replicationcontrollers") => {
            spec(object, &[("replicas", 1.into())]);
            let labels = object.pointer("/spec/template/metadata/labels").cloned();
            if let Some(labels) = labels {
                set(object, "metadata", "labels", labels.clone());
                set(object, "spec", "selector", labels);
            }
            template(object, "Always");
        }
        ("", "podtemplates") => pod_template(object.get_mut("template"), "Always"),
        ("batch", "cronjobs") => {
            spec(
                object,
                &[
                    ("concurrencyPolicy", "Allow".into()),
                    ("suspend", false.into()),
                    ("successfulJobsHistoryLimit", 3.into()),
                    ("failedJobsHistoryLimit", 1.into()),
                ],
            );
            nested(object, "/spec/jobTemplate", "metadata", &[]);
            pod_template(object.pointer_mut("/spec/jobTemplate/spec/template"), "Never");
        }
        ("batch", "jobs") => {
            spec(
                object,
                &[
                    ("parallelism", 1.into()),
                    ("completions", 1.into()),
                    ("backoffLimit", 6.into()),
                    ("completionMode", "NonIndexed".into()),
                    ("suspend", false.into()),
                    ("podReplacementPolicy", "TerminatingOrFailed".into()),
                ],
            );
            template(object, "Never");
        }
        ("policy", "poddisruptionbudgets") | ("scheduling.k8s.io", "priorityclasses") => {}
        ("rbac.authorization.k8s.io", "rolebindings" | "clusterrolebindings") => subjects(object),
        ("rbac.authorization.k8s.io", _) => {}
        ("storage.k8s.io", "storageclasses") => {
            let Some(class) = object.as_object_mut() else { return true };
            fill(class, &[("reclaimPolicy", "Delete".into()), ("volumeBindingMode", "Immediate".into())]);
        }
        ("", "persistentvolumes") => {
            spec(object, &[("persistentVolumeReclaimPolicy", "Retain".into()), ("volumeMode", "Filesystem".into())]);
        }
        ("discovery.k8s.io", "endpointslices") => {
            for port in object["ports"].as_array_mut().into_iter().flatten() {
                if let Some(port) = port.as_object_mut() {
                    fill(port, &[("name", "".into()), ("protocol", "TCP".into())]);
                }
            }
        }
        _ => return false,
    }
    true
}

/// What a new object gets on top. `false`: the type is none of these.
pub(crate) fn at_creation(resource: &Resource, object: &mut Value) -> bool {
    match (&*resource.group, &*resource.plural) {
        ("apps", "deployments") => object["status"] = json!({}),
        ("apps", "replicasets") => object["status"] = json!({"replicas": 0}),
        ("apps", "statefulsets") => object["status"] = json!({"replicas": 0, "availableReplicas": 0}),
        ("apps", "daemonsets") => {
            // How often the template was changed, as it was counted before types had generations.
            set(object, "metadata", "annotations", json!({}));
            set_in(object, "/metadata/annotations", "deprecated.daemonset.template.generation", "1".into());
            object["status"] = json!({
                "currentNumberScheduled": 0, "numberMisscheduled": 0, "desiredNumberScheduled": 0, "numberReady": 0,
            });
        }
        ("", "replicationcontrollers") => object["status"] = json!({"replicas": 0}),
        ("batch", "cronjobs") => object["status"] = json!({}),
        ("batch", "jobs") => {
            select_own_pods(object);
            object["status"] = json!({});
        }
        ("policy", "poddisruptionbudgets") => {
            object["status"] =
                json!({"disruptionsAllowed": 0, "currentHealthy": 0, "desiredHealthy": 0, "expectedPods": 0});
        }
        ("", "persistentvolumes") => {
            object["metadata"]["finalizers"] = json!(["kubernetes.io/pv-protection"]);
            object["status"] = json!({"phase": "Pending"});
        }
        _ => return false,
    }
    true
}

fn spec(object: &mut Value, values: &[(&str, Value)]) {
    for (key, value) in values {
        set(object, "spec", key, value.clone());
    }
}

/// Sets a member of the map at `pointer`.
fn set_in(object: &mut Value, pointer: &str, member: &str, value: Value) {
    if let Some(map) = object.pointer_mut(pointer).and_then(Value::as_object_mut) {
        map.insert(member.to_owned(), value);
    }
}

/// Fills a member of the map at `pointer`, which it makes if it is not there.
fn nested(object: &mut Value, pointer: &str, member: &str, values: &[(&str, Value)]) {
    let Some(parent) = object.pointer_mut(pointer).and_then(Value::as_object_mut) else { return };
    if let Some(map) = parent.entry(member).or_insert_with(|| json!({})).as_object_mut() {
        fill(map, values);
    }
}

fn template(object: &mut Value, restart: &str) {
    pod_template(object.pointer_mut("/spec/template"), restart);
}

/// Pod templates get what pods get, but for what only admission adds. Jobs have no default restart policy.
fn pod_template(template: Option<&mut Value>, restart: &str) {
    let Some(template) = template.filter(|template| template.is_object()) else { return };
    if let Some(template) = template.as_object_mut() {
        fill(template, &[("metadata", json!({}))]);
    }
    if restart == "Always" {
        set(template, "spec", "restartPolicy", restart.into());
    }
    let had = template["spec"].get("restartPolicy").is_some();
    defaults::pod(template);
    if let Some(spec) = template.get_mut("spec").and_then(Value::as_object_mut) {
        spec.remove("enableServiceLinks");
        if !had {
            spec.remove("restartPolicy");
        }
    }
}

/// Users and groups are of the group of roles unless they say otherwise.
fn subjects(object: &mut Value) {
    for subject in object["subjects"].as_array_mut().into_iter().flatten() {
        let Some(subject) = subject.as_object_mut() else { continue };
        if subject.get("kind").is_some_and(|kind| kind == "User" || kind == "Group") {
            fill(subject, &[("apiGroup", "rbac.authorization.k8s.io".into())]);
        }
    }
    if let Some(role) = object.get_mut("roleRef").and_then(Value::as_object_mut) {
        fill(role, &[("apiGroup", "rbac.authorization.k8s.io".into())]);
    }
}

/// A job selects its pods by its uid, unless the client chooses how.
fn select_own_pods(job: &mut Value) {
    if job["spec"]["manualSelector"] == true {
        return;
    }
    let (uid, name) = (job["metadata"]["uid"].clone(), job["metadata"]["name"].clone());
    job["spec"]["selector"] = json!({"matchLabels": {"batch.kubernetes.io/controller-uid": uid}});
    let labels: Map<String, Value> = [
        ("batch.kubernetes.io/controller-uid", uid.clone()),
        ("batch.kubernetes.io/job-name", name.clone()),
        ("controller-uid", uid),
        ("job-name", name),
    ]
    .into_iter()
    .map(|(key, value)| (key.to_owned(), value))
    .collect();
    if let Some(template) = job.pointer_mut("/spec/template").filter(|template| template.is_object()) {
        set(template, "metadata", "labels", json!({}));
        if let Some(there) = template["metadata"]["labels"].as_object_mut() {
            there.extend(labels);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resource::{SandboxVersions, registry};

    fn resource(plural: &str) -> Resource {
        registry(SandboxVersions::Both, true).into_iter().find(|r| r.plural == plural).expect("registered")
    }

    #[test]
    fn a_deployment_is_completed_as_the_recorded_one_was() {
        let mut object = json!({
            "metadata": {"name": "d"},
            "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": {
                "metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}},
        });
        defaults::apply(&resource("deployments"), 0, &mut object);
        assert_eq!(
            object["spec"],
            json!({
                "replicas": 1, "selector": {"matchLabels": {"a": "b"}},
                "template": {"metadata": {"labels": {"a": "b"}}, "spec": {
                    "containers": [{
                        "name": "c", "image": "i", "resources": {}, "terminationMessagePath": "/dev/termination-log",
                        "terminationMessagePolicy": "File", "imagePullPolicy": "Always",
                    }],
                    "restartPolicy": "Always", "terminationGracePeriodSeconds": 30, "dnsPolicy": "ClusterFirst",
                    "securityContext": {}, "schedulerName": "default-scheduler",
                }},
                "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "25%", "maxSurge": "25%"}},
                "revisionHistoryLimit": 10, "progressDeadlineSeconds": 600,
            })
        );
    }

    #[test]
    fn templates_are_completed_wherever_they_stand() {
        let pod = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i:1"}]}});
        let table = [
            ("daemonsets", json!({"spec": {"template": pod}}), "/spec/template", Some("Always")),
            ("replicationcontrollers", json!({"spec": {"template": pod}}), "/spec/template", Some("Always")),
            ("podtemplates", json!({"template": pod}), "/template", Some("Always")),
            (
                "cronjobs",
                json!({"spec": {"jobTemplate": {"spec": {"template": pod}}}}),
                "/spec/jobTemplate/spec/template",
                None,
            ),
        ];
        for (plural, mut object, pointer, restart) in table {
            defaults::apply(&resource(plural), 0, &mut object);
            let spec = object.pointer(pointer).expect("it was sent")["spec"].clone();
            assert_eq!(spec["terminationGracePeriodSeconds"], 30, "{plural}");
            assert_eq!(spec["containers"][0]["imagePullPolicy"], "IfNotPresent", "{plural}");
            assert_eq!(spec["restartPolicy"].as_str(), restart, "{plural}");
        }
    }

    #[test]
    fn what_a_daemon_set_a_cron_job_and_a_replication_controller_leave_out_is_filled_in() {
        let template = json!({"metadata": {"labels": {"a": "b"}}});
        let filled = |plural: &str, spec: Value| {
            let mut object = json!({"spec": spec});
            defaults::apply(&resource(plural), 0, &mut object);
            assert!(at_creation(&resource(plural), &mut object), "{plural}");
            object
        };
        let set = filled("daemonsets", json!({}));
        let rolling = json!({"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1, "maxSurge": 0}});
        assert_eq!(set["spec"], json!({"updateStrategy": rolling, "revisionHistoryLimit": 10}));
        assert_eq!(set["metadata"]["annotations"]["deprecated.daemonset.template.generation"], "1");
        assert_eq!(set["status"]["desiredNumberScheduled"], 0);
        let cron = filled("cronjobs", json!({"schedule": "* * * * *", "jobTemplate": {"spec": {}}}));
        assert_eq!(
            cron["spec"],
            json!({
                "schedule": "* * * * *", "jobTemplate": {"metadata": {}, "spec": {}}, "concurrencyPolicy": "Allow",
                "suspend": false, "successfulJobsHistoryLimit": 3, "failedJobsHistoryLimit": 1,
            })
        );
        let controller = filled("replicationcontrollers", json!({"template": template}));
        assert_eq!(controller["spec"]["selector"], json!({"a": "b"}));
        assert_eq!(controller["metadata"]["labels"], json!({"a": "b"}));
        assert_eq!((&controller["spec"]["replicas"], &controller["status"]["replicas"]), (&json!(1), &json!(0)));
    }

    #[test]
    fn a_job_selects_its_pods_by_its_uid() {
        let mut job =
            json!({"metadata": {"uid": "u", "name": "j"}, "spec": {"template": {"spec": {"restartPolicy": "Never"}}}});
        assert!(at_creation(&resource("jobs"), &mut job));
        assert_eq!(job["spec"]["selector"]["matchLabels"]["batch.kubernetes.io/controller-uid"], "u");
        assert_eq!(job["spec"]["template"]["metadata"]["labels"]["job-name"], "j");
    }
}
