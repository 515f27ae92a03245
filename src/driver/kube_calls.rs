//! Requests to the Kubernetes API, each with its time limit, and the one way in which Sandboxes are patched.
use super::error::CallError;
use super::markers::Annotations;
use super::resource::{Sandbox, SandboxVersion};
use kube::Client;
use kube::api::{DeleteParams, GetParams, ListParams, Patch, PatchParams, PostParams};
use kube::core::Request;
use serde::Deserialize;
use serde::de::{DeserializeOwned, IgnoredAny};
use serde_json::{Map, Value, json};
use std::time::Duration;
use tokio::sync::OnceCell;
use tokio::time::timeout;

/// Limit of one request, and of one whole loop of read, patch, conflict.
pub(super) const CALL_TIMEOUT: Duration = Duration::from_secs(30);

/// A type of object, as its path names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Kind {
    group: &'static str,
    version: &'static str,
    plural: &'static str,
}

const fn core(plural: &'static str) -> Kind {
    Kind { group: "", version: "v1", plural }
}
pub(super) const PODS: Kind = core("pods");
pub(super) const SERVICES: Kind = core("services");
pub(super) const SECRETS: Kind = core("secrets");
pub(super) const NAMESPACES: Kind = core("namespaces");
pub(super) const SERVICE_ACCOUNTS: Kind = core("serviceaccounts");
pub(super) const NETWORK_POLICIES: Kind = Kind { group: "networking.k8s.io", version: "v1", plural: "networkpolicies" };

impl Kind {
    fn path(self, namespace: Option<&str>) -> Request {
        let Kind { group, version, plural } = self;
        let root = if group.is_empty() { format!("/api/{version}") } else { format!("/apis/{group}/{version}") };
        Request::new(match namespace {
            Some(ns) => format!("{root}/namespaces/{ns}/{plural}"),
            None => format!("{root}/{plural}"),
        })
    }
    fn what(self, verb: &str, name: &str) -> String {
        format!("{verb} {}/{name}", self.plural)
    }
}

/// A list, without what nobody reads.
#[derive(Deserialize)]
#[serde(bound(deserialize = "T: Deserialize<'de>"))]
struct Items<T> {
    items: Vec<T>,
}

/// What a read of one object found.
#[derive(Debug)]
pub(super) enum Read<T> {
    /// This.
    There(T),
    /// The server says that it does not exist.
    Absent,
    /// No answer, or an error.
    Unread,
}

impl<T> From<Result<Option<T>, CallError>> for Read<T> {
    fn from(result: Result<Option<T>, CallError>) -> Self {
        match result {
            Ok(Some(object)) => Read::There(object),
            Ok(None) => Read::Absent,
            Err(e) => {
                tracing::warn!(error = %e, "a dependency could not be read");
                Read::Unread
            }
        }
    }
}

/// A change of a Sandbox, as a JSON merge patch.
#[derive(Clone, Debug)]
pub(super) struct Change {
    annotations: Value,
    spec: Map<String, Value>,
}

impl Change {
    /// Only these annotations: `metadata.generation` stays.
    pub(super) fn of(annotations: Annotations) -> Self {
        Self { annotations: annotations.into_json(), spec: Map::new() }
    }
    /// And the run switch.
    pub(super) fn run(self, version: SandboxVersion, run: bool) -> Self {
        let (field, value) = version.run_switch(run);
        self.spec(field, value)
    }
    /// And this field of the spec.
    pub(super) fn spec(mut self, field: &str, value: Value) -> Self {
        self.spec.insert(field.to_owned(), value);
        self
    }
    /// Only the run switch.
    pub(super) fn only_run(version: SandboxVersion, run: bool) -> Self {
        Self { annotations: Value::Null, spec: Map::new() }.run(version, run)
    }
    fn body(&self, resource_version: &str) -> Value {
        let mut body = json!({"metadata": {"resourceVersion": resource_version}});
        if !self.annotations.is_null() {
            body["metadata"]["annotations"] = self.annotations.clone();
        }
        if !self.spec.is_empty() {
            body["spec"] = Value::Object(self.spec.clone());
        }
        body
    }
}

/// A client with what this process has learned about the server.
pub(super) struct Kube {
    client: Client,
    version: OnceCell<SandboxVersion>,
}

impl Kube {
    pub(super) fn new(client: Client) -> Self {
        Self { client, version: OnceCell::new() }
    }
    pub(super) fn client(&self) -> Client {
        self.client.clone()
    }

    async fn call<T: DeserializeOwned>(
        &self,
        what: impl Fn() -> String,
        request: Result<http::Request<Vec<u8>>, kube::core::request::Error>,
    ) -> Result<T, CallError> {
        let request = request.map_err(|e| CallError::new(what(), kube::Error::BuildRequest(e)))?;
        match timeout(CALL_TIMEOUT, self.client.request(request)).await {
            Ok(answer) => answer.map_err(|e| CallError::new(what(), e)),
            Err(_) => Err(CallError::TimedOut { what: what(), seconds: CALL_TIMEOUT.as_secs() }),
        }
    }

    /// Reads one object; `None` if it does not exist.
    pub(super) async fn get<T: DeserializeOwned>(
        &self,
        kind: Kind,
        namespace: Option<&str>,
        name: &str,
    ) -> Result<Option<T>, CallError> {
        let request = kind.path(namespace).get(name, &GetParams::default());
        match self.call(|| kind.what("get", name), request).await {
            Ok(object) => Ok(Some(object)),
            Err(e) if e.is_not_found() => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// Lists objects, consistently.
    pub(super) async fn list<T: DeserializeOwned>(
        &self,
        kind: Kind,
        namespace: Option<&str>,
        params: &ListParams,
    ) -> Result<Vec<T>, CallError> {
        let request = kind.path(namespace).list(params);
        let list: Items<T> = self.call(|| format!("list {}", kind.plural), request).await?;
        Ok(list.items)
    }

    /// Creates an object; its name is in `object`.
    pub(super) async fn create<T: DeserializeOwned>(
        &self,
        kind: Kind,
        namespace: Option<&str>,
        object: &Value,
    ) -> Result<T, CallError> {
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        let body = serde_json::to_vec(object).expect("a JSON value has a text");
        let request = kind.path(namespace).create(&PostParams::default(), body);
        self.call(|| kind.what("create", name), request).await
    }

    /// Merges `patch` into an object.
    pub(super) async fn merge<T: DeserializeOwned>(
        &self,
        kind: Kind,
        namespace: &str,
        name: &str,
        patch: &Value,
    ) -> Result<T, CallError> {
        let request = kind.path(Some(namespace)).patch(name, &PatchParams::default(), &Patch::Merge(patch));
        self.call(|| kind.what("patch", name), request).await
    }

    /// Deletes an object.
    pub(super) async fn delete(
        &self,
        kind: Kind,
        namespace: Option<&str>,
        name: &str,
        params: &DeleteParams,
    ) -> Result<(), CallError> {
        let request = kind.path(namespace).delete(name, params);
        self.call::<IgnoredAny>(|| kind.what("delete", name), request).await.map(drop)
    }

    /// Deletes an object that may be gone already.
    pub(super) async fn delete_if_there(&self, kind: Kind, namespace: &str, name: &str) -> Result<(), CallError> {
        match self.delete(kind, Some(namespace), name, &DeleteParams::default()).await {
            Err(e) if e.is_not_found() => Ok(()),
            result => result,
        }
    }

    /// The version of the Sandbox API that this server serves. Asked once a process: a list of one in `v1beta1`; if
    /// there is no such version, `v1alpha1`. A failure is not remembered.
    pub(super) async fn version(&self, scope: Option<&str>) -> Result<SandboxVersion, CallError> {
        let probe = async || {
            let one = ListParams::default().limit(1);
            let kind = sandboxes(SandboxVersion::V1beta1);
            match self.list::<IgnoredAny>(kind, scope, &one).await {
                Ok(_) => Ok(SandboxVersion::V1beta1),
                Err(e) if e.is_not_found() => Ok(SandboxVersion::V1alpha1),
                Err(e) => Err(e),
            }
        };
        self.version.get_or_try_init(probe).await.copied()
    }

    /// Patches a Sandbox, once, if it still is at the resourceVersion of `decided_on`.
    pub(super) async fn patch_once(
        &self,
        version: SandboxVersion,
        decided_on: &Sandbox,
        change: &Change,
    ) -> Result<Sandbox, CallError> {
        let body = change.body(decided_on.resource_version());
        self.merge(sandboxes(version), decided_on.namespace(), decided_on.name(), &body).await
    }

    /// Patches a Sandbox: reads it, patches what it read, and again on a conflict, for at most [`CALL_TIMEOUT`].
    ///
    /// The change is applied to whatever was read: nothing is decided again.
    pub(super) async fn patch_retrying(
        &self,
        version: SandboxVersion,
        namespace: &str,
        name: &str,
        change: &Change,
    ) -> Result<Sandbox, CallError> {
        let kind = sandboxes(version);
        let attempts = async {
            loop {
                let request = kind.path(Some(namespace)).get(name, &GetParams::default());
                let present: Sandbox = self.call(|| kind.what("get", name), request).await?;
                match self.patch_once(version, &present, change).await {
                    Err(e) if e.is_conflict() => tokio::task::yield_now().await,
                    result => return result,
                }
            }
        };
        let late = |_| CallError::TimedOut { what: kind.what("patch", name), seconds: CALL_TIMEOUT.as_secs() };
        timeout(CALL_TIMEOUT, attempts).await.map_err(late)?
    }
}

/// The Sandbox type in this version.
pub(super) fn sandboxes(version: SandboxVersion) -> Kind {
    Kind { group: super::names::SANDBOX_GROUP, version: version.as_str(), plural: "sandboxes" }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::{markers, names};

    #[test]
    fn paths_name_group_version_and_namespace() {
        for (kind, namespace, path) in [
            (PODS, Some("a"), "/api/v1/namespaces/a/pods"),
            (NAMESPACES, None, "/api/v1/namespaces"),
            (NETWORK_POLICIES, Some("a"), "/apis/networking.k8s.io/v1/namespaces/a/networkpolicies"),
            (sandboxes(SandboxVersion::V1beta1), None, "/apis/agents.x-k8s.io/v1beta1/sandboxes"),
            (sandboxes(SandboxVersion::V1alpha1), Some("a"), "/apis/agents.x-k8s.io/v1alpha1/namespaces/a/sandboxes"),
        ] {
            assert_eq!(kind.path(namespace).url_path, path);
        }
    }

    #[test]
    fn a_change_names_the_version_it_was_decided_on_and_nothing_that_it_leaves_alone() {
        let released = Change::of(markers::released());
        assert_eq!(
            released.body("7"),
            json!({"metadata": {"resourceVersion": "7", "annotations": {names::BOOTSTRAP_PHASE: "released"}}})
        );
        assert_eq!(
            Change::only_run(SandboxVersion::V1beta1, true).body("7"),
            json!({"metadata": {"resourceVersion": "7"}, "spec": {"operatingMode": "Running"}})
        );
        assert_eq!(released.run(SandboxVersion::V1alpha1, false).body("8")["spec"], json!({"replicas": 0}));
    }
}
