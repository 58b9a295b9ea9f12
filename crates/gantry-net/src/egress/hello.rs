//! The start of a TLS connection. The client's hello must carry the server name that was wanted;
//! only then are bytes passed on.

use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::BytesMut;
use tokio::io::AsyncWriteExt;

use super::MAX_HELLO_BYTES;
use super::peer::Peer;
use super::place::shown;
use super::record::Traffic;
use super::refusal::Refusal;

const CHANGE_CIPHER_SPEC: u8 = 20;
const ALERT: u8 = 21;
const HANDSHAKE: u8 = 22;
const APPLICATION_DATA: u8 = 23;
const MAX_RECORD: usize = 16 * 1024 + 256;

const CLIENT_HELLO: u8 = 1;
const SERVER_HELLO: u8 = 2;
/// Type and length of a handshake message.
const MESSAGE_HEAD: usize = 4;
/// A server's hello up to the end of its random: head, version, random.
const SERVER_RANDOM: std::ops::Range<usize> = 6..38;

const SERVER_NAME: u16 = 0;
const HOST_NAME: u8 = 0;
/// With an encrypted hello the visible name is not the one that the server uses. The second number
/// belongs to its older draft.
const ENCRYPTED_HELLO: [u16; 2] = [0xfe0d, 0xffce];

/// The random of a server's hello that asks for a second client hello (RFC 8446, 4.1.3).
const RETRY: [u8; 32] = [
    0xcf, 0x21, 0xad, 0x74, 0xe5, 0x9a, 0x61, 0x11, 0xbe, 0x1d, 0x8c, 0x02, 0x1e, 0x65, 0xb8, 0x91, 0xc2,
    0xa2, 0x11, 0x16, 0x7a, 0xbb, 0x8c, 0x5e, 0x07, 0x9e, 0x09, 0xe2, 0xc8, 0xa8, 0x33, 0x9c,
];

/// A fatal "access denied", for a client whose hello was refused.
pub(super) const ACCESS_DENIED: [u8; 7] = [ALERT, 3, 3, 0, 2, 2, 49];

/// Checks the client's hello and passes it on unchanged. If the server asks for a second hello, that
/// one is checked too. Returns when everything else may be relayed.
pub(super) async fn pass_hello(
    client: &mut Peer,
    server: &mut Peer,
    host: &str,
    traffic: &Traffic,
    limit: Duration,
    idle: Duration,
) -> Result<(), Refusal> {
    let hello = read_hello(client, host, limit, &[]).await?;
    pass_up(server, &hello, traffic).await?;
    let is_retry = tokio::select! {
        is_retry = server_asks_again(server) => is_retry?,
        () = client.gone() => return Err(Refusal::left()),
        () = traffic.idle(idle) => return Err(Refusal::idle()),
    };
    if is_retry {
        let answer = server.ahead.split();
        client.tcp.write_all(&answer).await.map_err(|_| Refusal::left())?;
        traffic.down.fetch_add(answer.len() as u64, Ordering::Relaxed);
        let hello = read_hello(client, host, limit, &[CHANGE_CIPHER_SPEC, APPLICATION_DATA]).await?;
        pass_up(server, &hello, traffic).await?;
    }
    Ok(())
}

async fn pass_up(server: &mut Peer, bytes: &[u8], traffic: &Traffic) -> Result<(), Refusal> {
    let sent = server.tcp.write_all(bytes).await;
    sent.map_err(|err| Refusal::failed(format!("the connection broke: {err}")))?;
    traffic.up.fetch_add(bytes.len() as u64, Ordering::Relaxed);
    Ok(())
}

/// Returns the bytes of a hello that names the host, after records of the types in `skipped`.
async fn read_hello(
    client: &mut Peer,
    host: &str,
    limit: Duration,
    skipped: &[u8],
) -> Result<BytesMut, Refusal> {
    let read = async {
        loop {
            if let Some((message, end)) = message(&client.ahead, CLIENT_HELLO, skipped, None)? {
                check_hello(&message, host)?;
                return Ok(client.ahead.split_to(end));
            }
            if client.ahead.len() >= MAX_HELLO_BYTES {
                return Err(Refusal::closed(format!("the TLS hello is longer than {MAX_HELLO_BYTES} bytes")));
            }
            match client.fill().await {
                Ok(true) => {}
                Ok(false) | Err(_) => return Err(Refusal::left()),
            }
        }
    };
    let slow = || Refusal::slow(format!("the client sent no TLS hello within {limit:?}"));
    tokio::time::timeout(limit, read).await.map_err(|_| slow())?
}

/// Reads the start of the server's answer without passing it on.
async fn server_asks_again(server: &mut Peer) -> Result<bool, Refusal> {
    loop {
        if server.ahead.first() == Some(&ALERT) {
            return Ok(false);
        }
        let start = message(&server.ahead, SERVER_HELLO, &[], Some(SERVER_RANDOM.end));
        let start = start.map_err(|_| Refusal::failed("the server on port 443 does not speak TLS"))?;
        if let Some((message, _)) = start {
            return Ok(message.get(SERVER_RANDOM) == Some(&RETRY));
        }
        match server.fill().await {
            Ok(true) if server.ahead.len() < MAX_HELLO_BYTES => {}
            Ok(true) => return Err(Refusal::failed("the server's TLS hello is too long")),
            Ok(false) | Err(_) => return Err(Refusal::failed("the server closed the connection")),
        }
    }
}

/// Collects one handshake message from TLS records. Returns it with the end of its last record, or
/// `None` if bytes are missing. With `enough`, that many bytes of the message suffice; otherwise the
/// message must end where its last record ends.
fn message(
    bytes: &[u8],
    kind: u8,
    skipped: &[u8],
    enough: Option<usize>,
) -> Result<Option<(Vec<u8>, usize)>, Refusal> {
    let not_tls = || Refusal::closed("only TLS is open on port 443, and the first bytes are not a TLS hello");
    let mut message = Vec::new();
    let mut at = 0;
    loop {
        let record = &bytes[at..];
        let is_skipped = match record.first() {
            None => return Ok(None),
            Some(&HANDSHAKE) => false,
            Some(other) if skipped.contains(other) && message.is_empty() => true,
            Some(_) => return Err(not_tls()),
        };
        if record.get(1).is_some_and(|major| *major != 3) || record.get(2).is_some_and(|minor| *minor > 4) {
            return Err(not_tls());
        }
        let Some(&[_, _, _, high, low]) = record.first_chunk::<5>() else { return Ok(None) };
        let length = usize::from(u16::from_be_bytes([high, low]));
        if length == 0 || length > MAX_RECORD {
            return Err(not_tls());
        }
        let payload = &record[5..record.len().min(5 + length)];
        at += 5 + length;
        let is_whole = at <= bytes.len();
        if !is_skipped {
            message.extend_from_slice(payload);
        }
        if message.first().is_some_and(|first| *first != kind) {
            return Err(not_tls());
        }
        if let Some(&[_, high, middle, low]) = message.first_chunk::<MESSAGE_HEAD>() {
            let need = MESSAGE_HEAD + u32::from_be_bytes([0, high, middle, low]) as usize;
            if need > MAX_HELLO_BYTES {
                return Err(Refusal::closed(format!("the TLS hello is longer than {MAX_HELLO_BYTES} bytes")));
            }
            if enough.is_some_and(|enough| message.len() >= enough.min(need)) {
                return Ok(Some((message, at)));
            }
            if message.len() > need {
                return Err(Refusal::closed("the TLS hello is followed by other data in its record"));
            }
            if message.len() == need && is_whole {
                return Ok(Some((message, at)));
            }
            if message.len() == need {
                return Err(Refusal::closed("the TLS hello is followed by other data in its record"));
            }
        }
        if !is_whole {
            return Ok(None);
        }
    }
}

fn check_hello(message: &[u8], host: &str) -> Result<(), Refusal> {
    let hello = parse_hello(&message[MESSAGE_HEAD..]);
    let hello = hello.ok_or_else(|| Refusal::closed("the TLS hello is malformed"))?;
    if hello.is_encrypted {
        return Err(Refusal::closed(
            "the TLS hello has an encrypted part (ECH), which could hide another server name; switch ECH off",
        ));
    }
    match hello.server_name {
        None => Err(Refusal::closed(format!("the TLS hello has no server name; it must be {host}"))),
        Some(name) if name.eq_ignore_ascii_case(host.as_bytes()) => Ok(()),
        Some(name) => {
            let name = shown(&String::from_utf8_lossy(name));
            Err(Refusal::closed(format!("the TLS server name is {name}, not {host}")))
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
struct Hello<'a> {
    server_name: Option<&'a [u8]>,
    is_encrypted: bool,
}

/// Parses a client hello, which must have no bytes left over anywhere.
fn parse_hello(body: &[u8]) -> Option<Hello<'_>> {
    let mut rest = body;
    take(&mut rest, 2 + 32)?;
    let session = take_counted(&mut rest, 1)?;
    let ciphers = take_counted(&mut rest, 2)?;
    let compressions = take_counted(&mut rest, 1)?;
    if session.len() > 32 || ciphers.is_empty() || ciphers.len() % 2 != 0 || compressions.is_empty() {
        return None;
    }
    let mut hello = Hello { server_name: None, is_encrypted: false };
    if rest.is_empty() {
        return Some(hello);
    }
    let mut extensions = take_counted(&mut rest, 2)?;
    if !rest.is_empty() {
        return None;
    }
    let mut has_names = false;
    while !extensions.is_empty() {
        let kind = u16::from_be_bytes(take(&mut extensions, 2)?.try_into().ok()?);
        let data = take_counted(&mut extensions, 2)?;
        if kind == SERVER_NAME {
            if std::mem::replace(&mut has_names, true) {
                return None;
            }
            hello.server_name = Some(single_name(data)?);
        }
        hello.is_encrypted |= ENCRYPTED_HELLO.contains(&kind);
    }
    Some(hello)
}

/// Returns the name in a list that has exactly one.
fn single_name(mut data: &[u8]) -> Option<&[u8]> {
    let mut list = take_counted(&mut data, 2)?;
    let kind = take(&mut list, 1)?[0];
    let name = take_counted(&mut list, 2)?;
    (data.is_empty() && list.is_empty() && kind == HOST_NAME && !name.is_empty()).then_some(name)
}

fn take<'a>(rest: &mut &'a [u8], count: usize) -> Option<&'a [u8]> {
    let (taken, left) = rest.split_at_checked(count)?;
    *rest = left;
    Some(taken)
}

/// Takes bytes whose count comes before them, in one or two bytes.
fn take_counted<'a>(rest: &mut &'a [u8], width: usize) -> Option<&'a [u8]> {
    let count = take(rest, width)?.iter().fold(0, |sum, byte| sum << 8 | usize::from(*byte));
    take(rest, count)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn extension(kind: u16, data: &[u8]) -> Vec<u8> {
        [&kind.to_be_bytes()[..], &u16::try_from(data.len()).unwrap().to_be_bytes(), data].concat()
    }

    fn names(names: &[(u8, &[u8])]) -> Vec<u8> {
        let mut list = Vec::new();
        for (kind, name) in names {
            list.push(*kind);
            list.extend(u16::try_from(name.len()).unwrap().to_be_bytes());
            list.extend(*name);
        }
        let data = [&u16::try_from(list.len()).unwrap().to_be_bytes()[..], &list].concat();
        extension(SERVER_NAME, &data)
    }

    fn hello_message(extensions: &[Vec<u8>]) -> Vec<u8> {
        let extensions = extensions.concat();
        let mut body = vec![3, 3];
        body.extend([7; 32]);
        body.extend([0, 0, 2, 0x13, 0x01, 1, 0]);
        body.extend(u16::try_from(extensions.len()).unwrap().to_be_bytes());
        body.extend(extensions);
        let length = u32::try_from(body.len()).unwrap().to_be_bytes();
        [&[CLIENT_HELLO], &length[1..], &body].concat()
    }

    fn records(message: &[u8], size: usize) -> Vec<u8> {
        let record = |part: &[u8]| {
            [&[HANDSHAKE, 3, 1][..], &u16::try_from(part.len()).unwrap().to_be_bytes(), part].concat()
        };
        message.chunks(size).flat_map(record).collect()
    }

    fn judge(bytes: &[u8]) -> Result<Option<usize>, String> {
        let reason = |refusal: Refusal| refusal.outcome.reason().to_owned();
        let Some((message, end)) = message(bytes, CLIENT_HELLO, &[], None).map_err(reason)? else {
            return Ok(None);
        };
        check_hello(&message, "a.example").map_err(reason)?;
        Ok(Some(end))
    }

    #[test]
    fn hello_is_found_across_records_and_pieces() {
        let hello = hello_message(&[extension(43, &[2, 3, 4]), names(&[(0, b"A.Example")])]);
        for size in [1, 2, 3, 5, 40, 1000] {
            let bytes = records(&hello, size);
            for end in 0..bytes.len() {
                assert_eq!(judge(&bytes[..end]), Ok(None), "records of {size}, {end} bytes");
            }
            let early = [&bytes[..], &[APPLICATION_DATA, 3, 3, 0, 1, 9]].concat();
            assert_eq!(judge(&early), Ok(Some(bytes.len())), "records of {size}");
        }
    }

    #[test]
    fn hello_of_rustls_is_accepted() {
        let config = crate::tls::tls_config(&crate::tls::Trust::System).unwrap();
        let name = "a.example".try_into().unwrap();
        let mut connection = rustls::ClientConnection::new(std::sync::Arc::new(config), name).unwrap();
        let mut bytes = Vec::new();
        connection.write_tls(&mut bytes).unwrap();
        assert_eq!(judge(&bytes), Ok(Some(bytes.len())));
    }

    #[test]
    fn other_names_and_malformed_hellos_are_refused() {
        let good = names(&[(0, b"a.example")]);
        let one = |extensions: &[Vec<u8>]| records(&hello_message(extensions), 1000);
        let mut trailing = hello_message(std::slice::from_ref(&good));
        trailing.extend([0; 4]);
        let mut longer = hello_message(std::slice::from_ref(&good));
        longer.push(0);
        longer[3] += 1;
        let mut version = one(std::slice::from_ref(&good));
        version[1] = 2;
        let cases: Vec<(&str, Vec<u8>)> = vec![
            ("another name", one(&[names(&[(0, b"b.example")])])),
            ("a longer name", one(&[names(&[(0, b"a.example.b.example")])])),
            ("a dot at the end", one(&[names(&[(0, b"a.example.")])])),
            ("a null in the name", one(&[names(&[(0, b"a.example\0")])])),
            ("an empty name", one(&[names(&[(0, b"")])])),
            ("no name", one(&[])),
            ("no name, other extensions", one(&[extension(43, &[2, 3, 4])])),
            ("an empty list", one(&[extension(SERVER_NAME, &[0, 0])])),
            ("an empty extension", one(&[extension(SERVER_NAME, &[])])),
            ("two names", one(&[names(&[(0, b"a.example"), (0, b"b.example")])])),
            ("a name of another type", one(&[names(&[(1, b"a.example")])])),
            ("two extensions", one(&[good.clone(), names(&[(0, b"b.example")])])),
            ("an encrypted hello", one(&[good.clone(), extension(0xfe0d, &[0; 10])])),
            ("an encrypted name", one(&[good.clone(), extension(0xffce, &[0; 10])])),
            ("data after the hello", records(&trailing, 1000)),
            ("data after the extensions", records(&longer, 1000)),
            ("another version", version),
            ("an empty record", [&[HANDSHAKE, 3, 1, 0, 0][..], &one(std::slice::from_ref(&good))].concat()),
            (
                "a server's hello",
                records(&[&[SERVER_HELLO][..], &hello_message(&[good])[1..]].concat(), 1000),
            ),
            ("SSH", b"SSH-2.0-OpenSSH\r\n".to_vec()),
            ("HTTP", b"GET / HTTP/1.1\r\n".to_vec()),
            ("SSL 2", vec![0x80, 0x2e, 1, 0, 2]),
            ("an alert", ACCESS_DENIED.to_vec()),
            ("a huge record", vec![HANDSHAKE, 3, 1, 0xff, 0xff]),
            ("a huge message", vec![HANDSHAKE, 3, 1, 0, 4, CLIENT_HELLO, 0xff, 0xff, 0xff]),
        ];
        for (name, bytes) in cases {
            assert!(judge(&bytes).is_err(), "{name}: {:?}", judge(&bytes));
        }
    }

    #[test]
    fn second_hello_follows_other_records() {
        let hello = records(&hello_message(&[names(&[(0, b"a.example")])]), 1000);
        let bytes = [&[CHANGE_CIPHER_SPEC, 3, 3, 0, 1, 1][..], &hello].concat();
        let skipped = [CHANGE_CIPHER_SPEC, APPLICATION_DATA];
        let found = message(&bytes, CLIENT_HELLO, &skipped, None).unwrap().unwrap();
        assert_eq!(found.1, bytes.len());
        assert!(message(&bytes, CLIENT_HELLO, &[], None).is_err());
    }
}
