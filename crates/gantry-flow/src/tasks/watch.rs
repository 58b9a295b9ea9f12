//! Looks at a watched page. Without a change no model is asked.

use std::time::Duration;

use gantry_net::{HeaderValue, Request, StatusCode, Url, header};
use gantry_page::readable;
use gantry_store::WatchRow;
use similar::TextDiff;
use tokio::time::Instant;

use super::actions::TaskError;
use super::definition::Task;
use super::notices::{self, Notice};
use super::worker::{cut, new_run};
use crate::domain::Flow;
use crate::time::{DAY_MS, HOUR_MS};

const TIMEOUT: Duration = Duration::from_secs(30);
const MAX_PAGE_BYTES: usize = 5 * 1024 * 1024;
/// Characters of a page's text that are compared and stored.
const MAX_TEXT: usize = 500_000;
/// Characters of changes that a run gets.
const MAX_DIFF: usize = 8_000;
/// Lines around a change.
const CONTEXT: usize = 2;
/// The failed look in a row after which the owner gets a notice.
const NOTICED_FAILURE: i64 = 2;
/// The second look after a failure is not later than this.
const SECOND_LOOK_MS: i64 = HOUR_MS;

/// What a look at a page found.
enum Look {
    Unchanged,
    Found { etag: Option<String>, modified: Option<String>, text: String },
}

/// Looks at the page of a task, and stores a run if it changed.
pub(super) async fn check(flow: &Flow, task: Task) {
    let id = task.row.id.clone();
    let looked = match look(flow, &task).await {
        Ok(look) => compare(flow, &task, look).await,
        Err(reason) => failed(flow, &task, &reason).await,
    };
    if let Err(err) = looked {
        tracing::error!(%err, task = id, "watch_failed");
    }
}

/// Fetches the page. A server that knows the last answer says that nothing changed.
async fn look(flow: &Flow, task: &Task) -> Result<Look, String> {
    let address = task.definition.watch_url.as_deref().unwrap_or_default();
    let url = Url::parse(address).map_err(|err| format!("{address}: {err}"))?;
    let before = flow.parts.database.watch(&task.row.id).await.map_err(|err| err.to_string())?;
    let pages = &flow.tasks.pages;
    let mut request = Request::get(url, Instant::now() + TIMEOUT);
    request.policy = (pages.policy)(&task.row.agent);
    let accepted = HeaderValue::from_static("text/html, application/xhtml+xml, text/*;q=0.9, */*;q=0.5");
    request.headers.insert(header::ACCEPT, accepted);
    let conditions = before
        .as_ref()
        .map(|before| [(header::IF_NONE_MATCH, &before.etag), (header::IF_MODIFIED_SINCE, &before.modified)]);
    for (name, value) in conditions.into_iter().flatten() {
        if let Some(value) = value.as_deref().and_then(|value| HeaderValue::from_str(value).ok()) {
            request.headers.insert(name, value);
        }
    }
    let response = pages.client.send(request).await.map_err(|err| err.to_string())?;
    if response.status == StatusCode::NOT_MODIFIED && before.is_some() {
        return Ok(Look::Unchanged);
    }
    if !response.status.is_success() {
        return Err(format!("{address} answered {}", response.status));
    }
    let value = |name| response.headers.get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
    let (etag, modified, kind) =
        (value(header::ETAG), value(header::LAST_MODIFIED), value(header::CONTENT_TYPE));
    let url = response.url;
    let body = response.body.read(MAX_PAGE_BYTES).await.map_err(|err| err.to_string())?;
    let read = move || readable(&body.bytes, kind.as_deref(), Some(&url)).map(|page| normalised(&page.text));
    let text = tokio::task::spawn_blocking(read).await.map_err(|err| err.to_string())?;
    let text = text.map_err(|err| format!("{address}: {err}"))?;
    Ok(Look::Found { etag, modified, text })
}

/// Removes what changes without meaning: blanks around and within lines, and empty lines.
fn normalised(text: &str) -> String {
    let lines = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "));
    let lines: Vec<String> = lines.filter(|line| !line.is_empty()).collect();
    lines.join("\n").chars().take(MAX_TEXT).collect()
}

async fn compare(flow: &Flow, task: &Task, look: Look) -> Result<(), TaskError> {
    let Look::Found { etag, modified, text } = look else { return Ok(()) };
    let database = &flow.parts.database;
    let now = flow.parts.clock.now();
    let hash = blake3::hash(text.as_bytes()).to_hex().to_string();
    let before = database.watch(&task.row.id).await?;
    // An unchanged page writes nothing, unless failures have to be forgotten or its tag is new.
    let same = |before: &WatchRow| before.hash == hash && before.etag == etag && before.modified == modified;
    if before.as_ref().is_some_and(same) && task.row.errors == 0 {
        return Ok(());
    }
    let change =
        before.as_ref().filter(|before| before.hash != hash).map(|before| changes(&before.text, &text));
    let run = change.as_deref().map(|change| new_run(task, now, Some(change))).transpose()?;
    let found = WatchRow { etag, modified, hash, text, checked: now };
    database.record_watch(&task.row.id, &found, run.as_ref()).await?;
    if run.is_some() {
        flow.tasks.wake.notify_one();
    }
    Ok(())
}

/// Returns the changes as a unified diff.
fn changes(before: &str, now: &str) -> String {
    let diff = TextDiff::from_lines(before, now);
    cut(&diff.unified_diff().context_radius(CONTEXT).to_string(), MAX_DIFF)
}

/// Counts a failed look and tries again later: first within an hour, then after 2, 4, 8 … intervals, at most a day.
async fn failed(flow: &Flow, task: &Task, reason: &str) -> Result<(), TaskError> {
    let now = flow.parts.clock.now();
    let interval = task.interval_ms();
    let factor = 1_i64 << task.row.errors.clamp(0, 10);
    let wait = match task.row.errors {
        0 => interval.min(SECOND_LOOK_MS),
        _ => interval.saturating_mul(factor).min(DAY_MS.max(interval)),
    };
    let failures =
        flow.parts.database.record_watch_failure(&task.row.id, reason, now.saturating_add(wait), now).await?;
    if failures == NOTICED_FAILURE {
        let notice = Notice {
            key: format!("watch-failed:{}:{}", task.row.id, now / DAY_MS),
            agent: task.row.agent.clone(),
            title: format!("A watched page cannot be read: {}", task.row.title),
            text: format!(
                "{reason}. It failed {failures} times in a row and is tried again with longer pauses."
            ),
            labels: vec![gantry_tool::Label::Untrusted],
            from: format!("task:{}", task.row.id),
        };
        notices::send(flow, notice).await;
    }
    flow.tasks.wake.notify_one();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blanks_and_empty_lines_are_no_change() {
        assert_eq!(normalised("  a \t b\n\n\n c\r\n"), "a b\nc");
        assert_eq!(normalised("a b\nc"), normalised(" a  b \n \n c"));
    }

    #[test]
    fn changes_are_a_diff_of_limited_length() {
        let diff = changes("one\ntwo\nthree", "one\n2\nthree");
        assert!(diff.contains("-two\n+2\n"), "{diff}");
        let long = changes("", &"line\n".repeat(10_000));
        assert_eq!(long.chars().count(), MAX_DIFF);
        assert!(long.ends_with("(cut)"));
    }
}
