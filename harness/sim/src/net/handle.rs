//! Sockets as code under test holds them: handles into the stacks of the thread's world.
use super::packet::End;
use super::stack::{Id, ListenerId, Stacks, Wakes};
use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::task::{Context, Poll};
use tokio::io::ReadBuf;

thread_local! {
    static STACKS: RefCell<Option<Stacks>> = const { RefCell::new(None) };
    /// Sockets of all worlds that this thread has been in.
    static SERIAL: Cell<u64> = const { Cell::new(0) };
}

/// The stacks of the thread's world, as long as it lives.
pub(super) struct Entered;

impl Entered {
    pub(super) fn new(hosts: usize) -> Entered {
        STACKS.set(Some(Stacks::new(hosts, SERIAL.get())));
        Entered
    }
    /// # Panics
    /// On another thread than the world's.
    pub(super) fn with<R>(&self, f: impl FnOnce(&mut Stacks) -> R) -> R {
        STACKS.with_borrow_mut(|s| f(s.as_mut().expect("the world's own thread")))
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        let stacks = STACKS.take();
        SERIAL.set(stacks.as_ref().map_or(0, Stacks::serial));
    }
}

/// `None` where there is no world (any more), or while the thread ends.
fn with<R>(f: impl FnOnce(&mut Stacks) -> R) -> Option<R> {
    STACKS.try_with(|s| s.borrow_mut().as_mut().map(f)).ok().flatten()
}
fn gone() -> io::Error {
    ErrorKind::NotConnected.into()
}
pub(super) fn wake(wakes: Wakes) {
    wakes.into_iter().flatten().for_each(std::task::Waker::wake);
}

/// One end of a connection.
#[derive(Debug)]
pub(crate) struct TcpStream(Id);

impl TcpStream {
    /// Connects the current host; a future that is dropped gives up.
    pub(crate) async fn connect(host: usize, port: u16) -> io::Result<TcpStream> {
        let to = End { host: host as u16, port };
        let stream = TcpStream(with(|s| s.connect(to)).ok_or_else(gone)??);
        poll_fn(|cx| with(|s| s.poll_connected(stream.0, cx)).unwrap_or_else(|| Poll::Ready(Err(gone())))).await?;
        Ok(stream)
    }
    /// Own address and that of the peer.
    pub(crate) fn addresses(&self) -> io::Result<(SocketAddr, SocketAddr)> {
        let (local, peer) = with(|s| s.ends(self.0)).ok_or_else(gone)??;
        Ok((local.address(), peer.address()))
    }
    pub(crate) fn poll_read(&mut self, cx: &Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        with(|s| s.poll_read(self.0, cx, into)).unwrap_or_else(|| Poll::Ready(Err(gone())))
    }
    pub(crate) fn poll_write(&mut self, cx: &Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        with(|s| s.poll_write(self.0, cx, bytes)).unwrap_or_else(|| Poll::Ready(Err(gone())))
    }
    pub(crate) fn shut_down(&mut self) -> io::Result<()> {
        with(|s| s.shut_down(self.0)).unwrap_or_else(|| Err(gone()))
    }
}

impl Drop for TcpStream {
    fn drop(&mut self) {
        // The wakers of a socket that nobody holds: dropped outside, they may be the last owners of tasks.
        drop(with(|s| s.close(self.0)));
    }
}

/// A port that others connect to.
#[derive(Debug)]
pub(crate) struct TcpListener(ListenerId);

impl TcpListener {
    /// Listens on a port of the current host.
    pub(crate) fn bind(port: u16) -> io::Result<TcpListener> {
        with(|s| s.listen(port)).ok_or_else(gone)?.map(TcpListener)
    }
    pub(crate) fn poll_accept(&mut self, cx: &Context<'_>) -> Poll<io::Result<TcpStream>> {
        let accepted = with(|s| s.poll_accept(self.0, cx)).unwrap_or_else(|| Poll::Ready(Err(gone())));
        accepted.map_ok(TcpStream)
    }
}

impl Drop for TcpListener {
    fn drop(&mut self) {
        with(|s| s.close_listener(self.0));
    }
}
