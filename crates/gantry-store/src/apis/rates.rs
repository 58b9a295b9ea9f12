//! How often an API was called: the times of its newest requests, one file a profile, the same for every process.
//!
//! The times are in order, so whether a window is full is one look at the request that has to be older than it.

use std::fs::File;
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};

use super::profile::RateLimit;
use crate::data_dir::replace_private;

const TIME_BYTES: u64 = 8;
/// The file is made short again when it holds this much more than is ever looked at.
const SLACK: u64 = 4_096;

/// A window is full.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RateLimited {
    pub limit: u32,
    /// `second`, `minute`, `hour` or `day`.
    pub window: &'static str,
    /// Until there is room.
    pub wait_ms: i64,
}

#[derive(Debug, Clone)]
pub(super) struct Rates {
    folder: PathBuf,
}

impl Rates {
    pub(super) fn new(folder: PathBuf) -> Rates {
        Rates { folder }
    }

    /// Counts a request at `now` (milliseconds since 1970), or says which window is full. What was counted is on disk.
    pub(super) fn take(&self, id: &str, limits: &RateLimit, now: i64) -> io::Result<Result<(), RateLimited>> {
        let Some(most) = limits.windows().map(|(_, _, limit)| u64::from(limit)).max() else {
            return Ok(Ok(()));
        };
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.folder)?;
        // The folder is the lock: the file itself is replaced when it is made short.
        let _lock = lock(&self.folder)?;
        let path = self.folder.join(id);
        let mut times = Times::open(&path)?;
        if times.last()?.is_some_and(|last| last > now) {
            times.set_back(now)?;
        }
        let mut full: Option<RateLimited> = None;
        for (window, length, limit) in limits.windows() {
            // The request that would be pushed out of the window by one more.
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
            replace_private(&path, &times.newest(most)?)?;
        }
        Ok(Ok(()))
    }

    /// Forgets one request that was counted at `time`.
    pub(super) fn give_back(&self, id: &str, time: i64) -> io::Result<()> {
        let path = self.folder.join(id);
        if !path.exists() {
            return Ok(());
        }
        let _lock = lock(&self.folder)?;
        Times::open(&path)?.remove(time)
    }
}

fn lock(folder: &Path) -> io::Result<File> {
    let lock = File::open(folder)?;
    flock(&lock, FlockOperation::LockExclusive)?;
    Ok(lock)
}

/// Times in order, eight bytes each. What a crash left of one is overwritten by the next.
struct Times {
    file: File,
    count: u64,
}

impl Times {
    fn open(path: &Path) -> io::Result<Times> {
        let mut options = File::options();
        let file = options.read(true).write(true).create(true).truncate(false).mode(0o600).open(path)?;
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

    /// The newest with this time, if it is still there; those after it move up.
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

    /// A clock that was put back: what was counted later than now counts as now, or nobody could ask until it is later.
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
mod tests {
    use super::*;

    fn rates() -> (tempfile::TempDir, Rates) {
        let folder = tempfile::tempdir().unwrap();
        let rates = Rates::new(folder.path().join("requests"));
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
        assert_eq!(take(11_100), full(3, "minute", 58_900), "the longest wait is told");
        assert_eq!(take(69_999), full(3, "minute", 1));
        assert_eq!(take(70_000), Ok(()));
        assert_eq!(rates.take("b", &limits, 70_000).unwrap(), Ok(()), "each profile counts for itself");
    }

    #[test]
    fn what_was_not_sent_is_given_back_once() {
        let (_folder, rates) = rates();
        let limits = limit(None, Some(3), None);
        let take = |now| rates.take("a", &limits, now).unwrap();
        rates.give_back("a", 1).unwrap();
        assert!(take(1).is_ok() && take(2).is_ok() && take(3).is_ok() && take(4).is_err());
        rates.give_back("a", 4).unwrap();
        assert!(take(4).is_err(), "nothing was counted then");
        rates.give_back("a", 2).unwrap();
        assert!(take(5).is_ok() && take(6).is_err());
        assert_eq!(
            take(60_000),
            Err(RateLimited { limit: 3, window: "minute", wait_ms: 1 }),
            "1, 3 and 5 are left"
        );
    }

    /// The count of a window is never more than its limit, whatever the times, and a refused request is not counted:
    /// compared with a list of all times that were let through.
    #[test]
    fn agrees_with_counting_by_hand() {
        let seed: u64 = std::env::var("GANTRY_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(7);
        println!("GANTRY_SEED={seed}");
        let (_folder, rates) = rates();
        let limits = limit(Some(3), Some(20), Some(200));
        let (mut now, mut let_through, mut state) = (1_000_000_i64, Vec::new(), seed | 1);
        for _ in 0..1_500 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            now += match state >> 61 {
                0..=4 => 50,
                5 => 900,
                6 => 20_000,
                _ => 3_000_000,
            };
            let fits = limits.windows().all(|(_, length, limit)| {
                let_through.iter().filter(|time| **time > now - length).count() < limit as usize
            });
            let taken = rates.take("a", &limits, now).unwrap();
            assert_eq!(taken.is_ok(), fits, "at {now}: {taken:?}");
            if fits {
                let_through.push(now);
            }
        }
    }

    #[test]
    fn many_processes_share_one_count() {
        let (_folder, rates) = rates();
        let limits = limit(None, Some(50), None);
        let taken: usize = std::thread::scope(|scope| {
            let asking: Vec<_> = (0..8)
                .map(|_| {
                    let rates = Rates::new(rates.folder.clone());
                    scope.spawn(move || {
                        (0..20).filter(|_| rates.take("a", &limits, 5_000).unwrap().is_ok()).count()
                    })
                })
                .collect();
            asking.into_iter().map(|asking| asking.join().unwrap()).sum()
        });
        assert_eq!(taken, 50);
    }

    #[test]
    fn the_file_stays_short_and_torn_tails_and_clocks_put_back_do_no_harm() {
        let (_folder, rates) = rates();
        let limits = limit(Some(1), None, None);
        let path = rates.folder.join("a");
        std::fs::create_dir(&rates.folder).unwrap();
        let old: Vec<u8> = (0..SLACK as i64 + 3).flat_map(|time| time.to_le_bytes()).collect();
        std::fs::write(&path, [old.as_slice(), b"torn"].concat()).unwrap();
        assert_eq!(rates.take("a", &limits, 1_000_000).unwrap(), Ok(()));
        assert_eq!(std::fs::metadata(&path).unwrap().len(), 8, "only what can matter is kept");
        assert!(rates.take("a", &limits, 1_000_500).unwrap().is_err());
        // An hour back: one second later there is room again, not an hour and a second later.
        assert!(rates.take("a", &limits, 1_000_000 - 3_600_000).unwrap().is_err());
        assert_eq!(rates.take("a", &limits, 1_001_000 - 3_600_000).unwrap(), Ok(()));
    }
}
