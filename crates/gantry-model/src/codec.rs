//! The one place that chooses between wire formats.

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
    // A compressed stream comes in lumps.
    headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static("identity"));
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

    pub(crate) fn finish(self) -> Result<Reply, Fault> {
        match self {
            Decoder::Anthropic(decoder) => decoder.finish(),
            Decoder::Openai(decoder) => decoder.finish(),
        }
    }
}
