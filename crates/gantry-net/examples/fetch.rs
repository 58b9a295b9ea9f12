//! Fetches one page of 1 MB from loopback repeatedly over a warm connection, alternating between
//! the guarded client and the plain HTTP library.
#![allow(
    clippy::disallowed_methods,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a measuring program, which fails by panicking"
)]

use std::time::{Duration, Instant};

use bytes::Bytes;
use gantry_net::{Client, ClientOptions, Request};
use http_body_util::{BodyExt, Empty};
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

const PAGE_BYTES: usize = 1_000_000;
const ROUNDS: usize = 2_000;
const WARM_UP: usize = 200;

fn main() {
    let (address_tx, address_rx) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            address_tx.send(listener.local_addr().unwrap()).unwrap();
            serve(listener).await;
        });
    });
    let url = format!("http://{}/page", address_rx.recv().unwrap());
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    // Runs in a task of the runtime, as tools do.
    let (guarded, plain) = runtime.block_on(runtime.spawn(measure(url))).unwrap();
    println!("{{\"guardedUs\": {:.1}, \"plainUs\": {:.1}}}", micros(guarded), micros(plain));
}

async fn measure(url: String) -> (Duration, Duration) {
    let ours = Client::new(ClientOptions {
        allowed_hosts: vec![gantry_net::HostPattern::parse("127.0.0.1").unwrap()],
        ..ClientOptions::default()
    });
    let theirs: legacy::Client<_, Empty<Bytes>> =
        legacy::Client::builder(TokioExecutor::new()).build(HttpConnector::new());
    let (mut guarded, mut plain) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS + WARM_UP {
        let started = Instant::now();
        let deadline = tokio::time::Instant::now() + Duration::from_secs(30);
        let response = ours.send(Request::get(url.parse().unwrap(), deadline)).await.unwrap();
        let body = response.body.read(2 * PAGE_BYTES).await.unwrap();
        assert_eq!((body.bytes.len(), body.cut), (PAGE_BYTES, false));
        let took = started.elapsed();

        let started = Instant::now();
        let response = theirs.get(url.parse().unwrap()).await.unwrap();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        assert_eq!(body.len(), PAGE_BYTES);
        if round >= WARM_UP {
            guarded.push(took);
            plain.push(started.elapsed());
        }
    }
    (median(guarded), median(plain))
}

async fn serve(listener: TcpListener) {
    let mut page =
        format!("HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: {PAGE_BYTES}\r\n\r\n")
            .into_bytes();
    page.resize(page.len() + PAGE_BYTES, b'x');
    let page: &'static [u8] = page.leak();
    loop {
        let (mut stream, _) = listener.accept().await.unwrap();
        tokio::spawn(async move {
            let mut heard = Vec::new();
            while stream.read_buf(&mut heard).await.is_ok_and(|length| length > 0) {
                if heard.ends_with(b"\r\n\r\n") {
                    heard.clear();
                    if stream.write_all(page).await.is_err() {
                        return;
                    }
                }
            }
        });
    }
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}
