//! What a scripted server says: turns, as Rust or as JSON.

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
    /// Begin again after the last turn.
    pub repeat: bool,
    /// The models it has; one if there are none.
    pub models: Vec<String>,
    /// The key it wants to see.
    pub key: Option<String>,
    /// It is the company's own endpoint, and knows what only that knows.
    pub first_party: bool,
    /// Tokens of a prompt, at three bytes each, above which it refuses.
    pub window: Option<usize>,
    pub quirks: Quirks,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Order {
    /// One turn after the other; each is played once.
    #[default]
    Sequence,
    /// The turn that stands where the conversation does: after no answer of the model the first one, after one the second.
    /// The same request always gets the same turn, so whoever asks may die and ask again. Turns that fail take no place: each
    /// is played once, before the turn that follows it.
    Step,
}

/// One answer.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Turn {
    /// Only for requests whose last message holds this.
    pub when: Option<String>,
    pub say: Vec<Say>,
    /// In the Messages API's words; by what was said if there is none.
    pub stop: Option<String>,
    pub usage: Option<Usage>,
    /// Characters in one delta.
    pub piece: Option<usize>,
    /// Bytes in each write, over and over, wherever that cuts a line or a character; an event each if there are none.
    pub writes: Vec<usize>,
    /// Before each write.
    pub pause_ms: u64,
    /// Before the first byte.
    pub delay_ms: u64,
    pub fail: Option<Failure>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Say {
    Text(String),
    Thinking(String),
    /// Thoughts that nobody may read.
    Redacted(String),
    Call {
        name: String,
        input: Value,
    },
    /// A call with an id of its own.
    CallAs {
        id: String,
        name: String,
        input: Value,
    },
    /// A call whose arguments are what is written here.
    Malformed {
        name: String,
        arguments: String,
    },
    /// A search that the provider makes itself, and the answer with its source.
    Search {
        query: String,
        text: String,
    },
    /// Nothing but signs of life.
    Pings {
        count: u32,
        every_ms: u64,
    },
    Wait(u64),
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Failure {
    /// Instead of an answer.
    Status {
        status: u16,
        #[serde(default)]
        retry_after: Option<String>,
        #[serde(default)]
        message: Option<String>,
        /// Where a redirect leads.
        #[serde(default)]
        location: Option<String>,
    },
    /// The connection ends before a word.
    Close,
    /// It ends after so many bytes of the stream.
    Cut(usize),
    /// The answer ends after so many bytes, as if it were whole.
    End(usize),
    /// Everything is said, but the answer does not end.
    Linger,
    /// Silence after so many bytes.
    Stall(usize),
    /// An error in the stream after so many bytes, at the end of an event.
    Error { kind: String, message: String, after: usize },
}

/// How other servers than OpenAI's speak chat completions.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Quirks {
    pub no_ids: bool,
    pub no_index: bool,
    /// Every call is the first one.
    pub same_index: bool,
    pub no_usage: bool,
    pub no_done: bool,
    /// Arguments as an object, not as text.
    pub whole_arguments: bool,
    /// `reasoning` in place of `reasoning_content`.
    pub reasoning: bool,
    /// `stop`, whatever the reason was.
    pub always_stop: bool,
    pub crlf: bool,
    /// Text and thoughts as lists of parts.
    pub content_parts: bool,
    /// Thoughts as text between `<think>` tags.
    pub think_tags: bool,
    /// A call as `function_call`, as before there were several at once.
    pub function_call: bool,
}

impl Script {
    pub(super) fn key(&self) -> &str {
        self.key.as_deref().unwrap_or(KEY)
    }

    pub(super) fn models(&self) -> Vec<String> {
        if self.models.is_empty() { vec![MODEL.to_owned()] } else { self.models.clone() }
    }

    /// As llama.cpp lists them, if there is a window to tell.
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

    /// Whether it gives no answer.
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
    fn the_documented_script_is_one() {
        let docs = include_str!("../../../../docs/models.md");
        let (_, after) = docs.split_once("echo '").unwrap();
        let (script, _) = after.split_once("' > script.json").unwrap();
        let script: Script = serde_json::from_str(script).unwrap();
        assert_eq!((script.order, script.turns.len()), (Order::Step, 3));
        assert!(matches!(script.turns[1].fail, Some(Failure::Status { status: 529, .. })));
        assert!(matches!(&script.turns[2].say[..], [Say::Thinking(_), Say::Text(_)]));
    }
}
