//! `[storage]`: where agents' workspaces are kept.

use gantry_domain::ConfigSection;
use gantry_store::{DataDir, ObjectError, Objects, S3Config};
use gantry_tool::Violation;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Where agents' workspaces are kept.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub(crate) struct StorageConfig {
    /// `folder`: in the data directory; `s3`: in a bucket of an S3-compatible store.
    kind: StorageKind,
    /// URL of the store, such as `https://s3.example.org`; AWS when left out.
    endpoint: Option<String>,
    bucket: Option<String>,
    /// `us-east-1` when left out.
    region: Option<String>,
    /// Prefix of every key, so that several gateways can share a bucket.
    prefix: Option<String>,
    access_key_id: Option<String>,
    secret_access_key: Option<String>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum StorageKind {
    #[default]
    Folder,
    S3,
}

/// Returns whether a bucket's name is valid. Other names would change the path or the host of requests.
fn is_bucket(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let ends = name.bytes().next().is_some_and(plain) && name.bytes().last().is_some_and(plain);
    let sound = name.bytes().all(|byte| plain(byte) || matches!(byte, b'-' | b'.' | b'_'));
    name.len() <= 63 && ends && sound && !name.contains("..")
}

impl ConfigSection for StorageConfig {
    fn violations(&self, _: &str) -> Vec<Violation> {
        StorageConfig::violations(self)
    }

    fn secrets(&self) -> Vec<String> {
        StorageConfig::secrets(self).collect()
    }
}

impl StorageConfig {
    pub(super) fn violations(&self) -> Vec<Violation> {
        let violation = |key: &str, message: &str| Violation {
            path: format!("storage.{key}"),
            message: message.to_owned(),
        };
        let mut violations = Vec::new();
        if self.kind == StorageKind::S3 {
            let needed = [
                ("bucket", &self.bucket),
                ("accessKeyId", &self.access_key_id),
                ("secretAccessKey", &self.secret_access_key),
            ];
            let missing = needed.into_iter().filter(|(_, value)| value.as_deref().unwrap_or("").is_empty());
            violations
                .extend(missing.map(|(key, _)| violation(key, "is required when storage.kind is \"s3\"")));
        }
        if let Some(bucket) = self.bucket.as_deref().filter(|bucket| !bucket.is_empty() && !is_bucket(bucket))
        {
            let message = format!(
                "{bucket:?} is not a valid bucket name: use at most 63 lower-case letters, digits, -, _ and single dots, with a letter or digit at both ends"
            );
            violations.push(violation("bucket", &message));
        }
        if let Some(endpoint) = &self.endpoint {
            if !endpoint.starts_with("https://") && !endpoint.starts_with("http://") {
                violations.push(violation("endpoint", "must begin with https:// or http://"));
            }
            // The endpoint is shown to agents and in errors.
            if endpoint.contains('@') {
                violations.push(violation("endpoint", "must not contain a user or a password"));
            }
        }
        violations
    }

    /// Values that must not be shown.
    pub(super) fn secrets(&self) -> impl Iterator<Item = String> {
        [&self.access_key_id, &self.secret_access_key].into_iter().flatten().cloned()
    }

    /// Returns which settings to check when the store does not work.
    pub(crate) fn hint(&self) -> &'static str {
        match self.kind {
            StorageKind::Folder => "",
            StorageKind::S3 => {
                " (check storage.endpoint, storage.bucket, storage.region, storage.accessKeyId and \
                 storage.secretAccessKey)"
            }
        }
    }

    pub(crate) fn open(&self, data: &DataDir) -> Result<Objects, ObjectError> {
        match self.kind {
            StorageKind::Folder => Ok(Objects::folder(data)),
            StorageKind::S3 => Objects::s3(S3Config {
                endpoint: self.endpoint.clone(),
                bucket: self.bucket.clone().unwrap_or_default(),
                region: self.region.clone(),
                prefix: self.prefix.clone(),
                access_key_id: self.access_key_id.clone().unwrap_or_default(),
                secret_access_key: self.secret_access_key.clone().unwrap_or_default(),
            }),
        }
    }
}
