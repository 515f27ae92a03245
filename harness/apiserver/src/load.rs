//! Objects that are there before the first client: CRDs that have long been installed, and what else a scene needs.

use bytes::Bytes;
use http::{Method, Request, header};
use http_body_util::{BodyExt, Full};
use serde_json::Value;
use tower::Service;

use crate::crd;
use crate::server::ApiServer;
use crate::store::position;

/// Why an object could not be loaded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LoadError {
    /// No type of the server has this kind in this version.
    #[error("no type has the kind {kind:?} in {api_version:?}; install its CRD first")]
    UnknownKind {
        /// The object's `kind`.
        kind: String,
        /// The object's `apiVersion`.
        api_version: String,
    },
    /// The server refused the object, as it would have refused it from a client.
    #[error("{message}")]
    Refused {
        /// HTTP status code.
        code: u16,
        /// What the server said.
        message: String,
    },
}

impl LoadError {
    fn of(code: u16, body: &Value) -> LoadError {
        let message = body["message"].as_str().unwrap_or("the request was refused").to_owned();
        LoadError::Refused { code, message }
    }
}

impl ApiServer {
    /// Installs a CRD as if that had been long ago: its type is served at once, without the delays that a client who
    /// creates a CRD would see. A CRD of that name that is there already is replaced.
    ///
    /// ```
    /// # use photofinish_apiserver::ApiServer;
    /// # use serde_json::json;
    /// let server = ApiServer::builder().build();
    /// server.install(json!({
    ///     "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
    ///     "metadata": {"name": "widgets.toy.test"},
    ///     "spec": {
    ///         "group": "toy.test", "scope": "Namespaced", "names": {"plural": "widgets", "kind": "Widget"},
    ///         "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
    ///             "type": "object", "properties": {"spec": {"type": "object"}},
    ///         }}}],
    ///     },
    /// }))?;
    /// assert!(server.store().list("widgets", "").is_empty());
    /// # Ok::<(), photofinish_apiserver::LoadError>(())
    /// ```
    pub fn install(&self, mut crd: Value) -> Result<(), LoadError> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let (kind, api_version) = (text(&crd["kind"]), text(&crd["apiVersion"]));
        if kind != "CustomResourceDefinition" || api_version != "apiextensions.k8s.io/v1" {
            return Err(LoadError::UnknownKind { kind, api_version });
        }
        if !crd["metadata"].is_object() || !crd["spec"].is_object() {
            return Err(LoadError::Refused { code: 400, message: "a CRD has metadata and a spec".into() });
        }
        let mut history = self.store().lock();
        let Some(table) = position(&history, "customresourcedefinitions") else { return Ok(()) };
        let name = text(&crd["metadata"]["name"]);
        crd::establish(&mut crd);
        let wrong = crd::mistakes(&crd, None);
        if !wrong.is_empty() {
            let resource = history.tables[table].resource.clone();
            let error = crate::error::ApiError::invalid(&resource, &name, &wrong);
            return Err(LoadError::of(error.code, error.status.as_deref().unwrap_or(&Value::Null)));
        }
        history.commit(table, &name, Some(crd.clone()));
        crd::install_at_once(&mut history, &crd);
        Ok(())
    }

    /// Creates an object, or each object of a list, as a client would; a `status` is written after that. Members that
    /// only a server writes (`uid`, `resourceVersion`, ...) are made anew.
    pub async fn load(&self, object: Value) -> Result<(), LoadError> {
        if object["kind"].as_str().is_some_and(|kind| kind.ends_with("List"))
            && let Some(items) = object["items"].as_array()
        {
            for item in items {
                Box::pin(self.load(item.clone())).await?;
            }
            return Ok(());
        }
        let Some((collection, has_status)) = self.collection(&object) else {
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let (kind, api_version) = (text(&object["kind"]), text(&object["apiVersion"]));
            return Err(LoadError::UnknownKind { kind, api_version });
        };
        if object["kind"] == "CustomResourceDefinition" {
            return self.install(object);
        }
        let mut sent = object;
        if let Some(metadata) = sent["metadata"].as_object_mut() {
            for ours in ["uid", "resourceVersion", "creationTimestamp", "generation", "managedFields", "selfLink"] {
                metadata.remove(ours);
            }
        }
        let made = self.send(Method::POST, &collection, &sent).await?;
        let status = sent.get("status").filter(|status| has_status && !status.is_null());
        if let (Some(status), Some(name)) = (status, made["metadata"]["name"].as_str()) {
            let path = format!("{collection}/{name}/status");
            let mut whole = made.clone();
            whole["status"] = status.clone();
            self.send(Method::PUT, &path, &whole).await?;
        }
        Ok(())
    }

    /// The path of an object's collection, and whether its type has a status of its own.
    fn collection(&self, object: &Value) -> Option<(String, bool)> {
        let (kind, api_version) = (object["kind"].as_str()?, object["apiVersion"].as_str()?);
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let history = self.store().lock();
        let mut served = history.tables.iter().filter(|table| !table.serving.retired).map(|table| &table.resource);
        let resource = served.find(|r| r.kind == kind && r.group == group && r.version(version).is_some())?;
        let base = if group.is_empty() { format!("/api/{version}") } else { format!("/apis/{api_version}") };
        let namespace = object["metadata"]["namespace"].as_str().unwrap_or("default");
        let scope = if resource.namespaced { format!("/namespaces/{namespace}") } else { String::new() };
        Some((format!("{base}{scope}/{}", resource.plural), resource.has_status))
    }

    async fn send(&self, method: Method, path: &str, body: &Value) -> Result<Value, LoadError> {
        let refused = |message: String| LoadError::Refused { code: 0, message };
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::CONTENT_TYPE, "application/json")
            .body(Full::new(Bytes::from(body.to_string())))
            .map_err(|error| refused(error.to_string()))?;
        // Always ready.
        let response = self.clone().call(request).await.map_err(|error| refused(error.to_string()))?;
        let code = response.status();
        let bytes = response.into_body().collect().await.map_err(|error| refused(error.to_string()))?.to_bytes();
        let answer: Value = serde_json::from_slice(&bytes).unwrap_or(Value::Null);
        if code.is_success() { Ok(answer) } else { Err(LoadError::of(code.as_u16(), &answer)) }
    }
}
