//! The hosts' TCP stacks: how a socket opens, carries bytes, ends and dies.
//!
//! A connection is a pipe: what is written in one step of a host travels as one packet (or several of 64 KiB), in order.
//! What is lost is lost by a link that says so, which then sees to the connection's death, so nothing is sent again here.
//! As on Linux: a socket dropped with unread bytes resets its peer, one dropped without sends what was written and FIN;
//! data for a socket that is gone is answered by RST; a listener's end resets whom nobody has accepted. Simpler than
//! Linux: a reader that does not read never closes its window, and no queue of connections to be accepted is ever full.
use super::packet::{Content, End, Packet};
use std::collections::{BTreeMap, VecDeque};
use std::io::{self, ErrorKind};
use std::task::{Context, Poll, Waker};
use tokio::io::ReadBuf;

/// Bytes that a socket takes before the first of them have arrived; Linux's buffers grow to 4 MiB.
const SEND_BUFFER: usize = 256 << 10;
/// The most that one packet carries, bytes.
const SEGMENT: usize = 64 << 10;
/// First of the ports that clients get (RFC 6335).
const FIRST_PORT: u16 = 49_152;

/// A socket: its place, and which of the sockets that were in this place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Id {
    place: u32,
    serial: u64,
}

/// A listener: where, and which of those that were there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ListenerId {
    at: End,
    serial: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// Asked to open, not answered yet.
    SynSent,
    /// Was asked and has answered; nobody knows of it here yet.
    SynReceived,
    Open,
    /// A reset has ended it.
    Reset,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fin {
    No,
    /// Once what was written before is sent.
    Wanted,
    Sent,
}

#[derive(Debug)]
struct Socket {
    serial: u64,
    local: End,
    peer: End,
    state: State,
    /// Some code holds it; others are not accepted yet, or dropped.
    owned: bool,
    /// Written, not sent.
    written: Vec<u8>,
    fin: Fin,
    /// It stands among those that have something to send.
    speaks: bool,
    /// Bytes sent that have not arrived.
    under_way: usize,
    /// Packets sent, and packets taken.
    sent: u64,
    taken: u64,
    arrived: VecDeque<Vec<u8>>,
    /// Bytes read of the first of these.
    read: usize,
    peer_fin: bool,
    /// Waits for bytes, or for the answer to its SYN.
    reader: Option<Waker>,
    /// Waits until its peer has taken some.
    writer: Option<Waker>,
}

#[derive(Debug)]
struct Listener {
    serial: u64,
    ready: VecDeque<Id>,
    waker: Option<Waker>,
}

#[derive(Debug)]
struct Stack {
    listeners: BTreeMap<u16, Listener>,
    /// By own port and peer.
    connections: BTreeMap<(u16, End), Id>,
    next_port: u16,
}

/// What a stack wants to send, in the order in which it came up.
#[derive(Debug)]
enum Said {
    Packet(Packet),
    /// Whatever the socket has when it is its turn.
    By(Id),
}

/// Tasks to be woken, once the stacks are not borrowed any more: a waker may be a task's last owner.
pub(super) type Wakes = [Option<Waker>; 2];

/// The stacks of all hosts of a world.
#[derive(Debug)]
pub(super) struct Stacks {
    sockets: Vec<Option<Socket>>,
    free: Vec<u32>,
    stacks: Vec<Stack>,
    /// The host whose code runs.
    pub(super) current: u16,
    said: Vec<Said>,
    /// Counts sockets and listeners, those of earlier worlds of this thread as well: their handles may still be around.
    serial: u64,
}

impl Stacks {
    pub(super) fn new(hosts: usize, serial: u64) -> Stacks {
        let stack = || Stack { listeners: BTreeMap::new(), connections: BTreeMap::new(), next_port: FIRST_PORT };
        let stacks = (0..hosts).map(|_| stack()).collect();
        Stacks { sockets: Vec::new(), free: Vec::new(), stacks, current: 0, said: Vec::new(), serial }
    }
    pub(super) fn serial(&self) -> u64 {
        self.serial
    }
    fn next_serial(&mut self) -> u64 {
        self.serial += 1;
        self.serial
    }
    fn stack(&mut self, host: u16) -> &mut Stack {
        &mut self.stacks[usize::from(host)]
    }
    fn socket(&mut self, id: Id) -> Option<&mut Socket> {
        self.sockets.get_mut(id.place as usize)?.as_mut().filter(|s| s.serial == id.serial)
    }
    fn insert(&mut self, local: End, peer: End, state: State, owned: bool) -> Id {
        let serial = self.next_serial();
        let socket = Socket {
            serial,
            local,
            peer,
            state,
            owned,
            written: Vec::new(),
            fin: Fin::No,
            speaks: false,
            under_way: 0,
            sent: 0,
            taken: 0,
            arrived: VecDeque::new(),
            read: 0,
            peer_fin: false,
            reader: None,
            writer: None,
        };
        let place = self.free.pop().unwrap_or_else(|| {
            self.sockets.push(None);
            self.sockets.len() as u32 - 1
        });
        self.sockets[place as usize] = Some(socket);
        let id = Id { place, serial };
        self.stack(local.host).connections.insert((local.port, peer), id);
        id
    }
    fn remove(&mut self, id: Id) {
        if let Some(Socket { local, peer, .. }) = self.socket(id) {
            let (local, peer) = (*local, *peer);
            self.sockets[id.place as usize] = None;
            self.free.push(id.place);
            self.stack(local.host).connections.remove(&(local.port, peer));
        }
    }
    fn say(&mut self, from: End, to: End, content: Content) {
        self.said.push(Said::Packet(Packet { from, to, content }));
    }
    fn speak(&mut self, id: Id) {
        let news = self.socket(id).is_some_and(|s| !std::mem::replace(&mut s.speaks, true));
        if news {
            self.said.push(Said::By(id));
        }
    }

    // What code under test does with sockets.

    /// A socket of the current host that asks to be connected.
    pub(super) fn connect(&mut self, to: End) -> io::Result<Id> {
        let host = self.current;
        let stack = self.stack(host);
        let taken = |port: u16| {
            stack.listeners.contains_key(&port) || stack.connections.range((port, MIN)..=(port, MAX)).next().is_some()
        };
        let ports = (stack.next_port..=u16::MAX).chain(FIRST_PORT..stack.next_port);
        let port = ports.into_iter().find(|port| !taken(*port)).ok_or(ErrorKind::AddrNotAvailable)?;
        stack.next_port = port.checked_add(1).unwrap_or(FIRST_PORT);
        let local = End { host, port };
        let id = self.insert(local, to, State::SynSent, true);
        self.say(local, to, Content::Syn);
        Ok(id)
    }
    pub(super) fn poll_connected(&mut self, id: Id, cx: &Context<'_>) -> Poll<io::Result<()>> {
        let Some(s) = self.socket(id) else { return Poll::Ready(Err(ErrorKind::NotConnected.into())) };
        match s.state {
            State::Open => Poll::Ready(Ok(())),
            State::Reset => Poll::Ready(Err(ErrorKind::ConnectionRefused.into())),
            State::SynSent | State::SynReceived => {
                s.reader = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }
    /// Listens on a port of the current host.
    pub(super) fn listen(&mut self, port: u16) -> io::Result<ListenerId> {
        let (host, serial) = (self.current, self.next_serial());
        let stack = self.stack(host);
        if stack.listeners.contains_key(&port) {
            return Err(ErrorKind::AddrInUse.into());
        }
        stack.listeners.insert(port, Listener { serial, ready: VecDeque::new(), waker: None });
        Ok(ListenerId { at: End { host, port }, serial })
    }
    fn listener(&mut self, id: ListenerId) -> Option<&mut Listener> {
        self.stack(id.at.host).listeners.get_mut(&id.at.port).filter(|l| l.serial == id.serial)
    }
    pub(super) fn poll_accept(&mut self, id: ListenerId, cx: &Context<'_>) -> Poll<io::Result<Id>> {
        let Some(listener) = self.listener(id) else { return Poll::Ready(Err(ErrorKind::NotConnected.into())) };
        match listener.ready.pop_front() {
            Some(accepted) => {
                if let Some(s) = self.socket(accepted) {
                    s.owned = true;
                }
                Poll::Ready(Ok(accepted))
            }
            None => {
                listener.waker = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }
    /// Whom nobody has accepted is reset.
    pub(super) fn close_listener(&mut self, id: ListenerId) {
        if self.listener(id).is_none() {
            return;
        }
        let (host, port) = (id.at.host, id.at.port);
        self.stack(host).listeners.remove(&port);
        let on_port = self.stack(host).connections.range((port, MIN)..=(port, MAX));
        let children: Vec<(End, Id)> = on_port.map(|((_, peer), id)| (*peer, *id)).collect();
        for (peer, child) in children {
            // Those that were accepted and dropped have FIN to send; nobody ever held these.
            if self.socket(child).is_some_and(|s| !s.owned && s.fin == Fin::No) {
                self.remove(child);
                self.say(id.at, peer, Content::Rst);
            }
        }
    }
    pub(super) fn ends(&mut self, id: Id) -> io::Result<(End, End)> {
        self.socket(id).map(|s| (s.local, s.peer)).ok_or_else(|| ErrorKind::NotConnected.into())
    }
    pub(super) fn poll_read(&mut self, id: Id, cx: &Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let Some(s) = self.socket(id) else { return Poll::Ready(Err(ErrorKind::NotConnected.into())) };
        if s.state == State::Reset {
            return Poll::Ready(Err(ErrorKind::ConnectionReset.into()));
        }
        if s.arrived.is_empty() && !s.peer_fin {
            s.reader = Some(cx.waker().clone());
            return Poll::Pending;
        }
        while let Some(first) = s.arrived.front().filter(|_| into.remaining() > 0) {
            let rest = &first[s.read..];
            let n = rest.len().min(into.remaining());
            into.put_slice(&rest[..n]);
            s.read += n;
            if s.read == first.len() {
                s.arrived.pop_front();
                s.read = 0;
            }
        }
        Poll::Ready(Ok(()))
    }
    pub(super) fn poll_write(&mut self, id: Id, cx: &Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let Some(s) = self.socket(id) else { return Poll::Ready(Err(ErrorKind::NotConnected.into())) };
        if s.state == State::Reset {
            return Poll::Ready(Err(ErrorKind::ConnectionReset.into()));
        }
        if s.fin != Fin::No {
            return Poll::Ready(Err(ErrorKind::BrokenPipe.into()));
        }
        let n = bytes.len().min(SEND_BUFFER.saturating_sub(s.written.len() + s.under_way));
        if n == 0 && !bytes.is_empty() {
            s.writer = Some(cx.waker().clone());
            return Poll::Pending;
        }
        s.written.extend_from_slice(&bytes[..n]);
        self.speak(id);
        Poll::Ready(Ok(n))
    }
    /// No more is written.
    pub(super) fn shut_down(&mut self, id: Id) -> io::Result<()> {
        let Some(s) = self.socket(id) else { return Err(ErrorKind::NotConnected.into()) };
        if s.state == State::Reset {
            return Err(ErrorKind::ConnectionReset.into());
        }
        if s.fin == Fin::No {
            s.fin = Fin::Wanted;
            self.speak(id);
        }
        Ok(())
    }
    /// Its owner has dropped it.
    pub(super) fn close(&mut self, id: Id) -> Wakes {
        let Some(s) = self.socket(id) else { return Wakes::default() };
        let wakes = [s.reader.take(), s.writer.take()];
        let (local, peer) = (s.local, s.peer);
        match s.state {
            State::SynSent | State::SynReceived | State::Reset => self.remove(id),
            State::Open if !s.arrived.is_empty() => {
                self.remove(id);
                self.say(local, peer, Content::Rst);
            }
            State::Open => {
                s.owned = false;
                match s.fin {
                    Fin::Sent if s.peer_fin => self.remove(id),
                    Fin::Sent => {}
                    Fin::No | Fin::Wanted => {
                        s.fin = Fin::Wanted;
                        self.speak(id);
                    }
                }
            }
        }
        wakes
    }

    // What the network does with stacks.

    /// Some socket may have something to send.
    pub(super) fn speaks(&self) -> bool {
        !self.said.is_empty()
    }
    /// Takes what the hosts' stacks have to send, in order.
    pub(super) fn send(&mut self, mut each: impl FnMut(Packet)) {
        for said in std::mem::take(&mut self.said) {
            match said {
                Said::Packet(packet) => each(packet),
                Said::By(id) => self.send_written(id, &mut each),
            }
        }
    }
    fn send_written(&mut self, id: Id, each: &mut impl FnMut(Packet)) {
        let Some(s) = self.socket(id) else { return };
        let (from, to) = (s.local, s.peer);
        s.speaks = false;
        if s.state != State::Open {
            return;
        }
        let mut written = std::mem::take(&mut s.written);
        while !written.is_empty() {
            let rest = if written.len() > SEGMENT { written.split_off(SEGMENT) } else { Vec::new() };
            s.under_way += written.len();
            each(Packet { from, to, content: Content::Data { number: s.sent, bytes: written } });
            s.sent += 1;
            written = rest;
        }
        if s.fin == Fin::Wanted {
            s.fin = Fin::Sent;
            each(Packet { from, to, content: Content::Fin { number: s.sent } });
            s.sent += 1;
            if !s.owned && s.peer_fin {
                self.remove(id);
            }
        }
    }
    /// A packet arrives at its host.
    pub(super) fn deliver(&mut self, packet: Packet) -> Wakes {
        let Packet { from, to, content } = packet;
        let Some(&id) = self.stack(to.host).connections.get(&(to.port, from)) else {
            match content {
                Content::Rst => {}
                Content::Syn if self.stack(to.host).listeners.contains_key(&to.port) => {
                    self.insert(to, from, State::SynReceived, false);
                    self.say(to, from, Content::SynAck);
                }
                _ => self.say(to, from, Content::Rst),
            }
            return Wakes::default();
        };
        let Some(s) = self.socket(id) else { return Wakes::default() };
        match (content, s.state) {
            (Content::Rst, _) => self.reset(id),
            (Content::SynAck, State::SynSent) => {
                s.state = State::Open;
                let wakes = [s.reader.take(), None];
                self.say(to, from, Content::Ack);
                wakes
            }
            (Content::Ack, State::SynReceived) => {
                s.state = State::Open;
                let listener = self.stack(to.host).listeners.get_mut(&to.port);
                listener.map_or(Wakes::default(), |l| {
                    l.ready.push_back(id);
                    [l.waker.take(), None]
                })
            }
            (Content::Data { number, bytes }, State::Open) if number == s.taken => {
                s.taken += 1;
                let (n, accepted) = (bytes.len(), s.owned || s.fin == Fin::No);
                let reader = s.reader.take();
                if accepted {
                    s.arrived.push_back(bytes);
                } else {
                    self.remove(id);
                    self.say(to, from, Content::Rst);
                }
                [reader, self.arrived(from, to, n)]
            }
            (Content::Fin { number }, State::Open) if number == s.taken => {
                s.taken += 1;
                s.peer_fin = true;
                let reader = s.reader.take();
                if !s.owned && s.fin == Fin::Sent {
                    self.remove(id);
                }
                [reader, None]
            }
            // A SYN that came twice, or what follows something lost.
            _ => Wakes::default(),
        }
    }
    /// So many bytes of a sender have reached their receiver. (It learns of it at once: the acknowledgement does not travel.)
    fn arrived(&mut self, sender: End, receiver: End, n: usize) -> Option<Waker> {
        let id = *self.stack(sender.host).connections.get(&(sender.port, receiver))?;
        let s = self.socket(id)?;
        s.under_way = s.under_way.saturating_sub(n);
        s.writer.take()
    }
    fn reset(&mut self, id: Id) -> Wakes {
        let Some(s) = self.socket(id) else { return Wakes::default() };
        let wakes = [s.reader.take(), s.writer.take()];
        (s.written, s.arrived, s.read) = (Vec::new(), VecDeque::new(), 0);
        let waits_to_be_accepted = s.state == State::Open && s.fin == Fin::No;
        if s.owned || waits_to_be_accepted {
            s.state = State::Reset;
        } else {
            // Half-open, or dropped by its owner: nobody will ask for it.
            self.remove(id);
        }
        wakes
    }
    /// Both ends of each connection that a host has a socket of.
    pub(super) fn connections(&self, host: usize) -> impl Iterator<Item = (End, End)> + '_ {
        let local = move |port| End { host: host as u16, port };
        self.stacks[host].connections.keys().map(move |(port, peer)| (local(*port), *peer))
    }
    /// The host's process has ended, and with it all that it had of sockets.
    pub(super) fn empty(&mut self, host: usize) {
        let stack = &mut self.stacks[host];
        stack.listeners.clear();
        for id in std::mem::take(&mut stack.connections).into_values() {
            self.sockets[id.place as usize] = None;
            self.free.push(id.place);
        }
    }
}

const MIN: End = End { host: 0, port: 0 };
const MAX: End = End { host: u16::MAX, port: u16::MAX };
