//! A private internet for tests. One server answers at every address, so a connection to a closed
//! address does not fail but is counted.
//!
//! The test runs itself again inside a private network and mount namespace. It fails on machines
//! where none can be created.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    clippy::missing_panics_doc,
    reason = "a test may panic"
)]

pub mod forms;
pub mod names;
pub mod site;

use std::fmt::Write as _;
use std::io::Write as _;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio::net::{TcpListener, UdpSocket};
use tokio_rustls::TlsAcceptor;

use names::{Name, Names};
use site::{Heard, Say, Script, answer, converse};

const INSIDE: &str = "GANTRY_PRIVATE_INTERNET";
const PORTS: [u16; 3] = [80, 443, 8080];

/// The client's own addresses, which are public ones.
pub const OWN: [&str; 2] = ["11.0.0.2", "2a0f::2"];
/// Each of these addresses has a site. All other addresses have canaries.
pub const PUBLIC: [&str; 10] = [
    "93.184.216.34",
    "93.184.216.35",
    "1.1.1.1",
    "8.8.8.8",
    "172.15.255.255",
    "192.0.0.9",
    "223.255.255.255",
    "2606:2800:220:1:248:1893:25c8:1946",
    "2620:4f:8000::1",
    "2001:20::1",
];
/// The name in the certificate of the sites, which also contains the first address.
pub const CERTIFIED: &str = "*.example.com";

#[derive(Debug)]
pub struct Internet {
    pub names: Names,
    /// The requests to the sites, in order.
    pub heard: Arc<Mutex<Vec<Heard>>>,
    /// The closed addresses that were connected to.
    pub canaries: Arc<Mutex<Vec<SocketAddr>>>,
    /// The authority of the sites' certificate, as PEM.
    pub authority: Vec<u8>,
    script: Arc<Answers>,
    _outside: Outside,
}

/// Runs `inside` where only this internet exists. `test` is the full name of the calling test.
pub fn on_a_private_internet<F: Future>(test: &str, inside: impl FnOnce(Internet) -> F) {
    #[expect(clippy::disallowed_methods, reason = "the test marks that it runs inside the namespace")]
    let is_inside = std::env::var_os(INSIDE).is_some();
    if is_inside {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        runtime.unwrap().block_on(async {
            let internet = Internet::start().await;
            inside(internet).await;
        });
        return;
    }
    // Uses a user namespace if that is allowed, or root without one.
    let flags = ["-Urnm", "-nm"].into_iter().find(|flags| {
        let tried = Command::new("unshare").args([flags, "true"]).stderr(Stdio::null()).status();
        tried.expect("unshare (util-linux) is needed").success()
    });
    let flags =
        flags.expect("this machine allows no private network namespace, without which this cannot be tested");
    let again = std::env::current_exe().unwrap();
    let output = Command::new("unshare")
        .arg(flags)
        .arg(again)
        .args([test, "--exact", "--nocapture"])
        .env(INSIDE, "1")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    print!("{said}");
    assert!(output.status.success(), "{said}\n{}", String::from_utf8_lossy(&output.stderr));
    assert!(said.contains("test result: ok. 1 passed"), "there is no test called {test}");
}

impl Internet {
    async fn start() -> Internet {
        let canaries = Arc::default();
        let heard = Arc::default();
        let names = Names::default();
        let script = Arc::new(Answers(Mutex::new(Arc::new(page))));
        let outside = Outside::start();
        ip(&format!(
            "link set lo up
             link add near type veth peer name far netns {}
             addr add {}/8 dev near
             addr add {}/64 dev near nodad
             link set near up",
            outside.pid(),
            OWN[0],
            OWN[1],
        ));
        let (acceptor, authority) = certificates(&[CERTIFIED, PUBLIC[0]]);
        let servers = Servers {
            names: names.clone(),
            heard: Arc::clone(&heard),
            canaries: Arc::clone(&canaries),
            script: Arc::clone(&script),
            acceptor,
        };
        outside.serve(servers);
        ip("route add default via 11.0.0.1
            route add ::/0 via 2a0f::1");
        for port in PORTS {
            let listener = TcpListener::bind(("::", port)).await.unwrap();
            tokio::spawn(count(listener, Arc::clone(&canaries)));
        }
        // The file belongs to the system, but the mount belongs to this namespace.
        let mut resolver = tempfile();
        resolver.1.write_all(b"nameserver 11.0.0.1\noptions timeout:5 attempts:1\n").unwrap();
        let mounted = Command::new("mount").args(["--bind", &resolver.0, "/etc/resolv.conf"]).status();
        assert!(mounted.unwrap().success(), "cannot mount a resolver's configuration");
        std::fs::remove_file(&resolver.0).unwrap();
        let internet = Internet { names, heard, canaries, authority, script, _outside: outside };
        internet.wait_until_it_works().await;
        internet
    }

    /// The first packets over a new link can get lost.
    async fn wait_until_it_works(&self) {
        for public in PUBLIC {
            self.public_name("probe.test", public);
            let mut tries = 0;
            while tokio::net::TcpStream::connect("probe.test:80").await.is_err() {
                tries += 1;
                assert!(tries < 50, "{public} cannot be reached on the private internet");
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
    }

    /// Points a name to the first site, or to another one.
    pub fn public_name(&self, host: &str, address: &str) {
        self.names.set(host, Name::Always(vec![address.parse().unwrap()]));
    }

    /// Replaces what the sites answer on new connections.
    pub fn answer_with(&self, script: impl Fn(&Heard) -> Vec<Say> + Send + Sync + 'static) {
        *self.script.0.lock().unwrap() = Arc::new(script);
    }

    /// # Panics
    ///
    /// Panics if any closed address was connected to since the last call.
    pub fn assert_untouched(&self, when: &str) {
        let touched = std::mem::take(&mut *self.canaries.lock().unwrap());
        assert!(touched.is_empty(), "{when}: connected to {touched:?}");
    }
}

/// `Answers` is the script of the sites, which a test can replace.
struct Answers(Mutex<Script>);

impl std::fmt::Debug for Answers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Answers")
    }
}

async fn count(listener: TcpListener, canaries: Arc<Mutex<Vec<SocketAddr>>>) {
    while let Ok((stream, _)) = listener.accept().await {
        canaries.lock().unwrap().push(stream.local_addr().unwrap());
    }
}

/// `Outside` is the network namespace that represents everything else. It lives as long as this
/// process.
#[derive(Debug)]
struct Outside(Child);

struct Servers {
    names: Names,
    heard: Arc<Mutex<Vec<Heard>>>,
    canaries: Arc<Mutex<Vec<SocketAddr>>>,
    script: Arc<Answers>,
    acceptor: TlsAcceptor,
}

impl Outside {
    fn start() -> Outside {
        let child = Command::new("unshare").args(["-n", "sleep", "3600"]).spawn().unwrap();
        let outside = Outside(child);
        let space = |pid: &str| std::fs::read_link(format!("/proc/{pid}/ns/net")).ok();
        let own = space("self");
        for _ in 0..1000 {
            let other = space(&outside.pid().to_string());
            if other.is_some() && other != own {
                return outside;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        panic!("no second network namespace");
    }

    fn pid(&self) -> u32 {
        self.0.id()
    }

    /// Runs on a separate thread, because a thread can be in another network than the rest of its
    /// process.
    fn serve(&self, servers: Servers) {
        let space = std::fs::File::open(format!("/proc/{}/ns/net", self.pid())).unwrap();
        let (ready, is_ready) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            move_into_link_name_space(space.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
            ip(&all_address_routes());
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async move {
                servers.start().await;
                ready.send(()).unwrap();
                std::future::pending::<()>().await;
            });
        });
        is_ready.recv().expect("the servers outside did not start");
    }
}

impl Drop for Outside {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Assigns every address except the client's network to this namespace.
fn all_address_routes() -> String {
    let mut commands = "link set lo up
        link set far up
        addr add 11.0.0.1/8 dev far
        addr add 2a0f::1/64 dev far nodad\n"
        .to_owned();
    for first in (1..224).filter(|first| ![11, 127].contains(first)) {
        writeln!(commands, "route add local {first}.0.0.0/8 dev lo").unwrap();
    }
    for range in [
        "::/96",
        "64:ff9b::/32",
        "100::/16",
        "2001::/16",
        "2002::/16",
        "2606::/16",
        "2620::/16",
        "3fff::/16",
        "5f00::/16",
        "fc00::/7",
        "fec0::/10",
    ] {
        writeln!(commands, "route add local {range} dev lo").unwrap();
    }
    commands
}

impl Servers {
    async fn start(self) {
        let socket = UdpSocket::bind("11.0.0.1:53").await.unwrap();
        tokio::spawn(self.names.clone().serve(socket));
        let servers = Arc::new(self);
        for port in PORTS {
            let listener = TcpListener::bind(("::", port)).await.unwrap();
            tokio::spawn(Arc::clone(&servers).accept(listener));
        }
    }

    async fn accept(self: Arc<Self>, listener: TcpListener) {
        while let Ok((stream, _)) = listener.accept().await {
            let at = stream.local_addr().unwrap();
            let at = SocketAddr::new(at.ip().to_canonical(), at.port());
            if !PUBLIC.iter().any(|public| public.parse() == Ok(at.ip())) {
                self.canaries.lock().unwrap().push(at);
                continue;
            }
            let servers = Arc::clone(&self);
            tokio::spawn(async move {
                let script = Arc::clone(&servers.script.0.lock().unwrap());
                let heard = Arc::clone(&servers.heard);
                if at.port() == 443 {
                    // A client that does not trust the certificate disconnects.
                    if let Ok(stream) = servers.acceptor.accept(stream).await {
                        converse(stream, at, script, heard).await;
                    }
                } else {
                    converse(stream, at, script, heard).await;
                }
            });
        }
    }
}

/// Answers for every site. `/hop/302/3/www.example.com?URL` redirects three times, over the named
/// host, and finally to the URL.
fn page(heard: &Heard) -> Vec<Say> {
    let (path, last) = heard.target.split_once('?').unwrap_or((&heard.target, ""));
    let ["", "hop", status, left, over] = path.split('/').collect::<Vec<_>>()[..] else {
        return answer("200 OK", &[("Content-Type", "text/plain")], b"public");
    };
    let left: usize = left.parse().unwrap();
    let scheme = if heard.at.port() == 443 { "https" } else { "http" };
    let to = match left {
        1 => last.to_owned(),
        _ => format!("{scheme}://{over}/hop/{status}/{}/{over}?{last}", left - 1),
    };
    answer(&format!("{status} Moved"), &[("Location", &to)], b"moved")
}

/// Returns a TLS acceptor for these names, and the certificate that a client must trust, as PEM.
pub fn certificates(names: &[&str]) -> (TlsAcceptor, Vec<u8>) {
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let made = rcgen::generate_simple_self_signed(names).unwrap();
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(made.signing_key.serialize_der()));
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)
        .unwrap();
    (TlsAcceptor::from(Arc::new(config)), made.cert.pem().into_bytes())
}

fn tempfile() -> (String, std::fs::File) {
    let path = std::env::temp_dir().join(format!("gantry-resolver-{}", std::process::id()));
    let file = std::fs::File::create(&path).unwrap();
    (path.to_string_lossy().into_owned(), file)
}

/// Runs `ip` with each line.
fn ip(commands: &str) {
    let mut child = Command::new("ip")
        .args(["-batch", "-"])
        .stdin(Stdio::piped())
        .spawn()
        .expect("ip (iproute2) is needed");
    child.stdin.take().unwrap().write_all(commands.as_bytes()).unwrap();
    assert!(child.wait().unwrap().success(), "ip failed on:\n{commands}");
}

/// Parses an address, for tables.
pub fn address(text: &str) -> IpAddr {
    text.parse().unwrap()
}
