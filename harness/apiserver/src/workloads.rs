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

/// Fills a member of the map at `pointer`, which it makes if it is not there.
fn nested(object: &mut Value, pointer: &str, member: &str, values: &[(&str, Value)]) {
    let Some(parent) = object.pointer_mut(pointer).and_then(Value::as_object_mut) else { return };
    if let Some(map) = parent.entry(member).or_insert_with(|| json!({})).as_object_mut() {
        fill(map, values);
    }
}

/// Pod templates get what pods get, but for what only admission adds. Jobs have no default restart policy.
fn template(object: &mut Value, restart: &str) {
    let Some(template) = object.pointer_mut("/spec/template").filter(|template| template.is_object()) else { return };
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
    fn a_job_selects_its_pods_by_its_uid() {
        let mut job =
            json!({"metadata": {"uid": "u", "name": "j"}, "spec": {"template": {"spec": {"restartPolicy": "Never"}}}});
        assert!(at_creation(&resource("jobs"), &mut job));
        assert_eq!(job["spec"]["selector"]["matchLabels"]["batch.kubernetes.io/controller-uid"], "u");
        assert_eq!(job["spec"]["template"]["metadata"]["labels"]["job-name"], "j");
    }
}
