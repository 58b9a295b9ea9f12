//! A name server with scripted answers, which counts the lookups.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};

use tokio::net::UdpSocket;

/// `Name` says what a name resolves to, depending on the number of earlier lookups.
#[derive(Debug, Clone)]
pub enum Name {
    Always(Vec<IpAddr>),
    /// The first list at the first lookup, and the second list afterwards.
    Flip(Vec<IpAddr>, Vec<IpAddr>),
    /// Alternates between the two.
    Alternate(Vec<IpAddr>, Vec<IpAddr>),
    /// Another name, with that name's addresses in the same answer.
    Alias(String, Vec<IpAddr>),
    /// Never answers.
    Stall,
    Fails,
}

/// `Names` is cheap to clone. Names that are not in it do not exist.
#[derive(Debug, Clone, Default)]
pub struct Names(Arc<Mutex<HashMap<String, Entry>>>);

#[derive(Debug)]
struct Entry {
    name: Name,
    /// The queries for IPv4 and for IPv6; each lookup asks both.
    asked: [usize; 2],
}

const A: u16 = 1;
const CNAME: u16 = 5;
const AAAA: u16 = 28;
const SERVER_FAILED: u8 = 2;
const NO_SUCH_NAME: u8 = 3;

impl Names {
    pub fn set(&self, host: &str, name: Name) {
        self.0.lock().unwrap().insert(host.to_ascii_lowercase(), Entry { name, asked: [0, 0] });
    }

    /// How many lookups there were since the name was set.
    pub fn lookups(&self, host: &str) -> usize {
        self.0.lock().unwrap().get(host).map_or(0, |entry| entry.asked[0].max(entry.asked[1]))
    }

    pub(crate) async fn serve(self, socket: UdpSocket) {
        let mut buffer = [0; 1500];
        while let Ok((length, from)) = socket.recv_from(&mut buffer).await {
            if let Some(reply) = self.reply(&buffer[..length]) {
                // The client may be gone.
                let _ = socket.send_to(&reply, from).await;
            }
        }
    }

    fn reply(&self, query: &[u8]) -> Option<Vec<u8>> {
        let (host, end) = question(query)?;
        let kind = u16::from_be_bytes([*query.get(end)?, *query.get(end + 1)?]);
        let question = query.get(12..end + 4)?;
        let mut names = self.0.lock().unwrap();
        let (code, records) = match names.get_mut(&host) {
            None => (NO_SUCH_NAME, Vec::new()),
            Some(entry) => {
                let asked = &mut entry.asked[usize::from(kind == AAAA)];
                let before = *asked;
                *asked += 1;
                match &entry.name {
                    Name::Stall => return None,
                    Name::Fails => (SERVER_FAILED, Vec::new()),
                    Name::Always(addresses) => (0, records(kind, addresses)),
                    Name::Flip(first, _) if before == 0 => (0, records(kind, first)),
                    Name::Flip(_, after) => (0, records(kind, after)),
                    Name::Alternate(even, _) if before % 2 == 0 => (0, records(kind, even)),
                    Name::Alternate(_, odd) => (0, records(kind, odd)),
                    Name::Alias(to, addresses) => {
                        let target = encoded(to);
                        let mut all = vec![record(&[0xc0, 12], CNAME, &target)];
                        let at_target = |address| {
                            let (kind, data) = data(address);
                            record(&target, kind, &data)
                        };
                        all.extend(addresses.iter().filter(|ip| kind_of(ip) == kind).map(at_target));
                        (0, all)
                    }
                }
            }
        };
        let count = u16::try_from(records.len()).ok()?;
        let mut reply = query.get(..2)?.to_vec();
        reply.extend([0x81, 0x80 | code, 0, 1]);
        reply.extend(count.to_be_bytes());
        reply.extend([0, 0, 0, 0]);
        reply.extend(question);
        reply.extend(records.concat());
        Some(reply)
    }
}

/// Returns the queried name, and where the rest begins.
fn question(query: &[u8]) -> Option<(String, usize)> {
    let mut labels = Vec::new();
    let mut at = 12;
    loop {
        let length = usize::from(*query.get(at)?);
        at += 1;
        if length == 0 {
            return Some((labels.join(".").to_ascii_lowercase(), at));
        }
        labels.push(String::from_utf8_lossy(query.get(at..at + length)?).into_owned());
        at += length;
    }
}

fn records(kind: u16, addresses: &[IpAddr]) -> Vec<Vec<u8>> {
    let wanted = addresses.iter().filter(|address| kind_of(address) == kind);
    wanted.map(|address| record(&[0xc0, 12], kind, &data(address).1)).collect()
}

/// The time to live is zero, so that every lookup comes here.
fn record(name: &[u8], kind: u16, data: &[u8]) -> Vec<u8> {
    let mut record = name.to_vec();
    record.extend(kind.to_be_bytes());
    record.extend([0, 1, 0, 0, 0, 0]);
    record.extend(u16::try_from(data.len()).unwrap().to_be_bytes());
    record.extend(data);
    record
}

fn kind_of(address: &IpAddr) -> u16 {
    if address.is_ipv4() { A } else { AAAA }
}

fn data(address: &IpAddr) -> (u16, Vec<u8>) {
    match address {
        IpAddr::V4(v4) => (A, v4.octets().to_vec()),
        IpAddr::V6(v6) => (AAAA, v6.octets().to_vec()),
    }
}

fn encoded(name: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    for label in name.split('.') {
        bytes.push(u8::try_from(label.len()).unwrap());
        bytes.extend(label.bytes());
    }
    bytes.push(0);
    bytes
}
