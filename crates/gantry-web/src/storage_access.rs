//! Who may read or write a file in an agent's storage from outside: what policy decides about the tool that does the same,
//! recorded in the audit log like a call.

use gantry_domain::MethodContext;
use gantry_protocol::{ErrorCode, WireError};
use gantry_store::check_key;
use gantry_tool::{Decision, Refusal, RefusalCode, ResumedWork, Surface};
use serde_json::json;

use crate::web_domain::WebState;

const MAIN_AGENT: &str = "main";

/// A file in an agent's storage.
pub(crate) struct StoredFile {
    /// Below the agent's folder.
    pub(crate) path: String,
    pub(crate) key: String,
    pub(crate) agent: String,
}

#[derive(Clone, Copy)]
pub(crate) enum Use {
    Read,
    Write,
}

impl StoredFile {
    pub(crate) fn parse(agent: Option<String>, path: &str) -> Result<StoredFile, WireError> {
        let agent = agent.unwrap_or_else(|| MAIN_AGENT.to_owned());
        let path = path.strip_prefix("gsv:").unwrap_or(path);
        let path = path.strip_prefix('/').unwrap_or(path).to_owned();
        let key = format!("agents/{agent}/{path}");
        match check_key(&key) {
            Ok(()) if !path.is_empty() && !agent.contains('/') => Ok(StoredFile { path, key, agent }),
            Ok(()) => Err(WireError::new(ErrorCode::BadParams, "the path of a file is missing")),
            Err(err) => Err(WireError::new(ErrorCode::BadParams, err.to_string())),
        }
    }

    pub(crate) fn name(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or(&self.path)
    }
}

impl WebState {
    /// Decides about the use of a file and records that it begins. Whoever ends it records the result.
    pub(crate) async fn admit(
        &self,
        context: &MethodContext,
        file: &StoredFile,
        wanted: Use,
    ) -> Result<ResumedWork, WireError> {
        let Some((gate, services)) = self.running.get() else {
            return Err(WireError::new(ErrorCode::Unavailable, "the gateway has not started"));
        };
        let agent = (file.agent != MAIN_AGENT).then_some(file.agent.as_str());
        let call = services.call(&context.identity, agent, Surface::Websocket);
        let mut call = call.map_err(|refusal| refusal.to_wire())?;
        call.agent.clone_from(&file.agent);
        let (tool, input) = match wanted {
            Use::Read => ("gsv__ReadFile", json!({"path": file.path})),
            Use::Write => ("gsv__WriteFile", json!({"path": file.path, "content": ""})),
        };
        let explained = gate.explain(&call, tool, &input).await.map_err(|refusal| refusal.to_wire())?;
        for one in &explained {
            let code = match one.outcome {
                Decision::Allow => continue,
                Decision::Ask => RefusalCode::ApprovalNeeded,
                Decision::Deny => RefusalCode::Denied,
            };
            let message =
                format!("policy rule {} does not allow {tool}: {}", one.verdict.rule, one.verdict.reason);
            return Err(Refusal::new(code, message).to_wire());
        }
        let begun = gate.begins(&call, tool, &json!({"path": file.path, "by": "a client"})).await;
        begun.map_err(|err| WireError::new(ErrorCode::Unaudited, err.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_stays_below_its_agent() {
        let parsed = |agent: Option<&str>, path: &str| {
            StoredFile::parse(agent.map(str::to_owned), path).map(|file| file.key).ok()
        };
        assert_eq!(parsed(None, "gsv:inbox/a b.png").as_deref(), Some("agents/main/inbox/a b.png"));
        assert_eq!(parsed(Some("helper"), "/x").as_deref(), Some("agents/helper/x"));
        for (agent, path) in [
            (None, ""),
            (None, "gsv:"),
            (None, "../x"),
            (None, "a/../../b"),
            (None, "a//b"),
            (None, "a\\b"),
            (None, "a\0b"),
            (Some("a/b"), "x"),
            (Some(".."), "x"),
            (Some(""), "x"),
        ] {
            assert_eq!(parsed(agent, path), None, "{agent:?} {path:?}");
        }
    }
}
