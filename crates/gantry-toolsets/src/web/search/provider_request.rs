//! One request to a search provider, and the parts of its response that all providers share.

use gantry_net::{
    Client, HeaderMap, HeaderName, HeaderValue, Method, NetworkPolicy, Request, StatusCode, Url, header,
};
use gantry_tool::Masker;
use serde_json::Value;
use tokio::time::Instant;

use super::SearchError;
use super::settings::SearchKey;

/// A page of results has about ten kilobytes; with the text of twenty pages, megabytes.
const MAX_ANSWER_BYTES: usize = 8 * 1024 * 1024;
/// The most characters of a provider's error message.
const DETAIL_CHARS: usize = 200;

const USER_AGENT: HeaderValue = HeaderValue::from_static("Mozilla/5.0 (compatible; Gantry)");

pub(super) struct ProviderRequest {
    method: Method,
    url: Url,
    headers: HeaderMap,
    secret_headers: HeaderMap,
    body: Vec<u8>,
}

pub(super) struct Reply {
    pub(super) status: StatusCode,
    pub(super) body: Vec<u8>,
}

impl ProviderRequest {
    /// Creates a GET request for a path below a provider's address.
    pub(super) fn get(base: &str, path: &str) -> Result<ProviderRequest, SearchError> {
        let unusable = || SearchError::Address(base.chars().take(DETAIL_CHARS).collect());
        let url = format!("{}/{path}", base.trim_end_matches('/'));
        let headers = HeaderMap::from_iter([
            (header::USER_AGENT, USER_AGENT),
            (header::ACCEPT, HeaderValue::from_static("application/json")),
        ]);
        Ok(ProviderRequest {
            method: Method::GET,
            url: Url::parse(&url).map_err(|_| unusable())?,
            headers,
            secret_headers: HeaderMap::new(),
            body: Vec::new(),
        })
    }

    pub(super) fn parameter(mut self, name: &str, value: &str) -> ProviderRequest {
        self.url.query_pairs_mut().append_pair(name, value);
        self
    }

    pub(super) fn post(mut self, content_type: &'static str, body: Vec<u8>) -> ProviderRequest {
        self.method = Method::POST;
        self.headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
        self.body = body;
        self
    }

    pub(super) fn accept(mut self, content_type: &'static str) -> ProviderRequest {
        self.headers.insert(header::ACCEPT, HeaderValue::from_static(content_type));
        self
    }

    /// Adds a header with the key after `prefix`, such as `Bearer `.
    pub(super) fn key(
        mut self,
        name: HeaderName,
        prefix: &str,
        key: &SearchKey,
    ) -> Result<ProviderRequest, SearchError> {
        let mut value =
            HeaderValue::from_str(&format!("{prefix}{}", key.text())).map_err(|_| SearchError::InvalidKey)?;
        value.set_sensitive(true);
        self.secret_headers.insert(name, value);
        Ok(self)
    }

    /// Sends the request. Any status but success is an error with the provider's message.
    pub(super) async fn send(
        self,
        client: &Client,
        policy: &NetworkPolicy,
        masker: &Masker,
        deadline: Instant,
    ) -> Result<Reply, SearchError> {
        let request = Request {
            method: self.method,
            headers: self.headers,
            secret_headers: self.secret_headers,
            body: self.body.into(),
            policy: policy.clone(),
            ..Request::get(self.url, deadline)
        };
        let response = client.send(request).await?;
        let status = response.status;
        let body = response.body.read(MAX_ANSWER_BYTES).await?;
        if !status.is_success() {
            return Err(failure(status, &body.bytes, masker));
        }
        if body.cut {
            return Err(SearchError::Unexpected(format!("it has more than {MAX_ANSWER_BYTES} bytes")));
        }
        Ok(Reply { status, body: body.bytes })
    }
}

impl Reply {
    pub(super) fn json(&self) -> Result<Value, SearchError> {
        serde_json::from_slice(&self.body)
            .map_err(|err| SearchError::Unexpected(format!("it is not JSON ({err})")))
    }
}

/// Converts an error status. Tavily returns the non-standard 432 and 433 when a plan or
/// pay-as-you-go limit is reached.
fn failure(status: StatusCode, body: &[u8], masker: &Masker) -> SearchError {
    let detail = detail(body, masker);
    match status.as_u16() {
        401 => SearchError::KeyRejected { status, detail },
        402 | 429 | 432 | 433 => SearchError::Quota { status, detail },
        _ => SearchError::Status { status, detail },
    }
}

/// Returns the message of an error body, wherever providers put it.
fn detail(body: &[u8], masker: &Masker) -> String {
    let value: Value = serde_json::from_slice(body).unwrap_or_default();
    let places =
        ["/detail/error", "/error/detail", "/error/message", "/error/code", "/detail", "/error", "/message"];
    let text = places.iter().find_map(|place| value.pointer(place)?.as_str());
    match text.map(str::trim).filter(|text| !text.is_empty()) {
        Some(text) => {
            let mut line: String = text.split_whitespace().collect::<Vec<_>>().join(" ");
            // Masking comes before truncation: the gate would not recognize a part of a key.
            masker.mask_text(&mut line);
            let cut = line.chars().count() > DETAIL_CHARS;
            let shown: String = line.chars().take(DETAIL_CHARS).collect();
            format!(": {shown}{}", if cut { "…" } else { "" })
        }
        None => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::query;
    use super::super::{SearchSettings, brave, tavily};
    use super::*;

    #[test]
    fn keys_are_sent_as_secrets_and_never_shown() {
        let settings = SearchSettings {
            tavily_key: SearchKey::new("a-secret"),
            brave_key: SearchKey::new("a-secret"),
            ..SearchSettings::default()
        };
        for request in [tavily::request(&settings, &query("q")), brave::request(&settings, &query("q"))] {
            let request = request.unwrap_or_else(|err| panic!("{err}"));
            assert_eq!(request.secret_headers.len(), 1);
            assert!(request.secret_headers.values().all(HeaderValue::is_sensitive));
            let shown =
                format!("{:?} {} {}", request.headers, request.url, String::from_utf8_lossy(&request.body));
            assert!(!shown.contains("a-secret"), "{shown}");
        }
    }
}
