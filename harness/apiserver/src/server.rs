//! The server: from a request to its answer.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Limited};
use serde_json::Value;

use crate::body;
use crate::error::ApiError;
use crate::hooks::{Call, ConnInfo, Hooks, Plain};
use crate::operations::{Answer, Operation};
use crate::request::{Place, Query, Target, Verb, target};
use crate::resource::{Resource, SandboxVersions};
use crate::response::Body;
use crate::store::Store;
use crate::writer::Writer;

/// Anything that can go wrong while a request's body is read.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// A simulated Kubernetes API server. Cheap to clone; all clones serve one store.
///
/// It is a [`tower::Service`], so a `kube::Client` can use it in memory, and [`ApiServer::serve`] puts it behind any
/// stream of connections.
///
/// ```
/// # use photofinish_apiserver::ApiServer;
/// let server = ApiServer::builder().build();
/// assert!(server.store().get("namespaces", "", "default").is_some());
/// ```
#[derive(Clone)]
pub struct ApiServer {
    shared: Arc<Shared>,
    conn: ConnInfo,
}

struct Shared {
    store: Store,
    hooks: Arc<dyn Hooks>,
}

impl std::fmt::Debug for ApiServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ApiServer").field("revision", &self.shared.store.revision()).field("conn", &self.conn).finish()
    }
}

/// Settings of a new [`ApiServer`].
pub struct Builder {
    sandbox: SandboxVersions,
    webhook: bool,
    hooks: Arc<dyn Hooks>,
}

impl std::fmt::Debug for Builder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Builder").field("sandbox", &self.sandbox).finish_non_exhaustive()
    }
}

impl Builder {
    /// Which versions of Sandbox are served. Default: both.
    pub fn sandbox_versions(mut self, versions: SandboxVersions) -> Builder {
        self.sandbox = versions;
        self
    }

    /// Whether the versions of Sandbox are converted by the agent-sandbox webhook. Without it (strategy `None`) they
    /// share metadata and what both of their schemas have; what the storage version lacks is dropped. Default: true.
    pub fn conversion_webhook(mut self, webhook: bool) -> Builder {
        self.webhook = webhook;
        self
    }

    /// A harness around the server. Default: none.
    pub fn hooks(mut self, hooks: Arc<dyn Hooks>) -> Builder {
        self.hooks = hooks;
        self
    }

    /// A server whose store holds the namespaces of a new cluster.
    pub fn build(self) -> ApiServer {
        let store = Store::new(self.sandbox, self.webhook);
        let server = ApiServer { shared: Arc::new(Shared { store, hooks: self.hooks }), conn: ConnInfo::default() };
        for name in ["default", "kube-system", "kube-public", "kube-node-lease"] {
            server.store().create_namespace(name);
        }
        server
    }
}

impl ApiServer {
    /// Settings of a new server.
    pub fn builder() -> Builder {
        Builder { sandbox: SandboxVersions::default(), webhook: true, hooks: Arc::new(Plain) }
    }

    /// The objects and their history.
    pub fn store(&self) -> &Store {
        &self.shared.store
    }

    /// The same server, seen by another client. Hooks and stream keys show the name.
    pub fn as_client(&self, client: &str) -> ApiServer {
        self.on(ConnInfo { client: client.to_owned(), connection: self.conn.connection })
    }

    /// The same server on a connection.
    pub(crate) fn on(&self, conn: ConnInfo) -> ApiServer {
        ApiServer { shared: self.shared.clone(), conn }
    }

    /// A writer of whole object states, for the replay of recorded streams.
    pub fn as_writer(&self, client: &str) -> Writer {
        Writer::new(self.shared.store.clone(), self.shared.hooks.clone(), client)
    }

    async fn answer<B>(self, request: Request<B>) -> Response<Body>
    where
        B: http_body::Body + Send,
        B::Data: Send,
        B::Error: Into<BoxError>,
    {
        let (head, body) = request.into_parts();
        let path = head.uri.path();
        let query = Query::parse(head.uri.query().unwrap_or_default());
        let body = match Limited::new(body, body::LIMIT).collect().await {
            Ok(body) => body.to_bytes(),
            Err(error) if error.is::<http_body_util::LengthLimitError>() => {
                return refusal(&ApiError::too_large_body());
            }
            Err(error) => return refusal(&ApiError::bad_request(format!("the body could not be read: {error}"))),
        };
        let call = self.call(&head.method, path, &target(path), &query, &body);
        match self.shared.hooks.request(&call).filter(|delay| !delay.is_zero()) {
            None => self.carry_out(call, head, body).await,
            // The request waits in storage, so to speak: it is carried out there even if its client goes meanwhile.
            Some(delay) => {
                let waiting = tokio::spawn(async move {
                    tokio::time::sleep(delay).await;
                    self.carry_out(call, head, body).await
                });
                match waiting.await {
                    Ok(response) => response,
                    Err(error) => refusal(&ApiError::internal(format!("the request was not carried out: {error}"))),
                }
            }
        }
    }

    async fn carry_out(self, call: Call, head: Parts, body: Bytes) -> Response<Body> {
        let query = Query::parse(head.uri.query().unwrap_or_default());
        let (response, revision) = match target(head.uri.path()) {
            Target::Objects(place) => self.objects(&call, &head.method, &head.headers, place, &query, body).await,
            Target::Version => (json(StatusCode::OK, version().to_string().into()), None),
            Target::Health => (plain(StatusCode::OK, "ok"), None),
            Target::Discovery => {
                (refusal(&ApiError::unsupported(format_args!("discovery ({})", head.uri.path()))), None)
            }
            Target::Nowhere => (refusal(&ApiError::no_such_path()), None),
        };
        self.shared.hooks.answered(&call, response.status().as_u16(), revision);
        response
    }

    fn call(&self, method: &Method, path: &str, target: &Target<'_>, query: &Query, body: &[u8]) -> Call {
        let mut call = Call {
            conn: self.conn.clone(),
            verb: Verb::Get,
            path: path.to_owned(),
            resource: String::new(),
            name: String::new(),
            subresource: String::new(),
        };
        if let Target::Objects(place) = target {
            call.verb = Verb::of(method, place, query).unwrap_or(Verb::Get);
            call.resource = place.plural.to_owned();
            call.name = place.name.unwrap_or_default().to_owned();
            call.subresource = place.subresource.unwrap_or_default().to_owned();
            if call.verb == Verb::Create && call.name.is_empty() {
                call.name = name_in(body);
            }
        }
        call
    }

    async fn objects(
        &self,
        call: &Call,
        method: &Method,
        headers: &HeaderMap,
        place: Place<'_>,
        query: &Query,
        body: Bytes,
    ) -> (Response<Body>, Option<u64>) {
        let (table, resource, version) = match self.find(&place) {
            Ok(found) => found,
            Err(error) => return (refusal(&error), None),
        };
        let text = |name: header::HeaderName| headers.get(name).and_then(|v| v.to_str().ok()).unwrap_or_default();
        let operation = Operation {
            store: &self.shared.store,
            hooks: &*self.shared.hooks,
            client: &call.conn.client,
            table,
            resource: &resource,
            version,
            place,
            query,
            body: &body,
            accept: text(header::ACCEPT),
            content_type: text(header::CONTENT_TYPE),
        };
        let result = match Verb::of(method, &operation.place, query) {
            Some(verb) => operation.run(verb).await,
            None if resource.custom && method == Method::PUT => Err(ApiError::bad_request("name must be provided")),
            None => Err(ApiError::method_not_allowed()),
        };
        let (mut response, revision) = match result {
            Err(error) if method == Method::HEAD => (refusal(&error).map(|_| Body::full(Bytes::new())), None),
            Ok(Answer { code, body, revision }) => (with_body(code, "application/json", body), revision),
            Err(error) => (refusal(&error), None),
        };
        if let Some(warning) = deprecation(&resource, version) {
            response.headers_mut().insert(header::WARNING, warning);
        }
        (response, revision)
    }

    fn find(&self, place: &Place<'_>) -> Result<(usize, Arc<Resource>, usize), ApiError> {
        let history = self.shared.store.lock();
        let known = |t: &crate::history::Table| t.resource.group == place.group && t.resource.plural == place.plural;
        let Some(table) = history.tables.iter().position(known) else {
            return Err(unknown(place));
        };
        let resource = history.tables[table].resource.clone();
        let Some(version) = resource.version(place.version) else {
            return Err(if resource.custom { ApiError::no_such_path() } else { ApiError::no_such_resource() });
        };
        if place.namespace.is_some() != resource.namespaced && (place.namespace.is_some() || place.name.is_some()) {
            return Err(if resource.custom { ApiError::no_such_path() } else { ApiError::no_such_resource() });
        }
        Ok((table, resource, version))
    }
}

/// A resource that this server does not have. A real server has many more: those are refused as unsupported, so that
/// nobody takes a gap of this server for an empty cluster.
fn unknown(place: &Place<'_>) -> ApiError {
    const MISSING: &[&str] = &[
        "apps",
        "batch",
        "autoscaling",
        "policy",
        "rbac.authorization.k8s.io",
        "authentication.k8s.io",
        "authorization.k8s.io",
        "apiextensions.k8s.io",
        "apiregistration.k8s.io",
        "admissionregistration.k8s.io",
        "certificates.k8s.io",
        "discovery.k8s.io",
        "events.k8s.io",
        "flowcontrol.apiserver.k8s.io",
        "node.k8s.io",
        "resource.k8s.io",
        "scheduling.k8s.io",
        "storage.k8s.io",
    ];
    const MISSING_CORE: &[&str] = &[
        "bindings",
        "componentstatuses",
        "endpoints",
        "limitranges",
        "persistentvolumes",
        "podtemplates",
        "replicationcontrollers",
        "resourcequotas",
    ];
    let missing = match place.group {
        "" => MISSING_CORE.contains(&place.plural),
        "networking.k8s.io" => place.plural != "nosuch",
        group => MISSING.contains(&group),
    };
    let builtin = matches!(place.group, "" | "coordination.k8s.io" | "networking.k8s.io");
    match (missing, builtin) {
        (true, _) => ApiError::unsupported(format_args!("the resource {} in group {:?}", place.plural, place.group)),
        (false, true) => ApiError::no_such_resource(),
        (false, false) => ApiError::no_such_path(),
    }
}

/// `metadata.name` of a body, for the harness. A peek, no validation.
fn name_in(body: &[u8]) -> String {
    #[derive(serde::Deserialize)]
    struct Peek {
        metadata: Option<Metadata>,
    }
    #[derive(serde::Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Metadata {
        name: Option<String>,
        generate_name: Option<String>,
    }
    let metadata = serde_json::from_slice::<Peek>(body).ok().and_then(|peek| peek.metadata);
    metadata.and_then(|metadata| metadata.name.or(metadata.generate_name)).unwrap_or_default()
}

fn deprecation(resource: &Resource, version: usize) -> Option<HeaderValue> {
    if version == 0 || !resource.custom {
        return None;
    }
    let (old, new, kind) = (resource.api_version(version), resource.api_version(0), &resource.kind);
    HeaderValue::from_str(&format!("299 - \"{old} {kind} is deprecated; use {new} {kind} instead\"")).ok()
}

fn version() -> Value {
    serde_json::json!({
        "major": "1", "minor": "36", "gitVersion": "v1.36.2+photofinish", "gitCommit": "", "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z", "goVersion": "", "compiler": "", "platform": "",
    })
}

fn with_body(code: StatusCode, content_type: &'static str, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = code;
    let headers = response.headers_mut();
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

fn json(code: StatusCode, body: Bytes) -> Response<Body> {
    with_body(code, "application/json", Body::full(body))
}

fn plain(code: StatusCode, text: &'static str) -> Response<Body> {
    with_body(code, "text/plain; charset=utf-8", Body::full(Bytes::from_static(text.as_bytes())))
}

fn refusal(error: &ApiError) -> Response<Body> {
    let code = StatusCode::from_u16(error.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut response = match &error.status {
        Some(status) => json(code, status.to_string().into()),
        None => plain(code, "404 page not found\n"),
    };
    if let Some(seconds) = error.retry_after {
        response.headers_mut().insert(header::RETRY_AFTER, seconds.into());
    }
    response
}

impl<B> tower::Service<Request<B>> for ApiServer
where
    B: http_body::Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<BoxError>,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let server = self.clone();
        Box::pin(async move { Ok(server.answer(request).await) })
    }
}
