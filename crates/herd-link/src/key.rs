//! The job's key. It is never shown by `Debug` and is overwritten when dropped.

use std::fmt;

use zeroize::{Zeroize, Zeroizing};

use crate::LinkError;

/// The 32-byte secret that every party of one job shares.
#[derive(Clone)]
pub struct Key([u8; 32]);

impl Key {
    /// A new key from the operating system's random source.
    pub fn generate() -> Result<Self, LinkError> {
        let mut key = Self([0; 32]);
        getrandom::fill(&mut key.0).map_err(LinkError::Random)?;
        Ok(key)
    }

    /// Reads 64 hexadecimal digits; white space around them (a file's last newline) is ignored.
    pub fn from_hex(text: &str) -> Result<Self, LinkError> {
        let digits = text.trim().as_bytes();
        if digits.len() != 64 {
            return Err(LinkError::KeyFormat);
        }
        let mut key = Self([0; 32]);
        for (byte, pair) in key.0.iter_mut().zip(digits.chunks_exact(2)) {
            *byte = digit(pair[0])? << 4 | digit(pair[1])?;
        }
        Ok(key)
    }

    /// The key as 64 hexadecimal digits: a secret, for a 0600 file or an environment, never a log.
    /// The text is overwritten when dropped.
    pub fn to_hex(&self) -> Zeroizing<String> {
        let mut text = Zeroizing::new(String::with_capacity(64));
        for byte in self.0 {
            for nibble in [byte >> 4, byte & 15] {
                text.push(char::from_digit(u32::from(nibble), 16).expect("a nibble is below 16"));
            }
        }
        text
    }

    pub(crate) fn bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl Drop for Key {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Key(..)")
    }
}

fn digit(byte: u8) -> Result<u8, LinkError> {
    match byte {
        b'0'..=b'9' => Ok(byte - b'0'),
        b'a'..=b'f' => Ok(byte - b'a' + 10),
        b'A'..=b'F' => Ok(byte - b'A' + 10),
        _ => Err(LinkError::KeyFormat),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hex_comes_back() {
        let key = Key::generate().unwrap();
        let text = key.to_hex();
        assert_eq!(text.len(), 64);
        assert_eq!(Key::from_hex(&text).unwrap().0, key.0);
        let shouted = format!("{}\n", text.to_uppercase());
        assert_eq!(Key::from_hex(&shouted).unwrap().0, key.0);
        assert_ne!(*Key::generate().unwrap().to_hex(), *text);
    }

    #[test]
    fn other_texts_are_refused() {
        for text in [
            "",
            "00",
            &"0".repeat(63),
            &"0".repeat(65),
            &"g".repeat(64),
            &"é".repeat(32),
        ] {
            assert!(
                matches!(Key::from_hex(text), Err(LinkError::KeyFormat)),
                "{text}"
            );
        }
    }

    #[test]
    fn i12_debug_hides_the_key() {
        let key = Key::from_hex(&"ab".repeat(32)).unwrap();
        assert_eq!(format!("{key:?}"), "Key(..)");
    }
}
