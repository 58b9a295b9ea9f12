//! `gantry sessions`: the conversations of agents; what was said, and what to do with one.

use anyhow::Result;
use clap::{Args, Subcommand};
use gantry_protocol::{
    AnswerParams, AnswerResult, ApprovalDecision, GrantScope, History, HistoryBlock, HistoryEntry,
    HistoryEvent, HistoryParams, MessageParams, RunEnd, SendResult, SessionList, SessionParams,
    SessionStatus, SessionsListParams, method,
};
use serde::Serialize;

use crate::client::{Address, Client, Target};
use crate::commands::chat::proposal;
use crate::environment::Environment;
use crate::exit::Exit;
use crate::output::Output;

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    gantry sessions                                  the last active first\n  \
    gantry sessions show main                        what was said and done\n  \
    gantry sessions export main > main.jsonl         everything, one event a line\n  \
    gantry sessions answer main yes                  answer what an agent asks\n  \
    gantry sessions reset main                       begin anew; what was said is kept")]
pub(crate) struct SessionsArgs {
    #[command(subcommand)]
    action: Option<SessionsAction>,
}

#[derive(Debug, Subcommand)]
enum SessionsAction {
    /// The sessions, the last active first
    List {
        /// At most this many
        #[arg(long, default_value_t = 50)]
        limit: u32,
    },
    /// How a session is, and what was said and done in it
    Show {
        /// The session's key, as `gantry sessions` lists it
        key: String,
    },
    /// Everything that happened in a session, one JSON event a line
    Export {
        /// The session's key, as `gantry sessions` lists it
        key: String,
    },
    /// Begin anew; what was said before stays in the journal
    Reset {
        /// The session's key, as `gantry sessions` lists it
        key: String,
    },
    /// Replace what was said by a summary; the whole stays in the journal
    Compact {
        /// The session's key, as `gantry sessions` lists it
        key: String,
    },
    /// End the run that is under way
    Stop {
        /// The session's key, as `gantry sessions` lists it
        key: String,
    },
    /// Answer a question that an agent waits for
    Answer {
        /// The session's key, as `gantry sessions` lists it
        key: String,
        /// The question's id; may be left out while only one is open
        #[arg(long, value_name = "ID")]
        question: Option<String>,
        /// yes, no or always; or what the agent wants to know, one for each of its questions
        #[arg(required = true, num_args = 1.., value_name = "ANSWER")]
        answers: Vec<String>,
        /// For always: with any arguments, not only these
        #[arg(long)]
        any_arguments: bool,
        /// For always: how long it counts
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
        // A name that is misspelled is not the name of a new one.
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
        SessionsAction::Answer { key, question, answers, any_arguments, hours } => {
            let (answer, answers) = match answers.as_slice() {
                [one] => (Some(one.clone()), None),
                _ => (None, Some(answers)),
            };
            let scope = Some(if any_arguments { GrantScope::Tool } else { GrantScope::Call });
            let params = AnswerParams { session_key: Some(key), question, answer, answers, scope, hours };
            let taken: AnswerResult = Client::once(&address, output, method::SESSIONS_ANSWER, &params)?;
            match output.json {
                true => output.value(&taken),
                false => output.line(&taken.text),
            }
            Ok(Exit::Success)
        }
    }
}

/// All events of a session, page by page.
fn history(address: &Address, output: &Output, key: &str) -> Result<Vec<HistoryEvent>> {
    let mut params = HistoryParams { session_key: key.to_owned(), from: Some(0), limit: None };
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
    for session in &listed.sessions {
        let key = output.bold(&session.session_key);
        let state = match (session.waiting, session.running) {
            (true, _) => output.yellow("waiting"),
            (false, true) => output.green("running"),
            (false, false) => output.dim("quiet"),
        };
        let label = session.label.as_deref().unwrap_or_default();
        let parent = session.parent.as_ref().map(|parent| output.dim(&format!("  child of {parent}")));
        let parent = parent.unwrap_or_default();
        output.line(&format!("{key}  {state}  {}{parent} {label}", time(session.last_activity)));
    }
}

fn show(output: &Output, status: &SessionStatus, events: &[HistoryEvent]) {
    #[derive(Serialize)]
    struct Shown<'a> {
        status: &'a SessionStatus,
        events: &'a [HistoryEvent],
    }
    if output.json {
        return output.value(&Shown { status, events });
    }
    for event in events {
        if let Some(line) = line(output, event.entry()).filter(|line| !line.is_empty()) {
            output.page(&format!("{} {line}", output.dim(&time(event.at))));
        }
    }
    for question in &status.questions {
        let text = format!("{} waits for an answer: {}", question.id, proposal(question));
        output.line(&output.yellow(&text));
    }
}

/// A line about an event, if people need one.
fn line(output: &Output, entry: HistoryEntry) -> Option<String> {
    Some(match entry {
        HistoryEntry::MessageIn { from, text } => format!("{} {text}", output.bold(&from)),
        HistoryEntry::Replied { reply } => said(output, &reply.message.content),
        HistoryEntry::CallEnded { result } if result.is_error => {
            output.yellow(&format!("  failed: {}", first_text(&result.content)))
        }
        HistoryEntry::CallInterrupted { .. } => output.yellow("  interrupted, outcome unknown"),
        HistoryEntry::ApprovalAsked(asked) => {
            output.yellow(&format!("  {} asks: {}", asked.id, asked.reason))
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
        HistoryEntry::Compacted {} => output.dim("  summed up"),
        HistoryEntry::Reset { why } => output.dim(&format!("  begun anew: {why}")),
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

/// What the model said, and what it called.
fn said(output: &Output, content: &[HistoryBlock]) -> String {
    let blocks = content.iter().filter_map(|block| match block {
        HistoryBlock::Text { text } => Some(text.clone()),
        HistoryBlock::ToolUse { name, input } => {
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
