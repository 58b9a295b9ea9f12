//! One client's connection: what it wants, whether it may, and then the traffic.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep_until, timeout};

use super::exchange::{Interrupted, exchange};
use super::framing::Framing;
use super::head::RequestHead;
use super::hello::{ACCESS_DENIED, pass_hello};
use super::peer::Peer;
use super::place::{Place, Protocol};
use super::record::{EgressOutcome, OpenRecord};
use super::refusal::Refusal;
use super::relay::relay;
use super::request::{PlainRequest, UpstreamProxy, check_host};
use super::{EgressDecision, EgressJudge, Engine, QUICK_DECISION, Wanted, WantedKind, socks};
use crate::client::NetError;
use crate::connect::{Opened, proxy_authorization};
use crate::guard::own_addresses;

const CONNECTED: &[u8] = b"HTTP/1.1 200 Connection established\r\n\r\n";
const TLS_HANDSHAKE: u8 = 22;

/// Serves one connection to its end.
pub(super) async fn serve(
    engine: Arc<Engine>,
    tcp: TcpStream,
    judge: Arc<dyn EgressJudge>,
    waiting: Arc<Semaphore>,
) {
    // A failure only costs speed.
    let _ = tcp.set_nodelay(true);
    let record = OpenRecord::new(Arc::clone(&judge));
    let mut connection = Connection { engine, judge, waiting, record };
    let mut client = Peer::new(tcp);
    let outcome = match timeout(connection.engine.options.limits.head, first_byte(&mut client)).await {
        Err(_) => EgressOutcome::TimedOut { reason: "the client sent nothing".to_owned() },
        Ok(None) => EgressOutcome::ClientLeft,
        Ok(Some(socks::VERSION)) => connection.serve_socks(client).await,
        Ok(Some(_)) => connection.serve_http(client).await,
    };
    connection.record.outcome = outcome;
}

async fn first_byte(client: &mut Peer) -> Option<u8> {
    match client.fill().await {
        Ok(true) => client.ahead.first().copied(),
        Ok(false) | Err(_) => None,
    }
}

struct Connection {
    engine: Arc<Engine>,
    judge: Arc<dyn EgressJudge>,
    waiting: Arc<Semaphore>,
    record: OpenRecord,
}

impl Connection {
    async fn serve_socks(&mut self, mut client: Peer) -> EgressOutcome {
        match self.open_socks(&mut client).await {
            Ok((place, opened)) => self.tunnel(client, place, opened).await,
            Err(refusal) => {
                client.finish(&socks::failure(&refusal)).await;
                refusal.outcome
            }
        }
    }

    async fn open_socks(&mut self, client: &mut Peer) -> Result<(Place, Opened), Refusal> {
        let limit = self.engine.options.limits.head;
        let slow = |_| Refusal::slow(format!("the SOCKS5 request took longer than {limit:?}"));
        let place = timeout(limit, socks::request(client)).await.map_err(slow)??;
        let opened = self.open(client, &place, WantedKind::Socks).await?;
        client.tcp.write_all(&socks::success()).await.map_err(|_| Refusal::left())?;
        Ok((place, opened))
    }

    async fn serve_http(&mut self, mut client: Peer) -> EgressOutcome {
        let head = match self.read_head(&mut client, self.engine.options.limits.head).await {
            Ok(head) => head,
            Err(refusal) => return refuse(client, refusal, true).await,
        };
        if head.method == "CONNECT" {
            return match self.open_connect(&mut client, &head).await {
                Ok((place, opened)) => self.tunnel(client, place, opened).await,
                Err(refusal) => refuse(client, refusal, true).await,
            };
        }
        let with_body = head.method != "HEAD";
        match self.open_request(&mut client, head).await {
            Ok((request, opened)) => self.exchange(client, &request, opened).await,
            Err(refusal) => refuse(client, refusal, with_body).await,
        }
    }

    async fn read_head(&self, client: &mut Peer, limit: std::time::Duration) -> Result<RequestHead, Refusal> {
        let slow = |_| Refusal::slow(format!("the head of the request took longer than {limit:?}"));
        let bytes = timeout(limit, client.take_head()).await.map_err(slow)??;
        RequestHead::parse(&bytes)
    }

    async fn open_connect(
        &mut self,
        client: &mut Peer,
        head: &RequestHead,
    ) -> Result<(Place, Opened), Refusal> {
        let place = Place::parse(&head.target, None)?;
        check_host(head, &place, place.port)?;
        if !matches!(Framing::of(&head.headers, head.minor)?, Framing::NoBody | Framing::Length(0)) {
            return Err(Refusal::invalid("CONNECT must not have a body"));
        }
        let opened = self.open(client, &place, WantedKind::Connect).await?;
        client.tcp.write_all(CONNECTED).await.map_err(|_| Refusal::left())?;
        Ok((place, opened))
    }

    async fn open_request(
        &mut self,
        client: &mut Peer,
        head: RequestHead,
    ) -> Result<(PlainRequest, Opened), Refusal> {
        let request = PlainRequest::of(head, None)?;
        let kind = WantedKind::Http { method: request.method.clone(), path: request.path.clone() };
        let opened = self.open(client, &request.place, kind).await?;
        Ok((request, opened))
    }

    /// Checks the place, asks the judge, and connects. Nothing is looked up before the judge agreed,
    /// because a lookup already carries a name out.
    async fn open(&mut self, client: &mut Peer, place: &Place, kind: WantedKind) -> Result<Opened, Refusal> {
        let loopback_service = place.is_loopback_service();
        let wanted = Wanted { host: place.host.clone(), port: place.port, kind, loopback_service };
        self.record.wanted = Some(wanted.clone());
        place.protocol()?;
        self.check(place)?;
        self.decide(client, wanted).await?;
        self.connect(place).await
    }

    /// Makes the checks that need neither a lookup nor the judge.
    fn check(&self, place: &Place) -> Result<(), Refusal> {
        let options = &self.engine.options;
        if !place.is_loopback_service() {
            let checked = self.engine.guard.check(&place.target(), &options.policy);
            return checked.map_err(|err| Refusal::of(&err));
        }
        if !options.policy.allows(&place.host) {
            let listed = options.policy != crate::policy::NetworkPolicy::DenyAll;
            return Err(Refusal::of(&NetError::NotAllowed { host: place.host.clone(), listed }));
        }
        if options.closed_ports.contains(&place.port) {
            return Err(Refusal::closed(format!("port {} of the host belongs to Gantry itself", place.port)));
        }
        Ok(())
    }

    async fn decide(&self, client: &mut Peer, wanted: Wanted) -> Result<(), Refusal> {
        let host = wanted.host.clone();
        let limit = self.engine.options.limits.decision;
        let deadline = Instant::now() + limit;
        let mut decision = self.judge.decide(wanted);
        let mut permit = None;
        loop {
            let until =
                if permit.is_some() { deadline } else { deadline.min(Instant::now() + QUICK_DECISION) };
            tokio::select! {
                biased;
                decided = &mut decision => return match decided {
                    EgressDecision::Allow => Ok(()),
                    EgressDecision::Deny { reason } => {
                        Err(Refusal::denied(&host, format!("{host} is not allowed: {reason}")))
                    }
                },
                // A client that has only closed its sending side still gets a quick answer.
                () = client.gone(), if permit.is_some() => return Err(Refusal::left()),
                () = sleep_until(until) => {}
            }
            if Instant::now() >= deadline {
                let reason = format!("{host} is not allowed: the user did not answer within {limit:?}");
                return Err(Refusal::denied(&host, reason));
            }
            let Ok(taken) = Arc::clone(&self.waiting).try_acquire_owned() else {
                let reason = "too many connections wait for a decision; try again after some were answered";
                return Err(Refusal::busy(reason));
            };
            permit = Some(taken);
        }
    }

    async fn connect(&self, place: &Place) -> Result<Opened, Refusal> {
        if place.is_loopback_service() {
            return connect_to_loopback(place.port).await;
        }
        let closed_ports = &self.engine.options.closed_ports;
        let check = |addresses: &[SocketAddr]| {
            if !closed_ports.contains(&place.port) {
                return Ok(());
            }
            let failed = |reason: String| NetError::Connect { host: place.host.clone(), reason };
            let own = own_addresses().map_err(|err| failed(err.to_string()))?;
            let is_own = |address: &SocketAddr| {
                let ip = address.ip().to_canonical();
                ip.is_loopback() || ip.is_unspecified() || own.contains(&ip)
            };
            match addresses.iter().find(|address| is_own(address)) {
                None => Ok(()),
                Some(address) => Err(NetError::ForbiddenAddress {
                    host: place.host.clone(),
                    address: address.ip(),
                    why: "an address of this machine, and the port belongs to Gantry itself",
                }),
            }
        };
        let opened = self.engine.connector.open(&place.target(), check).await;
        opened.map_err(|err| Refusal::of(&err))
    }

    async fn tunnel(&mut self, mut client: Peer, place: Place, opened: Opened) -> EgressOutcome {
        let limits = &self.engine.options.limits;
        let protocol = match place.protocol() {
            Ok(protocol) => protocol,
            Err(refusal) => return refusal.outcome,
        };
        if protocol == Protocol::Http {
            let request = self.read_head(&mut client, limits.hello).await;
            return match request.and_then(|head| PlainRequest::of(head, Some(&place))) {
                Ok(request) => self.exchange(client, &request, opened).await,
                Err(refusal) => refuse(client, refusal, true).await,
            };
        }
        let traffic = Arc::clone(&self.record.traffic);
        let mut server = Peer::new(opened.tcp);
        if protocol == Protocol::Tls {
            let passed =
                pass_hello(&mut client, &mut server, &place.host, &traffic, limits.hello, limits.idle).await;
            if let Err(refusal) = passed {
                let speaks_tls = client.ahead.first() == Some(&TLS_HANDSHAKE);
                client.finish(if speaks_tls { &ACCESS_DENIED } else { &[] }).await;
                return refusal.outcome;
            }
        }
        match relay(&mut client, &mut server, &traffic, limits.idle).await {
            Ok(()) => EgressOutcome::Finished,
            Err(refusal) => refusal.outcome,
        }
    }

    async fn exchange(&mut self, mut client: Peer, request: &PlainRequest, opened: Opened) -> EgressOutcome {
        let options = &self.engine.options;
        let proxy = opened.is_proxied.then(|| UpstreamProxy {
            credentials: options.network.proxy.as_ref().and_then(proxy_authorization),
        });
        let traffic = Arc::clone(&self.record.traffic);
        let done =
            exchange(&mut client, request, opened.tcp, proxy.as_ref(), &traffic, options.limits.idle).await;
        match done {
            Ok(()) => {
                client.finish(&[]).await;
                EgressOutcome::Finished
            }
            Err(Interrupted { refusal, answered: false }) => {
                refuse(client, refusal, request.method != "HEAD").await
            }
            // Closing early shows the client that the answer is incomplete.
            Err(Interrupted { refusal, answered: true }) => refusal.outcome,
        }
    }
}

async fn refuse(client: Peer, refusal: Refusal, with_body: bool) -> EgressOutcome {
    client.finish(&refusal.response(with_body)).await;
    refusal.outcome
}

async fn connect_to_loopback(port: u16) -> Result<Opened, Refusal> {
    let failed =
        |err| Refusal::failed(format!("cannot connect to port {port} of the host's loopback: {err}"));
    let tcp = match TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await {
        Ok(tcp) => tcp,
        Err(err) => TcpStream::connect((Ipv6Addr::LOCALHOST, port)).await.map_err(|_| failed(err))?,
    };
    tcp.set_nodelay(true).map_err(failed)?;
    Ok(Opened { tcp, is_proxied: false })
}
