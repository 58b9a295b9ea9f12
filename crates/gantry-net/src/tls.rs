//! Whom a TLS connection believes: one way for gateways and for the web.

use std::path::PathBuf;
use std::sync::Arc;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};

/// Whom to believe that they are who they say.
#[derive(Debug, Clone, Default)]
pub enum Trust {
    /// The authorities this system trusts.
    #[default]
    System,
    /// Those, and one that is given as PEM.
    And { name: PathBuf, pem: Vec<u8> },
}

/// Reads the system's certificates, which takes milliseconds; the error is a reason.
pub(crate) fn tls_config(trust: &Trust) -> Result<ClientConfig, String> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if let Trust::And { name, pem } = trust {
        let refused = |reason: String| format!("{}: {reason}", name.display());
        let mut found = false;
        for certificate in CertificateDer::pem_slice_iter(pem) {
            let certificate = certificate.map_err(|err| refused(err.to_string()))?;
            roots.add(certificate).map_err(|err| refused(err.to_string()))?;
            found = true;
        }
        if !found {
            return Err(refused("there is no certificate in it".into()));
        }
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|err| err.to_string())?;
    Ok(config.with_root_certificates(roots).with_no_client_auth())
}
