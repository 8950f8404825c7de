//! A store that runs in a thread of the test, and a client that says bytes as they are given.

#![allow(dead_code, unreachable_pub, reason = "each test file uses some of it")]

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use herd_launch::store::{BindError, Network, Notice, Options, Server};
use rustix::net::{AddressFamily, SocketType};
use tokio::sync::mpsc;

/// A bound on each read of a client.
const DEADLINE: Duration = Duration::from_mins(1);

type Command = Box<dyn FnOnce(&Server) + Send>;

/// A store in its own thread, with a runtime of one thread as a launcher has it.
pub struct Serving {
    pub port: u16,
    notices: Arc<Mutex<Vec<Notice>>>,
    commands: Option<mpsc::Sender<Command>>,
    thread: Option<JoinHandle<()>>,
}

impl Serving {
    /// On loopback, at a free port.
    pub fn start(options: Options) -> Self {
        Self::start_on(&[Ipv4Addr::LOCALHOST.into()], 0, options).unwrap()
    }

    pub fn start_on(addresses: &[IpAddr], port: u16, options: Options) -> Result<Self, BindError> {
        let (bound, wait_bound) = std::sync::mpsc::channel();
        let (commands, mut receiver) = mpsc::channel::<Command>(8);
        let notices = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&notices);
        let addresses = addresses.to_vec();
        let thread = std::thread::spawn(move || {
            let mut builder = tokio::runtime::Builder::new_current_thread();
            builder.enable_all().build().unwrap().block_on(async move {
                let mut server = match Server::bind(&addresses, port, options) {
                    Ok(server) => server,
                    Err(error) => return bound.send(Err(error)).unwrap(),
                };
                bound.send(Ok(server.port())).unwrap();
                loop {
                    tokio::select! {
                        command = receiver.recv() => match command {
                            Some(command) => command(&server),
                            None => break,
                        },
                        notice = server.notice() => seen.lock().unwrap().push(notice),
                    }
                }
            });
        });
        match wait_bound.recv().unwrap() {
            Ok(port) => Ok(Self {
                port,
                notices,
                commands: Some(commands),
                thread: Some(thread),
            }),
            Err(error) => {
                thread.join().unwrap();
                Err(error)
            }
        }
    }

    /// All that was told so far.
    pub fn notices(&self) -> Vec<Notice> {
        self.notices.lock().unwrap().clone()
    }

    fn with<T: Send + 'static>(&self, act: impl FnOnce(&Server) -> T + Send + 'static) -> T {
        let (answer, wait) = std::sync::mpsc::channel();
        let command = Box::new(move |server: &Server| answer.send(act(server)).unwrap());
        let commands = self.commands.as_ref().unwrap();
        commands.blocking_send(command).unwrap();
        wait.recv_timeout(DEADLINE).unwrap()
    }

    pub fn connections(&self) -> usize {
        self.with(Server::connections)
    }

    pub fn reset(&self) {
        self.with(Server::reset);
    }

    pub fn allow(&self, network: Network) {
        self.with(move |server| server.allow(network));
    }

    /// Drops the server, and its runtime with it.
    pub fn stop(self) {
        drop(self);
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        drop(self.commands.take());
        if let Some(thread) = self.thread.take() {
            // A panic in there has been printed.
            thread.join().ok();
        }
    }
}

impl std::fmt::Debug for Serving {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "the store at port {}", self.port)
    }
}

/// A string as the protocol has it.
pub fn string(bytes: &[u8]) -> Vec<u8> {
    [&(bytes.len() as u64).to_le_bytes(), bytes].concat()
}

/// A client that has shown what it is.
pub struct Raw(TcpStream);

impl Raw {
    pub fn connect(port: u16) -> Self {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        Self::validated(TcpStream::connect(address).unwrap())
    }

    /// From one address to another.
    pub fn connect_between(from: IpAddr, to: (IpAddr, u16)) -> Self {
        let socket = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
        rustix::net::bind(&socket, &SocketAddr::from((from, 0))).unwrap();
        rustix::net::connect(&socket, &SocketAddr::from(to)).unwrap();
        Self::validated(TcpStream::from(socket))
    }

    fn validated(stream: TcpStream) -> Self {
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        let mut client = Self(stream);
        client.send_some(b"\x00\xce\xf7\x85\x3c");
        client
    }

    pub fn send(&mut self, parts: &[&[u8]]) {
        self.0.write_all(&parts.concat()).unwrap();
    }

    /// As much as the store takes before it closes the connection.
    pub fn send_some(&mut self, bytes: &[u8]) {
        self.0.write_all(bytes).ok();
    }

    #[track_caller]
    pub fn expect(&mut self, expected: &[u8]) {
        let mut found = vec![0; expected.len()];
        self.0.read_exact(&mut found).unwrap();
        assert_eq!(found, expected);
    }

    #[track_caller]
    pub fn expect_closed(&mut self) {
        let closed = self.0.read(&mut [0]).map_err(|error| error.kind());
        assert!(
            matches!(closed, Ok(0) | Err(ErrorKind::ConnectionReset)),
            "{closed:?}"
        );
    }
}
