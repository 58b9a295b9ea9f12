//! Rate limits. Discord names a bucket in its answers; routes of one bucket share a limit for each channel.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use gantry_net::HeaderMap;
use tokio::time::Instant;

/// How many routes and limits are remembered.
const MAX_KNOWN: usize = 2_000;
/// The longest pause that is believed.
const MAX_PAUSE: Duration = Duration::from_secs(3_600);

#[derive(Default)]
pub(super) struct Buckets {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Until when nothing may be sent at all.
    everything: Option<Instant>,
    /// The bucket of a route, by the route's name.
    names: HashMap<String, String>,
    /// Until when a bucket is empty, by bucket and channel.
    empty: HashMap<String, Instant>,
}

/// What a request counts against: the route, and the channel or other object that has a limit of its own.
#[derive(Debug, Clone, Copy)]
pub(super) struct Route<'a> {
    pub(super) name: &'static str,
    pub(super) object: &'a str,
}

impl Buckets {
    /// How long to wait before a request.
    pub(super) fn wait(&self, route: Route<'_>) -> Duration {
        let state = self.state();
        let empty = state.empty.get(&state.bucket(route)).copied();
        let until = [state.everything, empty].into_iter().flatten().max();
        until.map_or(Duration::ZERO, |until| until.saturating_duration_since(Instant::now()))
    }

    /// Notes what an answer says about its bucket.
    pub(super) fn note(&self, route: Route<'_>, headers: &HeaderMap) {
        let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
        let mut state = self.state();
        if let Some(bucket) = text("x-ratelimit-bucket").filter(|bucket| bucket.len() <= 100) {
            if state.names.len() >= MAX_KNOWN {
                state.names.clear();
            }
            state.names.insert(route.name.to_owned(), bucket.to_owned());
        }
        if text("x-ratelimit-remaining") == Some("0")
            && let Some(after) = text("x-ratelimit-reset-after").and_then(seconds)
        {
            state.close(route, after);
        }
    }

    /// Notes that Discord refused a request because of a limit.
    pub(super) fn refuse(&self, route: Route<'_>, after: Duration, is_global: bool) {
        let mut state = self.state();
        match is_global {
            true => state.everything = Some(Instant::now() + after),
            false => state.close(route, after),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn bucket(&self, route: Route<'_>) -> String {
        let name = self.names.get(route.name).map_or(route.name, String::as_str);
        format!("{name}:{}", route.object)
    }

    fn close(&mut self, route: Route<'_>, after: Duration) {
        let now = Instant::now();
        if self.empty.len() >= MAX_KNOWN {
            self.empty.retain(|_, until| *until > now);
        }
        if self.empty.len() >= MAX_KNOWN {
            self.empty.clear();
        }
        self.empty.insert(self.bucket(route), now + after);
    }
}

/// Reads a number of seconds such as `0.65`.
pub(super) fn seconds(text: &str) -> Option<Duration> {
    let seconds: f64 = text.trim().parse().ok()?;
    let duration = Duration::try_from_secs_f64(seconds).ok()?;
    Some(duration.min(MAX_PAUSE))
}

#[cfg(test)]
mod tests {
    use gantry_net::HeaderValue;

    use super::*;

    fn route(name: &'static str, object: &'static str) -> Route<'static> {
        Route { name, object }
    }

    fn headers(bucket: &'static str, remaining: &'static str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert("x-ratelimit-bucket", HeaderValue::from_static(bucket));
        headers.insert("x-ratelimit-remaining", HeaderValue::from_static(remaining));
        headers.insert("x-ratelimit-reset-after", HeaderValue::from_static("4.5"));
        headers
    }

    #[test]
    fn routes_of_a_bucket_share_a_limit_for_each_channel() {
        let buckets = Buckets::default();
        buckets.note(route("send", "1"), &headers("b", "1"));
        buckets.note(route("edit", "1"), &headers("b", "0"));
        assert!(buckets.wait(route("send", "1")) > Duration::from_secs(4));
        assert_eq!(buckets.wait(route("send", "2")), Duration::ZERO);
        assert_eq!(buckets.wait(route("typing", "1")), Duration::ZERO);
    }

    #[test]
    fn global_limit_holds_for_every_route() {
        let buckets = Buckets::default();
        buckets.refuse(route("send", "1"), Duration::from_secs(9), true);
        assert!(buckets.wait(route("typing", "2")) > Duration::from_secs(8));
    }

    #[test]
    fn memory_is_bounded_and_nonsense_is_ignored() {
        let buckets = Buckets::default();
        for number in 0..3 * MAX_KNOWN {
            let object = number.to_string();
            buckets.refuse(Route { name: "send", object: &object }, Duration::from_secs(9), false);
        }
        assert!(buckets.state().empty.len() <= MAX_KNOWN);
        for text in ["", "-1", "NaN", "inf", "x"] {
            assert_eq!(seconds(text), None, "{text}");
        }
        assert_eq!(seconds("1e9"), Some(MAX_PAUSE));
    }
}
