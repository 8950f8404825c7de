//! The Noise handshake of both sides. Reads messages of a fixed size only; parses nothing.

use std::io;

use snow::{Builder, HandshakeState};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::record::{self, Opener, Sealer};
use crate::{Key, LinkError};

const PATTERN: &str = "Noise_NNpsk0_25519_ChaChaPoly_BLAKE2s";

/// Each handshake message: a 32-byte public key and a tag.
const MESSAGE_BYTES: usize = 32 + record::TAG_BYTES;

/// The record that confirms the key: no plaintext.
const CONFIRMATION_BYTES: usize = record::LENGTH_BYTES + record::TAG_BYTES;

/// What a connection is for. Peers that differ in it refuse one another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Channel {
    /// The job's id.
    pub job: String,
    /// The attempt's number.
    pub attempt: u32,
}

impl Channel {
    fn prologue(&self) -> String {
        format!("herd/1|{}|{}", self.job, self.attempt)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Side {
    Initiator,
    Responder,
}

fn state(side: Side, key: &Key, channel: &Channel) -> Result<HandshakeState, LinkError> {
    let build = || {
        let prologue = channel.prologue();
        let builder = Builder::new(PATTERN.parse()?)
            .psk(0, key.bytes())?
            .prologue(prologue.as_bytes())?;
        match side {
            Side::Initiator => builder.build_initiator(),
            Side::Responder => builder.build_responder(),
        }
    };
    build().map_err(LinkError::Handshake)
}

/// A handshake of the connecting side, before its first message.
pub(crate) fn initiator(key: &Key, channel: &Channel) -> Result<HandshakeState, LinkError> {
    state(Side::Initiator, key, channel)
}

/// A handshake of the listening side, before the first message.
pub(crate) fn responder(key: &Key, channel: &Channel) -> Result<HandshakeState, LinkError> {
    state(Side::Responder, key, channel)
}

/// Connecting side. When it returns, the peer has shown the key.
pub(crate) async fn initiate(
    mut noise: HandshakeState,
    stream: &mut TcpStream,
) -> Result<(Sealer, Opener), LinkError> {
    write(&mut noise, stream).await?;
    read(&mut noise, stream).await?;
    let (mut sealer, opener) = finish(noise)?;
    let mut confirmation = Vec::with_capacity(CONFIRMATION_BYTES);
    sealer.seal(&[], &mut confirmation)?;
    stream
        .write_all(&confirmation)
        .await
        .map_err(refused_or(LinkError::Write))?;
    Ok((sealer, opener))
}

/// Listening side. Calls `shown` once the first message proves that its author had the key; the
/// confirmation that follows proves that it was not a replay.
pub(crate) async fn respond(
    mut noise: HandshakeState,
    stream: &mut TcpStream,
    shown: impl FnOnce(),
) -> Result<(Sealer, Opener), LinkError> {
    read(&mut noise, stream).await?;
    shown();
    write(&mut noise, stream).await?;
    let (sealer, mut opener) = finish(noise)?;
    let mut confirmation = [0; CONFIRMATION_BYTES];
    stream
        .read_exact(&mut confirmation)
        .await
        .map_err(refused_or(LinkError::Read))?;
    let (_length, tag) = confirmation.split_at(record::LENGTH_BYTES);
    opener.open(tag, &mut Vec::new())?;
    Ok((sealer, opener))
}

async fn write(noise: &mut HandshakeState, stream: &mut TcpStream) -> Result<(), LinkError> {
    let mut message = [0; MESSAGE_BYTES];
    let length = noise
        .write_message(&[], &mut message)
        .map_err(LinkError::Handshake)?;
    debug_assert_eq!(length, MESSAGE_BYTES, "both messages are a key and a tag");
    stream
        .write_all(&message)
        .await
        .map_err(refused_or(LinkError::Write))
}

async fn read(noise: &mut HandshakeState, stream: &mut TcpStream) -> Result<(), LinkError> {
    let mut message = [0; MESSAGE_BYTES];
    stream
        .read_exact(&mut message)
        .await
        .map_err(refused_or(LinkError::Read))?;
    noise
        .read_message(&message, &mut [])
        .map_err(LinkError::Handshake)?;
    Ok(())
}

fn finish(noise: HandshakeState) -> Result<(Sealer, Opener), LinkError> {
    let transport = noise
        .into_stateless_transport_mode()
        .map_err(LinkError::Handshake)?;
    Ok(record::directions(transport))
}

/// A connection that ends here was refused: the peer gives no reason before it trusts us.
fn refused_or(wrap: fn(io::Error) -> LinkError) -> impl Fn(io::Error) -> LinkError {
    move |error| match error.kind() {
        io::ErrorKind::UnexpectedEof
        | io::ErrorKind::ConnectionReset
        | io::ErrorKind::BrokenPipe => LinkError::Refused,
        _ => wrap(error),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Both ends of a link without a socket: the first one's direction to the second.
    pub(crate) fn pair() -> (Sealer, Opener) {
        let key = Key::generate().unwrap();
        let channel = Channel {
            job: "job".into(),
            attempt: 1,
        };
        let mut client = initiator(&key, &channel).unwrap();
        let mut server = responder(&key, &channel).unwrap();
        let mut message = [0; MESSAGE_BYTES];
        assert_eq!(
            client.write_message(&[], &mut message).unwrap(),
            MESSAGE_BYTES
        );
        server.read_message(&message, &mut []).unwrap();
        assert_eq!(
            server.write_message(&[], &mut message).unwrap(),
            MESSAGE_BYTES
        );
        client.read_message(&message, &mut []).unwrap();
        (finish(client).unwrap().0, finish(server).unwrap().1)
    }

    #[test]
    fn the_prologue_names_version_job_and_attempt() {
        let channel = Channel {
            job: "0198-a".into(),
            attempt: 3,
        };
        assert_eq!(channel.prologue(), "herd/1|0198-a|3");
    }
}
