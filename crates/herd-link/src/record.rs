//! Records: pieces of the frame stream, each encrypted as one Noise message.

use std::fmt;
use std::sync::Arc;

use snow::StatelessTransportState;

use crate::LinkError;

/// Bytes of the length before each record.
pub(crate) const LENGTH_BYTES: usize = 2;
/// Bytes that authenticate a record.
pub(crate) const TAG_BYTES: usize = 16;
/// Noise's limit for one message.
pub(crate) const MAX_RECORD: usize = 65_535;
/// The most plaintext in a record.
pub(crate) const MAX_PLAINTEXT: usize = MAX_RECORD - TAG_BYTES;

/// Encrypts one direction. Nonces count up: TCP keeps the order, so they are not sent.
pub(crate) struct Sealer {
    transport: Arc<StatelessTransportState>,
    next: u64,
}

/// Decrypts one direction.
pub(crate) struct Opener {
    transport: Arc<StatelessTransportState>,
    next: u64,
}

/// Both directions of a finished handshake. The two halves share the keys and nothing else.
pub(crate) fn directions(transport: StatelessTransportState) -> (Sealer, Opener) {
    let transport = Arc::new(transport);
    let opener = Opener {
        transport: Arc::clone(&transport),
        next: 0,
    };
    (Sealer { transport, next: 0 }, opener)
}

impl Sealer {
    /// Appends a record with `plaintext` (at most [`MAX_PLAINTEXT`] bytes) to `out`.
    pub(crate) fn seal(&mut self, plaintext: &[u8], out: &mut Vec<u8>) -> Result<(), LinkError> {
        let failed = |source| LinkError::Seal {
            record: self.next,
            source,
        };
        let length = plaintext.len() + TAG_BYTES;
        let stated = u16::try_from(length).map_err(|_too_long| failed(snow::Error::Input))?;
        let start = out.len() + LENGTH_BYTES;
        out.extend_from_slice(&stated.to_be_bytes());
        out.resize(start + length, 0);
        self.transport
            .write_message(self.next, plaintext, &mut out[start..])
            .map_err(failed)?;
        self.next += 1;
        Ok(())
    }
}

impl Opener {
    /// Appends the plaintext of `record` (without its length) to `plaintext`.
    pub(crate) fn open(&mut self, record: &[u8], plaintext: &mut Vec<u8>) -> Result<(), LinkError> {
        let length = record.len();
        let payload = length
            .checked_sub(TAG_BYTES)
            .ok_or(LinkError::ShortRecord { length })?;
        let start = plaintext.len();
        plaintext.resize(start + payload, 0);
        let opened = self
            .transport
            .read_message(self.next, record, &mut plaintext[start..]);
        if let Err(source) = opened {
            // What did not authenticate must not be seen.
            plaintext.truncate(start);
            return Err(LinkError::Record {
                record: self.next,
                source,
            });
        }
        self.next += 1;
        Ok(())
    }
}

impl fmt::Debug for Sealer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Sealer")
            .field("next", &self.next)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Opener {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Opener")
            .field("next", &self.next)
            .finish_non_exhaustive()
    }
}
