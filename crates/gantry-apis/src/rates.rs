//! [`Rates`] counts requests against rate limits. One file per API holds the times of its newest
//! requests; all processes share it.
//!
//! The times are sorted. A window with limit N is full if the N-th newest request is still inside
//! it, so one read per window decides.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use gantry_store::PrivateFolder;

use crate::profile::RateLimit;

const TIME_BYTES: u64 = 8;
/// The file is shortened when it holds more entries than twice the largest limit plus this.
const SLACK: u64 = 4_096;

/// The request would exceed a limit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RateLimited {
    pub limit: u32,
    /// `second`, `minute`, `hour` or `day`.
    pub window: &'static str,
    /// The time until a request fits again.
    pub wait_ms: i64,
}

#[derive(Debug, Clone)]
pub(crate) struct Rates {
    folder: PrivateFolder,
}

impl Rates {
    pub(crate) fn new(folder: PrivateFolder) -> Rates {
        Rates { folder }
    }

    /// Counts a request at `now` (milliseconds since 1970), or returns the window that is full. A
    /// counted request is on disk when this returns.
    pub(crate) fn take(&self, id: &str, limits: &RateLimit, now: i64) -> io::Result<Result<(), RateLimited>> {
        let Some(most) = limits.windows().map(|(_, _, limit)| u64::from(limit)).max() else {
            return Ok(Ok(()));
        };
        self.folder.create()?;
        let _lock = self.folder.lock()?;
        let mut times = Times::open(&self.folder, id)?;
        if times.last()?.is_some_and(|last| last > now) {
            times.set_back(now)?;
        }
        let mut full: Option<RateLimited> = None;
        for (window, length, limit) in limits.windows() {
            // The N-th newest request, for a limit of N.
            let Some(at) = times.count.checked_sub(u64::from(limit)) else { continue };
            let wait_ms = times.at(at)? + length - now;
            if wait_ms > 0 && full.as_ref().is_none_or(|full| full.wait_ms < wait_ms) {
                full = Some(RateLimited { limit, window, wait_ms });
            }
        }
        if let Some(full) = full {
            return Ok(Err(full));
        }
        times.push(now)?;
        if times.count > 2 * most + SLACK {
            self.folder.replace(id, &times.newest(most)?)?;
        }
        Ok(Ok(()))
    }

    /// Removes one request that was counted at `time`.
    pub(crate) fn give_back(&self, id: &str, time: i64) -> io::Result<()> {
        if !self.folder.contains(id) {
            return Ok(());
        }
        let _lock = self.folder.lock()?;
        Times::open(&self.folder, id)?.remove(time)
    }
}

/// A file of sorted times, eight bytes each. The next write overwrites a part of a time that a
/// crash left.
struct Times {
    file: File,
    count: u64,
}

impl Times {
    fn open(folder: &PrivateFolder, name: &str) -> io::Result<Times> {
        let file = folder.open_or_create(name)?;
        let count = file.metadata()?.len() / TIME_BYTES;
        Ok(Times { file, count })
    }

    fn at(&self, index: u64) -> io::Result<i64> {
        let mut bytes = [0; TIME_BYTES as usize];
        self.file.read_exact_at(&mut bytes, index * TIME_BYTES)?;
        Ok(i64::from_le_bytes(bytes))
    }

    fn last(&self) -> io::Result<Option<i64>> {
        self.count.checked_sub(1).map(|last| self.at(last)).transpose()
    }

    fn push(&mut self, time: i64) -> io::Result<()> {
        self.file.write_all_at(&time.to_le_bytes(), self.count * TIME_BYTES)?;
        self.count += 1;
        self.file.sync_data()
    }

    fn newest(&self, most: u64) -> io::Result<Vec<u8>> {
        let count = most.min(self.count);
        let mut bytes = vec![0; usize::try_from(count * TIME_BYTES).unwrap_or(0)];
        self.file.read_exact_at(&mut bytes, (self.count - count) * TIME_BYTES)?;
        Ok(bytes)
    }

    /// Removes the newest entry with this time, if there is one, and moves later entries up.
    fn remove(&mut self, time: i64) -> io::Result<()> {
        for index in (0..self.count).rev() {
            match self.at(index)? {
                found if found > time => continue,
                found if found < time => break,
                _ => {}
            }
            for later in index + 1..self.count {
                let moved = self.at(later)?;
                self.file.write_all_at(&moved.to_le_bytes(), (later - 1) * TIME_BYTES)?;
            }
            self.count -= 1;
            self.file.set_len(self.count * TIME_BYTES)?;
            break;
        }
        Ok(())
    }

    /// Handles a clock that was set back: times in the future become `now`. Otherwise they would
    /// block every request until the clock catches up.
    fn set_back(&mut self, now: i64) -> io::Result<()> {
        for index in (0..self.count).rev() {
            if self.at(index)? <= now {
                break;
            }
            self.file.write_all_at(&now.to_le_bytes(), index * TIME_BYTES)?;
        }
        Ok(())
    }
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "tests damage files on purpose and read the seed")]
mod tests {
    use super::*;

    fn rates() -> (tempfile::TempDir, Rates) {
        let folder = tempfile::tempdir().unwrap();
        let data = gantry_store::DataDir::new(folder.path().join("data"));
        let rates = Rates::new(data.private_folder("requests"));
        (folder, rates)
    }

    fn limit(second: Option<u32>, minute: Option<u32>, day: Option<u32>) -> RateLimit {
        RateLimit {
            requests_per_second: second,
            requests_per_minute: minute,
            requests_per_day: day,
            ..RateLimit::default()
        }
    }

    #[test]
    fn windows_slide_and_the_wait_is_exact() {
        let (_folder, rates) = rates();
        let limits = limit(Some(2), Some(3), None);
        let take = |now| rates.take("a", &limits, now).unwrap();
        assert_eq!((take(10_000), take(10_400)), (Ok(()), Ok(())));
        let full = |limit, window, wait_ms| Err(RateLimited { limit, window, wait_ms });
        assert_eq!(take(10_999), full(2, "second", 1));
        assert_eq!(take(11_000), Ok(()));
        assert_eq!(take(11_100), full(3, "minute", 58_900), "the longest wait is reported");
        assert_eq!(take(69_999), full(3, "minute", 1));
        assert_eq!(take(70_000), Ok(()));
        assert_eq!(rates.take("b", &limits, 70_000).unwrap(), Ok(()), "each API has its own count");
    }

    #[test]
    fn given_back_request_is_uncounted_once() {
        let (_folder, rates) = rates();
        let limits = limit(None, Some(3), None);
        let take = |now| rates.take("a", &limits, now).unwrap();
        rates.give_back("a", 1).unwrap();
        assert!(take(1).is_ok() && take(2).is_ok() && take(3).is_ok() && take(4).is_err());
        rates.give_back("a", 4).unwrap();
        assert!(take(4).is_err(), "no request was counted at that time");
        rates.give_back("a", 2).unwrap();
        assert!(take(5).is_ok() && take(6).is_err());
        assert_eq!(
            take(60_000),
            Err(RateLimited { limit: 3, window: "minute", wait_ms: 1 }),
            "the requests at 1, 3 and 5 remain"
        );
    }

    /// A window never holds more requests than its limit, and a rejected request is not counted.
    /// The model is a list of all accepted times.
    #[test]
    fn random_requests_agree_with_a_naive_count() {
        let seed = gantry_testkit::seed_or(7);
        let (_folder, rates) = rates();
        let limits = limit(Some(3), Some(20), Some(200));
        let (mut now, mut accepted, mut state) = (1_000_000_i64, Vec::new(), seed | 1);
        for _ in 0..1_500 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            now += match state >> 61 {
                0..=4 => 50,
                5 => 900,
                6 => 20_000,
                _ => 3_000_000,
            };
            let fits = limits.windows().all(|(_, length, limit)| {
                accepted.iter().filter(|time| **time > now - length).count() < limit as usize
            });
            let taken = rates.take("a", &limits, now).unwrap();
            assert_eq!(taken.is_ok(), fits, "at {now}: {taken:?}");
            if fits {
                accepted.push(now);
            }
        }
    }

    #[test]
    fn concurrent_counters_share_one_limit() {
        let (_folder, rates) = rates();
        let limits = limit(None, Some(50), None);
        let taken: usize = std::thread::scope(|scope| {
            let counters: Vec<_> = (0..8)
                .map(|_| {
                    let rates = Rates::new(rates.folder.clone());
                    scope.spawn(move || {
                        (0..20).filter(|_| rates.take("a", &limits, 5_000).unwrap().is_ok()).count()
                    })
                })
                .collect();
            counters.into_iter().map(|counter| counter.join().unwrap()).sum()
        });
        assert_eq!(taken, 50);
    }

    #[test]
    fn file_stays_short_and_survives_torn_tails_and_clock_changes() {
        let (_folder, rates) = rates();
        let limits = limit(Some(1), None, None);
        let path = rates.folder.path().join("a");
        rates.folder.create().unwrap();
        let old: Vec<u8> = (0..SLACK as i64 + 3).flat_map(|time| time.to_le_bytes()).collect();
        std::fs::write(&path, [old.as_slice(), b"torn"].concat()).unwrap();
        assert_eq!(rates.take("a", &limits, 1_000_000).unwrap(), Ok(()));
        assert_eq!(std::fs::metadata(&path).unwrap().len(), 8, "only times inside a window are kept");
        assert!(rates.take("a", &limits, 1_000_500).unwrap().is_err());
        // The clock goes back an hour: a request fits after one second, not after an hour and a
        // second.
        assert!(rates.take("a", &limits, 1_000_000 - 3_600_000).unwrap().is_err());
        assert_eq!(rates.take("a", &limits, 1_001_000 - 3_600_000).unwrap(), Ok(()));
    }
}
