//! Two ends of a link over loopback, and what others may do to it.
#![expect(clippy::unwrap_used, reason = "in a test a panic is the report")]

use std::collections::VecDeque;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use herd_link::{
    Accepted, Channel, Frame, Key, LinkError, Listener, LogFrame, MAX_FRAME, MAX_HANDSHAKES,
    Receiver, Sender, StdioFrame, connect,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::timeout;

/// Nothing here takes long; a hang is a failure.
const SOON: Duration = Duration::from_secs(25);

const LOOPBACK: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

fn channel() -> Channel {
    Channel {
        job: "0198c0de-0000-7000-8000-000000000001".into(),
        attempt: 1,
    }
}

async fn soon<T>(future: impl Future<Output = T>) -> T {
    timeout(SOON, future)
        .await
        .expect("a step of the test hangs")
}

async fn listening() -> (Listener, Key) {
    let key = Key::generate().unwrap();
    let listener = Listener::bind(LOOPBACK, &key, &channel()).await.unwrap();
    (listener, key)
}

/// A listener that accepts for ever, and the connections it gives out.
async fn linked_through(
    listener: &mut Listener,
    address: SocketAddr,
    key: &Key,
) -> ((Sender, Receiver), Accepted) {
    let channel = channel();
    let (client, accepted) =
        soon(async { tokio::join!(connect(address, key, &channel, SOON), listener.accept()) })
            .await;
    (client.unwrap(), accepted.unwrap())
}

async fn linked() -> ((Sender, Receiver), Accepted) {
    let (mut listener, key) = listening().await;
    let address = listener.local_addr();
    linked_through(&mut listener, address, &key).await
}

fn log(offset: u64, length: usize) -> Frame {
    let fill = offset.to_le_bytes()[0];
    Frame::Log(LogFrame {
        rank: 3,
        stream: 1,
        task: None,
        offset,
        bytes: vec![fill; length],
    })
}

#[tokio::test]
async fn frames_pass_in_both_directions_and_end_cleanly() {
    let ((mut sender, mut receiver), mut accepted) = linked().await;
    let stdio = Frame::Stdio(StdioFrame {
        session: 1,
        stream: 0,
        bytes: Vec::new(),
    });
    sender.send_json(&("hello", 1)).await.unwrap();
    sender.send(&log(5, 100)).await.unwrap();
    sender.send(&stdio).await.unwrap();
    assert!(sender.queued() > 100);
    sender.flush().await.unwrap();
    assert_eq!(sender.queued(), 0);
    let first = soon(accepted.receiver.recv()).await.unwrap().unwrap();
    assert_eq!(
        first.parse_json::<(String, u32)>().unwrap(),
        ("hello".into(), 1)
    );
    assert_eq!(
        soon(accepted.receiver.recv()).await.unwrap(),
        Some(log(5, 100))
    );
    assert_eq!(soon(accepted.receiver.recv()).await.unwrap(), Some(stdio));

    accepted.sender.send_json("go").await.unwrap();
    accepted.sender.flush().await.unwrap();
    let answer = soon(receiver.recv()).await.unwrap().unwrap();
    assert_eq!(answer.parse_json::<String>().unwrap(), "go");

    sender.close().await.unwrap();
    for _ in 0..3 {
        assert_eq!(soon(accepted.receiver.recv()).await.unwrap(), None);
    }
    // The other direction is not affected.
    accepted.sender.send(&log(1, 1)).await.unwrap();
    accepted.sender.close().await.unwrap();
    assert_eq!(soon(receiver.recv()).await.unwrap(), Some(log(1, 1)));
    assert_eq!(soon(receiver.recv()).await.unwrap(), None);
}

#[tokio::test]
async fn a_cut_is_told_from_a_clean_end() {
    let ((mut sender, receiver), mut accepted) = linked().await;
    sender.send(&log(1, 10)).await.unwrap();
    sender.flush().await.unwrap();
    drop((sender, receiver));
    assert_eq!(
        soon(accepted.receiver.recv()).await.unwrap(),
        Some(log(1, 10))
    );
    assert!(matches!(
        soon(accepted.receiver.recv()).await,
        Err(LinkError::Truncated)
    ));
    assert!(matches!(
        soon(accepted.receiver.recv()).await,
        Err(LinkError::Failed)
    ));
}

#[tokio::test]
async fn i4_another_key_job_or_attempt_is_refused() {
    let (mut listener, key) = listening().await;
    let address = listener.local_addr();
    let other_key = Key::generate().unwrap();
    let other_job = Channel {
        job: "another".into(),
        ..channel()
    };
    let other_attempt = Channel {
        attempt: 2,
        ..channel()
    };
    let strangers = async {
        for (key, channel) in [
            (&other_key, channel()),
            (&key, other_job),
            (&key, other_attempt),
        ] {
            let refused = connect(address, key, &channel, SOON).await;
            assert!(matches!(refused, Err(LinkError::Refused)), "{refused:?}");
        }
        connect(address, &key, &channel(), SOON).await.unwrap()
    };
    let (_client, accepted) = soon(async { tokio::join!(strangers, listener.accept()) }).await;
    accepted.unwrap();
    assert_eq!(listener.rejected(), 3);
}

#[tokio::test]
async fn a_listener_without_the_key_is_not_believed() {
    let impostor = TcpListener::bind(LOOPBACK).await.unwrap();
    let address = impostor.local_addr().unwrap();
    let key = Key::generate().unwrap();
    let answer = async {
        let (mut stream, _) = impostor.accept().await.unwrap();
        let mut first = [0; 48];
        stream.read_exact(&mut first).await.unwrap();
        // Its own message sent back is the best guess of someone without the key.
        stream.write_all(&first).await.unwrap();
        stream
    };
    let channel = channel();
    let (client, _stream) =
        soon(async { tokio::join!(connect(address, &key, &channel, SOON), answer) }).await;
    assert!(matches!(client, Err(LinkError::Handshake(_))), "{client:?}");
}

#[tokio::test]
async fn i6_a_silent_listener_is_given_up_after_the_timeout() {
    let silent = TcpListener::bind(LOOPBACK).await.unwrap();
    let address = silent.local_addr().unwrap();
    let key = Key::generate().unwrap();
    let given_up = soon(connect(
        address,
        &key,
        &channel(),
        Duration::from_millis(50),
    ))
    .await;
    assert!(
        matches!(given_up, Err(LinkError::TimedOut { .. })),
        "{given_up:?}"
    );
}

#[tokio::test]
async fn a_replayed_first_message_is_not_handed_out() {
    let (mut listener, key) = listening().await;
    let address = listener.local_addr();
    // Record the first message of an honest peer.
    let tap = TcpListener::bind(LOOPBACK).await.unwrap();
    let tap_address = tap.local_addr().unwrap();
    let mut first = [0; 48];
    let recording = async {
        let (mut stream, _) = tap.accept().await.unwrap();
        stream.read_exact(&mut first).await.unwrap();
    };
    let channel = channel();
    let (refused, ()) =
        soon(async { tokio::join!(connect(tap_address, &key, &channel, SOON), recording) }).await;
    assert!(matches!(refused, Err(LinkError::Refused)));
    let replay = async {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(&first).await.unwrap();
        let mut answer = [0; 48];
        stream.read_exact(&mut answer).await.unwrap();
        stream
            .write_all(&[&[0, 16][..], &[0; 16]].concat())
            .await
            .unwrap();
        assert_closed(&mut stream).await;
        connect(address, &key, &channel, SOON).await.unwrap()
    };
    let (_client, accepted) = soon(async { tokio::join!(replay, listener.accept()) }).await;
    accepted.unwrap();
    assert_eq!(listener.rejected(), 1);
}

/// Waits until the other side has closed (with or without a reset).
async fn assert_closed(stream: &mut TcpStream) {
    let mut rest = Vec::new();
    if let Ok(length) = soon(stream.read_to_end(&mut rest)).await {
        assert_eq!(length, 0, "a stranger was answered");
    }
}

#[tokio::test]
async fn garbage_is_closed_without_an_answer() {
    let (mut listener, key) = listening().await;
    let address = listener.local_addr();
    let strangers = async {
        for garbage in [
            &b"GET / HTTP/1.1\r\nHost: coordinator.example.org\r\n\r\n"[..],
            &[0xff; 4096],
        ] {
            let mut stream = TcpStream::connect(address).await.unwrap();
            stream.write_all(garbage).await.unwrap();
            assert_closed(&mut stream).await;
        }
        connect(address, &key, &channel(), SOON).await.unwrap()
    };
    let (_client, accepted) = soon(async { tokio::join!(strangers, listener.accept()) }).await;
    accepted.unwrap();
}

#[tokio::test]
async fn half_open_connections_make_room_oldest_first() {
    let (mut listener, key) = listening().await;
    let address = listener.local_addr();
    let strangers = async {
        let mut open = VecDeque::new();
        for _ in 0..=MAX_HANDSHAKES {
            open.push_back(TcpStream::connect(address).await.unwrap());
        }
        // The 65th closes the first at once, not after the time of a handshake.
        let mut first = open.pop_front().unwrap();
        timeout(Duration::from_secs(4), assert_closed(&mut first))
            .await
            .unwrap();
        let client = connect(address, &key, &channel(), SOON).await.unwrap();
        let mut second = open.pop_front().unwrap();
        timeout(Duration::from_secs(4), assert_closed(&mut second))
            .await
            .unwrap();
        // The newest are still there.
        let newest = open.back_mut().unwrap();
        assert!(newest.try_read(&mut [0]).is_err(), "closed or answered");
        (client, open)
    };
    let (_client, accepted) = soon(async { tokio::join!(strangers, listener.accept()) }).await;
    accepted.unwrap();
}

#[tokio::test]
async fn a_real_connection_works_while_a_thousand_others_knock() {
    let (mut listener, key) = listening().await;
    let address = listener.local_addr();
    let ((mut sender, mut receiver), mut accepted) =
        linked_through(&mut listener, address, &key).await;
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        while let Some(frame) = accepted.receiver.recv().await.unwrap() {
            accepted.sender.send(&frame).await.unwrap();
            accepted.sender.flush().await.unwrap();
        }
        accepted.sender.close().await.unwrap();
    });
    tasks.spawn(async move {
        // Half of them silent, half of them loud; at most 200 at once for the sake of descriptors.
        let mut open = VecDeque::new();
        for number in 0..1000_u32 {
            let mut stream = TcpStream::connect(address).await.unwrap();
            if number % 2 == 0 {
                stream
                    .write_all(&[number.to_be_bytes()[3]; 48])
                    .await
                    .unwrap();
            }
            open.push_back(stream);
            if open.len() > 200 {
                open.pop_front();
            }
        }
    });
    let newcomers = async {
        let mut rounds = 0_u64;
        while tasks.len() == 2 || rounds < 100 {
            let frame = log(rounds, 1000);
            sender.send(&frame).await.unwrap();
            sender.flush().await.unwrap();
            assert_eq!(receiver.recv().await.unwrap(), Some(frame));
            rounds += 1;
            if tasks.len() == 2 {
                if let Some(ended) = tasks.try_join_next() {
                    ended.unwrap();
                }
            }
        }
        sender.close().await.unwrap();
        assert_eq!(receiver.recv().await.unwrap(), None);
        while let Some(ended) = tasks.join_next().await {
            ended.unwrap();
        }
        connect(address, &key, &channel(), SOON).await.unwrap()
    };
    let (_client, late) = soon(async { tokio::join!(newcomers, listener.accept()) }).await;
    late.unwrap();
    assert!(
        listener.rejected() >= 800,
        "{} rejected",
        listener.rejected()
    );
}

#[tokio::test]
async fn many_honest_peers_at_once_all_get_in() {
    let (mut listener, key) = listening().await;
    let address = listener.local_addr();
    let mut peers = JoinSet::new();
    for _ in 0..100 {
        let key = key.clone();
        peers.spawn(async move { connect(address, &key, &channel(), SOON).await });
    }
    let mut accepted = Vec::new();
    while accepted.len() < 100 {
        accepted.push(soon(listener.accept()).await.unwrap());
    }
    for client in soon(peers.join_all()).await {
        client.unwrap();
    }
    assert_eq!(listener.rejected(), 0);
}

#[tokio::test]
async fn accept_and_recv_may_be_dropped_at_any_point() {
    let (mut listener, key) = listening().await;
    let address = listener.local_addr();
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        let (mut sender, receiver) = connect(address, &key, &channel(), SOON).await.unwrap();
        for number in 0..300 {
            sender
                .send(&log(number, usize::try_from(number * 700).unwrap()))
                .await
                .unwrap();
            sender.flush().await.unwrap();
            tokio::task::yield_now().await;
        }
        sender.close().await.unwrap();
        drop(receiver);
    });
    let mut dropped = 0;
    let mut accepted = soon(async {
        loop {
            tokio::select! {
                biased;
                accepted = listener.accept() => break accepted.unwrap(),
                () = std::future::ready(()) => {
                    dropped += 1;
                    tokio::task::yield_now().await;
                }
            }
        }
    })
    .await;
    assert!(dropped > 0);
    let mut frames = 0;
    dropped = 0;
    soon(async {
        loop {
            tokio::select! {
                biased;
                frame = accepted.receiver.recv() => match frame.unwrap() {
                    Some(frame) => {
                        let length = usize::try_from(frames * 700).unwrap();
                        assert!(frame == log(frames, length));
                        frames += 1;
                    }
                    None => break,
                },
                () = std::future::ready(()) => {
                    dropped += 1;
                    tokio::task::yield_now().await;
                }
            }
        }
    })
    .await;
    assert_eq!(frames, 300);
    assert!(dropped > 100, "recv was dropped {dropped} times only");
    while let Some(ended) = tasks.join_next().await {
        ended.unwrap();
    }
}

#[tokio::test]
async fn send_may_be_dropped_and_flush_resumed() {
    let ((mut sender, receiver), mut accepted) = linked().await;
    // Nobody reads: sending must stop at its bound, and a dropped send must not queue its frame.
    let mut sent = 0;
    while let Ok(done) = timeout(Duration::from_millis(200), sender.send(&log(sent, 50_000))).await
    {
        done.unwrap();
        sent += 1;
    }
    assert!(
        sender.queued() < 512 * 1024,
        "{} bytes queued",
        sender.queued()
    );
    let reading = async {
        let mut frames = 0;
        while let Some(frame) = accepted.receiver.recv().await.unwrap() {
            assert!(frame == log(frames, 50_000));
            frames += 1;
        }
        frames
    };
    let (closed, frames) = soon(async { tokio::join!(sender.close(), reading) }).await;
    closed.unwrap();
    assert_eq!(frames, sent);
    drop(receiver);
}

#[tokio::test]
async fn the_largest_frame_passes_and_a_larger_one_is_refused() {
    let ((mut sender, _receiver), mut accepted) = linked().await;
    let refused = sender.send(&Frame::Control(vec![b'x'; MAX_FRAME])).await;
    assert!(matches!(refused, Err(LinkError::FrameLength { .. })));
    let largest = Frame::Control(vec![b'y'; MAX_FRAME - 1]);
    let sending = async {
        sender.send(&largest).await.unwrap();
        sender.close().await.unwrap();
    };
    let ((), received) = soon(async { tokio::join!(sending, accepted.receiver.recv()) }).await;
    assert!(received.unwrap().is_some_and(|frame| frame == largest));
    assert_eq!(soon(accepted.receiver.recv()).await.unwrap(), None);
}

/// Passes the handshake on unchanged and then `limit` bytes of the client's, one of them flipped.
async fn through_a_tamperer(flip: Option<usize>, limit: usize) -> Result<Vec<Frame>, LinkError> {
    let (mut listener, key) = listening().await;
    let address = listener.local_addr();
    let middle = TcpListener::bind(LOOPBACK).await.unwrap();
    let middle_address = middle.local_addr().unwrap();
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        let (mut client, _) = middle.accept().await.unwrap();
        let mut server = TcpStream::connect(address).await.unwrap();
        let mut message = [0; 48];
        client.read_exact(&mut message).await.unwrap();
        server.write_all(&message).await.unwrap();
        server.read_exact(&mut message).await.unwrap();
        client.write_all(&message).await.unwrap();
        let mut confirmation = [0; 18];
        client.read_exact(&mut confirmation).await.unwrap();
        server.write_all(&confirmation).await.unwrap();
        let mut rest = Vec::new();
        client.read_to_end(&mut rest).await.unwrap();
        if let Some(place) = flip {
            rest[place] ^= 0x10;
        }
        server
            .write_all(&rest[..limit.min(rest.len())])
            .await
            .unwrap();
    });
    let ((mut sender, receiver), mut accepted) =
        linked_through(&mut listener, middle_address, &key).await;
    for offset in 0..3 {
        sender.send(&log(offset, 20)).await.unwrap();
        sender.flush().await.unwrap();
    }
    sender.close().await.unwrap();
    drop(receiver);
    let mut frames = Vec::new();
    while let Some(frame) = soon(accepted.receiver.recv()).await? {
        frames.push(frame);
    }
    Ok(frames)
}

#[tokio::test]
async fn what_is_changed_on_the_way_is_noticed() {
    let all: Vec<Frame> = (0..3).map(|offset| log(offset, 20)).collect();
    assert_eq!(through_a_tamperer(None, usize::MAX).await.unwrap(), all);
    let changed = through_a_tamperer(Some(30), usize::MAX).await;
    assert!(
        matches!(changed, Err(LinkError::Record { record: 1, .. })),
        "{changed:?}"
    );
    // Three records of 2 + 16 + 43 bytes, then the close frame's.
    for limit in [0, 1, 60, 61, 62, 183, 184, 205] {
        let cut = through_a_tamperer(None, limit).await;
        assert!(matches!(cut, Err(LinkError::Truncated)), "{limit}: {cut:?}");
    }
}
