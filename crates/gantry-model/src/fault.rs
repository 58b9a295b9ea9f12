//! Decides why one attempt failed, and whether a retry may help.

use std::time::Duration;

use gantry_net::{HeaderMap, NetError, StatusCode};
use jiff::Timestamp;
use serde_json::Value;

use crate::error::ModelError;
use crate::model::Model;
use crate::retry::asked_for;

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Fault {
    /// A retry may succeed, after the pause that the provider asked for.
    Passing {
        reason: String,
        wait: Option<Duration>,
    },
    /// The provider does not accept thinking blocks that it was sent back. It may accept the
    /// request without them.
    Thoughts {
        message: String,
    },
    /// The answer was empty. Some servers do this when the request is longer than their window.
    Empty,
    Final(ModelError),
}

/// How many characters of a provider's text a message contains.
const MAX_MESSAGE_CHARS: usize = 600;

impl Fault {
    pub(crate) fn passing(reason: impl Into<String>) -> Fault {
        Fault::Passing { reason: reason.into(), wait: None }
    }

    pub(crate) fn of_network(model: &Model, err: &NetError) -> Fault {
        match err {
            NetError::BadUrl { .. }
            | NetError::NotAllowed { .. }
            | NetError::ForbiddenAddress { .. }
            | NetError::ForbiddenName { .. }
            | NetError::BadHeader { .. }
            | NetError::Redirect { .. } => {
                Fault::Final(ModelError::Unreachable { model: model.name.clone(), reason: err.to_string() })
            }
            NetError::Name { .. }
            | NetError::Connect { .. }
            | NetError::Protocol { .. }
            | NetError::Decoding(_)
            | NetError::TimedOut { .. } => Fault::passing(err.to_string()),
        }
    }

    /// Returns the fault with `secret` redacted.
    pub(crate) fn without(self, secret: &str) -> Fault {
        let clean = |text: String| if text.contains(secret) { text.replace(secret, "…") } else { text };
        match self {
            Fault::Passing { reason, wait } => Fault::Passing { reason: clean(reason), wait },
            Fault::Thoughts { message } => Fault::Thoughts { message: clean(message) },
            Fault::Empty => Fault::Empty,
            Fault::Final(err) => Fault::Final(err.map_text(clean)),
        }
    }

    /// Classifies an answer that is not a stream.
    pub(crate) fn of_answer(model: &Model, status: StatusCode, headers: &HeaderMap, body: &[u8]) -> Fault {
        let refusal = Refusal::read(body);
        let code = status.as_u16();
        let says = |name: &str, word: &str| headers.get(name).is_some_and(|value| value == word);
        if refusal.is_quota() {
            return Fault::Final(ModelError::Unpaid {
                provider: model.provider.clone(),
                message: refusal.message,
            });
        }
        if status.is_success() && refusal.kind.is_empty() {
            let message = "it answered without the requested stream".into();
            return Fault::Final(ModelError::Refused { model: model.name.clone(), status: code, message });
        }
        let passes = matches!(code, 408 | 409 | 425 | 429 | 500..);
        if (passes && !says("x-should-retry", "false")) || says("x-should-retry", "true") {
            let reason = format!("status {code}: {}", refusal.message);
            return Fault::Passing { reason, wait: asked_for(headers, Timestamp::now()) };
        }
        refusal.refused(model, code)
    }

    /// Classifies an error inside a stream.
    pub(crate) fn of_event(model: &Model, error: &Value) -> Fault {
        let refusal = Refusal::of(error);
        let status = match refusal.kind.as_str() {
            "invalid_request_error" => 400,
            "authentication_error" => 401,
            "billing_error" => 402,
            "permission_error" => 403,
            "not_found_error" => 404,
            "request_too_large" => 413,
            kind => kind.parse().unwrap_or(0),
        };
        if refusal.is_quota() || refusal.is_too_long(status) || matches!(status, 400..=407 | 413) {
            return match refusal.refused(model, status) {
                Fault::Thoughts { message } => {
                    Fault::Final(ModelError::Refused { model: model.name.clone(), status, message })
                }
                fault => fault,
            };
        }
        Fault::passing(format!("{}: {}", refusal.kind, refusal.message))
    }
}

/// `Refusal` is what a provider says about its refusal, in any of the usual forms.
struct Refusal {
    kind: String,
    message: String,
    /// The model's window, if the refusal names it.
    window: Option<u64>,
}

impl Refusal {
    fn read(body: &[u8]) -> Refusal {
        match serde_json::from_slice::<Value>(body) {
            // Some proxies answer with a list.
            Ok(Value::Array(list)) if list.len() == 1 => Refusal::of(&list[0]),
            Ok(value) => Refusal::of(&value),
            Err(_) => {
                let message = brief(&String::from_utf8_lossy(body));
                Refusal { kind: String::new(), window: window_named(&message), message }
            }
        }
    }

    fn of(value: &Value) -> Refusal {
        let error = value.get("error").filter(|error| !error.is_null()).unwrap_or(value);
        let text = |value: &Value| match value {
            Value::String(text) => Some(text.clone()),
            Value::Number(number) => Some(number.to_string()),
            _ => None,
        };
        // A code says more than a type, but may be only a status.
        let word = |key: &str| error.get(key).and_then(Value::as_str).map(str::to_owned);
        let kind = word("code").or_else(|| word("type")).or_else(|| error.get("code").and_then(text));
        let message = error.get("message").and_then(Value::as_str).or_else(|| error.as_str());
        let message = message.map_or_else(|| error.to_string(), str::to_owned);
        let message = brief(&message);
        // llama.cpp sends it as a field.
        let window = error.get("n_ctx").and_then(Value::as_u64).or_else(|| window_named(&message));
        Refusal { kind: kind.unwrap_or_default(), message, window }
    }

    fn is_quota(&self) -> bool {
        let message = self.message.to_lowercase();
        matches!(self.kind.as_str(), "insufficient_quota" | "billing_error" | "billing_not_active")
            || message.contains("credit balance is too low")
    }

    fn is_too_long(&self, status: u16) -> bool {
        const WORDS: &[&str] = &[
            "prompt is too long",
            "context length",
            "context window",
            "context size",
            "context limit",
            "maximum context",
            "too many tokens",
            "number of tokens allowed",
        ];
        let message = self.message.to_lowercase();
        let kind = matches!(
            self.kind.as_str(),
            "context_length_exceeded" | "exceed_context_size_error" | "request_too_large"
        );
        let client = status == 0 || (400..500).contains(&status) && status != 429;
        status == 413 || kind || client && WORDS.iter().any(|word| message.contains(word))
    }

    fn is_of_thoughts(&self) -> bool {
        let message = self.message.to_lowercase();
        message.contains("thinking") && (message.contains("signature") || message.contains("block"))
    }

    fn refused(self, model: &Model, status: u16) -> Fault {
        let too_long = self.is_too_long(status);
        if self.is_quota() || status == 402 {
            return Fault::Final(ModelError::Unpaid {
                provider: model.provider.clone(),
                message: self.message,
            });
        }
        if status == 400 && !too_long && self.is_of_thoughts() {
            return Fault::Thoughts { message: self.message };
        }
        let (name, provider, message) = (model.name.clone(), model.provider.clone(), self.message);
        Fault::Final(match status {
            _ if too_long => ModelError::ContextTooLong { model: name, message, window: self.window },
            401 | 403 => ModelError::Unauthorized { provider, status, message },
            404 => ModelError::NoSuchModel { provider, id: model.id.clone(), message },
            300..=399 => ModelError::Unreachable {
                model: name,
                reason: "it answered with a redirect, and a key is never forwarded".into(),
            },
            _ => ModelError::Refused { model: name, status, message },
        })
    }
}

/// Finds the window that a refusal names. Servers use one of these phrases, followed by a number.
fn window_named(message: &str) -> Option<u64> {
    const BEFORE: &[&str] = &[
        "maximum context length is ",
        "maximum context length of ",
        "context window of ",
        "context length of ",
        "context size of ",
        "context size (",
        "context limit of ",
        "number of tokens allowed (",
        " > ",
    ];
    let message = message.to_lowercase();
    BEFORE.iter().find_map(|words| {
        let (_, after) = message.split_once(words)?;
        let digits: String = after.chars().filter(|c| *c != ',').take_while(char::is_ascii_digit).collect();
        digits.parse().ok().filter(|tokens| *tokens > 0)
    })
}

/// Returns the text on one line, shortened.
fn brief(text: &str) -> String {
    let line: String = text.trim().chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    match line.char_indices().nth(MAX_MESSAGE_CHARS) {
        Some((at, _)) => format!("{}…", &line[..at]),
        None if line.is_empty() => "no reason given".into(),
        None => line,
    }
}

#[cfg(test)]
mod tests {
    use crate::model::Facts;

    use super::*;

    fn model() -> Model {
        Model { name: "p/m".into(), provider: "p".into(), id: "m".into(), facts: Facts::UNKNOWN }
    }

    fn kind(status: u16, body: &str) -> String {
        let status = StatusCode::from_u16(status).unwrap();
        match Fault::of_answer(&model(), status, &HeaderMap::new(), body.as_bytes()) {
            Fault::Passing { .. } => "passing".into(),
            Fault::Thoughts { .. } => "thoughts".into(),
            Fault::Empty => "empty".into(),
            Fault::Final(err) => format!("{err:?}").split([' ', '{', '(']).next().unwrap().to_owned(),
        }
    }

    #[test]
    fn errors_of_every_provider_are_classified() {
        for (status, body, expected) in [
            (429, r#"{"type":"error","error":{"type":"rate_limit_error","message":"slow down"}}"#, "passing"),
            (
                529,
                r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#,
                "passing",
            ),
            (500, "<html>", "passing"),
            (503, "", "passing"),
            (
                429,
                r#"{"error":{"message":"You exceeded your current quota","code":"insufficient_quota"}}"#,
                "Unpaid",
            ),
            (
                400,
                r#"{"error":{"type":"invalid_request_error","message":"Your credit balance is too low"}}"#,
                "Unpaid",
            ),
            (402, r#"{"error":{"message":"Insufficient credits","code":402}}"#, "Unpaid"),
            (
                401,
                r#"{"error":{"type":"authentication_error","message":"invalid x-api-key"}}"#,
                "Unauthorized",
            ),
            (403, "{}", "Unauthorized"),
            (404, r#"{"error":"model 'x' not found"}"#, "NoSuchModel"),
            (
                400,
                r#"{"error":{"type":"invalid_request_error","message":"prompt is too long: 201 > 200"}}"#,
                "ContextTooLong",
            ),
            (400, r#"{"error":{"message":"too big","code":"context_length_exceeded"}}"#, "ContextTooLong"),
            (
                400,
                r#"{"error":{"code":400,"message":"the request exceeds the available context size","type":"exceed_context_size_error"}}"#,
                "ContextTooLong",
            ),
            (413, "", "ContextTooLong"),
            (
                400,
                r#"{"error":{"message":"messages.1.content.0: Invalid `signature` in `thinking` block"}}"#,
                "thoughts",
            ),
            (400, r#"{"object":"error","message":"bad"}"#, "Refused"),
            (302, "", "Unreachable"),
        ] {
            assert_eq!(kind(status, body), expected, "{status} {body}");
        }
    }

    #[test]
    fn window_is_read_from_a_refusal() {
        for (body, expected) in [
            (r#"{"error":{"message":"prompt is too long: 201 tokens > 200 maximum"}}"#, Some(200)),
            (
                r#"{"error":{"message":"input length and `max_tokens` exceed context limit: 188240 + 21333 > 200000, decrease"}}"#,
                Some(200_000),
            ),
            (
                r#"{"error":{"message":"This model's maximum context length is 4,097 tokens. However, you requested 5000 tokens (4000 in the messages, 1000 in the completion)."}}"#,
                Some(4_097),
            ),
            (r#"{"error":{"message":"Requested tokens (5000) exceed context window of 2048"}}"#, Some(2_048)),
            (
                r#"{"error":{"message":"the request exceeds the available context size","type":"exceed_context_size_error","n_prompt_tokens":9000,"n_ctx":8192}}"#,
                Some(8_192),
            ),
            (
                r#"{"error":{"message":"The input token count (1200000) exceeds the maximum number of tokens allowed (1048576)."}}"#,
                Some(1_048_576),
            ),
            ("request exceeds the context size", None),
        ] {
            let fault =
                Fault::of_answer(&model(), StatusCode::BAD_REQUEST, &HeaderMap::new(), body.as_bytes());
            match fault {
                Fault::Final(ModelError::ContextTooLong { window, .. }) => {
                    assert_eq!(window, expected, "{body}")
                }
                other => panic!("{body}: {other:?}"),
            }
        }
    }

    #[test]
    fn should_retry_header_is_obeyed() {
        let mut headers = HeaderMap::new();
        headers.insert("x-should-retry", "false".parse().unwrap());
        let fault = Fault::of_answer(&model(), StatusCode::INTERNAL_SERVER_ERROR, &headers, b"");
        assert!(matches!(fault, Fault::Final(ModelError::Refused { status: 500, .. })), "{fault:?}");
    }

    #[test]
    fn messages_are_short_and_on_one_line() {
        let refusal = brief(&format!("a\nb\x1b[31m{}", "x".repeat(5_000)));
        assert!(refusal.starts_with("a b [31mxxx") && refusal.chars().count() == MAX_MESSAGE_CHARS + 1);
        assert_eq!(brief(" \n"), "no reason given");
    }
}
