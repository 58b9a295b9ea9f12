//! Who may see and change messages of the outbox.

use gantry_domain::Identity;
use gantry_protocol::{OutboxList, OutboxListParams, OutboxMessage, OutboxState};
use gantry_tool::{Refusal, RefusalCode};

use crate::access::{Access, check, own_agents, store_refusal, unknown_id};
use crate::domain::Flow;

const MAX_LISTED: u32 = 500;

impl Flow {
    pub(super) async fn list_outbox(
        &self,
        identity: &Identity,
        params: &OutboxListParams,
    ) -> Result<OutboxList, Refusal> {
        let limit = params.limit.unwrap_or(100).clamp(1, MAX_LISTED);
        let agents = own_agents(identity);
        let listed =
            self.parts.database.list_outbox(params.state, agents, limit, params.offset.unwrap_or(0)).await;
        let (messages, total) = listed.map_err(store_refusal)?;
        Ok(OutboxList { messages, total })
    }

    /// Returns the message with this id or a unique beginning of it.
    pub(super) async fn outbox_message(
        &self,
        identity: &Identity,
        id: &str,
        access: Access,
    ) -> Result<OutboxMessage, Refusal> {
        let mut found = self.parts.database.find_outbox(id).await.map_err(store_refusal)?;
        found.retain(|message| identity.may_act_as(&message.body.agent));
        match (found.pop(), found.is_empty()) {
            (Some(message), true) if !id.is_empty() => {
                check(identity, &message.body.agent, access)?;
                Ok(message)
            }
            (found, _) => Err(unknown_id("message", id, found.is_some(), "gantry outbox")),
        }
    }

    /// Sends a message that waits for the owner's yes, or again one that failed, expired, was dropped or may not have arrived.
    pub(super) async fn resend_outbox(
        &self,
        identity: &Identity,
        id: &str,
    ) -> Result<OutboxMessage, Refusal> {
        let from = [
            OutboxState::Held,
            OutboxState::Failed,
            OutboxState::Unknown,
            OutboxState::Expired,
            OutboxState::Dropped,
        ];
        let message = self.decide_outbox(identity, id, &from, OutboxState::Queued).await?;
        self.parts.outbox.wake();
        Ok(message)
    }

    /// Records that a message of which this was unknown has arrived.
    pub(super) async fn arrived_outbox(
        &self,
        identity: &Identity,
        id: &str,
    ) -> Result<OutboxMessage, Refusal> {
        let from = [OutboxState::Unknown, OutboxState::Failed, OutboxState::Expired];
        self.decide_outbox(identity, id, &from, OutboxState::Sent).await
    }

    pub(super) async fn drop_outbox(&self, identity: &Identity, id: &str) -> Result<OutboxMessage, Refusal> {
        let from = [
            OutboxState::Held,
            OutboxState::Queued,
            OutboxState::Unknown,
            OutboxState::Failed,
            OutboxState::Expired,
        ];
        self.decide_outbox(identity, id, &from, OutboxState::Dropped).await
    }

    async fn decide_outbox(
        &self,
        identity: &Identity,
        id: &str,
        from: &[OutboxState],
        to: OutboxState,
    ) -> Result<OutboxMessage, Refusal> {
        let message = self.outbox_message(identity, id, Access::Change).await?;
        let now = self.parts.clock.now();
        let decided = self.parts.database.decide_outbox(&message.id, from, to, now).await;
        if !decided.map_err(store_refusal)? {
            let names: Vec<&str> = from.iter().map(|state| state.name()).collect();
            let text = format!(
                "the message {} is {}; it must be {}",
                message.id,
                message.state.name(),
                names.join(" or ")
            );
            return Err(Refusal::new(RefusalCode::InvalidInput, text));
        }
        self.outbox_message(identity, &message.id, Access::Read).await
    }
}
