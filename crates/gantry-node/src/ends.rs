//! Reports ended background processes to the gateway, in order, each until it is acknowledged.

use std::time::Duration;

use gantry_link::{Link, LinkError};
use gantry_process::{EndReport, Processes};
use gantry_protocol::{method, raw};
use gantry_toolsets::process_end;
use serde_json::json;

use crate::log::{NodeLog, bounded};

const ANSWER_LIMIT: Duration = Duration::from_secs(30);

/// The wait before an end that the gateway could not store is reported again.
const PAUSE: Duration = Duration::from_secs(5);

/// Runs as long as the connection. Unacknowledged ends are reported over the next connection: the engine offers an
/// end until it is acknowledged, also after a restart.
pub(crate) async fn report(processes: &Processes, link: &Link, log: &NodeLog) -> std::convert::Infallible {
    let mut ends = processes.ends();
    while let Some(report) = ends.next().await {
        if !is_taken(&report, link, log).await {
            continue;
        }
        let fields = json!({"session": report.id.to_string(), "exitCode": report.ended.exit.code});
        match processes.acknowledge(report.event_id).await {
            Ok(_) => log.info("processEnded", fields),
            // The end is reported again, and the gateway recognises its id.
            Err(err) => log.error(
                "endNotAcknowledged",
                json!({"session": report.id.to_string(), "error": err.to_string()}),
            ),
        }
    }
    std::future::pending().await
}

/// Returns false when the gateway rejects this end for good, so that later ends do not wait for it.
async fn is_taken(report: &EndReport, link: &Link, log: &NodeLog) -> bool {
    let end = process_end(report);
    loop {
        match link.request_within(method::PROCESS_ENDED, raw(&end), ANSWER_LIMIT).await {
            Ok(_) => return true,
            // The caller also notices that the connection is lost.
            Err(LinkError::Closed(_)) => return std::future::pending().await,
            Err(LinkError::Remote(error)) => {
                let fields = json!({"session": end.session_id, "error": bounded(&error.message)});
                log.warning("endNotTaken", fields);
                if !error.retryable {
                    return false;
                }
            }
        }
        tokio::time::sleep(PAUSE).await;
    }
}
