//! Opens a port that only this machine can reach, for a browser to return to.

use std::net::Ipv4Addr;

use tokio::net::TcpListener;

/// Listens on a free port of 127.0.0.1.
pub async fn listen_on_loopback() -> std::io::Result<TcpListener> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await
}
