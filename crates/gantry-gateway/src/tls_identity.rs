//! `TlsIdentity` is the key and the certificate that the gateway shows: its own long-lived key, under which it reissues
//! certificates, or the operator's files.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use gantry_net::{KeyAnnouncement, KeyPin};
use gantry_protocol::GatewayKey;
use gantry_store::DataDir;
use rcgen::{CertificateParams, DnType, KeyPair, PublicKeyData, SigningKey};
use rustls::ServerConfig;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use serde::{Deserialize, Serialize};
use tokio_rustls::TlsAcceptor;

use crate::certificate::Certificate;
use crate::gateway::now_ms;
use crate::server::{PemFile, ServeError, TlsFiles};

/// How long a certificate is valid, and how long before its end it is replaced.
const VALID_DAYS: i64 = 90;
const REPLACE_DAYS: i64 = 30;
const DAY_MS: i64 = 24 * 3600 * 1000;

pub struct TlsIdentity {
    shown: Arc<Shown>,
    /// `None` for the operator's files.
    own: Option<OwnKey>,
}

/// The key that the gateway made for itself.
struct OwnKey {
    data: DataDir,
    state: Mutex<OwnState>,
    /// Learns the key that is used after a rotation.
    on_switch: OnceLock<Box<dyn Fn(KeyPin) + Send + Sync>>,
}

struct OwnState {
    key: KeyPair,
    /// The announced key, which is not used yet.
    next: Option<KeyPair>,
    /// The names in the certificate, sorted.
    names: Vec<String>,
    expires: i64,
}

/// The stored certificate. It is used again after a restart, so that browsers keep the exception a person made.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct StoredCertificate {
    names: Vec<String>,
    expires: i64,
    pem: String,
}

impl TlsIdentity {
    /// Uses the operator's files.
    pub fn given(files: TlsFiles) -> Result<TlsIdentity, ServeError> {
        let TlsFiles { certificates, key } = files;
        let unusable = |file: &PemFile, reason: String| ServeError::Pem { file: file.name.clone(), reason };
        let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&certificates.pem).collect();
        let chain = chain.map_err(|err| unusable(&certificates, format!("the file is not PEM ({err})")))?;
        if chain.is_empty() {
            return Err(unusable(&certificates, "the file contains no certificate".into()));
        }
        let key = PrivateKeyDer::from_pem_slice(&key.pem).map_err(|err| {
            let reason = match err {
                pem::Error::NoItemsFound => "the file contains no private key".to_owned(),
                err => format!("the file is not PEM ({err})"),
            };
            unusable(&key, reason)
        })?;
        let shown = certified(chain, key).map_err(ServeError::Tls)?;
        Ok(TlsIdentity { shown: Arc::new(Shown(RwLock::new(shown))), own: None })
    }

    /// Uses the key in the data directory, which is made at first use, with a certificate for these names.
    pub fn own(data: &DataDir, names: Vec<String>) -> Result<TlsIdentity, ServeError> {
        let failed = |err: io::Error| ServeError::Tls(format!("cannot use the gateway's key: {err}"));
        let pem = data.gateway_key(|| Ok(new_key()?.serialize_pem())).map_err(failed)?;
        let key = parsed(&pem).map_err(failed)?;
        let next = data.next_gateway_key().map_err(failed)?;
        let next = next.map(|pem| parsed(&pem)).transpose().map_err(failed)?;
        let names = sorted(names);
        let now = now_ms();
        let kept = data.gateway_certificate().and_then(|text| serde_json::from_str(&text).ok());
        let is_usable = |kept: &StoredCertificate| {
            kept.names == names
                && kept.expires - now > REPLACE_DAYS * DAY_MS
                && is_for(&kept.pem, &pin_of(&key))
        };
        let stored = match kept.filter(is_usable) {
            Some(kept) => kept,
            None => issue(data, &key, names, now).map_err(failed)?,
        };
        let shown = certificate_of(&stored, &key).map_err(ServeError::Tls)?;
        let state = OwnState { key, next, names: stored.names, expires: stored.expires };
        let own = OwnKey { data: data.clone(), state: Mutex::new(state), on_switch: OnceLock::new() };
        Ok(TlsIdentity { shown: Arc::new(Shown(RwLock::new(shown))), own: Some(own) })
    }

    pub(crate) fn acceptor(&self) -> Result<TlsAcceptor, ServeError> {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|err| ServeError::Tls(err.to_string()))?
            .with_no_client_auth()
            .with_cert_resolver(self.shown.clone());
        Ok(TlsAcceptor::from(Arc::new(config)))
    }

    /// The key of the certificate in use.
    pub fn key(&self) -> Option<KeyPin> {
        KeyPin::of_certificate(self.shown.get().cert.first()?)
    }

    pub fn certificate(&self) -> Option<Certificate> {
        self.shown.get().cert.first().cloned().map(Certificate::from_der)
    }

    /// Whether the gateway made the key itself.
    pub fn is_own(&self) -> bool {
        self.own.is_some()
    }

    /// Calls `act` with the new key whenever a rotation ends.
    pub fn on_switch(&self, act: impl Fn(KeyPin) + Send + Sync + 'static) {
        if let Some(own) = &self.own {
            let _ = own.on_switch.set(Box::new(act));
        }
    }

    /// Reissues the certificate if the names changed or it ends soon. Returns whether it did.
    pub fn refresh(&self, names: Vec<String>) -> io::Result<bool> {
        let Some(own) = &self.own else { return Ok(false) };
        let (names, now) = (sorted(names), now_ms());
        let mut state = own.state();
        if state.names == names && state.expires - now > REPLACE_DAYS * DAY_MS {
            return Ok(false);
        }
        self.reissue(own, &mut state, names, now)?;
        Ok(true)
    }

    fn reissue(&self, own: &OwnKey, state: &mut OwnState, names: Vec<String>, now: i64) -> io::Result<()> {
        let stored = issue(&own.data, &state.key, names, now)?;
        let shown = certificate_of(&stored, &state.key).map_err(io::Error::other)?;
        *self.shown.0.write().unwrap_or_else(PoisonError::into_inner) = shown;
        (state.names, state.expires) = (stored.names, stored.expires);
        Ok(())
    }

    /// Makes the next key, unless there is one already. It is stored before anybody learns of it. Returns `None` if the
    /// key is the operator's.
    pub(crate) fn prepare_next(&self) -> io::Result<Option<KeyPin>> {
        let Some(own) = &self.own else { return Ok(None) };
        let mut state = own.state();
        if let Some(next) = &state.next {
            return Ok(Some(pin_of(next)));
        }
        let next = new_key()?;
        own.data.set_next_gateway_key(&next.serialize_pem())?;
        let pin = pin_of(&next);
        state.next = Some(next);
        Ok(Some(pin))
    }

    /// Returns the announcement of the next key, signed by the current one, while there is a next key.
    pub(crate) fn announcement(&self) -> Option<(KeyPin, GatewayKey)> {
        let state = self.own.as_ref()?.state();
        let next = pin_of(state.next.as_ref()?);
        let current = state.key.subject_public_key_info();
        let message = KeyAnnouncement::message(&KeyPin::of_public_key(&current), &next);
        let signature = state.key.sign(&message).ok()?;
        let announced = GatewayKey {
            current: STANDARD.encode(current),
            next: next.to_string(),
            signature: STANDARD.encode(signature),
        };
        Some((next, announced))
    }

    /// Uses the next key from now on. Open connections stay. Returns false if there is no next key.
    pub(crate) fn switch(&self) -> io::Result<bool> {
        let Some(own) = &self.own else { return Ok(false) };
        let mut state = own.state();
        if state.next.is_none() {
            return Ok(false);
        }
        own.data.use_next_gateway_key()?;
        let Some(next) = state.next.take() else { return Ok(false) };
        let pin = pin_of(&next);
        state.key = next;
        let names = state.names.clone();
        self.reissue(own, &mut state, names, now_ms())?;
        if let Some(on_switch) = own.on_switch.get() {
            on_switch(pin);
        }
        tracing::info!(key = %pin, "gateway_key_changed");
        Ok(true)
    }
}

impl OwnKey {
    fn state(&self) -> MutexGuard<'_, OwnState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The certificate for new connections.
struct Shown(RwLock<Arc<CertifiedKey>>);

impl Shown {
    fn get(&self) -> Arc<CertifiedKey> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl ResolvesServerCert for Shown {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.get())
    }
}

impl std::fmt::Debug for Shown {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Shown(…)")
    }
}

fn new_key() -> io::Result<KeyPair> {
    KeyPair::generate().map_err(io::Error::other)
}

fn parsed(pem: &str) -> io::Result<KeyPair> {
    KeyPair::from_pem(pem).map_err(|err| {
        io::Error::other(format!(
            "{err}; put the file back from a backup, or remove it and let every node join again"
        ))
    })
}

fn pin_of(key: &KeyPair) -> KeyPin {
    KeyPin::of_public_key(&key.subject_public_key_info())
}

fn is_for(pem: &str, key: &KeyPin) -> bool {
    let certificate = CertificateDer::from_pem_slice(pem.as_bytes()).ok();
    certificate
        .and_then(|certificate| KeyPin::of_certificate(&certificate))
        .is_some_and(|found| found == *key)
}

fn sorted(mut names: Vec<String>) -> Vec<String> {
    names.sort();
    names.dedup();
    names
}

/// Issues a certificate and stores it.
fn issue(data: &DataDir, key: &KeyPair, names: Vec<String>, now: i64) -> io::Result<StoredCertificate> {
    let mut params = CertificateParams::new(names.clone()).map_err(io::Error::other)?;
    params.distinguished_name.push(DnType::CommonName, "Gantry gateway");
    let expires = now + VALID_DAYS * DAY_MS;
    // A day earlier, for machines whose clock is late.
    let ((year, month, day), (end_year, end_month, end_day)) = (date(now - DAY_MS)?, date(expires)?);
    params.not_before = rcgen::date_time_ymd(year, month, day);
    params.not_after = rcgen::date_time_ymd(end_year, end_month, end_day);
    let pem = params.self_signed(key).map_err(io::Error::other)?.pem();
    let stored = StoredCertificate { names, expires, pem };
    data.set_gateway_certificate(&serde_json::to_string(&stored)?)?;
    Ok(stored)
}

/// Returns year, month and day of a time.
fn date(ms: i64) -> io::Result<(i32, u8, u8)> {
    let time = jiff::Timestamp::from_millisecond(ms).map_err(io::Error::other)?;
    let date = time.to_zoned(jiff::tz::TimeZone::UTC).date();
    Ok((i32::from(date.year()), date.month().unsigned_abs(), date.day().unsigned_abs()))
}

fn certificate_of(stored: &StoredCertificate, key: &KeyPair) -> Result<Arc<CertifiedKey>, String> {
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(stored.pem.as_bytes()).collect();
    let chain = chain.map_err(|err| err.to_string())?;
    certified(chain, PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der())))
}

/// Fails if the key does not belong to the certificate.
fn certified(
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
) -> Result<Arc<CertifiedKey>, String> {
    let provider: CryptoProvider = rustls::crypto::aws_lc_rs::default_provider();
    CertifiedKey::from_der(chain, key, &provider).map(Arc::new).map_err(|err| err.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    fn own(data: &DataDir) -> TlsIdentity {
        TlsIdentity::own(data, names(&["localhost", "192.168.1.5"])).unwrap()
    }

    fn der(identity: &TlsIdentity) -> Vec<u8> {
        identity.shown.get().cert[0].to_vec()
    }

    #[test]
    fn certificate_changes_with_the_addresses_and_the_key_stays() {
        let folder = tempfile::tempdir().unwrap();
        let data = DataDir::new(folder.path().join("data"));
        let identity = own(&data);
        let (key, first) = (identity.key().unwrap(), der(&identity));
        assert!(!identity.refresh(names(&["192.168.1.5", "localhost"])).unwrap());
        assert_eq!(der(&own(&data)), first, "a restart shows the same certificate");
        assert!(identity.refresh(names(&["localhost", "10.0.0.9"])).unwrap());
        assert_ne!(der(&identity), first);
        assert_eq!(identity.key(), Some(key));
        assert_eq!(identity.certificate().unwrap().validity_problem(), None);
    }

    #[test]
    fn certificate_is_reissued_before_it_expires() {
        let folder = tempfile::tempdir().unwrap();
        let data = DataDir::new(folder.path().join("data"));
        let identity = own(&data);
        let first = der(&identity);
        let all = || names(&["localhost", "192.168.1.5"]);
        identity.own.as_ref().unwrap().state().expires = now_ms() + (REPLACE_DAYS + 1) * DAY_MS;
        assert!(!identity.refresh(all()).unwrap());
        identity.own.as_ref().unwrap().state().expires = now_ms() + (REPLACE_DAYS - 1) * DAY_MS;
        assert!(identity.refresh(all()).unwrap());
        assert_ne!(der(&identity), first);
        // The stored certificate of a gateway that was off for long is not used either.
        let mut stored: StoredCertificate =
            serde_json::from_str(&data.gateway_certificate().unwrap()).unwrap();
        stored.expires = now_ms() + DAY_MS;
        data.set_gateway_certificate(&serde_json::to_string(&stored).unwrap()).unwrap();
        assert_ne!(der(&own(&data)), der(&identity));
    }

    #[test]
    fn next_key_is_announced_by_the_current_one_and_survives_a_restart() {
        let folder = tempfile::tempdir().unwrap();
        let data = DataDir::new(folder.path().join("data"));
        let identity = own(&data);
        let old = identity.key().unwrap();
        assert!(identity.announcement().is_none() && !identity.switch().unwrap());
        let next = identity.prepare_next().unwrap().unwrap();
        assert_eq!(identity.prepare_next().unwrap(), Some(next), "one rotation at a time");
        let restarted = own(&data);
        assert_eq!((restarted.key(), restarted.announcement().unwrap().0), (Some(old), next));
        let (_, announced) = restarted.announcement().unwrap();
        let announcement = KeyAnnouncement::parse(&announced.current, &announced.next, &announced.signature);
        assert_eq!(announcement.unwrap().verify(&[old]), Ok(()));
        let switched = Arc::new(Mutex::new(None));
        let seen = switched.clone();
        restarted.on_switch(move |key| *seen.lock().unwrap() = Some(key));
        assert!(restarted.switch().unwrap());
        assert_eq!((restarted.key(), *switched.lock().unwrap()), (Some(next), Some(next)));
        assert_eq!(own(&data).key(), Some(next));
        assert!(restarted.announcement().is_none());
    }
}
