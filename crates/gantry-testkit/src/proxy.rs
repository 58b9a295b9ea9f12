//! A TCP proxy between a node and its gateway, which can be cut.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// `Proxy` forwards connections until it is cut.
pub struct Proxy {
    pub address: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    upstream: SocketAddr,
    /// The limit in each direction of each connection.
    bytes_per_second: Option<u64>,
    is_cut: AtomicBool,
    pairs: Mutex<Vec<Pair>>,
}

struct Pair {
    near: TcpStream,
    far: TcpStream,
    /// Whether received bytes are dropped.
    is_mute: Arc<AtomicBool>,
}

impl Proxy {
    pub fn to(upstream: SocketAddr) -> Proxy {
        Proxy::with_rate(upstream, None)
    }

    /// Limits the bytes per second.
    pub fn with_rate(upstream: SocketAddr, bytes_per_second: Option<u64>) -> Proxy {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let is_cut = AtomicBool::new(false);
        let shared = Arc::new(Shared { upstream, bytes_per_second, is_cut, pairs: Mutex::default() });
        let own = shared.clone();
        std::thread::spawn(move || {
            for near in listener.incoming().flatten() {
                own.connect(near);
            }
        });
        Proxy { address, shared }
    }

    /// Closes every connection at both ends and refuses new ones.
    pub fn cut(&self) {
        self.shared.is_cut.store(true, Ordering::SeqCst);
        for pair in self.shared.pairs.lock().unwrap().drain(..) {
            let _ = pair.near.shutdown(Shutdown::Both);
            let _ = pair.far.shutdown(Shutdown::Both);
        }
    }

    /// Accepts connections again.
    pub fn heal(&self) {
        self.shared.is_cut.store(false, Ordering::SeqCst);
    }

    /// Drops everything sent on the current connections, without closing them. New connections work.
    pub fn mute(&self) {
        for pair in self.shared.pairs.lock().unwrap().iter() {
            pair.is_mute.store(true, Ordering::SeqCst);
        }
    }
}

impl Shared {
    fn connect(self: &Arc<Self>, near: TcpStream) {
        if self.is_cut.load(Ordering::SeqCst) {
            return;
        }
        let Ok(far) = TcpStream::connect(self.upstream) else { return };
        let _ = (near.set_nodelay(true), far.set_nodelay(true));
        let is_mute = Arc::new(AtomicBool::new(false));
        for (from, to) in [(&near, &far), (&far, &near)] {
            let (from, to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
            let (is_mute, rate) = (is_mute.clone(), self.bytes_per_second);
            std::thread::spawn(move || forward(from, to, &is_mute, rate));
        }
        let mut pairs = self.pairs.lock().unwrap();
        if self.is_cut.load(Ordering::SeqCst) {
            let _ = (near.shutdown(Shutdown::Both), far.shutdown(Shutdown::Both));
            return;
        }
        pairs.push(Pair { near, far, is_mute });
    }
}

fn forward(mut from: TcpStream, mut to: TcpStream, is_mute: &AtomicBool, rate: Option<u64>) {
    let mut piece = vec![0; 64 * 1024];
    while let Ok(bytes @ 1..) = from.read(&mut piece) {
        if !is_mute.load(Ordering::SeqCst) && to.write_all(&piece[..bytes]).is_err() {
            break;
        }
        if let Some(rate) = rate {
            std::thread::sleep(Duration::from_micros(bytes as u64 * 1_000_000 / rate));
        }
    }
    // The end of a muted connection is not passed on either.
    if !is_mute.load(Ordering::SeqCst) {
        let _ = to.shutdown(Shutdown::Both);
        let _ = from.shutdown(Shutdown::Both);
    }
}
