//! Log events of transfers.

use super::{Ended, Job};

pub(super) fn started(job: &Job, resumed: bool) {
    let errand = job.errand();
    tracing::info!(
        transfer = job.id,
        principal = errand.caller.principal,
        source = %errand.source,
        destination = %errand.destination,
        resumed,
        "transfer_started"
    );
}

pub(super) fn ended(job: &Job, outcome: &Ended) {
    let errand = job.errand();
    let (transfer, principal) = (&job.id, &errand.caller.principal);
    match outcome {
        Ok(done) => {
            let (bytes, files) = (done.bytes_transferred, done.files);
            tracing::info!(transfer, principal, bytes, files, "transfer_ended");
        }
        Err(error) => {
            tracing::warn!(
                transfer,
                principal,
                code = error.code.name(),
                error = error.message,
                "transfer_failed"
            );
        }
    }
}
