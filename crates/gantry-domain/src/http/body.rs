//! Bodies of requests and answers.
//!
//! A request's body is bounded in length and time. Large bodies and large answers count against the
//! memory quota of their caller until they are no longer needed.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::{Body, HttpBody};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use bytes::{Bytes, BytesMut};
use gantry_link::{Account, FREE_BYTES, MEMORY_FACTOR, Reservation};
use gantry_protocol::{MAX_VALUES, VALUE_BYTES, count_values};
use http_body::{Frame, SizeHint};
use http_body_util::BodyExt;

use super::problem;

/// The longest input.
const MAX_BODY_BYTES: usize = 64 * 1024 * 1024;

/// How long a body may take to arrive.
const BODY_LIMIT: Duration = Duration::from_secs(60);

/// Room for a body of unknown length is taken in such steps.
const STEP: usize = 1 << 20;

/// The size of the pieces in which a body is sent, so that the rest of it is known.
const PIECE: usize = 64 << 10;

/// A received body, and the memory that is reserved for it.
pub struct Taken {
    pub bytes: Bytes,
    pub share: Option<Reservation>,
}

pub async fn read_body(account: &Account, body: Body) -> Result<Taken, Box<Response>> {
    // A length that is declared need not be waited for.
    if body.size_hint().lower() > MAX_BODY_BYTES as u64 {
        return Err(too_large());
    }
    let reading = tokio::time::timeout(BODY_LIMIT, collect(account, body));
    reading.await.unwrap_or_else(|_| {
        let message = "the body did not arrive in time";
        Err(Box::new(problem(StatusCode::REQUEST_TIMEOUT, "deadline", message, None)))
    })
}

async fn collect(account: &Account, mut body: Body) -> Result<Taken, Box<Response>> {
    let declared = body.size_hint().exact().and_then(|length| usize::try_from(length).ok());
    let mut share = None;
    if let Some(length) = declared {
        make_room(account, &mut share, length).await?;
    }
    let mut bytes = BytesMut::with_capacity(declared.unwrap_or(0));
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|err| {
            let message = format!("the body broke off: {err}");
            Box::new(problem(StatusCode::BAD_REQUEST, "bad_frame", &message, None))
        })?;
        let Ok(data) = frame.into_data() else { continue };
        let length = bytes.len() + data.len();
        if length > MAX_BODY_BYTES {
            return Err(too_large());
        }
        if declared.is_none() {
            make_room(account, &mut share, length.next_multiple_of(STEP).min(MAX_BODY_BYTES)).await?;
        }
        bytes.extend_from_slice(&data);
    }
    let values = count_values(&bytes);
    if values > MAX_VALUES {
        let message = format!("the body has {values} names and values; {MAX_VALUES} are allowed");
        return Err(Box::new(problem(StatusCode::PAYLOAD_TOO_LARGE, "too_large", &message, None)));
    }
    let read = (values * VALUE_BYTES).saturating_sub(FREE_BYTES);
    grow(account, &mut share, read).await?;
    Ok(Taken { bytes: bytes.freeze(), share })
}

/// Sees to it that the share is enough for a body of this length.
async fn make_room(
    account: &Account,
    share: &mut Option<Reservation>,
    length: usize,
) -> Result<(), Box<Response>> {
    grow(account, share, length.saturating_sub(FREE_BYTES) * MEMORY_FACTOR).await
}

async fn grow(
    account: &Account,
    share: &mut Option<Reservation>,
    wanted: usize,
) -> Result<(), Box<Response>> {
    let more = wanted.saturating_sub(share.as_ref().map_or(0, Reservation::bytes));
    if more == 0 {
        return Ok(());
    }
    let message = "no memory is free now for a large body";
    account.reserve(more).await.ok_or_else(|| Box::new(no_room(message)))?.add_to(share);
    Ok(())
}

fn too_large() -> Box<Response> {
    let message = format!("an input has at most {MAX_BODY_BYTES} bytes");
    Box::new(problem(StatusCode::PAYLOAD_TOO_LARGE, "too_large", &message, None))
}

fn no_room(message: &str) -> Response {
    let hint = "other large requests are running; send the request again later";
    let mut response = problem(StatusCode::SERVICE_UNAVAILABLE, "unavailable", message, Some(hint));
    response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("5"));
    response
}

/// Marks an answer to a run that may have had effects. Its client repeats what fails with 503 by
/// itself, so the lack of room is reported with 422.
#[derive(Clone, Copy)]
pub struct AfterRun;

/// A large answer has its room until the peer has taken all of it.
pub fn held(account: &Account, response: Response) -> Response {
    let length = response.body().size_hint().exact().and_then(|length| usize::try_from(length).ok());
    match length {
        Some(length) if length > FREE_BYTES => match account.try_reserve(length) {
            Some(share) => response.map(|body| Body::new(Held { body, piece: Bytes::new(), share })),
            None => {
                let message = "the request was processed, but no memory is free now for its answer";
                match response.extensions().get::<AfterRun>() {
                    Some(AfterRun) => problem(StatusCode::UNPROCESSABLE_ENTITY, "unavailable", message, None),
                    None => no_room(message),
                }
            }
        },
        _ => response,
    }
}

struct Held {
    body: Body,
    /// Bytes of the body that are not handed on yet.
    piece: Bytes,
    #[expect(dead_code, reason = "it is there to be dropped")]
    share: Reservation,
}

impl HttpBody for Held {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let this = self.get_mut();
        if this.piece.is_empty() {
            match ready!(Pin::new(&mut this.body).poll_frame(cx)) {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => this.piece = data,
                    Err(frame) => return Poll::Ready(Some(Ok(frame))),
                },
                other => return Poll::Ready(other),
            }
        }
        let next = this.piece.split_to(this.piece.len().min(PIECE));
        Poll::Ready(Some(Ok(Frame::data(next))))
    }

    fn is_end_stream(&self) -> bool {
        self.piece.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let left = self.body.size_hint().exact().unwrap_or(0) + self.piece.len() as u64;
        SizeHint::with_exact(left)
    }
}

#[cfg(test)]
mod tests {
    use gantry_link::Pool;

    use super::*;

    fn unknown_length(bytes: usize) -> Body {
        let pieces = (0..bytes / 1000).map(|_| Ok::<_, axum::Error>(Bytes::from(vec![b'x'; 1000])));
        Body::from_stream(futures_util::stream::iter(pieces))
    }

    #[tokio::test(start_paused = true)]
    async fn large_bodies_wait_for_room_and_are_asked_to_come_again() {
        let account = Pool::new(4 << 20).whole();
        let first = read_body(&account, Body::from(vec![b'x'; 1_500_000])).await.map_err(|_| ()).unwrap();
        assert_eq!(first.bytes.len(), 1_500_000);
        for body in [Body::from(vec![b'x'; 1_500_000]), unknown_length(1_500_000)] {
            let refused = read_body(&account, body).await.map(|_| ()).unwrap_err();
            assert_eq!(refused.status(), StatusCode::SERVICE_UNAVAILABLE);
            assert!(refused.headers().contains_key(header::RETRY_AFTER));
        }
        for small in [Body::from(vec![b'x'; FREE_BYTES]), Body::empty()] {
            assert!(read_body(&account, small).await.is_ok(), "small ones pass");
        }
        drop(first);
        let second = read_body(&account, unknown_length(1_500_000)).await.map_err(|_| ()).unwrap();
        assert_eq!(second.bytes.len(), 1_500_000, "a finished body releases its memory");
    }

    #[tokio::test(start_paused = true)]
    async fn body_reserves_memory_for_its_parsed_values() {
        let account = Pool::new(8 << 20).whole();
        let many = |objects: usize| Body::from(format!("[{}0]", r#"{"":0},"#.repeat(objects)));
        let first = read_body(&account, many(8_000)).await.map_err(|_| ()).unwrap();
        assert!(first.share.is_some_and(|share| share.bytes() > 4 << 20), "56 KB of text");
        for (objects, status) in
            [(20_000, StatusCode::SERVICE_UNAVAILABLE), (200_000, StatusCode::PAYLOAD_TOO_LARGE)]
        {
            let refused = read_body(&account, many(objects)).await.map(|_| ()).unwrap_err();
            assert_eq!(refused.status(), status);
        }
    }

    #[tokio::test]
    async fn an_answer_has_its_room_until_it_is_taken() {
        let account = Pool::new(1 << 20).whole();
        let text: Vec<u8> = (0..600_000_u32).map(|number| u8::try_from(number % 251).unwrap()).collect();
        let answer = held(&account, Response::new(Body::from(text.clone())));
        assert_eq!(answer.body().size_hint().exact(), Some(600_000));
        let refused = held(&account, Response::new(Body::from(text.clone())));
        assert_eq!(refused.status(), StatusCode::SERVICE_UNAVAILABLE);
        let mut after_run = Response::new(Body::from(text.clone()));
        after_run.extensions_mut().insert(AfterRun);
        let refused = held(&account, after_run);
        assert_eq!(refused.status(), StatusCode::UNPROCESSABLE_ENTITY, "clients repeat a 503");
        assert_eq!(held(&account, Response::new(Body::from("small"))).status(), StatusCode::OK);
        assert_eq!(answer.into_body().collect().await.unwrap().to_bytes(), text);
        assert_eq!(held(&account, Response::new(Body::from(text))).status(), StatusCode::OK);
    }
}
