//! Decides which certificates a TLS connection trusts, for gateways and for the web.

use std::path::PathBuf;
use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, OtherError, RootCertStore, SignatureScheme,
};

use crate::key_pin::{KeyPin, KnownKeys};

/// `Trust` says which certificates are trusted.
#[derive(Debug, Clone, Default)]
pub enum Trust {
    /// The system's authorities.
    #[default]
    System,
    /// The system's authorities and one given as PEM.
    And { name: PathBuf, pem: Vec<u8> },
    /// The holder of one of these keys, whatever names and times its certificate has. Where `or` is given, also the
    /// holder of a certificate that it trusts for the name.
    Keys { known: KnownKeys, or: Option<Box<Trust>> },
}

/// Reads the system's certificates, which takes milliseconds. The error is a reason.
pub(crate) fn tls_config(trust: &Trust) -> Result<ClientConfig, String> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(|err| err.to_string())?;
    match trust {
        Trust::Keys { known, or } => {
            let or = or.as_deref().map(|or| authority_verifier(or, provider.clone())).transpose()?;
            let pinned = Pinned { known: known.clone(), or, provider };
            let config = config.dangerous().with_custom_certificate_verifier(Arc::new(pinned));
            Ok(config.with_no_client_auth())
        }
        Trust::System | Trust::And { .. } => {
            Ok(config.with_root_certificates(authorities(trust)?).with_no_client_auth())
        }
    }
}

fn authority_verifier(
    trust: &Trust,
    provider: Arc<CryptoProvider>,
) -> Result<Arc<dyn ServerCertVerifier>, String> {
    let roots = Arc::new(authorities(trust)?);
    let verifier = WebPkiServerVerifier::builder_with_provider(roots, provider).build();
    verifier.map(|verifier| verifier as Arc<dyn ServerCertVerifier>).map_err(|err| err.to_string())
}

fn authorities(trust: &Trust) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if let Trust::And { name, pem } = trust {
        let refused = |reason: String| format!("{}: {reason}", name.display());
        let mut found = false;
        for certificate in CertificateDer::pem_slice_iter(pem) {
            let certificate = certificate.map_err(|err| refused(pem_reason(&err)))?;
            roots
                .add(certificate)
                .map_err(|err| refused(format!("it contains an invalid certificate ({err})")))?;
            found = true;
        }
        if !found {
            return Err(refused("it contains no certificate".into()));
        }
    }
    Ok(roots)
}

/// `Pinned` accepts keys that are known beforehand. As always, the other end must prove that it holds the key.
#[derive(Debug)]
struct Pinned {
    known: KnownKeys,
    or: Option<Arc<dyn ServerCertVerifier>>,
    provider: Arc<CryptoProvider>,
}

/// `OtherKey` is the error of a server that holds none of the known keys.
#[derive(Debug, thiserror::Error)]
#[error("the server has the key {found}")]
pub(crate) struct OtherKey {
    pub(crate) found: KeyPin,
}

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        chain: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let found = KeyPin::of_certificate(certificate).ok_or(CertificateError::BadEncoding)?;
        if self.known.contains(&found) {
            return Ok(ServerCertVerified::assertion());
        }
        let by_authority =
            self.or.as_ref().and_then(|or| or.verify_server_cert(certificate, chain, name, ocsp, now).ok());
        by_authority.ok_or_else(|| CertificateError::Other(OtherError(Arc::new(OtherKey { found }))).into())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signed, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signed, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

/// Describes the error in plain text, because the library's own messages show bytes.
fn pem_reason(err: &pem::Error) -> String {
    match err {
        pem::Error::MissingSectionEnd { .. } => "a certificate in it is incomplete".into(),
        pem::Error::IllegalSectionStart { .. } => "a line in it begins with ----- but is not PEM".into(),
        other => format!("it is not PEM ({other})"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_certificate_error_names_the_file() {
        for (pem, expected) in [
            ("hello", "/etc/ca.pem: it contains no certificate"),
            ("-----BEGIN CERTIFICATE-----\nAAAA\n", "/etc/ca.pem: a certificate in it is incomplete"),
            (
                "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
                "/etc/ca.pem: it contains an invalid certificate (",
            ),
            (
                "-----BEGIN CERTIFICATE-----\n!!!!\n-----END CERTIFICATE-----\n",
                "/etc/ca.pem: it is not PEM (",
            ),
        ] {
            let trust = Trust::And { name: "/etc/ca.pem".into(), pem: pem.into() };
            let reason = tls_config(&trust).unwrap_err();
            assert!(reason.starts_with(expected), "{reason}");
        }
    }
}
