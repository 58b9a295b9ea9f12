//! Decides whether a request looks like an API call, which should have a profile.

use gantry_apis::path_words;
use gantry_net::Url;

use super::plan::{Content, Planned};

/// Returns the reason why it looks like an API call; `None` for a page or a file.
pub(super) fn why(url: &Url, plan: &Planned) -> Option<String> {
    if let Some(why) = why_by_address(url) {
        return Some(why);
    }
    if matches!(plan.content, Content::Json(_)) {
        return Some("it sends JSON".into());
    }
    let json = plan.headers.iter().find(|(name, value)| {
        matches!(name.as_str(), "accept" | "content-type") && value.to_ascii_lowercase().contains("json")
    });
    json.map(|(name, _)| format!("its {name} header names JSON"))
}

/// Decides by the address alone.
pub(super) fn why_by_address(url: &Url) -> Option<String> {
    if url.host_str().is_some_and(|host| host.starts_with("api.")) {
        return Some("its host starts with api.".into());
    }
    let segment = path_words(url).into_iter().find(|segment| is_api_segment(segment))?;
    Some(format!("its path contains /{segment}/"))
}

/// `api`, `graphql`, or a version such as `v1`, `v2.1`, `v1beta3`.
fn is_api_segment(segment: &str) -> bool {
    if matches!(segment, "api" | "graphql") {
        return true;
    }
    let Some(version) = segment.strip_prefix('v') else { return false };
    let rest = version.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
    let known = ["alpha", "beta"].iter().find_map(|stage| rest.strip_prefix(stage)).unwrap_or(rest);
    version.starts_with(|c: char| c.is_ascii_digit()) && known.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn apis_are_distinguished_from_pages() {
        let looks = |url: &str| {
            let plan = Planned {
                method: None,
                url: None,
                headers: Vec::new(),
                written: Vec::new(),
                content: Content::None,
                timeout: super::super::DEFAULT_TIMEOUT,
            };
            why(&Url::parse(url).unwrap(), &plan).is_some()
        };
        for url in [
            "https://api.example.com/",
            "https://example.com/api/users",
            "https://example.com/API",
            "https://example.com/v1/users",
            "https://example.com/x/v2.1/y",
            "https://example.com/v1beta2/y",
            "https://example.com/graphql",
        ] {
            assert!(looks(url), "{url}");
        }
        for url in [
            "https://example.com/",
            "https://example.com/?next=/api/v1/",
            "https://example.com/#/api/",
            "https://example.com/apis",
            "https://example.com/v1-notes",
            "https://example.com/v/1",
            "https://example.com/vi/x",
            "https://apis.example.com/page.html",
            "https://example.com/video1",
        ] {
            assert!(!looks(url), "{url}");
        }
    }
}
