//! Text frames: requests and responses in both directions, events, cancellation.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::error::{ErrorCode, WireError};
use crate::text::{cancel_text, event_text, request_text, response_text};

/// JSON that is passed on without parsing it.
pub type RawJson = Box<RawValue>;

#[derive(Debug, Clone)]
pub enum Frame {
    Request { id: u64, method: String, params: RawJson, deadline_ms: Option<u64> },
    Response { id: u64, outcome: Result<RawJson, WireError> },
    Event { event: String, seq: u64, data: RawJson },
    Cancel { id: u64 },
}

/// The reason why a text is not a frame. `id` is the id of the request, if it could be read.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct FrameError {
    pub id: Option<u64>,
    pub message: String,
}

/// All fields of all kinds of frames. [`Frame::parse_whole`] checks which belong together.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Wire<'a> {
    #[serde(rename = "type", borrow)]
    kind: std::borrow::Cow<'a, str>,
    #[serde(default)]
    id: Option<u64>,
    #[serde(default, borrow)]
    method: Option<std::borrow::Cow<'a, str>>,
    #[serde(default, borrow)]
    params: Option<&'a RawValue>,
    #[serde(default)]
    deadline_ms: Option<u64>,
    #[serde(default)]
    ok: Option<bool>,
    #[serde(default, borrow)]
    result: Option<&'a RawValue>,
    #[serde(default)]
    error: Option<WireError>,
    #[serde(default, borrow)]
    event: Option<std::borrow::Cow<'a, str>>,
    #[serde(default)]
    seq: Option<u64>,
    #[serde(default, borrow)]
    data: Option<&'a RawValue>,
}

impl Frame {
    /// Ignores unknown fields, so that a newer peer may send more. An invalid response becomes a response with an error,
    /// because its requester waits for it.
    pub fn parse(text: &str) -> Result<Frame, FrameError> {
        Frame::parse_whole(text).or_else(|err| match numbered(text) {
            Some(Numbered { id, kind }) if kind.as_deref() == Some("res") => {
                let message = format!("invalid response: {}", err.message);
                Ok(Frame::Response { id, outcome: Err(WireError::new(ErrorCode::BadFrame, message)) })
            }
            Some(Numbered { id, .. }) => Err(FrameError { id: Some(id), ..err }),
            None => Err(err),
        })
    }

    fn parse_whole(text: &str) -> Result<Frame, FrameError> {
        let wire: Wire<'_> = serde_json::from_str(text)
            .map_err(|err| FrameError { id: None, message: format!("not a frame: {err}") })?;
        let id = wire.id;
        let missing = |field: &str| FrameError { id, message: format!("the frame has no \"{field}\"") };
        let owned = |json: Option<&RawValue>| json.map_or_else(raw_null, ToOwned::to_owned);
        match &*wire.kind {
            "req" => Ok(Frame::Request {
                id: id.ok_or_else(|| missing("id"))?,
                method: wire.method.ok_or_else(|| missing("method"))?.into_owned(),
                params: owned(wire.params),
                deadline_ms: wire.deadline_ms,
            }),
            "res" => {
                let id = id.ok_or_else(|| missing("id"))?;
                let outcome = match wire.ok.ok_or_else(|| missing("ok"))? {
                    true => Ok(owned(wire.result)),
                    false => Err(wire.error.ok_or_else(|| missing("error"))?),
                };
                Ok(Frame::Response { id, outcome })
            }
            "evt" => Ok(Frame::Event {
                event: wire.event.ok_or_else(|| missing("event"))?.into_owned(),
                seq: wire.seq.unwrap_or(0),
                data: owned(wire.data),
            }),
            "cancel" => Ok(Frame::Cancel { id: id.ok_or_else(|| missing("id"))? }),
            other => {
                let shown: String = other.chars().take(40).collect();
                Err(FrameError { id, message: format!("unknown frame type \"{shown}\"") })
            }
        }
    }

    pub fn to_text(&self) -> String {
        match self {
            Frame::Request { id, method, params, deadline_ms } => {
                request_text(*id, method, params.get(), *deadline_ms)
            }
            Frame::Response { id, outcome } => {
                response_text(*id, outcome.as_ref().map(|result| result.get()))
            }
            Frame::Event { event, seq, data } => event_text(event, *seq, data.get()),
            Frame::Cancel { id } => cancel_text(*id),
        }
    }
}

/// Serialises a value. Only maps with keys other than strings could fail, and no wire type has one.
pub fn raw<T: Serialize>(value: &T) -> RawJson {
    serde_json::value::to_raw_value(value).unwrap_or_else(|_| raw_null())
}

pub fn raw_null() -> RawJson {
    RawValue::NULL.to_owned()
}

/// The fields of an invalid frame that identify it, for the error reply.
#[derive(Deserialize)]
struct Numbered {
    id: u64,
    #[serde(rename = "type", default)]
    kind: Option<String>,
}

fn numbered(text: &str) -> Option<Numbered> {
    serde_json::from_str(text).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_survives_the_wire() {
        for text in [
            r#"{"type":"req","id":7,"method":"tool.call","params":{"tool":"Read","x":[1,2]},"deadlineMs":60000}"#,
            r#"{"type":"req","id":8,"method":"ping","params":null}"#,
            r#"{"type":"res","id":7,"ok":true,"result":{"a":"ä\n"}}"#,
            r#"{"type":"res","id":7,"ok":false,"error":{"code":"denied","message":"no","retryable":false}}"#,
            r#"{"type":"evt","event":"call.progress","seq":12,"data":{}}"#,
            r#"{"type":"cancel","id":7}"#,
        ] {
            assert_eq!(Frame::parse(text).unwrap().to_text(), text);
        }
    }

    #[test]
    fn invalid_frame_is_reported_with_reason_and_id() {
        let error_of = |text: &str| {
            let error = Frame::parse(text).unwrap_err();
            (error.id, error.message)
        };
        assert_eq!(error_of(r#"{"type":"hello","id":3}"#), (Some(3), "unknown frame type \"hello\"".into()));
        assert_eq!(error_of(r#"{"type":"req","id":3}"#), (Some(3), "the frame has no \"method\"".into()));
        assert_eq!(error_of(r#"{"type":"req","id":4,"method":7}"#).0, Some(4));
        for text in ["", "[]", "{", "{}", "7", r#"{"type":"req","id":-1,"method":"x"}"#] {
            assert!(Frame::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn invalid_response_becomes_a_response_with_an_error() {
        for text in [
            r#"{"type":"res","id":3,"ok":false}"#,
            r#"{"type":"res","id":3}"#,
            r#"{"type":"res","id":3,"ok":"yes"}"#,
            r#"{"type":"res","id":3,"ok":false,"error":"no"}"#,
        ] {
            let Ok(Frame::Response { id: 3, outcome: Err(error) }) = Frame::parse(text) else {
                panic!("{text}")
            };
            assert_eq!(error.code, ErrorCode::BadFrame, "{error}");
        }
        let later = r#"{"type":"res","id":3,"ok":false,"error":{"code":"of_tomorrow","message":"no"}}"#;
        let Ok(Frame::Response { outcome: Err(error), .. }) = Frame::parse(later) else { panic!("{later}") };
        assert_eq!((error.code, &*error.message), (ErrorCode::Failed, "no"));
        assert!(Frame::parse(r#"{"type":"res"}"#).is_err());
    }

    #[test]
    fn unknown_fields_are_ignored() {
        let text = r#"{"type":"cancel","id":7,"why":"later"}"#;
        assert!(matches!(Frame::parse(text), Ok(Frame::Cancel { id: 7 })));
    }

    #[test]
    fn code_names_equal_their_serialised_form() {
        for code in [ErrorCode::BadFrame, ErrorCode::PrefixMismatch, ErrorCode::ApprovalNeeded] {
            assert_eq!(serde_json::to_value(code).unwrap(), code.name());
        }
    }
}
