//! Questions of nodes about connections of commands. A node can ask only for a call that the gateway waits for, and only
//! names a host and a port: the gateway writes the text that a person reads.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use gantry_link::Link;
use gantry_protocol::{ApprovalAnswer, ConnectionAsk, ErrorCode, WireError};
use gantry_tool::{AskedConnection, Autonomy, Call, Consent, Masker};

use super::Node;

/// How long a person may take. A node's connection waits 25 s.
const ANSWER_LIMIT: Duration = Duration::from_secs(30);

/// How many questions one call may ask.
const MAX_QUESTIONS: usize = 64;

/// The length of a host name in DNS.
const MAX_HOST_BYTES: usize = 253;

/// A call that the gateway waits for.
pub(super) struct WaitingCall {
    pub(super) call: Arc<Call>,
    /// The full name of the tool.
    tool: String,
    questions: Arc<AtomicUsize>,
}

impl WaitingCall {
    pub(super) fn new(call: &Arc<Call>, node: &str, tool: &str) -> WaitingCall {
        WaitingCall { call: call.clone(), tool: format!("{node}__{tool}"), questions: Arc::default() }
    }
}

impl Node {
    /// Asks the person who decides on the call whether its command may connect.
    pub(crate) async fn ask_about_connection(
        &self,
        link: &Link,
        masker: &Masker,
        ask: ConnectionAsk,
    ) -> Result<ApprovalAnswer, WireError> {
        if !is_host(&ask.host) {
            return Err(WireError::new(ErrorCode::BadParams, "`host` must be a host name or an address"));
        }
        let is_current = self.live().is_some_and(|live| live.link == *link);
        let found = self
            .waiting()
            .get(&ask.call)
            .map(|waiting| (waiting.call.clone(), waiting.tool.clone(), waiting.questions.clone()));
        let Some((call, tool, questions)) = found.filter(|_| is_current) else {
            return Err(WireError::new(ErrorCode::NotFound, "no such call is running on this node"));
        };
        let can_ask = call.principal.is_own_agent() && call.autonomy != Autonomy::Autonomous;
        let Some(approver) = call.approver.as_ref().filter(|_| can_ask) else {
            return Ok(denied("nobody can be asked"));
        };
        if questions.fetch_add(1, Ordering::Relaxed) >= MAX_QUESTIONS {
            return Ok(denied("the call has asked too many questions"));
        }
        let ConnectionAsk { host, port, .. } = &ask;
        let place = format!("{host} (port {port}) from the node {:?}", self.id());
        let labelled = call.has_both_labels();
        let asked = AskedConnection { host, port: *port, place: &place, labelled, command: None };
        let asking = approver.ask(asked.approval(masker, &call, &tool));
        let consent = tokio::select! {
            consent = tokio::time::timeout(ANSWER_LIMIT, asking) => {
                consent.unwrap_or_else(|_| Consent::Denied("the user did not answer in time".into()))
            }
            () = call.cancel.cancelled() => Consent::Denied("the call was cancelled".into()),
        };
        Ok(match consent {
            Consent::Allowed | Consent::Granted(_) => ApprovalAnswer { allow: true, reason: None },
            Consent::Denied(why) => denied(&why),
        })
    }
}

fn denied(why: &str) -> ApprovalAnswer {
    ApprovalAnswer { allow: false, reason: Some(why.to_owned()) }
}

/// Whether a text of a node can be a host. It is shown to a person, so nothing else is accepted.
fn is_host(host: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b".-_:[]".contains(&byte);
    (1..=MAX_HOST_BYTES).contains(&host.len()) && host.bytes().all(allowed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_hosts_are_shown_to_a_person() {
        for host in
            ["x.example", "192.0.2.1", "[2001:db8::1]", "xn--bcher-kva.example", "host.gantry.internal"]
        {
            assert!(is_host(host), "{host}");
        }
        for host in ["", "a b", "x\n", "X.example", "x.example/allow", "é.example", &"a".repeat(254)] {
            assert!(!is_host(host), "{host}");
        }
    }
}
