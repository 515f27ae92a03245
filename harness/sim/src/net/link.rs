//! One direction between two hosts.
use crate::state::{GOLDEN, mix};
use std::collections::VecDeque;
use std::time::Duration;

/// One direction between two hosts: its latency, and what is done to it.
pub(super) struct Link<F> {
    stream: u64,
    latency_ns: u64,
    pub(super) extra_ns: u64,
    /// Packets that were given an arrival time.
    sent: u64,
    /// Latest arrival so far.
    latest_ns: u64,
    pub(super) cut: bool,
    pub(super) hold: bool,
    pub(super) hole: bool,
    /// What waits for the link to open, in order.
    pub(super) held: VecDeque<F>,
}

/// What becomes of a packet that is put on a link now.
#[derive(Debug, PartialEq, Eq, Clone, Copy)]
pub(super) enum Passage {
    Open,
    Held,
    Gone,
}

impl<F> Link<F> {
    pub(super) fn new(seed: u64, number: u64, latency: Duration) -> Self {
        Link {
            stream: stream(seed, number),
            latency_ns: latency.as_nanos() as u64,
            extra_ns: 0,
            sent: 0,
            latest_ns: 0,
            cut: false,
            hold: false,
            hole: false,
            held: VecDeque::new(),
        }
    }
    pub(super) fn reseed(&mut self, seed: u64, number: u64) {
        self.stream = stream(seed, number);
    }
    /// Held packets stay held when a blackhole opens as well: they are older than it.
    pub(super) fn passage(&self) -> Passage {
        match (self.hole, self.cut || self.hold) {
            (true, _) => Passage::Gone,
            (false, true) => Passage::Held,
            (false, false) => Passage::Open,
        }
    }
    /// When the next packet, sent now, arrives. Never before one that was sent earlier.
    pub(super) fn arrival(&mut self, now: u64) -> u64 {
        let own = now + self.latency_ns + self.extra_ns + jitter_ns(self.stream, self.sent, self.latency_ns);
        self.sent += 1;
        self.latest_ns = self.latest_ns.max(own);
        self.latest_ns
    }
}

fn stream(seed: u64, number: u64) -> u64 {
    mix(seed ^ mix(number.wrapping_add(GOLDEN)))
}

/// Up to a sixth of the latency, by stream and packet number alone: without it replies of equal calls would tie in
/// milliseconds and hide races; drawn anew per run it would make traces hard to compare.
fn jitter_ns(stream: u64, packet: u64, latency_ns: u64) -> u64 {
    mix(stream.wrapping_add(packet.wrapping_mul(GOLDEN))) % (latency_ns / 6 + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arrivals(seed: u64) -> Vec<u64> {
        let mut link = Link::<()>::new(seed, 3, Duration::from_micros(300));
        (0..50).map(|i| link.arrival(i * 1_000_000)).collect()
    }

    #[test]
    fn jitter_is_small_and_a_function_of_seed_link_and_packet_number() {
        assert_eq!(arrivals(7), arrivals(7));
        assert_ne!(arrivals(7), arrivals(8));
        for (i, at) in arrivals(7).into_iter().enumerate() {
            let travelled = at - i as u64 * 1_000_000;
            assert!((300_000..=350_000).contains(&travelled), "{travelled}");
        }
    }

    #[test]
    fn arrival_times_never_fall_even_when_an_extra_delay_ends() {
        let mut link = Link::<()>::new(1, 0, Duration::from_micros(300));
        link.extra_ns = 5_000_000;
        let slow = link.arrival(0);
        link.extra_ns = 0;
        assert!(link.arrival(1_000) >= slow);
        assert!(link.arrival(20_000_000) < 21_000_000);
    }

    #[test]
    fn a_link_is_open_unless_cut_held_or_a_blackhole() {
        let mut link = Link::<()>::new(1, 0, Duration::ZERO);
        assert_eq!(link.passage(), Passage::Open);
        (link.cut, link.hold) = (true, true);
        link.cut = false;
        assert_eq!(link.passage(), Passage::Held);
        link.hole = true;
        assert_eq!(link.passage(), Passage::Gone);
    }
}
