//! `gantry sessions` lists and manages the conversations of agents.

mod questions;

use anyhow::Result;
use clap::{Args, Subcommand};
use gantry_flow::relative_text;
use gantry_protocol::{
    AnswerParams, AnswerResult, ApprovalDecision, GrantScope, History, HistoryBlock, HistoryEntry,
    HistoryEvent, HistoryParams, MessageParams, RunEnd, SendResult, SessionList, SessionParams,
    SessionStatus, SessionsListParams, method,
};
use gantry_tool::QuestionText;
use serde::Serialize;

use crate::client::{Address, Client, Target};
use crate::environment::Environment;
use crate::exit::Exit;
use crate::output::Output;
use crate::table::Table;

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    gantry sessions                                  list sessions, most recent first\n  \
    gantry sessions show main                        show messages and tool calls\n  \
    gantry sessions export main > main.jsonl         export every event, one per line\n  \
    gantry sessions questions                        show the open questions of all sessions\n  \
    gantry sessions questions main                   show open questions with the whole calls\n  \
    gantry sessions answer main yes                  answer an agent's question\n  \
    gantry sessions answer main always --offer 2     allow also later calls, as the question offers\n  \
    gantry sessions reset main                       start over; the journal is kept")]
pub(crate) struct SessionsArgs {
    #[command(subcommand)]
    action: Option<SessionsAction>,
}

#[derive(Debug, Subcommand)]
enum SessionsAction {
    /// List sessions, most recent first
    List {
        /// Maximum number of sessions to list
        #[arg(long, default_value_t = 50)]
        limit: u32,
    },
    /// Show a session's state, messages and tool calls
    Show {
        /// The session's key, as `gantry sessions` lists it
        key: String,
    },
    /// Print every event of a session, one JSON object per line
    Export {
        /// The session's key, as `gantry sessions` lists it
        key: String,
    },
    /// Start over; earlier messages stay in the journal
    Reset {
        /// The session's key, as `gantry sessions` lists it
        key: String,
    },
    /// Replace earlier messages by a summary; the journal keeps them
    Compact {
        /// The session's key, as `gantry sessions` lists it
        key: String,
    },
    /// Stop the current run
    Stop {
        /// The session's key, as `gantry sessions` lists it
        key: String,
    },
    /// Show open questions, with the whole call that each is about
    Questions {
        /// The session's key, as `gantry sessions` lists it [default: all sessions]
        key: Option<String>,
    },
    /// Answer a question of an agent
    Answer {
        /// The session's key, as `gantry sessions` lists it
        key: String,
        /// Question's id [default: the only open question]
        #[arg(long, value_name = "ID")]
        question: Option<String>,
        /// yes, no or always; or one answer for each of the agent's questions
        #[arg(required = true, num_args = 1.., value_name = "ANSWER")]
        answers: Vec<String>,
        /// With always: the number of one of the question's offers
        #[arg(long, value_name = "NUMBER", conflicts_with = "any_arguments")]
        offer: Option<String>,
        /// With always: allow any arguments, not only these
        #[arg(long)]
        any_arguments: bool,
        /// With always: how many hours the approval is valid
        #[arg(long, value_name = "HOURS")]
        hours: Option<u32>,
    },
}

pub(crate) fn run(environment: &Environment, output: &Output, args: SessionsArgs) -> Result<Exit> {
    let address = Target::gateway(environment, output)?;
    let status = |key: &str| -> Result<SessionStatus> {
        let params = SessionParams { session_key: key.to_owned() };
        Client::once(&address, output, method::SESSIONS_STATUS, &params)
    };
    let command = |key: &str, text: &str| -> Result<Exit> {
        // A misspelled key must not create a new session.
        status(key)?;
        let params = MessageParams {
            session_key: Some(key.to_owned()),
            message: text.to_owned(),
            ..MessageParams::default()
        };
        let sent: SendResult = Client::once(&address, output, method::SESSIONS_SEND, &params)?;
        match &sent {
            sent if output.json => output.value(sent),
            SendResult::Command { text, .. } => output.line(text),
            _ => {}
        }
        Ok(Exit::Success)
    };
    match args.action.unwrap_or(SessionsAction::List { limit: 50 }) {
        SessionsAction::List { limit } => {
            let params = SessionsListParams { limit: Some(limit), offset: None };
            list(output, &Client::once(&address, output, method::SESSIONS_LIST, &params)?);
            Ok(Exit::Success)
        }
        SessionsAction::Show { key } => {
            let status = status(&key)?;
            let events = history(&address, output, &key)?;
            show(output, &status, &events);
            Ok(Exit::Success)
        }
        SessionsAction::Export { key } => {
            for event in history(&address, output, &key)? {
                output.line(&serde_json::to_string(&event)?);
            }
            Ok(Exit::Success)
        }
        SessionsAction::Reset { key } => command(&key, "/new"),
        SessionsAction::Compact { key } => command(&key, "/compact"),
        SessionsAction::Stop { key } => command(&key, "/stop"),
        SessionsAction::Questions { key: Some(key) } => {
            questions::show(&address, output, &[(None, status(&key)?)], &[])
        }
        SessionsAction::Questions { key: None } => questions::show_all(&address, output),
        SessionsAction::Answer { key, question, answers, offer, any_arguments, hours } => {
            let (answer, answers) = match answers.as_slice() {
                [one] => (Some(one.clone()), None),
                _ => (None, Some(answers)),
            };
            let scope = any_arguments.then_some(GrantScope::Tool);
            let params = AnswerParams {
                session_key: Some(key),
                question,
                answer,
                answers,
                offer,
                scope,
                hours,
                reach: None,
            };
            let taken: AnswerResult = Client::once(&address, output, method::SESSIONS_ANSWER, &params)?;
            match output.json {
                true => output.value(&taken),
                false => output.line(&taken.text),
            }
            Ok(Exit::Success)
        }
    }
}

/// Returns all events of a session. They are fetched page by page.
fn history(address: &Address, output: &Output, key: &str) -> Result<Vec<HistoryEvent>> {
    let mut params = HistoryParams { session_key: key.to_owned(), from: Some(0), before: None, limit: None };
    let mut events = Vec::new();
    loop {
        let page: History = Client::once(address, output, method::SESSIONS_HISTORY, &params)?;
        events.extend(page.events);
        if page.next.is_none() {
            return Ok(events);
        }
        params.from = page.next;
    }
}

fn list(output: &Output, listed: &SessionList) {
    if output.json {
        return output.value(listed);
    }
    if listed.sessions.is_empty() {
        output.note_on_terminal("There are no conversations yet. `gantry chat` starts one.");
        return;
    }
    let now = jiff::Timestamp::now().as_millisecond();
    let mut table = Table::new(["session", "state", "last activity", "begins with"]);
    for session in &listed.sessions {
        let state = match (session.waiting, session.running) {
            (true, _) => "waiting",
            (false, true) => "running",
            (false, false) => "idle",
        };
        let when = match output.is_terminal() {
            true => relative_text(session.last_activity, now),
            false => time(session.last_activity),
        };
        let mut label = session.label.clone().unwrap_or_default();
        if let Some(parent) = &session.parent {
            label.push_str(&format!(" (child of {parent})"));
        }
        table.row([session.session_key.clone(), state.to_owned(), when, label.trim().to_owned()]);
    }
    output.table(&table);
    let rest = listed.total.saturating_sub(listed.sessions.len() as u64);
    if rest > 0 {
        output.note_on_terminal(&format!("and {rest} more; --limit shows them"));
    }
}

fn show(output: &Output, status: &SessionStatus, events: &[HistoryEvent]) {
    #[derive(Serialize)]
    struct SessionReport<'a> {
        status: &'a SessionStatus,
        events: &'a [HistoryEvent],
    }
    if output.json {
        return output.value(&SessionReport { status, events });
    }
    for event in events {
        if let Some(line) = line(output, event.entry()).filter(|line| !line.is_empty()) {
            output.page(&format!("{} {line}", output.dim(&time(event.at))));
        }
    }
    for question in &status.questions {
        let text = QuestionText::new(&question.action()).whole();
        output.page(&output.yellow(&format!("{} waits for an answer: {text}", question.id)));
    }
}

/// Describes an event in one line. Returns `None` for events that are not shown.
fn line(output: &Output, entry: HistoryEntry) -> Option<String> {
    Some(match entry {
        HistoryEntry::MessageIn { from, text } => format!("{} {text}", output.bold(&from)),
        HistoryEntry::Notice { from, text } => {
            format!("{} {text}", output.yellow(&format!("notice from {from}:")))
        }
        HistoryEntry::Replied { reply } => reply_text(output, &reply.message.content),
        HistoryEntry::CallEnded { result } if result.is_error => {
            output.yellow(&format!("  failed: {}", first_text(&result.content)))
        }
        HistoryEntry::CallInterrupted { .. } => output.yellow("  interrupted, outcome unknown"),
        HistoryEntry::ApprovalAsked(asked) => {
            let question = QuestionText::new(&asked.action()).headline;
            output.yellow(&format!("  {} asks: {question} {}", asked.id, asked.reason))
        }
        HistoryEntry::ApprovalAnswered { answer, by } => {
            output.dim(&format!("  {by} answered {}", decision(&answer)))
        }
        HistoryEntry::UserAsked(asked) => {
            let questions: Vec<&str> = asked.questions.iter().map(|one| one.question.as_str()).collect();
            output.yellow(&format!("  {} asks the user: {}", asked.id, questions.join(" / ")))
        }
        HistoryEntry::UserAnswered { answers, by } => {
            output.dim(&format!("  {by} answered {}", answers.join(" / ")))
        }
        HistoryEntry::Compacted {} => output.dim("  compacted"),
        HistoryEntry::Reset { why } => output.dim(&format!("  started over: {why}")),
        HistoryEntry::RunEnded { end: RunEnd::Failed { error } } => output.red(&error),
        HistoryEntry::CallEnded { .. } | HistoryEntry::RunEnded { .. } | HistoryEntry::Other => return None,
    })
}

fn decision(answer: &ApprovalDecision) -> &'static str {
    match answer {
        ApprovalDecision::Yes => "yes",
        ApprovalDecision::No => "no",
        ApprovalDecision::Always { .. } => "always",
        ApprovalDecision::Expired => "expired",
    }
}

/// Formats a model's reply: its text and its tool calls.
fn reply_text(output: &Output, content: &[HistoryBlock]) -> String {
    let blocks = content.iter().filter_map(|block| match block {
        HistoryBlock::Text { text } => Some(text.clone()),
        HistoryBlock::ToolUse { name, input, .. } => {
            let input: String = input.to_string().chars().take(200).collect();
            Some(output.dim(&format!("  {name} {input}")))
        }
        HistoryBlock::Other => None,
    });
    blocks.collect::<Vec<_>>().join("\n")
}

fn first_text(content: &[HistoryBlock]) -> String {
    match content.first() {
        Some(HistoryBlock::Text { text }) => text.chars().take(200).collect(),
        _ => String::new(),
    }
}

fn time(ms: i64) -> String {
    jiff::Timestamp::from_millisecond(ms).map_or(String::new(), |time| format!("{time:.0}"))
}
