//! Asks the gateway about connections of commands, for a call that the gateway waits for.

use gantry_link::LinkError;
use gantry_protocol::{ApprovalAnswer, AskedAction, ConnectionAsk, method, raw};
use gantry_tool::{Approver, Consent};

use crate::progress::Current;

/// Asks over the current connection. Dropping the question cancels it at the gateway.
pub(crate) fn approver(current: Current, call_id: String) -> Approver {
    Approver::new(move |approval| {
        let (current, call) = (current.clone(), call_id.clone());
        async move {
            let AskedAction::Connection { host, port, .. } = approval.whole else {
                return Consent::Denied("only connections can be asked about from a node".into());
            };
            let Some(link) = current.get() else { return std::future::pending().await };
            let asked =
                link.request(method::CONNECTION_ASK, raw(&ConnectionAsk { call, host, port }), None).await;
            match asked {
                Ok(answer) => consent(serde_json::from_str(answer.get()).ok()),
                Err(LinkError::Remote(error)) => Consent::Denied(error.message),
                // This is not an answer of a person, so the connection waits until its limit and may ask again.
                Err(LinkError::Closed(_)) => std::future::pending().await,
            }
        }
    })
}

fn consent(answer: Option<ApprovalAnswer>) -> Consent {
    match answer {
        Some(ApprovalAnswer { allow: true, .. }) => Consent::Allowed,
        Some(ApprovalAnswer { reason: Some(reason), .. }) => Consent::Denied(reason),
        _ => Consent::Denied("the gateway did not answer the question".into()),
    }
}
