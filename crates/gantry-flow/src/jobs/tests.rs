//! Jobs with a virtual clock, real sessions and a scripted model. Each test is named after the rule that it holds.
mod admission;
mod agents;
mod attacks;
mod events;
mod runs;

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use gantry_agent::ApprovalDecision;
use gantry_protocol::{
    CronHistoryParams, CronJob, CronJobInput, CronListParams, CronRun, CronStatusParams, CronUpdateParams,
};
use gantry_store::StateChange;
use gantry_tool::{Autonomy, Refusal};
use serde_json::{Value, json};

use super::info::Job;
use crate::config::{FlowConfig, WebhookConfig};
use crate::testing::{OPERATOR, START, Setup, World, calls, eventually, results, says, texts};
use crate::time::{DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS};

fn input(value: Value) -> CronJobInput {
    serde_json::from_value(value).unwrap()
}

fn task(message: &str) -> Value {
    json!({"mode": "task", "message": message})
}

impl World {
    async fn add(&self, value: Value) -> CronJob {
        self.flow.api_add(&OPERATOR, input(value)).await.unwrap()
    }

    /// Adds a task at an interval.
    async fn every(&self, minutes: i64) -> CronJob {
        self.add(json!({"name": "j", "schedule": {"kind": "every", "everyMinutes": minutes}, "spec": task("work")})).await
    }

    async fn update(&self, id: &str, patch: Value) -> Result<CronJob, Refusal> {
        let patch = input(patch);
        self.flow.api_update(&OPERATOR, CronUpdateParams { id: id.into(), patch }).await
    }

    async fn job(&self, id: &str) -> CronJob {
        self.flow.api_show(&OPERATOR, id).await.unwrap()
    }

    async fn row(&self, id: &str) -> gantry_store::CronJobRow {
        self.flow.parts.database.cron_job(id).await.unwrap().unwrap()
    }

    /// The history of a job, the oldest first.
    async fn runs(&self, id: &str) -> Vec<CronRun> {
        let params = CronHistoryParams { job_id: Some(id.into()), ..CronHistoryParams::default() };
        let mut runs = self.flow.api_history(&OPERATOR, params).await.unwrap().runs;
        runs.reverse();
        runs
    }

    async fn statuses(&self, id: &str) -> Vec<String> {
        self.runs(id).await.into_iter().map(|run| run.status).collect()
    }

    /// Moves the clock and waits until nothing is due and nothing runs.
    async fn at(&self, now: i64) {
        self.clock.set(now);
        self.idle().await;
    }

    async fn idle(&self) {
        let is_live = |status: &str| ["queued", "running"].contains(&status);
        eventually("nothing is due and nothing runs", async || {
            let status = self.flow.api_status(&OPERATOR, CronStatusParams::default()).await.unwrap();
            let runs = self.flow.api_history(&OPERATOR, CronHistoryParams::default()).await.unwrap().runs;
            status.due_count == 0 && !runs.iter().any(|run| is_live(&run.status))
        })
        .await;
    }

    async fn reached(&self, id: &str, status: &str) {
        eventually(status, async || self.runs(id).await.iter().any(|run| run.status == status)).await;
    }

    /// The texts of the messages in the outbox.
    async fn messages(&self) -> Vec<(String, String)> {
        let (messages, _) = self.flow.parts.database.list_outbox(None, None, 500, 0).await.unwrap();
        messages.into_iter().map(|message| (message.body.title, message.body.text)).collect()
    }
}

fn failing() -> Setup {
    let script = |_: &gantry_model::Request| Err(gantry_agent::ModelFailure::Failed("no luck".into()));
    Setup { script: Arc::new(script), ..Setup::default() }
}
