//! A network that breaks: a proxy between executors and their coordinator, which cuts connections.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// Lies between executors and their coordinator.
#[derive(Clone, Debug, Default)]
pub struct Proxy {
    /// Connections that stand: both sides of each.
    open: Arc<Mutex<Vec<TcpStream>>>,
    cuts: Arc<AtomicUsize>,
    /// New connections are cut at once.
    closed: Arc<AtomicBool>,
}

impl Proxy {
    /// Writes the program `wrapper`, which runs the executor `node` so that it goes through a new
    /// proxy. The first connection is cut after `limit` bytes to the coordinator, the second after
    /// twice as many, and so on: what is sent in one piece must pass in the end. Returns the proxy
    /// and the wrapper's path.
    pub fn before(node: &Path, wrapper: &Path, limit: usize) -> (Self, PathBuf) {
        let target = wrapper.with_extension("target");
        let (proxy, address) = Self::start(target.clone(), limit);
        // `executor --coordinator ADDRESS …`: the order is the driver's.
        let script = format!(
            "#!/bin/sh\n[ \"$2\" = --coordinator ] || exit 9\n\
             printf %s \"$3\" > {target}.$$ && mv {target}.$$ {target}\n\
             shift 3\nexec {node} executor --coordinator {address} \"$@\"\n",
            target = target.display(),
            node = node.display()
        );
        fs::write(wrapper, script).unwrap();
        fs::set_permissions(wrapper, fs::Permissions::from_mode(0o755)).unwrap();
        (proxy, wrapper.to_owned())
    }

    /// How many connections have reached their limit.
    pub fn cuts(&self) -> usize {
        self.cuts.load(Ordering::Acquire)
    }

    /// Listens, and connects to the address that stands in the file `target` by then. Each
    /// connection is cut after its multiple of `limit`.
    fn start(target: PathBuf, limit: usize) -> (Self, SocketAddr) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let proxy = Self::default();
        let own = proxy.clone();
        std::thread::spawn(move || {
            for (number, inner) in (1..).zip(listener.incoming()) {
                let inner = inner.unwrap();
                if own.closed.load(Ordering::Acquire) {
                    continue;
                }
                let target: SocketAddr = fs::read_to_string(&target).unwrap().parse().unwrap();
                let Ok(outer) = TcpStream::connect(target) else {
                    continue;
                };
                let both = [inner.try_clone().unwrap(), outer.try_clone().unwrap()];
                {
                    let mut open = own.open.lock().unwrap();
                    // Whoever closes has this lock: afterwards nothing may come to what was cut.
                    if own.closed.load(Ordering::Acquire) {
                        continue;
                    }
                    open.extend(both);
                }
                own.pump(&inner, &outer, limit.saturating_mul(number));
                own.pump(&outer, &inner, usize::MAX);
            }
        });
        (proxy, address)
    }

    fn pump(&self, from: &TcpStream, to: &TcpStream, limit: usize) {
        let (mut from, mut to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
        let cuts = Arc::clone(&self.cuts);
        std::thread::spawn(move || {
            let mut left = limit;
            let mut buffer = [0; 10_000];
            while let Ok(count @ 1..) = from.read(&mut buffer) {
                // In the middle of what was read, and so of a record.
                let passed = count.min(left);
                if to.write_all(&buffer[..passed]).is_err() {
                    break;
                }
                left -= passed;
                if left == 0 {
                    cuts.fetch_add(1, Ordering::AcqRel);
                    break;
                }
            }
            drop(from.shutdown(Shutdown::Both));
            drop(to.shutdown(Shutdown::Both));
        });
    }

    /// Cuts everything, and for ever.
    pub fn close(&self) {
        self.closed.store(true, Ordering::Release);
        for stream in self.open.lock().unwrap().drain(..) {
            drop(stream.shutdown(Shutdown::Both));
        }
    }
}
