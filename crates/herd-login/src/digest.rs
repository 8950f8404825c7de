//! Bytes as text, whole or as their digest.

use blake2::{Blake2s256, Digest};

/// 64 digits that stand for these bytes.
pub fn hex_digest(bytes: &[u8]) -> String {
    hex(&Blake2s256::digest(bytes))
}

/// Two digits for each byte.
pub(crate) fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digit = |nibble: u8| char::from(DIGITS.get(usize::from(nibble)).copied().unwrap_or(b'0'));
    bytes
        .iter()
        .flat_map(|byte| [digit(byte >> 4), digit(byte & 15)])
        .collect()
}
