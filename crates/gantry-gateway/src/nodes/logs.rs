//! Reads the logs of nodes, and of the gateway itself.

use std::sync::Arc;
use std::time::Duration;

use gantry_link::LinkError;
use gantry_protocol::{LogsParams, LogsResult, method, raw};
use gantry_tool::ToolError;
use gantry_toolsets::LOCAL_NODE;

use super::Nodes;

/// Timeout of a node's answer.
const LOGS_LIMIT: Duration = Duration::from_secs(20);

/// Reads the last lines of the gateway's own log.
pub type LocalLog = Arc<dyn Fn(usize) -> std::io::Result<LogsResult> + Send + Sync>;

/// `OwnLog` is the gateway's own log, which is shown under the name `local`.
pub(super) struct OwnLog {
    read: LocalLog,
    /// Whether `local` is also a node, and so counts among the machines with a log.
    is_node: bool,
}

impl Nodes {
    /// Sets how the gateway's own log is read. It is shown under the name `local`.
    pub fn set_local_log(&self, read: LocalLog, is_node: bool) {
        // A second call is ignored, because a gateway has one log.
        let _ = self.own_log.set(OwnLog { read, is_node });
    }

    /// Returns the last lines of a node's log. Without a node, the only connected one is meant.
    pub(crate) async fn logs(
        &self,
        node: Option<&str>,
        lines: usize,
    ) -> Result<(String, LogsResult), ToolError> {
        let id = match node {
            Some(id) => id.to_owned(),
            None => self.only_machine_with_a_log()?,
        };
        if id == LOCAL_NODE {
            return Ok((id, self.local_logs(lines).await?));
        }
        let node = self.find(&id).ok_or_else(|| {
            ToolError::failed(format!("unknown node \"{id}\"")).with_hint("`gantry nodes` lists the nodes")
        })?;
        let live = node.live().ok_or_else(|| node.absent())?;
        let answer = live.link.request_within(method::LOGS_GET, raw(&LogsParams { lines }), LOGS_LIMIT).await;
        let failed = |why: &dyn std::fmt::Display| format!("the node \"{}\": {why}", node.id);
        let answer = answer.map_err(|err| match err {
            LinkError::Closed(_) => ToolError::unavailable(failed(&err)),
            LinkError::Remote(_) => ToolError::failed(failed(&err)),
        })?;
        let logs = serde_json::from_str(answer.get())
            .map_err(|err| ToolError::failed(failed(&format_args!("invalid answer: {err}"))))?;
        Ok((node.id.clone(), logs))
    }

    async fn local_logs(&self, lines: usize) -> Result<LogsResult, ToolError> {
        let Some(read) = self.own_log.get().map(|log| log.read.clone()) else {
            return Err(ToolError::failed("this gateway has no node \"local\"; start it with `gantry up`"));
        };
        let read = tokio::task::spawn_blocking(move || read(lines)).await;
        let failed =
            |why: &dyn std::fmt::Display| ToolError::failed(format!("cannot read the gateway's log: {why}"));
        read.map_err(|err| failed(&err))?.map_err(|err| failed(&err))
    }

    fn only_machine_with_a_log(&self) -> Result<String, ToolError> {
        let own_log = self.own_log.get();
        let known = self.known();
        let here = known.values().filter(|node| node.live().is_some()).map(|node| node.id.clone());
        let local = own_log.filter(|log| log.is_node).map(|_| LOCAL_NODE.to_owned());
        let mut here: Vec<String> = local.into_iter().chain(here).collect();
        match here.len() {
            0 if own_log.is_some() => Ok(LOCAL_NODE.to_owned()),
            0 => Err(ToolError::unavailable("no node is connected")),
            1 => Ok(here.remove(0)),
            _ => {
                let ids = here.join(", ");
                Err(ToolError::failed(format!(
                    "several nodes are connected ({ids}); choose one with \"nodeId\""
                )))
            }
        }
    }
}
