//! One attempt: sends a request, and reads the stream until it ends, stalls or is cut.

use std::time::Duration;

use bytes::Bytes;
use futures_util::{Stream, StreamExt, stream};
use gantry_net::{Body, Method, NetError, NetworkPolicy, Redirects, header};
use sse_stream::SseStream;
use tokio::time::Instant;

use crate::codec::{self, Decoder};
use crate::error::ModelError;
use crate::fault::Fault;
use crate::limits::Limits;
use crate::model::Model;
use crate::models::Reached;
use crate::{Reply, StreamEvent};

/// The limit for one answer with all its framing: more than any model writes.
const MAX_STREAM_BYTES: usize = 64 << 20;
const MAX_ERROR_BYTES: usize = 64 << 10;
/// How long to wait between the last event and the end of an answer.
const CLOSE_WAIT: Duration = Duration::from_millis(100);

/// `Attempt` is one request for an answer.
pub(crate) struct Attempt<'a> {
    pub(crate) reached: &'a Reached,
    pub(crate) model: &'a Model,
    pub(crate) body: Bytes,
    /// For servers that do not count.
    pub(crate) prompt_tokens: u64,
    pub(crate) limits: Limits,
}

impl Attempt<'_> {
    pub(crate) async fn run(&self, events: &mut (dyn FnMut(StreamEvent) + Send)) -> Result<Reply, Fault> {
        let provider = &self.reached.provider;
        let key = provider.key.as_ref().map(|key| key.read()).transpose();
        let key =
            key.map_err(|reason| Fault::Final(ModelError::Key { provider: provider.name.clone(), reason }))?;
        let answer = self.stream(key.as_deref(), events).await;
        // A server may repeat the key in its answer.
        answer.map_err(|fault| match key {
            Some(key) => fault.without(&key),
            None => fault,
        })
    }

    async fn stream(
        &self,
        key: Option<&str>,
        events: &mut (dyn FnMut(StreamEvent) + Send),
    ) -> Result<Reply, Fault> {
        let provider = &self.reached.provider;
        let first_byte = provider.first_byte.unwrap_or(self.limits.stall).max(self.limits.stall);
        let request = gantry_net::Request {
            method: Method::POST,
            url: provider.endpoint(),
            headers: codec::headers(provider.kind),
            secret_headers: key.map(|key| codec::secret_headers(provider.kind, key)).unwrap_or_default(),
            body: self.body.clone(),
            policy: NetworkPolicy::AllowAll,
            redirects: Redirects::Stop,
            deadline: self.limits.deadline,
        };
        let response = tokio::time::timeout(first_byte, self.reached.client.send(request));
        let response = match response.await {
            Ok(Ok(response)) => response,
            Ok(Err(err)) => return Err(self.failed(&err)),
            Err(_) => return Err(Cut::Stalled(first_byte).fault(self)),
        };
        let is_stream = response
            .headers
            .get(header::CONTENT_TYPE)
            .and_then(|kind| kind.to_str().ok())
            .is_none_or(|kind| kind.starts_with("text/event-stream"));
        if !response.status.is_success() || !is_stream {
            let read = tokio::time::timeout(self.limits.stall, response.body.read(MAX_ERROR_BYTES)).await;
            let body = read.ok().and_then(Result::ok).map(|read| read.bytes).unwrap_or_default();
            return Err(Fault::of_answer(self.model, response.status, &response.headers, &body));
        }
        let mut decoder = Decoder::new(provider.kind, self.model.clone(), self.prompt_tokens);
        let mut lines = SseStream::from_bytes_stream(chunks(response.body, first_byte, self.limits.stall));
        loop {
            // After the last event, the end is awaited only to keep the connection.
            let next = match decoder.is_complete() {
                true => tokio::time::timeout(CLOSE_WAIT, lines.next()).await.unwrap_or_default(),
                false => lines.next().await,
            };
            match next {
                None => break,
                Some(Ok(event)) => {
                    if let Some(data) = event.data.filter(|data| !data.is_empty()) {
                        decoder.event(&data, events)?;
                    }
                }
                Some(Err(_)) if decoder.is_complete() => break,
                Some(Err(sse_stream::Error::Body(err))) => {
                    let cut = err.downcast::<Cut>().map_or_else(|err| Cut::Odd(err.to_string()), |cut| *cut);
                    return Err(cut.fault(self));
                }
                Some(Err(err)) => return Err(Fault::passing(format!("its stream cannot be read: {err}"))),
            }
        }
        decoder.finish()
    }

    fn failed(&self, err: &NetError) -> Fault {
        if Instant::now() >= self.limits.deadline {
            return Fault::Final(ModelError::Deadline { model: self.model.name.clone() });
        }
        Fault::of_network(self.model, err)
    }
}

/// `Cut` says why no more bytes arrive although they should.
#[derive(Debug, thiserror::Error)]
enum Cut {
    #[error(transparent)]
    Net(NetError),
    #[error("it was silent for {0:?}")]
    Stalled(Duration),
    #[error("its answer is longer than {} MB", MAX_STREAM_BYTES >> 20)]
    TooLong,
    #[error("{0}")]
    Odd(String),
}

impl Cut {
    fn fault(self, attempt: &Attempt) -> Fault {
        match self {
            Cut::Net(err) => attempt.failed(&err),
            Cut::TooLong => Fault::Final(ModelError::Refused {
                model: attempt.model.name.clone(),
                status: 200,
                message: self.to_string(),
            }),
            Cut::Stalled(_) | Cut::Odd(_) => Fault::passing(self.to_string()),
        }
    }
}

/// Yields the bytes of the body; any byte counts as activity.
fn chunks(body: Body, first: Duration, stall: Duration) -> impl Stream<Item = Result<Bytes, Cut>> + Unpin {
    let start = Some((body, first, 0_usize));
    let next = move |state: Option<(Body, Duration, usize)>| async move {
        let (mut body, patience, read) = state?;
        let chunk = match tokio::time::timeout(patience, body.chunk()).await {
            Ok(Ok(chunk)) => chunk?,
            Ok(Err(err)) => return Some((Err(Cut::Net(err)), None)),
            Err(_) => return Some((Err(Cut::Stalled(patience)), None)),
        };
        let read = read + chunk.len();
        if read > MAX_STREAM_BYTES {
            return Some((Err(Cut::TooLong), None));
        }
        Some((Ok(chunk), Some((body, stall, read))))
    };
    Box::pin(stream::unfold(start, next))
}
