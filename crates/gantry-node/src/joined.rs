//! What a machine keeps after it joined with a code: where its gateway is, the keys by which it recognises it, and how
//! the node runs.

use std::path::PathBuf;

use gantry_net::{GatewayUrl, KeyPin, KnownKeys, Proof, Trust};
use serde::{Deserialize, Serialize};

use crate::home::NodeHome;

const MAX_JOINED_BYTES: u64 = 64 * 1024;

/// The record of a node that joined. Its token is in a file of its own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct JoinedNode {
    /// Where the gateway may be reached, best first.
    pub gateways: Vec<JoinedGateway>,
    /// The gateway's key, and after an announcement also its next key, as `sha256//BASE64`.
    #[serde(default)]
    pub keys: Vec<String>,
    pub workspace: PathBuf,
    #[serde(default)]
    pub tools: Option<Vec<String>>,
    #[serde(default)]
    pub contain: bool,
    /// A certificate authority to trust besides the system's, as a PEM file.
    #[serde(default)]
    pub tls_ca: Option<PathBuf>,
    /// Whether an unencrypted connection to another machine is allowed.
    #[serde(default)]
    pub insecure: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JoinedGateway {
    pub url: String,
    /// The name of a [`Proof`].
    pub proof: String,
}

#[derive(Debug, thiserror::Error)]
pub enum JoinedError {
    #[error("cannot read {}: {reason}", path.display())]
    Read { path: PathBuf, reason: String },
    #[error("cannot write {}: {reason}", path.display())]
    Write { path: PathBuf, reason: String },
}

/// An address of a gateway, and how the node recognises the gateway there.
#[derive(Debug, Clone)]
pub struct GatewayPlace {
    pub url: GatewayUrl,
    pub trust: Trust,
}

impl JoinedNode {
    /// Returns `None` if the node did not join with a code.
    pub fn read(home: &NodeHome) -> Result<Option<JoinedNode>, JoinedError> {
        let path = home.joined_file();
        let failed = |reason: String| JoinedError::Read { path: path.clone(), reason };
        match NodeHome::read(&path, MAX_JOINED_BYTES) {
            Ok(text) => serde_json::from_str(&text).map(Some).map_err(|err| failed(err.to_string())),
            Err(err) if err.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(err) => Err(failed(err.to_string())),
        }
    }

    /// Writes the record. It is on disk on return.
    pub fn write(&self, home: &NodeHome) -> Result<(), JoinedError> {
        let path = home.joined_file();
        let failed = |reason: String| JoinedError::Write { path: path.clone(), reason };
        let text = serde_json::to_string_pretty(self).map_err(|err| failed(err.to_string()))?;
        home.replace_durably(&path, &text).map_err(|err| failed(err.to_string()))
    }

    pub fn known_keys(&self) -> KnownKeys {
        KnownKeys::new(self.keys.iter().filter_map(|key| KeyPin::parse(key)))
    }

    /// Returns the addresses with their trust. `authority` is the trust in certificates of authorities.
    pub fn places(&self, keys: &KnownKeys, authority: &Trust) -> Vec<GatewayPlace> {
        let place = |gateway: &JoinedGateway| {
            let url = GatewayUrl::parse(&gateway.url).ok()?;
            Some(GatewayPlace { url, trust: trust(Proof::from_name(&gateway.proof)?, keys, authority) })
        };
        self.gateways.iter().filter_map(place).collect()
    }
}

/// Returns what a connection trusts at an address with this proof.
pub fn trust(proof: Proof, keys: &KnownKeys, authority: &Trust) -> Trust {
    match proof {
        Proof::Nothing | Proof::Authority => authority.clone(),
        Proof::Key => Trust::Keys { known: keys.clone(), or: None },
        Proof::KeyOrAuthority => Trust::Keys { known: keys.clone(), or: Some(Box::new(authority.clone())) },
    }
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "a test prepares its own files")]
mod tests {
    use super::*;

    #[test]
    fn record_survives_a_round_trip() {
        let folder = tempfile::tempdir().unwrap();
        let home = NodeHome::new(folder.path(), "laptop").unwrap();
        assert_eq!(JoinedNode::read(&home).unwrap(), None);
        let gateway = |url: &str, proof: &str| JoinedGateway { url: url.into(), proof: proof.into() };
        let record = JoinedNode {
            gateways: vec![
                gateway("https://10.0.0.1:7770", "key"),
                gateway("https://gantry.example.com", "authority"),
                gateway("https://10.0.0.2:7770", "of a later version"),
            ],
            keys: vec![KeyPin::of_public_key(b"key").to_string()],
            workspace: "/home/me/src".into(),
            tools: Some(vec!["Read".into()]),
            contain: true,
            tls_ca: None,
            insecure: false,
        };
        record.write(&home).unwrap();
        assert_eq!(JoinedNode::read(&home).unwrap(), Some(record.clone()));
        let places = record.places(&record.known_keys(), &Trust::System);
        assert_eq!(places.len(), 2, "an address with an unknown proof is not used");
        assert!(matches!(&places[0].trust, Trust::Keys { known, or: None } if known.list().len() == 1));
        assert!(matches!(places[1].trust, Trust::System));
        std::fs::write(home.joined_file(), "{").unwrap();
        assert!(JoinedNode::read(&home).is_err(), "a damaged record is not the same as none");
    }
}
