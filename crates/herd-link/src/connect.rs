//! The connecting side. One try: whether and when to try again is the caller's to decide.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::net::TcpStream;

use crate::record::{Opener, Sealer};
use crate::{Channel, Key, LinkError, Receiver, Sender, handshake};

/// Connects and proves knowledge of the key, all within `timeout`. The peer has then proven it too.
pub async fn connect(
    address: SocketAddr,
    key: &Key,
    channel: &Channel,
    timeout: Duration,
) -> Result<(Sender, Receiver), LinkError> {
    let attempt = async {
        let noise = handshake::initiator(key, channel)?;
        let failed = |source| LinkError::Connect { address, source };
        let mut stream = TcpStream::connect(address).await.map_err(failed)?;
        stream.set_nodelay(true).map_err(failed)?;
        let (sealer, opener) = handshake::initiate(noise, &mut stream).await?;
        Ok(halves(stream, sealer, opener))
    };
    match tokio::time::timeout(timeout, attempt).await {
        Ok(linked) => linked,
        Err(_elapsed) => Err(LinkError::TimedOut {
            address,
            seconds: timeout.as_secs_f64(),
        }),
    }
}

/// Both halves of an authenticated connection.
pub(crate) fn halves(stream: TcpStream, sealer: Sealer, opener: Opener) -> (Sender, Receiver) {
    let (reading, writing) = stream.into_split();
    (Sender::new(writing, sealer), Receiver::new(reading, opener))
}
