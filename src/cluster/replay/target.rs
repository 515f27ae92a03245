//! Which sandbox a recording's states become.
use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::Error;
use crate::cluster::controller::rules::name_hash;
use crate::cluster::controller::sandbox::{NAME_HASH, POD_NAME};

/// The sandbox that is replayed: takes the place of the recorded one.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Target {
    namespace: String,
    name: String,
    uid: Option<String>,
    creation_timestamp: Option<String>,
    labels: BTreeMap<String, String>,
    annotations: Map<String, Value>,
    spec: Option<Value>,
    /// Added to recorded generations.
    generations: i64,
}

impl Target {
    /// A sandbox of this namespace and name, with the labels by which it is selected. The rest is as recorded.
    pub fn new(namespace: &str, name: &str, labels: impl IntoIterator<Item = (String, String)>) -> Self {
        let labels = labels.into_iter().collect();
        Target { namespace: namespace.to_owned(), name: name.to_owned(), labels, ..Target::default() }
    }
    /// The same with this uid; otherwise the cluster keeps the one it has, or makes one.
    pub fn uid(mut self, uid: &str) -> Self {
        self.uid = Some(uid.to_owned());
        self
    }
    /// A sandbox that is stored: keeps its identity, labels, annotations and spec, except for what the recorded
    /// cluster would have changed: operating mode, the tracked Pod, and the status. Recorded generations are shifted so
    /// that the `first` state to play is one generation further if its mode differs, else at the stored one's.
    pub fn of(stored: &Value, first: &Value) -> Result<Self, Error> {
        let text = |pointer: &str| stored.pointer(pointer).and_then(Value::as_str).map(str::to_owned);
        let mut annotations = stored["metadata"]["annotations"].as_object().cloned().unwrap_or_default();
        annotations.remove(POD_NAME);
        let label = |(key, value): (&String, &Value)| Some((key.clone(), value.as_str()?.to_owned()));
        let generation = |object: &Value| object["metadata"]["generation"].as_i64();
        let stored_generation = generation(stored).ok_or(Error::NoTarget { missing: "metadata.generation" })?;
        let mode = |object: &Value| object["spec"]["operatingMode"].as_str().unwrap_or("Running").to_owned();
        let next = stored_generation + i64::from(mode(stored) != mode(first));
        Ok(Target {
            namespace: text("/metadata/namespace").ok_or(Error::NoTarget { missing: "metadata.namespace" })?,
            name: text("/metadata/name").ok_or(Error::NoTarget { missing: "metadata.name" })?,
            uid: text("/metadata/uid"),
            creation_timestamp: text("/metadata/creationTimestamp"),
            labels: stored["metadata"]["labels"].as_object().into_iter().flatten().filter_map(label).collect(),
            annotations,
            spec: Some(stored.get("spec").cloned().ok_or(Error::NoTarget { missing: "spec" })?),
            generations: next - generation(first).unwrap_or(next),
        })
    }

    /// The recorded state as this sandbox's, with annotations laid over (null takes one away). No resourceVersion: the
    /// cluster gives a fresh one.
    pub(super) fn map(&self, recorded: &Value, laid_over: &Map<String, Value>) -> Value {
        let mut object = recorded.clone();
        let recorded_name = recorded["metadata"]["name"].as_str().unwrap_or_default();
        let recorded_mode = recorded["spec"].get("operatingMode");

        let mut annotations = recorded["metadata"]["annotations"].as_object().cloned().unwrap_or_default();
        if annotations.get(POD_NAME).is_some_and(|pod| *pod == recorded_name) {
            annotations.insert(POD_NAME.into(), self.name.clone().into());
        }
        annotations.extend(self.annotations.clone());
        annotations.extend(laid_over.clone());
        annotations.retain(|_, value| !value.is_null());

        if let Some(meta) = object["metadata"].as_object_mut() {
            meta.remove("resourceVersion");
            meta.remove("managedFields");
            meta.remove("annotations");
            meta.insert("namespace".into(), self.namespace.clone().into());
            meta.insert("name".into(), self.name.clone().into());
            if !annotations.is_empty() {
                meta.insert("annotations".into(), annotations.into());
            }
            if !self.labels.is_empty() {
                meta.insert("labels".into(), serde_json::json!(self.labels));
            }
            match &self.uid {
                Some(uid) => drop(meta.insert("uid".into(), uid.clone().into())),
                None => drop(meta.remove("uid")),
            }
            if let Some(time) = &self.creation_timestamp {
                meta.insert("creationTimestamp".into(), time.clone().into());
            }
            self.shift(meta.get_mut("generation"));
        }
        if let Some(spec) = &self.spec {
            let mut spec = spec.clone();
            if let Some(mode) = recorded_mode {
                spec["operatingMode"] = mode.clone();
            }
            object["spec"] = spec;
        }
        if let Some(status) = object.get_mut("status").and_then(Value::as_object_mut) {
            self.map_status(status);
        }
        object
    }

    fn map_status(&self, status: &mut Map<String, Value>) {
        let mapped = [
            ("selector", format!("{NAME_HASH}={}", name_hash(&self.name))),
            ("service", self.name.clone()),
            ("serviceFQDN", format!("{}.{}.svc.cluster.local", self.name, self.namespace)),
        ];
        for (field, value) in mapped {
            if let Some(recorded) = status.get_mut(field) {
                *recorded = value.into();
            }
        }
        for condition in status.get_mut("conditions").and_then(Value::as_array_mut).into_iter().flatten() {
            self.shift(condition.get_mut("observedGeneration"));
        }
    }

    fn shift(&self, generation: Option<&mut Value>) {
        if let Some(generation) = generation
            && let Some(recorded) = generation.as_i64()
        {
            *generation = (recorded + self.generations).into();
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::cluster::replay::Recording;

    #[test]
    fn a_state_is_mapped_wherever_it_speaks_of_the_recorded_sandbox() {
        let recording = Recording::named("create").expect("it is built in");
        let last = &recording.states().last().expect("never empty").object;
        let labels = [("openshell.ai/sandbox-id".to_owned(), "id9".to_owned())];
        let mapped = Target::new("ns", "w--demo", labels).uid("u9").map(last, &Map::new());
        assert_eq!(
            mapped["metadata"],
            json!({
                "name": "w--demo", "namespace": "ns", "uid": "u9", "generation": 1,
                "labels": {"openshell.ai/sandbox-id": "id9"},
                "annotations": {"agents.x-k8s.io/pod-name": "w--demo"},
                "creationTimestamp": last["metadata"]["creationTimestamp"],
            })
        );
        assert_eq!(mapped["status"]["service"], "w--demo");
        assert_eq!(mapped["status"]["serviceFQDN"], "w--demo.ns.svc.cluster.local");
        assert_eq!(mapped["status"]["selector"], format!("{NAME_HASH}={}", name_hash("w--demo")));
        assert_eq!(mapped["status"]["conditions"], last["status"]["conditions"]);
        let text = mapped.to_string();
        assert!(!text.contains("s1") && !text.contains("as2"), "the recorded name is left: {text}");
    }
    #[test]
    fn a_stored_sandbox_keeps_its_own_and_takes_over_mode_status_and_the_next_generations() {
        let stored = json!({
            "metadata": {
                "name": "demo", "namespace": "ns", "uid": "u1", "generation": 5,
                "labels": {"a": "b"}, "annotations": {"x": "y", "agents.x-k8s.io/pod-name": "demo"},
            },
            "spec": {"operatingMode": "Running", "podTemplate": {"spec": {"containers": []}}},
        });
        let recording = Recording::named("suspend").expect("it is built in");
        let first = &recording.states()[0].object;
        let last = &recording.states().last().expect("never empty").object;
        let target = Target::of(&stored, first).expect("it is a sandbox");
        let mapped = target.map(last, &Map::new());
        assert_eq!(mapped["metadata"]["generation"], 6, "recorded as 2, the one after creation");
        assert_eq!(mapped["status"]["conditions"][0]["observedGeneration"], 6);
        assert_eq!(
            mapped["metadata"]["annotations"],
            json!({"x": "y"}),
            "the recorded controller cleared the pod's name"
        );
        assert_eq!(mapped["spec"], json!({"operatingMode": "Suspended", "podTemplate": {"spec": {"containers": []}}}));
        let error =
            Target::of(&json!({"metadata": {"generation": 1, "name": "demo"}}), first).expect_err("no namespace");
        assert_eq!(
            error.to_string(),
            "expected a stored Sandbox to map the recording onto: metadata.namespace is missing"
        );
    }
    #[test]
    fn annotations_laid_over_win_and_null_takes_one_away() {
        let recorded = json!({"metadata": {"name": "s1", "annotations": {"a": "1", "b": "2"}}});
        let over = json!({"a": null, "b": "3", "c": "4"});
        let mapped = Target::new("ns", "demo", []).map(&recorded, over.as_object().expect("it is one"));
        assert_eq!(mapped["metadata"]["annotations"], json!({"b": "3", "c": "4"}));
        let bare = json!({"a": null, "b": null});
        let mapped = Target::new("ns", "demo", []).map(&recorded, bare.as_object().expect("it is one"));
        assert_eq!(mapped["metadata"].get("annotations"), None);
    }
}
