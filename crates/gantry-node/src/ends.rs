//! Tells the gateway of background processes that have ended: in order, each until it is answered.

use std::time::Duration;

use gantry_link::{Link, LinkError};
use gantry_process::{ExitReport, Processes};
use gantry_protocol::{method, raw};
use gantry_toolsets::process_end;

const ANSWER_LIMIT: Duration = Duration::from_secs(30);

/// Before an end is told again that the gateway could not take.
const PAUSE: Duration = Duration::from_secs(5);

/// Goes on as long as the connection does. What is not answered by then is told over the next one: the engine offers
/// an end until it is acknowledged, also after a restart.
pub(crate) async fn tell(processes: &Processes, link: &Link) -> std::convert::Infallible {
    let mut ends = processes.exit_reports();
    while let Some(report) = ends.next().await {
        if !is_taken(&report, link).await {
            continue;
        }
        match processes.acknowledge(report.event_id).await {
            Ok(_) => tracing::info!(session = %report.id, exitCode = report.ended.exit.code, "processEnded"),
            // It is told again then, and the gateway knows it by its id.
            Err(err) => tracing::error!(session = %report.id, error = %err, "endNotAcknowledged"),
        }
    }
    std::future::pending().await
}

/// False when the gateway refuses this one for good: those behind it must not wait for it.
async fn is_taken(report: &ExitReport, link: &Link) -> bool {
    let end = process_end(report);
    loop {
        match link.request_within(method::PROCESS_ENDED, raw(&end), ANSWER_LIMIT).await {
            Ok(_) => return true,
            // Whoever runs this notices as well that the connection is gone.
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
