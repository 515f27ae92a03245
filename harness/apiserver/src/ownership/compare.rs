//! What differs between two states of an object, and what a configuration mentions, as sets of field paths.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::set::{Paths, node};
use super::shape::{Shape, element};
use crate::resource::Resource;

/// The paths in which a new state differs from an old one.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Comparison {
    /// Added, or there before with another value.
    pub(crate) changed: Paths,
    pub(crate) removed: Paths,
}

impl Comparison {
    pub(crate) fn is_same(&self) -> bool {
        self.changed.is_empty() && self.removed.is_empty()
    }
}

/// Members of `metadata` that nobody owns: the server writes them, or they are the object's identity.
const UNOWNED: [&str; 9] = [
    "creationTimestamp",
    "generation",
    "managedFields",
    "name",
    "namespace",
    "resourceVersion",
    "selfLink",
    "uid",
    "clusterName",
];

fn owned(parent: &str, name: &str) -> bool {
    match parent {
        "" => !matches!(name, "apiVersion" | "kind"),
        _ => !UNOWNED.contains(&name),
    }
}

/// The difference between two states of a whole object.
pub(crate) fn objects(old: &Value, new: &Value, shape: &Shape) -> Comparison {
    let mut out = Comparison::default();
    let empty = Map::new();
    let (old, new) = (old.as_object().unwrap_or(&empty), new.as_object().unwrap_or(&empty));
    members(old, new, shape, "", &mut out);
    out
}

/// `parent` is empty for the object itself, and only then `metadata` is special.
fn members(old: &Map<String, Value>, new: &Map<String, Value>, shape: &Shape, parent: &str, out: &mut Comparison) {
    let gone = old.iter().filter(|(name, _)| !new.contains_key(*name)).map(|(name, before)| (name, Some(before), None));
    let present = new.iter().map(|(name, after)| (name, old.get(name), Some(after)));
    for (name, before, after) in gone.chain(present).filter(|(name, ..)| owned(parent, name)) {
        if before == after {
            continue;
        }
        let (changed, removed) = if parent.is_empty() && name == "metadata" {
            let mut inner = Comparison::default();
            let empty = Map::new();
            let old = before.and_then(Value::as_object).unwrap_or(&empty);
            let new = after.and_then(Value::as_object).unwrap_or(&empty);
            members(old, new, shape.member(name), name, &mut inner);
            (node(false, inner.changed), node(false, inner.removed))
        } else {
            values(before, after, shape.member(name))
        };
        keep(out, || format!("f:{name}"), changed, removed);
    }
}

fn keep(out: &mut Comparison, element: impl Fn() -> String, changed: Option<Paths>, removed: Option<Paths>) {
    if let Some(changed) = changed {
        out.changed.insert(element(), Value::Object(changed));
    }
    if let Some(removed) = removed {
        out.removed.insert(element(), Value::Object(removed));
    }
}

/// Nodes of the changed and of the removed paths at and below a value.
fn values(before: Option<&Value>, after: Option<&Value>, shape: &Shape) -> (Option<Paths>, Option<Paths>) {
    let mut inner = Comparison::default();
    let container = match (before.unwrap_or(&Value::Null), after.unwrap_or(&Value::Null)) {
        _ if matches!(shape, Shape::Atomic) => false,
        (Value::Object(old), Value::Object(new)) => {
            inner_members(old, new, shape, &mut inner);
            !(old.is_empty() && new.is_empty())
        }
        (Value::Object(old), Value::Null) => {
            inner_members(old, &Map::new(), shape, &mut inner);
            !old.is_empty()
        }
        (Value::Null, Value::Object(new)) => {
            inner_members(&Map::new(), new, shape, &mut inner);
            !new.is_empty()
        }
        (Value::Array(old), Value::Array(new)) => {
            lists(old, new, shape, &mut inner) && !(old.is_empty() && new.is_empty())
        }
        (Value::Array(old), Value::Null) => lists(old, &[], shape, &mut inner) && !old.is_empty(),
        (Value::Null, Value::Array(new)) => lists(&[], new, shape, &mut inner) && !new.is_empty(),
        _ => false,
    };
    let leaf_changed = !container && before.is_some() && after.is_some() && before != after;
    let added = before.is_none() || leaf_changed;
    (node(added && after.is_some(), inner.changed), node(after.is_none(), inner.removed))
}

fn inner_members(old: &Map<String, Value>, new: &Map<String, Value>, shape: &Shape, out: &mut Comparison) {
    let gone = old.iter().filter(|(name, _)| !new.contains_key(*name)).map(|(name, before)| (name, Some(before), None));
    let present = new.iter().map(|(name, after)| (name, old.get(name), Some(after)));
    for (name, before, after) in gone.chain(present).filter(|(_, before, after)| before != after) {
        let (changed, removed) = values(before, after, shape.member(name));
        keep(out, || format!("f:{name}"), changed, removed);
    }
}

/// Elements of a list by their path elements; `None` if the list is owned as a whole.
pub(crate) fn elements<'a>(list: &'a [Value], shape: &Shape) -> Option<Vec<(String, &'a Value)>> {
    match shape {
        Shape::Set => Some(list.iter().map(|value| (format!("v:{value}"), value)).collect()),
        Shape::Keyed(keys, _) => Some(list.iter().map(|item| (element(keys, item), item)).collect()),
        _ => None,
    }
}

/// The shape of a list's elements.
pub(crate) fn item(shape: &Shape) -> &Shape {
    match shape {
        Shape::Keyed(_, item) => item,
        _ => &Shape::Plain,
    }
}

/// Compares element by element. False if the list is owned as a whole, and nothing was compared.
fn lists(old: &[Value], new: &[Value], shape: &Shape, out: &mut Comparison) -> bool {
    let (Some(old), Some(new)) = (elements(old, shape), elements(new, shape)) else { return false };
    // Keys ought to be unique; elements that share one are compared as one.
    fn grouped(list: Vec<(String, &Value)>) -> BTreeMap<String, Vec<&Value>> {
        let mut groups: BTreeMap<String, Vec<&Value>> = BTreeMap::new();
        for (element, value) in list {
            groups.entry(element).or_default().push(value);
        }
        groups
    }
    let (old, new) = (grouped(old), grouped(new));
    let names: std::collections::BTreeSet<&String> = old.keys().chain(new.keys()).collect();
    for name in names {
        let (changed, removed) = match (old.get(name).map(Vec::as_slice), new.get(name).map(Vec::as_slice)) {
            (before @ (None | Some([_])), after @ (None | Some([_]))) => {
                let before = before.and_then(|list| list.first().copied());
                let after = after.and_then(|list| list.first().copied());
                if before == after {
                    continue;
                }
                values(before, after, item(shape))
            }
            (before, after) if before == after => continue,
            (_, after) => (node(after.is_some(), Map::new()), node(after.is_none(), Map::new())),
        };
        keep(out, || name.clone(), changed, removed);
    }
    true
}

/// The fields that a configuration mentions, as an applier owns them: its leaves, and the elements of its lists.
pub(crate) fn mentioned(config: &Value, shape: &Shape) -> Paths {
    let mut out = Map::new();
    for (name, value) in config.as_object().into_iter().flatten().filter(|(name, _)| owned("", name)) {
        let inner = if name == "metadata" {
            let kept = value.as_object().into_iter().flatten().filter(|(name, _)| owned("metadata", name));
            mentioned_members(kept, shape.member(name))
        } else {
            mentioned_below(value, shape.member(name))
        };
        let empty = name != "metadata" && empty_value(value);
        if let Some(inner) = node(empty || leaf(value, shape.member(name)), inner) {
            out.insert(format!("f:{name}"), Value::Object(inner));
        }
    }
    out
}

fn empty_value(value: &Value) -> bool {
    value.is_null() || value.as_object().is_some_and(Map::is_empty)
}

fn leaf(value: &Value, shape: &Shape) -> bool {
    match value {
        Value::Object(_) => matches!(shape, Shape::Atomic),
        Value::Array(_) => !matches!(shape, Shape::Set | Shape::Keyed(..)),
        _ => true,
    }
}

fn mentioned_below(value: &Value, shape: &Shape) -> Paths {
    match value {
        Value::Object(map) if !matches!(shape, Shape::Atomic) => mentioned_members(map.iter(), shape),
        Value::Array(list) => {
            let mut out = Map::new();
            for (element, value) in elements(list, shape).into_iter().flatten() {
                if let Some(inner) = node(true, mentioned_below(value, item(shape))) {
                    out.insert(element, Value::Object(inner));
                }
            }
            out
        }
        _ => Map::new(),
    }
}

fn mentioned_members<'a>(map: impl Iterator<Item = (&'a String, &'a Value)>, shape: &Shape) -> Paths {
    let mut out = Map::new();
    for (name, value) in map {
        let inner_shape = shape.member(name);
        let member = leaf(value, inner_shape) || empty_value(value) || matches!(shape, Shape::Map(_));
        if let Some(inner) = node(member, mentioned_below(value, inner_shape)) {
            out.insert(format!("f:{name}"), Value::Object(inner));
        }
    }
    out
}

/// An object of the type that says nothing. The members that it has all the same are never new in an object that is
/// created.
pub(crate) fn blank(resource: &Resource, version: usize) -> Value {
    use serde_json::json;
    match (&*resource.group, &*resource.plural) {
        _ if resource.custom => json!({}),
        (crate::crd::GROUP, _) => json!({
            "spec": {"group": "", "names": {"plural": "", "kind": ""}, "scope": "", "versions": null},
            "status": {"conditions": null, "acceptedNames": {"plural": "", "kind": ""}, "storedVersions": null},
        }),
        ("", "pods") => json!({"spec": {"containers": null}, "status": {}}),
        ("", "services") => json!({"spec": {}, "status": {"loadBalancer": {}}}),
        ("", "namespaces") => json!({"spec": {}, "status": {}}),
        ("", "nodes") => json!({"spec": {}, "status": {
            "daemonEndpoints": {"kubeletEndpoint": {"Port": 0}},
            "nodeInfo": crate::defaults::node_info(),
        }}),
        ("", "persistentvolumeclaims") => json!({"spec": {"resources": {}}, "status": {}}),
        ("", "events") if version == 0 => json!({
            "involvedObject": {}, "source": {}, "firstTimestamp": null, "lastTimestamp": null, "eventTime": null,
            "reportingComponent": "", "reportingInstance": "",
        }),
        ("", "events") => json!({
            "regarding": {}, "deprecatedSource": {}, "deprecatedFirstTimestamp": null, "deprecatedLastTimestamp": null,
            "eventTime": null,
        }),
        ("coordination.k8s.io", "leases") => json!({"spec": {}}),
        ("networking.k8s.io", "networkpolicies") => json!({"spec": {"podSelector": {}}}),
        ("policy", "poddisruptionbudgets") => json!({"spec": {}, "status": {
            "disruptionsAllowed": 0, "currentHealthy": 0, "desiredHealthy": 0, "expectedPods": 0,
        }}),
        ("apps", "daemonsets" | "deployments" | "replicasets" | "statefulsets") => json!({
            "spec": {"selector": null, "strategy": {}, "updateStrategy": {}, "serviceName": "", "template": {
                "metadata": {"creationTimestamp": null}, "spec": {"containers": null},
            }},
            "status": {
                "currentNumberScheduled": 0, "numberMisscheduled": 0, "desiredNumberScheduled": 0, "numberReady": 0,
            },
        }),
        ("batch", "cronjobs") => json!({
            "spec": {"schedule": "", "jobTemplate": {"metadata": {"creationTimestamp": null}, "spec": {
                "template": {"metadata": {"creationTimestamp": null}, "spec": {"containers": null}},
            }}},
            "status": {},
        }),
        ("", "podtemplates") => json!({
            "template": {"metadata": {"creationTimestamp": null}, "spec": {"containers": null}},
        }),
        ("", "replicationcontrollers") => json!({"spec": {}, "status": {"replicas": 0}}),
        ("", "resourcequotas") => json!({"spec": {}, "status": {}}),
        ("", "limitranges") => json!({"spec": {"limits": null}}),
        ("networking.k8s.io", "ingresses") => json!({"spec": {}, "status": {"loadBalancer": {}}}),
        ("networking.k8s.io", "ingressclasses") => json!({"spec": {}}),
        ("autoscaling", _) => json!({
            "spec": {"scaleTargetRef": {"kind": "", "name": ""}, "maxReplicas": 0},
            "status": {"desiredReplicas": 0, "currentMetrics": null},
        }),
        ("apps", "controllerrevisions") => json!({"revision": 0}),
        ("batch", "jobs") => json!({
            "spec": {"template": {"metadata": {"creationTimestamp": null}, "spec": {"containers": null}}},
            "status": {},
        }),
        _ => json!({}),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::shape;
    use super::*;
    use crate::resource::{SandboxVersions, registry};

    fn shape_of(plural: &str) -> Shape {
        let all = registry(SandboxVersions::Both, true);
        shape::of(all.iter().find(|r| r.plural == plural).expect("registered"), 0).clone()
    }

    #[test]
    fn differences_are_found_member_by_member() {
        let table = [
            (json!({}), json!({"data": {"k": "v"}}), json!({"f:data": {".": {}, "f:k": {}}}), json!({})),
            (json!({}), json!({"data": {}}), json!({"f:data": {}}), json!({})),
            (
                json!({"data": {"x": "1", "y": "2"}}),
                json!({"data": {"y": "3", "z": "4"}}),
                json!({"f:data": {"f:y": {}, "f:z": {}}}),
                json!({"f:data": {"f:x": {}}}),
            ),
            (json!({"data": {"x": "1"}}), json!({}), json!({}), json!({"f:data": {".": {}, "f:x": {}}})),
            (
                json!({"metadata": {"name": "a", "generation": 1}}),
                json!({"metadata": {"generation": 2, "labels": {"l": "1"}, "finalizers": ["x/y"]}}),
                json!({"f:metadata": {
                    "f:finalizers": {".": {}, "v:\"x/y\"": {}}, "f:labels": {".": {}, "f:l": {}},
                }}),
                json!({}),
            ),
        ];
        for (old, new, changed, removed) in table {
            let found = objects(&old, &new, &shape_of("configmaps"));
            assert_eq!((Value::Object(found.changed), Value::Object(found.removed)), (changed, removed), "{new}");
        }
    }

    #[test]
    fn lists_are_compared_by_their_keys_or_as_a_whole() {
        let old = json!({"spec": {"containers": null}});
        let first = json!({"spec": {
            "containers": [{"name": "c", "image": "1", "args": ["a"], "ports": [{"containerPort": 80}]}],
            "tolerations": [{"key": "a"}],
        }});
        let created = objects(&old, &first, &shape_of("pods"));
        assert_eq!(
            Value::Object(created.changed),
            json!({"f:spec": {
                "f:containers": {"k:{\"name\":\"c\"}": {
                    ".": {}, "f:args": {}, "f:image": {}, "f:name": {},
                    "f:ports": {".": {}, "k:{\"containerPort\":80,\"protocol\":\"TCP\"}": {".": {}, "f:containerPort": {}}},
                }},
                "f:tolerations": {},
            }})
        );
        let mut second = first.clone();
        second["spec"]["containers"][0]["args"] = json!(["a", "b"]);
        second["spec"]["containers"][0].as_object_mut().expect("a map").remove("ports");
        let changed = objects(&first, &second, &shape_of("pods"));
        assert_eq!(
            Value::Object(changed.changed),
            json!({"f:spec": {"f:containers": {"k:{\"name\":\"c\"}": {"f:args": {}}}}})
        );
        assert_eq!(
            Value::Object(changed.removed),
            json!({"f:spec": {"f:containers": {"k:{\"name\":\"c\"}": {
                "f:ports": {".": {}, "k:{\"containerPort\":80,\"protocol\":\"TCP\"}": {".": {}, "f:containerPort": {}}},
            }}}})
        );
    }

    #[test]
    fn an_applier_owns_what_its_configuration_mentions() {
        let config = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "labels": {"a": "b"}},
            "spec": {"containers": [{"name": "c", "image": "1", "resources": {}}], "nodeSelector": {"a": "b"}},
        });
        assert_eq!(
            Value::Object(mentioned(&config, &shape_of("pods"))),
            json!({
                "f:metadata": {"f:labels": {"f:a": {}}},
                "f:spec": {
                    "f:containers": {"k:{\"name\":\"c\"}": {".": {}, "f:image": {}, "f:name": {}, "f:resources": {}}},
                    "f:nodeSelector": {},
                },
            })
        );
        assert_eq!(Value::Object(mentioned(&json!({"data": {}}), &shape_of("configmaps"))), json!({"f:data": {}}));
    }
}
