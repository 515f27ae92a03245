//! The wire between hosts: their socket stacks, and links that delay, hold, cut and lose what travels.
//!
//! Nothing is lost but what a link swallows, and that is accounted for here: such connections die like real ones, by RST
//! after 15 minutes, or when the other side is back and knows nothing of them. SYNs are sent again as Linux does.
mod handle;
mod link;
mod packet;
mod stack;

pub(crate) use handle::{TcpListener, TcpStream};
pub(crate) use packet::index_of;

use crate::trace::EntryId;
use handle::{Entered, wake};
use indexmap::IndexMap;
use link::{Link, Passage};
use packet::{End, Packet, ordered};
use std::collections::BTreeMap;
use std::time::Duration;

/// A connection with unacknowledged data that is silent for this long dies (Linux: `tcp_retries2`, 924.6 s at least).
const SILENCE_NS: u64 = 15 * 60 * 1_000_000_000;
/// A lost SYN is sent again this long after the first: 1, 3, 7, 15, 31, 63 s (Linux: `tcp_syn_retries` = 6).
const SYN_RETRIES: u32 = 6;
const fn syn_retry_ns(attempt: u32) -> u64 {
    ((1 << attempt) - 1) * 1_000_000_000
}
/// How long a connection attempt may take altogether, as on Linux: the seventh SYN's own time-out.
pub(crate) const CONNECT_TIMEOUT: Duration = Duration::from_secs(127);

/// A packet on its way.
struct Flight {
    packet: Packet,
    /// Last entry that the sending host had recorded.
    cause: Option<EntryId>,
    sent_ns: u64,
    /// SYNs: how often it was lost.
    attempt: u32,
}

/// Both ends of a connection, the smaller one first.
type Conn = (End, End);

/// Data of a connection is held or lost since `since_ns`.
struct Stall {
    since_ns: u64,
    lost: bool,
}

/// One host's place in the network.
struct Place {
    powered: bool,
    last_entry: Option<EntryId>,
    /// Cause of what the host does next: the entry behind the data that arrived last.
    cause: Option<EntryId>,
}

/// All hosts' socket stacks and the links between them. Hosts are numbered in the order in which they were added.
pub(crate) struct Network {
    stacks: Entered,
    places: Vec<Place>,
    /// By `from * hosts + to`.
    links: Vec<Link<Flight>>,
    queue: BTreeMap<(u64, u64), Flight>,
    stalled: IndexMap<Conn, Stall>,
    seq: u64,
    out: Vec<Packet>,
    pub(crate) packets: u64,
}

impl Network {
    pub(crate) fn new(hosts: usize, seed: u64, latency: Duration) -> Self {
        let place = || Place { powered: true, last_entry: None, cause: None };
        let links = (0..hosts * hosts).map(|i| Link::new(seed, i as u64, latency)).collect();
        Network {
            stacks: Entered::new(hosts),
            places: (0..hosts).map(|_| place()).collect(),
            links,
            queue: BTreeMap::new(),
            stalled: IndexMap::new(),
            seq: 0,
            out: Vec::new(),
            packets: 0,
        }
    }

    /// Makes the links' jitter a function of `seed` from now on.
    pub(crate) fn reseed(&mut self, seed: u64) {
        for (i, link) in self.links.iter_mut().enumerate() {
            link.reseed(seed, i as u64);
        }
    }
    /// Sockets made from now on belong to this host.
    pub(crate) fn set_current(&self, host: usize) {
        self.stacks.with(|s| s.current = host as u16);
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

    /// Puts what the hosts' stacks have to send onto the links.
    pub(crate) fn send(&mut self, now: u64) {
        self.send_but(now, None);
    }
    /// Drops what the stack of this host has to send, sends the rest.
    pub(crate) fn send_all_but(&mut self, now: u64, host: usize) {
        self.send_but(now, Some(host));
    }
    fn send_but(&mut self, now: u64, silent: Option<usize>) {
        if !self.stacks.with(|s| s.speaks()) {
            return;
        }
        let mut out = std::mem::take(&mut self.out);
        self.stacks.with(|s| s.send(|packet| out.push(packet)));
        for packet in out.drain(..).filter(|p| silent != Some(usize::from(p.from.host))) {
            self.post(now, packet);
        }
        self.out = out;
    }
    fn post(&mut self, now: u64, packet: Packet) {
        let (from, to) = (usize::from(packet.from.host), usize::from(packet.to.host));
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
                let conn = flight.packet.carries_data().then(|| flight.packet.conn());
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
        if flight.packet.is_opening() {
            flight.attempt += 1;
            let at = flight.sent_ns + syn_retry_ns(flight.attempt);
            if flight.attempt <= SYN_RETRIES {
                self.enqueue(at.max(now), flight);
            }
        } else if !flight.packet.is_rst() {
            self.stalled.entry(flight.packet.conn()).or_insert(Stall { since_ns: now, lost: false }).lost = true;
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
        let (from, to) = (usize::from(flight.packet.from.host), usize::from(flight.packet.to.host));
        if !self.places[to].powered {
            return self.lose(now, flight);
        }
        // A SYN that comes again may meet a link that was closed meanwhile.
        if flight.attempt > 0 && self.link(from, to).passage() != Passage::Open {
            return self.carry(now, from, to, flight);
        }
        if flight.packet.carries_news() {
            self.places[to].cause = flight.cause.or(self.places[to].cause);
        }
        self.packets += 1;
        self.deliver(flight.packet);
    }
    fn deliver(&self, packet: Packet) {
        wake(self.stacks.with(|s| s.deliver(packet)));
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
        let between = |host: usize, peer: usize| {
            let of_peer = move |(_, end): &Conn| usize::from(end.host) == peer;
            self.stacks
                .with(|s| s.connections(host).filter(of_peer).map(|(own, end)| ordered(own, end)).collect::<Vec<_>>())
        };
        let mut conns = between(a, b);
        conns.extend(between(b, a));
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
        let is_own = |end: &End| usize::from(end.host) == host;
        let missed = self.stalled.iter().filter(|((a, b), s)| s.lost && (is_own(a) || is_own(b)));
        for conn in missed.map(|(conn, _)| *conn).collect::<Vec<Conn>>() {
            self.stalled.shift_remove(&conn);
            let (own, peer) = if is_own(&conn.0) { conn } else { (conn.1, conn.0) };
            self.post(now, Packet::rst(own, peer));
        }
    }
    /// After a host's process has ended: frees its ports. What its stack still wants to say is said before, by `send`
    /// (process killed), or dropped (power-off).
    pub(crate) fn free_sockets(&mut self, host: usize) {
        self.stacks.with(|s| s.empty(host));
    }

    fn stop_in_flight(&mut self, now: u64, from: usize, to: usize) {
        let flying: Vec<_> = self
            .queue
            .iter()
            // a SYN that waits for its next attempt is not on the wire
            .filter(|(_, f)| f.packet.goes(from, to) && f.attempt == 0)
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
        let between = |(x, y): &Conn| [(a, b), (b, a)].contains(&(usize::from(x.host), usize::from(y.host)));
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
        let of_it = |f: &Flight| f.packet.conn() == conn;
        self.queue.retain(|_, f| !of_it(f));
        for link in &mut self.links {
            link.held.retain(|f| !of_it(f));
        }
        for (local, peer) in [conn, (conn.1, conn.0)] {
            if self.places[usize::from(local.host)].powered {
                self.deliver(Packet::rst(peer, local));
            }
        }
    }
}
