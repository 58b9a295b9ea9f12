//! The progress bar of a transfer, for terminals of any width.

use std::time::{Duration, Instant};

use gantry_protocol::CallProgress;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use rustix::termios::tcgetwinsize;
use tokio::sync::watch;

use crate::output::{Output, printable};

/// Transfers that finish sooner show no bar.
const BAR_AFTER: Duration = Duration::from_secs(1);

/// A rate is shown only after it was measured for this long.
const RATE_AFTER: Duration = Duration::from_secs(1);

/// Width that is assumed when the terminal does not report one.
const USUAL_COLUMNS: u16 = 80;

/// Prefix of the gateway's progress message while a machine is offline.
const WAITING: &str = "waiting for ";

/// Template while nothing moves: the rate would be 0, and the time left is unknown.
const WAITING_FORM: &str = "{bytes}  {wide_msg}";

/// The characters that the terminal can show.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Glyphs {
    Unicode,
    Ascii,
}

/// Draws the bar for as long as the future is polled.
pub(super) async fn show_progress(
    output: &Output,
    glyphs: Glyphs,
    mut progress: watch::Receiver<Option<CallProgress>>,
) -> std::convert::Infallible {
    if !output.shows_progress() {
        return std::future::pending().await;
    }
    let started = Instant::now();
    let mut bar: Option<Bar> = None;
    loop {
        if progress.changed().await.is_err() {
            return std::future::pending().await;
        }
        let Some(CallProgress { done, total, message, .. }) = progress.borrow_and_update().clone() else {
            continue;
        };
        if started.elapsed() < BAR_AFTER {
            continue;
        }
        let bar = bar.get_or_insert_with(|| Bar::new(glyphs));
        match message.strip_prefix(WAITING) {
            Some(_) => bar.wait(done, &message),
            None => bar.show(done, total),
        }
    }
}

/// A progress bar that is erased when dropped.
struct Bar {
    bar: ProgressBar,
    glyphs: Glyphs,
    form: &'static str,
    /// The last number shown, and since when the numbers have only grown. The rate is measured from then.
    shown: Option<(u64, Instant)>,
}

impl Bar {
    fn new(glyphs: Glyphs) -> Bar {
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
        Bar { bar, glyphs, form: "", shown: None }
    }

    /// Shows that the transfer waits for a machine.
    fn wait(&mut self, done: u64, message: &str) {
        if self.form != WAITING_FORM
            && let Ok(style) = ProgressStyle::with_template(WAITING_FORM)
        {
            self.form = WAITING_FORM;
            self.bar.set_style(style);
        }
        self.bar.set_position(done);
        self.bar.set_message(printable(message));
        // The rate is measured again once the transfer resumes.
        self.shown = None;
    }

    fn show(&mut self, done: u64, total: Option<u64>) {
        let columns =
            tcgetwinsize(std::io::stderr()).map(|size| size.ws_col).ok().filter(|columns| *columns > 0);
        let since = match self.shown {
            Some((before, since)) if before <= done => Some(since),
            _ => None,
        };
        let rate_is_known = since.is_some_and(|since| since.elapsed() >= RATE_AFTER);
        let form = form(columns.unwrap_or(USUAL_COLUMNS), total.is_some(), rate_is_known);
        if form != self.form
            && let Ok(style) = ProgressStyle::with_template(form)
        {
            self.form = form;
            self.bar.set_style(match self.glyphs {
                Glyphs::Unicode => style,
                Glyphs::Ascii => style.progress_chars("#>-").tick_chars("|/-\\ "),
            });
        }
        if let Some(total) = total {
            self.bar.set_length(total);
        }
        self.bar.set_position(done);
        if since.is_none() {
            // Bytes from before the bar existed must not count for the rate.
            self.bar.reset_eta();
        }
        self.shown = Some((done, since.unwrap_or_else(Instant::now)));
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

/// Returns a template that fits into one line, because a wrapped line cannot be redrawn.
fn form(columns: u16, total_is_known: bool, rate_is_known: bool) -> &'static str {
    match (total_is_known, rate_is_known, columns) {
        (true, true, 100..) => "{bar:30} {bytes} of {total_bytes}  {binary_bytes_per_sec}  {eta} left",
        (true, true, 72..) => "{wide_bar} {bytes} of {total_bytes}  {binary_bytes_per_sec}  {eta} left",
        (true, true, 40..) => "{percent:>3}%  {binary_bytes_per_sec}  {eta} left",
        (true, false, 100..) => "{bar:30} {bytes} of {total_bytes}",
        (true, false, 72..) => "{wide_bar} {bytes} of {total_bytes}",
        (true, ..) => "{percent:>3}%",
        (false, true, 46..) => "{spinner} {bytes}  {binary_bytes_per_sec}  {elapsed}",
        (false, ..) => "{spinner} {bytes}",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bar_fits_into_one_line() {
        let longest = [
            ("{bar:30}", 30),
            ("{wide_bar}", 1),
            ("{total_bytes}", "1023.99 GiB".len()),
            ("{bytes}", "1023.99 GiB".len()),
            ("{binary_bytes_per_sec}", "1023.99 MiB/s".len()),
            ("{eta}", "59 minutes".len()),
            ("{elapsed}", "59 minutes".len()),
            ("{percent:>3}", 3),
            ("{spinner}", 1),
        ];
        for columns in 14..200 {
            for (total_is_known, rate_is_known) in
                [(true, true), (true, false), (false, true), (false, false)]
            {
                let mut drawn = form(columns, total_is_known, rate_is_known).to_owned();
                let tells_rate = drawn.contains("per_sec") || drawn.contains("eta");
                assert!(rate_is_known || !tells_rate, "{drawn}");
                for (name, length) in longest {
                    drawn = drawn.replace(name, &"x".repeat(length));
                }
                assert!(!drawn.contains('{'), "{drawn}");
                assert!(drawn.len() < usize::from(columns), "{columns}: {} of {drawn}", drawn.len());
            }
        }
    }

    #[test]
    fn waiting_bar_shows_no_rate_and_no_time_left() {
        let mut bar = Bar::new(Glyphs::Ascii);
        bar.show(10, Some(100));
        bar.wait(10, "waiting for laptop to reconnect");
        assert!(!bar.form.contains("per_sec") && !bar.form.contains("eta"), "{}", bar.form);
        assert_eq!(bar.bar.message(), "waiting for laptop to reconnect");
        bar.show(20, Some(100));
        assert!(bar.form.contains("{total_bytes}") && !bar.form.contains("msg"), "{}", bar.form);
    }

    #[test]
    fn earlier_bytes_do_not_count_for_the_rate() {
        const GIB: u64 = 1 << 30;
        let mut bar = Bar::new(Glyphs::Ascii);
        // First a transfer that is already far along, then one that starts over.
        for (before, since) in [(9 * GIB, 9 * GIB), (GIB, 0)] {
            let began = Instant::now();
            bar.show(before, Some(10 * GIB));
            bar.show(since, Some(10 * GIB));
            assert!(!bar.form.contains("per_sec") || began.elapsed() >= RATE_AFTER, "{}", bar.form);
            std::thread::sleep(RATE_AFTER);
            bar.show(since + 1000, Some(10 * GIB));
            assert!(bar.form.contains("per_sec"), "{}", bar.form);
            let rate = bar.bar.per_sec();
            assert!((1.0..=1500.0).contains(&rate), "{rate}");
        }
    }
}
