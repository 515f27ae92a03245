//! The columns of each type.

use serde_json::{Value, json};

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
        _ => OTHERS,
    }
}

fn name(object: &Value, _: u64) -> Value {
    text(&object["metadata"]["name"])
}

fn created(object: &Value, now: u64) -> Value {
    age::since(&object["metadata"]["creationTimestamp"], now).into()
}

fn created_at(object: &Value, _: u64) -> Value {
    text(&object["metadata"]["creationTimestamp"])
}

fn text(value: &Value) -> Value {
    if value.is_null() { "".into() } else { jsonpath::text(value).into() }
}

fn or(value: &Value, otherwise: &str) -> Value {
    match value {
        Value::Null => otherwise.into(),
        Value::String(text) if text.is_empty() => otherwise.into(),
        value => jsonpath::text(value).into(),
    }
}

fn or_none(value: &Value) -> Value {
    or(value, "<none>")
}

fn or_unset(value: &Value) -> Value {
    or(value, "<unset>")
}

fn or_na(value: &Value) -> Value {
    or(value, "N/A")
}

fn number(value: &Value) -> Value {
    value.as_i64().unwrap_or(0).into()
}

fn count(value: &Value) -> usize {
    value.as_object().map_or_else(|| value.as_array().map_or(0, Vec::len), serde_json::Map::len)
}

fn joined(list: &Value, one: impl Fn(&Value) -> String) -> Value {
    let all: Vec<String> = list.as_array().into_iter().flatten().map(one).collect();
    if all.is_empty() { "<none>".into() } else { all.join(",").into() }
}

fn pairs(map: &Value) -> Value {
    let all: Vec<String> =
        map.as_object().into_iter().flatten().map(|(key, value)| format!("{key}={}", jsonpath::text(value))).collect();
    if all.is_empty() { "<none>".into() } else { all.join(",").into() }
}

fn pod_ready(pod: &Value, _: u64) -> Value {
    let ready =
        pod["status"]["containerStatuses"].as_array().into_iter().flatten().filter(|c| c["ready"] == true).count();
    format!("{ready}/{}", count(&pod["spec"]["containers"])).into()
}

/// The phase, or what better tells why the pod is in it.
fn pod_status(pod: &Value, _: u64) -> Value {
    if pod["metadata"].get("deletionTimestamp").is_some() {
        return "Terminating".into();
    }
    let statuses = pod["status"]["containerStatuses"].as_array();
    let reason = statuses.into_iter().flatten().find_map(|container| {
        let state = &container["state"];
        state["waiting"]["reason"].as_str().or_else(|| state["terminated"]["reason"].as_str())
    });
    let own = pod["status"]["reason"].as_str();
    let gated = pod.pointer("/spec/schedulingGates/0").is_some().then_some("SchedulingGated");
    reason.or(own).or(gated).map_or_else(|| text(&pod["status"]["phase"]), Value::from)
}

fn pod_restarts(pod: &Value, _: u64) -> Value {
    let statuses = pod["status"]["containerStatuses"].as_array();
    let all: i64 = statuses.into_iter().flatten().filter_map(|container| container["restartCount"].as_i64()).sum();
    all.to_string().into()
}

fn external_ip(service: &Value, _: u64) -> Value {
    match service["spec"]["type"].as_str() {
        Some("ExternalName") => text(&service["spec"]["externalName"]),
        Some("LoadBalancer") => {
            let ingress = joined(&service["status"]["loadBalancer"]["ingress"], |i| jsonpath::text(&i["ip"]));
            if ingress == "<none>" { "<pending>".into() } else { ingress }
        }
        _ => joined(&service["spec"]["externalIPs"], jsonpath::text),
    }
}

fn ports(service: &Value, _: u64) -> Value {
    joined(&service["spec"]["ports"], |port| {
        let node = port["nodePort"].as_i64().map(|node| format!(":{node}")).unwrap_or_default();
        format!("{}{node}/{}", port["port"], port["protocol"].as_str().unwrap_or("TCP"))
    })
}

fn node_status(node: &Value, _: u64) -> Value {
    let conditions = node["status"]["conditions"].as_array();
    let ready = conditions.into_iter().flatten().find(|condition| condition["type"] == "Ready");
    let mut status = match ready.and_then(|ready| ready["status"].as_str()) {
        Some("True") => "Ready".to_owned(),
        Some(_) => "NotReady".to_owned(),
        None => "Unknown".to_owned(),
    };
    if node["spec"]["unschedulable"] == true {
        status.push_str(",SchedulingDisabled");
    }
    status.into()
}

fn node_roles(node: &Value, _: u64) -> Value {
    let labels = node["metadata"]["labels"].as_object();
    let roles: Vec<&str> =
        labels.into_iter().flatten().filter_map(|(key, _)| key.strip_prefix("node-role.kubernetes.io/")).collect();
    if roles.is_empty() { "<none>".into() } else { roles.join(",").into() }
}

fn phase_or_terminating(object: &Value, _: u64) -> Value {
    if object["metadata"].get("deletionTimestamp").is_some() {
        "Terminating".into()
    } else {
        text(&object["status"]["phase"])
    }
}

fn access_modes(modes: &Value) -> Value {
    let short = |mode: &Value| match mode.as_str() {
        Some("ReadWriteOnce") => "RWO",
        Some("ReadOnlyMany") => "ROX",
        Some("ReadWriteMany") => "RWX",
        Some("ReadWriteOncePod") => "RWOP",
        _ => "",
    };
    modes.as_array().into_iter().flatten().map(short).collect::<Vec<_>>().join(",").into()
}

fn claim(volume: &Value, _: u64) -> Value {
    match (volume["spec"]["claimRef"]["namespace"].as_str(), volume["spec"]["claimRef"]["name"].as_str()) {
        (Some(namespace), Some(name)) => format!("{namespace}/{name}").into(),
        _ => "".into(),
    }
}

fn seen(event: &Value, times: &[&str], now: u64) -> Value {
    let time = times.iter().map(|name| &event[*name]).find(|time| time.is_string());
    age::since(time.unwrap_or(&Value::Null), now).into()
}

fn last_seen(event: &Value, now: u64) -> Value {
    let series = &event["series"]["lastObservedTime"];
    if series.is_string() {
        return age::since(series, now).into();
    }
    seen(event, &["lastTimestamp", "deprecatedLastTimestamp", "eventTime", "firstTimestamp"], now)
}

fn first_seen(event: &Value, now: u64) -> Value {
    seen(event, &["firstTimestamp", "deprecatedFirstTimestamp", "eventTime"], now)
}

fn event_count(event: &Value) -> Value {
    let counts = [&event["series"]["count"], &event["count"], &event["deprecatedCount"]];
    counts.into_iter().find(|count| count.is_i64()).cloned().unwrap_or_else(|| 1.into())
}

/// Who reports: the component, and where it runs.
fn source(event: &Value, _: u64) -> Value {
    let part = |pairs: [(&str, &str); 2], reporting: &str| {
        let old = pairs.iter().filter_map(|(object, member)| event[*object][*member].as_str());
        let all = old.chain(event[reporting].as_str()).find(|text| !text.is_empty());
        all.unwrap_or_default().to_owned()
    };
    let component = part([("source", "component"), ("deprecatedSource", "component")], "reportingComponent");
    let component = if component.is_empty() {
        event["reportingController"].as_str().unwrap_or_default().to_owned()
    } else {
        component
    };
    let host = part([("source", "host"), ("deprecatedSource", "host")], "reportingInstance");
    if host.is_empty() { component.into() } else { format!("{component}, {host}").into() }
}

fn involved_object(event: &Value) -> &Value {
    if event["regarding"].is_object() { &event["regarding"] } else { &event["involvedObject"] }
}

fn involved(event: &Value, _: u64) -> Value {
    let object = involved_object(event);
    let kind = object["kind"].as_str().unwrap_or_default().to_lowercase();
    format!("{kind}/{}", object["name"].as_str().unwrap_or_default()).into()
}

fn ready_of_wanted(workload: &Value, _: u64) -> Value {
    let wanted = workload["spec"]["replicas"].as_i64().unwrap_or(0);
    format!("{}/{wanted}", workload["status"]["readyReplicas"].as_i64().unwrap_or(0)).into()
}

fn containers(workload: &Value, _: u64) -> Value {
    joined(&workload["spec"]["template"]["spec"]["containers"], |container| jsonpath::text(&container["name"]))
}

fn images(workload: &Value, _: u64) -> Value {
    joined(&workload["spec"]["template"]["spec"]["containers"], |container| jsonpath::text(&container["image"]))
}

fn job_status(job: &Value, _: u64) -> Value {
    let conditions = job["status"]["conditions"].as_array();
    let done = conditions
        .into_iter()
        .flatten()
        .find(|c| c["status"] == "True" && (c["type"] == "Complete" || c["type"] == "Failed"));
    match done {
        Some(condition) => text(&condition["type"]),
        None if job["metadata"].get("deletionTimestamp").is_some() => "Terminating".into(),
        None if job["spec"]["suspend"] == true => "Suspended".into(),
        None => "Running".into(),
    }
}

fn job_completions(job: &Value, _: u64) -> Value {
    let wanted = job["spec"]["completions"].as_i64().unwrap_or(1);
    format!("{}/{wanted}", job["status"]["succeeded"].as_i64().unwrap_or(0)).into()
}

fn job_duration(job: &Value, now: u64) -> Value {
    let start = &job["status"]["startTime"];
    if start.is_null() {
        return "".into();
    }
    let end = job["status"]["completionTime"].as_str().and_then(crate::delete::parse_seconds).unwrap_or(now);
    age::since(start, end).into()
}

fn role(binding: &Value, _: u64) -> Value {
    let role = &binding["roleRef"];
    json!(format!("{}/{}", role["kind"].as_str().unwrap_or_default(), role["name"].as_str().unwrap_or_default()))
}
