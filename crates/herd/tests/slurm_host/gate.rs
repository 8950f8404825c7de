//! The network between the laptop and the login node, which a test can break.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Time between looks at whether a stalled network goes on.
const LOOK: Duration = Duration::from_millis(10);

/// A port that leads to the login node.
#[derive(Clone, Debug)]
pub(crate) struct Gate {
    pub(crate) port: u16,
    open: Arc<Mutex<Vec<TcpStream>>>,
    shut: Arc<AtomicBool>,
    stalled: Arc<AtomicBool>,
}

impl Gate {
    pub(crate) fn to(target: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let gate = Self {
            port: listener.local_addr().unwrap().port(),
            open: Arc::default(),
            shut: Arc::default(),
            stalled: Arc::default(),
        };
        let own = gate.clone();
        std::thread::spawn(move || {
            for inner in listener.incoming() {
                let Ok(inner) = inner else { continue };
                if own.shut.load(Ordering::Acquire) {
                    continue;
                }
                let Ok(outer) = TcpStream::connect(target) else {
                    continue;
                };
                let both = [inner.try_clone().unwrap(), outer.try_clone().unwrap()];
                {
                    let mut open = own.open.lock().unwrap();
                    // Whoever cuts has this lock: afterwards nothing may come to what was cut.
                    if own.shut.load(Ordering::Acquire) {
                        continue;
                    }
                    open.extend(both);
                }
                own.pump(inner.try_clone().unwrap(), outer.try_clone().unwrap());
                own.pump(outer, inner);
            }
        });
        gate
    }

    fn pump(&self, mut from: TcpStream, mut to: TcpStream) {
        let stalled = Arc::clone(&self.stalled);
        std::thread::spawn(move || {
            let mut buffer = vec![0; 64 * 1024];
            while let Ok(count @ 1..) = from.read(&mut buffer) {
                while stalled.load(Ordering::Acquire) {
                    std::thread::park_timeout(LOOK);
                }
                if to.write_all(&buffer[..count]).is_err() {
                    break;
                }
            }
            drop(from.shutdown(Shutdown::Both));
            drop(to.shutdown(Shutdown::Both));
        });
    }

    /// Cuts what is open; new connections end at once until [`Self::mend`].
    pub(crate) fn cut(&self) {
        self.shut.store(true, Ordering::Release);
        for stream in self.open.lock().unwrap().drain(..) {
            drop(stream.shutdown(Shutdown::Both));
        }
    }

    /// Passes nothing on, as a network does that is gone, or a laptop that sleeps.
    pub(crate) fn stall(&self) {
        self.stalled.store(true, Ordering::Release);
    }

    /// Works again.
    pub(crate) fn mend(&self) {
        self.shut.store(false, Ordering::Release);
        self.stalled.store(false, Ordering::Release);
    }
}
