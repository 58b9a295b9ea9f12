//! The gateway's certificate, and whether its dates are valid.

use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{CertificateError, Error, RootCertStore};

/// `Certificate` is the certificate that the gateway shows. Its issuers are not part of it.
pub struct Certificate(CertificateDer<'static>);

impl Certificate {
    pub(crate) fn from_der(certificate: CertificateDer<'static>) -> Certificate {
        Certificate(certificate)
    }

    /// Returns why the certificate is not valid today, such as "expired 3 days ago".
    pub fn validity_problem(&self) -> Option<String> {
        let error = self.verify().err()?;
        let Error::InvalidCertificate(reason) = error else { return None };
        match reason {
            CertificateError::ExpiredContext { time, not_after } => {
                Some(format!("expired {} ago", days(time, not_after)))
            }
            CertificateError::Expired => Some("has expired".into()),
            CertificateError::NotValidYetContext { time, not_before } => {
                Some(format!("is not valid for another {}", days(not_before, time)))
            }
            CertificateError::NotValidYet => Some("is not valid yet".into()),
            // Issuer and names are for clients to check.
            _ => None,
        }
    }

    /// Verifies the certificate with itself as root. The dates are checked before anything else.
    fn verify(&self) -> Result<(), Error> {
        let mut roots = RootCertStore::empty();
        roots.add(self.0.clone())?;
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider)
            .build()
            .map_err(|err| Error::General(err.to_string()))?;
        let name = ServerName::try_from("localhost").map_err(|err| Error::General(err.to_string()))?;
        verifier.verify_server_cert(&self.0, &[], &name, &[], UnixTime::now()).map(drop)
    }
}

fn days(later: UnixTime, earlier: UnixTime) -> String {
    match later.as_secs().saturating_sub(earlier.as_secs()) / (24 * 3600) {
        0 => "less than a day".into(),
        1 => "1 day".into(),
        days => format!("{days} days"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(from: i32, to: i32) -> Certificate {
        let key = rcgen::KeyPair::generate().unwrap();
        let mut params = rcgen::CertificateParams::new(["gantry.example".to_owned()]).unwrap();
        params.not_before = rcgen::date_time_ymd(from, 1, 1);
        params.not_after = rcgen::date_time_ymd(to, 1, 1);
        Certificate::from_der(params.self_signed(&key).unwrap().der().clone())
    }

    #[test]
    fn only_invalid_dates_are_reported() {
        assert_eq!(made(2020, 2999).validity_problem(), None, "names and issuer are not checked");
        let expired = made(2019, 2020).validity_problem().unwrap();
        assert!(expired.starts_with("expired ") && expired.ends_with(" days ago"), "{expired}");
        let early = made(2998, 2999).validity_problem().unwrap();
        assert!(early.starts_with("is not valid for another ") && early.ends_with(" days"), "{early}");
    }
}
