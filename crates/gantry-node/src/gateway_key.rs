//! Adopts the gateway's next key when the gateway announces it with a signature of the current one.

use std::sync::{Arc, Mutex, PoisonError};

use gantry_net::{AnnouncementError, KeyAnnouncement, KeyPin, KnownKeys};
use gantry_protocol::{Empty, ErrorCode, GatewayKey, WireError};

use crate::home::NodeHome;
use crate::joined::JoinedNode;

/// The keys of the gateway that this node accepts, in memory and in the node's record.
pub(crate) struct GatewayKeys {
    known: KnownKeys,
    home: NodeHome,
    /// One change at a time.
    changing: Arc<Mutex<()>>,
}

impl GatewayKeys {
    pub(crate) fn new(known: KnownKeys, home: NodeHome) -> GatewayKeys {
        GatewayKeys { known, home, changing: Arc::default() }
    }

    /// Accepts the announced key besides the current one, until the gateway uses it.
    pub(crate) fn announced(&self, params: &GatewayKey) -> Result<Empty, WireError> {
        let refused = |reason: String| {
            tracing::warn!(reason, "gatewayKeyRefused");
            WireError::new(
                ErrorCode::Forbidden,
                format!("the node does not accept the announced key: {reason}"),
            )
        };
        let _changing = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let known = self.known.list();
        if known.is_empty() {
            // An authority proves who the gateway is, so its key does not matter here.
            return Ok(Empty {});
        }
        let announcement = KeyAnnouncement::parse(&params.current, &params.next, &params.signature)
            .ok_or_else(|| refused("it is malformed".into()))?;
        announcement.verify(&known).map_err(|err: AnnouncementError| refused(err.to_string()))?;
        let current = KeyPin::of_public_key(&announcement.current);
        let mut keys = vec![current, announcement.next];
        keys.dedup();
        if keys != known {
            self.keep(keys).map_err(|reason| WireError::new(ErrorCode::Failed, reason))?;
            tracing::info!(next = %announcement.next, "gatewayKeyAnnounced");
        }
        Ok(Empty {})
    }

    /// Forgets the other keys once the gateway has shown its newest one.
    pub(crate) fn seen(&self, shown: Option<KeyPin>) {
        let _changing = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let known = self.known.list();
        let Some(newest) = known.last().filter(|newest| known.len() > 1 && shown == Some(**newest)) else {
            return;
        };
        match self.keep(vec![*newest]) {
            Ok(()) => tracing::info!(key = %newest, "gatewayKeyChanged"),
            // The old key stays accepted, and the next connection tries again.
            Err(reason) => tracing::warn!(reason, "gatewayKeyNotStored"),
        }
    }

    /// Stores the keys first, so that a restart does not lose them.
    fn keep(&self, keys: Vec<KeyPin>) -> Result<(), String> {
        match JoinedNode::read(&self.home) {
            Ok(Some(record)) => {
                let keys = keys.iter().map(ToString::to_string).collect();
                JoinedNode { keys, ..record }.write(&self.home).map_err(|err| err.to_string())?;
            }
            // The key was given on the command line. Whoever starts the node has to change it there.
            Ok(None) => tracing::warn!(newest = ?keys.last(), "gatewayKeyNotInRecord"),
            Err(err) => return Err(err.to_string()),
        }
        self.known.set(keys);
        Ok(())
    }
}
