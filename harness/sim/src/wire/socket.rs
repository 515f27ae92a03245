//! A host's sockets, on either engine.
use crate::world::Engine;
use std::cell::RefCell;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, ReadBuf};
use turmoil_net::shim::tokio::net as jump;

/// One end of a connection.
pub(super) enum Socket {
    Jump(jump::TcpStream),
    #[cfg(feature = "turmoil")]
    Turmoil(turmoil::net::TcpStream),
}

/// Does the same with whichever stream it is.
macro_rules! on_socket {
    ($socket:expr, $s:ident => $e:expr) => {
        match $socket {
            crate::wire::Socket::Jump($s) => $e,
            #[cfg(feature = "turmoil")]
            crate::wire::Socket::Turmoil($s) => $e,
        }
    };
}

impl Socket {
    pub(super) async fn connect(engine: Engine, host: &str, port: u16) -> io::Result<Self> {
        match engine {
            Engine::Jump => jump::TcpStream::connect((host, port)).await.map(Socket::Jump),
            #[cfg(feature = "turmoil")]
            Engine::Turmoil => turmoil::net::TcpStream::connect((host, port)).await.map(Socket::Turmoil),
        }
    }
    /// Local and remote address.
    pub(super) fn addresses(&self) -> io::Result<(SocketAddr, SocketAddr)> {
        on_socket!(self, s => Ok((s.local_addr()?, s.peer_addr()?)))
    }
}

thread_local!(static SCRATCH: RefCell<Box<[u8]>> = RefCell::new(vec![0; 64 << 10].into()));

/// turmoil-net zeroes all of a buffer before it reads into it, 8 KiB and more a read from hyper. Here that memory is
/// zeroed once.
pub(super) fn poll_read<S: AsyncRead + Unpin>(
    stream: &mut S,
    cx: &mut Context<'_>,
    buf: &mut ReadBuf<'_>,
) -> Poll<io::Result<()>> {
    SCRATCH.with_borrow_mut(|scratch| {
        let len = scratch.len().min(buf.remaining());
        let mut read = ReadBuf::new(&mut scratch[..len]);
        let result = Pin::new(stream).poll_read(cx, &mut read);
        buf.put_slice(read.filled());
        result
    })
}

/// Accepts connections.
pub(super) enum Listener {
    Jump(jump::TcpListener),
    /// turmoil has no `poll_accept`: the future that accepts, over and over.
    #[cfg(feature = "turmoil")]
    Turmoil(futures::stream::BoxStream<'static, io::Result<turmoil::net::TcpStream>>),
}

impl Listener {
    pub(super) async fn bind(engine: Engine, port: u16) -> io::Result<Self> {
        let any = ("0.0.0.0", port);
        match engine {
            Engine::Jump => jump::TcpListener::bind(any).await.map(Listener::Jump),
            #[cfg(feature = "turmoil")]
            Engine::Turmoil => {
                let listener = turmoil::net::TcpListener::bind(any).await?;
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
            Listener::Jump(listener) => listener.poll_accept(cx).map_ok(|(stream, _)| Socket::Jump(stream)),
            #[cfg(feature = "turmoil")]
            Listener::Turmoil(accepted) => {
                accepted.as_mut().poll_next(cx).map(|next| next.expect("the stream never ends").map(Socket::Turmoil))
            }
        }
    }
}
