//! A gate over in-memory parts, for tests of tools and of the gate itself.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::audit::{AuditError, AuditRecord, AuditSink, Durability};
use crate::call::{Call, Ctx, Principal, Surface};
use crate::error::ToolError;
use crate::gate::{Answer, Gate, GateParts};
use crate::registry::Registry;
use crate::results::{KeptResult, ResultError, ResultPage, ResultStore, TextLength, WriteText};
use crate::tool::{Reply, Tool, Toolset};

/// Says its input back.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Echo {
    /// What to say.
    #[serde(default)]
    text: String,
}

/// A tool that returns its input, under any name.
pub fn echo_tool(name: &str, toolset: Toolset) -> Tool {
    async fn run(_: Ctx<()>, input: Echo) -> Result<Echo, ToolError> {
        Ok(input)
    }
    Tool::new(name, toolset, &Arc::new(()), run)
}

/// An audit log in memory. `break_it` makes it fail.
#[derive(Debug, Default)]
pub struct MemoryAudit {
    records: Mutex<Vec<(AuditRecord, Durability)>>,
    broken: std::sync::atomic::AtomicBool,
}

impl MemoryAudit {
    pub fn records(&self) -> Vec<(AuditRecord, Durability)> {
        self.records.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub fn break_it(&self) {
        self.broken.store(true, std::sync::atomic::Ordering::SeqCst);
    }
}

impl AuditSink for MemoryAudit {
    fn append(&self, record: AuditRecord, durability: Durability) -> Result<(), AuditError> {
        if self.broken.load(std::sync::atomic::Ordering::SeqCst) {
            return Err(AuditError("no space left on device".into()));
        }
        self.records.lock().unwrap_or_else(PoisonError::into_inner).push((record, durability));
        Ok(())
    }

    fn flush(&self) -> Result<(), AuditError> {
        Ok(())
    }
}

/// Kept results in memory. Reads whole results only.
#[derive(Debug, Default)]
pub struct MemoryResults {
    kept: Mutex<Vec<(KeptResult, String)>>,
}

impl ResultStore for MemoryResults {
    fn keep_written(
        &self,
        owner: &str,
        tool: &str,
        length: TextLength,
        write: WriteText<'_>,
    ) -> Result<KeptResult, ResultError> {
        let mut text = Vec::new();
        write(&mut text).map_err(|err| ResultError::Storage(err.to_string()))?;
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let result = KeptResult {
            handle: format!("res-{}", kept.len()),
            owner: owner.to_owned(),
            tool: tool.to_owned(),
            characters: length.characters,
        };
        kept.push((result.clone(), String::from_utf8_lossy(&text).into_owned()));
        Ok(result)
    }

    fn read(
        &self,
        reader: &str,
        handle: &str,
        _: usize,
        _: usize,
        _: Option<&str>,
    ) -> Result<ResultPage, ResultError> {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let (result, text) = kept
            .iter()
            .find(|(result, _)| result.handle == handle && result.owner == reader)
            .ok_or_else(|| ResultError::NotFound(handle.to_owned()))?;
        let total_characters = result.characters;
        Ok(ResultPage { text: text.clone(), total_characters, next_offset: None, matches: None })
    }
}

/// A gate over the given tools with default policy and in-memory audit log and results.
pub fn gate(tools: impl IntoIterator<Item = Tool>) -> (Gate, Arc<MemoryAudit>) {
    let registry = Registry::default();
    for tool in tools {
        registry.replace(tool);
    }
    let audit = Arc::new(MemoryAudit::default());
    let results = Arc::new(MemoryResults::default());
    (Gate::new(GateParts { registry, ..GateParts::new(audit.clone(), results) }), audit)
}

/// Calls as the operator from the command line: JSON in, JSON out. An error is `Err` with the shape a user would see.
pub async fn call(gate: &Gate, workspace: &Path, name: &str, input: Value) -> Result<Value, Value> {
    call_as(gate, Call::new(Principal::Operator, Surface::Cli, workspace.to_owned()), name, input).await
}

/// As [`call`], for any caller.
pub async fn call_as(gate: &Gate, call: Call, name: &str, input: Value) -> Result<Value, Value> {
    let json = |reply| match reply {
        Reply::Json(value) => value,
        Reply::Text(text) => Value::String(text),
    };
    match gate.call(call, name, input).await.answer {
        Answer::Success(reply) => Ok(json(reply)),
        Answer::ToolError(reply) => Err(json(reply)),
        Answer::Refused(refusal) => Err(refusal.to_json()),
    }
}
