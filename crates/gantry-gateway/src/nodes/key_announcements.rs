//! Announces the gateway's next key to nodes. The gateway uses it once every node knows it.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use gantry_link::{Link, LinkError};
use gantry_net::KeyPin;
use gantry_protocol::{ErrorCode, GatewayKey, method, raw};
use tokio::task::JoinSet;

use super::{Node, Nodes};
use crate::tls_identity::TlsIdentity;

const ANSWER_LIMIT: Duration = Duration::from_secs(15);

impl Nodes {
    pub(crate) fn set_tls(&self, tls: Arc<TlsIdentity>) {
        let _ = self.tls.set(tls);
    }

    /// Announces the next key, if there is one, to a node that has just connected.
    pub(super) fn announce_key_to(self: &Arc<Self>, node: &Arc<Node>, link: &Link) {
        let Some((next, announced)) = self.tls.get().and_then(|tls| tls.announcement()) else { return };
        let (nodes, node, link) = (self.clone(), node.clone(), link.clone());
        tokio::spawn(async move {
            announce(&node, &link, next, &announced).await;
            nodes.finish_rotation(&next);
        });
    }

    /// Announces the next key to all connected nodes, and waits for their answers.
    pub(crate) async fn announce_key_to_all(&self) {
        let Some((next, announced)) = self.tls.get().and_then(|tls| tls.announcement()) else { return };
        let known: Vec<Arc<Node>> = self.known().values().cloned().collect();
        let mut announcing = JoinSet::new();
        for node in known {
            let Some(live) = node.live() else { continue };
            let announced = announced.clone();
            announcing.spawn(async move { announce(&node, &live.link, next, &announced).await });
        }
        announcing.join_all().await;
    }

    /// Returns the nodes that know a key, and those that have joined and do not know it.
    pub(crate) fn adoption_of(&self, key: &KeyPin) -> (Vec<String>, Vec<String>) {
        let known = self.known();
        let joined = known.values().filter(|node| {
            let facts = node.facts();
            facts.first_seen.is_some() && !facts.revoked
        });
        let (adopted, waiting): (Vec<_>, Vec<_>) = joined.partition(|node| node.knows(key));
        let ids = |nodes: Vec<&Arc<Node>>| nodes.into_iter().map(|node| node.id.clone()).collect();
        (ids(adopted), ids(waiting))
    }

    /// Uses the next key if every node knows it.
    fn finish_rotation(&self, next: &KeyPin) {
        let Some(tls) = self.tls.get() else { return };
        if self.adoption_of(next).1.is_empty()
            && let Err(err) = tls.switch()
        {
            tracing::warn!(error = %err, "gateway_key_not_changed");
        }
    }
}

async fn announce(node: &Node, link: &Link, next: KeyPin, announced: &GatewayKey) {
    match link.request_within(method::GATEWAY_KEY, raw(announced), ANSWER_LIMIT).await {
        Ok(_) => node.adopt(next),
        // An older node does not recognise the gateway by its key, so it needs no announcement.
        Err(LinkError::Remote(error)) if error.code == ErrorCode::UnknownMethod => node.adopt(next),
        Err(err) => tracing::warn!(node = node.id, reason = %err, "gateway_key_not_adopted"),
    }
}

impl Node {
    fn adopt(&self, key: KeyPin) {
        *self.adopted_key.lock().unwrap_or_else(PoisonError::into_inner) = Some(key);
    }

    fn knows(&self, key: &KeyPin) -> bool {
        *self.adopted_key.lock().unwrap_or_else(PoisonError::into_inner) == Some(*key)
    }
}
