//! A cable that can be pulled: it stands between a node and its gateway.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

pub(super) struct Proxy {
    pub(super) address: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    upstream: SocketAddr,
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
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let shared =
            Arc::new(Shared { upstream, is_cut: AtomicBool::new(false), pairs: Mutex::default() });
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
            let is_mute = is_mute.clone();
            std::thread::spawn(move || carry(from, to, &is_mute));
        }
        let mut pairs = self.pairs.lock().unwrap();
        if self.is_cut.load(Ordering::SeqCst) {
            let _ = (near.shutdown(Shutdown::Both), far.shutdown(Shutdown::Both));
            return;
        }
        pairs.push(Pair { near, far, is_mute });
    }
}

fn carry(mut from: TcpStream, mut to: TcpStream, is_mute: &AtomicBool) {
    let mut piece = vec![0; 64 * 1024];
    while let Ok(bytes @ 1..) = from.read(&mut piece) {
        if !is_mute.load(Ordering::SeqCst) && to.write_all(&piece[..bytes]).is_err() {
            break;
        }
    }
    // The end of a mute cable is not heard either.
    if !is_mute.load(Ordering::SeqCst) {
        let _ = to.shutdown(Shutdown::Both);
        let _ = from.shutdown(Shutdown::Both);
    }
}
