//! One connector and one listener for hyper-util, kube and tonic alike.
mod socket;

use crate::net::{CONNECT_TIMEOUT, index_of};
use crate::state;
use crate::trace::Trace;
use crate::world::Engine;
use futures::Stream;
use hyper_util::client::legacy::connect::{Connected, Connection};
use hyper_util::rt::TokioIo;
use indexmap::IndexMap;
use socket::{Listener, Socket};
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// A host's network: connects to other hosts by name, listens on ports of its own.
#[derive(Clone)]
pub struct Wire {
    host: Arc<str>,
    world: Arc<Shared>,
}

/// What the wires of one world share.
pub(crate) struct Shared {
    names: Arc<[Arc<str>]>,
    trace: Trace,
    engine: Engine,
    connections: Mutex<Connections>,
}

#[derive(Default)]
struct Connections {
    last: u64,
    /// Numbers that one end has and the other has not asked for yet, by client and server address.
    half: IndexMap<(SocketAddr, SocketAddr), (End, u64)>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Client,
    Server,
}

impl Shared {
    pub(crate) fn new(names: Arc<[Arc<str>]>, trace: Trace, engine: Engine) -> Arc<Self> {
        Arc::new(Shared { names, trace, engine, connections: Mutex::default() })
    }
    /// The number of a connection. Both ends ask, in either order; the second one gets what the first one got.
    fn number(&self, end: End, client: SocketAddr, server: SocketAddr) -> u64 {
        let mut c = self.connections.lock().unwrap_or_else(PoisonError::into_inner);
        match c.half.swap_remove(&(client, server)) {
            Some((first, id)) if first != end => id,
            // The same end again: an earlier connection of these addresses whose other end never asked.
            _ => {
                c.last += 1;
                let id = c.last;
                c.half.insert((client, server), (end, id));
                id
            }
        }
    }
    fn name(&self, address: SocketAddr) -> Option<Arc<str>> {
        self.names.get(index_of(address.ip())?).cloned()
    }
    pub(crate) fn connections(&self) -> u64 {
        self.connections.lock().unwrap_or_else(PoisonError::into_inner).last
    }
}

impl Wire {
    pub(crate) fn new(host: Arc<str>, world: Arc<Shared>) -> Self {
        Wire { host, world }
    }
    /// The host whose wire this is.
    pub fn host(&self) -> &Arc<str> {
        &self.host
    }
    /// Connects by URI, `http://name:port/...`; port 80 (443 for https) unless given. For any client that takes a tower
    /// service as connector.
    pub fn connector(&self) -> Connector {
        Connector { wire: self.clone() }
    }
    /// Connects to a port of a host.
    ///
    /// # Errors
    /// `NotFound`: no such host in this world. `ConnectionRefused`: nobody listens there. `TimedOut`: no answer in 127 s,
    /// as Linux gives up.
    pub async fn connect(&self, host: &str, port: u16) -> io::Result<Io> {
        let result = self.open(host, port).await;
        let draft = self.world.trace.entry("net", "connect").field("from", &self.host).field("to", host);
        match &result {
            Ok(io) => draft
                .field("connection", io.id)
                .text(format!("{} connects to {host}:{port} (connection {})", self.host, io.id)),
            Err(e) => draft.field("error", e).text(format!("{} cannot connect to {host}:{port}: {e}", self.host)),
        }
        .record();
        result
    }
    async fn open(&self, host: &str, port: u16) -> io::Result<Io> {
        let Some(number) = self.world.names.iter().position(|n| **n == *host) else {
            let known = self.world.names.join(", ");
            let what = format!("no host named `{host}` in this world; there are {known}");
            return Err(io::Error::new(io::ErrorKind::NotFound, what));
        };
        // Lost SYNs are sent again by our links, and this is where Linux gives up.
        let stream = tokio::time::timeout(CONNECT_TIMEOUT, Socket::connect(self.world.engine, (host, number), port))
            .await
            .map_err(|_| io::Error::new(io::ErrorKind::TimedOut, "connection timed out"))??;
        let (local, peer) = stream.addresses()?;
        let id = self.world.number(End::Client, local, peer);
        Ok(Io { stream, id, peer: self.world.name(peer) })
    }
    /// Listens on a port of this host.
    ///
    /// # Errors
    /// `AddrInUse`: the host listens there already.
    pub async fn listen(&self, port: u16) -> io::Result<Incoming> {
        let listener = Listener::bind(self.world.engine, port).await?;
        Ok(Incoming { listener, world: self.world.clone() })
    }
}

impl std::fmt::Debug for Wire {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Wire").field("host", &self.host).finish_non_exhaustive()
    }
}

/// Opens connections for clients: a tower service from URIs to streams.
#[derive(Clone, Debug)]
pub struct Connector {
    wire: Wire,
}

// hyper-util wants `Connection` on the response type itself; `TokioIo<Io>` passes it through.
impl tower_service::Service<http::Uri> for Connector {
    type Response = TokioIo<Io>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<TokioIo<Io>>> + Send>>;
    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
    fn call(&mut self, uri: http::Uri) -> Self::Future {
        let wire = self.wire.clone();
        Box::pin(async move {
            let port = uri.port_u16().unwrap_or(if uri.scheme_str() == Some("https") { 443 } else { 80 });
            wire.connect(uri.host().unwrap_or_default(), port).await.map(TokioIo::new)
        })
    }
}

/// Connections that other hosts open to a port, as a stream that never ends.
pub struct Incoming {
    listener: Listener,
    world: Arc<Shared>,
}

impl Stream for Incoming {
    type Item = io::Result<Io>;
    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if state::interrupted() {
            return Poll::Pending;
        }
        let accepted = match std::task::ready!(self.listener.poll_accept(cx)) {
            Ok(stream) => stream.addresses().map(|(local, peer)| {
                let (id, peer) = (self.world.number(End::Server, peer, local), self.world.name(peer));
                Io { stream, id, peer }
            }),
            Err(e) => Err(e),
        };
        Poll::Ready(Some(accepted))
    }
}

impl std::fmt::Debug for Incoming {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Incoming").finish_non_exhaustive()
    }
}

/// One end of a connection.
pub struct Io {
    stream: Socket,
    id: u64,
    peer: Option<Arc<str>>,
}

impl std::fmt::Debug for Io {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Io").field("id", &self.id).field("peer", &self.peer).finish_non_exhaustive()
    }
}

impl Io {
    /// The host at the other end.
    pub fn peer_host(&self) -> Option<Arc<str>> {
        self.peer.clone()
    }
    /// Number of the connection in its world, from 1; the same at both ends.
    pub fn id(&self) -> u64 {
        self.id
    }
}

// A host that is about to crash in this very step reads and writes nothing any more: its reply to the write it crashes
// after must not go out, and destructors must not say farewell.
impl AsyncRead for Io {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if state::interrupted() {
            return Poll::Pending;
        }
        self.stream.poll_read(cx, buf)
    }
}
impl AsyncWrite for Io {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        if state::interrupted() {
            return Poll::Pending;
        }
        self.stream.poll_write(cx, buf)
    }
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream.poll_flush(cx)
    }
    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if state::interrupted() {
            return Poll::Pending;
        }
        self.stream.poll_shutdown(cx)
    }
}

impl Connection for Io {
    fn connected(&self) -> Connected {
        Connected::new()
    }
}

/// What tonic's server tells handlers of a connection (`request.extensions()`).
#[cfg(feature = "tonic")]
#[derive(Debug, Clone)]
pub struct Peer {
    /// The host at the other end.
    pub host: Option<Arc<str>>,
    /// Number of the connection in its world.
    pub connection: u64,
}

#[cfg(feature = "tonic")]
impl tonic::transport::server::Connected for Io {
    type ConnectInfo = Peer;
    fn connect_info(&self) -> Peer {
        Peer { host: self.peer.clone(), connection: self.id }
    }
}

#[cfg(feature = "kube")]
impl Wire {
    /// A `kube` client over this wire, for the API server at `uri` (`http://api:80`), with `namespace` as its default. It
    /// names its host in `User-Agent`. Call it inside the host: it spawns a task.
    ///
    /// # Panics
    /// If `uri` is none.
    pub fn kube(&self, uri: &str, namespace: &str) -> kube::Client {
        let base: http::Uri = uri.parse().unwrap_or_else(|e| panic!("`{uri}` is no URI: {e}"));
        let agent = http::HeaderValue::from_str(&self.host).unwrap_or(http::HeaderValue::from_static("photofinish"));
        let http = hyper_util::client::legacy::Client::builder(hyper_util::rt::TokioExecutor::new());
        let service = tower::ServiceBuilder::new()
            .layer(kube::client::middleware::BaseUriLayer::new(base))
            .map_request(move |mut request: http::Request<kube::client::Body>| {
                request.headers_mut().insert(http::header::USER_AGENT, agent.clone());
                request
            })
            .map_err(tower::BoxError::from)
            .service(http.build(self.connector()));
        kube::Client::new(service, namespace)
    }
}
