//! Why a connection ended without success, in the forms that the client and the record need.

use std::fmt::Write as _;

use super::place::LOOPBACK_SERVICE;
use super::record::EgressOutcome;
use crate::client::NetError;

/// The limit for the reason in a status line. The body has the whole reason.
const MAX_PHRASE: usize = 300;

/// `Refusal` is an outcome with the codes that the client gets.
#[derive(Debug)]
pub(super) struct Refusal {
    pub(super) status: u16,
    pub(super) socks: u8,
    pub(super) outcome: EgressOutcome,
    /// How to fix it, for the client.
    hint: Option<String>,
}

pub(super) const SOCKS_NOT_ALLOWED: u8 = 2;
pub(super) const SOCKS_UNREACHABLE: u8 = 4;
pub(super) const SOCKS_GENERAL: u8 = 1;

impl Refusal {
    /// The request is malformed.
    pub(super) fn invalid(reason: impl Into<String>) -> Refusal {
        Refusal::new(400, SOCKS_GENERAL, EgressOutcome::Refused { reason: reason.into() })
    }

    pub(super) fn too_large(reason: impl Into<String>) -> Refusal {
        Refusal::new(431, SOCKS_GENERAL, EgressOutcome::Refused { reason: reason.into() })
    }

    /// A rule of the proxy closes the destination or the protocol, whatever the judge says.
    pub(super) fn closed(reason: impl Into<String>) -> Refusal {
        Refusal::new(403, SOCKS_NOT_ALLOWED, EgressOutcome::Refused { reason: reason.into() })
    }

    /// The judge denied the connection or did not answer.
    pub(super) fn denied(host: &str, reason: impl Into<String>) -> Refusal {
        let hint = format!(
            "To allow it, the operator can answer the question, grant the host, or add \"{host}\" to egress.allow in gantry.toml."
        );
        let outcome = EgressOutcome::Denied { reason: reason.into() };
        Refusal { hint: Some(hint), ..Refusal::new(403, SOCKS_NOT_ALLOWED, outcome) }
    }

    pub(super) fn busy(reason: impl Into<String>) -> Refusal {
        Refusal::new(503, SOCKS_GENERAL, EgressOutcome::Refused { reason: reason.into() })
    }

    pub(super) fn failed(reason: impl Into<String>) -> Refusal {
        Refusal::new(502, SOCKS_UNREACHABLE, EgressOutcome::Failed { reason: reason.into() })
    }

    /// The client did not send what the proxy needs in time.
    pub(super) fn slow(reason: impl Into<String>) -> Refusal {
        Refusal::new(408, SOCKS_GENERAL, EgressOutcome::TimedOut { reason: reason.into() })
    }

    pub(super) fn left() -> Refusal {
        Refusal::new(400, SOCKS_GENERAL, EgressOutcome::ClientLeft)
    }

    pub(super) fn idle() -> Refusal {
        let reason = "there was no traffic in either direction".to_owned();
        Refusal::new(504, SOCKS_GENERAL, EgressOutcome::TimedOut { reason })
    }

    fn new(status: u16, socks: u8, outcome: EgressOutcome) -> Refusal {
        Refusal { status, socks, outcome, hint: None }
    }

    pub(super) fn with_hint(mut self, hint: impl Into<String>) -> Refusal {
        self.hint = Some(hint.into());
        self
    }

    pub(super) fn with_socks(mut self, code: u8) -> Refusal {
        self.socks = code;
        self
    }

    /// Maps what the guard or the connector reports.
    pub(super) fn of(err: &NetError) -> Refusal {
        match err {
            NetError::NotAllowed { host, .. } => Refusal::denied(host, err.to_string())
                .with_hint("The operator can add it to the agent's isolation.allowedHosts in gantry.toml."),
            NetError::ForbiddenAddress { .. } | NetError::ForbiddenName { .. } => Refusal::closed(
                err.to_string(),
            )
            .with_hint(format!(
                "A service on the loopback of the host is at {LOOPBACK_SERVICE}:PORT. The operator can open \
                     other hosts with web.allowedHosts in gantry.toml."
            )),
            _ => Refusal::failed(err.to_string()),
        }
    }

    /// Returns the whole response. The status line has the reason too, because some clients show
    /// nothing else of a failed CONNECT.
    pub(super) fn response(&self, with_body: bool) -> Vec<u8> {
        let reason = self.outcome.reason();
        let mut body = format!("Gantry's egress proxy: {reason}\n");
        if let Some(hint) = &self.hint {
            body.push_str(hint);
            body.push('\n');
        }
        let mut head = format!("HTTP/1.1 {} {}\r\n", self.status, phrase(reason));
        let _ = write!(
            head,
            "Content-Type: text/plain; charset=utf-8\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
            body.len()
        );
        if with_body {
            head.push_str(&body);
        }
        head.into_bytes()
    }
}

/// Returns the reason in one line of printable ASCII.
fn phrase(reason: &str) -> String {
    let printable = |ch: char| if ch == ' ' || ch.is_ascii_graphic() { ch } else { '?' };
    reason.chars().take(MAX_PHRASE).map(printable).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reason_cannot_break_the_status_line() {
        let refusal = Refusal::denied("a.example", "no\r\nX-Injected: 1\r\n\r\n<é>");
        let response = String::from_utf8(refusal.response(true)).unwrap();
        let (head, body) = response.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 403 no??X-Injected: 1????<?>\r\n"), "{head}");
        assert!(!head.contains("\nX-Injected"), "{head}");
        assert!(body.contains("add \"a.example\" to egress.allow"), "{body}");
        assert!(head.contains(&format!("Content-Length: {}\r\n", body.len())), "{head}");
        assert!(refusal.response(false).ends_with(b"\r\n\r\n"));
    }
}
