//! Chooses between the wire formats. No other module does.

use bytes::Bytes;
use gantry_net::{HeaderMap, HeaderValue, header};
use serde_json::Value;

use crate::anthropic::{self, Thoughts};
use crate::fault::Fault;
use crate::model::Model;
use crate::openai;
use crate::provider::{Provider, ProviderKind};
use crate::{Reply, Request, StreamEvent};

pub(crate) fn encode(request: &Request, model: &Model, provider: &Provider, thoughts: Thoughts) -> Bytes {
    let body: Value = match provider.kind {
        ProviderKind::Anthropic => anthropic::encode(request, model, provider, thoughts),
        ProviderKind::Openai => openai::encode(request, model, provider),
    };
    Bytes::from(body.to_string())
}

pub(crate) fn headers(kind: ProviderKind) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(header::ACCEPT, HeaderValue::from_static("text/event-stream"));
    if kind == ProviderKind::Anthropic {
        headers.insert("anthropic-version", HeaderValue::from_static(anthropic::VERSION));
    }
    headers
}

pub(crate) fn secret_headers(kind: ProviderKind, key: &str) -> HeaderMap {
    let (name, value) = match kind {
        ProviderKind::Anthropic => ("x-api-key", key.to_owned()),
        ProviderKind::Openai => ("authorization", format!("Bearer {key}")),
    };
    let mut headers = HeaderMap::new();
    if let Ok(value) = HeaderValue::try_from(value) {
        headers.insert(name, value);
    }
    headers
}

#[derive(Debug)]
pub(crate) enum Decoder {
    Anthropic(anthropic::Decoder),
    Openai(openai::Decoder),
}

impl Decoder {
    /// `prompt_tokens` is an estimate, for servers that do not count.
    pub(crate) fn new(kind: ProviderKind, model: Model, prompt_tokens: u64) -> Decoder {
        match kind {
            ProviderKind::Anthropic => Decoder::Anthropic(anthropic::Decoder::new(model)),
            ProviderKind::Openai => Decoder::Openai(openai::Decoder::new(model, prompt_tokens)),
        }
    }

    pub(crate) fn event(&mut self, data: &str, events: &mut dyn FnMut(StreamEvent)) -> Result<(), Fault> {
        match self {
            Decoder::Anthropic(decoder) => decoder.event(data, events),
            Decoder::Openai(decoder) => decoder.event(data, events),
        }
    }

    /// Reports whether the last event has arrived.
    pub(crate) fn is_complete(&self) -> bool {
        match self {
            Decoder::Anthropic(decoder) => decoder.is_complete(),
            Decoder::Openai(decoder) => decoder.is_complete(),
        }
    }

    pub(crate) fn finish(self) -> Result<Reply, Fault> {
        match self {
            Decoder::Anthropic(decoder) => decoder.finish(),
            Decoder::Openai(decoder) => decoder.finish(),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

    use super::*;
    use crate::model::Facts;

    /// Generates keywords of both formats in every wrong place.
    fn anything() -> impl Strategy<Value = Value> {
        let word = prop::sample::select(vec![
            "type",
            "index",
            "delta",
            "content_block",
            "message_start",
            "content_block_start",
            "content_block_delta",
            "message_delta",
            "text",
            "text_delta",
            "thinking",
            "thinking_delta",
            "signature_delta",
            "tool_use",
            "server_tool_use",
            "input_json_delta",
            "partial_json",
            "input",
            "id",
            "name",
            "usage",
            "input_tokens",
            "stop_reason",
            "end_turn",
            "error",
            "message",
            "choices",
            "tool_calls",
            "function",
            "arguments",
            "content",
            "finish_reason",
            "stop",
            "prompt_tokens",
            "citations",
            "citations_delta",
            "citation",
            "data",
        ]);
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<u64>().prop_map(Value::from),
            (-3..4_i64).prop_map(Value::from),
            any::<f64>().prop_map(Value::from),
            word.clone().prop_map(Value::from),
            Just(Value::from("{")),
        ];
        leaf.prop_recursive(5, 40, 6, move |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::vec((word.clone(), inner), 0..6).prop_map(|fields| {
                    Value::Object(fields.into_iter().map(|(key, value)| (key.to_owned(), value)).collect())
                }),
            ]
        })
    }

    /// Generates events that are well-formed enough to be accepted, with anything inside.
    fn event() -> impl Strategy<Value = String> {
        let kind = prop::sample::select(vec![
            "message_start",
            "content_block_start",
            "content_block_delta",
            "message_delta",
            "error",
            "ping",
        ]);
        let framed = (kind, 0..3_u64, anything(), anything()).prop_map(|(kind, index, block, delta)| {
            serde_json::json!({"type": kind, "index": index, "content_block": block, "delta": delta, "message": block,
                "usage": delta, "choices": [{"delta": delta, "finish_reason": block}]})
            .to_string()
        });
        // Pieces of the right form, for any block.
        let piece =
            prop::sample::select(vec!["text_delta", "thinking_delta", "input_json_delta", "citations_delta"]);
        let text = prop::sample::select(vec!["{}", "{\"a\": 1}", "{", "[1]", "x"]);
        let grows = (piece, 0..3_u64, text).prop_map(|(piece, index, text)| {
            let delta =
                serde_json::json!({"type": piece, "text": text, "thinking": text, "partial_json": text});
            let call = serde_json::json!({"index": index, "function": {"name": text, "arguments": text}});
            serde_json::json!({"type": "content_block_delta", "index": index, "delta": delta,
                "choices": [{"delta": {"content": text, "tool_calls": [call]}}]})
            .to_string()
        });
        prop_oneof![3 => framed, 2 => grows, 1 => anything().prop_map(|value| value.to_string()), 1 => any::<String>()]
    }

    #[test]
    fn decoders_never_panic() {
        let seed = gantry_testkit::seed_or(20_261_116);
        let cases = gantry_testkit::scaled(5_000, 400);
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&seed.to_le_bytes());
        let config = Config { cases, failure_persistence: None, ..Config::default() };
        let mut runner = TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &bytes));
        let model = Model { name: "p/m".into(), provider: "p".into(), id: "m".into(), facts: Facts::UNKNOWN };
        let streams = prop::collection::vec(event(), 0..12);
        let checked = runner.run(&streams, |stream| {
            for kind in [ProviderKind::Anthropic, ProviderKind::Openai] {
                let mut decoder = Decoder::new(kind, model.clone(), 1);
                for data in &stream {
                    let _ = decoder.event(data, &mut |_| {});
                }
                for end in [
                    r#"{"type": "message_delta", "delta": {"stop_reason": "end_turn"}}"#,
                    r#"{"choices": [{"finish_reason": "stop"}]}"#,
                ] {
                    let _ = decoder.event(end, &mut |_| {});
                }
                // The result can be sent back.
                if let Ok(reply) = decoder.finish() {
                    let request = Request { messages: vec![reply.message], ..Request::default() };
                    let provider = Provider::new("p", kind, "http://x".parse().unwrap());
                    encode(&request, &model, &provider, Thoughts::Kept);
                }
            }
            Ok(())
        });
        checked.unwrap();
    }
}
