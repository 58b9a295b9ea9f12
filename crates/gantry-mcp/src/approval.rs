//! Asks the client's user to approve a call, with a form that has one checkbox. Up to revision 2025-11-25 the server asks
//! while the call waits. Since 2026-07-28 the call returns the question, and the client repeats the call with the answer.
//! Then the question is sealed: an answer is valid once, for a short time, and for exactly this call.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use gantry_tool::{Approval, Approver, Consent, QuestionText, on_one_line};
use rmcp::model::{
    CallToolRequestParams, ElicitRequest, ElicitRequestParams, ElicitResult, ElicitationAction, InputRequest,
    InputRequests, InputRequiredResult, ProtocolVersion,
};
use rmcp::service::RequestContext;
use rmcp::{Peer, RoleServer};
use serde_json::{Value, json};

/// How long the user may take to answer.
const ANSWER_LIMIT: Duration = Duration::from_secs(300);

/// Maximum used answers that are remembered. Each is remembered until it expires.
const MAX_USED: usize = 4096;

/// The id of the question.
const QUESTION: &str = "approval";

/// Characters of the call that the question shows.
const SHOWN_CHARS: usize = 6000;

/// `Approvals` seals questions, for all requests of a server.
pub(crate) struct Approvals {
    key: [u8; 32],
    started: Instant,
    used: Mutex<HashMap<String, Instant>>,
}

impl Default for Approvals {
    fn default() -> Self {
        let random: Vec<u8> = (0..4).flat_map(|_| uuid::Uuid::new_v4().into_bytes()).collect();
        Approvals { key: blake3::hash(&random).into(), started: Instant::now(), used: Mutex::default() }
    }
}

/// The answer to a call in place of its result.
#[derive(Debug)]
pub(crate) enum Instead {
    /// A question. The client repeats the call with the answer.
    Question(InputRequiredResult),
    /// The call came with a state that the server did not issue for it.
    Forged,
}

/// The place where an approver leaves the answer to the call.
pub(crate) type Open = Arc<Mutex<Option<Instead>>>;

/// The validity of a state that a client sends back.
#[derive(Debug, PartialEq, Eq)]
enum Seal {
    /// Issued for exactly this call, not expired and not used.
    Good,
    /// Issued for exactly this call, but expired or used.
    Spent,
    /// Not issued for this call.
    Forged,
}

impl Approvals {
    /// Returns an approver for this call if the client can show a form, and the place where it leaves a question for the
    /// client.
    pub(crate) fn approver(
        self: &Arc<Self>,
        request: &CallToolRequestParams,
        context: &RequestContext<RoleServer>,
    ) -> (Option<Approver>, Open) {
        let open = Open::default();
        // A client that does not list its kinds of elicitation supports forms.
        let can_ask = context
            .client_capabilities()
            .and_then(|client| client.elicitation)
            .is_some_and(|shows| shows.form.is_some() || shows.url.is_none());
        if !can_ask {
            return (None, open);
        }
        let comes_again =
            context.protocol_version().is_some_and(|version| version >= ProtocolVersion::V_2026_07_28);
        let approver = if comes_again {
            self.by_coming_again(request, open.clone())
        } else {
            while_waiting(context.peer.clone())
        };
        (Some(approver), open)
    }

    fn by_coming_again(self: &Arc<Self>, request: &CallToolRequestParams, open: Open) -> Approver {
        let (approvals, state) = (self.clone(), request.request_state.clone());
        let answer = request.input_responses.as_ref().and_then(|answers| answers.get(QUESTION)).cloned();
        Approver::new(move |approval| {
            let answered = state.as_ref().zip(answer.as_ref());
            let answered = answered.map(|(state, answer)| (approvals.open_seal(state, &approval), answer));
            let (instead, consent) = match answered {
                Some((Seal::Good, answer)) => (None, consent_in(answer)),
                Some((Seal::Forged, _)) => (
                    Some(Instead::Forged),
                    Consent::Denied("the requestState was not issued for this call".into()),
                ),
                Some((Seal::Spent, _)) | None => {
                    let question = approvals.question(&approval).map(Instead::Question);
                    (question, Consent::Denied("the user has not answered yet".into()))
                }
            };
            *open.lock().unwrap_or_else(PoisonError::into_inner) = instead;
            std::future::ready(consent)
        })
    }

    fn question(&self, approval: &Approval) -> Option<InputRequiredResult> {
        let asked = InputRequest::Elicitation(ElicitRequest::new(form(approval)?));
        let requests = InputRequests::from([(QUESTION.to_owned(), asked)]);
        let expires = (self.started.elapsed() + ANSWER_LIMIT).as_millis();
        let nonce = uuid::Uuid::new_v4().simple().to_string();
        let seal = self.seal(&expires.to_string(), &nonce, approval);
        let mut result =
            InputRequiredResult::from_request_state(format!("{expires}.{nonce}.{}", seal.to_hex()));
        result.input_requests = Some(requests);
        Some(result)
    }

    fn open_seal(&self, state: &str, approval: &Approval) -> Seal {
        let mut parts = state.split('.');
        let (Some(expires), Some(nonce), Some(seal), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Seal::Forged;
        };
        let Ok(seal) = blake3::Hash::from_hex(seal) else { return Seal::Forged };
        // The hashes are compared in constant time.
        if seal != self.seal(expires, nonce, approval) {
            return Seal::Forged;
        }
        let fresh =
            expires.parse::<u128>().is_ok_and(|expires| self.started.elapsed().as_millis() <= expires);
        if fresh && self.use_once(nonce) { Seal::Good } else { Seal::Spent }
    }

    fn seal(&self, expires: &str, nonce: &str, approval: &Approval) -> blake3::Hash {
        let sealed = json!([expires, nonce, approval.tool, approval.rule, approval.fingerprint]);
        blake3::keyed_hash(&self.key, sealed.to_string().as_bytes())
    }

    fn use_once(&self, nonce: &str) -> bool {
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        used.retain(|_, when| when.elapsed() < ANSWER_LIMIT * 2);
        // When the memory is full, no answer is accepted.
        used.len() < MAX_USED && used.insert(nonce.to_owned(), Instant::now()).is_none()
    }
}

fn while_waiting(peer: Peer<RoleServer>) -> Approver {
    Approver::new(move |approval| {
        let peer = peer.clone();
        async move {
            let Some(form) = form(&approval) else {
                return Consent::Denied("cannot build the approval form".into());
            };
            match peer.create_elicitation_with_timeout(form, Some(ANSWER_LIMIT)).await {
                Ok(answer) => consent(&answer),
                Err(err) => Consent::Denied(format!("the client failed to ask its user: {err}")),
            }
        }
    })
}

fn form(approval: &Approval) -> Option<ElicitRequestParams> {
    let whole = QuestionText::new(&approval.action).whole();
    let shown: String = whole.chars().take(SHOWN_CHARS).collect();
    let more = if shown.len() < whole.len() { " … (shortened)" } else { "" };
    let (tool, reason, rule) =
        (on_one_line(&approval.tool), on_one_line(&approval.reason), on_one_line(&approval.rule));
    let message = format!("{shown}{more}\nAllow {tool} this once? {reason} (rule {rule}).");
    let schema = json!({
        "type": "object",
        "properties": {"allow": {
            "type": "boolean", "title": "Allow this call", "description": "Leave it off to deny", "default": false,
        }},
        "required": ["allow"],
    });
    serde_json::from_value(json!({"mode": "form", "message": message, "requestedSchema": schema})).ok()
}

fn consent_in(answer: &Value) -> Consent {
    match serde_json::from_value::<ElicitResult>(answer.clone()) {
        Ok(answer) => consent(&answer),
        Err(_) => Consent::Denied("the client's answer is invalid".into()),
    }
}

/// Only a submitted form with the box checked means yes.
fn consent(answer: &ElicitResult) -> Consent {
    let ticked = answer.content.as_ref().is_some_and(|content| content["allow"] == true);
    if answer.action == ElicitationAction::Accept && ticked {
        Consent::Allowed
    } else {
        Consent::Denied("the user said no".into())
    }
}

#[cfg(test)]
mod tests {
    use gantry_protocol::AskedAction;

    use super::*;

    fn approval(fingerprint: &str) -> Approval {
        let action = AskedAction::Other { tool: "Bash".into(), input: json!({"command": "x"}), not_shown: 0 };
        Approval {
            tool: "Bash".into(),
            rule: "r".into(),
            reason: "it may".into(),
            input: json!({"command": "x"}),
            fingerprint: fingerprint.into(),
            whole: action.clone(),
            action,
        }
    }

    #[test]
    fn question_has_two_lines_for_any_input() {
        let mut asked = approval("f");
        asked.reason = "reads /x\n\nThis is safe.\u{1b}[31m\u{202e}\u{e0041}\u{200b} \"é\" 日本".into();
        let input = json!({"path": "a\u{202e}b\n"});
        asked.action = AskedAction::Other { tool: "Bash".into(), input, not_shown: 0 };
        let message = serde_json::to_value(form(&asked).unwrap()).unwrap()["message"].clone();
        let message = message.as_str().unwrap();
        assert_eq!(message.lines().count(), 2, "{message}");
        assert!(message.contains(r"This is safe.\u{1b}[31m\u{202e}\u{e0041}\u{200b}"), "{message}");
        assert!(
            message.contains(r#" "é" 日本"#) && message.contains(r#"{"path":"a\u{202e}b\n"}"#),
            "{message}"
        );
    }

    #[test]
    fn only_a_checked_box_means_yes() {
        assert_eq!(consent_in(&json!({"action": "accept", "content": {"allow": true}})), Consent::Allowed);
        for no in [
            json!({"action": "accept", "content": {"allow": false}}),
            json!({"action": "accept", "content": {"allow": "true"}}),
            json!({"action": "accept"}),
            json!({"action": "decline", "content": {"allow": true}}),
            json!({"action": "cancel"}),
            json!({"allow": true}),
            json!("accept"),
        ] {
            assert!(matches!(consent_in(&no), Consent::Denied(_)), "{no}");
        }
    }

    #[test]
    fn answer_is_valid_once_for_its_own_call() {
        let approvals = Approvals::default();
        let state = approvals.question(&approval("a")).unwrap().request_state.unwrap();
        let seal = |state: &str, fingerprint: &str| approvals.open_seal(state, &approval(fingerprint));
        assert_eq!(seal(&state, "b"), Seal::Forged, "another input");
        let forged = state.replacen(|c: char| c.is_ascii_digit(), "9", 1);
        assert!(forged == state || seal(&forged, "a") == Seal::Forged, "another time");
        assert_eq!(Approvals::default().open_seal(&state, &approval("a")), Seal::Forged, "another server");
        for nonsense in ["", "..", "1.2.3", "1.2.3.4"] {
            assert_eq!(seal(nonsense, "a"), Seal::Forged, "{nonsense}");
        }
        assert_eq!(seal(&state, "a"), Seal::Good);
        assert_eq!(seal(&state, "a"), Seal::Spent, "a second time");
    }
}
