//! Two servers over one history that lag, refuse, break and restart, and clients that are cut off, as a seed says.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use http::{Request, Response};
use kube::Client;
use photofinish_apiserver::sim::SimHooks;
use photofinish_apiserver::sim::faults::Enabled;
use photofinish_apiserver::{ApiServer, Body, BoxError};
use photofinish_sim::choices::{Choices, Source};
use photofinish_sim::gate::Gates;
use photofinish_sim::trace::{Entry, Trace};
use tokio::time::{Instant, sleep};

pub(crate) struct Weather {
    pub(crate) front: ApiServer,
    servers: [ApiServer; 2],
    choices: Choices,
    trace: Trace,
    draw: Draw,
}

impl Weather {
    pub(crate) fn new(seed: u64) -> Weather {
        let trace = Trace::new();
        let choices = Choices::new(Source::Seed(seed), Default::default(), trace.clone());
        let gates = Gates::new(trace.clone(), choices.clone());
        let hooks = SimHooks::with_faults(trace.clone(), choices.clone(), gates, Enabled::all());
        let front = ApiServer::builder().servers(&["a", "b"]).hooks(hooks).build();
        let servers = ["a", "b"].map(|name| front.server(name).expect("named"));
        Weather { front, servers, choices, trace, draw: Draw(seed) }
    }

    /// A client of one of the two servers.
    pub(crate) fn client(&self, server: usize, name: &str) -> Client {
        Client::new(self.servers[server].as_client(name), "default")
    }

    /// A client of one of the two servers, and what cuts it off.
    pub(crate) fn client_with_a_wire(&self, server: usize, name: &str) -> (Client, Cut) {
        let cut = Cut::default();
        (Client::new(Wire { server: self.servers[server].as_client(name), cut: cut.clone() }, "default"), cut)
    }

    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.draw.below(bound)
    }

    /// Waits for less than that.
    pub(crate) async fn pause(&mut self, most: Duration) {
        sleep(Duration::from_millis(self.below(most.as_millis() as u64))).await;
    }

    /// One of the servers is replaced: its watches break, and what they had seen has expired.
    pub(crate) fn restart_a_server(&mut self) {
        let which = self.below(2) as usize;
        self.servers[which].restart();
    }

    /// One of the servers is gone for less than that.
    pub(crate) async fn take_a_server_away(&mut self, most: Duration) {
        let which = self.below(2) as usize;
        self.servers[which].kill();
        self.pause(most).await;
        self.servers[which].restart();
    }

    /// What was answered and shown last, but for bookmarks.
    pub(crate) fn last_words(&self) -> String {
        self.trace.with(|all| {
            let told = |entry: &&Entry| ["http", "watch"].contains(&&*entry.kind) && entry.name != "BOOKMARK";
            let lines = all.iter().filter(told).map(|entry| format!("\n  {}", entry.text)).collect::<Vec<_>>();
            lines[lines.len().saturating_sub(200)..].concat()
        })
    }

    /// How much went wrong.
    pub(crate) fn faults(&self) -> usize {
        self.choices.points().iter().filter(|point| point.taken != point.default).count()
    }
}

/// Looks every half second until it is so, for an hour at most.
pub(crate) async fn in_the_end(mut holds: impl FnMut() -> bool, or_else: impl FnOnce() -> String) {
    let gives_up = Instant::now() + Duration::from_secs(3_600);
    while !holds() {
        if Instant::now() >= gives_up {
            panic!("{}", or_else());
        }
        sleep(Duration::from_millis(500)).await;
    }
}

/// Runs each seed on a clock of its own. A run tells how many faults it met; there must be several in each, on average.
pub(crate) fn each_seed(seeds: Range<u64>, run: impl AsyncFn(u64) -> usize) {
    let mut faults = 0;
    for seed in seeds.clone() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
        faults += runtime.expect("a runtime").block_on(run(seed));
    }
    assert!(faults as u64 > 5 * (seeds.end - seeds.start), "only {faults} faults in {seeds:?}");
}

pub(crate) struct Draw(pub(crate) u64);

impl Draw {
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

/// What cuts a client off: its requests do not arrive, and answers to those that did are lost.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cut(Arc<AtomicBool>);

impl Cut {
    pub(crate) fn set(&self, cut: bool) {
        self.0.store(cut, Ordering::Relaxed);
    }

    fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

#[derive(Clone)]
struct Wire {
    server: ApiServer,
    cut: Cut,
}

impl tower::Service<Request<kube::client::Body>> for Wire {
    type Response = Response<Body>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Response<Body>, BoxError>>;

    fn poll_ready(&mut self, _: &mut std::task::Context<'_>) -> std::task::Poll<Result<(), BoxError>> {
        std::task::Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<kube::client::Body>) -> Self::Future {
        let (cut, answer) = (self.cut.clone(), (!self.cut.is_set()).then(|| self.server.call(request)));
        async move {
            let Some(answer) = answer else { return Err("cut off".into()) };
            let answer = answer.await?;
            if cut.is_set() { Err("cut off".into()) } else { Ok(answer) }
        }
        .boxed()
    }
}

/// The text of a field, empty where there is none.
pub(crate) fn text<'a>(value: &'a serde_json::Value, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(serde_json::Value::as_str).unwrap_or_default()
}

/// One field of the objects of a type that are stored now, by name.
pub(crate) fn stored(server: &ApiServer, resource: &str, pointer: &str) -> BTreeMap<String, String> {
    let all = server.store().list(resource, "default");
    all.iter().map(|object| (text(object, "/metadata/name").to_owned(), text(object, pointer).to_owned())).collect()
}
