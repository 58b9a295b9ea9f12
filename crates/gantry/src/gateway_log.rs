//! The gateway's own log: when it starts and stops, what it warns of, which nodes come and go. It is the log of the node
//! `local`. Calls are in the audit log.

use std::sync::Arc;

use gantry_gateway::LocalLog;
use gantry_node::NodeLog;
use gantry_protocol::LogsResult;
use gantry_store::DataDir;
use gantry_toolsets::LOCAL_NODE;

pub(crate) fn open(data: &DataDir) -> std::io::Result<NodeLog> {
    NodeLog::open(&data.gateway_log(), LOCAL_NODE, None)
}

/// The log as `gsv__LogsGet` reads it.
pub(crate) fn reader(log: &NodeLog) -> LocalLog {
    let log = log.clone();
    Arc::new(move |lines| {
        let tail = log.tail(lines)?;
        Ok(LogsResult { lines: tail.lines, truncated: tail.truncated })
    })
}
