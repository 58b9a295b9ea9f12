//! Decides which certificates a TLS connection trusts, for gateways and for the web.

use std::path::PathBuf;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};

/// `Trust` says which certificates are trusted.
#[derive(Debug, Clone, Default)]
pub enum Trust {
    /// The system's authorities.
    #[default]
    System,
    /// The system's authorities and one given as PEM.
    And { name: PathBuf, pem: Vec<u8> },
    /// Only the holder of this certificate's key, whatever names and times it has. The value is its
    /// BLAKE3 hash in hex.
    Only { fingerprint: String },
}

/// Reads the system's certificates, which takes milliseconds. The error is a reason.
pub(crate) fn tls_config(trust: &Trust) -> Result<ClientConfig, String> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(|err| err.to_string())?;
    match trust {
        Trust::Only { fingerprint } => {
            let pinned = Pinned { fingerprint: fingerprint.clone(), provider };
            let config = config.dangerous().with_custom_certificate_verifier(Arc::new(pinned));
            Ok(config.with_no_client_auth())
        }
        Trust::System | Trust::And { .. } => {
            Ok(config.with_root_certificates(authorities(trust)?).with_no_client_auth())
        }
    }
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

/// `Pinned` accepts one certificate that is known beforehand. As always, the other end must prove
/// that it holds the key.
#[derive(Debug)]
struct Pinned {
    fingerprint: String,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        _chain: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        match blake3::hash(certificate).to_hex().as_str() == self.fingerprint {
            true => Ok(ServerCertVerified::assertion()),
            false => Err(CertificateError::ApplicationVerificationFailure.into()),
        }
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
