//! `Crossing` is a way in which a call leaves the sandbox of an agent: the border is where people are asked.

use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::call::Call;
use crate::error::Violation;
use crate::tool::convert::convert;
use crate::tool::{Effect, Tool, Toolset, Touch};

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Crossing {
    /// The call connects to a host. A known host is one that the operator or the preset lists.
    Host { host: String, known: bool },
    /// The call reaches the network in a way that the operator configured: a search service, a shell without isolation,
    /// another node. It is asked about only while the run holds both labels.
    Network,
    /// A tool from elsewhere, whose effects are unknown.
    Foreign,
    /// The call writes outside the workspace.
    Write(PathBuf),
    /// The call changes something at a service in the owner's name. `what` completes "the call would …".
    Change { what: String },
    /// The call sends a message to somebody other than the owner.
    Message { to: String },
}

impl Crossing {
    /// Whether a path of another machine may lead out of the workspace there. Its links are not known here.
    pub fn may_leave(path: &str) -> bool {
        Path::new(path).components().any(|part| !matches!(part, Component::Normal(_) | Component::CurDir))
    }
}

pub(crate) type Crosses = Arc<dyn Fn(&Call, &Value) -> Result<Vec<Crossing>, Violation> + Send + Sync>;

impl Tool {
    /// Declares how a call crosses the border. Without a declaration a tool that reaches the network counts as
    /// [`Crossing::Network`], and one from elsewhere as [`Crossing::Foreign`].
    ///
    /// `I` may be a smaller type than the tool's input.
    pub fn crosses<I, F>(mut self, crosses: F) -> Self
    where
        I: DeserializeOwned,
        F: Fn(&Call, I) -> Vec<Crossing> + Send + Sync + 'static,
    {
        self.crosses = Some(Arc::new(move |call, input| Ok(crosses(call, convert(input)?))));
        self
    }

    /// The crossings of a call that touches these paths.
    pub(crate) fn crossings(
        &self,
        call: &Call,
        input: &Value,
        touches: &[Touch],
    ) -> Result<Vec<Crossing>, Violation> {
        let mut crossings = self.declared_crossings(call, input)?;
        let outside = touches.iter().filter(|touch| touch.outside);
        crossings.extend(outside.map(|touch| Crossing::Write(touch.path.clone())));
        Ok(crossings)
    }

    /// Whether the crossings depend on the input.
    pub(crate) fn has_crossings(&self) -> bool {
        self.crosses.is_some() || self.written_field.is_some()
    }

    fn declared_crossings(&self, call: &Call, input: &Value) -> Result<Vec<Crossing>, Violation> {
        if let Some(crosses) = &self.crosses {
            return crosses(call, input);
        }
        let has_unknown_effects = match self.toolset() {
            Toolset::Mcp => !self.is_read_only(),
            _ => self.is_remote() && !self.is_recognised() && self.has_effect(Effect::SendsMessages),
        };
        let mut crossings = match () {
            () if has_unknown_effects => vec![Crossing::Foreign],
            () if self.reaches_outside(call) => vec![Crossing::Network],
            () => Vec::new(),
        };
        if let Some(field) = self.written_field.filter(|_| self.is_remote())
            && let Some(path) = input.get(field).and_then(Value::as_str)
            && Crossing::may_leave(path)
        {
            crossings.push(Crossing::Write(path.into()));
        }
        Ok(crossings)
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;
    use serde_json::json;

    use super::*;
    use crate::call::{Principal, Surface};
    use crate::testing::echo_tool;
    use crate::tool::{RemoteTool, Reply};

    fn crossings(tool: &Tool, input: Value) -> Vec<Crossing> {
        let call = Call::new(Principal::Agent { id: "a".into() }, Surface::Agent, "/w".into());
        tool.crossings(&call, &input, &[]).unwrap()
    }

    fn remote(toolset: Toolset, read_only: bool) -> Tool {
        let remote = RemoteTool {
            name: "box__Deploy".into(),
            toolset,
            description: "x".into(),
            input_schema: json!({"type": "object"}),
            output_schema: None,
            read_only,
            destructive: !read_only,
            idempotent: false,
            open_world: true,
            capabilities: Vec::new(),
        };
        Tool::remote(remote, |_, input| async move { Ok(Reply::Json(input)) })
    }

    #[test]
    fn crossings_follow_from_declarations_and_effects() {
        #[derive(Deserialize)]
        struct Input {
            text: String,
        }
        let own = || echo_tool("own", Toolset::Basic);
        assert_eq!(crossings(&own().effects(&[Effect::WritesFiles]), json!({})), []);
        assert_eq!(crossings(&own().read_only().open_world(), json!({})), [Crossing::Network]);
        assert_eq!(crossings(&own().open_world().offline_when(|_| true), json!({})), []);
        let fetch = own()
            .open_world()
            .crosses(|_, input: Input| vec![Crossing::Host { host: input.text, known: false }]);
        let host = Crossing::Host { host: "a.example".into(), known: false };
        assert_eq!(crossings(&fetch, json!({"text": "a.example"})), [host]);
        // Tools of MCP servers and nodes count as having every effect.
        assert_eq!(crossings(&remote(Toolset::Mcp, false), json!({})), [Crossing::Foreign]);
        assert_eq!(
            crossings(&remote(Toolset::Mcp, true), json!({})),
            [Crossing::Network],
            "a trusted server"
        );
        assert_eq!(crossings(&remote(Toolset::Node, true), json!({})), [Crossing::Foreign]);
        let known = remote(Toolset::Node, false).recognised_as(&own().open_world());
        assert_eq!(crossings(&known, json!({})), [Crossing::Network]);
        // The links of another machine are not known here, so an absolute path counts as outside.
        let writes = echo_tool("Write", Toolset::Node)
            .effects(&[Effect::WritesFiles])
            .writes_path("path", |_: &Call, path: &str| path.into());
        let far = remote(Toolset::Node, false).recognised_as(&writes);
        for (path, outside) in [("a/b", false), ("./a", false), ("/etc/x", true), ("a/../../x", true)] {
            let found = crossings(&far, json!({"path": path})).contains(&Crossing::Write(path.into()));
            assert_eq!(found, outside, "{path}");
        }
    }
}
