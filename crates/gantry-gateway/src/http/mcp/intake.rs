//! How much of what clients send is held at once: all bodies together are no longer than the longest one may be.

use std::sync::Arc;
use std::time::Duration;

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::super::call::MAX_BODY_BYTES;
use super::super::problem;

/// Bodies up to this are not counted: what they are is bounded by the number of connections.
const SMALL: usize = 64 * 1024;
/// What is counted.
const UNIT: usize = 1024;
/// For room, before whoever sends is asked to come again.
const WAIT: Duration = Duration::from_secs(10);

#[derive(Clone)]
pub(super) struct Intake {
    room: Arc<Semaphore>,
    wait: Duration,
}

impl Default for Intake {
    fn default() -> Intake {
        Intake { room: Arc::new(Semaphore::new(MAX_BODY_BYTES / UNIT)), wait: WAIT }
    }
}

impl Intake {
    /// Room for a body, kept until it is dropped. One that does not say how long it is may be as long as any.
    pub(super) async fn admit(
        &self,
        length: Option<u64>,
    ) -> Result<Option<OwnedSemaphorePermit>, Box<Response>> {
        let most = length.and_then(|length| usize::try_from(length).ok());
        let most = most.unwrap_or(MAX_BODY_BYTES).min(MAX_BODY_BYTES);
        if most <= SMALL {
            return Ok(None);
        }
        let units = u32::try_from(most.div_ceil(UNIT)).unwrap_or(u32::MAX);
        let room = tokio::time::timeout(self.wait, self.room.clone().acquire_many_owned(units)).await;
        match room {
            Ok(Ok(room)) => Ok(Some(room)),
            _ => Err(Box::new(full())),
        }
    }
}

fn full() -> Response {
    let message = format!("requests under way have {MAX_BODY_BYTES} bytes together already");
    let mut response =
        problem(StatusCode::SERVICE_UNAVAILABLE, "too_many", &message, Some("send it again in a moment"));
    response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("5"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn all_bodies_together_are_no_longer_than_one_may_be() {
        let intake = Intake::default();
        let half = Some(MAX_BODY_BYTES as u64 / 2);
        let first = intake.admit(half).await.unwrap();
        let second = intake.admit(half).await.unwrap();
        assert!(first.is_some() && second.is_some());
        assert!(intake.admit(Some(SMALL as u64)).await.unwrap().is_none(), "small ones pass");
        let refused = intake.admit(Some(SMALL as u64 + 1)).await.unwrap_err();
        assert_eq!(refused.status(), StatusCode::SERVICE_UNAVAILABLE);
        drop(first);
        assert!(intake.admit(half).await.unwrap().is_some(), "what is over makes room");
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_of_unknown_length_counts_as_the_longest() {
        let intake = Intake::default();
        let _first = intake.admit(None).await.unwrap();
        assert!(intake.admit(None).await.is_err());
    }
}
