//! Agents for tools: children are begun and waited for, messages go into inboxes. Who calls is known by the call alone.

use std::sync::Arc;

use gantry_agent::{ChildEnd, MAX_DEPTH, Said, SessionError, Spec, Standing};
use gantry_model::{Effort, Money, Thinking};
use gantry_tool::{Call, Progress, ToolError};
use gantry_toolsets::{
    AgentDesk, AgentSpawned, HubFuture, SpawnEffort, SpawnEnd, SpawnSpec, SpawnThinking, SpawnThinkingWord,
};
use serde_json::json;
use tokio::task::JoinSet;

use crate::session_desk::{GatewayDesk, MAX_MESSAGE_BYTES, check_caller, session_error};

impl AgentDesk for GatewayDesk {
    fn spawn(&self, call: Arc<Call>, specs: Vec<SpawnSpec>) -> HubFuture<'_, Vec<SpawnEnd>> {
        Box::pin(async move {
            check_caller(&call)?;
            let mut ends: Vec<SpawnEnd> = Vec::with_capacity(specs.len());
            let mut standing = JoinSet::new();
            let total = u64::try_from(specs.len()).ok();
            for (index, spec) in specs.into_iter().enumerate() {
                let spec = asked_for(spec);
                let begun = self.sessions.begin_child(&call, index, &spec).await;
                let outcome = match begun {
                    Ok(child) => {
                        standing.spawn(async move { (index, child.end().await) });
                        Err("it was stopped".to_owned())
                    }
                    Err(SessionError::Stopping) => return Err(ToolError::Cancelled),
                    Err(err) => Err(err.to_string()),
                };
                ends.push(SpawnEnd { name: spec.name, outcome });
            }
            let mut done = 0;
            loop {
                // Who leaves drops the children that are not over, and that stops them.
                let ended = tokio::select! {
                    biased;
                    () = call.cancel.cancelled() => return Err(ToolError::Cancelled),
                    ended = standing.join_next() => ended,
                };
                let Some(ended) = ended else { return Ok(ends) };
                let Ok((index, end)) = ended else { continue };
                note_labels(&call, &end);
                let Some(known) = ends.get_mut(index) else { continue };
                known.outcome = end.outcome;
                done += 1;
                if let Some(progress) = &call.progress {
                    progress.report(Progress { done, total, message: format!("{} has ended", known.name) });
                }
            }
        })
    }

    fn spawn_template(
        &self,
        call: Arc<Call>,
        template: String,
        parent: Option<String>,
        message: String,
    ) -> HubFuture<'_, AgentSpawned> {
        Box::pin(async move {
            check_caller(&call)?;
            if let Some(parent) = &parent {
                check_self(&call, "parentId", parent)?;
            }
            let begun = self.sessions.begin_made_after(&call, &template, message).await;
            let child: Standing = begun.map_err(session_error)?;
            let (agent_id, depth) = (child.key.key.clone(), child.child.depth.min(MAX_DEPTH));
            let end = tokio::select! {
                biased;
                () = call.cancel.cancelled() => return Err(ToolError::Cancelled),
                end = child.end() => end,
            };
            note_labels(&call, &end);
            match end.outcome {
                Ok(response) => Ok(AgentSpawned { agent_id, response, depth }),
                Err(cause) => Err(ToolError::failed(format!("the agent {agent_id} failed: {cause}"))),
            }
        })
    }

    fn send(&self, call: Arc<Call>, from: String, to: String, message: String) -> HubFuture<'_, ()> {
        Box::pin(async move {
            check_caller(&call)?;
            check_self(&call, "agentId", &from)?;
            if message.len() > MAX_MESSAGE_BYTES {
                return Err(ToolError::input(format!("a message has at most {MAX_MESSAGE_BYTES} bytes")));
            }
            if message.trim_start().starts_with('/') {
                return Err(ToolError::input("commands are for people; say it in words"));
            }
            let key = self.sessions.inbox(&to).await.map_err(session_error)?;
            if call.session.as_deref() == Some(key.key.as_str()) {
                return Err(ToolError::input("this is you yourself; just say it in your answer"));
            }
            self.sessions.may_write(&call, &key).map_err(session_error)?;
            let sender = sender(&call);
            let said = Said {
                text: format!("[message from {sender}]\n{message}"),
                // The same step after a restart is the same message.
                id: call.step.as_ref().map(|step| format!("sent-{step}")),
                reply_to: json!({"session": sender}),
                from: sender,
                labels: call.labels.clone(),
                payer: self.sessions.payer(&call).await.map_err(session_error)?,
                workspace: None,
            };
            self.sessions.send(&key, said).await.map_err(session_error)?;
            Ok(())
        })
    }
}

/// As the receiver knows it.
pub(crate) fn sender(call: &Call) -> String {
    call.session.clone().unwrap_or_else(|| call.principal.to_string())
}

/// Nobody speaks for another: what callers say of themselves must be what is known of them.
fn check_self(call: &Call, field: &str, said: &str) -> Result<(), ToolError> {
    if call.session.as_deref() == Some(said) || call.agent == said || call.principal.to_string() == said {
        return Ok(());
    }
    let own = sender(call);
    Err(ToolError::denied(format!("{field} is not yours")).with_hint(format!("you are {own}")))
}

/// What a child has read comes along with its answer.
fn note_labels(call: &Call, end: &ChildEnd) {
    end.labels.iter().for_each(|label| call.found.add(*label));
}

fn asked_for(spec: SpawnSpec) -> Spec {
    Spec {
        name: spec.name,
        task: spec.task,
        role: spec.role,
        context: spec.context,
        isolated_memory: spec.isolated_memory,
        system_prompt: spec.system_prompt,
        model: spec.model,
        thinking: spec.thinking.map(|thinking| match thinking {
            SpawnThinking::Word(SpawnThinkingWord::Off) => Thinking::Off,
            SpawnThinking::Word(SpawnThinkingWord::Adaptive) => Thinking::Adaptive,
            SpawnThinking::Tokens(tokens) => Thinking::Budget(tokens),
        }),
        effort: spec.effort.map(|effort| match effort {
            SpawnEffort::Low => Effort::Low,
            SpawnEffort::Medium => Effort::Medium,
            SpawnEffort::High => Effort::High,
        }),
        tools: spec.tools,
        max_turns: spec.max_turns,
        max_tokens: spec.max_tokens,
        max_budget: spec.max_budget_usd.map(Money::from_dollars),
    }
}
