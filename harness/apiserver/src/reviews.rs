//! Reviews: objects that are only ever created, and answered rather than stored (Kubernetes docs: "Authorization",
//! "Authenticating").
//!
//! There is no authorisation here, so that every review of access says yes; and there is no authentication, so that
//! everybody is the administrator. Tokens of ServiceAccounts are reviewed for real: see [`tokens`].

use http::Method;
use serde_json::{Map, Value, json};

use crate::error::{ApiError, Cause};
use crate::history::History;
use crate::request::Place;
use crate::{clock, tokens};

/// The group of reviews of access.
pub(crate) const GROUP: &str = "authorization.k8s.io";

/// A type that is reviewed.
pub(crate) struct Reviewed {
    pub(crate) group: &'static str,
    pub(crate) plural: &'static str,
    pub(crate) kind: &'static str,
    pub(crate) namespaced: bool,
}

/// All of them, in the order of discovery. Their version is `v1`.
pub(crate) const ALL: [Reviewed; 6] = [
    Reviewed { group: tokens::GROUP, plural: "selfsubjectreviews", kind: "SelfSubjectReview", namespaced: false },
    Reviewed { group: tokens::GROUP, plural: "tokenreviews", kind: "TokenReview", namespaced: false },
    Reviewed { group: GROUP, plural: "localsubjectaccessreviews", kind: "LocalSubjectAccessReview", namespaced: true },
    Reviewed { group: GROUP, plural: "selfsubjectaccessreviews", kind: "SelfSubjectAccessReview", namespaced: false },
    Reviewed { group: GROUP, plural: "selfsubjectrulesreviews", kind: "SelfSubjectRulesReview", namespaced: false },
    Reviewed { group: GROUP, plural: "subjectaccessreviews", kind: "SubjectAccessReview", namespaced: false },
];

/// The reviewed type that a path is about.
pub(crate) fn find(place: &Place<'_>) -> Option<&'static Reviewed> {
    let known = |of: &&Reviewed| of.group == place.group && of.plural == place.plural;
    ALL.iter()
        .find(known)
        .filter(|of| place.version == "v1" && place.namespace.is_some() == of.namespaced && place.name.is_none())
}

/// Answers a review. `manager`: who owns what was sent, if ownership is kept.
pub(crate) fn answer(
    history: &mut History,
    of: &Reviewed,
    method: &Method,
    namespace: Option<&str>,
    body: &[u8],
    manager: Option<&str>,
) -> Result<Value, ApiError> {
    if method != Method::POST {
        return Err(ApiError::method_not_allowed());
    }
    let now = clock::now();
    if of.kind == "TokenReview" {
        let mut answer = tokens::review(history, body, now)?;
        own(&mut answer, "", manager, now);
        return Ok(answer);
    }
    let mut review = read(of, body)?;
    let spec = review["spec"].clone();
    review["kind"] = of.kind.into();
    review["apiVersion"] = format!("{}/v1", of.group).into();
    review["metadata"] = json!({});
    match of.kind {
        "SelfSubjectReview" => {
            review["metadata"]["creationTimestamp"] = clock::rfc3339(now).into();
            let groups = ["system:masters", "system:authenticated"];
            review["status"] = json!({"userInfo": {"username": "system:admin", "groups": groups}});
            return Ok(review);
        }
        "SelfSubjectRulesReview" => {
            if spec["namespace"].as_str().unwrap_or_default().is_empty() {
                return Err(ApiError::bad_request("no namespace on request"));
            }
            review["status"] = json!({
                "resourceRules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}],
                "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
                "incomplete": false,
            });
            return Ok(review);
        }
        _ => {}
    }
    let causes = mistakes(&spec, of.kind != "SelfSubjectAccessReview");
    if !causes.is_empty() {
        return Err(ApiError::invalid_as(GROUP, of.kind, "", &causes));
    }
    let asked = spec["resourceAttributes"]["namespace"].as_str().unwrap_or_default();
    if let Some(namespace) = namespace.filter(|namespace| *namespace != asked) {
        return Err(ApiError::bad_request(format!(
            "spec.resourceAttributes.namespace must match namespace: {namespace}"
        )));
    }
    own(&mut review, "", manager, now);
    review["status"] = json!({"allowed": true});
    Ok(review)
}

fn read(of: &Reviewed, body: &[u8]) -> Result<Value, ApiError> {
    let sent: Value = serde_json::from_slice(body)
        .map_err(|error| ApiError::bad_request(format!("couldn't get version/kind; json parse error: {error}")))?;
    let is = |key: &str, wanted: &str| sent[key].as_str().is_none_or(|text| text.is_empty() || text == wanted);
    if sent.is_object() && is("kind", of.kind) && is("apiVersion", &format!("{}/v1", of.group)) {
        return Ok(sent);
    }
    Err(ApiError::bad_request(format!("the object provided is unrecognized (must be of type {})", of.kind)))
}

/// What is wrong with the question.
fn mistakes(spec: &Value, names_a_subject: bool) -> Vec<Cause> {
    let mut causes = Vec::new();
    if spec["resourceAttributes"].is_object() == spec["nonResourceAttributes"].is_object() {
        let what = "exactly one of nonResourceAttributes or resourceAttributes must be specified";
        causes.push(Cause::invalid("spec.resourceAttributes", &spec["resourceAttributes"], what));
    }
    let user = spec["user"].as_str().unwrap_or_default();
    let groups = spec["groups"].as_array().is_some_and(|groups| !groups.is_empty());
    if names_a_subject && user.is_empty() && !groups {
        causes.push(Cause::invalid("spec.user", &"".into(), "at least one of user or group must be specified"));
    }
    causes
}

/// `managedFields` of what was sent, through a subresource if it is not empty.
pub(crate) fn own(review: &mut Value, subresource: &str, manager: Option<&str>, now: u64) {
    let Some(manager) = manager else { return };
    let mut fields = Map::new();
    for (name, value) in review["spec"].as_object().into_iter().flatten() {
        let inner = value.as_object().map(|members| {
            let names = members.keys().map(|name| (format!("f:{name}"), json!({})));
            // An object that is never left out when it is empty is not owned by itself.
            let itself = (name != "boundObjectRef").then(|| (".".to_owned(), json!({})));
            itself.into_iter().chain(names).collect::<Map<String, Value>>()
        });
        fields.insert(format!("f:{name}"), Value::Object(inner.unwrap_or_default()));
    }
    let mut entry = json!({
        "manager": manager, "operation": "Update", "apiVersion": review["apiVersion"], "time": clock::rfc3339(now),
        "fieldsType": "FieldsV1", "fieldsV1": {"f:spec": fields},
    });
    if !subresource.is_empty() {
        entry["subresource"] = subresource.into();
    }
    review["metadata"]["managedFields"] = json!([entry]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resource::{SandboxVersions, registry};

    fn asked(kind: &str, namespace: Option<&str>, spec: Value) -> Result<Value, ApiError> {
        let mut history = History::new(registry(SandboxVersions::Both, true));
        let of = ALL.iter().find(|of| of.kind == kind).expect("known");
        let body = json!({"kind": kind, "spec": spec}).to_string();
        answer(&mut history, of, &Method::POST, namespace, body.as_bytes(), Some("asker"))
    }

    #[test]
    fn everybody_may_do_everything_and_says_whom_it_is_about() {
        let pods = json!({"namespace": "d", "verb": "get", "resource": "pods"});
        let table = [
            ("SelfSubjectAccessReview", None, json!({"resourceAttributes": pods})),
            ("SelfSubjectAccessReview", None, json!({"nonResourceAttributes": {"path": "/x", "verb": "get"}})),
            ("SubjectAccessReview", None, json!({"user": "u", "resourceAttributes": pods})),
            ("SubjectAccessReview", None, json!({"groups": ["g"], "resourceAttributes": pods})),
            ("LocalSubjectAccessReview", Some("d"), json!({"user": "u", "resourceAttributes": pods})),
        ];
        for (kind, namespace, spec) in table {
            let answer = asked(kind, namespace, spec.clone()).expect("answered");
            assert_eq!((&answer["status"], &answer["spec"]), (&json!({"allowed": true}), &spec), "{kind}");
            assert_eq!(answer["apiVersion"], "authorization.k8s.io/v1");
        }
        let rules = asked("SelfSubjectRulesReview", None, json!({"namespace": "d"})).expect("answered");
        assert_eq!(rules["status"]["resourceRules"][0]["verbs"], json!(["*"]));
        let me = asked("SelfSubjectReview", None, Value::Null).expect("answered");
        assert_eq!(me["status"]["userInfo"]["groups"], json!(["system:masters", "system:authenticated"]));
    }

    #[test]
    fn what_was_sent_is_owned_by_the_sender() {
        let spec = json!({"user": "u", "resourceAttributes": {"verb": "get", "resource": "pods"}});
        let answer = asked("SubjectAccessReview", None, spec).expect("answered");
        let entry = &answer["metadata"]["managedFields"][0];
        assert_eq!(entry["manager"], "asker");
        assert_eq!(
            entry["fieldsV1"],
            json!({"f:spec": {"f:user": {}, "f:resourceAttributes": {".": {}, "f:verb": {}, "f:resource": {}}}})
        );
    }

    #[test]
    fn questions_that_make_no_sense_are_refused() {
        let pods = json!({"namespace": "d", "verb": "get", "resource": "pods"});
        let table = [
            ("SelfSubjectAccessReview", None, json!({}), 422),
            ("SubjectAccessReview", None, json!({"resourceAttributes": pods}), 422),
            (
                "SubjectAccessReview",
                None,
                json!({"user": "u", "resourceAttributes": pods, "nonResourceAttributes": {}}),
                422,
            ),
            ("LocalSubjectAccessReview", Some("e"), json!({"user": "u", "resourceAttributes": pods}), 400),
            ("SelfSubjectRulesReview", None, json!({}), 400),
        ];
        for (kind, namespace, spec, code) in table {
            assert_eq!(asked(kind, namespace, spec.clone()).expect_err("refused").code, code, "{kind} {spec}");
        }
        let mut history = History::new(registry(SandboxVersions::Both, true));
        let of = &ALL[0];
        assert_eq!(answer(&mut history, of, &Method::GET, None, b"", None).expect_err("refused").code, 405);
        let other = answer(&mut history, of, &Method::POST, None, br#"{"kind": "Pod"}"#, None).expect_err("refused");
        assert_eq!(other.code, 400);
    }
}
