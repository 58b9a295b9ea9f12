//! How the gateway is reached and recognised: its addresses, its TLS key, and the domain that lets machines join.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use anyhow::Result;
use gantry_gateway::{JoinDomain, JoinParts, Nodes, PemFile, TlsFiles, TlsIdentity};
use gantry_net::{GatewayUrl, JoinAddress, Proof, lan_addresses};
use gantry_store::Database;

use crate::config::{GatewayConfig, TlsMode};
use crate::environment::{Environment, own_program};
use crate::exit::UsageError;

/// The address that the gateway listens on. It is known once it listens, because port 0 picks one.
pub(crate) type Listening = Arc<OnceLock<SocketAddr>>;

/// Returns the operator's certificate, or the gateway's own key if it listens on an address that is not loopback.
pub(crate) fn tls_identity(
    environment: &Environment,
    config: &GatewayConfig,
) -> Result<Option<Arc<TlsIdentity>>> {
    let identity = match (&config.tls_cert, &config.tls_key, config.tls) {
        (Some(_), _, TlsMode::Off) | (_, Some(_), TlsMode::Off) => {
            let message =
                "gateway.tls = \"off\" contradicts gateway.tlsCert and gateway.tlsKey; remove one of them";
            return Err(UsageError(message.into()).into());
        }
        (Some(cert), Some(key), TlsMode::Auto) => {
            let pem = |name: &PathBuf| {
                Ok::<_, anyhow::Error>(PemFile { name: name.clone(), pem: environment.read_own(name)? })
            };
            TlsIdentity::given(TlsFiles { certificates: pem(cert)?, key: pem(key)? })?
        }
        (None, None, TlsMode::Auto) if !config.listen.ip().is_loopback() => {
            TlsIdentity::own(&environment.data, names(config))?
        }
        (None, None, _) => return Ok(None),
        _ => return Err(UsageError("TLS needs both a certificate and a key".into()).into()),
    };
    Ok(Some(Arc::new(identity)))
}

/// Returns the domain that lets machines join this gateway.
pub(crate) fn join_domain(
    config: &GatewayConfig,
    nodes: &Arc<Nodes>,
    database: &Database,
    tls: Option<&Arc<TlsIdentity>>,
    listening: &Listening,
) -> Result<JoinDomain> {
    let direct = match tls {
        None => Proof::Nothing,
        Some(tls) if tls.is_own() => Proof::Key,
        Some(_) => Proof::KeyOrAuthority,
    };
    let (for_addresses, for_names) = (config.clone(), config.clone());
    let at = listening.clone();
    Ok(JoinDomain::new(JoinParts {
        nodes: nodes.clone(),
        database: database.clone(),
        tls: tls.cloned(),
        addresses: Arc::new(move || {
            let address = at.get().copied().unwrap_or(for_addresses.listen);
            addresses(&for_addresses, address, direct)
        }),
        names: Arc::new(move || names(&for_names)),
        listening: listening.clone(),
        program: program()?,
        version: env!("CARGO_PKG_VERSION").to_owned(),
    }))
}

/// The running program. On Linux this stays the same file when the one on disk is replaced by an upgrade.
fn program() -> Result<PathBuf> {
    if cfg!(target_os = "linux") { Ok(PathBuf::from("/proc/self/exe")) } else { own_program() }
}

/// Returns where other machines may reach the gateway: its public URL, then the addresses that it listens on.
fn addresses(config: &GatewayConfig, listening: SocketAddr, direct: Proof) -> Vec<JoinAddress> {
    let public = config.public_url.as_deref().and_then(|url| GatewayUrl::parse(url).ok());
    let public = public.map(|url| {
        let proof = match (url.secure, direct) {
            (false, _) => Proof::Nothing,
            (true, Proof::Nothing) => Proof::Authority,
            // A proxy may be in front, or the name may lead to this gateway directly.
            (true, _) => Proof::KeyOrAuthority,
        };
        JoinAddress { url, proof }
    });
    let hosts = match listening.ip() {
        address if address.is_loopback() => Vec::new(),
        address if address.is_unspecified() => {
            let mut found = lan_addresses().unwrap_or_else(|err| {
                tracing::warn!(error = %err, "addresses_unknown");
                Vec::new()
            });
            found.retain(|found| address.is_ipv6() || found.is_ipv4());
            found
        }
        address => vec![address],
    };
    let secure = direct != Proof::Nothing;
    let own = hosts.into_iter().map(|host| JoinAddress {
        url: GatewayUrl { secure, host: host.to_string(), port: listening.port() },
        proof: direct,
    });
    let mut all: Vec<JoinAddress> = public.into_iter().chain(own).collect();
    let mut seen = Vec::new();
    all.retain(|address| {
        let is_new = !seen.contains(&address.url);
        seen.push(address.url.clone());
        is_new
    });
    all
}

/// Returns the names for the gateway's own certificate.
fn names(config: &GatewayConfig) -> Vec<String> {
    let mut names: Vec<String> = ["localhost", "127.0.0.1", "::1"].map(str::to_owned).into();
    let listen = config.listen.ip();
    match listen.is_unspecified() {
        true => names.extend(lan_addresses().unwrap_or_default().iter().map(ToString::to_string)),
        false => names.push(listen.to_string()),
    }
    names.push(rustix::system::uname().nodename().to_string_lossy().into_owned());
    names.extend(config.hosts.iter().cloned());
    let public = config.public_url.as_deref().and_then(|url| GatewayUrl::parse(url).ok());
    names.extend(public.map(|url| url.host));
    // A certificate holds ASCII names only.
    names.retain(|name| !name.is_empty() && name.is_ascii());
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(config: &GatewayConfig, listening: &str, direct: Proof) -> Vec<(String, Proof)> {
        let found = addresses(config, listening.parse().unwrap(), direct);
        found.into_iter().map(|address| (address.url.to_string(), address.proof)).collect()
    }

    #[test]
    fn addresses_follow_from_how_the_gateway_listens() {
        let plain = GatewayConfig::default();
        assert_eq!(shown(&plain, "127.0.0.1:7770", Proof::Nothing), []);
        assert_eq!(
            shown(&plain, "192.0.2.7:7771", Proof::Key),
            [("https://192.0.2.7:7771".to_owned(), Proof::Key)]
        );
        let public = GatewayConfig {
            public_url: Some("https://gantry.example.com".into()),
            ..GatewayConfig::default()
        };
        let url = "https://gantry.example.com:443".to_owned();
        assert_eq!(shown(&public, "127.0.0.1:7770", Proof::Nothing), [(url.clone(), Proof::Authority)]);
        assert_eq!(
            shown(&public, "192.0.2.7:7770", Proof::Key),
            [(url, Proof::KeyOrAuthority), ("https://192.0.2.7:7770".to_owned(), Proof::Key)]
        );
        let same = GatewayConfig { public_url: Some("https://192.0.2.7:7770".into()), ..plain };
        assert_eq!(shown(&same, "192.0.2.7:7770", Proof::Key).len(), 1);
    }

    #[test]
    fn certificate_names_can_be_put_into_a_certificate() {
        let config = GatewayConfig {
            hosts: vec!["gäntry.example.com".into(), "gantry.example.com".into()],
            public_url: Some("https://public.example.com:8443".into()),
            ..GatewayConfig::default()
        };
        let names = names(&config);
        assert!(names.contains(&"public.example.com".into()) && names.contains(&"gantry.example.com".into()));
        rcgen::CertificateParams::new(names).unwrap();
    }
}
