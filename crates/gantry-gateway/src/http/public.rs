//! Public routes of domains, each with its own limits on size and rate.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Body;
use axum::extract::{ConnectInfo, DefaultBodyLimit, Request, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::Response;
use http_body_util::Limited;

use gantry_domain::CallerAddress;

use super::{not_allowed, problem};
use crate::gateway::Gateway;
use crate::server::Peer;

const WINDOW: Duration = Duration::from_secs(60);

/// Maximum addresses that are counted. The oldest are dropped first.
const MAX_ADDRESSES: usize = 4096;

/// Timeout of a request, including its body and the answer.
const TIME_LIMIT: Duration = Duration::from_secs(60);

pub(super) fn routes(gateway: &Arc<Gateway>) -> Router<Arc<Gateway>> {
    let mut router = Router::new();
    for route in gateway.domains.iter().flat_map(|domain| domain.public_routes()) {
        let limits = Arc::new(Limits {
            max_body_bytes: route.max_body_bytes,
            per_minute: route.per_minute,
            counted: Mutex::default(),
        });
        let own = Router::new()
            .route(route.path, route.handler)
            .method_not_allowed_fallback(not_allowed)
            .layer(DefaultBodyLimit::max(route.max_body_bytes))
            .layer(middleware::from_fn_with_state(limits, limit))
            .with_state(gateway.request_context());
        router = router.merge(own);
    }
    router
}

struct Limits {
    max_body_bytes: usize,
    per_minute: u32,
    counted: Mutex<HashMap<IpAddr, Count>>,
}

struct Count {
    since: Instant,
    requests: u32,
}

impl Limits {
    /// Counts a request. False when the address has sent too many within the window.
    fn admit(&self, from: IpAddr) -> bool {
        let mut counted = self.counted.lock().unwrap_or_else(PoisonError::into_inner);
        if counted.len() >= MAX_ADDRESSES && !counted.contains_key(&from) {
            counted.retain(|_, count| count.since.elapsed() < WINDOW);
            if counted.len() >= MAX_ADDRESSES {
                let oldest = counted.iter().min_by_key(|(_, count)| count.since).map(|(from, _)| *from);
                oldest.map(|from| counted.remove(&from));
            }
        }
        let count = counted.entry(from).or_insert_with(|| Count { since: Instant::now(), requests: 0 });
        if count.since.elapsed() >= WINDOW {
            *count = Count { since: Instant::now(), requests: 0 };
        }
        count.requests = count.requests.saturating_add(1);
        count.requests <= self.per_minute
    }
}

async fn limit(
    State(limits): State<Arc<Limits>>,
    ConnectInfo(peer): ConnectInfo<Peer>,
    request: Request,
    next: Next,
) -> Response {
    if !limits.admit(peer.address) {
        let message = format!("too many requests; the limit is {} per minute", limits.per_minute);
        let mut response = problem(StatusCode::TOO_MANY_REQUESTS, "too_many", &message, None);
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("60"));
        return response;
    }
    let length = request.headers().get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok());
    let length = length.and_then(|length| length.parse::<usize>().ok()).unwrap_or(0);
    if length > limits.max_body_bytes {
        let message = format!("the body must have at most {} bytes", limits.max_body_bytes);
        return problem(StatusCode::PAYLOAD_TOO_LARGE, "too_large", &message, None);
    }
    // A body without a declared length is counted as it arrives.
    let mut request = request.map(|body| Body::new(Limited::new(body, limits.max_body_bytes)));
    request.extensions_mut().insert(CallerAddress(peer.address));
    tokio::time::timeout(TIME_LIMIT, next.run(request)).await.unwrap_or_else(|_| {
        problem(StatusCode::REQUEST_TIMEOUT, "deadline", "the request did not arrive in time", None)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_beyond_the_limit_are_rejected_per_address() {
        let limits = Limits { max_body_bytes: 10, per_minute: 3, counted: Mutex::default() };
        let [one, other] = [[10, 0, 0, 1], [10, 0, 0, 2]].map(IpAddr::from);
        let admitted = (0..5).filter(|_| limits.admit(one)).count();
        assert_eq!(admitted, 3);
        assert!(limits.admit(other));
    }

    #[test]
    fn counted_addresses_are_bounded() {
        let limits = Limits { max_body_bytes: 10, per_minute: 3, counted: Mutex::default() };
        for n in 0..2 * MAX_ADDRESSES as u32 {
            assert!(limits.admit(IpAddr::from(n.to_be_bytes())));
        }
        assert!(limits.counted.lock().unwrap().len() <= MAX_ADDRESSES);
    }
}
