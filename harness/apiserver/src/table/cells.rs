//! What stands in a column of a built-in type.

use serde_json::{Value, json};

use super::{age, jsonpath};

/// Who owns the object as its controller: `daemonset.apps/d`.
pub(super) fn controller(object: &Value, _: u64) -> Value {
    let owners = object["metadata"]["ownerReferences"].as_array();
    let Some(owner) = owners.into_iter().flatten().find(|owner| owner["controller"] == true) else {
        return "<none>".into();
    };
    let of = |member: &str| owner[member].as_str().unwrap_or_default();
    let group = of("apiVersion").split_once('/').map(|(group, _)| format!(".{group}")).unwrap_or_default();
    format!("{}{group}/{}", of("kind").to_lowercase(), of("name")).into()
}

/// `pods: 1/4, services: 0/2`: what is used of what a quota grants, of limits or of everything else.
pub(super) fn quota(quota: &Value, limits: bool) -> Value {
    let (hard, used) = (&quota["spec"]["hard"], &quota["status"]["used"]);
    let granted = hard.as_object().into_iter().flatten().filter(|(name, _)| name.contains("limits") == limits);
    let one = |(name, most): (&String, &Value)| {
        let used = used.get(name).map_or_else(|| "0".to_owned(), jsonpath::text);
        format!("{name}: {used}/{}", jsonpath::text(most))
    };
    granted.map(one).collect::<Vec<_>>().join(", ").into()
}

/// `10.0.0.1:80,10.0.0.2:80 + 1 more...`
pub(super) fn endpoints(subsets: &Value) -> Value {
    const SHOWN: usize = 3;
    let mut all = Vec::new();
    for subset in subsets.as_array().into_iter().flatten() {
        let ports: Vec<&Value> = subset["ports"].as_array().into_iter().flatten().collect();
        for address in subset["addresses"].as_array().into_iter().flatten() {
            let ip = jsonpath::text(&address["ip"]);
            match ports.as_slice() {
                [] => all.push(ip),
                ports => all.extend(ports.iter().map(|port| format!("{ip}:{}", port["port"]))),
            }
        }
    }
    match all.len() {
        0 => "<none>".into(),
        count if count > SHOWN => format!("{} + {} more...", all[..SHOWN].join(","), count - SHOWN).into(),
        _ => all.join(",").into(),
    }
}

/// The hosts of an ingress' rules, the first three of them.
pub(super) fn hosts(ingress: &Value, _: u64) -> Value {
    const SHOWN: usize = 3;
    let rules = ingress["spec"]["rules"].as_array();
    let all: Vec<&str> =
        rules.into_iter().flatten().filter_map(|rule| rule["host"].as_str()).filter(|host| !host.is_empty()).collect();
    match all.len() {
        0 => "*".into(),
        count if count > SHOWN => format!("{} + {} more...", all[..SHOWN].join(","), count - SHOWN).into(),
        _ => all.join(",").into(),
    }
}

/// `cpu: <unknown>/80%`: the present value of each metric, and the one that is wanted.
pub(super) fn autoscaler_targets(autoscaler: &Value, _: u64) -> Value {
    let now = autoscaler["status"]["currentMetrics"].as_array();
    let source = |metric: &Value| match metric["type"].as_str() {
        Some("Resource") => metric["resource"].clone(),
        Some("ContainerResource") => metric["containerResource"].clone(),
        Some("Pods") => metric["pods"].clone(),
        Some("Object") => metric["object"].clone(),
        _ => metric["external"].clone(),
    };
    let shown = |value: &Value| match (value.get("averageUtilization"), value.get("averageValue"), value.get("value")) {
        (Some(percent), ..) => Some(format!("{percent}%")),
        (_, Some(quantity), _) => Some(jsonpath::text(quantity)),
        (.., Some(quantity)) => Some(jsonpath::text(quantity)),
        _ => None,
    };
    let name =
        |metric: &Value| metric["name"].as_str().or_else(|| metric["metric"]["name"].as_str()).map(str::to_owned);
    joined(&autoscaler["spec"]["metrics"], |metric| {
        let wanted = source(metric);
        let current = now.into_iter().flatten().map(source).find(|current| name(current) == name(&wanted));
        let current = current.and_then(|current| shown(&current["current"]));
        let (current, target) = (current.as_deref().unwrap_or("<unknown>"), shown(&wanted["target"]));
        let target = target.as_deref().unwrap_or("<auto>");
        // Only what is measured of the pods themselves is named.
        match metric["type"].as_str() {
            Some("Resource" | "ContainerResource") => {
                format!("{}: {current}/{target}", name(&wanted).unwrap_or_default())
            }
            _ => format!("{current}/{target}"),
        }
    })
}

pub(super) fn name(object: &Value, _: u64) -> Value {
    text(&object["metadata"]["name"])
}

pub(super) fn created(object: &Value, now: u64) -> Value {
    age::since(&object["metadata"]["creationTimestamp"], now).into()
}

pub(super) fn created_at(object: &Value, _: u64) -> Value {
    text(&object["metadata"]["creationTimestamp"])
}

pub(super) fn text(value: &Value) -> Value {
    if value.is_null() { "".into() } else { jsonpath::text(value).into() }
}

pub(super) fn or(value: &Value, otherwise: &str) -> Value {
    match value {
        Value::Null => otherwise.into(),
        Value::String(text) if text.is_empty() => otherwise.into(),
        value => jsonpath::text(value).into(),
    }
}

pub(super) fn or_none(value: &Value) -> Value {
    or(value, "<none>")
}

pub(super) fn or_unset(value: &Value) -> Value {
    or(value, "<unset>")
}

pub(super) fn or_na(value: &Value) -> Value {
    or(value, "N/A")
}

pub(super) fn number(value: &Value) -> Value {
    value.as_i64().unwrap_or(0).into()
}

pub(super) fn count(value: &Value) -> usize {
    value.as_object().map_or_else(|| value.as_array().map_or(0, Vec::len), serde_json::Map::len)
}

pub(super) fn joined(list: &Value, one: impl Fn(&Value) -> String) -> Value {
    let all: Vec<String> = list.as_array().into_iter().flatten().map(one).collect();
    if all.is_empty() { "<none>".into() } else { all.join(",").into() }
}

pub(super) fn pairs(map: &Value) -> Value {
    let all: Vec<String> =
        map.as_object().into_iter().flatten().map(|(key, value)| format!("{key}={}", jsonpath::text(value))).collect();
    if all.is_empty() { "<none>".into() } else { all.join(",").into() }
}

pub(super) fn pod_ready(pod: &Value, _: u64) -> Value {
    let ready =
        pod["status"]["containerStatuses"].as_array().into_iter().flatten().filter(|c| c["ready"] == true).count();
    format!("{ready}/{}", count(&pod["spec"]["containers"])).into()
}

/// The phase, or what better tells why the pod is in it.
pub(super) fn pod_status(pod: &Value, _: u64) -> Value {
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

pub(super) fn pod_restarts(pod: &Value, _: u64) -> Value {
    let statuses = pod["status"]["containerStatuses"].as_array();
    let all: i64 = statuses.into_iter().flatten().filter_map(|container| container["restartCount"].as_i64()).sum();
    all.to_string().into()
}

pub(super) fn external_ip(service: &Value, _: u64) -> Value {
    match service["spec"]["type"].as_str() {
        Some("ExternalName") => text(&service["spec"]["externalName"]),
        Some("LoadBalancer") => {
            let ingress = joined(&service["status"]["loadBalancer"]["ingress"], |i| jsonpath::text(&i["ip"]));
            if ingress == "<none>" { "<pending>".into() } else { ingress }
        }
        _ => joined(&service["spec"]["externalIPs"], jsonpath::text),
    }
}

pub(super) fn ports(service: &Value, _: u64) -> Value {
    joined(&service["spec"]["ports"], |port| {
        let node = port["nodePort"].as_i64().map(|node| format!(":{node}")).unwrap_or_default();
        format!("{}{node}/{}", port["port"], port["protocol"].as_str().unwrap_or("TCP"))
    })
}

pub(super) fn node_status(node: &Value, _: u64) -> Value {
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

pub(super) fn node_roles(node: &Value, _: u64) -> Value {
    let labels = node["metadata"]["labels"].as_object();
    let roles: Vec<&str> =
        labels.into_iter().flatten().filter_map(|(key, _)| key.strip_prefix("node-role.kubernetes.io/")).collect();
    if roles.is_empty() { "<none>".into() } else { roles.join(",").into() }
}

pub(super) fn phase_or_terminating(object: &Value, _: u64) -> Value {
    if object["metadata"].get("deletionTimestamp").is_some() {
        "Terminating".into()
    } else {
        text(&object["status"]["phase"])
    }
}

pub(super) fn access_modes(modes: &Value) -> Value {
    let short = |mode: &Value| match mode.as_str() {
        Some("ReadWriteOnce") => "RWO",
        Some("ReadOnlyMany") => "ROX",
        Some("ReadWriteMany") => "RWX",
        Some("ReadWriteOncePod") => "RWOP",
        _ => "",
    };
    modes.as_array().into_iter().flatten().map(short).collect::<Vec<_>>().join(",").into()
}

pub(super) fn claim(volume: &Value, _: u64) -> Value {
    match (volume["spec"]["claimRef"]["namespace"].as_str(), volume["spec"]["claimRef"]["name"].as_str()) {
        (Some(namespace), Some(name)) => format!("{namespace}/{name}").into(),
        _ => "".into(),
    }
}

pub(super) fn seen(event: &Value, times: &[&str], now: u64) -> Value {
    let time = times.iter().map(|name| &event[*name]).find(|time| time.is_string());
    age::since(time.unwrap_or(&Value::Null), now).into()
}

pub(super) fn last_seen(event: &Value, now: u64) -> Value {
    let series = &event["series"]["lastObservedTime"];
    if series.is_string() {
        return age::since(series, now).into();
    }
    seen(event, &["lastTimestamp", "deprecatedLastTimestamp", "eventTime", "firstTimestamp"], now)
}

pub(super) fn first_seen(event: &Value, now: u64) -> Value {
    seen(event, &["firstTimestamp", "deprecatedFirstTimestamp", "eventTime"], now)
}

pub(super) fn event_count(event: &Value) -> Value {
    let counts = [&event["series"]["count"], &event["count"], &event["deprecatedCount"]];
    counts.into_iter().find(|count| count.is_i64()).cloned().unwrap_or_else(|| 1.into())
}

/// Who reports: the component, and where it runs.
pub(super) fn source(event: &Value, _: u64) -> Value {
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

pub(super) fn involved_object(event: &Value) -> &Value {
    if event["regarding"].is_object() { &event["regarding"] } else { &event["involvedObject"] }
}

pub(super) fn involved(event: &Value, _: u64) -> Value {
    let object = involved_object(event);
    let kind = object["kind"].as_str().unwrap_or_default().to_lowercase();
    format!("{kind}/{}", object["name"].as_str().unwrap_or_default()).into()
}

pub(super) fn ready_of_wanted(workload: &Value, _: u64) -> Value {
    let wanted = workload["spec"]["replicas"].as_i64().unwrap_or(0);
    format!("{}/{wanted}", workload["status"]["readyReplicas"].as_i64().unwrap_or(0)).into()
}

pub(super) fn containers(workload: &Value, _: u64) -> Value {
    joined(&workload["spec"]["template"]["spec"]["containers"], |container| jsonpath::text(&container["name"]))
}

pub(super) fn images(workload: &Value, _: u64) -> Value {
    joined(&workload["spec"]["template"]["spec"]["containers"], |container| jsonpath::text(&container["image"]))
}

pub(super) fn job_status(job: &Value, _: u64) -> Value {
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

pub(super) fn job_completions(job: &Value, _: u64) -> Value {
    let wanted = job["spec"]["completions"].as_i64().unwrap_or(1);
    format!("{}/{wanted}", job["status"]["succeeded"].as_i64().unwrap_or(0)).into()
}

pub(super) fn job_duration(job: &Value, now: u64) -> Value {
    let start = &job["status"]["startTime"];
    if start.is_null() {
        return "".into();
    }
    let end = job["status"]["completionTime"].as_str().and_then(crate::delete::parse_seconds).unwrap_or(now);
    age::since(start, end).into()
}

pub(super) fn role(binding: &Value, _: u64) -> Value {
    let role = &binding["roleRef"];
    json!(format!("{}/{}", role["kind"].as_str().unwrap_or_default(), role["name"].as_str().unwrap_or_default()))
}
