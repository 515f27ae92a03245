//! The columns of each type.

use serde_json::Value;

use super::cells::{
    access_modes, autoscaler_targets, claim, containers, controller, count, created, created_at, endpoints,
    event_count, external_ip, first_seen, hosts, images, involved, involved_object, job_completions, job_duration,
    job_status, joined, last_seen, name, node_roles, node_status, number, or_na, or_none, or_unset, pairs,
    phase_or_terminating, pod_ready, pod_restarts, pod_status, ports, quota, ready_of_wanted, role, source, text,
};
use super::{Column, age, jsonpath};
use crate::resource::Resource;

/// A column of a built-in type: name, type, priority (0: always shown), cell.
type Row = (&'static str, &'static str, i64, fn(&Value, u64) -> Value);

/// The columns of a type in one version.
pub(super) fn of(resource: &Resource, version: usize) -> Vec<Column<'_>> {
    match resource.custom_version(version) {
        Some(custom) => custom_columns(&custom.columns),
        None => builtin(&resource.group, &resource.plural)
            .iter()
            .map(|(name, kind, priority, cell)| Column {
                name,
                kind,
                format: if *name == "Name" { "name" } else { "" },
                description: "",
                priority: *priority,
                cell: Box::new(cell),
            })
            .collect(),
    }
}

fn custom_columns(declared: &[crate::crd::Column]) -> Vec<Column<'_>> {
    let name = Column {
        name: "Name",
        kind: "string",
        format: "name",
        description: "Name of the object.",
        priority: 0,
        cell: Box::new(name),
    };
    let mut columns = vec![name];
    if declared.is_empty() {
        columns.push(Column {
            name: "Age",
            kind: "date",
            format: "",
            description: "",
            priority: 0,
            cell: Box::new(created),
        });
    }
    columns.extend(declared.iter().map(|column| Column {
        name: &column.name,
        kind: &column.kind,
        format: &column.format,
        description: &column.description,
        priority: column.priority,
        cell: Box::new(|object, now| custom_cell(column, object, now)),
    }));
    columns
}

fn custom_cell(column: &crate::crd::Column, object: &Value, now: u64) -> Value {
    let found = jsonpath::find(object, &column.path);
    let Some(first) = found.first() else { return Value::Null };
    match column.kind.as_str() {
        "date" => age::since(first, now).into(),
        "integer" | "number" | "boolean" if !first.is_string() => (*first).clone(),
        _ => found.iter().map(|value| jsonpath::text(value)).collect::<Vec<_>>().join(",").into(),
    }
}

const OTHERS: &[Row] = &[("Name", "string", 0, name), ("Created At", "date", 0, created_at)];

fn builtin(group: &str, plural: &str) -> &'static [Row] {
    match (group, plural) {
        ("", "pods") => &[
            ("Name", "string", 0, name),
            ("Ready", "string", 0, pod_ready),
            ("Status", "string", 0, pod_status),
            ("Restarts", "string", 0, pod_restarts),
            ("Age", "string", 0, created),
            ("IP", "string", 1, |o, _| or_none(&o["status"]["podIP"])),
            ("Node", "string", 1, |o, _| or_none(&o["spec"]["nodeName"])),
            ("Nominated Node", "string", 1, |o, _| or_none(&o["status"]["nominatedNodeName"])),
            ("Readiness Gates", "string", 1, |_, _| "<none>".into()),
        ],
        ("", "services") => &[
            ("Name", "string", 0, name),
            ("Type", "string", 0, |o, _| text(&o["spec"]["type"])),
            ("Cluster-IP", "string", 0, |o, _| or_none(&o["spec"]["clusterIP"])),
            ("External-IP", "string", 0, external_ip),
            ("Port(s)", "string", 0, ports),
            ("Age", "string", 0, created),
            ("Selector", "string", 1, |o, _| pairs(&o["spec"]["selector"])),
        ],
        ("", "configmaps") => &[
            ("Name", "string", 0, name),
            ("Data", "integer", 0, |o, _| (count(&o["data"]) + count(&o["binaryData"])).into()),
            ("Age", "string", 0, created),
        ],
        ("", "secrets") => &[
            ("Name", "string", 0, name),
            ("Type", "string", 0, |o, _| text(&o["type"])),
            ("Data", "integer", 0, |o, _| count(&o["data"]).into()),
            ("Age", "string", 0, created),
        ],
        ("", "serviceaccounts") => &[
            ("Name", "string", 0, name),
            ("Secrets", "string", 0, |o, _| count(&o["secrets"]).to_string().into()),
            ("Age", "string", 0, created),
        ],
        ("", "namespaces") => &[
            ("Name", "string", 0, name),
            ("Status", "string", 0, |o, _| text(&o["status"]["phase"])),
            ("Age", "string", 0, created),
        ],
        ("", "nodes") => &[
            ("Name", "string", 0, name),
            ("Status", "string", 0, node_status),
            ("Roles", "string", 0, node_roles),
            ("Age", "string", 0, created),
            ("Version", "string", 0, |o, _| text(&o["status"]["nodeInfo"]["kubeletVersion"])),
        ],
        ("", "persistentvolumeclaims") => &[
            ("Name", "string", 0, name),
            ("Status", "string", 0, phase_or_terminating),
            ("Volume", "string", 0, |o, _| text(&o["spec"]["volumeName"])),
            ("Capacity", "string", 0, |o, _| text(&o["status"]["capacity"]["storage"])),
            ("Access Modes", "string", 0, |o, _| access_modes(&o["status"]["accessModes"])),
            ("StorageClass", "string", 0, |o, _| text(&o["spec"]["storageClassName"])),
            ("VolumeAttributesClass", "string", 0, |o, _| or_unset(&o["spec"]["volumeAttributesClassName"])),
            ("Age", "string", 0, created),
            ("VolumeMode", "string", 1, |o, _| text(&o["spec"]["volumeMode"])),
        ],
        ("", "persistentvolumes") => &[
            ("Name", "string", 0, name),
            ("Capacity", "string", 0, |o, _| text(&o["spec"]["capacity"]["storage"])),
            ("Access Modes", "string", 0, |o, _| access_modes(&o["spec"]["accessModes"])),
            ("Reclaim Policy", "string", 0, |o, _| text(&o["spec"]["persistentVolumeReclaimPolicy"])),
            ("Status", "string", 0, phase_or_terminating),
            ("Claim", "string", 0, claim),
            ("StorageClass", "string", 0, |o, _| text(&o["spec"]["storageClassName"])),
            ("VolumeAttributesClass", "string", 0, |o, _| or_unset(&o["spec"]["volumeAttributesClassName"])),
            ("Reason", "string", 0, |o, _| text(&o["status"]["reason"])),
            ("Age", "string", 0, created),
        ],
        ("", "events") => &[
            ("Last Seen", "string", 0, last_seen),
            ("Type", "string", 0, |o, _| text(&o["type"])),
            ("Reason", "string", 0, |o, _| text(&o["reason"])),
            ("Object", "string", 0, involved),
            ("Subobject", "string", 1, |o, _| text(&involved_object(o)["fieldPath"])),
            ("Source", "string", 1, source),
            ("Message", "string", 0, |o, _| text(if o["note"].is_string() { &o["note"] } else { &o["message"] })),
            ("First Seen", "string", 1, first_seen),
            ("Count", "string", 1, |o, _| number(&event_count(o))),
            ("Name", "string", 1, name),
        ],
        ("networking.k8s.io", "networkpolicies") => &[
            ("Name", "string", 0, name),
            ("Pod-Selector", "string", 0, |o, _| pairs(&o["spec"]["podSelector"]["matchLabels"])),
            ("Age", "string", 0, created),
        ],
        ("coordination.k8s.io", "leases") => &[
            ("Name", "string", 0, name),
            ("Holder", "string", 0, |o, _| text(&o["spec"]["holderIdentity"])),
            ("Age", "string", 0, created),
        ],
        ("apps", "deployments") => &[
            ("Name", "string", 0, name),
            ("Ready", "string", 0, ready_of_wanted),
            ("Up-to-date", "integer", 0, |o, _| number(&o["status"]["updatedReplicas"])),
            ("Available", "integer", 0, |o, _| number(&o["status"]["availableReplicas"])),
            ("Age", "string", 0, created),
            ("Containers", "string", 1, containers),
            ("Images", "string", 1, images),
            ("Selector", "string", 1, |o, _| pairs(&o["spec"]["selector"]["matchLabels"])),
        ],
        ("apps", "replicasets") => &[
            ("Name", "string", 0, name),
            ("Desired", "integer", 0, |o, _| number(&o["spec"]["replicas"])),
            ("Current", "integer", 0, |o, _| number(&o["status"]["replicas"])),
            ("Ready", "integer", 0, |o, _| number(&o["status"]["readyReplicas"])),
            ("Age", "string", 0, created),
            ("Containers", "string", 1, containers),
            ("Images", "string", 1, images),
            ("Selector", "string", 1, |o, _| pairs(&o["spec"]["selector"]["matchLabels"])),
        ],
        ("apps", "statefulsets") => &[
            ("Name", "string", 0, name),
            ("Ready", "string", 0, ready_of_wanted),
            ("Age", "string", 0, created),
            ("Containers", "string", 1, containers),
            ("Images", "string", 1, images),
        ],
        ("batch", "jobs") => &[
            ("Name", "string", 0, name),
            ("Status", "string", 0, job_status),
            ("Completions", "string", 0, job_completions),
            ("Duration", "string", 0, job_duration),
            ("Age", "string", 0, created),
            ("Containers", "string", 1, containers),
            ("Images", "string", 1, images),
        ],
        ("policy", "poddisruptionbudgets") => &[
            ("Name", "string", 0, name),
            ("Min Available", "string", 0, |o, _| or_na(&o["spec"]["minAvailable"])),
            ("Max Unavailable", "string", 0, |o, _| or_na(&o["spec"]["maxUnavailable"])),
            ("Allowed Disruptions", "integer", 0, |o, _| number(&o["status"]["disruptionsAllowed"])),
            ("Age", "string", 0, created),
        ],
        ("rbac.authorization.k8s.io", "rolebindings" | "clusterrolebindings") => {
            &[("Name", "string", 0, name), ("Role", "string", 0, role), ("Age", "string", 0, created)]
        }
        ("storage.k8s.io", "storageclasses") => &[
            ("Name", "string", 0, name),
            ("Provisioner", "string", 0, |o, _| text(&o["provisioner"])),
            ("ReclaimPolicy", "string", 0, |o, _| text(&o["reclaimPolicy"])),
            ("VolumeBindingMode", "string", 0, |o, _| text(&o["volumeBindingMode"])),
            ("AllowVolumeExpansion", "string", 0, |o, _| (o["allowVolumeExpansion"] == true).into()),
            ("Age", "string", 0, created),
        ],
        ("discovery.k8s.io", "endpointslices") => &[
            ("Name", "string", 0, name),
            ("AddressType", "string", 0, |o, _| text(&o["addressType"])),
            ("Ports", "string", 0, |o, _| joined(&o["ports"], |port| jsonpath::text(&port["port"]))),
            ("Endpoints", "string", 0, |o, _| {
                joined(&o["endpoints"], |e| e["addresses"][0].as_str().unwrap_or_default().to_owned())
            }),
            ("Age", "string", 0, created),
        ],
        ("apps", "daemonsets") => &[
            ("Name", "string", 0, name),
            ("Desired", "integer", 0, |o, _| number(&o["status"]["desiredNumberScheduled"])),
            ("Current", "integer", 0, |o, _| number(&o["status"]["currentNumberScheduled"])),
            ("Ready", "integer", 0, |o, _| number(&o["status"]["numberReady"])),
            ("Up-to-date", "integer", 0, |o, _| number(&o["status"]["updatedNumberScheduled"])),
            ("Available", "integer", 0, |o, _| number(&o["status"]["numberAvailable"])),
            ("Node Selector", "string", 0, |o, _| pairs(&o["spec"]["template"]["spec"]["nodeSelector"])),
            ("Age", "string", 0, created),
            ("Containers", "string", 1, containers),
            ("Images", "string", 1, images),
            ("Selector", "string", 1, |o, _| pairs(&o["spec"]["selector"]["matchLabels"])),
        ],
        ("apps", "controllerrevisions") => &[
            ("Name", "string", 0, name),
            ("Controller", "string", 0, controller),
            ("Revision", "string", 0, |o, _| number(&o["revision"])),
            ("Age", "string", 0, created),
        ],
        ("batch", "cronjobs") => &[
            ("Name", "string", 0, name),
            ("Schedule", "string", 0, |o, _| text(&o["spec"]["schedule"])),
            ("Timezone", "string", 0, |o, _| or_none(&o["spec"]["timeZone"])),
            ("Suspend", "boolean", 0, |o, _| if o["spec"]["suspend"] == true { "True".into() } else { "False".into() }),
            ("Active", "integer", 0, |o, _| count(&o["status"]["active"]).into()),
            ("Last Schedule", "string", 0, |o, now| match &o["status"]["lastScheduleTime"] {
                Value::Null => "<none>".into(),
                time => age::since(time, now).into(),
            }),
            ("Age", "string", 0, created),
            ("Containers", "string", 1, |o, now| containers(&o["spec"]["jobTemplate"], now)),
            ("Images", "string", 1, |o, now| images(&o["spec"]["jobTemplate"], now)),
            ("Selector", "string", 1, |o, _| pairs(&o["spec"]["jobTemplate"]["spec"]["selector"]["matchLabels"])),
        ],
        ("", "replicationcontrollers") => &[
            ("Name", "string", 0, name),
            ("Desired", "integer", 0, |o, _| number(&o["spec"]["replicas"])),
            ("Current", "integer", 0, |o, _| number(&o["status"]["replicas"])),
            ("Ready", "integer", 0, |o, _| number(&o["status"]["readyReplicas"])),
            ("Age", "string", 0, created),
            ("Containers", "string", 1, containers),
            ("Images", "string", 1, images),
            ("Selector", "string", 1, |o, _| pairs(&o["spec"]["selector"])),
        ],
        ("", "podtemplates") => &[
            ("Name", "string", 0, name),
            ("Containers", "string", 0, |o, _| {
                joined(&o["template"]["spec"]["containers"], |container| jsonpath::text(&container["name"]))
            }),
            ("Images", "string", 0, |o, _| {
                joined(&o["template"]["spec"]["containers"], |container| jsonpath::text(&container["image"]))
            }),
            ("Pod Labels", "string", 0, |o, _| pairs(&o["template"]["metadata"]["labels"])),
        ],
        ("", "resourcequotas") => &[
            ("Name", "string", 0, name),
            ("Request", "string", 0, |o, _| quota(o, false)),
            ("Limit", "string", 0, |o, _| quota(o, true)),
            ("Age", "string", 0, created),
        ],
        ("", "endpoints") => &[
            ("Name", "string", 0, name),
            ("Endpoints", "string", 0, |o, _| endpoints(&o["subsets"])),
            ("Age", "string", 0, created),
        ],
        ("autoscaling", "horizontalpodautoscalers") => &[
            ("Name", "string", 0, name),
            ("Reference", "string", 0, |o, _| {
                let target = &o["spec"]["scaleTargetRef"];
                format!("{}/{}", jsonpath::text(&target["kind"]), jsonpath::text(&target["name"])).into()
            }),
            ("Targets", "string", 0, autoscaler_targets),
            ("MinPods", "string", 0, |o, _| or_unset(&o["spec"]["minReplicas"])),
            ("MaxPods", "integer", 0, |o, _| number(&o["spec"]["maxReplicas"])),
            ("Replicas", "integer", 0, |o, _| number(&o["status"]["currentReplicas"])),
            ("Age", "string", 0, created),
        ],
        ("networking.k8s.io", "ingresses") => &[
            ("Name", "string", 0, name),
            ("Class", "string", 0, |o, _| or_none(&o["spec"]["ingressClassName"])),
            ("Hosts", "string", 0, hosts),
            ("Address", "string", 0, |o, _| {
                let addresses = o["status"]["loadBalancer"]["ingress"].as_array();
                let one = |at: &Value| at["ip"].as_str().or_else(|| at["hostname"].as_str()).map(str::to_owned);
                addresses.into_iter().flatten().filter_map(one).collect::<Vec<_>>().join(",").into()
            }),
            ("Ports", "string", 0, |o, _| if count(&o["spec"]["tls"]) > 0 { "80, 443".into() } else { "80".into() }),
            ("Age", "string", 0, created),
        ],
        ("networking.k8s.io", "ingressclasses") => &[
            ("Name", "string", 0, name),
            ("Controller", "string", 0, |o, _| text(&o["spec"]["controller"])),
            ("Parameters", "string", 0, |o, _| match &o["spec"]["parameters"] {
                Value::Null => "<none>".into(),
                parameters => {
                    let group = parameters["apiGroup"].as_str().map(|group| format!(".{group}")).unwrap_or_default();
                    let (kind, name) = (jsonpath::text(&parameters["kind"]), jsonpath::text(&parameters["name"]));
                    format!("{kind}{group}/{name}").into()
                }
            }),
            ("Age", "string", 0, created),
        ],
        _ => OTHERS,
    }
}
