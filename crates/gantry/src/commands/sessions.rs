//! `gantry sessions`: the conversations of agents; what was said, and what to do with one.

use anyhow::Result;
use clap::{Args, Subcommand};
use gantry_protocol::method;
use serde_json::{Value, json};

use crate::client::{Address, Client, Target};
use crate::commands::chat::proposal;
use crate::exit::Exit;
use crate::output::Output;
use crate::places::Places;

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

pub(crate) fn run(places: &Places, output: &Output, args: SessionsArgs) -> Result<Exit> {
    let address = Target::gateway(places, output)?;
    let ask = |method: &str, params: Value| Client::once(&address, output, method, params);
    let command = |key: &str, text: &str| -> Result<Exit> {
        // A name that is misspelled is not the name of a new one.
        ask(method::SESSIONS_STATUS, json!({ "sessionKey": key }))?;
        let answer = ask(method::SESSIONS_SEND, json!({"sessionKey": key, "message": text}))?;
        match output.json {
            true => output.value(&answer),
            false => output.line(answer["told"].as_str().unwrap_or_default()),
        }
        Ok(Exit::Success)
    };
    match args.action.unwrap_or(SessionsAction::List { limit: 50 }) {
        SessionsAction::List { limit } => {
            list(output, &ask(method::SESSIONS_LIST, json!({ "limit": limit }))?);
            Ok(Exit::Success)
        }
        SessionsAction::Show { key } => {
            let status = ask(method::SESSIONS_STATUS, json!({ "sessionKey": key }))?;
            let events = history(&address, output, &key)?;
            show(output, &status, &events);
            Ok(Exit::Success)
        }
        SessionsAction::Export { key } => {
            for event in history(&address, output, &key)? {
                output.line(&event.to_string());
            }
            Ok(Exit::Success)
        }
        SessionsAction::Reset { key } => command(&key, "/new"),
        SessionsAction::Compact { key } => command(&key, "/compact"),
        SessionsAction::Stop { key } => command(&key, "/stop"),
        SessionsAction::Answer { key, question, answers, any_arguments, hours } => {
            let scope = if any_arguments { "tool" } else { "call" };
            let mut params = match answers.as_slice() {
                [one] => json!({"sessionKey": key, "answer": one, "scope": scope}),
                several => json!({"sessionKey": key, "answers": several, "scope": scope}),
            };
            if let Some(question) = question {
                params["question"] = json!(question);
            }
            if let Some(hours) = hours {
                params["hours"] = json!(hours);
            }
            let told = ask(method::SESSIONS_ANSWER, params)?;
            match output.json {
                true => output.value(&told),
                false => output.line(told["told"].as_str().unwrap_or_default()),
            }
            Ok(Exit::Success)
        }
    }
}

/// All events of a session, page by page.
fn history(address: &Address, output: &Output, key: &str) -> Result<Vec<Value>> {
    let (mut events, mut from) = (Vec::new(), json!(0));
    loop {
        let params = json!({"sessionKey": key, "from": from});
        let mut page = Client::once(address, output, method::SESSIONS_HISTORY, params)?;
        if let Value::Array(more) = page["events"].take() {
            events.extend(more);
        }
        if page["next"].is_null() {
            return Ok(events);
        }
        from = page["next"].take();
    }
}

fn list(output: &Output, answer: &Value) {
    if output.json {
        return output.value(answer);
    }
    for session in answer["sessions"].as_array().into_iter().flatten() {
        let key = output.bold(session["sessionKey"].as_str().unwrap_or_default());
        let state = match (session["waiting"] == true, session["running"] == true) {
            (true, _) => output.yellow("waiting"),
            (false, true) => output.green("running"),
            (false, false) => output.dim("quiet"),
        };
        let label =
            ["label", "title"].into_iter().find_map(|name| session[name].as_str()).unwrap_or_default();
        let parent = session["parent"].as_str().map(|parent| output.dim(&format!("  child of {parent}")));
        let parent = parent.unwrap_or_default();
        output.line(&format!("{key}  {state}  {}{parent} {label}", time(&session["lastActivity"])));
    }
}

fn show(output: &Output, status: &Value, events: &[Value]) {
    if output.json {
        return output.value(&json!({"status": status, "events": events}));
    }
    for event in events {
        let data = &event["data"];
        let line = match event["kind"].as_str().unwrap_or_default() {
            "message_in" => Some(format!("{} {}", output.bold(&text(&data["from"])), text(&data["text"]))),
            "replied" => said(output, &data["reply"]["message"]["content"]),
            "call_ended" => {
                let failed = data["result"]["is_error"] == true;
                failed
                    .then(|| output.yellow(&format!("  failed: {}", first_text(&data["result"]["content"]))))
            }
            "call_interrupted" => Some(output.yellow("  interrupted, outcome unknown")),
            "approval_asked" => {
                Some(output.yellow(&format!("  {} asks: {}", text(&data["id"]), text(&data["reason"]))))
            }
            "approval_answered" => {
                Some(output.dim(&format!("  {} answered {}", text(&data["by"]), data["answer"]["answer"])))
            }
            "user_asked" => {
                let asked =
                    data["questions"].as_array().into_iter().flatten().map(|one| text(&one["question"]));
                let asked: Vec<String> = asked.collect();
                Some(output.yellow(&format!("  {} asks the user: {}", text(&data["id"]), asked.join(" / "))))
            }
            "user_answered" => {
                Some(output.dim(&format!("  {} answered {}", text(&data["by"]), data["answers"])))
            }
            "compacted" => Some(output.dim("  summed up")),
            "reset" => Some(output.dim(&format!("  begun anew: {}", text(&data["why"])))),
            "run_ended" if data["end"]["end"] == "failed" => Some(output.red(&text(&data["end"]["error"]))),
            _ => None,
        };
        if let Some(line) = line.filter(|line| !line.is_empty()) {
            output.page(&format!("{} {line}", output.dim(&time(&event["at"]))));
        }
    }
    for question in status["questions"].as_array().into_iter().flatten() {
        let id = text(&question["id"]);
        output.line(&output.yellow(&format!("{id} waits for an answer: {}", proposal(question))));
    }
}

/// What the model said, and what it called.
fn said(output: &Output, content: &Value) -> Option<String> {
    let blocks =
        content.as_array().into_iter().flatten().filter_map(|block| match block["type"].as_str()? {
            "text" => Some(text(&block["text"])),
            "tool_use" => {
                let input: String = block["input"].to_string().chars().take(200).collect();
                Some(output.dim(&format!("  {} {input}", text(&block["name"]))))
            }
            _ => None,
        });
    Some(blocks.collect::<Vec<_>>().join("\n"))
}

fn first_text(content: &Value) -> String {
    let first = content.as_array().and_then(|blocks| blocks.first());
    let text = first.map(|block| text(&block["text"])).unwrap_or_default();
    text.chars().take(200).collect()
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn time(ms: &Value) -> String {
    let time = ms.as_i64().and_then(|ms| jiff::Timestamp::from_millisecond(ms).ok());
    time.map_or(String::new(), |time| format!("{time:.0}"))
}
