//! What the tests of the egress proxy share: a judge, a running proxy, and what clients send.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use gantry_net::testing::{Internet, PUBLIC};
use gantry_net::{ConnectionRecord, EgressDecision, EgressJudge, EgressOptions, EgressProxy, Wanted};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;

type Decide = Box<dyn Fn(&Wanted) -> BoxFuture<'static, EgressDecision> + Send + Sync>;

/// `TestJudge` answers from a closure, and remembers what it was asked and what ended.
pub(crate) struct TestJudge {
    decide: Decide,
    pub(crate) asked: Mutex<Vec<Wanted>>,
    pub(crate) records: Mutex<Vec<ConnectionRecord>>,
}

impl EgressJudge for TestJudge {
    fn decide(&self, wanted: Wanted) -> BoxFuture<'_, EgressDecision> {
        let decision = (self.decide)(&wanted);
        self.asked.lock().unwrap().push(wanted);
        decision
    }

    fn ended(&self, record: ConnectionRecord) {
        self.records.lock().unwrap().push(record);
    }
}

/// `Proxy` is a running proxy on loopback.
pub(crate) struct Proxy {
    pub(crate) address: SocketAddr,
    pub(crate) judge: Arc<TestJudge>,
    pub(crate) stop: CancellationToken,
    pub(crate) served: tokio::task::JoinHandle<std::io::Result<()>>,
}

pub(crate) fn allow_all(_: &Wanted) -> BoxFuture<'static, EgressDecision> {
    async { EgressDecision::Allow }.boxed()
}

pub(crate) fn start(
    options: EgressOptions,
    decide: impl Fn(&Wanted) -> BoxFuture<'static, EgressDecision> + Send + Sync + 'static,
) -> Proxy {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (asked, records) = (Mutex::default(), Mutex::default());
    let judge = Arc::new(TestJudge { decide: Box::new(decide), asked, records });
    let stop = CancellationToken::new();
    let (their_judge, their_stop) = (Arc::clone(&judge), stop.clone());
    let proxy = EgressProxy::new(options);
    let served = tokio::spawn(async move { proxy.serve(listener, their_judge, their_stop).await });
    Proxy { address, judge, stop, served }
}

impl Proxy {
    pub(crate) async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    /// Sends bytes and returns everything that comes back.
    pub(crate) async fn say(&self, bytes: &[u8]) -> String {
        let mut stream = self.connect().await;
        stream.write_all(bytes).await.unwrap();
        read_all(&mut stream).await
    }

    /// Waits for the records of all connections so far, and returns them.
    pub(crate) async fn records(&self, count: usize) -> Vec<ConnectionRecord> {
        for _ in 0..500 {
            if self.judge.records.lock().unwrap().len() >= count {
                return std::mem::take(&mut *self.judge.records.lock().unwrap());
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("{count} records were expected: {:?}", self.judge.records.lock().unwrap());
    }

    pub(crate) async fn record(&self) -> ConnectionRecord {
        let mut records = self.records(1).await;
        assert_eq!(records.len(), 1, "{records:?}");
        records.remove(0)
    }

    pub(crate) fn asked(&self) -> Vec<Wanted> {
        std::mem::take(&mut self.judge.asked.lock().unwrap())
    }
}

pub(crate) async fn read_all(stream: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    let read = stream.read_to_end(&mut bytes);
    // A connection that was cut counts as ended.
    let _ = tokio::time::timeout(Duration::from_secs(15), read).await.expect("the proxy did not close");
    String::from_utf8_lossy(&bytes).into_owned()
}

pub(crate) fn connect_head(place: &str) -> Vec<u8> {
    format!("CONNECT {place} HTTP/1.1\r\nHost: {place}\r\n\r\n").into_bytes()
}

pub(crate) fn get(host: &str, path: &str) -> Vec<u8> {
    format!("GET http://{host}{path} HTTP/1.1\r\nHost: {host}\r\n\r\n").into_bytes()
}

/// The greeting and the request in one, with a name.
pub(crate) fn socks_name(name: &str, port: u16) -> Vec<u8> {
    let mut bytes = vec![5, 1, 0, 5, 1, 0, 3, u8::try_from(name.len()).unwrap()];
    bytes.extend(name.bytes());
    bytes.extend(port.to_be_bytes());
    bytes
}

pub(crate) fn socks_address(address: IpAddr, port: u16) -> Vec<u8> {
    let mut bytes = vec![5, 1, 0, 5, 1, 0];
    match address {
        IpAddr::V4(v4) => {
            bytes.push(1);
            bytes.extend(v4.octets());
        }
        IpAddr::V6(v6) => {
            bytes.push(4);
            bytes.extend(v6.octets());
        }
    }
    bytes.extend(port.to_be_bytes());
    bytes
}

pub(crate) const SOCKS_OK: [u8; 12] = [5, 0, 5, 0, 0, 1, 0, 0, 0, 0, 0, 0];

pub(crate) fn tls_client(
    authority: &[u8],
    groups: Option<&[&'static dyn rustls::crypto::SupportedKxGroup]>,
) -> Arc<rustls::ClientConfig> {
    let mut provider = rustls::crypto::aws_lc_rs::default_provider();
    if let Some(groups) = groups {
        provider.kx_groups = groups.to_vec();
    }
    let mut roots = rustls::RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(authority) {
        roots.add(certificate.unwrap()).unwrap();
    }
    let config = rustls::ClientConfig::builder_with_provider(Arc::new(provider));
    let config = config.with_safe_default_protocol_versions().unwrap();
    Arc::new(config.with_root_certificates(roots).with_no_client_auth())
}

/// Returns the first TLS message of a client that wants this server name.
pub(crate) fn hello(name: &str) -> Vec<u8> {
    let config = tls_client(b"", None);
    let mut client = rustls::ClientConnection::new(config, name.to_owned().try_into().unwrap()).unwrap();
    let mut bytes = Vec::new();
    client.write_tls(&mut bytes).unwrap();
    bytes
}

pub(crate) fn with_www(internet: &Internet) {
    internet.public_name("www.example.com", PUBLIC[0]);
    internet.public_name("other.example.com", PUBLIC[0]);
}
