//! Reports ended background processes to the gateway, in order, each until it is acknowledged.

use std::time::Duration;

use gantry_link::{Link, LinkError};
use gantry_process::Processes;
use gantry_protocol::{ProcessEnd, method, raw};
use gantry_tool::Masker;
use gantry_toolsets::process_end;

const ANSWER_LIMIT: Duration = Duration::from_secs(30);

/// The wait before an end that the gateway could not store is reported again.
const PAUSE: Duration = Duration::from_secs(5);

/// Runs as long as the connection. Unacknowledged ends are reported over the next connection: the engine offers an
/// end until it is acknowledged, also after a restart.
pub(crate) async fn report(processes: &Processes, link: &Link, masker: &Masker) -> std::convert::Infallible {
    let mut ends = processes.exit_reports();
    while let Some(report) = ends.next().await {
        if !is_taken(process_end(&report, masker), link).await {
            continue;
        }
        match processes.acknowledge(report.event_id).await {
            Ok(_) => tracing::info!(session = %report.id, exitCode = report.ended.exit.code, "processEnded"),
            // The end is reported again, and the gateway recognises its id.
            Err(err) => tracing::error!(session = %report.id, error = %err, "endNotAcknowledged"),
        }
    }
    std::future::pending().await
}

/// Returns false when the gateway rejects this end for good, so that later ends do not wait for it.
async fn is_taken(end: ProcessEnd, link: &Link) -> bool {
    loop {
        match link.request_within(method::PROCESS_ENDED, raw(&end), ANSWER_LIMIT).await {
            Ok(_) => return true,
            // The caller also notices that the connection is lost.
            Err(LinkError::Closed(_)) => return std::future::pending().await,
            Err(LinkError::Remote(error)) => {
                tracing::warn!(session = %end.session_id, error = error.message, "endNotTaken");
                if !error.retryable {
                    return false;
                }
            }
        }
        tokio::time::sleep(PAUSE).await;
    }
}
