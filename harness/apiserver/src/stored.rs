//! Defaults of the built-in types that are stored for whoever asks, and that no rule of this server looks at: quotas,
//! limits, ingresses, autoscalers, endpoints.
//!
//! Source: the Kubernetes API reference, "default" and "defaults to" of the fields of each type.

use serde_json::{Map, Value, json};

use crate::autoscaler;
use crate::defaults::fill;
use crate::resource::Resource;

/// Defaults that every write fills in. `false`: the type is none of these.
pub(crate) fn apply(resource: &Resource, version: usize, object: &mut Value) -> bool {
    match (&*resource.group, &*resource.plural) {
        ("", "resourcequotas") | ("apps", "controllerrevisions") | ("networking.k8s.io", "ingresses") => {}
        ("", "limitranges") => limits(object),
        ("", "endpoints") => {
            for subset in object["subsets"].as_array_mut().into_iter().flatten() {
                for port in members(&mut subset["ports"]) {
                    fill(port, &[("protocol", "TCP".into())]);
                }
            }
        }
        ("networking.k8s.io", "ingressclasses") => {
            if let Some(parameters) = object.pointer_mut("/spec/parameters").and_then(Value::as_object_mut) {
                fill(parameters, &[("scope", "Cluster".into())]);
            }
        }
        (autoscaler::GROUP, _) => autoscaler::complete(version, object),
        _ => return false,
    }
    true
}

/// What a new object gets on top. `false`: the type is none of these.
pub(crate) fn at_creation(resource: &Resource, object: &mut Value) -> bool {
    match (&*resource.group, &*resource.plural) {
        ("", "resourcequotas") => object["status"] = json!({}),
        ("networking.k8s.io", "ingresses") => object["status"] = json!({"loadBalancer": {}}),
        (autoscaler::GROUP, _) => object["status"] = autoscaler::blank_status(),
        _ => return false,
    }
    true
}

fn members(list: &mut Value) -> impl Iterator<Item = &mut Map<String, Value>> {
    list.as_array_mut().into_iter().flatten().filter_map(Value::as_object_mut)
}

/// A limit of containers is their default limit; that, and else the least that is allowed, is their default request.
fn limits(object: &mut Value) {
    let Some(items) = object.pointer_mut("/spec/limits") else { return };
    for item in members(items).filter(|item| item.get("type").is_none_or(|of| of == "Container")) {
        inherit(item, "default", &["max"]);
        inherit(item, "defaultRequest", &["default", "min"]);
    }
}

/// Fills one map of quantities from others, the earlier ones first.
fn inherit(item: &mut Map<String, Value>, to: &str, from: &[&str]) {
    let found: Vec<(String, Value)> = from
        .iter()
        .filter_map(|name| item.get(*name)?.as_object())
        .flat_map(|map| map.iter().map(|(key, value)| (key.clone(), value.clone())))
        .collect();
    if found.is_empty() {
        return;
    }
    if let Some(target) = item.entry(to).or_insert_with(|| json!({})).as_object_mut() {
        for (key, value) in found {
            target.entry(key).or_insert(value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::defaults;
    use crate::resource::{SandboxVersions, registry};

    #[track_caller]
    fn completes(plural: &str, sent: Value, stored: Value) {
        let all = registry(SandboxVersions::Both, true);
        let resource = all.iter().find(|r| r.plural == plural).expect("registered");
        let mut object = sent;
        defaults::apply(resource, 0, &mut object);
        defaults::at_creation(resource, &mut object, String::new);
        assert_eq!(object, stored, "{plural}");
        // What a typed object cannot hold is dropped again, as from every update.
        let mut once = object.clone();
        defaults::tidy(&mut once);
        defaults::apply(resource, 0, &mut object);
        assert_eq!(object, once, "{plural}: a second write fills in nothing more");
    }

    #[test]
    fn a_quota_has_a_status_from_the_beginning() {
        completes(
            "resourcequotas",
            json!({"spec": {"hard": {"pods": "4"}}}),
            json!({"spec": {"hard": {"pods": "4"}}, "status": {}}),
        );
    }

    #[test]
    fn limits_of_containers_give_each_other_defaults() {
        completes(
            "limitranges",
            json!({"spec": {"limits": [
                {"type": "Container", "max": {"cpu": "2"}, "min": {"cpu": "1", "memory": "1Gi"}},
                {"type": "Pod", "max": {"cpu": "4"}},
            ]}}),
            json!({"spec": {"limits": [
                {
                    "type": "Container", "max": {"cpu": "2"}, "min": {"cpu": "1", "memory": "1Gi"},
                    "default": {"cpu": "2"}, "defaultRequest": {"cpu": "2", "memory": "1Gi"},
                },
                {"type": "Pod", "max": {"cpu": "4"}},
            ]}}),
        );
    }

    #[test]
    fn parameters_of_an_ingress_class_are_for_the_cluster_and_ports_of_endpoints_are_tcp() {
        completes(
            "ingressclasses",
            json!({"spec": {"controller": "c", "parameters": {"kind": "K", "name": "n"}}}),
            json!({"spec": {"controller": "c", "parameters": {"kind": "K", "name": "n", "scope": "Cluster"}}}),
        );
        completes(
            "endpoints",
            json!({"subsets": [{"ports": [{"port": 80}, {"port": 53, "protocol": "UDP"}]}]}),
            json!({"subsets": [{"ports": [{"port": 80, "protocol": "TCP"}, {"port": 53, "protocol": "UDP"}]}]}),
        );
        completes(
            "ingresses",
            json!({"spec": {"ingressClassName": "x"}}),
            json!({"spec": {"ingressClassName": "x"}, "status": {"loadBalancer": {}}}),
        );
    }
}
