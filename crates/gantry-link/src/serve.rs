//! [`Service`] answers the requests, events and stream frames that arrive over a link.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Instant;

use gantry_protocol::{ErrorCode, RawJson, StreamFrame, WireError};
use serde::de::DeserializeOwned;
use tokio_util::sync::CancellationToken;

use crate::link::Link;

pub type ServeFuture = Pin<Box<dyn Future<Output = Result<RawJson, WireError>> + Send>>;

/// Answers what arrives over a link.
pub trait Service: Send + Sync + 'static {
    /// The link polls the future in its own task, together with everything else on the link, so the future
    /// must not block. The service has to check for cancellation itself; its answer is sent in any case.
    fn request(self: Arc<Self>, link: Link, request: Request) -> ServeFuture;

    /// Must not block: the link does nothing else until this returns.
    fn event(&self, link: &Link, event: Event);

    /// Must not block.
    fn stream(&self, link: &Link, frame: StreamFrame);
}

/// A request from the peer.
#[derive(Debug)]
pub struct Request {
    pub id: u64,
    pub method: String,
    pub params: RawJson,
    pub deadline: Option<Instant>,
    /// Fires when the peer cancels the request or disconnects.
    pub cancel: CancellationToken,
}

impl Request {
    pub fn parse<T: DeserializeOwned>(&self) -> Result<T, WireError> {
        // Missing parameters count as an empty object.
        let text = if self.params.get() == "null" { "{}" } else { self.params.get() };
        serde_json::from_str(text).map_err(|err| {
            let message = format!("the parameters of {} are not valid: {err}", self.method);
            WireError::new(ErrorCode::BadParams, message)
        })
    }

    /// Rejects any parameters, for methods that have none.
    pub fn no_params(&self) -> Result<(), WireError> {
        #[derive(serde::Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Nothing {}
        self.parse::<Nothing>().map(|_| ())
    }

    pub fn unknown(&self) -> WireError {
        let shown: String = self.method.chars().take(40).collect();
        WireError::new(ErrorCode::UnknownMethod, format!("unknown method \"{shown}\""))
    }
}

#[derive(Debug)]
pub struct Event {
    pub name: String,
    pub data: RawJson,
}

impl Event {
    pub fn parse<T: DeserializeOwned>(&self) -> Option<T> {
        serde_json::from_str(self.data.get()).ok()
    }
}
