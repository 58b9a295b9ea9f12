//! A cable that can be pulled: it stands between a node and its gateway.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

pub(super) struct Proxy {
    pub(super) address: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    upstream: SocketAddr,
    /// In either direction, for each connection.
    bytes_per_second: Option<u64>,
    is_cut: AtomicBool,
    pairs: Mutex<Vec<Pair>>,
}

struct Pair {
    near: TcpStream,
    far: TcpStream,
    /// Bytes are taken and go nowhere.
    is_mute: Arc<AtomicBool>,
}

impl Proxy {
    pub(super) fn to(upstream: SocketAddr) -> Proxy {
        Proxy::with_rate(upstream, None)
    }

    /// A cable that carries only so much.
    pub(super) fn with_rate(upstream: SocketAddr, bytes_per_second: Option<u64>) -> Proxy {
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

    /// Both ends see their connection end, and new ones come to nothing.
    pub(super) fn cut(&self) {
        self.shared.is_cut.store(true, Ordering::SeqCst);
        for pair in self.shared.pairs.lock().unwrap().drain(..) {
            let _ = pair.near.shutdown(Shutdown::Both);
            let _ = pair.far.shutdown(Shutdown::Both);
        }
    }

    pub(super) fn heal(&self) {
        self.shared.is_cut.store(false, Ordering::SeqCst);
    }

    /// Neither end notices: what they say is lost. New connections work.
    pub(super) fn mute(&self) {
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
            std::thread::spawn(move || carry(from, to, &is_mute, rate));
        }
        let mut pairs = self.pairs.lock().unwrap();
        if self.is_cut.load(Ordering::SeqCst) {
            let _ = (near.shutdown(Shutdown::Both), far.shutdown(Shutdown::Both));
            return;
        }
        pairs.push(Pair { near, far, is_mute });
    }
}

fn carry(mut from: TcpStream, mut to: TcpStream, is_mute: &AtomicBool, rate: Option<u64>) {
    let mut piece = vec![0; 64 * 1024];
    while let Ok(bytes @ 1..) = from.read(&mut piece) {
        if !is_mute.load(Ordering::SeqCst) && to.write_all(&piece[..bytes]).is_err() {
            break;
        }
        if let Some(rate) = rate {
            std::thread::sleep(Duration::from_micros(bytes as u64 * 1_000_000 / rate));
        }
    }
    // The end of a mute cable is not heard either.
    if !is_mute.load(Ordering::SeqCst) {
        let _ = to.shutdown(Shutdown::Both);
        let _ = from.shutdown(Shutdown::Both);
    }
}
