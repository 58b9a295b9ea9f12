//! The script of a server: turns, in Rust or as JSON.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{Heard, KEY, MODEL};
use crate::Usage;

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Script {
    pub turns: Vec<Turn>,
    pub order: Order,
    /// Whether to start again after the last turn.
    pub repeat: bool,
    /// The models it has; one if the list is empty.
    pub models: Vec<String>,
    /// The key that it expects.
    pub key: Option<String>,
    /// Whether it plays the company's own endpoint, with its extensions.
    pub first_party: bool,
    /// It refuses prompts of more tokens, at three bytes each.
    pub window: Option<usize>,
    pub quirks: Quirks,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Order {
    /// One turn after the other; each is played once.
    #[default]
    Sequence,
    /// Selects the turn by the position in the conversation: the first one before any answer of the
    /// model, the second one after one answer. The same request always gets the same turn, so a
    /// client may crash and ask again.
    ///
    /// Turns that fail do not count as a position. Each is played once, before the turn that
    /// follows it.
    Step,
}

/// `Turn` is one answer.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Turn {
    /// Applies only to requests whose last message contains this.
    pub when: Option<String>,
    pub say: Vec<Say>,
    /// The stop reason of the Messages API. By default it follows from the content.
    pub stop: Option<String>,
    pub usage: Option<Usage>,
    /// The number of characters in one delta.
    pub piece: Option<usize>,
    /// The number of bytes in each write, repeated, even if that splits a line or a character. By
    /// default each write is one event.
    pub writes: Vec<usize>,
    /// The pause before each write.
    pub pause_ms: u64,
    /// The pause before the first byte.
    pub delay_ms: u64,
    pub fail: Option<Failure>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Say {
    Text(String),
    Thinking(String),
    /// Redacted thinking.
    Redacted(String),
    Call {
        name: String,
        input: Value,
    },
    /// A call with a given id.
    CallAs {
        id: String,
        name: String,
        input: Value,
    },
    /// A call with these literal arguments.
    Malformed {
        name: String,
        arguments: String,
    },
    /// A search by the provider itself, and the answer with its source.
    Search {
        query: String,
        text: String,
    },
    /// Only pings.
    Pings {
        count: u32,
        every_ms: u64,
    },
    Wait(u64),
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Failure {
    /// An HTTP status instead of an answer.
    Status {
        status: u16,
        #[serde(default)]
        retry_after: Option<String>,
        #[serde(default)]
        message: Option<String>,
        /// The target of a redirect.
        #[serde(default)]
        location: Option<String>,
    },
    /// The connection closes before the first byte.
    Close,
    /// The connection closes after this many bytes of the stream.
    Cut(usize),
    /// The answer ends after this many bytes, as if it were complete.
    End(usize),
    /// Everything is sent, but the answer does not end.
    Linger,
    /// The server is silent after this many bytes.
    Stall(usize),
    /// The stream reports an error after this many bytes, at the end of an event.
    Error { kind: String, message: String, after: usize },
}

/// `Quirks` says how other servers than OpenAI's differ in chat completions.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Quirks {
    pub no_ids: bool,
    pub no_index: bool,
    /// Every call has the index of the first one.
    pub same_index: bool,
    pub no_usage: bool,
    pub no_done: bool,
    /// Arguments are an object, not text.
    pub whole_arguments: bool,
    /// `reasoning` replaces `reasoning_content`.
    pub reasoning: bool,
    /// The stop reason is always `stop`.
    pub always_stop: bool,
    pub crlf: bool,
    /// Text and thinking are lists of parts.
    pub content_parts: bool,
    /// Thinking is text between `<think>` tags.
    pub think_tags: bool,
    /// A call is `function_call`, as before parallel calls existed.
    pub function_call: bool,
}

impl Script {
    pub(super) fn key(&self) -> &str {
        self.key.as_deref().unwrap_or(KEY)
    }

    pub(super) fn models(&self) -> Vec<String> {
        if self.models.is_empty() { vec![MODEL.to_owned()] } else { self.models.clone() }
    }

    /// Lists the models as llama.cpp does, if there is a window to report.
    pub(super) fn listed(&self) -> impl Iterator<Item = Value> {
        let window = self.window;
        self.models().into_iter().map(move |id| match window {
            Some(window) => json!({"id": id, "meta": {"n_ctx": window}}),
            None => json!({"id": id}),
        })
    }

    pub(super) fn choose(&self, heard: &Heard, played: &mut [bool]) -> Option<&Turn> {
        let said = heard.last_text();
        let fits = |turn: &Turn| turn.when.as_ref().is_none_or(|when| said.contains(when.as_str()));
        match self.order {
            Order::Sequence => {
                let next =
                    |played: &[bool]| (0..self.turns.len()).find(|at| !played[*at] && fits(&self.turns[*at]));
                let at = next(played).or_else(|| {
                    if self.repeat {
                        played.fill(false);
                    }
                    next(played)
                })?;
                played[at] = true;
                Some(&self.turns[at])
            }
            Order::Step => {
                let messages = heard.body["messages"].as_array()?;
                let answers = messages.iter().filter(|message| message["role"] == "assistant").count();
                let places: Vec<usize> =
                    (0..self.turns.len()).filter(|at| !self.turns[*at].fails()).collect();
                let place = if self.repeat { answers.checked_rem(places.len())? } else { answers };
                let answer = *places.get(place)?;
                let before = place.checked_sub(1).map_or(0, |before| places[before] + 1);
                let at = (before..answer).find(|at| !played[*at]).unwrap_or(answer);
                played[at] = true;
                Some(&self.turns[at]).filter(|turn| fits(turn))
            }
        }
    }
}

impl From<Vec<Turn>> for Script {
    fn from(turns: Vec<Turn>) -> Script {
        Script { turns, ..Script::default() }
    }
}

impl Turn {
    pub fn say(say: Vec<Say>) -> Turn {
        Turn { say, ..Turn::default() }
    }

    pub fn text(text: impl Into<String>) -> Turn {
        Turn::say(vec![Say::Text(text.into())])
    }

    pub fn call(name: impl Into<String>, input: Value) -> Turn {
        Turn::say(vec![Say::Call { name: name.into(), input }])
    }

    pub fn fail(fail: Failure) -> Turn {
        Turn { fail: Some(fail), ..Turn::default() }
    }

    pub fn status(status: u16) -> Turn {
        Turn::fail(Failure::Status { status, retry_after: None, message: None, location: None })
    }

    pub fn failing(self, fail: Failure) -> Turn {
        Turn { fail: Some(fail), ..self }
    }

    /// Reports whether this turn gives no answer.
    fn fails(&self) -> bool {
        !matches!(self.fail, None | Some(Failure::Linger))
    }

    pub fn in_writes_of(self, bytes: usize) -> Turn {
        Turn { writes: vec![bytes], ..self }
    }

    pub fn paced(self, pause: Duration) -> Turn {
        Turn { pause_ms: u64::try_from(pause.as_millis()).unwrap_or(u64::MAX), ..self }
    }

    pub fn when(self, words: impl Into<String>) -> Turn {
        Turn { when: Some(words.into()), ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documented_script_parses() {
        let docs = include_str!("../../../../docs/models.md");
        let (_, after) = docs.split_once("echo '").unwrap();
        let (script, _) = after.split_once("' > script.json").unwrap();
        let script: Script = serde_json::from_str(script).unwrap();
        assert_eq!((script.order, script.turns.len()), (Order::Step, 3));
        assert!(matches!(script.turns[1].fail, Some(Failure::Status { status: 529, .. })));
        assert!(matches!(&script.turns[2].say[..], [Say::Thinking(_), Say::Text(_)]));
    }
}
