//! When work is due: schedules, dates in words, and texts about times.

mod dates;
mod intervals;
mod schedule;
mod texts;

pub use dates::{Moment, parse_future, parse_moment};
pub use intervals::{MIN_INTERVAL_MS, parse_interval};
pub use schedule::{Schedule, jitter_ms, zone_named};
pub(crate) use texts::counted;
pub use texts::{duration_text, local_text, relative_text, utc_text};

pub(crate) const SECOND_MS: i64 = 1_000;
pub(crate) const MINUTE_MS: i64 = 60 * SECOND_MS;
pub(crate) const HOUR_MS: i64 = 60 * MINUTE_MS;
pub(crate) const DAY_MS: i64 = 24 * HOUR_MS;
