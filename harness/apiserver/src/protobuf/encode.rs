//! Answers in protobuf: objects, lists, refusals and the events of a watch, made from the JSON that says the same.
//!
//! Source: "Kubernetes Protobuf encoding" in the Kubernetes API concepts; in a watch each event has its length before
//! it, in four bytes.

use bytes::Bytes;
use serde_json::{Map, Value};

use super::MAGIC;
use super::numbers::{Message, message, of_kind};
use crate::defaults::from_base64;
use crate::{delete, typed};

/// A message that is being written.
#[derive(Default)]
struct Out(Vec<u8>);

impl Out {
    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push((value & 0x7f) as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    fn number(&mut self, field: u64, value: u64) {
        self.varint(field << 3);
        self.varint(value);
    }

    fn fixed64(&mut self, field: u64, value: u64) {
        self.varint(field << 3 | 1);
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    fn bytes(&mut self, field: u64, bytes: &[u8]) {
        self.varint(field << 3 | 2);
        self.varint(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }
}

/// An object, a list or a `Status` in its envelope. `None`: its kind has no message that is known here.
pub(crate) fn encode(object: &Value) -> Option<Vec<u8>> {
    let (api_version, kind) = (object["apiVersion"].as_str()?, object["kind"].as_str()?);
    let map = object.as_object()?;
    let raw = match kind.strip_suffix("List").and_then(|element| of_kind(api_version, element)) {
        Some(element) => list(map, element)?,
        None => {
            let of = of_kind(api_version, kind)?;
            members(map, of, of.name)?
        }
    };
    let mut type_meta = Out::default();
    type_meta.bytes(1, api_version.as_bytes());
    type_meta.bytes(2, kind.as_bytes());
    let mut envelope = Out(MAGIC.to_vec());
    envelope.bytes(1, &type_meta.0);
    envelope.bytes(2, &raw);
    // Neither an encoding nor a type of the content.
    envelope.bytes(3, b"");
    envelope.bytes(4, b"");
    Some(envelope.0)
}

/// An event of a watch from its line, with its length before it. `None`: it is no event of a known kind.
pub(crate) fn event(line: &[u8]) -> Option<Bytes> {
    let event: Value = serde_json::from_slice(line).ok()?;
    let mut object = Out::default();
    object.bytes(1, &encode(&event["object"])?);
    let mut message = Out::default();
    message.bytes(1, event["type"].as_str()?.as_bytes());
    message.bytes(2, &object.0);
    let length = u32::try_from(message.0.len()).ok()?;
    Some([&length.to_be_bytes(), message.0.as_slice()].concat().into())
}

fn list(map: &Map<String, Value>, element: &'static Message) -> Option<Vec<u8>> {
    let mut out = Out::default();
    let meta = message("ListMeta")?;
    if let Some(metadata) = map.get("metadata").and_then(Value::as_object) {
        out.bytes(1, &members(metadata, meta, meta.name)?);
    }
    for item in map.get("items").and_then(Value::as_array).into_iter().flatten() {
        out.bytes(2, &members(item.as_object()?, element, element.name)?);
    }
    Some(out.0)
}

/// The members of an object as the fields of a message, whose types are those of the type `typed_as`. Members that the
/// message does not have are newer than it, and left out.
fn members(object: &Map<String, Value>, of: &'static Message, typed_as: &str) -> Option<Vec<u8>> {
    let mut out = Out::default();
    for field in of.fields() {
        if field.name.is_empty() {
            let inlined = members(object, message(field.kind?)?, typed_as)?;
            if !inlined.is_empty() {
                out.bytes(field.number, &inlined);
            }
            continue;
        }
        let Some(value) = object.get(field.name).filter(|value| !value.is_null()) else { continue };
        let Some(kind) = field.kind.or_else(|| typed::kind(typed_as, field.name)) else { continue };
        if let Some(of_elements) = kind.strip_prefix('[') {
            for element in value.as_array()? {
                write(&mut out, field.number, element, of_elements)?;
            }
        } else if let Some(of_values) = kind.strip_prefix('{') {
            for (key, value) in value.as_object()? {
                let mut entry = Out::default();
                entry.bytes(1, key.as_bytes());
                write(&mut entry, 2, value, of_values)?;
                out.bytes(field.number, &entry.0);
            }
        } else {
            write(&mut out, field.number, value, kind)?;
        }
    }
    Some(out.0)
}

/// One value of that kind, as the table of types names it. `None`: it is of another.
fn write(out: &mut Out, number: u64, value: &Value, kind: &'static str) -> Option<()> {
    match kind {
        "s" => out.bytes(number, value.as_str()?.as_bytes()),
        "y" => out.bytes(number, &from_base64(value.as_str()?)?),
        "i" | "l" => out.number(number, value.as_i64()?.cast_unsigned()),
        "b" => out.number(number, u64::from(value.as_bool()?)),
        "n" => out.fixed64(number, value.as_f64()?.to_bits()),
        "t" | "m" => out.bytes(number, &time(value.as_str()?)?),
        "x" => out.bytes(number, &number_or_text(value)?),
        "q" => wrapped(out, number, &value.as_str().map_or_else(|| value.to_string(), str::to_owned)),
        "o" => wrapped(out, number, &value.to_string()),
        name if name.len() > 1 => {
            let inner = match message(name) {
                Some(message) => members(value.as_object()?, message, name)?,
                // Newer than the messages: it stays empty.
                None => Vec::new(),
            };
            out.bytes(number, &inner);
        }
        _ => return None,
    }
    Some(())
}

/// A message with one text in it.
fn wrapped(out: &mut Out, number: u64, text: &str) {
    let mut message = Out::default();
    message.bytes(1, text.as_bytes());
    out.bytes(number, &message.0);
}

/// Seconds and nanoseconds.
fn time(text: &str) -> Option<Vec<u8>> {
    let mut out = Out::default();
    out.number(1, delete::parse_seconds(text)?);
    if let Some((_, fraction)) = text.split_once('.') {
        let digits: String = fraction.chars().take_while(char::is_ascii_digit).chain("000000000".chars()).collect();
        out.number(2, digits[..9].parse().ok()?);
    }
    Some(out.0)
}

/// `IntOrString`.
fn number_or_text(value: &Value) -> Option<Vec<u8>> {
    let mut out = Out::default();
    match value {
        Value::String(text) => {
            out.number(1, 1);
            out.bytes(3, text.as_bytes());
        }
        other => {
            out.number(1, 0);
            out.number(2, other.as_i64()?.cast_unsigned());
        }
    }
    Some(out.0)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::protobuf::decode;
    use crate::protobuf::wire::{Field, Fields};

    #[test]
    fn what_was_encoded_is_decoded_again() {
        let metadata = json!({
            "name": "a", "labels": {"app": "x", "empty": ""}, "generation": 3, "creationTimestamp": "2026-09-21T14:13:20Z",
            "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "u", "controller": false}],
            "managedFields": [{"manager": "m", "operation": "Apply", "fieldsV1": {"f:data": {"f:k": {}}}}],
            "deletionGracePeriodSeconds": 0,
        });
        let container = json!({
            "name": "c", "image": "i", "env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
            "resources": {"limits": {"cpu": "100m"}}, "securityContext": {"runAsUser": 0, "privileged": false},
            "livenessProbe": {"httpGet": {"path": "/", "port": "web"}, "periodSeconds": 5},
            "ports": [{"containerPort": 80, "protocol": "TCP"}],
        });
        let table = [
            json!({
                "apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"k": "v", "é": ""},
                "binaryData": {"b": "/wA="}, "immutable": false,
            }),
            json!({
                "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"},
                "spec": {
                    "volumes": [
                        {"name": "v", "configMap": {"name": "cm", "defaultMode": 420, "optional": false}},
                        {"name": "e", "emptyDir": {}},
                    ],
                    "containers": [container], "terminationGracePeriodSeconds": 0,
                    "tolerations": [{"key": "k", "tolerationSeconds": -1}],
                },
                "status": {"phase": "Running", "containerStatuses": [{
                    "name": "c", "state": {"running": {"startedAt": "2026-09-21T14:13:20Z"}}, "ready": true,
                    "restartCount": 0, "image": "i", "imageID": "", "started": true,
                }]},
            }),
            json!({
                "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "l"},
                "spec": {"holderIdentity": "", "renewTime": "2026-09-21T14:13:20.001000Z", "leaseTransitions": 0},
            }),
            json!({
                "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"},
                "spec": {"replicas": 0, "strategy": {"rollingUpdate": {"maxSurge": "25%", "maxUnavailable": 0}}},
            }),
            json!({
                "apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": {"name": "e"}, "note": "n",
                "eventTime": "2026-09-21T14:13:20.000000Z", "regarding": {"kind": "Pod", "name": "p"},
            }),
            json!({
                "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "b"},
                "spec": {"maxUnavailable": 0},
                "status": {"disruptionsAllowed": 0, "currentHealthy": 1, "desiredHealthy": 0, "expectedPods": 1},
            }),
            json!({
                "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "c"}, "value": 0,
            }),
        ];
        for object in table {
            let encoded = encode(&object).unwrap_or_else(|| panic!("{object}"));
            assert_eq!(decode(&encoded), Ok(object));
        }
    }

    /// The fields of a message that are texts or messages.
    fn fields(message: &[u8]) -> Vec<(u64, Vec<u8>)> {
        let bytes = |field| match field {
            Ok((number, Field::Bytes(bytes))) => Some((number, bytes.to_vec())),
            _ => None,
        };
        Fields(message).filter_map(bytes).collect()
    }

    fn raw(encoded: &[u8]) -> Vec<u8> {
        let envelope = encoded.strip_prefix(MAGIC).expect("the magic number");
        fields(envelope).into_iter().find(|(number, _)| *number == 2).expect("a message").1
    }

    #[test]
    fn a_list_holds_its_revision_and_its_items_and_a_refusal_its_reason() {
        let list = json!({
            "kind": "ConfigMapList", "apiVersion": "v1", "metadata": {"resourceVersion": "7", "remainingItemCount": 0},
            "items": [{"metadata": {"name": "a"}}, {"metadata": {"name": "b"}}],
        });
        let items: Vec<_> = fields(&raw(&encode(&list).expect("a known kind")));
        let numbers: Vec<u64> = items.iter().map(|(number, _)| *number).collect();
        assert_eq!(numbers, [1, 2, 2]);
        assert_eq!(fields(&items[0].1), [(2, b"7".to_vec())]);
        assert_eq!(fields(&fields(&items[2].1)[0].1), [(1, b"b".to_vec())]);
        let status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": "m",
            "reason": "NotFound", "details": {"name": "a", "kind": "configmaps"}, "code": 404,
        });
        assert_eq!(fields(&raw(&encode(&status).expect("a known kind")))[3], (4, b"NotFound".to_vec()));
        let unknown = json!({"kind": "Sandbox", "apiVersion": "agents.x-k8s.io/v1beta1"});
        assert_eq!(encode(&unknown), None);
    }

    #[test]
    fn an_event_has_its_length_before_it() {
        let line = br#"{"type":"ADDED","object":{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"a"}}}"#;
        let frame = event(line).expect("an event");
        let (length, message) = frame.split_first_chunk::<4>().expect("a length");
        assert_eq!(u32::from_be_bytes(*length) as usize, message.len());
        let parts = fields(message);
        assert_eq!(parts[0], (1, b"ADDED".to_vec()));
        let object = decode(&fields(&parts[1].1)[0].1).expect("an object");
        assert_eq!(object["metadata"]["name"], "a");
        assert_eq!(event(b"{\"type\":\"ADD"), None, "half a line is no event");
    }
}
