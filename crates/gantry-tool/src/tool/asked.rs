//! How a tool describes its calls in questions to a person. A tool without a description shows its input.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use gantry_protocol::{AskedAction, ChangeKind};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::call::Call;
use crate::registry::LOCAL_NODE;
use crate::text::mask::Masker;
use crate::text::redact;
use crate::tool::convert::convert;
use crate::tool::{Access, Tool, Toolset};

type DescribeFuture = Pin<Box<dyn Future<Output = Option<AskedAction>> + Send>>;
pub(crate) type Describe = Arc<dyn Fn(AskedCall, &Value) -> Option<DescribeFuture> + Send + Sync>;

/// A call that a person is asked about.
#[derive(Debug, Clone)]
pub struct AskedCall {
    pub call: Arc<Call>,
    /// The machines that it runs on; `local` is the gateway's own.
    pub machine: String,
    /// It runs on another machine, whose files cannot be read here.
    pub is_remote: bool,
    masker: Masker,
}

impl AskedCall {
    pub(crate) fn new(masker: &Masker, call: &Call, tool: &Tool, input: &Value) -> AskedCall {
        let machine = machine_of(tool, input);
        let is_remote = tool.is_remote() || machine != LOCAL_NODE;
        // Nobody is asked while a question is written.
        let call = Call { approver: None, egress_approver: None, ..call.clone() };
        AskedCall { call: Arc::new(call), machine, is_remote, masker: masker.now() }
    }

    /// Masks secrets. A text has to be masked before it is compared with another one, because a diff could split a secret.
    pub fn masked(&self, text: &str) -> String {
        redact::masked_text(&self.masker, text)
    }
}

impl Tool {
    /// Declares how a call is described when a person is asked about it. The gate masks secrets in it and shortens it.
    ///
    /// `None` shows the input. `I` may be a smaller type than the tool's input. Fields that it does not have are ignored.
    pub fn asks_as<I, F, Fut>(mut self, describe: F) -> Self
    where
        I: DeserializeOwned,
        F: Fn(AskedCall, I) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Option<AskedAction>> + Send + 'static,
    {
        self.describe = Some(Arc::new(move |asked, input| {
            let input = convert(input).ok()?;
            Some(Box::pin(describe(asked, input)))
        }));
        self
    }

    /// Describes a call. Nothing in the description is masked or shortened, except for texts that the tool compared.
    pub(crate) async fn described(&self, masker: &Masker, call: &Call, input: &Value) -> AskedAction {
        let asked = AskedCall::new(masker, call, self, input);
        let is_here = !asked.is_remote;
        let described = self.describe.as_ref().and_then(|describe| describe(asked, input));
        let described = match described {
            Some(described) => described.await,
            None => None,
        };
        let Some(mut action) = described else { return other(self.name(), input) };
        // The file engine resolves the paths. Grants are compared with the resolved paths.
        match &mut action {
            AskedAction::FileChange { paths, change, .. } if is_here && *change != ChangeKind::Copy => {
                let resolved = self.resolved(call, input, Access::Write).await;
                if !resolved.is_empty() {
                    *paths = resolved;
                }
            }
            AskedAction::FileRead { path, .. } if is_here => {
                if let Some(resolved) = self.resolved(call, input, Access::Read).await.pop() {
                    *path = resolved;
                }
            }
            _ => {}
        }
        action
    }

    async fn resolved(&self, call: &Call, input: &Value, access: Access) -> Vec<String> {
        let touched = self.touched_with_walk(call, input).await.unwrap_or_default();
        let touched = touched.into_iter().filter(|touch| touch.access == access);
        touched.map(|touch| touch.path.to_string_lossy().into_owned()).collect()
    }
}

pub(crate) fn other(tool: &str, input: &Value) -> AskedAction {
    AskedAction::Other { tool: tool.to_owned(), input: input.clone(), not_shown: 0 }
}

/// The machines of a call: its `node` argument, or the prefix of the tool's name.
fn machine_of(tool: &Tool, input: &Value) -> String {
    match input.get("node") {
        Some(Value::String(node)) if !node.is_empty() => return node.clone(),
        Some(Value::Array(nodes)) if !nodes.is_empty() => {
            return nodes.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(", ");
        }
        _ => {}
    }
    let prefix = tool.name().split_once("__").filter(|_| tool.toolset() == Toolset::Node);
    prefix.map_or(LOCAL_NODE, |(node, _)| node).to_owned()
}
