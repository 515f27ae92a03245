//! Tokens of ServiceAccounts: TokenRequest makes them, TokenReview says whose they are (Kubernetes docs: "Managing
//! service accounts").
//!
//! A token is opaque to clients. This server's tokens hold what was asked for, unsigned: there is no secret to keep in a
//! simulation, and no authentication at the front door. As on a real server, a token that was good is good for ten
//! seconds more, whatever happens to its account and its pod.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Map, Value, json};
use tokio::time::Instant;

use crate::clock;
use crate::defaults::{base64, from_base64};
use crate::error::{ApiError, Cause};
use crate::history::History;
use crate::resource::Resource;
use crate::store::position;

/// The group of both.
pub(crate) const GROUP: &str = "authentication.k8s.io";
const API_VERSION: &str = "authentication.k8s.io/v1";
/// What a token is for that is for nothing in particular, and what a review that asks for nothing in particular wants.
const API_AUDIENCE: &str = "https://kubernetes.default.svc";
/// Tokens of this server begin like this.
const PREFIX: &str = "photofinish.";
/// A shorter life cannot be asked for.
const SHORTEST_S: i64 = 600;
const DEFAULT_S: i64 = 3600;
/// How long a good answer is remembered.
const REMEMBERED: Duration = Duration::from_secs(10);

/// Good answers, by token and audiences, and until when they are remembered.
pub(crate) type Reviewed = BTreeMap<(String, Vec<String>), (Instant, Value)>;

fn invalid(kind: &str, causes: &[Cause]) -> ApiError {
    ApiError::invalid_as(GROUP, kind, "", causes)
}

/// A request body of one of the two kinds.
fn read(kind: &str, body: &[u8]) -> Result<Value, ApiError> {
    let sent: Value = serde_json::from_slice(body)
        .map_err(|error| ApiError::bad_request(format!("couldn't get version/kind; json parse error: {error}")))?;
    let is = |key: &str, wanted: &str| sent[key].as_str().is_none_or(|text| text.is_empty() || text == wanted);
    if sent.is_object() && is("kind", kind) && is("apiVersion", API_VERSION) {
        return Ok(sent);
    }
    Err(ApiError::bad_request(format!("the object provided is unrecognized (must be of type {kind})")))
}

fn texts(list: &Value) -> Vec<String> {
    list.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}

/// Answers a TokenRequest for a ServiceAccount: the request with its token. `None`: there is no such account.
pub(crate) fn request(
    history: &History,
    account: Option<&Value>,
    resource: &Resource,
    name: &str,
    body: &[u8],
    now: u64,
) -> Result<Value, ApiError> {
    let sent = read("TokenRequest", body)?;
    let Some(account) = account else { return Err(ApiError::not_found(resource, name)) };
    let seconds = sent["spec"]["expirationSeconds"].as_i64().unwrap_or(DEFAULT_S);
    if seconds < SHORTEST_S {
        let why = "may not specify a duration less than 10 minutes";
        return Err(invalid("TokenRequest", &[Cause::invalid("spec.expirationSeconds", &seconds.into(), why)]));
    }
    let mut audiences = texts(&sent["spec"]["audiences"]);
    if audiences.is_empty() {
        audiences.push(API_AUDIENCE.into());
    }
    let namespace = account["metadata"]["namespace"].as_str().unwrap_or_default();
    let bound = match sent["spec"].get("boundObjectRef").filter(|bound| bound.is_object()) {
        Some(reference) => Some(bound(history, namespace, reference)?),
        None => None,
    };
    let expires = now.saturating_add(seconds.unsigned_abs());
    let claims = json!({
        "namespace": namespace, "name": name, "uid": account["metadata"]["uid"], "audiences": audiences,
        "expires": expires, "bound": bound, "id": clock::uid(),
    });
    let token = format!("{PREFIX}{}", base64(claims.to_string().as_bytes()).trim_end_matches('=').replace('/', "_"));
    let mut spec = Map::new();
    spec.insert("audiences".into(), audiences.into());
    spec.insert("expirationSeconds".into(), seconds.into());
    spec.insert("boundObjectRef".into(), sent["spec"]["boundObjectRef"].clone());
    let metadata = &account["metadata"];
    Ok(json!({
        "kind": "TokenRequest", "apiVersion": API_VERSION,
        "metadata": {
            "name": name, "namespace": namespace, "uid": metadata["uid"], "creationTimestamp": clock::rfc3339(now),
        },
        "spec": spec,
        "status": {"token": token, "expirationTimestamp": clock::rfc3339(expires)},
    }))
}

/// The object that a token is bound to, as `{"kind", "name", "uid"}`: its token dies with it.
fn bound(history: &History, namespace: &str, reference: &Value) -> Result<Value, ApiError> {
    let text = |key: &str| reference[key].as_str().unwrap_or_default();
    let (kind, name, uid) = (text("kind"), text("name"), text("uid"));
    let plural = match kind {
        "Pod" => "pods",
        "Secret" => "secrets",
        "Node" => "nodes",
        other => return Err(ApiError::bad_request(format!("cannot bind token to object of type {other}"))),
    };
    let Some(table) = position(history, plural) else { return Err(ApiError::no_such_resource()) };
    let resource = &history.tables[table].resource;
    let Some(object) = history.get(table, &resource.key(namespace, name)) else {
        return Err(ApiError::not_found(resource, name));
    };
    let stored = object.value()["metadata"]["uid"].as_str().unwrap_or_default();
    if !uid.is_empty() && uid != stored {
        let why = format!(
            "the UID in the bound object reference ({uid}) does not match the UID in record. The object might have been deleted and then recreated"
        );
        return Err(ApiError::precondition(resource, name, why));
    }
    Ok(json!({"kind": kind, "name": name, "uid": stored}))
}

/// Answers a TokenReview.
pub(crate) fn review(history: &mut History, body: &[u8], now: u64) -> Result<Value, ApiError> {
    let mut sent = read("TokenReview", body)?;
    let token = sent["spec"]["token"].as_str().unwrap_or_default().to_owned();
    if token.is_empty() {
        return Err(ApiError::bad_request("token is required for TokenReview in authentication"));
    }
    let asked = texts(&sent["spec"]["audiences"]);
    let targets = if asked.is_empty() { vec![API_AUDIENCE.to_owned()] } else { asked };
    sent["kind"] = "TokenReview".into();
    sent["apiVersion"] = API_VERSION.into();
    sent["metadata"] = json!({});
    let moment = Instant::now();
    history.reviewed.retain(|_, (until, _)| *until > moment);
    let question = (token, targets);
    sent["status"] = match history.reviewed.get(&question) {
        Some((_, answer)) => answer.clone(),
        None => match authenticated(history, &question.0, &question.1, now) {
            Ok(status) => {
                history.reviewed.insert(question, (moment + REMEMBERED, status.clone()));
                status
            }
            Err(why) => json!({"user": {}, "error": why}),
        },
    };
    Ok(sent)
}

fn authenticated(history: &History, token: &str, targets: &[String], now: u64) -> Result<Value, String> {
    const INVALID: &str = "invalid bearer token";
    let also = |why: String| format!("[{INVALID}, {why}]");
    let decoded = token.strip_prefix(PREFIX).and_then(|text| from_base64(&text.replace('_', "/")));
    let claims = decoded.and_then(|bytes| serde_json::from_slice::<Value>(&bytes).ok());
    let Some(claims) = claims else { return Err(INVALID.into()) };
    let text = |key: &str| claims[key].as_str().unwrap_or_default();
    let audiences = texts(&claims["audiences"]);
    let common: Vec<&String> = targets.iter().filter(|target| audiences.contains(target)).collect();
    if common.is_empty() {
        let list =
            |list: &[String]| format!("[{}]", list.iter().map(|a| format!("{a:?}")).collect::<Vec<_>>().join(" "));
        let why = format!("token audiences {} is invalid for the target audiences {}", list(&audiences), list(targets));
        return Err(also(why));
    }
    if claims["expires"].as_u64().is_none_or(|expires| expires <= now) {
        return Err(also("service account token has expired".into()));
    }
    let (namespace, name) = (text("namespace"), text("name"));
    let stored = |plural: &str, name: &str| {
        let table = position(history, plural)?;
        let key = history.tables[table].resource.key(namespace, name);
        history.get(table, &key).map(|object| object.value().clone())
    };
    let Some(account) = stored("serviceaccounts", name) else {
        return Err(also(format!("serviceaccounts {name:?} not found")));
    };
    let gone = || also("service account token has been invalidated".into());
    if account["metadata"]["uid"] != claims["uid"] {
        return Err(gone());
    }
    const DOMAIN: &str = "authentication.kubernetes.io";
    let mut extra = Map::new();
    extra.insert(format!("{DOMAIN}/credential-id"), json!([format!("JTI={}", text("id"))]));
    let bound = &claims["bound"];
    if let (Some(kind), Some(of)) = (bound["kind"].as_str(), bound["name"].as_str()) {
        let (plural, label) = match kind {
            "Pod" => ("pods", "pod"),
            "Secret" => ("secrets", "secret"),
            _ => ("nodes", "node"),
        };
        if stored(plural, of).is_none_or(|object| object["metadata"]["uid"] != bound["uid"]) {
            return Err(gone());
        }
        extra.insert(format!("{DOMAIN}/{label}-name"), json!([of]));
        extra.insert(format!("{DOMAIN}/{label}-uid"), json!([bound["uid"]]));
    }
    Ok(json!({
        "authenticated": true,
        "user": {
            "username": format!("system:serviceaccount:{namespace}:{name}"), "uid": claims["uid"],
            "groups": ["system:serviceaccounts", format!("system:serviceaccounts:{namespace}"), "system:authenticated"],
            "extra": extra,
        },
        "audiences": common,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resource::{SandboxVersions, registry};

    const NOW: u64 = 1_790_000_000;

    /// A history with an account and a pod, and the account.
    fn history() -> (History, Value) {
        let mut history = History::new(registry(SandboxVersions::Both, true));
        let account = json!({"metadata": {"name": "sa", "namespace": "d", "uid": "sa-uid"}});
        let pod = json!({"metadata": {"name": "p", "namespace": "d", "uid": "pod-uid"}});
        for (plural, key, object) in [("serviceaccounts", "d/sa", &account), ("pods", "d/p", &pod)] {
            let table = position(&history, plural).expect("registered");
            history.commit(table, key, Some(object.clone()));
        }
        (history, account)
    }

    fn asked(history: &History, account: Option<&Value>, spec: Value) -> Result<Value, ApiError> {
        let table = position(history, "serviceaccounts").expect("registered");
        let body = json!({"apiVersion": API_VERSION, "kind": "TokenRequest", "spec": spec}).to_string();
        request(history, account, &history.tables[table].resource, "sa", body.as_bytes(), NOW)
    }

    fn reviewed(history: &mut History, token: &Value, audiences: Value, now: u64) -> Value {
        let body = json!({"kind": "TokenReview", "spec": {"token": token, "audiences": audiences}}).to_string();
        review(history, body.as_bytes(), now).expect("answers")["status"].clone()
    }

    #[test]
    fn a_token_says_whose_it_is_to_whom_it_is_for_until_it_expires() {
        let (mut history, account) = history();
        let made = asked(&history, Some(&account), json!({"audiences": ["gw"]})).expect("a token");
        let token = &made["status"]["token"];
        let good = reviewed(&mut history, token, json!(["other", "gw"]), NOW);
        assert_eq!((&good["authenticated"], &good["audiences"]), (&json!(true), &json!(["gw"])));
        assert_eq!(good["user"]["username"], "system:serviceaccount:d:sa");
        assert_eq!(
            reviewed(&mut history, token, Value::Null, NOW),
            json!({"user": {}, "error": "[invalid bearer token, token audiences [\"gw\"] is invalid for the target audiences [\"https://kubernetes.default.svc\"]]"})
        );
        assert_eq!(
            reviewed(&mut history, token, json!(["gw"]), NOW + 3600)["error"],
            "[invalid bearer token, service account token has expired]"
        );
        assert_eq!(reviewed(&mut history, &json!("garbage"), json!(["gw"]), NOW)["error"], "invalid bearer token");
    }

    #[tokio::test(start_paused = true)]
    async fn a_token_dies_with_its_account_and_with_the_pod_that_it_is_bound_to_once_the_answer_is_forgotten() {
        let (mut history, account) = history();
        let spec = json!({"boundObjectRef": {"kind": "Pod", "apiVersion": "v1", "name": "p", "uid": "pod-uid"}});
        let bound = asked(&history, Some(&account), spec).expect("a token")["status"]["token"].clone();
        let free = asked(&history, Some(&account), json!({})).expect("a token")["status"]["token"].clone();
        let status = reviewed(&mut history, &bound, Value::Null, NOW);
        assert_eq!(status["user"]["extra"]["authentication.kubernetes.io/pod-uid"], json!(["pod-uid"]));
        let pods = position(&history, "pods").expect("registered");
        history.commit(pods, "d/p", None);
        tokio::time::advance(Duration::from_secs(9)).await;
        assert_eq!(reviewed(&mut history, &bound, Value::Null, NOW)["authenticated"], true);
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(
            reviewed(&mut history, &bound, Value::Null, NOW)["error"],
            "[invalid bearer token, service account token has been invalidated]"
        );
        assert_eq!(reviewed(&mut history, &free, Value::Null, NOW)["authenticated"], true);
        tokio::time::advance(Duration::from_secs(10)).await;
        let accounts = position(&history, "serviceaccounts").expect("registered");
        history.commit(accounts, "d/sa", None);
        assert_eq!(
            reviewed(&mut history, &free, Value::Null, NOW)["error"],
            "[invalid bearer token, serviceaccounts \"sa\" not found]"
        );
    }

    #[test]
    fn requests_that_cannot_be_met_are_refused() {
        let (mut history, account) = history();
        let wrong = json!({"boundObjectRef": {"kind": "Pod", "name": "p", "uid": "x"}});
        let table = [
            (Some(&account), json!({"expirationSeconds": 60}), 422),
            (Some(&account), wrong, 409),
            (Some(&account), json!({"boundObjectRef": {"kind": "Pod", "name": "none"}}), 404),
            (None, json!({}), 404),
        ];
        for (account, spec, code) in table {
            assert_eq!(asked(&history, account, spec.clone()).expect_err("refused").code, code, "{spec}");
        }
        let empty = review(&mut history, br#"{"spec": {"token": ""}}"#, NOW).expect_err("refused");
        assert_eq!(empty.code, 400);
    }
}
