//! SOCKS5 without authentication (RFC 1928). Only CONNECT is supported. Names are looked up by the
//! proxy, so clients need no name server.

use std::net::{Ipv4Addr, Ipv6Addr};

use tokio::io::AsyncWriteExt;

use super::peer::Peer;
use super::place::Place;
use super::refusal::{Refusal, SOCKS_GENERAL};

pub(super) const VERSION: u8 = 5;
const NO_AUTHENTICATION: u8 = 0;
const NO_METHOD: u8 = 0xff;
const CONNECT: u8 = 1;
const IPV4: u8 = 1;
const NAME: u8 = 3;
const IPV6: u8 = 4;
const SUCCEEDED: u8 = 0;
const COMMAND_NOT_SUPPORTED: u8 = 7;
const ADDRESS_NOT_SUPPORTED: u8 = 8;

/// Reads the greeting, answers it, and reads the request.
pub(super) async fn request(client: &mut Peer) -> Result<Place, Refusal> {
    let greeting = client.take(2).await?;
    let methods = client.take(usize::from(greeting[1])).await?;
    let method = if methods.contains(&NO_AUTHENTICATION) { NO_AUTHENTICATION } else { NO_METHOD };
    client.tcp.write_all(&[VERSION, method]).await.map_err(|_| Refusal::left())?;
    if method == NO_METHOD {
        return Err(Refusal::invalid("SOCKS5 works without authentication only"));
    }
    let head = client.take(4).await?;
    let (version, command, reserved, kind) = (head[0], head[1], head[2], head[3]);
    if version != VERSION || reserved != 0 {
        return Err(Refusal::invalid("the SOCKS5 request is malformed"));
    }
    if command != CONNECT {
        let refusal = Refusal::closed("SOCKS5 supports CONNECT only, neither BIND nor UDP");
        return Err(refusal.with_socks(COMMAND_NOT_SUPPORTED));
    }
    match kind {
        IPV4 => {
            let bytes = client.take(4).await?;
            let address = Ipv4Addr::new(bytes[0], bytes[1], bytes[2], bytes[3]);
            Ok(Place::of_address(address.into(), port(client).await?))
        }
        IPV6 => {
            let bytes = client.take(16).await?;
            let octets: [u8; 16] = bytes[..].try_into().map_err(|_| Refusal::left())?;
            Ok(Place::of_address(Ipv6Addr::from(octets).into(), port(client).await?))
        }
        NAME => {
            let length = client.take(1).await?[0];
            let name = client.take(usize::from(length)).await?;
            let port = port(client).await?;
            // Some clients send an IPv6 address as a name.
            let name = String::from_utf8_lossy(&name).into_owned();
            match name.parse::<Ipv6Addr>() {
                Ok(address) => Ok(Place::of_address(address.into(), port)),
                Err(_) => Place::of_name(&name, port),
            }
        }
        _ => {
            let refusal = Refusal::invalid("the SOCKS5 request has an unknown type of address");
            Err(refusal.with_socks(ADDRESS_NOT_SUPPORTED))
        }
    }
}

async fn port(client: &mut Peer) -> Result<u16, Refusal> {
    let bytes = client.take(2).await?;
    Ok(u16::from_be_bytes([bytes[0], bytes[1]]))
}

/// Returns the answer to a request. The bound address in it is always zero.
fn answer(code: u8) -> [u8; 10] {
    [VERSION, code, 0, IPV4, 0, 0, 0, 0, 0, 0]
}

pub(super) fn success() -> [u8; 10] {
    answer(SUCCEEDED)
}

/// Never returns the code for success.
pub(super) fn failure(refusal: &Refusal) -> [u8; 10] {
    answer(refusal.socks.max(SOCKS_GENERAL))
}
