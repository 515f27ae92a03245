//! A host's sockets, on either engine.
use crate::net::{TcpListener, TcpStream};
use crate::world::Engine;
use std::io;
use std::net::SocketAddr;
#[cfg(feature = "turmoil")]
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::io::ReadBuf;
#[cfg(feature = "turmoil")]
use tokio::io::{AsyncRead, AsyncWrite};

/// One end of a connection.
pub(super) enum Socket {
    Jump(TcpStream),
    #[cfg(feature = "turmoil")]
    Turmoil(turmoil::net::TcpStream),
}

impl Socket {
    /// Connects to a host, known by name and number.
    #[cfg_attr(not(feature = "turmoil"), expect(unused_variables, reason = "the other engine needs it"))]
    pub(super) async fn connect(engine: Engine, (name, number): (&str, usize), port: u16) -> io::Result<Self> {
        match engine {
            Engine::Jump => TcpStream::connect(number, port).await.map(Socket::Jump),
            #[cfg(feature = "turmoil")]
            Engine::Turmoil => turmoil::net::TcpStream::connect((name, port)).await.map(Socket::Turmoil),
        }
    }
    /// Local and remote address.
    pub(super) fn addresses(&self) -> io::Result<(SocketAddr, SocketAddr)> {
        match self {
            Socket::Jump(s) => s.addresses(),
            #[cfg(feature = "turmoil")]
            Socket::Turmoil(s) => Ok((s.local_addr()?, s.peer_addr()?)),
        }
    }
    pub(super) fn poll_read(&mut self, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self {
            Socket::Jump(s) => s.poll_read(cx, into),
            #[cfg(feature = "turmoil")]
            Socket::Turmoil(s) => Pin::new(s).poll_read(cx, into),
        }
    }
    pub(super) fn poll_write(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self {
            Socket::Jump(s) => s.poll_write(cx, bytes),
            #[cfg(feature = "turmoil")]
            Socket::Turmoil(s) => Pin::new(s).poll_write(cx, bytes),
        }
    }
    #[cfg_attr(not(feature = "turmoil"), expect(unused_variables, reason = "the other engine needs it"))]
    pub(super) fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            // What is written in a step is sent at its end.
            Socket::Jump(_) => Poll::Ready(Ok(())),
            #[cfg(feature = "turmoil")]
            Socket::Turmoil(s) => Pin::new(s).poll_flush(cx),
        }
    }
    #[cfg_attr(not(feature = "turmoil"), expect(unused_variables, reason = "the other engine needs it"))]
    pub(super) fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Socket::Jump(s) => Poll::Ready(s.shut_down()),
            #[cfg(feature = "turmoil")]
            Socket::Turmoil(s) => Pin::new(s).poll_shutdown(cx),
        }
    }
}

/// Accepts connections.
pub(super) enum Listener {
    Jump(TcpListener),
    /// turmoil has no `poll_accept`: the future that accepts, over and over.
    #[cfg(feature = "turmoil")]
    Turmoil(futures::stream::BoxStream<'static, io::Result<turmoil::net::TcpStream>>),
}

impl Listener {
    pub(super) async fn bind(engine: Engine, port: u16) -> io::Result<Self> {
        match engine {
            Engine::Jump => TcpListener::bind(port).map(Listener::Jump),
            #[cfg(feature = "turmoil")]
            Engine::Turmoil => {
                let listener = turmoil::net::TcpListener::bind(("0.0.0.0", port)).await?;
                let accept = |listener: turmoil::net::TcpListener| async {
                    let accepted = listener.accept().await.map(|(stream, _)| stream);
                    Some((accepted, listener))
                };
                Ok(Listener::Turmoil(Box::pin(futures::stream::unfold(listener, accept))))
            }
        }
    }
    pub(super) fn poll_accept(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Socket>> {
        match self {
            Listener::Jump(listener) => listener.poll_accept(cx).map_ok(Socket::Jump),
            #[cfg(feature = "turmoil")]
            Listener::Turmoil(accepted) => {
                accepted.as_mut().poll_next(cx).map(|next| next.expect("the stream never ends").map(Socket::Turmoil))
            }
        }
    }
}
