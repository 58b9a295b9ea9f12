//! Reads one page: fetches it through the guarded client, extracts its main content and returns a
//! part of it.

use std::time::Duration;

use gantry_net::{HeaderValue, Request, Url, header};
use gantry_page::{Article, article, decode, readable};
use gantry_tool::{Masker, ToolError};

use crate::Ctx;
use crate::blocking::blocking;
use crate::web::untrusted::fenced;
use crate::web::{deadline, net_error, note_closed_network, read_whole_secrets};

const TIMEOUT: Duration = Duration::from_secs(30);
const MAX_PAGE_BYTES: usize = 5 * 1024 * 1024;
/// The most characters of content in one answer.
pub(super) const MAX_CHARS: usize = 50_000;
const MAX_URL_BYTES: usize = 8_192;

/// A fetched page.
struct Fetched {
    url: Url,
    content_type: Option<String>,
    bytes: Vec<u8>,
    cut: bool,
}

/// Parses an address. The guarded client checks the rest.
pub(super) fn address(text: &str) -> Result<Url, String> {
    let text = text.trim();
    if text.len() > MAX_URL_BYTES {
        return Err(format!("url has {} bytes, at most {MAX_URL_BYTES}", text.len()));
    }
    let url = Url::parse(text)
        .map_err(|err| format!("url must be an address such as https://example.com/: {err}"))?;
    match url.scheme() {
        "http" | "https" => Ok(url),
        scheme => Err(format!("url must start with http: or https:, not \"{scheme}:\"")),
    }
}

pub(super) async fn page(ctx: &Ctx, url: Url, offset: usize) -> Result<String, ToolError> {
    let fetched = tokio::select! {
        fetched = fetch(ctx, url) => fetched?,
        () = ctx.call.cancel.cancelled() => return Err(ToolError::Cancelled),
    };
    blocking(ctx, move |ctx, _| show(&fetched, ctx.state.masker(), offset)).await
}

async fn fetch(ctx: &Ctx, url: Url) -> Result<Fetched, ToolError> {
    let mut request = Request::get(url, deadline(&ctx.call, TIMEOUT));
    request.policy = ctx.state.reachable(&ctx.call);
    let accepted = HeaderValue::from_static("text/html, application/xhtml+xml, text/*;q=0.9, */*;q=0.5");
    request.headers.insert(header::ACCEPT, accepted);
    let response = ctx.state.settings().web.client.send(request).await.map_err(|err| net_error(&err))?;
    note_closed_network(&ctx.call, &response);
    if !response.status.is_success() {
        return Err(ToolError::failed(format!("{} answered {}", response.url, response.status)));
    }
    let content_type = response.headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let content_type = content_type.map(str::to_owned);
    let url = response.url;
    let body = read_whole_secrets(response.body, MAX_PAGE_BYTES, ctx.state.masker()).await;
    let body = body.map_err(|err| net_error(&err))?;
    Ok(Fetched { url, content_type, bytes: body.bytes, cut: body.cut })
}

fn show(fetched: &Fetched, masker: &Masker, offset: usize) -> Result<String, ToolError> {
    let Article { title, byline, mut text, words } = content(fetched)?;
    // Masking comes before truncation: the gate would not recognize a part of a secret.
    masker.mask_text(&mut text);
    let total = text.chars().count();
    if offset > 0 && offset >= total {
        let text = format!("offset {offset} is past the end: the content has {total} characters");
        return Err(ToolError::input(text));
    }
    let shown: String = text.chars().skip(offset).take(MAX_CHARS).collect();
    let end = offset + shown.chars().count();
    let counted = |count: usize, unit: &str| format!("{count} {unit}{}", if count == 1 { "" } else { "s" });
    let mut summary =
        format!("Main content of the page: {}, {}.", counted(words, "word"), counted(total, "character"));
    if offset > 0 || end < total {
        summary.push_str(&format!(" Shown: characters {offset} to {end}."));
    }
    if end < total {
        summary
            .push_str(&format!(" Truncated; continue with \"offset\": {end} (the page is fetched again)."));
    }
    if fetched.cut {
        summary.push_str(&format!(
            " The page is longer than {MAX_PAGE_BYTES} bytes; the rest of it was not read."
        ));
    }
    let byline = byline.map(|byline| format!("\nBy: {byline}")).unwrap_or_default();
    let head = format!("Title: {title}\nURL: {}{byline}", fetched.url);
    Ok(format!("{summary}\n{}", fenced(&format!("{head}\n\n{shown}"))))
}

/// Returns the main content of HTML; for other types, and for HTML without main content, all
/// readable text.
fn content(fetched: &Fetched) -> Result<Article, ToolError> {
    let content_type = fetched.content_type.as_deref();
    let base = Some(&fetched.url);
    if is_html(content_type, &fetched.bytes)
        && let Some(article) = article(&decode(&fetched.bytes, content_type), base)
        && !article.text.trim().is_empty()
    {
        return Ok(article);
    }
    let all = readable(&fetched.bytes, content_type, base).map_err(|unreadable| {
        ToolError::failed(format!("{} cannot be read: {}", fetched.url, unreadable.0))
    })?;
    let words = all.text.split_whitespace().count();
    Ok(Article { title: all.title.unwrap_or_default(), byline: None, words, text: all.text })
}

fn is_html(content_type: Option<&str>, bytes: &[u8]) -> bool {
    let kind =
        content_type.and_then(|value| value.split(';').next()).map(|kind| kind.trim().to_ascii_lowercase());
    match kind.as_deref() {
        Some("text/html" | "application/xhtml+xml") => true,
        Some(_) => false,
        None => bytes.trim_ascii_start().first() == Some(&b'<'),
    }
}
