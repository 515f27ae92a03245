//! The server: from a request to its answer.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Limited};
use serde_json::Value;
use tokio::time::timeout;

use crate::cache::{Caches, FAREWELL, Stage};
use crate::error::ApiError;
use crate::hooks::{Call, ConnInfo, Hooks, Plain, Refusal, Reply, Treatment};
use crate::operations::{Answer, Operation};
use crate::request::{Place, Query, Target, Verb, target};
use crate::resource::{Resource, SandboxVersions};
use crate::response::{Body, Lost};
use crate::route::{self, Found};
use crate::store::Store;
use crate::table::Table;
use crate::writer::Writer;
use crate::{body, crd, deadline, discovery, ownership, protobuf, reviews, yaml};

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
    /// Which of the servers this is; `None` for whichever a connection gets.
    at: Option<usize>,
    conn: ConnInfo,
}

struct Shared {
    store: Store,
    hooks: Arc<dyn Hooks>,
    servers: Vec<Arc<Caches>>,
    backlog: usize,
    /// By server.
    serving: Mutex<Vec<Serving>>,
}

/// How often the server is being served right now, and whether it ever was.
#[derive(Clone, Default)]
struct Serving {
    now: usize,
    before: bool,
}

/// One call of [`ApiServer::serve`].
pub(crate) struct ServedLife(Arc<Shared>, usize);

impl Drop for ServedLife {
    fn drop(&mut self) {
        self.0.serving()[self.1].now -= 1;
    }
}

impl Shared {
    fn serving(&self) -> MutexGuard<'_, Vec<Serving>> {
        self.serving.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How many live events may wait for a client that does not read before its watch is ended.
const BACKLOG: usize = 10_000;

impl std::fmt::Debug for ApiServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ApiServer").field("revision", &self.shared.store.revision()).field("conn", &self.conn).finish()
    }
}

/// Settings of a new [`ApiServer`].
pub struct Builder {
    sandbox: SandboxVersions,
    webhook: bool,
    managed_fields: bool,
    process: &'static str,
    hooks: Arc<dyn Hooks>,
    servers: Vec<String>,
    backlog: usize,
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

    /// Whether `metadata.managedFields` is kept, which makes objects and watch events about twice as large, as on a real
    /// server. Without it objects have no owners of fields: server-side apply finds no conflicts, and takes away no field
    /// that is not applied any more. Default: true.
    pub fn managed_fields(mut self, kept: bool) -> Builder {
        self.managed_fields = kept;
        self
    }

    /// The name under which the server itself owns fields, which is that of its executable. Default: `kube-apiserver`.
    pub fn process_name(mut self, name: &'static str) -> Builder {
        self.process = name;
        self
    }

    /// A harness around the server. Default: none.
    pub fn hooks(mut self, hooks: Arc<dyn Hooks>) -> Builder {
        self.hooks = hooks;
        self
    }

    /// Several servers over one history, by name, each with watch caches of its own. A connection gets the one that
    /// [`Hooks::balance`] names, the first by default; [`ApiServer::server`] gives a particular one. Default: one, `api`.
    ///
    /// # Panics
    /// [`Builder::build`] does, if there are no names.
    pub fn servers(mut self, names: &[&str]) -> Builder {
        self.servers = names.iter().map(|name| (*name).to_owned()).collect();
        self
    }

    /// How many live events may wait for a client that does not read. With one more its watch ends, after those.
    /// Default: 10 000.
    pub fn watch_backlog(mut self, events: usize) -> Builder {
        self.backlog = events;
        self
    }

    /// A server whose store holds the namespaces of a new cluster.
    pub fn build(self) -> ApiServer {
        assert!(!self.servers.is_empty(), "a cluster has at least one API server");
        let store = Store::new(self.sandbox, self.webhook, self.managed_fields);
        store.lock().process = self.process;
        let servers = self.servers.iter().map(|name| Arc::new(Caches::new(name, self.hooks.clone()))).collect();
        let serving = Mutex::new(vec![Serving::default(); self.servers.len()]);
        let shared = Shared { store, hooks: self.hooks, servers, backlog: self.backlog, serving };
        let server = ApiServer { shared: Arc::new(shared), at: None, conn: ConnInfo::default() };
        for name in ["kube-system", "kube-public", "default", "kube-node-lease"] {
            server.store().create_namespace(name);
        }
        server
    }
}

impl ApiServer {
    /// Settings of a new server.
    pub fn builder() -> Builder {
        Builder {
            sandbox: SandboxVersions::default(),
            webhook: true,
            managed_fields: true,
            process: "kube-apiserver",
            hooks: Arc::new(Plain),
            servers: vec!["api".into()],
            backlog: BACKLOG,
        }
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
        let servers = self.shared.servers.len();
        let at = match self.at {
            None if servers > 1 => Some(self.shared.hooks.balance(&conn.client, servers).min(servers - 1)),
            at => at,
        };
        ApiServer { shared: self.shared.clone(), at, conn }
    }

    /// One of several servers over the same history, by its name.
    pub fn server(&self, name: &str) -> Option<ApiServer> {
        let at = self.shared.servers.iter().position(|server| server.name() == name)?;
        Some(ApiServer { shared: self.shared.clone(), at: Some(at), conn: self.conn.clone() })
    }

    /// Somebody begins to serve this server. If it was served before and is no longer, its process has died.
    pub(crate) fn begin_life(&self) -> ServedLife {
        let again = {
            let mut all = self.shared.serving();
            let serving = &mut all[self.at.unwrap_or(0)];
            serving.now += 1;
            std::mem::replace(&mut serving.before, true) && serving.now == 1
        };
        if again {
            self.restart();
        }
        ServedLife(self.shared.clone(), self.at.unwrap_or(0))
    }

    fn caches(&self) -> &Arc<Caches> {
        &self.shared.servers[self.at.unwrap_or(0)]
    }

    /// This server, or all of them if it is none in particular.
    fn each(&self) -> impl Iterator<Item = &Arc<Caches>> {
        let all = self.shared.servers.iter().enumerate();
        all.filter(|(at, _)| self.at.is_none_or(|this| this == *at)).map(|(_, caches)| caches)
    }

    /// From now on each change arrives in this server's watch caches so much later: watches lag, and reads at
    /// `resourceVersion=0` are stale. Reads without a resourceVersion are as consistent as ever.
    pub fn set_lag(&self, lag: Duration) {
        let history = self.shared.store.lock();
        self.each().for_each(|caches| caches.set_lag(&history, lag));
    }

    /// Nothing arrives any more in this server's watch caches, until [`ApiServer::catch_up`].
    pub fn fall_behind(&self) {
        let history = self.shared.store.lock();
        self.each().for_each(|caches| caches.hold(&history));
    }

    /// Ends [`ApiServer::fall_behind`]: what is due arrives at once.
    pub fn catch_up(&self) {
        self.each().for_each(|caches| caches.go_on());
    }

    /// SIGTERM: open watches fall silent, and end after a minute; nobody else finds a server here.
    pub fn terminate(&self) {
        let ends = tokio::time::Instant::now() + FAREWELL;
        self.each().for_each(|caches| caches.stop(Stage::Stopping(ends)));
    }

    /// SIGKILL: open watches break, and nobody finds a server here.
    pub fn kill(&self) {
        self.each().for_each(|caches| caches.stop(Stage::Dead));
    }

    /// A new process, after [`ApiServer::kill`] or in place of the running one: its watch caches begin at the present,
    /// so that watches from any revision that a client has seen fail with 410. Open watches break.
    ///
    /// [`ApiServer::serve`] does so by itself where an earlier life of the server has ended.
    pub fn restart(&self) {
        let mut history = self.shared.store.lock();
        self.each().for_each(|caches| caches.start(&mut history));
    }

    /// A writer of whole object states, for the replay of recorded streams.
    pub fn as_writer(&self, client: &str) -> Writer {
        Writer::new(self.shared.store.clone(), self.shared.hooks.clone(), client)
    }

    async fn answer<B>(self, request: Request<B>) -> Result<Response<Body>, Lost>
    where
        B: http_body::Body + Send,
        B::Data: Send,
        B::Error: Into<BoxError>,
    {
        let mut life = self.caches().life();
        if life.borrow_and_update().stage != Stage::Serving {
            return Err(Lost);
        }
        let (mut head, body) = request.into_parts();
        let path = head.uri.path();
        let query = Query::parse(head.uri.query().unwrap_or_default());
        let body = match Limited::new(body, body::LIMIT).collect().await {
            Ok(body) => Ok(protobuf::in_json(&mut head.headers, body.to_bytes())),
            Err(error) if error.is::<http_body_util::LengthLimitError>() => Err(ApiError::too_large_body()),
            Err(error) => Err(ApiError::bad_request(format!("the body could not be read: {error}"))),
        };
        let target = target(path);
        let call = self.call(&head.method, path, &target, &query, body.as_deref().unwrap_or_default());
        let (body, limit) = match body.and_then(|body| Ok((body, deadline::of(&target, call.verb, &query)?))) {
            Ok(fine) => fine,
            Err(error) => return Ok(self.refused(&call, &error)),
        };
        let treatment = self.shared.hooks.request(&call);
        if treatment == Treatment::default() {
            let Some(limit) = limit else { return Ok(self.carry_out(call, head, query, body).await) };
            let answered = self.clone().carry_out(call.clone(), head, query, body);
            return Ok(match timeout(limit, answered).await {
                Ok(response) => response,
                Err(_) => self.refused(&call, &refuse(Refusal::Timeout)),
            });
        }
        if let Some(refused) = treatment.refused {
            tokio::time::sleep(treatment.before).await;
            return Ok(self.refused(&call, &refuse(refused)));
        }
        // The request waits in storage, so to speak: it is carried out there even if its client goes meanwhile.
        let handled = Arc::new(AtomicBool::new(false));
        let mut waiting = tokio::spawn({
            let (server, call, handled) = (self.clone(), call.clone(), handled.clone());
            async move {
                tokio::time::sleep(treatment.before).await;
                let response = server.carry_out(call, head, query, body).await;
                handled.store(true, Ordering::Relaxed);
                tokio::time::sleep(treatment.after).await;
                response
            }
        });
        let done = match limit {
            None => waiting.await,
            Some(limit) => match timeout(limit, &mut waiting).await {
                Ok(done) => done,
                // What still waits then is not done any more.
                Err(_) => {
                    waiting.abort();
                    let error = refuse(Refusal::Timeout);
                    // What was done has been told of already.
                    let told = handled.load(Ordering::Relaxed);
                    return Ok(if told { refusal(&error) } else { self.refused(&call, &error) });
                }
            },
        };
        let response = match done {
            Ok(response) => response,
            Err(error) => refusal(&ApiError::internal(format!("the request was not carried out: {error}"))),
        };
        match treatment.reply {
            Reply::Sent => Ok(response),
            Reply::Lost => Err(Lost),
            Reply::TimedOut => Ok(refusal(&refuse(Refusal::Timeout))),
        }
    }

    /// The answer to what is not carried out.
    fn refused(&self, call: &Call, error: &ApiError) -> Response<Body> {
        let response = refusal(error);
        self.shared.hooks.answered(call, response.status().as_u16(), None);
        response
    }

    async fn carry_out(self, call: Call, head: Parts, query: Query, body: Bytes) -> Response<Body> {
        let (response, revision) = match target(head.uri.path()) {
            Target::Objects(place) => self.objects(&call, &head.method, &head.headers, place, &query, body).await,
            Target::Version => (json(StatusCode::OK, version().to_string().into()), None),
            Target::Health => (plain(StatusCode::OK, "ok"), None),
            Target::Discovery => {
                let mut history = self.shared.store.lock();
                crd::settle(&mut history);
                let answer = discovery::answer(&history, head.uri.path(), &head.headers);
                (answer.unwrap_or_else(|error| refusal(&error)), None)
            }
            Target::Nowhere => (refusal(&ApiError::no_such_path()), None),
        };
        let response = if wants_indentation(&query, &head.headers) { indented(response) } else { response };
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
            continues: false,
        };
        if let Target::Objects(place) = target {
            call.verb = Verb::of(method, place, query).unwrap_or(Verb::Get);
            call.resource = place.plural.to_owned();
            call.name = place.name.unwrap_or_default().to_owned();
            call.subresource = place.subresource.unwrap_or_default().to_owned();
            call.continues = call.verb == Verb::List && !query.text("continue").is_empty();
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
        if let Some(of) = reviews::find(&place) {
            let agent = headers.get(header::USER_AGENT).and_then(|v| v.to_str().ok()).unwrap_or_default();
            let manager = ownership::manager_of(query.text("fieldManager"), agent);
            let manager = self.shared.store.owners.then_some(manager);
            let answer = reviews::answer(&mut self.shared.store.lock(), of, method, place.namespace, &body, manager);
            return match answer {
                Ok(review) => (json(StatusCode::CREATED, review.to_string().into()), None),
                Err(error) => (refusal(&error), None),
            };
        }
        // The old way to bind a pod, whose name is in the body alone.
        let bound = route::binds(&place, method).then(|| name_in(&body));
        let place = match &bound {
            Some(pod) => Place { plural: "pods", name: Some(pod), subresource: Some("binding"), ..place },
            None => place,
        };
        let verb = Verb::of(method, &place, query);
        let found = route::find(&mut self.shared.store.lock(), &place, verb, query);
        let Found { table, resource, version, wait } = match found {
            Ok(found) => found,
            Err(lost) => {
                let mut response = refusal(&lost.error);
                if let Some((resource, version)) = lost.of {
                    warn_of_deprecation(&resource, version, &mut response);
                }
                return (response, None);
            }
        };
        if let Some(wait) = wait {
            tokio::time::sleep(wait).await;
        }
        let text = |name: header::HeaderName| headers.get(name).and_then(|v| v.to_str().ok()).unwrap_or_default();
        let operation = Operation {
            store: &self.shared.store,
            caches: self.caches(),
            backlog: self.shared.backlog,
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
            user_agent: text(header::USER_AGENT),
            warnings: Mutex::default(),
        };
        let result = match verb {
            Some(verb) => operation.run(verb).await,
            None if resource.custom && method == Method::PUT => Err(ApiError::bad_request("name must be provided")),
            None => Err(ApiError::method_not_allowed()),
        };
        let (mut response, revision) = match result {
            Err(error) if method == Method::HEAD => (refusal(&error).map(|_| Body::full(Bytes::new())), None),
            Ok(Answer { code, body, revision }) => {
                let reads = matches!(verb, Some(Verb::Get | Verb::List | Verb::Watch));
                let table = Table::wanted(operation.accept, query, &resource, version).filter(|_| reads);
                let body = match table {
                    Some(table) => table.body(body),
                    None => body,
                };
                (with_body(code, "application/json", body), revision)
            }
            Err(error) => (refusal(&error), None),
        };
        warn_of_deprecation(&resource, version, &mut response);
        for warning in operation.warnings.into_inner().unwrap_or_else(PoisonError::into_inner) {
            let text = warning.replace('\\', "\\\\").replace('"', "\\\"");
            if let Ok(warning) = HeaderValue::from_str(&format!("299 - \"{text}\"")) {
                response.headers_mut().append(header::WARNING, warning);
            }
        }
        if prefers_yaml(text(header::ACCEPT)) {
            response = in_yaml(response);
        } else if protobuf::shows(&resource, version) && protobuf::preferred(text(header::ACCEPT)) {
            let stream = verb == Some(Verb::Watch) && response.status() == StatusCode::OK;
            response = protobuf::in_protobuf(response, stream);
        }
        if resource.group == crd::GROUP && revision.is_some() {
            // Without a runtime, or when it ends, later requests see to it.
            if let Ok(runtime) = tokio::runtime::Handle::try_current() {
                runtime.spawn(crd::attend(self.shared.store.clone()));
            }
        }
        (response, revision)
    }
}

/// Whether YAML is what the client wants first, of what can be had.
fn prefers_yaml(accept: &str) -> bool {
    let base = |media: &str| media.split(';').next().unwrap_or_default().trim().to_owned();
    let known = ["application/json", "application/yaml", "application/*", "*/*"];
    accept.split(',').map(base).find(|media| known.contains(&media.as_str())).is_some_and(|m| m == "application/yaml")
}

/// `?pretty=true`; what people use by hand gets it unasked.
fn wants_indentation(query: &Query, headers: &HeaderMap) -> bool {
    if query.get("pretty").is_some() {
        return query.flag("pretty");
    }
    let agent = headers.get(header::USER_AGENT).and_then(|agent| agent.to_str().ok()).unwrap_or_default();
    ["curl", "Wget", "Mozilla/5.0"].iter().any(|tool| agent.starts_with(tool))
}

/// A JSON answer for people to read. Streams stay as they are.
fn indented(response: Response<Body>) -> Response<Body> {
    let (head, body) = response.into_parts();
    let json = head.headers.get(header::CONTENT_TYPE).is_some_and(|media| media == "application/json");
    let body = body.mapped(|bytes| match serde_json::from_slice::<Value>(&bytes) {
        Ok(value) if json => format!("{value:#}").into(),
        _ => bytes,
    });
    Response::from_parts(head, body)
}

/// A JSON answer in YAML. Streams stay as they are.
fn in_yaml(response: Response<Body>) -> Response<Body> {
    let (mut head, body) = response.into_parts();
    let json = head.headers.get(header::CONTENT_TYPE).is_some_and(|media| media == "application/json");
    let body = body.mapped(|bytes| match serde_json::from_slice::<Value>(&bytes) {
        Ok(value) if json => {
            head.headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/yaml"));
            yaml::text(&value).into()
        }
        _ => bytes,
    });
    Response::from_parts(head, body)
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

/// Each answer in a deprecated version says so.
fn warn_of_deprecation(resource: &Resource, version: usize, response: &mut Response<Body>) {
    let Some(text) = resource.custom_version(version).and_then(|custom| custom.deprecation.as_ref()) else { return };
    if let Ok(warning) = HeaderValue::from_str(&format!("299 - \"{text}\"")) {
        response.headers_mut().insert(header::WARNING, warning);
    }
}

/// What the server calls itself.
pub(crate) const VERSION: &str = "v1.36.2";

fn version() -> Value {
    serde_json::json!({
        "major": "1", "minor": "36", "emulationMajor": "1", "emulationMinor": "36",
        "minCompatibilityMajor": "1", "minCompatibilityMinor": "35",
        "gitVersion": format!("{VERSION}+photofinish"), "gitCommit": "", "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z", "goVersion": "", "compiler": "", "platform": "",
    })
}

fn with_body(code: StatusCode, content_type: &'static str, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = code;
    let headers = response.headers_mut();
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
    if code == StatusCode::NO_CONTENT {
        return response;
    }
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

fn json(code: StatusCode, body: Bytes) -> Response<Body> {
    with_body(code, "application/json", Body::full(body))
}

fn plain(code: StatusCode, text: &'static str) -> Response<Body> {
    with_body(code, "text/plain; charset=utf-8", Body::full(Bytes::from_static(text.as_bytes())))
}

fn refuse(refused: Refusal) -> ApiError {
    match refused {
        Refusal::TooManyRequests => ApiError::too_many_requests("Too many requests, please try again later.", 1),
        Refusal::Internal => ApiError::failed_inside("etcdserver: leader changed"),
        Refusal::Unavailable => ApiError::unavailable(),
        Refusal::Timeout => ApiError::timed_out(),
        Refusal::Expired => ApiError::expired_page(),
    }
}

fn refusal(error: &ApiError) -> Response<Body> {
    let code = StatusCode::from_u16(error.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut response = match &error.status {
        // The time-out of a request is the one answer without a kind, and is no JSON by its type.
        Some(status) if status.get("kind").is_none() => {
            with_body(code, "text/plain; charset=utf-8", Body::full(status.to_string().into()))
        }
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
    type Error = Lost;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Lost>> + Send>>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), Lost>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let server = self.clone();
        Box::pin(server.answer(request))
    }
}
