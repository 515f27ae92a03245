//! What travels between two stacks.
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// One end of a connection: number of the host, and its port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct End {
    pub(crate) host: u16,
    pub(crate) port: u16,
}

impl End {
    /// As the code under test sees it: hosts have the addresses 192.168.0.1, .2, ... in their order.
    pub(crate) fn address(self) -> SocketAddr {
        let [high, low] = (self.host + 1).to_be_bytes();
        SocketAddr::new(IpAddr::V4(Ipv4Addr::new(192, 168, high, low)), self.port)
    }
}

/// Number of the host with this address.
pub(crate) fn index_of(ip: IpAddr) -> Option<usize> {
    match ip {
        IpAddr::V4(v4) => match v4.octets() {
            [192, 168, high, low] => (usize::from(high) << 8 | usize::from(low)).checked_sub(1),
            _ => None,
        },
        IpAddr::V6(_) => None,
    }
}

/// A packet: with nothing lost unseen and nothing overtaken, no acknowledgements travel but that of the handshake.
#[derive(Debug)]
pub(crate) struct Packet {
    pub(super) from: End,
    pub(super) to: End,
    pub(super) content: Content,
}

#[derive(Debug)]
pub(super) enum Content {
    /// The three packets of the handshake.
    Syn,
    SynAck,
    Ack,
    /// Bytes, the `number`th packet of its direction.
    Data {
        number: u64,
        bytes: Vec<u8>,
    },
    /// No more bytes follow in this direction.
    Fin {
        number: u64,
    },
    /// The connection is no more.
    Rst,
}

impl Packet {
    pub(super) fn rst(from: End, to: End) -> Packet {
        Packet { from, to, content: Content::Rst }
    }
    /// Both ends, the smaller first.
    pub(super) fn conn(&self) -> (End, End) {
        ordered(self.from, self.to)
    }
    pub(super) fn goes(&self, from: usize, to: usize) -> bool {
        (usize::from(self.from.host), usize::from(self.to.host)) == (from, to)
    }
    /// Its sender sends it again until it is answered, whether a connection comes of it or not.
    pub(super) fn is_opening(&self) -> bool {
        matches!(self.content, Content::Syn | Content::SynAck)
    }
    pub(super) fn is_rst(&self) -> bool {
        matches!(self.content, Content::Rst)
    }
    /// Data that its sender keeps until it is acknowledged.
    pub(super) fn carries_data(&self) -> bool {
        matches!(self.content, Content::Data { .. } | Content::Fin { .. })
    }
    /// Anything but a bare acknowledgement.
    pub(super) fn carries_news(&self) -> bool {
        !matches!(self.content, Content::Ack)
    }
}

pub(super) fn ordered(a: End, b: End) -> (End, End) {
    if a < b { (a, b) } else { (b, a) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_found_by_the_address_that_it_has() {
        for host in [0, 1, 254, 255, 256, 1000] {
            let address = End { host, port: 80 }.address();
            assert_eq!((index_of(address.ip()), address.port()), (Some(usize::from(host)), 80));
        }
        for other in ["192.168.0.0", "10.0.0.1", "::1"] {
            assert_eq!(index_of(other.parse().unwrap()), None);
        }
    }
}
