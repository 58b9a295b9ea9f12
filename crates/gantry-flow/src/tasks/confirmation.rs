//! A person's yes before a task that an agent created runs unattended for the first time.

use gantry_protocol::AskedAction;
use gantry_tool::{Approval, Autonomy, Call, Consent, Masker, UNATTENDED_RULE};
use serde_json::json;

use super::definition::Task;
use super::texts::{unattended_time, unattended_work};

/// The answer to the question whether a task may run unattended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Confirmation {
    Given,
    Denied(String),
    /// Nobody can be asked now.
    Later,
}

/// Asks the person of the call, if there is one.
pub(crate) async fn ask(masker: &Masker, call: &Call, tool: &str, task: &Task) -> Confirmation {
    let Some(approver) = call.approver.as_ref().filter(|_| call.autonomy != Autonomy::Autonomous) else {
        return Confirmation::Later;
    };
    let info = task.info();
    let input = json!({
        "title": info.title, "description": info.description, "kind": info.kind, "schedule": info.schedule,
        "watch_url": info.watch_url, "watch_interval_minutes": info.watch_interval_minutes,
        "pipeline_id": info.pipeline_id, "params": task.definition.params, "agent": info.agent,
    });
    let reason = unattended_work(&info);
    let action = AskedAction::Schedule {
        what: format!("the task {:?} of the agent {}", info.title, info.agent),
        when: unattended_time(&info),
        text: info.description.unwrap_or_default(),
        not_shown: 0,
    };
    let approval = Approval::new(masker, call, tool, UNATTENDED_RULE, &reason, &input).about(masker, action);
    let answer = tokio::select! {
        answer = approver.ask(approval) => answer,
        () = call.cancel.cancelled() => return Confirmation::Later,
    };
    match answer {
        Consent::Allowed => Confirmation::Given,
        // A grant covers calls, not later work.
        Consent::Granted(_) => Confirmation::Later,
        Consent::Denied(reason) => Confirmation::Denied(reason),
    }
}
