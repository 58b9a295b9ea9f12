//! Resolves the targets of links.

use std::borrow::Cow;

use url::Url;

use super::reference::{self, Place};

/// With a longer base address links stay relative, because each of them would repeat it.
const MAX_BASE: usize = 2_000;

#[derive(Debug)]
pub(super) struct Links {
    base: Option<Url>,
    /// The scheme and host of `base`.
    origin: String,
    /// Whether the page's own `<base>` was seen. Only the first one counts.
    own: bool,
    /// By how many bytes absolute links may still lengthen the page. Beyond that they stay as
    /// written.
    budget: usize,
}

impl Links {
    pub(super) fn new(base: Option<&Url>, length: usize) -> Self {
        const LEAST: usize = 64 * 1024;
        let mut links = Links {
            base: None,
            origin: String::new(),
            own: false,
            budget: length.saturating_mul(4).max(LEAST),
        };
        links.adopt(base.cloned());
        links
    }

    pub(super) fn set_base(&mut self, href: &str) {
        let href = reference::resolve(href, Place::Attribute);
        if self.own || href.is_empty() {
            return;
        }
        self.own = true;
        let base = match &self.base {
            Some(base) => base.join(href.trim()),
            None => Url::parse(href.trim()),
        };
        self.adopt(base.ok());
    }

    fn adopt(&mut self, base: Option<Url>) {
        let usable =
            |base: &Url| matches!(base.scheme(), "http" | "https") && base.as_str().len() <= MAX_BASE;
        if let Some(base) = base.filter(usable) {
            self.origin = base.origin().ascii_serialization();
            self.base = Some(base);
        }
    }

    /// Returns the target to show; `None` for links within the page, scripts and data.
    pub(super) fn target(&mut self, href: &str) -> Option<String> {
        let href = reference::resolve(href, Place::Attribute);
        let href = clean(&href);
        if href.is_empty() || href.starts_with('#') || !is_shown(&href) {
            return None;
        }
        let plain = href.bytes().all(|byte| byte.is_ascii_graphic() && !b"<>\"\\^`{|}".contains(&byte));
        if plain && (href.starts_with("https://") || href.starts_with("http://")) {
            return Some(href.into_owned());
        }
        let Some(base) = &self.base else { return Some(href.replace(' ', "%20")) };
        // Most links are a path on the same host, which needs no parsing.
        let absolute = if plain && href.starts_with('/') && !href.starts_with("//") && !href.contains("/.") {
            format!("{}{href}", self.origin)
        } else {
            match base.join(&href) {
                Ok(url) if !is_shown(url.as_str()) || is_same_page(base, &url) => return None,
                Ok(url) => url.into(),
                Err(_) => return Some(href.replace(' ', "%20")),
            }
        };
        let longer = absolute.len().saturating_sub(href.len());
        if longer > self.budget {
            return Some(href.replace(' ', "%20"));
        }
        self.budget -= longer;
        Some(absolute)
    }
}

/// Removes the white space that browsers ignore: around the address, and line ends inside.
fn clean(href: &str) -> Cow<'_, str> {
    let href = href.trim_matches(|character: char| character <= ' ');
    if href.contains(['\t', '\n', '\r']) {
        Cow::Owned(href.replace(['\t', '\n', '\r'], ""))
    } else {
        Cow::Borrowed(href)
    }
}

fn is_shown(href: &str) -> bool {
    const NOT_SHOWN: [&str; 4] = ["javascript:", "data:", "vbscript:", "blob:"];
    !NOT_SHOWN
        .iter()
        .any(|scheme| href.get(..scheme.len()).is_some_and(|start| start.eq_ignore_ascii_case(scheme)))
}

fn is_same_page(base: &Url, url: &Url) -> bool {
    let without_fragment = |url: &Url| url.as_str().split('#').next().map(str::len);
    url.fragment().is_some()
        && without_fragment(base) == without_fragment(url)
        && base.as_str().split('#').next() == url.as_str().split('#').next()
}
