//! The wire between hosts: turmoil-net's socket stacks, and links that delay, hold, cut and lose what travels.
//!
//! turmoil-net is used as a plain pipe. Its receivers drop what arrives out of order and nobody sends again, so arrival
//! times per direction never fall, and what a link swallows is accounted for here: such connections die like real ones,
//! by RST after 15 minutes, or when the other side is back and knows nothing of them. SYNs are sent again as Linux does.
mod link;

use crate::trace::EntryId;
use indexmap::IndexMap;
use link::{Link, Passage};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use turmoil_net::{
    EnterGuard, HostId, KernelConfig, Net, NetstatState, Packet, Proto, TcpFlags, TcpSegment, Transport,
};

/// A connection with unacknowledged data that is silent for this long dies (Linux: `tcp_retries2`, 924.6 s at least).
const SILENCE_NS: u64 = 15 * 60 * 1_000_000_000;
/// A lost SYN is sent again this long after the first: 1, 3, 7, 15, 31, 63 s (Linux: `tcp_syn_retries` = 6).
const SYN_RETRIES: u32 = 6;
const fn syn_retry_ns(attempt: u32) -> u64 {
    ((1 << attempt) - 1) * 1_000_000_000
}
/// How long a connection attempt may take altogether, as on Linux: the seventh SYN's own time-out.
pub(crate) const CONNECT_TIMEOUT: Duration = Duration::from_secs(127);

thread_local!(static SPOKEN: Cell<bool> = const { Cell::new(false) });

/// Some socket of the thread's world may have something to send.
pub(crate) fn spoke() {
    SPOKEN.set(true);
}

/// A socket that is being opened or is in use: when it is dropped, its stack may say so.
pub(crate) struct Speaker;

impl Drop for Speaker {
    fn drop(&mut self) {
        spoke();
    }
}

/// A packet on its way.
struct Flight {
    packet: Packet,
    /// Last entry that the sending host had recorded.
    cause: Option<EntryId>,
    sent_ns: u64,
    /// SYNs: how often it was lost.
    attempt: u32,
}

/// Both ends of a connection, the smaller address first.
type Conn = (SocketAddr, SocketAddr);

/// Data of a connection is held or lost since `since_ns`.
struct Stall {
    since_ns: u64,
    lost: bool,
}

/// One host's place in the network.
struct Place {
    id: HostId,
    ip: IpAddr,
    powered: bool,
    last_entry: Option<EntryId>,
    /// Cause of what the host does next: the entry behind the data that arrived last.
    cause: Option<EntryId>,
}

/// All hosts' socket stacks and the links between them. Hosts are numbered in the order in which they were added.
pub(crate) struct Network {
    guard: EnterGuard,
    places: Vec<Place>,
    /// By `from * hosts + to`.
    links: Vec<Link<Flight>>,
    queue: BTreeMap<(u64, u64), Flight>,
    stalled: IndexMap<Conn, Stall>,
    seq: u64,
    out: Vec<Packet>,
    /// Some process has ended: from then on its stack answers even a bare acknowledgement, by RST.
    ended: bool,
    pub(crate) packets: u64,
}

impl Network {
    pub(crate) fn new(names: &[Arc<str>], seed: u64, latency: Duration) -> Self {
        // No window ever closes: with small reads the peer is told of a reopened window too seldom and stalls for ever.
        // Big segments: a packet a write instead of one per 1 460 bytes. No retransmission: it counts passes, not time.
        let config = KernelConfig::default().retx_threshold(u32::MAX).recv_buf_cap(1 << 30).mtu(65_535);
        let mut net = Net::with_config(config);
        let mut place = |(i, name): (usize, &Arc<str>)| {
            let (id, ip) = (net.add_host(&**name), net.lookup(name));
            assert_eq!(index_of(ip), Some(i), "addresses are handed out in order");
            Place { id, ip, powered: true, last_entry: None, cause: None }
        };
        let places: Vec<_> = names.iter().enumerate().map(&mut place).collect();
        let n = places.len();
        let links = (0..n * n).map(|i| Link::new(seed, i as u64, latency)).collect();
        Network {
            guard: net.enter(),
            places,
            links,
            queue: BTreeMap::new(),
            stalled: IndexMap::new(),
            seq: 0,
            out: Vec::new(),
            ended: false,
            packets: 0,
        }
    }

    /// Sockets made or dropped from now on belong to this host.
    pub(crate) fn set_current(&self, host: usize) {
        self.guard.set_current(self.places[host].id);
    }
    pub(crate) fn recorded(&mut self, host: usize, entry: EntryId) {
        self.places[host].last_entry = Some(entry);
    }
    pub(crate) fn take_cause(&mut self, host: usize) -> Option<EntryId> {
        self.places[host].cause.take()
    }
    fn link(&mut self, from: usize, to: usize) -> &mut Link<Flight> {
        let n = self.places.len();
        &mut self.links[from * n + to]
    }

    /// Puts what the hosts' stacks have sent onto the links, if they can have sent anything: asking them is the dearest
    /// thing that the network does, and bare acknowledgements, which bring nothing about, are half of what arrives.
    pub(crate) fn send_if_spoken(&mut self, now: u64) {
        if SPOKEN.get() || self.ended {
            self.send(now);
        }
    }
    /// Puts what the hosts' stacks have sent onto the links.
    pub(crate) fn send(&mut self, now: u64) {
        SPOKEN.set(false);
        let mut out = std::mem::take(&mut self.out);
        self.guard.egress_all(&mut out);
        for packet in out.drain(..) {
            self.post(now, packet);
        }
        self.out = out;
    }
    fn post(&mut self, now: u64, packet: Packet) {
        let (Some(from), Some(to)) = (self.index(packet.src), self.index(packet.dst)) else { return };
        let cause = self.places[from].last_entry;
        self.carry(now, from, to, Flight { packet, cause, sent_ns: now, attempt: 0 });
    }
    fn carry(&mut self, now: u64, from: usize, to: usize, flight: Flight) {
        let link = self.link(from, to);
        match link.passage() {
            Passage::Open => {
                let at = link.arrival(now);
                self.enqueue(at, flight);
            }
            Passage::Held => {
                let conn = carries_data(&flight.packet).then(|| conn(&flight.packet));
                link.held.push_back(flight);
                if let Some(conn) = conn {
                    self.stalled.entry(conn).or_insert(Stall { since_ns: now, lost: false });
                }
            }
            Passage::Gone => self.lose(now, flight),
        }
    }
    fn enqueue(&mut self, at: u64, flight: Flight) {
        self.queue.insert((at, self.seq), flight);
        self.seq += 1;
    }
    /// The packet reaches nobody. SYNs come again; of anything else the connection is marked.
    fn lose(&mut self, now: u64, mut flight: Flight) {
        let Some(flags) = flags(&flight.packet) else { return };
        if flags.syn {
            flight.attempt += 1;
            let at = flight.sent_ns + syn_retry_ns(flight.attempt);
            if flight.attempt <= SYN_RETRIES {
                self.enqueue(at.max(now), flight);
            }
        } else if !flags.rst {
            self.stalled.entry(conn(&flight.packet)).or_insert(Stall { since_ns: now, lost: false }).lost = true;
        }
    }

    /// When the wire does something next: a packet arrives, or a silent connection dies.
    pub(crate) fn next_event(&self) -> Option<u64> {
        let packet = self.queue.keys().next().map(|k| k.0);
        let death = self.stalled.first().map(|(_, s)| s.since_ns + SILENCE_NS);
        packet.into_iter().chain(death).min()
    }

    /// Delivers what is due. True if there was anything.
    pub(crate) fn deliver_due(&mut self, now: u64) -> bool {
        let mut any = false;
        while let Some(e) = self.queue.first_entry().filter(|e| e.key().0 <= now) {
            let flight = e.remove();
            any = true;
            self.arrive(now, flight);
        }
        while self.stalled.first().is_some_and(|(_, s)| s.since_ns + SILENCE_NS <= now) {
            let (conn, _) = self.stalled.shift_remove_index(0).expect("there is a first");
            any = true;
            self.kill(conn);
        }
        any
    }
    fn arrive(&mut self, now: u64, flight: Flight) {
        let (Some(from), Some(to)) = (self.index(flight.packet.src), self.index(flight.packet.dst)) else { return };
        // A SYN that comes again may meet a link that was closed meanwhile.
        if !self.places[to].powered {
            return self.lose(now, flight);
        }
        if flight.attempt > 0 && self.link(from, to).passage() != Passage::Open {
            return self.carry(now, from, to, flight);
        }
        if carries_news(&flight.packet) {
            spoke();
            self.places[to].cause = flight.cause.or(self.places[to].cause);
        }
        self.packets += 1;
        self.deliver(flight.packet);
    }
    /// Hands a packet to its receiver's stack, RSTs for half-open connections apart: turmoil-net would keep such a socket
    /// for ever, unaccepted, and its port with it. Left half-open, it goes when its listener does.
    fn deliver(&self, packet: Packet) {
        if flags(&packet).is_some_and(|f| f.rst) {
            let (local, peer) = (target(&packet), source(&packet));
            let half_open = self.index(packet.dst).is_some_and(|to| {
                self.sockets(to).any(|s| (s.local, s.peer, s.state) == (local, peer, NetstatState::SynReceived))
            });
            if half_open {
                return;
            }
        }
        self.guard.deliver(packet);
    }

    /// TCP sockets of a host that have a peer.
    fn sockets(&self, host: usize) -> impl Iterator<Item = Socket> + use<> {
        let tcp = turmoil_net::netstat(self.places[host].ip).entries.into_iter().filter(|e| e.proto == Proto::Tcp);
        tcp.filter_map(|e| Some(Socket { local: e.local, peer: e.peer?, state: e.state? }))
    }

    // What can be done to links. `a`, `b`, `from`, `to` are host numbers; a pair means both directions.

    pub(crate) fn set_extra(&mut self, from: usize, to: usize, extra: Duration) {
        self.link(from, to).extra_ns = extra.as_nanos() as u64;
    }
    pub(crate) fn cut(&mut self, now: u64, a: usize, b: usize) {
        for (from, to) in [(a, b), (b, a)] {
            self.link(from, to).cut = true;
            self.stop_in_flight(now, from, to);
        }
    }
    pub(crate) fn hold(&mut self, now: u64, from: usize, to: usize) {
        self.link(from, to).hold = true;
        self.stop_in_flight(now, from, to);
    }
    pub(crate) fn blackhole(&mut self, now: u64, a: usize, b: usize) {
        for (from, to) in [(a, b), (b, a)] {
            self.link(from, to).hole = true;
            self.stop_in_flight(now, from, to);
        }
    }
    /// Undoes `cut` and `blackhole`: held packets travel on, in order. Connections that lost data to a blackhole are
    /// reset, since nobody would send it again.
    pub(crate) fn heal(&mut self, now: u64, a: usize, b: usize) {
        for (from, to) in [(a, b), (b, a)] {
            let link = self.link(from, to);
            (link.cut, link.hole) = (false, false);
            self.let_go(now, from, to);
        }
        self.settle_stalls(a, b);
    }
    pub(crate) fn release(&mut self, now: u64, from: usize, to: usize) {
        self.link(from, to).hold = false;
        self.let_go(now, from, to);
        self.settle_stalls(from, to);
    }
    /// RST to both ends of every connection between two hosts; what is under way between them on these is gone.
    pub(crate) fn reset(&mut self, a: usize, b: usize) {
        let ip = self.places[b].ip;
        let mut conns: Vec<Conn> =
            self.sockets(a).filter(|s| s.peer.ip() == ip).map(|s| ordered(s.local, s.peer)).collect();
        let ip = self.places[a].ip;
        conns.extend(self.sockets(b).filter(|s| s.peer.ip() == ip).map(|s| ordered(s.local, s.peer)));
        conns.sort();
        conns.dedup();
        for conn in conns {
            self.stalled.shift_remove(&conn);
            self.kill(conn);
        }
    }

    /// The host's machine loses power: its stack is emptied, nothing of it gets out any more.
    pub(crate) fn power_off(&mut self, host: usize) {
        self.places[host].powered = false;
    }
    /// The machine is up again: it answers RST for connections whose data it missed.
    pub(crate) fn power_on(&mut self, now: u64, host: usize) {
        if std::mem::replace(&mut self.places[host].powered, true) {
            return;
        }
        let ip = self.places[host].ip;
        let missed: Vec<Conn> = self
            .stalled
            .iter()
            .filter(|((a, b), s)| s.lost && (a.ip() == ip || b.ip() == ip))
            .map(|(conn, _)| *conn)
            .collect();
        for conn in missed {
            self.stalled.shift_remove(&conn);
            let (own, peer) = if conn.0.ip() == ip { conn } else { (conn.1, conn.0) };
            self.post(now, rst(own, peer));
        }
    }
    /// After a host's process has ended: frees its ports. What its stack still wants to say is said before, by `send`
    /// (process killed), or dropped (power-off).
    ///
    /// A half-closed socket behind a cut would hold its port for ever otherwise.
    pub(crate) fn free_sockets(&mut self, host: usize) {
        self.ended = true;
        for s in self.sockets(host).collect::<Vec<_>>() {
            self.deliver(rst(s.peer, s.local));
        }
    }
    /// Drops what the stacks want to send of this host's, sends the rest.
    pub(crate) fn send_all_but(&mut self, now: u64, host: usize) {
        let mut out = std::mem::take(&mut self.out);
        self.guard.egress_all(&mut out);
        let ip = self.places[host].ip;
        for packet in out.drain(..).filter(|p| p.src != ip) {
            self.post(now, packet);
        }
        self.out = out;
    }

    fn stop_in_flight(&mut self, now: u64, from: usize, to: usize) {
        let (src, dst) = (self.places[from].ip, self.places[to].ip);
        let flying: Vec<_> = self
            .queue
            .iter()
            // a SYN that waits for its next attempt is not on the wire
            .filter(|(_, f)| f.packet.src == src && f.packet.dst == dst && f.attempt == 0)
            .map(|(k, _)| *k)
            .collect();
        for key in flying {
            let flight = self.queue.remove(&key).expect("was just there");
            self.carry(now, from, to, flight);
        }
    }
    fn let_go(&mut self, now: u64, from: usize, to: usize) {
        if self.link(from, to).passage() == Passage::Held {
            return;
        }
        for flight in std::mem::take(&mut self.link(from, to).held) {
            self.carry(now, from, to, flight);
        }
    }
    /// A link is open again: connections that lost something die, the others are well.
    fn settle_stalls(&mut self, a: usize, b: usize) {
        if [(a, b), (b, a)].into_iter().any(|(from, to)| self.link(from, to).passage() != Passage::Open) {
            return;
        }
        let (a, b) = (self.places[a].ip, self.places[b].ip);
        let between = |conn: &Conn| [(a, b), (b, a)].contains(&(conn.0.ip(), conn.1.ip()));
        let over: Vec<_> = self.stalled.iter().filter(|(c, _)| between(c)).map(|(c, s)| (*c, s.lost)).collect();
        for (conn, lost) in over {
            self.stalled.shift_remove(&conn);
            if lost {
                self.kill(conn);
            }
        }
    }
    /// RST to both ends, now; what is under way of the connection is dropped.
    fn kill(&mut self, conn: Conn) {
        let of_it = |f: &Flight| crate::net::conn(&f.packet) == conn;
        self.queue.retain(|_, f| !of_it(f));
        for link in &mut self.links {
            link.held.retain(|f| !of_it(f));
        }
        for (local, peer) in [conn, (conn.1, conn.0)] {
            if self.index(local.ip()).is_some_and(|i| self.places[i].powered) {
                self.deliver(rst(peer, local));
            }
        }
    }

    fn index(&self, ip: IpAddr) -> Option<usize> {
        index_of(ip).filter(|i| *i < self.places.len())
    }
}

struct Socket {
    local: SocketAddr,
    peer: SocketAddr,
    state: NetstatState,
}

/// Number of the host with this address: turmoil-net hands out 192.168.0.1, .2, ... in the order of the hosts.
pub(crate) fn index_of(ip: IpAddr) -> Option<usize> {
    match ip {
        IpAddr::V4(v4) => match v4.octets() {
            [192, 168, high, low] => (usize::from(high) << 8 | usize::from(low)).checked_sub(1),
            _ => None,
        },
        IpAddr::V6(_) => None,
    }
}
fn ports(packet: &Packet) -> (u16, u16) {
    match &packet.payload {
        Transport::Tcp(s) => (s.src_port, s.dst_port),
        Transport::Udp(d) => (d.src_port, d.dst_port),
    }
}
fn source(packet: &Packet) -> SocketAddr {
    SocketAddr::new(packet.src, ports(packet).0)
}
fn target(packet: &Packet) -> SocketAddr {
    SocketAddr::new(packet.dst, ports(packet).1)
}
fn conn(packet: &Packet) -> Conn {
    ordered(source(packet), target(packet))
}
fn ordered(a: SocketAddr, b: SocketAddr) -> Conn {
    if a < b { (a, b) } else { (b, a) }
}
fn flags(packet: &Packet) -> Option<TcpFlags> {
    match &packet.payload {
        Transport::Tcp(s) => Some(s.flags),
        Transport::Udp(_) => None,
    }
}
/// Data that its sender keeps until it is acknowledged.
fn carries_data(packet: &Packet) -> bool {
    matches!(&packet.payload, Transport::Tcp(s) if !s.payload.is_empty() || s.flags.fin)
}
/// Anything but a bare acknowledgement.
fn carries_news(packet: &Packet) -> bool {
    carries_data(packet) || flags(packet).is_none_or(|f| f.syn || f.rst)
}
fn rst(from: SocketAddr, to: SocketAddr) -> Packet {
    let segment = TcpSegment {
        src_port: from.port(),
        dst_port: to.port(),
        seq: 0,
        ack: 0,
        flags: TcpFlags { rst: true, ..TcpFlags::default() },
        window: 0,
        payload: Default::default(),
    };
    Packet { src: from.ip(), dst: to.ip(), ttl: 64, payload: Transport::Tcp(segment) }
}
