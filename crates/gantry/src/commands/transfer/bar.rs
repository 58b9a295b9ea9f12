//! How far a transfer is, on a terminal of any width.

use std::time::{Duration, Instant};

use gantry_protocol::CallProgress;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use rustix::termios::tcgetwinsize;
use tokio::sync::watch;

use crate::output::Output;

/// Work that is done sooner needs no bar.
const BAR_AFTER: Duration = Duration::from_secs(1);

/// What a terminal whose width is not known is taken to have.
const USUAL_COLUMNS: u16 = 80;

/// What can be drawn with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Glyphs {
    Unicode,
    Ascii,
}

/// Draws for as long as it is polled.
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
        let Some(CallProgress { done, total, .. }) = progress.borrow_and_update().clone() else { continue };
        if started.elapsed() < BAR_AFTER {
            continue;
        }
        bar.get_or_insert_with(|| Bar::new(glyphs)).show(done, total);
    }
}

/// Gone when dropped.
struct Bar {
    bar: ProgressBar,
    glyphs: Glyphs,
    form: &'static str,
}

impl Bar {
    fn new(glyphs: Glyphs) -> Bar {
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
        Bar { bar, glyphs, form: "" }
    }

    fn show(&mut self, done: u64, total: Option<u64>) {
        let columns =
            tcgetwinsize(std::io::stderr()).map(|size| size.ws_col).ok().filter(|columns| *columns > 0);
        let form = form(columns.unwrap_or(USUAL_COLUMNS), total.is_some());
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
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

/// What fits into one line; a line that is wrapped cannot be drawn over.
fn form(columns: u16, total_is_known: bool) -> &'static str {
    match (total_is_known, columns) {
        (true, 100..) => "{bar:30} {bytes} of {total_bytes}  {binary_bytes_per_sec}  {eta} left",
        (true, 72..) => "{wide_bar} {bytes} of {total_bytes}  {binary_bytes_per_sec}  {eta} left",
        (true, 40..) => "{percent:>3}%  {binary_bytes_per_sec}  {eta} left",
        (true, _) => "{percent:>3}%",
        (false, 46..) => "{spinner} {bytes}  {binary_bytes_per_sec}  {elapsed}",
        (false, _) => "{spinner} {bytes}",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_drawn_fits_the_line() {
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
            for total_is_known in [true, false] {
                let mut drawn = form(columns, total_is_known).to_owned();
                for (name, length) in longest {
                    drawn = drawn.replace(name, &"x".repeat(length));
                }
                assert!(!drawn.contains('{'), "{drawn}");
                assert!(drawn.len() < usize::from(columns), "{columns}: {} of {drawn}", drawn.len());
            }
        }
    }
}
