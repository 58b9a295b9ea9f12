//! Log events of transfers.

use crate::running_transfer::{RunningTransfer, TransferResult};

pub(crate) fn started(transfer: &RunningTransfer, resumed: bool) {
    let spec = transfer.spec();
    tracing::info!(
        transfer = transfer.id,
        principal = spec.caller.principal,
        source = %spec.source,
        destination = %spec.destination,
        resumed,
        "transfer_started"
    );
}

pub(crate) fn ended(transfer: &RunningTransfer, outcome: &TransferResult) {
    let spec = transfer.spec();
    let (transfer, principal) = (&transfer.id, &spec.caller.principal);
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
