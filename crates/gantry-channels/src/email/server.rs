//! [`Server`] is the IMAP or the SMTP server of an account, and how it is reached.

use std::net::IpAddr;
use std::time::Duration;

use gantry_flow::SecretFor;
use gantry_net::{ClientOptions, GuardedStream, NetError, Security, Url};
use tokio::time::Instant;

use crate::config::host_and_port;
use crate::connection::Connection;

pub(super) const CONNECT_LIMIT: Duration = Duration::from_secs(30);

/// How a connection is protected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Protection {
    /// TLS from the first byte.
    Tls,
    /// The protocol's STARTTLS command. A server without it is refused.
    StartTls,
    /// None. Only for servers on this machine.
    Loopback,
}

pub(super) struct Server {
    host: String,
    port: u16,
    pub(super) protection: Protection,
    connection: Connection,
    password: String,
}

impl Server {
    pub(super) fn new(
        at: &str,
        tls_port: u16,
        password: &str,
        account: &str,
        network: &ClientOptions,
        secrets: SecretFor,
    ) -> Server {
        let (host, port) = host_and_port(at).unwrap_or_default();
        let url = url(host, port);
        let address = host.trim_matches(['[', ']']).parse::<IpAddr>();
        let is_loopback = host == "localhost" || address.is_ok_and(|address| address.is_loopback());
        let protection = match port {
            port if port == tls_port => Protection::Tls,
            _ if is_loopback => Protection::Loopback,
            _ => Protection::StartTls,
        };
        Server {
            host: host.to_owned(),
            port,
            protection,
            connection: Connection::new(account, network, secrets, &[], url.as_ref()),
            password: password.to_owned(),
        }
    }

    pub(super) fn host(&self) -> &str {
        &self.host
    }

    pub(super) fn password_reference(&self) -> &str {
        &self.password
    }

    pub(super) fn password(&self) -> Result<String, String> {
        let url = url(&self.host, self.port).ok_or("the server's name is invalid")?;
        self.connection.secret(&self.password, &url)
    }

    pub(super) async fn connect(&self) -> Result<GuardedStream, NetError> {
        let security = match self.protection {
            Protection::Tls => Security::Tls,
            Protection::StartTls | Protection::Loopback => Security::Plain,
        };
        let (client, policy) = (&self.connection.client, &self.connection.policy);
        client.connect_stream(&self.host, self.port, security, policy, Instant::now() + CONNECT_LIMIT).await
    }
}

/// The form in which secrets are bound to hosts.
fn url(host: &str, port: u16) -> Option<Url> {
    format!("https://{host}:{port}/").parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_servers_on_this_machine_are_reached_without_tls() {
        for (at, tls_port, protection) in [
            ("mail.example.org:993", 993, Protection::Tls),
            ("mail.example.org:143", 993, Protection::StartTls),
            ("mail.example.org:2525", 465, Protection::StartTls),
            ("10.0.0.1:587", 465, Protection::StartTls),
            ("localhost.example.org:25", 465, Protection::StartTls),
            ("127.0.0.1:993", 993, Protection::Tls),
            ("127.0.0.1:1143", 993, Protection::Loopback),
            ("[::1]:1143", 993, Protection::Loopback),
            ("localhost:1143", 993, Protection::Loopback),
        ] {
            let secrets: SecretFor = std::sync::Arc::new(|_, _| Err(String::new()));
            let server = Server::new(at, tls_port, "secret:X", "a", &ClientOptions::default(), secrets);
            assert_eq!(server.protection, protection, "{at}");
        }
    }
}
