//! Digests: storage version hashes, entity tags and the hashes of documents are made of them.

use sha2::{Digest, Sha256, Sha512};

/// SHA-256.
pub(crate) fn sha256(bytes: &[u8]) -> [u8; 32] {
    Sha256::digest(bytes).into()
}

/// SHA-512 as upper-case hexadecimal digits.
pub(crate) fn sha512_hex(bytes: &[u8]) -> String {
    Sha512::digest(bytes).iter().map(|byte| format!("{byte:02X}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_are_those_of_the_standard() {
        assert_eq!(sha256(b"abc")[..4], [0xba, 0x78, 0x16, 0xbf]);
        assert!(sha512_hex(b"abc").starts_with("DDAF35A193617ABACC417349AE204131"));
        assert_eq!(sha512_hex(b"").len(), 128);
    }
}
