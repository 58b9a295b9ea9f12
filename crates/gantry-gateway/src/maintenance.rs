//! Removes data past its retention from the database and the data directory, so that neither grows without limit.
//!
//! Transfers, processes and the audit log remove their own data.

use std::sync::Arc;
use std::time::Duration;

use gantry_store::{Database, KeptResults};

/// Time between two sweeps. The first one runs at the start.
const PAUSE: Duration = Duration::from_secs(3600);

/// Days for which the cost of each run is kept. Daily totals are kept longer.
const RUNS_KNOWN_DAYS: i64 = 35;

pub struct Maintenance {
    pub database: Database,
    pub results: Arc<KeptResults>,
}

impl Maintenance {
    pub async fn run(&self) -> std::convert::Infallible {
        loop {
            self.sweep(jiff::Timestamp::now()).await;
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Sweeps once. A failed step is retried with the next sweep.
    async fn sweep(&self, now: jiff::Timestamp) {
        let now_ms = now.as_millisecond();
        let _ = self.database.sweep_requests(now_ms).await;
        let _ = self.database.sweep_process_ends(now_ms).await;
        let _ = self.database.sweep_one_off_sessions(now_ms).await;
        if let Ok(day) = now.checked_sub(jiff::SignedDuration::from_hours(24 * RUNS_KNOWN_DAYS)) {
            let day = day.to_zoned(jiff::tz::TimeZone::UTC).date();
            let _ = self.database.merge_spending(&day.to_string()).await;
        }
        let _ = self.database.release_free_pages().await;
        let results = self.results.clone();
        let _ = tokio::task::spawn_blocking(move || results.sweep()).await;
    }
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "tests set up their own world")]
mod tests {
    use gantry_store::{Begun, DataDir};
    use gantry_tool::ResultStore;
    use serde_json::json;

    use super::*;

    #[tokio::test]
    async fn data_past_its_retention_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let data = DataDir::new(folder.path().join("data"));
        let database = Database::open(&data).await.unwrap();
        let results = Arc::new(KeptResults::new(data.results()));
        let maintenance = Maintenance { database: database.clone(), results: results.clone() };
        let hash = blake3::hash(b"request");
        assert_eq!(database.begin_request("p", "key", &hash, "i", 0).await.unwrap(), Begun::New);
        database.record_process_end("box", "e1", &json!({}), 0).await.unwrap();
        let kept = results.keep("operator", "tool", "text").unwrap();
        let file = data.results().join(&kept.handle);
        let sweep = async |ms: i64| {
            maintenance.sweep(jiff::Timestamp::from_millisecond(ms).unwrap()).await;
            let ends = database.list_process_ends(None, 10).await.unwrap().len();
            let again = database.begin_request("p", "key", &hash, "i", 1).await.unwrap();
            (again, ends, file.exists())
        };
        let day = 24 * 3600 * 1000;
        assert_eq!(sweep(day - 1).await, (Begun::InProgress { created: 0 }, 1, true));
        assert_eq!(sweep(day).await, (Begun::New, 1, true));
        let long_ago = std::time::SystemTime::now() - Duration::from_secs(8 * 24 * 3600);
        std::fs::File::options().write(true).open(&file).unwrap().set_modified(long_ago).unwrap();
        assert_eq!(sweep(7 * day).await, (Begun::New, 0, false));
    }
}
