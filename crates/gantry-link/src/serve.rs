//! What a link asks of whoever stands behind it.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Instant;

use gantry_protocol::{ErrorCode, RawJson, StreamFrame, WireError};
use serde::de::DeserializeOwned;
use tokio_util::sync::CancellationToken;

use crate::link::Link;

pub type ServeFuture = Pin<Box<dyn Future<Output = Result<RawJson, WireError>> + Send>>;

/// Answers what comes over a link.
pub trait Service: Send + Sync + 'static {
    /// The link polls the future in its own task, beside everything else on the link: it must not block. The service has to
    /// notice a cancellation itself; its answer is sent in any case.
    fn request(self: Arc<Self>, link: Link, request: Request) -> ServeFuture;

    /// Must not block: it holds up everything else on the link.
    fn event(&self, link: &Link, event: Event);

    /// Must not block.
    fn stream(&self, link: &Link, frame: StreamFrame);
}

/// A request that came.
#[derive(Debug)]
pub struct Request {
    pub id: u64,
    pub method: String,
    pub params: RawJson,
    pub deadline: Option<Instant>,
    /// Fires when the peer gives up, or is gone.
    pub cancel: CancellationToken,
}

impl Request {
    pub fn parse<T: DeserializeOwned>(&self) -> Result<T, WireError> {
        // Parameters that were left out are none.
        let text = if self.params.get() == "null" { "{}" } else { self.params.get() };
        serde_json::from_str(text).map_err(|err| {
            let message = format!("the parameters of {} are not valid: {err}", self.method);
            WireError::new(ErrorCode::BadParams, message)
        })
    }

    /// For methods that have no parameters: any that came are refused.
    pub fn no_params(&self) -> Result<(), WireError> {
        #[derive(serde::Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Nothing {}
        self.parse::<Nothing>().map(|_| ())
    }

    pub fn unknown(&self) -> WireError {
        let shown: String = self.method.chars().take(40).collect();
        WireError::new(ErrorCode::UnknownMethod, format!("there is no method \"{shown}\""))
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
