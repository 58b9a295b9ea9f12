//! Measures a download of `curl` through the egress proxy against the same download without it, in turns. Prints one line of
//! JSON for `cargo xtask bench sandbox`.
#![allow(clippy::unwrap_used, clippy::print_stdout, clippy::disallowed_methods, reason = "a benchmark")]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use gantry_net::{
    ConnectionRecord, EgressDecision, EgressJudge, EgressOptions, EgressProxy, LOOPBACK_SERVICE, Wanted,
};
use tokio_util::sync::CancellationToken;

const BYTES: usize = 1 << 30;
const TURNS: usize = 5;

struct AllowAll;

impl EgressJudge for AllowAll {
    fn decide(&self, _: Wanted) -> BoxFuture<'_, EgressDecision> {
        async { EgressDecision::Allow }.boxed()
    }

    fn ended(&self, _: ConnectionRecord) {}
}

fn main() {
    let site = serve_file();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let proxy = listener.local_addr().unwrap();
    // The gateway's own runtime has one worker thread too.
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    runtime.spawn(async move {
        let proxy = EgressProxy::new(EgressOptions::default());
        proxy.serve(listener, Arc::new(AllowAll), CancellationToken::new()).await.unwrap();
    });
    let (mut direct, mut proxied) = (Vec::new(), Vec::new());
    for _ in 0..TURNS {
        direct.push(download(&["--noproxy", "*"], &format!("http://{site}/")));
        let through = format!("http://{proxy}");
        proxied
            .push(download(&["--proxy", &through], &format!("http://{LOOPBACK_SERVICE}:{}/", site.port())));
    }
    let median = |rates: &mut Vec<f64>| {
        rates.sort_by(f64::total_cmp);
        rates[rates.len() / 2] / 1e6
    };
    let (direct, proxied) = (median(&mut direct), median(&mut proxied));
    println!("{{\"directMbPerSecond\":{direct:.0},\"proxiedMbPerSecond\":{proxied:.0}}}");
}

/// Serves the same large body to every request.
fn serve_file() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || listener.incoming().flatten().for_each(send_file));
    address
}

fn send_file(mut client: TcpStream) {
    let mut head = [0; 4096];
    let _ = client.read(&mut head);
    let block = vec![b'x'; 256 * 1024];
    let _ = client.write_all(format!("HTTP/1.1 200 OK\r\nContent-Length: {BYTES}\r\n\r\n").as_bytes());
    for _ in 0..BYTES / block.len() {
        if client.write_all(&block).is_err() {
            return;
        }
    }
}

/// Downloads the file with curl. Returns bytes per second.
fn download(proxy: &[&str], url: &str) -> f64 {
    let mut command = Command::new("curl");
    command.args(["--silent", "--show-error", "--fail", "--output", "/dev/null"]);
    command.args(["--write-out", "%{size_download} %{speed_download}"]).args(proxy).arg(url);
    let done = command.stdin(Stdio::null()).stderr(Stdio::inherit()).output().unwrap();
    let printed = String::from_utf8(done.stdout).unwrap();
    let (size, speed) = printed.split_once(' ').unwrap();
    assert!(done.status.success() && size == BYTES.to_string(), "curl got {size} bytes");
    speed.trim().parse().unwrap()
}
