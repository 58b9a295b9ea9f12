//! A port of this machine that only this machine can reach, for a browser to come back to.

use std::net::Ipv4Addr;

use tokio::net::TcpListener;

/// Listens on 127.0.0.1, on a port that is free.
pub async fn listen_on_loopback() -> std::io::Result<TcpListener> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await
}
