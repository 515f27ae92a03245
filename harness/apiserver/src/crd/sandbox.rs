//! The CRD of Sandbox that a new server has installed.
//!
//! Written from how the type behaves (fields, limits, defaults and messages of recorded sessions), not from the project
//! that owns it. What the pod template may hold beyond what strategic merges need is not declared and kept as it comes.

use serde_json::{Value, json};

use crate::resource::{AGENTS, SandboxVersions};

/// The CRD object as a client would create it.
pub(crate) fn definition(versions: SandboxVersions, webhook: bool) -> Value {
    let beta = json!({
        "name": "v1beta1", "served": true, "storage": true,
        "schema": {"openAPIV3Schema": schema(
            json!({"operatingMode": {
                "description": "Whether the sandbox's pod should run.",
                "type": "string", "enum": ["Running", "Suspended"], "default": "Running",
            }}),
            json!({"nodeName": {"description": "The node of the sandbox's pod.", "type": "string"}}),
        )},
        "subresources": {"status": {}},
        "additionalPrinterColumns": columns(),
    });
    let only = versions == SandboxVersions::V1alpha1Only;
    let mut alpha = json!({
        "name": "v1alpha1", "served": true, "storage": only,
        "schema": {"openAPIV3Schema": schema(
            json!({"replicas": {
                "description": "1: the sandbox's pod should run; 0: it should not.",
                "type": "integer", "format": "int32", "minimum": 0, "maximum": 1, "default": 1,
            }}),
            json!({"replicas": {"description": "Pods that are there.", "type": "integer", "format": "int32", "minimum": 0}}),
        )},
        "subresources": {"status": {}, "scale": {
            "specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas",
            "labelSelectorPath": ".status.selector",
        }},
        "additionalPrinterColumns": columns(),
    });
    let all = if only {
        json!([alpha])
    } else {
        alpha["deprecated"] = true.into();
        alpha["deprecationWarning"] =
            format!("{AGENTS}/v1alpha1 Sandbox is deprecated; use {AGENTS}/v1beta1 Sandbox instead").into();
        json!([alpha, beta])
    };
    let conversion = if webhook && !only {
        let service = json!({"name": "agent-sandbox-webhook", "namespace": "agent-sandbox-system", "path": "/convert", "port": 443});
        json!({"strategy": "Webhook", "webhook": {
            "clientConfig": {"service": service}, "conversionReviewVersions": ["v1"],
        }})
    } else {
        json!({"strategy": "None"})
    };
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("sandboxes.{AGENTS}")},
        "spec": {
            "group": AGENTS, "scope": "Namespaced",
            "names": {
                "plural": "sandboxes", "singular": "sandbox", "kind": "Sandbox", "listKind": "SandboxList",
                "shortNames": ["sandbox"],
            },
            "versions": all, "conversion": conversion,
        },
    })
}

fn columns() -> Value {
    json!([
        {"name": "Ready", "type": "string", "jsonPath": ".status.conditions[?(@.type==\"Ready\")].status"},
        {"name": "Reason", "type": "string", "jsonPath": ".status.conditions[?(@.type==\"Ready\")].reason"},
        {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
    ])
}

/// A version's schema: what both have, and what only this one has.
fn schema(only_spec: Value, only_status: Value) -> Value {
    let mut spec = json!({
        "podTemplate": {
            "description": "The pod to run.",
            "type": "object", "required": ["spec"],
            "properties": {
                "metadata": {
                    "description": "Labels and annotations of the pod.",
                    "type": "object",
                    "properties": {"labels": text_map(), "annotations": text_map()},
                },
                "spec": pod_spec(),
            },
        },
        "volumeClaimTemplates": {
            "description": "Claims made for the pod, one of each. Cannot be changed.",
            "type": "array", "x-kubernetes-list-type": "atomic",
            "items": {
                "type": "object", "required": ["spec"],
                "properties": {
                    "metadata": {
                        "type": "object",
                        "properties": {"name": {"type": "string"}, "labels": text_map(), "annotations": text_map()},
                    },
                    "spec": {
                        "description": "As of a PersistentVolumeClaim.",
                        "type": "object", "x-kubernetes-preserve-unknown-fields": true,
                        "properties": {"accessModes": {"type": "array", "x-kubernetes-list-type": "atomic", "items": {"type": "string"}}},
                    },
                },
            },
        },
        "service": {"description": "Whether the sandbox gets a headless service.", "type": "boolean"},
        "shutdownTime": {"description": "When the sandbox ends by itself.", "type": "string", "format": "date-time"},
        "shutdownPolicy": {
            "description": "What becomes of a sandbox that ended by itself.",
            "type": "string", "enum": ["Delete", "Retain"], "default": "Retain",
        },
    });
    let mut status = json!({
        "conditions": conditions(),
        "podIPs": {
            "description": "Addresses of the pod.",
            "type": "array", "x-kubernetes-list-type": "atomic", "items": {"type": "string"},
        },
        "selector": {"description": "Labels of the pod, as a selector.", "type": "string"},
        "service": {"description": "Name of the service.", "type": "string"},
        "serviceFQDN": {"description": "Full name of the service.", "type": "string"},
    });
    for (all, only) in [(&mut spec, only_spec), (&mut status, only_status)] {
        if let (Some(all), Value::Object(only)) = (all.as_object_mut(), only) {
            all.extend(only);
        }
    }
    let immutable = "has(self.volumeClaimTemplates) == has(oldSelf.volumeClaimTemplates) && (!has(self.volumeClaimTemplates) || self.volumeClaimTemplates == oldSelf.volumeClaimTemplates)";
    json!({
        "description": "A pod with a stable identity, which can be suspended and resumed.",
        "type": "object", "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string"}, "kind": {"type": "string"}, "metadata": {"type": "object"},
            "spec": {
                "description": "What is desired.",
                "type": "object", "required": ["podTemplate"], "properties": spec,
                "x-kubernetes-validations": [{"rule": immutable, "message": "volumeClaimTemplates is immutable"}],
                "x-photofinish-validations-look-at": ["volumeClaimTemplates"],
            },
            "status": {"description": "What is observed.", "type": "object", "properties": status},
        },
    })
}

fn text_map() -> Value {
    json!({"type": "object", "additionalProperties": {"type": "string"}})
}

fn named_list(keys: &[&str], required: &[&str], properties: Value) -> Value {
    json!({
        "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": keys,
        "items": {
            "type": "object", "required": required, "properties": properties,
            "x-kubernetes-preserve-unknown-fields": true,
        },
    })
}

/// A pod's spec as far as names of elements go; everything else is kept as it comes.
fn pod_spec() -> Value {
    let name = json!({"name": {"type": "string"}});
    let containers = named_list(
        &["name"],
        &["name"],
        json!({
            "name": {"type": "string"}, "image": {"type": "string"}, "workingDir": {"type": "string"},
            "command": {"type": "array", "x-kubernetes-list-type": "atomic", "items": {"type": "string"}},
            "args": {"type": "array", "x-kubernetes-list-type": "atomic", "items": {"type": "string"}},
            "env": named_list(&["name"], &["name"], name.clone()),
            "ports": named_list(&["containerPort", "protocol"], &["containerPort"], json!({
                "containerPort": {"type": "integer", "format": "int32"}, "protocol": {"type": "string", "default": "TCP"},
            })),
            "volumeMounts": named_list(&["mountPath"], &["mountPath", "name"], json!({
                "mountPath": {"type": "string"}, "name": {"type": "string"},
            })),
        }),
    );
    json!({
        "description": "As of a Pod.",
        "type": "object", "required": ["containers"], "x-kubernetes-preserve-unknown-fields": true,
        "properties": {
            "containers": containers, "initContainers": containers,
            "volumes": named_list(&["name"], &["name"], name.clone()),
            "imagePullSecrets": named_list(&["name"], &[], json!({"name": {"type": "string", "default": ""}})),
            "schedulingGates": named_list(&["name"], &["name"], name),
            "terminationGracePeriodSeconds": {"type": "integer", "format": "int64"},
        },
    })
}

fn conditions() -> Value {
    let named = "^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$";
    json!({
        "description": "The latest observations.",
        "type": "array", "x-kubernetes-list-type": "atomic",
        "items": {
            "type": "object", "required": ["lastTransitionTime", "message", "reason", "status", "type"],
            "properties": {
                "lastTransitionTime": {"type": "string", "format": "date-time"},
                "message": {"type": "string", "maxLength": 32768},
                "observedGeneration": {"type": "integer", "format": "int64", "minimum": 0},
                "reason": {
                    "type": "string", "minLength": 1, "maxLength": 1024,
                    "pattern": "^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$",
                },
                "status": {"type": "string", "enum": ["True", "False", "Unknown"]},
                "type": {"type": "string", "maxLength": 316, "pattern": named},
            },
        },
    })
}
