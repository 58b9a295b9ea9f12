//! `gantry sessions questions` shows what waits for a person: calls to approve, questions of agents, and plans.

use anyhow::Result;
use gantry_protocol::{
    Empty, HistoryBlock, HistoryEntry, HistoryEvent, PlanInfo, PlanList, Question, SessionList,
    SessionParams, SessionStatus, SessionsListParams, UserAsked, method,
};
use gantry_tool::QuestionText;
use serde::Serialize;
use serde_json::Value;

use super::history;
use crate::client::{Address, Client};
use crate::exit::Exit;
use crate::output::Output;

/// Sessions that one request lists.
const PAGE: u32 = 1_000;

/// A question as `--json` prints it.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct OpenQuestion<'a> {
    session_key: &'a str,
    /// The name of the session, such as the pipeline and the step.
    #[serde(skip_serializing_if = "Option::is_none")]
    label: Option<&'a str>,
    #[serde(flatten)]
    asks: Asks<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "lowercase")]
enum Asks<'a> {
    Approval(&'a Question),
    Asked(&'a UserAsked),
    Plan(&'a PlanInfo),
}

/// Shows the open questions of all sessions, and the plans that wait.
pub(super) fn show_all(address: &Address, output: &Output) -> Result<Exit> {
    let (mut waiting, mut offset) = (Vec::new(), 0);
    loop {
        let params = SessionsListParams { limit: Some(PAGE), offset: Some(offset) };
        let page: SessionList = Client::once(address, output, method::SESSIONS_LIST, &params)?;
        let is_last = page.sessions.len() < PAGE as usize;
        for session in page.sessions.into_iter().filter(|session| session.waiting) {
            let params = SessionParams { session_key: session.session_key };
            let status: SessionStatus = Client::once(address, output, method::SESSIONS_STATUS, &params)?;
            waiting.push((session.label.filter(|_| session.parent.is_none()), status));
        }
        offset += PAGE;
        if is_last {
            break;
        }
    }
    // A parent also has the questions of its children.
    let shown: Vec<String> = waiting
        .iter()
        .flat_map(|(_, status)| {
            let questions = status.questions.iter().filter_map(|question| question.child.as_ref());
            let children = questions.chain(status.asks.iter().filter_map(|asked| asked.child.as_ref()));
            children.filter(|child| child.session_key != status.session_key)
        })
        .map(|child| child.session_key.clone())
        .collect();
    waiting.retain(|(_, status)| !shown.contains(&status.session_key));
    let plans: PlanList = Client::once(address, output, method::PLANS_LIST, &Empty {})?;
    show(address, output, &waiting, &plans.plans)
}

/// Shows the open questions of sessions and their children. The journal has the whole calls.
pub(super) fn show(
    address: &Address,
    output: &Output,
    sessions: &[(Option<String>, SessionStatus)],
    plans: &[PlanInfo],
) -> Result<Exit> {
    if output.json {
        output.value(&listed(sessions, plans));
        return Ok(Exit::Success);
    }
    let is_quiet = |status: &SessionStatus| status.questions.is_empty() && status.asks.is_empty();
    if plans.is_empty() && sessions.iter().all(|(_, status)| is_quiet(status)) {
        output.done("No question is open.");
    }
    for (label, status) in sessions.iter().filter(|(_, status)| !is_quiet(status)) {
        let name = label.as_deref().or(status.child.as_ref().map(|child| child.name.as_str()));
        let name = name.map_or(String::new(), |name| format!("  {name}"));
        output.page(&output.bold(&format!("{}{name}", status.session_key)));
        for question in &status.questions {
            approval(address, output, status, question)?;
        }
        for asked in &status.asks {
            asked_user(output, status, asked);
        }
    }
    for plan in plans {
        output.page(&output.bold(&format!("plan {}  {}", plan.approval_id, plan.created_by)));
        output.page(&plan.text);
        output.page(&format!("answer it: gantry pipelines answer {} proceed", plan.approval_id));
    }
    Ok(Exit::Success)
}

fn listed<'a>(
    sessions: &'a [(Option<String>, SessionStatus)],
    plans: &'a [PlanInfo],
) -> Vec<OpenQuestion<'a>> {
    let of_sessions = sessions.iter().flat_map(|(label, status)| {
        let approvals = status.questions.iter().map(Asks::Approval);
        let asked = status.asks.iter().map(Asks::Asked);
        let name = label.as_deref().or(status.child.as_ref().map(|child| child.name.as_str()));
        let session_key = status.session_key.as_str();
        approvals.chain(asked).map(move |asks| OpenQuestion { session_key, label: name, asks })
    });
    let of_plans = plans.iter().map(|plan| OpenQuestion {
        session_key: &plan.created_by,
        label: None,
        asks: Asks::Plan(plan),
    });
    of_sessions.chain(of_plans).collect()
}

fn approval(address: &Address, output: &Output, status: &SessionStatus, question: &Question) -> Result<()> {
    let key = question.child.as_ref().map_or(&status.session_key, |child| &child.session_key);
    let text = QuestionText::new(&question.action()).whole();
    output.page(&format!("{}  {text}", output.bold(&question.id)));
    output.page(&format!("{} (rule {})", question.reason, question.rule));
    for offer in &question.offers {
        output.page(&format!("[{}] {}", offer.key, offer.label));
    }
    if let Some((name, input)) = whole_call(&history(address, output, key)?, &question.call) {
        output.page(&format!("The whole call of {name}:\n{}", whole_input(&input)));
    }
    let key = &status.session_key;
    output.page(&format!("answer it: gantry sessions answer {key} --question {} yes", question.id));
    Ok(())
}

fn asked_user(output: &Output, status: &SessionStatus, asked: &UserAsked) {
    for question in &asked.questions {
        output.page(&format!("{}  {}", output.bold(&asked.id), question.question));
        if !question.options.is_empty() {
            output.page(&format!("answers: {}", question.options.join(", ")));
        }
    }
    let (key, id) = (&status.session_key, &asked.id);
    let answers = vec!["ANSWER"; asked.questions.len().max(1)].join(" ");
    output.page(&format!("answer it: gantry sessions answer {key} --question {id} {answers}"));
}

/// Returns the name and the input of the latest call with this id.
fn whole_call(events: &[HistoryEvent], id: &str) -> Option<(String, Value)> {
    events.iter().rev().find_map(|event| match event.entry() {
        HistoryEntry::Replied { reply } => reply.message.content.into_iter().find_map(|block| match block {
            HistoryBlock::ToolUse { id: own, name, input } if own == id => Some((name, input)),
            _ => None,
        }),
        _ => None,
    })
}

/// Formats an input for reading: texts keep their line breaks.
fn whole_input(input: &Value) -> String {
    let fields = input.as_object().into_iter().flatten().map(|(name, value)| match value {
        Value::String(text) if text.contains('\n') => {
            let lines: String = text.lines().map(|line| format!("\n    {line}")).collect();
            format!("  {name}:{lines}")
        }
        Value::String(text) => format!("  {name}: {text}"),
        value => format!("  {name}: {value}"),
    });
    fields.collect::<Vec<_>>().join("\n")
}
