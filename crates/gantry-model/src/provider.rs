//! A provider serves models: its address, wire format and key.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use gantry_net::Url;
use serde::{Deserialize, Serialize};

use crate::model::ModelEntry;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ProviderKind {
    /// The Messages API.
    Anthropic,
    /// Chat completions, which most other servers support too.
    Openai,
}

#[derive(Debug, Clone)]
pub struct Provider {
    /// The first part of `provider/model`.
    pub name: String,
    pub kind: ProviderKind,
    /// With or without the version at its end.
    pub base_url: Url,
    pub key: Option<Key>,
    /// In addition to the models that are known for the provider.
    pub models: Vec<ModelEntry>,
    /// Whether this is the company's own endpoint and not a compatible one. Others refuse its
    /// extensions.
    pub first_party: bool,
    /// How long the first byte of an answer may take, if that is longer than a stall: a small
    /// machine reads a long prompt slowly.
    pub first_byte: Option<Duration>,
}

impl Provider {
    pub fn new(name: impl Into<String>, kind: ProviderKind, base_url: Url) -> Provider {
        let own = match kind {
            ProviderKind::Anthropic => "api.anthropic.com",
            ProviderKind::Openai => "api.openai.com",
        };
        let first_party = base_url.host_str() == Some(own);
        Provider {
            name: name.into(),
            kind,
            base_url,
            key: None,
            models: Vec::new(),
            first_party,
            first_byte: None,
        }
    }

    /// Returns the URL for requests.
    pub(crate) fn endpoint(&self) -> Url {
        match self.kind {
            ProviderKind::Anthropic => self.below("messages"),
            ProviderKind::Openai => self.below("chat/completions"),
        }
    }

    /// Returns the URL for the list of models.
    pub(crate) fn listing(&self) -> Url {
        self.below("models")
    }

    /// People write both `https://api.anthropic.com` and `https://api.openai.com/v1`. An address
    /// with its own path is used unchanged.
    fn below(&self, path: &str) -> Url {
        let base = self.base_url.path().trim_end_matches('/');
        let version = match self.kind {
            ProviderKind::Anthropic if !base.ends_with("/v1") => "/v1",
            ProviderKind::Openai if base.is_empty() => "/v1",
            ProviderKind::Anthropic | ProviderKind::Openai => "",
        };
        let mut url = self.base_url.clone();
        url.set_path(&format!("{base}{version}/{path}"));
        url
    }
}

/// `Key` is read at the last moment, never stored and never shown.
#[derive(Clone)]
pub struct Key {
    read: Arc<dyn Fn() -> Result<String, String> + Send + Sync>,
}

impl Key {
    pub fn fixed(key: impl Into<String>) -> Key {
        let key = key.into();
        Key::read_by(move || Ok(key.clone()))
    }

    /// `read` returns the key, or why there is none.
    pub fn read_by(read: impl Fn() -> Result<String, String> + Send + Sync + 'static) -> Key {
        Key { read: Arc::new(read) }
    }

    pub(crate) fn read(&self) -> Result<String, String> {
        let key = (self.read)()?.trim().to_owned();
        match key {
            key if key.is_empty() => Err("it is empty".into()),
            key if !key.bytes().all(|byte| byte.is_ascii_graphic()) => {
                Err("it contains characters that cannot be sent".into())
            }
            key => Ok(key),
        }
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn provider_addresses_are_completed() {
        let check = |kind, base: &str, expected: &str| {
            let provider = Provider::new("p", kind, base.parse().unwrap());
            assert_eq!(provider.endpoint().as_str(), expected, "{base}");
        };
        check(ProviderKind::Anthropic, "https://api.anthropic.com", "https://api.anthropic.com/v1/messages");
        check(
            ProviderKind::Anthropic,
            "https://api.anthropic.com/v1/",
            "https://api.anthropic.com/v1/messages",
        );
        check(ProviderKind::Anthropic, "http://x/proxy", "http://x/proxy/v1/messages");
        check(ProviderKind::Openai, "http://127.0.0.1:8080", "http://127.0.0.1:8080/v1/chat/completions");
        check(
            ProviderKind::Openai,
            "https://openrouter.ai/api/v1",
            "https://openrouter.ai/api/v1/chat/completions",
        );
        let own = Provider::new("p", ProviderKind::Openai, "https://api.openai.com/v1".parse().unwrap());
        assert!(own.first_party);
        let other = Provider::new("p", ProviderKind::Anthropic, "https://api.openai.com/v1".parse().unwrap());
        assert!(!other.first_party);
    }

    #[test]
    fn invalid_key_is_rejected() {
        assert_eq!(Key::fixed(" sk-1\n").read(), Ok("sk-1".to_owned()));
        assert!(Key::fixed(" ").read().is_err());
        let reason = Key::fixed("sk 1").read().unwrap_err();
        assert!(!reason.contains("sk"), "{reason}");
        assert!(!format!("{:?}", Key::fixed("sk-1")).contains("sk"));
    }
}
