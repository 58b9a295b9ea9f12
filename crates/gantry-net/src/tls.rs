//! Whom a TLS connection believes: one way for gateways and for the web.

use std::path::PathBuf;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};

/// Whom to believe that they are who they say.
#[derive(Debug, Clone, Default)]
pub enum Trust {
    /// The authorities this system trusts.
    #[default]
    System,
    /// Those, and one that is given as PEM.
    And { name: PathBuf, pem: Vec<u8> },
    /// Nobody but who holds the key of this very certificate, whatever its names and times: its BLAKE3 hash in hex.
    Only { fingerprint: String },
}

/// Reads the system's certificates, which takes milliseconds; the error is a reason.
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
            roots.add(certificate).map_err(|err| refused(format!("a certificate in it is none ({err})")))?;
            found = true;
        }
        if !found {
            return Err(refused("there is no certificate in it".into()));
        }
    }
    Ok(roots)
}

/// One certificate that is known beforehand. That the other end holds its key is checked as always.
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

/// In words; the library's own show bytes.
fn pem_reason(err: &pem::Error) -> String {
    match err {
        pem::Error::MissingSectionEnd { .. } => "a certificate in it has no end".into(),
        pem::Error::IllegalSectionStart { .. } => "a line in it begins with ----- and is no PEM".into(),
        other => format!("it is not PEM ({other})"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_certificate_is_told_with_the_files_name() {
        for (pem, told) in [
            ("hello", "/etc/ca.pem: there is no certificate in it"),
            ("-----BEGIN CERTIFICATE-----\nAAAA\n", "/etc/ca.pem: a certificate in it has no end"),
            (
                "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
                "/etc/ca.pem: a certificate in it is none (",
            ),
            (
                "-----BEGIN CERTIFICATE-----\n!!!!\n-----END CERTIFICATE-----\n",
                "/etc/ca.pem: it is not PEM (",
            ),
        ] {
            let trust = Trust::And { name: "/etc/ca.pem".into(), pem: pem.into() };
            let reason = tls_config(&trust).unwrap_err();
            assert!(reason.starts_with(told), "{reason}");
        }
    }
}
