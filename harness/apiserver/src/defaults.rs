//! What the server fills into objects: defaults of a type, and what admission adds at creation.

use serde_json::{Map, Value, json};

use crate::error::Cause;
use crate::resource::Resource;
use crate::{clock, crd, events, stored, workloads};

/// Defaults that every write fills in, since clients may leave them out of a PUT as well.
pub(crate) fn apply(resource: &Resource, version: usize, object: &mut Value) {
    if let Some(custom) = resource.custom_version(version) {
        custom.schema.prune(object);
        custom.schema.fill(object);
        return;
    }
    if resource.group == crd::GROUP {
        // Schemas hold defaults of any shape, which are not to be tidied.
        return crd::complete(object);
    }
    tidy(object);
    match (&*resource.group, &*resource.plural) {
        ("", "pods") => pod(object),
        ("", "namespaces") => namespace(object),
        ("", "services") => service(object),
        ("", "secrets") => secret(object),
        ("", "events") => events::complete(version, object),
        ("", "persistentvolumeclaims") => set(object, "spec", "volumeMode", "Filesystem".into()),
        ("networking.k8s.io", "networkpolicies") => network_policy(object),
        _ => {
            let _ = workloads::apply(resource, object) || stored::apply(resource, version, object);
        }
    }
}

/// What a new object gets on top of the defaults, from its type's strategy and from admission.
pub(crate) fn at_creation(resource: &Resource, object: &mut Value, address: impl FnOnce() -> String) {
    match (&*resource.group, &*resource.plural) {
        ("", "pods") => {
            object["status"] = json!({"phase": "Pending", "qosClass": qos(object)});
            if object.pointer("/spec/schedulingGates/0").is_some() {
                object["status"]["conditions"] = json!([{
                    "type": "PodScheduled", "status": "False", "reason": "SchedulingGated",
                    "message": "Scheduling is blocked due to non-empty scheduling gates",
                    "lastProbeTime": null, "lastTransitionTime": object["metadata"]["creationTimestamp"],
                }]);
            }
            service_account(object);
            tolerations(object);
        }
        ("", "namespaces") => {
            object["spec"] = json!({"finalizers": ["kubernetes"]});
            object["status"] = json!({"phase": "Active"});
        }
        ("", "services") => {
            if object["spec"]["type"] != "ExternalName" {
                set(object, "spec", "ipFamilies", json!(["IPv4"]));
                set(object, "spec", "ipFamilyPolicy", "SingleStack".into());
                if object["spec"].get("clusterIP").is_none_or(|ip| ip == "") {
                    object["spec"]["clusterIP"] = address().into();
                }
                object["spec"]["clusterIPs"] = json!([object["spec"]["clusterIP"]]);
            }
            object["status"] = json!({"loadBalancer": {}});
        }
        ("", "persistentvolumeclaims") => {
            object["metadata"]["finalizers"] = json!(["kubernetes.io/pvc-protection"]);
            object["status"] = json!({"phase": "Pending"});
        }
        ("", "nodes") => {
            set(object, "spec", "taints", json!([{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}]));
            object["status"] = node_status();
        }
        (crd::GROUP, _) => crd::complete(object),
        _ if workloads::at_creation(resource, object) || stored::at_creation(resource, object) => {}
        _ if resource.has_status => {
            object.as_object_mut().map(|o| o.remove("status"));
        }
        _ => {}
    }
}

/// Sets `object.section.key` unless it is there. Creates the section.
pub(crate) fn set(object: &mut Value, section: &str, key: &str, value: Value) {
    let Some(object) = object.as_object_mut() else { return };
    if let Some(section) = object.entry(section).or_insert_with(|| json!({})).as_object_mut() {
        section.entry(key).or_insert(value);
    }
}

pub(crate) fn fill(map: &mut Map<String, Value>, defaults: &[(&str, Value)]) {
    for (key, value) in defaults {
        if !map.contains_key(*key) {
            map.insert((*key).to_owned(), value.clone());
        }
    }
}

/// Drops what typed objects cannot hold: nulls, empty lists, and empty maps from text to text.
pub(crate) fn tidy(value: &mut Value) {
    const MAPS: [&str; 9] = [
        "labels",
        "annotations",
        "matchLabels",
        "nodeSelector",
        "data",
        "binaryData",
        "stringData",
        "limits",
        "requests",
    ];
    match value {
        Value::Object(map) => {
            map.retain(|key, value| {
                tidy(value);
                match value {
                    Value::Null => false,
                    Value::Array(list) => !list.is_empty() || key == "containers",
                    Value::Object(inner) => !inner.is_empty() || !MAPS.contains(&key.as_str()),
                    _ => true,
                }
            });
        }
        Value::Array(list) => list.iter_mut().for_each(tidy),
        _ => {}
    }
}

pub(crate) fn pod(object: &mut Value) {
    pod_status(object);
    let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) else { return };
    if let Some(account) = spec.get("serviceAccountName").or_else(|| spec.get("serviceAccount")).cloned() {
        fill(spec, &[("serviceAccountName", account.clone()), ("serviceAccount", account)]);
    }
    fill(
        spec,
        &[
            ("restartPolicy", "Always".into()),
            ("terminationGracePeriodSeconds", 30.into()),
            ("dnsPolicy", "ClusterFirst".into()),
            ("securityContext", json!({})),
            ("schedulerName", "default-scheduler".into()),
            ("enableServiceLinks", true.into()),
        ],
    );
    for list in ["initContainers", "containers", "ephemeralContainers"] {
        for container in spec.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
            let Some(container) = container.as_object_mut() else { continue };
            let latest = container.get("image").and_then(Value::as_str).is_some_and(floats);
            fill(
                container,
                &[
                    ("resources", json!({})),
                    ("terminationMessagePath", "/dev/termination-log".into()),
                    ("terminationMessagePolicy", "File".into()),
                    ("imagePullPolicy", if latest { "Always" } else { "IfNotPresent" }.into()),
                ],
            );
            for port in container.get_mut("ports").and_then(Value::as_array_mut).into_iter().flatten() {
                if let Some(port) = port.as_object_mut() {
                    fill(port, &[("protocol", "TCP".into())]);
                }
            }
            probes(container);
        }
    }
    for volume in spec.get_mut("volumes").and_then(Value::as_array_mut).into_iter().flatten() {
        for source in ["secret", "configMap", "projected", "downwardAPI"] {
            if let Some(source) = volume.get_mut(source).and_then(Value::as_object_mut) {
                fill(source, &[("defaultMode", 420.into())]);
            }
        }
    }
}

/// Members of a status that are written even when they are empty.
fn pod_status(object: &mut Value) {
    let Some(status) = object.get_mut("status").and_then(Value::as_object_mut) else { return };
    let elements = |list: Option<&mut Value>, defaults: &[(&str, Value)]| {
        for element in list.and_then(Value::as_array_mut).into_iter().flatten() {
            if let Some(element) = element.as_object_mut() {
                fill(element, defaults);
            }
        }
    };
    elements(status.get_mut("conditions"), &[("lastProbeTime", Value::Null), ("lastTransitionTime", Value::Null)]);
    for list in ["containerStatuses", "initContainerStatuses"] {
        elements(
            status.get_mut(list),
            &[
                ("state", json!({})),
                ("lastState", json!({})),
                ("ready", false.into()),
                ("restartCount", 0.into()),
                ("image", "".into()),
                ("imageID", "".into()),
            ],
        );
    }
}

fn probes(container: &mut Map<String, Value>) {
    for probe in ["livenessProbe", "readinessProbe", "startupProbe"] {
        let Some(probe) = container.get_mut(probe).and_then(Value::as_object_mut) else { continue };
        fill(
            probe,
            &[
                ("timeoutSeconds", 1.into()),
                ("periodSeconds", 10.into()),
                ("successThreshold", 1.into()),
                ("failureThreshold", 3.into()),
            ],
        );
        if let Some(get) = probe.get_mut("httpGet").and_then(Value::as_object_mut) {
            fill(get, &[("path", "/".into()), ("scheme", "HTTP".into())]);
        }
    }
}

/// An image reference without a tag, or with `:latest`, is pulled each time.
fn floats(image: &str) -> bool {
    if image.contains('@') {
        return false;
    }
    let last = image.rsplit('/').next().unwrap_or(image);
    last.split_once(':').is_none_or(|(_, tag)| tag == "latest")
}

/// `Guaranteed` if every container limits cpu and memory and requests no less, `BestEffort` without any resources.
fn qos(pod: &Value) -> &'static str {
    let containers: Vec<&Value> = ["initContainers", "containers"]
        .iter()
        .filter_map(|list| pod["spec"][*list].as_array())
        .flatten()
        .map(|container| &container["resources"])
        .collect();
    let asks = |resources: &&Value| {
        ["limits", "requests"].iter().any(|kind| ["cpu", "memory"].iter().any(|r| resources[*kind].get(*r).is_some()))
    };
    let guaranteed = |resources: &&Value| {
        ["cpu", "memory"].iter().all(|r| match resources["limits"].get(*r) {
            Some(limit) => resources["requests"].get(*r).is_none_or(|request| request == limit),
            None => false,
        })
    };
    if !containers.iter().any(asks) {
        "BestEffort"
    } else if containers.iter().all(guaranteed) {
        "Guaranteed"
    } else {
        "Burstable"
    }
}

/// A resize may not move a pod to another class of service.
pub(crate) fn class_change(current: &Value, next: &Value) -> Option<Cause> {
    let (before, after) = (qos(current), qos(next));
    (before != after)
        .then(|| Cause::invalid("spec", &before.into(), "Pod QOS Class may not change as a result of resizing"))
}

/// The ServiceAccount admission plugin: the account, and its token as a volume of every container.
fn service_account(object: &mut Value) {
    const MOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
    let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) else { return };
    fill(spec, &[("serviceAccountName", "default".into()), ("serviceAccount", "default".into())]);
    if spec.get("automountServiceAccountToken") == Some(&Value::Bool(false)) {
        return;
    }
    let name = format!("kube-api-access-{}", clock::suffix());
    let mut mounted = false;
    for list in ["initContainers", "containers"] {
        for container in spec.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
            let Some(container) = container.as_object_mut() else { continue };
            let mounts = container.entry("volumeMounts").or_insert_with(|| json!([]));
            let Some(mounts) = mounts.as_array_mut() else { continue };
            if !mounts.iter().any(|mount| mount["mountPath"] == MOUNT) {
                mounts.push(json!({"name": name, "readOnly": true, "mountPath": MOUNT}));
                mounted = true;
            }
        }
    }
    if let (true, Some(volumes)) = (mounted, spec.entry("volumes").or_insert_with(|| json!([])).as_array_mut()) {
        let field = json!({"apiVersion": "v1", "fieldPath": "metadata.namespace"});
        volumes.push(json!({"name": name, "projected": {"defaultMode": 420, "sources": [
            {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
            {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
            {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": field}]}},
            {"configMap": {"name": "openshift-service-ca.crt", "items": [{"key": "service-ca.crt", "path": "service-ca.crt"}]}},
        ]}}));
    }
}

/// The Priority and DefaultTolerationSeconds admission plugins.
fn tolerations(object: &mut Value) {
    let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) else { return };
    fill(spec, &[("priority", 0.into()), ("preemptionPolicy", "PreemptLowerPriority".into())]);
    let list = spec.entry("tolerations").or_insert_with(|| json!([]));
    let Some(list) = list.as_array_mut() else { return };
    for taint in ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"] {
        let tolerated = list.iter().any(|t| {
            let key = t["key"].as_str().unwrap_or_default();
            let effect = t["effect"].as_str().unwrap_or_default();
            (key == taint || key.is_empty()) && (effect == "NoExecute" || effect.is_empty())
        });
        if !tolerated {
            list.push(json!({"key": taint, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}));
        }
    }
}

/// A namespace is labelled with its own name.
fn namespace(object: &mut Value) {
    if let Some(name) = object["metadata"].get("name").cloned() {
        set(object, "metadata", "labels", json!({}));
        object["metadata"]["labels"]["kubernetes.io/metadata.name"] = name;
    }
}

/// What the server chose for a service, and keeps where an update leaves it out.
pub(crate) fn keep_allocated(resource: &Resource, current: &Value, next: &mut Value) {
    if resource.group.is_empty() && resource.plural == "services" && next["spec"]["type"] != "ExternalName" {
        for field in ["clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"] {
            if let Some(value) = current["spec"].get(field) {
                set(next, "spec", field, value.clone());
            }
        }
    }
}

fn service(object: &mut Value) {
    set(object, "spec", "type", "ClusterIP".into());
    let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) else { return };
    fill(spec, &[("sessionAffinity", "None".into())]);
    if spec["type"] != "ExternalName" {
        fill(spec, &[("internalTrafficPolicy", "Cluster".into())]);
    }
    for port in spec.get_mut("ports").and_then(Value::as_array_mut).into_iter().flatten() {
        if let Some(port) = port.as_object_mut() {
            let number = port.get("port").cloned().unwrap_or(Value::Null);
            fill(port, &[("protocol", "TCP".into()), ("targetPort", number)]);
        }
    }
}

fn secret(object: &mut Value) {
    let Some(object) = object.as_object_mut() else { return };
    if let Some(Value::Object(texts)) = object.remove("stringData") {
        let data = object.entry("data").or_insert_with(|| json!({}));
        if let Some(data) = data.as_object_mut() {
            for (key, text) in texts {
                data.insert(key, base64(text.as_str().unwrap_or_default().as_bytes()).into());
            }
        }
    }
    fill(object, &[("type", "Opaque".into())]);
}

fn network_policy(object: &mut Value) {
    let egress = object.pointer("/spec/egress").is_some();
    let types = if egress { json!(["Ingress", "Egress"]) } else { json!(["Ingress"]) };
    set(object, "spec", "policyTypes", types);
    set(object, "spec", "podSelector", json!({}));
    for (rules, peers) in [("ingress", "from"), ("egress", "to")] {
        let rules = object.pointer_mut(&format!("/spec/{rules}")).and_then(Value::as_array_mut);
        for rule in rules.into_iter().flatten() {
            debug_assert!(rule.get(peers).is_none_or(|p| !p.is_null()), "tidied before");
            for port in rule.get_mut("ports").and_then(Value::as_array_mut).into_iter().flatten() {
                if let Some(port) = port.as_object_mut() {
                    fill(port, &[("protocol", "TCP".into())]);
                }
            }
        }
    }
}

fn node_status() -> Value {
    json!({"daemonEndpoints": {"kubeletEndpoint": {"Port": 0}}, "nodeInfo": node_info()})
}

/// What a node says of itself before a kubelet has said anything.
pub(crate) fn node_info() -> Value {
    let info: Map<String, Value> = [
        "machineID",
        "systemUUID",
        "bootID",
        "kernelVersion",
        "osImage",
        "containerRuntimeVersion",
        "kubeletVersion",
        "kubeProxyVersion",
        "operatingSystem",
        "architecture",
    ]
    .into_iter()
    .map(|key| (key.to_owned(), "".into()))
    .collect();
    Value::Object(info)
}

/// Standard base64 with padding.
pub(crate) fn base64(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let word = chunk.iter().fold(0u32, |word, byte| word << 8 | u32::from(*byte)) << (8 * (3 - chunk.len()));
        for at in 0..4 {
            let digit = (word >> (18 - 6 * at)) & 63;
            out.push(if at <= chunk.len() { char::from(ALPHABET[digit as usize]) } else { '=' });
        }
    }
    out
}

/// The bytes of standard base64, with or without padding.
pub(crate) fn from_base64(text: &str) -> Option<Vec<u8>> {
    let text = text.trim_end_matches('=');
    let mut out = Vec::with_capacity(text.len() * 3 / 4);
    let (mut word, mut bits) = (0u32, 0);
    for byte in text.bytes() {
        let digit = match byte {
            b'A'..=b'Z' => byte - b'A',
            b'a'..=b'z' => byte - b'a' + 26,
            b'0'..=b'9' => byte - b'0' + 52,
            b'+' | b'-' => 62,
            b'/' | b'_' => 63,
            _ => return None,
        };
        word = word << 6 | u32::from(digit);
        bits += 6;
        if bits >= 8 {
            bits -= 8;
            out.push((word >> bits) as u8);
            word &= (1 << bits) - 1;
        }
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_goes_there_and_back() {
        for (plain, coded) in [("", ""), ("b", "Yg=="), ("ab", "YWI="), ("abc", "YWJj"), ("\u{ff}\u{fe}x", "w7/DvngK")]
        {
            if coded.ends_with('K') {
                assert_eq!(base64(format!("{plain}\n").as_bytes()), coded);
                continue;
            }
            assert_eq!(base64(plain.as_bytes()), coded);
            assert_eq!(from_base64(coded).as_deref(), Some(plain.as_bytes()));
        }
        assert_eq!(from_base64("no spaces"), None);
    }

    #[test]
    fn images_without_a_fixed_tag_are_always_pulled() {
        for (image, always) in
            [("img", true), ("img:1", false), ("img:latest", true), ("h:5000/a/img", true), ("img@sha256:0", false)]
        {
            assert_eq!(floats(image), always, "{image}");
        }
    }

    #[test]
    fn quality_of_service_follows_requests_and_limits() {
        let pod = |resources: Value| json!({"spec": {"containers": [{"resources": resources}]}});
        let table = [
            (json!({}), "BestEffort"),
            (json!({"requests": {"cpu": "1"}}), "Burstable"),
            (json!({"limits": {"cpu": "1", "memory": "1Gi"}}), "Guaranteed"),
            (json!({"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "1m"}}), "Burstable"),
        ];
        for (resources, class) in table {
            assert_eq!(qos(&pod(resources)), class);
        }
    }

    #[test]
    fn typed_objects_lose_nulls_and_empty_collections() {
        let mut object = json!({
            "metadata": {"labels": {}, "finalizers": [], "annotations": {"a": "b"}},
            "spec": {"nodeName": null, "schedulingGates": [], "containers": [], "securityContext": {}},
        });
        tidy(&mut object);
        assert_eq!(
            object,
            json!({"metadata": {"annotations": {"a": "b"}}, "spec": {"containers": [], "securityContext": {}}})
        );
    }
}
