//! Prints how many megabytes of 64 KiB log frames a second pass through loopback.
//!
//! `cargo run --release -p herd-link --example throughput [MEGABYTES]`
#![expect(
    clippy::print_stdout,
    reason = "the figure is what this program is for"
)]

use std::error::Error;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use herd_link::{Channel, Frame, Key, Listener, LogFrame, connect};
use tokio::runtime::{Builder, Runtime};

const PIECE: usize = 64 * 1024;

fn main() -> Result<(), Box<dyn Error>> {
    let megabytes: usize = std::env::args()
        .nth(1)
        .map_or(Ok(2000), |text| text.parse())?;
    let key = Key::generate()?;
    let channel = Channel {
        job: "throughput".into(),
        attempt: 1,
    };

    let receiving = runtime()?;
    let loopback = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let mut listener = receiving.block_on(Listener::bind(loopback, &key, &channel))?;
    let address = listener.local_addr();
    let frames = megabytes * 1_000_000 / PIECE;
    let sender = std::thread::spawn(move || send(address, &key, &channel, frames));

    let (bytes, elapsed) = receiving.block_on(async {
        let mut receiver = listener.accept().await?.receiver;
        let started = Instant::now();
        let mut bytes = 0;
        while let Some(frame) = receiver.recv().await? {
            if let Frame::Log(log) = frame {
                bytes += log.bytes.len();
            }
        }
        Ok::<_, Box<dyn Error>>((bytes, started.elapsed()))
    })?;
    sender
        .join()
        .map_err(|_payload| "the sending thread panicked")??;
    let seconds = elapsed.as_secs_f64();
    #[expect(clippy::cast_precision_loss, reason = "a figure for reading")]
    let rate = bytes as f64 / 1e6 / seconds;
    println!("{rate:.0} MB/s ({bytes} bytes in {seconds:.2} s)");
    Ok(())
}

fn send(
    address: SocketAddr,
    key: &Key,
    channel: &Channel,
    frames: usize,
) -> Result<(), herd_link::LinkError> {
    let sending = runtime().map_err(herd_link::LinkError::Write)?;
    sending.block_on(async {
        let (mut sender, _receiver) =
            connect(address, key, channel, Duration::from_secs(5)).await?;
        let mut log = LogFrame {
            rank: 0,
            stream: 1,
            task: None,
            offset: 0,
            bytes: vec![b'x'; PIECE],
        };
        for _ in 0..frames {
            let frame = Frame::Log(log);
            sender.send(&frame).await?;
            let Frame::Log(sent) = frame else { break };
            log = sent;
            log.offset += PIECE as u64;
        }
        sender.close().await
    })
}

fn runtime() -> std::io::Result<Runtime> {
    Builder::new_current_thread().enable_all().build()
}
