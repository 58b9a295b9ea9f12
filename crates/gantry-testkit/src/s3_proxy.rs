//! A proxy between a store's client and its server, which can be cut and counts uploaded parts.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use gantry_store::S3Config;

use crate::S3Server;

const PART: &[u8] = b"partNumber=";

/// `S3Proxy` forwards connections to an [`S3Server`](crate::S3Server) until it is cut.
pub struct S3Proxy {
    port: u16,
    to: u16,
    down: AtomicBool,
    parts: AtomicUsize,
    /// The part at which the proxy goes down.
    last_part: AtomicUsize,
    open: Mutex<Vec<TcpStream>>,
}

impl S3Proxy {
    pub fn to(server: &S3Server) -> Arc<S3Proxy> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let proxy = Arc::new(S3Proxy {
            port: listener.local_addr().unwrap().port(),
            to: server.port(),
            down: false.into(),
            parts: 0.into(),
            last_part: usize::MAX.into(),
            open: Mutex::default(),
        });
        let own = proxy.clone();
        std::thread::spawn(move || {
            for here in listener.incoming().map_while(Result::ok) {
                if !own.down.load(Ordering::SeqCst) {
                    own.forward(here);
                }
            }
        });
        proxy
    }

    pub fn config(&self, server: &S3Server) -> S3Config {
        S3Config { endpoint: Some(format!("http://127.0.0.1:{}", self.port)), ..server.config() }
    }

    /// Goes down when the upload's `count`th part from now on is sent.
    pub fn cut_with_part(&self, count: usize) {
        self.last_part.store(self.parts() + count, Ordering::SeqCst);
    }

    pub fn is_down(&self) -> bool {
        self.down.load(Ordering::SeqCst)
    }

    pub fn heal(&self) {
        self.last_part.store(usize::MAX, Ordering::SeqCst);
        self.down.store(false, Ordering::SeqCst);
    }

    /// Returns how many parts were sent or attempted.
    pub fn parts(&self) -> usize {
        self.parts.load(Ordering::SeqCst)
    }

    fn forward(self: &Arc<Self>, mut here: TcpStream) {
        let Ok(mut there) = TcpStream::connect(("127.0.0.1", self.to)) else { return };
        let (mut here_out, mut there_in) = (here.try_clone().unwrap(), there.try_clone().unwrap());
        self.open.lock().unwrap().extend([here.try_clone().unwrap(), there.try_clone().unwrap()]);
        std::thread::spawn(move || {
            let _ = std::io::copy(&mut there_in, &mut here_out);
            let _ = here_out.shutdown(Shutdown::Both);
        });
        let proxy = self.clone();
        std::thread::spawn(move || {
            let mut block = vec![0; 64 * 1024];
            // The first line of a request arrives complete at the beginning of a block.
            while let Ok(count @ 1..) = here.read(&mut block) {
                let line = &block[..count.min(1024)];
                if line.windows(PART.len()).any(|window| window == PART)
                    && proxy.parts.fetch_add(1, Ordering::SeqCst) + 1
                        >= proxy.last_part.load(Ordering::SeqCst)
                {
                    proxy.cut();
                }
                if there.write_all(&block[..count]).is_err() {
                    break;
                }
            }
            let _ = there.shutdown(Shutdown::Both);
        });
    }

    fn cut(&self) {
        self.down.store(true, Ordering::SeqCst);
        for stream in self.open.lock().unwrap().drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}
