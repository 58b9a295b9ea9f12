//! Resumes the transfers that an earlier process of the gateway did not finish.

use std::sync::Arc;

use gantry_domain::GatewayServices;
use gantry_protocol::{Caller, ErrorCode, WireError};
use gantry_store::{DatabaseError, TransferRow};
use gantry_tool::{Refusal, ResumedWork};
use gantry_toolsets::Endpoint;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::resume_identity::ResumeIdentity;
use crate::running_transfer::{ResumedState, RunningTransfer};
use crate::spec::TransferSpec;
use crate::transfers::{Transfers, now_ms};

/// The tool that starts transfers.
const TRANSFER: &str = "gsv__Transfer";

const TOKEN_ENDED: &str = "the token that started the transfer is no longer valid";

pub(crate) fn token_ended() -> WireError {
    WireError::new(ErrorCode::Cancelled, TOKEN_ENDED)
}

/// Transfers that can be resumed. While this exists no transfer starts, so that a caller who repeats a request joins
/// the resumed transfer.
pub struct UnfinishedTransfers<'a> {
    transfers: &'a Arc<Transfers>,
    rows: Vec<TransferRow>,
    _starting: tokio::sync::MutexGuard<'a, ()>,
}

impl Transfers {
    pub async fn unfinished(self: &Arc<Self>) -> Result<UnfinishedTransfers<'_>, DatabaseError> {
        let starting = self.starting.lock().await;
        let rows = self.database.unfinished_transfers().await?;
        Ok(UnfinishedTransfers { transfers: self, rows, _starting: starting })
    }
}

impl UnfinishedTransfers<'_> {
    /// Resumes the transfers, and returns how many there were. One that cannot be resumed is recorded as failed.
    pub async fn resume(self, services: &dyn GatewayServices) -> Result<usize, DatabaseError> {
        for row in &self.rows {
            match self.prepare(row, services).await? {
                Ok((transfer, work)) => self.transfers.spawn(Arc::new(transfer), Some(work)),
                Err(reason) => {
                    let database = &self.transfers.database;
                    database.finish_transfer(&row.id, Err(&reason), now_ms()).await?;
                }
            }
        }
        Ok(self.rows.len())
    }

    /// Restores a transfer and its caller. Its work is audited as if the caller had repeated the call.
    async fn prepare(
        &self,
        row: &TransferRow,
        services: &dyn GatewayServices,
    ) -> Result<Result<(RunningTransfer, ResumedWork), String>, DatabaseError> {
        let spec = match restored_spec(row) {
            Ok(spec) => spec,
            Err(reason) => return Ok(Err(reason)),
        };
        let input = json!({"source": spec.source.to_string(), "destination": spec.destination.to_string()});
        let work = match self.transfers.gate.resumes(&spec.policy_call, TRANSFER, &input).await {
            Ok(work) => work,
            Err(err) => return Ok(Err(format!("{err}; the transfer is not resumed"))),
        };
        let token_ended = match &spec.policy_call.token {
            None => CancellationToken::new(),
            Some(token) => match services.ending_of_token(token).await? {
                Some(ending) => ending,
                None => {
                    work.ended(Err(&Refusal::from_wire(token_ended())));
                    return Ok(Err(TOKEN_ENDED.to_owned()));
                }
            },
        };
        let resumed = ResumedState { progress: row.ledger.clone(), token_ended };
        Ok(Ok((RunningTransfer::new(spec, Some(resumed)), work)))
    }
}

fn restored_spec(row: &TransferRow) -> Result<TransferSpec, String> {
    let caller = Caller {
        principal: row.principal.clone(),
        agent: row.agent.clone(),
        autonomy: row.autonomy.clone(),
        surface: "websocket".into(),
        session: None,
        labels: Vec::new(),
        escalated: false,
        asks: false,
    };
    let identity = ResumeIdentity::from_text(row.standing.as_deref())?.with_token_of(&row.principal);
    let policy_call = identity.call(&caller).map_err(|error| error.message)?;
    Ok(TransferSpec {
        id: row.id.clone(),
        source: Endpoint::parse(&row.source)?,
        destination: Endpoint::parse(&row.destination)?,
        caller,
        policy_call: Arc::new(policy_call),
    })
}
