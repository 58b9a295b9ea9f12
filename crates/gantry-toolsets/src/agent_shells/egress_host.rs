//! `EgressHost` is one entry of `egress.allow`.

use gantry_net::{HostPattern, HostPatternError, LOOPBACK_SERVICE, Wanted};

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EgressHost {
    Host(HostPattern),
    /// A port of this machine's loopback.
    LoopbackService(u16),
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EgressHostError {
    #[error(transparent)]
    Host(#[from] HostPatternError),
    #[error("\"{0}\" is not valid; name one port, such as host.gantry.internal:5432")]
    LoopbackPort(String),
}

impl EgressHost {
    pub fn parse(text: &str) -> Result<EgressHost, EgressHostError> {
        let service = text.strip_prefix(LOOPBACK_SERVICE);
        if let Some(rest) = service.filter(|rest| rest.is_empty() || rest.starts_with(':')) {
            let port = rest.strip_prefix(':').and_then(|port| port.parse().ok()).filter(|port| *port != 0);
            let wrong = || EgressHostError::LoopbackPort(text.chars().take(200).collect());
            return port.map(EgressHost::LoopbackService).ok_or_else(wrong);
        }
        Ok(EgressHost::Host(HostPattern::parse(text)?))
    }

    /// Whether the entry names a host, which web tools may reach too.
    pub(crate) fn matches_host(&self, host: &str) -> bool {
        matches!(self, EgressHost::Host(pattern) if pattern.matches(host))
    }

    /// A pattern such as `*.internal` does not match services on the loopback.
    pub(super) fn matches(&self, wanted: &Wanted) -> bool {
        match self {
            EgressHost::Host(pattern) => !wanted.loopback_service && pattern.matches(&wanted.host),
            EgressHost::LoopbackService(port) => wanted.loopback_service && wanted.port == *port,
        }
    }
}

impl std::fmt::Display for EgressHost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            EgressHost::Host(pattern) => pattern.fmt(f),
            EgressHost::LoopbackService(port) => write!(f, "{LOOPBACK_SERVICE}:{port}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use gantry_net::WantedKind;

    use super::*;

    #[test]
    fn loopback_services_need_their_own_entry_with_a_port() {
        let wanted = |host: &str, port| Wanted {
            host: host.into(),
            port,
            kind: WantedKind::Connect,
            loopback_service: host == LOOPBACK_SERVICE,
        };
        let matches =
            |entry: &str, host, port| EgressHost::parse(entry).unwrap().matches(&wanted(host, port));
        assert!(matches("host.gantry.internal:5432", LOOPBACK_SERVICE, 5432));
        assert!(!matches("host.gantry.internal:5432", LOOPBACK_SERVICE, 5433));
        assert!(!matches("*.gantry.internal", LOOPBACK_SERVICE, 5432));
        assert!(matches("*.example.com", "api.example.com", 443));
        assert!(!matches("*.example.com", "example.com", 443));
        for wrong in ["host.gantry.internal", "host.gantry.internal:0", "host.gantry.internal:x", "a b", ""] {
            assert!(EgressHost::parse(wrong).is_err(), "{wrong}");
        }
        assert_eq!(
            EgressHost::parse("host.gantry.internal:1").unwrap().to_string(),
            "host.gantry.internal:1"
        );
    }
}
