//! What a conversation says first: the model, the autonomy, the directory and the machine.

use gantry_protocol::{AgentList, Empty, GatewayStatus, ListenResult, method};
use rustix::system::uname;

use super::Chat;
use crate::client::Address;

const KEYS: &str = "/help shows commands · Tab completes · Alt-Enter or \\ starts a new line · Ctrl-C stops a run · Ctrl-D quits";

/// Names the machine of the gateway: this one by its host name, another one by its URL.
pub(super) fn machine(address: &Address) -> String {
    match address.is_ours {
        true => uname().nodename().to_string_lossy().into_owned(),
        false => address.url.to_string(),
    }
}

impl Chat<'_> {
    pub(super) async fn greet(&mut self) {
        let facts = self.facts().await;
        let place = self.place();
        self.output.done(&format!("{facts}\n{place}"));
        self.output.activity(KEYS, crate::output::Tone::Quiet);
    }

    /// Names the model and how far the agent goes by itself.
    async fn facts(&self) -> String {
        let key = &self.connection.key;
        let id = key.split(':').nth(1).unwrap_or_default();
        let agents = self.connection.request::<AgentList>(method::AGENTS_LIST, &Empty {}).await.ok();
        let agent = agents.and_then(|list| list.agents.into_iter().find(|agent| agent.id == id));
        let model = match &self.status {
            ListenResult::Known(status) if !status.model.is_empty() => Some(status.model.clone()),
            _ => agent.as_ref().and_then(|agent| agent.model.clone()),
        };
        let mut facts = vec![format!("Gantry {}", env!("CARGO_PKG_VERSION"))];
        facts.push(self.model_name(self.model.clone().or(model)).await);
        facts.extend(agent.map(|agent| match agent.autonomy.as_str() {
            "supervised" => "supervised: asks before every change".to_owned(),
            "autonomous" => "autonomous: never asks, stays inside its sandbox".to_owned(),
            "guided" => "guided: asks when a call leaves the sandbox".to_owned(),
            other => other.to_owned(),
        }));
        facts.join(" · ")
    }

    /// Returns the name of a model for people. A tier, or none, stands for a model that the gateway knows.
    async fn model_name(&self, model: Option<String>) -> String {
        let name = model.unwrap_or_else(|| "balanced".to_owned());
        let status = self.connection.request::<GatewayStatus>(method::GATEWAY_STATUS, &Empty {}).await.ok();
        let Some(known) = status.and_then(|status| status.models) else { return name };
        if known.models.is_empty() {
            return "no model yet: `gantry models` shows how to add one".to_owned();
        }
        let of_tier = known.models.into_iter().find(|model| model.is.contains(&name));
        of_tier.map_or(name, |model| model.name)
    }

    /// Names the session, its workspace and the machine.
    fn place(&self) -> String {
        let (before, is_running) = match &self.status {
            ListenResult::Known(status) => (Some(status.workspace.as_str()), status.running.is_some()),
            ListenResult::New(_) => (None, false),
        };
        let (key, machine) = (&self.connection.key, &self.machine);
        match (self.workspace.as_deref(), before) {
            (Some(now), Some(before)) if now != before && is_running => {
                format!("{key} on {machine} (a run is active in {before}; the next run works in {now})")
            }
            (Some(now), Some(before)) if now != before => {
                format!("{key} in {now} on {machine} (previously {before})")
            }
            (Some(workspace), _) | (None, Some(workspace)) => format!("{key} in {workspace} on {machine}"),
            (None, None) => format!("{key} on {machine}"),
        }
    }
}
