//! One connector and one listener for hyper-util, kube and tonic alike.
use crate::net::{CONNECT_TIMEOUT, index_of};
use crate::state;
use crate::trace::Trace;
use futures::Stream;
use hyper_util::client::legacy::connect::{Connected, Connection};
use hyper_util::rt::TokioIo;
use indexmap::IndexMap;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use turmoil_net::shim::tokio::net::{TcpListener, TcpStream};

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
    connections: Mutex<Connections>,
}

#[derive(Default)]
struct Connections {
    last: u64,
    /// Numbers of connections that one side has and the other has not accepted yet, by client and server address.
    half: IndexMap<(SocketAddr, SocketAddr), u64>,
}

impl Shared {
    pub(crate) fn new(names: Arc<[Arc<str>]>, trace: Trace) -> Arc<Self> {
        Arc::new(Shared { names, trace, connections: Mutex::default() })
    }
    fn opened(&self, client: SocketAddr, server: SocketAddr) -> u64 {
        let mut c = self.connections.lock().unwrap_or_else(PoisonError::into_inner);
        c.last += 1;
        let id = c.last;
        c.half.insert((client, server), id);
        id
    }
    fn accepted(&self, client: SocketAddr, server: SocketAddr) -> u64 {
        let mut c = self.connections.lock().unwrap_or_else(PoisonError::into_inner);
        c.half.swap_remove(&(client, server)).unwrap_or_else(|| {
            c.last += 1;
            c.last
        })
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
        if !self.world.names.iter().any(|n| **n == *host) {
            let known = self.world.names.join(", ");
            let what = format!("no host named `{host}` in this world; there are {known}");
            return Err(io::Error::new(io::ErrorKind::NotFound, what));
        }
        // turmoil-net sends a SYN once; lost ones are sent again by our links, and this is where Linux gives up.
        let stream = tokio::time::timeout(CONNECT_TIMEOUT, TcpStream::connect((host, port)))
            .await
            .map_err(|_| io::Error::new(io::ErrorKind::TimedOut, "connection timed out"))??;
        let (local, peer) = (stream.local_addr()?, stream.peer_addr()?);
        let id = self.world.opened(local, peer);
        Ok(Io { stream: Stream_::Net(stream), id, peer: self.world.name(peer) })
    }
    /// Listens on a port of this host.
    ///
    /// # Errors
    /// `AddrInUse`: the host listens there already.
    pub async fn listen(&self, port: u16) -> io::Result<Incoming> {
        let listener = TcpListener::bind(("0.0.0.0", port)).await?;
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
    listener: TcpListener,
    world: Arc<Shared>,
}

impl Stream for Incoming {
    type Item = io::Result<Io>;
    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if state::interrupted() {
            return Poll::Pending;
        }
        let (stream, peer) = match self.listener.poll_accept(cx) {
            Poll::Ready(Ok(accepted)) => accepted,
            Poll::Ready(Err(e)) => return Poll::Ready(Some(Err(e))),
            Poll::Pending => return Poll::Pending,
        };
        let local = match stream.local_addr() {
            Ok(local) => local,
            Err(e) => return Poll::Ready(Some(Err(e))),
        };
        let (id, peer) = (self.world.accepted(peer, local), self.world.name(peer));
        Poll::Ready(Some(Ok(Io { stream: Stream_::Net(stream), id, peer })))
    }
}

impl std::fmt::Debug for Incoming {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Incoming").field("listener", &self.listener).finish_non_exhaustive()
    }
}

/// One end of a connection.
#[derive(Debug)]
pub struct Io {
    stream: Stream_,
    id: u64,
    peer: Option<Arc<str>>,
}

#[derive(Debug)]
enum Stream_ {
    Net(TcpStream),
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

/// A host that is about to crash in this very step reads and writes nothing any more: its reply to the write it crashes
/// after must not go out, and destructors must not say farewell.
macro_rules! unless_dying {
    ($self:ident, $s:ident => $poll:expr) => {{
        if state::interrupted() {
            return Poll::Pending;
        }
        match &mut $self.stream {
            Stream_::Net($s) => $poll,
        }
    }};
}

impl AsyncRead for Io {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        unless_dying!(self, s => Pin::new(s).poll_read(cx, buf))
    }
}
impl AsyncWrite for Io {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        unless_dying!(self, s => Pin::new(s).poll_write(cx, buf))
    }
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        unless_dying!(self, s => Pin::new(s).poll_flush(cx))
    }
    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        unless_dying!(self, s => Pin::new(s).poll_shutdown(cx))
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
