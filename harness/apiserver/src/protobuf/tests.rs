use serde_json::json;

use super::*;

/// Encodes as a client does. Lengths in these tests are below 128.
fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
    let key = match number {
        ..16 => vec![number << 3 | 2],
        _ => vec![(number << 3 | 2) | 0x80, number >> 4],
    };
    [&key[..], &[u8::try_from(bytes.len()).expect("short")], bytes].concat()
}

fn text(number: u8, text: &str) -> Vec<u8> {
    field(number, text.as_bytes())
}

fn integer(number: u8, value: u8) -> Vec<u8> {
    vec![number << 3, value]
}

fn enveloped(api_version: &str, kind: &str, message: &[Vec<u8>]) -> Vec<u8> {
    let of = [text(1, api_version), text(2, kind)].concat();
    [&MAGIC[..], &field(1, &of), &field(2, &message.concat()), &text(3, ""), &text(4, "")].concat()
}

#[track_caller]
fn decodes(api_version: &str, kind: &str, message: &[Vec<u8>], expected: Value) {
    let mut object = json!({"apiVersion": api_version, "kind": kind});
    object.as_object_mut().expect("an object").extend(expected.as_object().expect("an object").clone());
    assert_eq!(decode(&enveloped(api_version, kind, message)), Ok(object));
}

#[test]
fn names_maps_and_bytes_become_members() {
    let labels = [text(1, "app"), text(2, "x")].concat();
    let metadata = [text(1, "a"), text(2, ""), text(3, "default"), integer(7, 0), field(8, &[]), field(11, &labels)];
    decodes(
        "v1",
        "ConfigMap",
        &[field(1, &metadata.concat()), field(2, &[text(1, "k"), text(2, "v")].concat()), integer(4, 0)],
        json!({"metadata": {"name": "a", "namespace": "default", "labels": {"app": "x"}}, "data": {"k": "v"}, "immutable": false}),
    );
    decodes(
        "v1",
        "Secret",
        &[field(2, &[text(1, "k"), field(2, &[0xff, 0])].concat()), text(3, "Opaque")],
        json!({"data": {"k": "/wA="}, "type": "Opaque"}),
    );
}

/// What a kube-apiserver 1.36 answered to a client that took nothing else.
const RECORDED: &str = "azhzAAoPCgJ2MRIJQ29uZmlnTWFwEqEBCpYBCgZ5YW1sY20SABoCdHQiACokMTk0OWY4NzMtMGY4OC00NDkzLTk5MzItNWY4MGNiZTZhNzIyMgM0MDM4AEIICJafsdgGEACKAUwKCHJlY29yZGVyEgZVcGRhdGUaAnYxIggIlp+x2AYQADIIRmllbGRzVjE6HgoceyJmOmRhdGEiOnsiLiI6e30sImY6eCI6e319fUIAEgYKAXgSATEaACIA";

#[test]
fn a_recorded_answer_says_what_this_server_would_say_in_protobuf() {
    let recorded = crate::defaults::from_base64(RECORDED).expect("base64");
    let object = decode(&recorded).expect("an object");
    let created = object["metadata"]["creationTimestamp"].clone();
    assert_eq!(
        object,
        json!({
            "kind": "ConfigMap", "apiVersion": "v1", "data": {"x": "1"},
            "metadata": {
                "name": "yamlcm", "namespace": "tt", "uid": "1949f873-0f88-4493-9932-5f80cbe6a722",
                "resourceVersion": "403", "creationTimestamp": created,
                "managedFields": [{
                    "manager": "recorder", "operation": "Update", "apiVersion": "v1", "time": created,
                    "fieldsType": "FieldsV1", "fieldsV1": {"f:data": {".": {}, "f:x": {}}},
                }],
            },
        })
    );
    let ours = encode::encode(&object).expect("a known kind");
    assert_eq!(decode(&ours), Ok(object));
    // Ours leaves out fields that hold nothing.
    assert!(ours.len() < recorded.len(), "{} bytes", ours.len());
}

#[test]
fn a_client_gets_protobuf_if_it_names_that_first() {
    let table = [
        ("application/vnd.kubernetes.protobuf", true),
        ("application/vnd.kubernetes.protobuf,application/json", true),
        ("application/vnd.kubernetes.protobuf;stream=watch, */*", true),
        ("application/cbor, application/vnd.kubernetes.protobuf", true),
        ("application/json, application/vnd.kubernetes.protobuf", false),
        ("application/vnd.kubernetes.protobuf;as=Table;g=meta.k8s.io;v=v1, application/json", false),
        ("*/*", false),
        ("", false),
    ];
    for (accept, expected) in table {
        assert_eq!(preferred(accept), expected, "{accept}");
    }
}

#[test]
fn a_zero_counts_where_absent_means_something_else() {
    // `replicas` may be absent and then is 1; `minReadySeconds` is 0 when it is absent.
    decodes(
        "apps/v1",
        "Deployment",
        &[field(2, &[integer(1, 0), integer(5, 0)].concat())],
        json!({"spec": {"replicas": 0}}),
    );
    // Who gives a lease back clears its holder.
    decodes("coordination.k8s.io/v1", "Lease", &[field(2, &text(1, ""))], json!({"spec": {"holderIdentity": ""}}));
}

#[test]
fn fields_of_inlined_messages_belong_to_the_outer_one() {
    let volume = [text(1, "v"), field(2, &field(19, &[field(1, &text(1, "cm")), integer(3, 1)].concat()))].concat();
    let port = [integer(1, 0), integer(2, 80), text(3, "")].concat();
    let probe = [field(1, &field(2, &[text(1, "/"), field(2, &port)].concat())), integer(2, 5)].concat();
    let container = [text(1, "c"), field(11, &probe)].concat();
    let named = [integer(1, 1), integer(2, 0), text(3, "http")].concat();
    decodes(
        "v1",
        "Pod",
        &[field(2, &[field(1, &volume), field(2, &container)].concat())],
        json!({"spec": {
            "volumes": [{"name": "v", "configMap": {"name": "cm", "defaultMode": 1}}],
            "containers": [{"name": "c", "readinessProbe": {"httpGet": {"path": "/", "port": 80}, "initialDelaySeconds": 5}}],
        }}),
    );
    assert_eq!(number_or_text(&named), Ok("http".into()));
}

#[test]
fn times_are_texts_and_unset_ones_are_absent() {
    let at = [vec![0x08, 0x80, 0xf7, 0xc4, 0xd5, 0x06], vec![0x10, 0xc0, 0x84, 0x3d]].concat();
    assert_eq!(time(&at, false), Ok(Some("2026-09-21T14:13:20Z".into())));
    assert_eq!(time(&at, true), Ok(Some("2026-09-21T14:13:20.001000Z".into())));
    assert_eq!(time(&[], true), Ok(None));
    let late = [0x08, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f];
    assert_eq!(time(&late, true), Err(Problem::Field("seconds", "Time")));
}

#[test]
fn options_of_a_delete_are_an_object_too() {
    let preconditions = text(1, "uid");
    decodes(
        "apps/v1",
        "DeleteOptions",
        &[integer(1, 0), field(2, &preconditions), text(4, "Foreground"), text(5, "All")],
        json!({"gracePeriodSeconds": 0, "preconditions": {"uid": "uid"}, "propagationPolicy": "Foreground", "dryRun": ["All"]}),
    );
}

#[test]
fn what_is_no_message_of_a_known_kind_is_refused() {
    let mut short = enveloped("v1", "ConfigMap", &[field(1, &text(1, "a"))]);
    short.truncate(short.len() - 6);
    assert_eq!(decode(b"{}"), Err(Problem::Prefix));
    assert_eq!(decode(b""), Err(Problem::Prefix));
    assert_eq!(decode(&short), Err(Problem::Wire(Broken::Short)));
    assert_eq!(
        decode(&enveloped("v1", "ConfigMap", &[integer(1, 7)])),
        Err(Problem::Field("ObjectMeta", "the table of types"))
    );
    assert_eq!(decode(&enveloped("v1", "Widget", &[])), Err(Problem::Kind("v1".into(), "Widget".into())));
}
