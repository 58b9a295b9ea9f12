//! The gate: the one function through which every tool call of every surface passes.
//!
//! resolve → validate → decide → record → run → bound → label → record. Nothing else in the program can run a tool.

use std::panic::AssertUnwindSafe;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::audit::{AuditError, AuditRecord, AuditSink, Durability, Phase};
use crate::call::Call;
use crate::error::{Refusal, RefusalCode, ToolError, Violation};
use crate::live::Live;
use crate::metrics::{Metrics, Status};
use crate::policy::{Decision, Policy, Verdict};
use crate::registry::Registry;
use crate::results::ResultStore;
use crate::results::budget;
use crate::results::envelope;
use crate::text::injection::injection_warning;
use crate::text::mask::Masker;
use crate::text::redact::{self, bounded_text};
use crate::tool::Label;
use crate::tool::{Reply, Tool};

use approval::Approval;
use decide::Judged;
pub use resume_audit::ResumedWork;

/// After the deadline a tool gets this long to end its processes before it is dropped.
const CLEAN_UP_TIME: Duration = Duration::from_secs(2);

/// The parts of a gate.
pub struct GateParts {
    pub registry: Registry,
    pub settings: Live<GateSettings>,
    pub masker: Masker,
    pub audit: Arc<dyn AuditSink>,
    pub results: Arc<dyn ResultStore>,
}

impl GateParts {
    pub fn new(audit: Arc<dyn AuditSink>, results: Arc<dyn ResultStore>) -> GateParts {
        GateParts {
            registry: Registry::default(),
            settings: Live::default(),
            masker: Masker::default(),
            audit,
            results,
        }
    }
}

/// The result of a call.
#[derive(Debug)]
pub struct Outcome {
    pub call_id: String,
    /// The resolved name, or the requested name when the tool is unknown.
    pub tool: String,
    pub answer: Answer,
    pub labels: Vec<Label>,
    /// Warnings that are shown with the answer. They are never part of it.
    pub warnings: Vec<String>,
}

impl Outcome {
    /// For surfaces that refuse a call before it reaches the gate.
    pub fn refused(call: &Call, tool: &str, refusal: Refusal) -> Outcome {
        let answer = Answer::Refused(refusal);
        Outcome {
            call_id: call.id.clone(),
            tool: tool.to_owned(),
            answer,
            labels: Vec::new(),
            warnings: Vec::new(),
        }
    }
}

#[derive(Debug, PartialEq)]
pub enum Answer {
    Success(Reply),
    /// The tool's own error, in its toolset's shape.
    ToolError(Reply),
    /// The gate refused the call, or stopped waiting for it.
    Refused(Refusal),
}

/// What a changed configuration replaces while the gate runs.
#[derive(Debug, Clone)]
pub struct GateSettings {
    pub policy: Policy,
    /// The limit for a result in the agent loop.
    pub max_result_chars: usize,
    /// The limit for a result for an MCP client.
    pub max_mcp_result_chars: usize,
}

impl Default for GateSettings {
    fn default() -> GateSettings {
        GateSettings {
            policy: Policy::default(),
            max_result_chars: budget::DEFAULT_MAX_RESULT_CHARS,
            max_mcp_result_chars: budget::DEFAULT_MAX_MCP_RESULT_CHARS,
        }
    }
}

impl GateSettings {
    /// A policy with the default limits.
    pub fn of(policy: Policy) -> Live<GateSettings> {
        Live::new(GateSettings { policy, ..GateSettings::default() })
    }
}

/// Cheap to share behind an `Arc`; calls run concurrently.
pub struct Gate {
    parts: GateParts,
    metrics: Metrics,
}

impl Gate {
    pub fn new(parts: GateParts) -> Gate {
        Gate { parts, metrics: Metrics::default() }
    }

    /// Replaces the settings for calls that come later.
    pub fn configure(&self, settings: GateSettings) {
        self.parts.settings.set(settings);
    }

    /// Makes a gate over another list of tools, with the policy, audit log and secrets of this one.
    pub fn with_tools(&self, registry: Registry) -> Gate {
        let GateParts { settings, masker, audit, results, .. } = &self.parts;
        Gate::new(GateParts {
            registry,
            settings: settings.clone(),
            masker: masker.clone(),
            audit: audit.clone(),
            results: results.clone(),
        })
    }

    pub fn registry(&self) -> &Registry {
        &self.parts.registry
    }

    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// The present policy.
    pub fn policy(&self) -> Policy {
        self.parts.settings.get().policy.clone()
    }

    /// The input for a person who decides on the call: secrets masked, long values shortened.
    pub fn presentable(&self, input: &Value) -> Value {
        redact::asked(&self.parts.masker, input)
    }

    /// Describes a call for approval, for a rule outside the gate's policy.
    pub async fn approval(
        &self,
        call: &Call,
        tool: &str,
        rule: &str,
        reason: &str,
        input: &Value,
    ) -> Approval {
        let masker = &self.parts.masker;
        let approval = Approval::new(masker, call, tool, rule, reason, input);
        match self.parts.registry.resolve_for(call, tool) {
            Some(tool) => approval.described_by(masker, call, &tool, input).await,
            None => approval,
        }
    }

    /// Returns the denial of a call if the policy changed while a person was asked, and denies it now.
    async fn denied_meanwhile(
        &self,
        settings: &Arc<GateSettings>,
        call: &Call,
        tool: &Arc<Tool>,
        input: &Value,
    ) -> Option<Verdict> {
        if Arc::ptr_eq(settings, &self.parts.settings.get()) {
            return None;
        }
        match self.decide(call, tool, input).await {
            Ok(judged) => Some(judged.verdict).filter(|verdict| verdict.decision == Decision::Deny),
            Err(violation) => Some(Verdict {
                decision: Decision::Deny,
                rule: "changed-policy".to_owned(),
                reason: format!("the call cannot be judged any more: {}", violation.message),
                sensitive: false,
            }),
        }
    }

    /// As [`Gate::dispatch`], with the input as JSON text. Invalid JSON is reported as a violation.
    pub async fn execute(&self, call: Call, name: &str, json: &str) -> Outcome {
        match serde_json::from_str(json) {
            Ok(input) => self.dispatch(call, name, input).await,
            Err(err) => {
                let violation = Violation { path: String::new(), message: format!("not valid JSON: {err}") };
                let Some(tool) = self.parts.registry.resolve_for(&call, name) else {
                    return self.refuse_unknown(&call, name);
                };
                self.refuse_invalid(&call, &tool, &Value::Null, vec![violation])
            }
        }
    }

    /// The one path of a call.
    pub async fn call(&self, mut call: Call, name: &str, input: Value) -> Outcome {
        let Some(tool) = self.parts.registry.resolve_for(&call, name) else {
            return self.refuse_unknown(&call, name);
        };
        let (input, violations) = tool.checked(input).await;
        if !violations.is_empty() {
            return self.refuse_invalid(&call, &tool, &input, violations);
        }
        let settings = self.parts.settings.get();
        let judged = match self.decide(&call, &tool, &input).await {
            Ok(judged) => judged,
            Err(violation) => return self.refuse_invalid(&call, &tool, &input, vec![violation]),
        };
        let Judged { verdict, names_paths, asked, writes_inside } = judged;
        let asks_for_sensitive = verdict.decision == Decision::Ask && verdict.sensitive;
        // Boxed, because asking is rare and would enlarge the future of every call.
        let verdict = match verdict.decision {
            Decision::Ask => {
                let settled =
                    Box::pin(approval::settle(&self.parts.masker, &call, &tool, &input, verdict)).await;
                Box::pin(self.denied_meanwhile(&settings, &call, &tool, &input)).await.unwrap_or(settled)
            }
            Decision::Allow | Decision::Deny => verdict,
        };
        if verdict.decision != Decision::Allow {
            let mut refused = self.refuse_denied(&call, tool.name(), &input, &verdict);
            // The reason may name a path that the caller wrote only as a pattern.
            refused.labels.extend(names_paths.then_some(Label::Private));
            return refused;
        }
        if let Err(err) = self.record_begin(&call, &tool, &input, &verdict).await {
            return self.refuse_unaudited(&call, &tool, &err);
        }
        call.approved = asked.unwrap_or_default();
        let policy = self.policy();
        call.writes_inside = writes_inside && call.principal.is_own_agent();
        call.escalated = escalation::leaves_sandbox(&call, &tool, &input);
        // A person who approved the call has seen the sensitive path.
        call.avoid_sensitive = !asks_for_sensitive && !policy.allows_sensitive(&call, &tool, &input);
        call.policy = Some(policy);

        call.findings.note_run();
        let call = Arc::new(call);
        let mut ending = Ending {
            gate: self,
            call: &call,
            tool: &tool,
            started: Instant::now(),
            took: None,
            recorded: false,
        };
        let result = run(&call, &tool, input).await;
        ending.ran();
        if let Err(Stopped::Tool(ToolError::Internal { id, detail })) = &result {
            log::internal(&call, tool.name(), id, detail);
        }

        let (answer, error) = self.answer(&tool, result);
        let answer = self.mask(answer);
        let (answer, mut warnings) = self.bound(&call, &tool, answer).await;
        warnings.extend(call.findings.take_warnings().into_iter().map(|mut warning| {
            self.parts.masker.mask_text(&mut warning);
            warning
        }));
        warnings.extend(warning(&answer));
        let answer = match ending.record(&answer, error) {
            Ok(()) => answer,
            // A read must be on record before its answer is returned.
            Err(err) if tool.is_read_only() => Answer::Refused(unaudited(&err, "its answer is withheld")),
            // The effect has happened, so this is only a warning. The next call is refused.
            Err(err) => {
                warnings.push(err.to_string());
                answer
            }
        };
        // An error may quote private content even if the tool's successes never do.
        if !matches!(answer, Answer::Success(_)) && (names_paths || tool.reaches_private()) {
            call.findings.add(Label::Private);
        }
        Outcome {
            call_id: call.id.clone(),
            tool: tool.name().to_owned(),
            answer,
            labels: call.findings.with(&tool.result_labels(&call)),
            warnings,
        }
    }

    /// Masks the secrets that are known now. Also used for answers from earlier.
    pub fn mask_reply(&self, reply: &mut Reply) {
        match reply {
            Reply::Text(text) => self.parts.masker.mask_text(text),
            Reply::Json(value) => self.parts.masker.mask_texts(value),
        }
    }

    /// Does work that calls have deferred. Call it when no caller waits.
    pub fn settle(&self) {
        self.parts.audit.settle();
    }

    /// Writes every audit line to disk. Call it before the process ends.
    pub fn flush(&self) -> Result<(), AuditError> {
        self.parts.audit.flush()
    }

    /// Step 4. A call that may change something waits until its line is on disk. A read on another node is also recorded
    /// there, so its line is written here while the call runs.
    async fn record_begin(
        &self,
        call: &Call,
        tool: &Tool,
        input: &Value,
        verdict: &Verdict,
    ) -> Result<(), AuditError> {
        let mut record = self.record(call, tool.name(), Phase::Begin, Some(input));
        record.rule = Some(verdict.rule.clone());
        if tool.is_read_only() {
            let durability = if tool.runs_on_another_node() { Durability::Later } else { Durability::Soon };
            return self.parts.audit.append(record, durability);
        }
        let audit = self.parts.audit.clone();
        tokio::task::spawn_blocking(move || audit.append(record, Durability::Now))
            .await
            .unwrap_or_else(|err| Err(AuditError(err.to_string())))
    }

    /// Turns the result of step 5 into the toolset's shape. Also returns the error text for the audit log.
    fn answer(&self, tool: &Tool, result: Result<Reply, Stopped>) -> (Answer, Option<String>) {
        match result {
            Ok(reply) => (Answer::Success(reply), None),
            Err(Stopped::Deadline) => {
                let refusal = Refusal::new(RefusalCode::Deadline, "the call's deadline passed")
                    .with_hint("set a longer deadline, or request less work");
                (Answer::Refused(refusal), Some("deadline".into()))
            }
            Err(Stopped::Tool(ToolError::Cancelled)) => {
                (Answer::Refused(Refusal::new(RefusalCode::Cancelled, "cancelled")), Some("cancelled".into()))
            }
            Err(Stopped::Tool(ToolError::Unavailable(message))) => {
                let refusal =
                    Refusal { hint: message.hint, ..Refusal::new(RefusalCode::Unavailable, message.text) };
                let note = refusal.message.clone();
                (Answer::Refused(refusal), Some(note))
            }
            Err(Stopped::Tool(ToolError::Denied(message))) => {
                let refusal =
                    Refusal { hint: message.hint, ..Refusal::new(RefusalCode::Denied, message.text) };
                let note = refusal.message.clone();
                (Answer::Refused(refusal), Some(note))
            }
            Err(Stopped::Tool(ToolError::Refused(refusal))) => {
                let note = refusal.message.clone();
                (Answer::Refused(refusal), Some(note))
            }
            Err(Stopped::Tool(ToolError::Shaped(reply))) => {
                let note = reply.to_text();
                (Answer::ToolError(reply), Some(note))
            }
            Err(Stopped::Tool(err)) => {
                let note = match &err {
                    ToolError::Internal { id, detail } => format!("internal error {id}: {detail}"),
                    other => other.to_string(),
                };
                (Answer::ToolError(envelope::error(tool, &err)), Some(note))
            }
        }
    }

    /// Step 7, first half. Masks known secrets before the answer is shortened, kept or shown.
    fn mask(&self, mut answer: Answer) -> Answer {
        match &mut answer {
            Answer::Success(reply) | Answer::ToolError(reply) => self.mask_reply(reply),
            Answer::Refused(refusal) => self.mask_refusal(refusal),
        }
        answer
    }

    fn mask_refusal(&self, refusal: &mut Refusal) {
        self.parts.masker.mask_text(&mut refusal.message);
        for violation in &mut refusal.violations {
            // The caller chose the names in the path.
            self.parts.masker.mask_text(&mut violation.path);
            self.parts.masker.mask_text(&mut violation.message);
        }
    }

    pub fn masker(&self) -> &Masker {
        &self.parts.masker
    }

    fn refuse_unknown(&self, call: &Call, name: &str) -> Outcome {
        // The caller chose the name, so it must not become the label of a metric.
        let name = bounded_text(name);
        let refusal = self.parts.registry.view(&call.scope).unknown(&name);
        self.refused(call, &name, None, refusal, None)
    }

    fn refuse_invalid(&self, call: &Call, tool: &Tool, input: &Value, violations: Vec<Violation>) -> Outcome {
        let plural = if violations.len() == 1 { "" } else { "s" };
        let message = format!("the input of {} has {} error{plural}", tool.name(), violations.len());
        let hint = format!("`gantry tools {}` shows the schema", tool.name());
        let refusal =
            Refusal { violations, ..Refusal::new(RefusalCode::InvalidInput, message) }.with_hint(hint);
        self.metrics.count(tool.name(), Status::Invalid);
        self.refused(call, tool.name(), Some(input), refusal, None)
    }

    fn refuse_denied(&self, call: &Call, tool: &str, input: &Value, verdict: &Verdict) -> Outcome {
        self.metrics.count(tool, Status::Denied);
        self.refused(call, tool, Some(input), verdict.refusal(call), Some(verdict))
    }

    fn refuse_unaudited(&self, call: &Call, tool: &Tool, err: &AuditError) -> Outcome {
        self.metrics.count(tool.name(), Status::Denied);
        log::refused(call, tool.name(), RefusalCode::Unaudited, None, &err.to_string());
        Outcome::refused(call, tool.name(), unaudited(err, "nothing was run"))
    }

    fn refused(
        &self,
        call: &Call,
        tool: &str,
        input: Option<&Value>,
        mut refusal: Refusal,
        verdict: Option<&Verdict>,
    ) -> Outcome {
        self.mask_refusal(&mut refusal);
        let mut record = self.record(call, tool, Phase::Refused, input);
        record.rule = verdict.map(|verdict| verdict.rule.clone());
        record.status = Some(refusal.code.name().into());
        record.error = Some(redact::refusal(&refusal));
        log::refused(
            call,
            tool,
            refusal.code,
            record.rule.as_deref(),
            record.error.as_deref().unwrap_or_default(),
        );
        let warnings = self.parts.audit.append(record, Durability::Soon).err().map(|err| err.to_string());
        Outcome {
            call_id: call.id.clone(),
            tool: tool.to_owned(),
            answer: Answer::Refused(refusal),
            labels: Vec::new(),
            warnings: warnings.into_iter().collect(),
        }
    }

    fn record(&self, call: &Call, tool: &str, phase: Phase, input: Option<&Value>) -> AuditRecord {
        AuditRecord {
            call: call.id.clone(),
            phase,
            principal: call.principal.name(),
            agent: call.agent.clone(),
            surface: call.surface.name().into(),
            tool: tool.to_owned(),
            input: input.map(|input| redact::input(&self.parts.masker, input)),
            rule: None,
            status: None,
            error: None,
            duration_ms: None,
        }
    }

    /// Completes the last record of a call with its status, error and duration.
    fn ended(
        &self,
        record: AuditRecord,
        status: Status,
        error: Option<String>,
        took: Duration,
    ) -> AuditRecord {
        let error = error.map(|mut text| {
            self.parts.masker.mask_text(&mut text);
            bounded_text(&text)
        });
        let duration_ms = Some((took.as_secs_f64() * 1e6).round() / 1e3);
        AuditRecord { status: Some(status.name().into()), error, duration_ms, ..record }
    }
}

/// Step 8 of a call that began: writes its last audit line and its metrics, even if the call is dropped.
struct Ending<'a> {
    gate: &'a Gate,
    call: &'a Call,
    tool: &'a Tool,
    started: Instant,
    took: Option<Duration>,
    recorded: bool,
}

impl Ending<'_> {
    fn ran(&mut self) {
        self.took = Some(self.started.elapsed());
    }

    fn record(mut self, answer: &Answer, error: Option<String>) -> Result<(), AuditError> {
        let status = match answer {
            Answer::Success(_) => Status::Success,
            Answer::Refused(refusal) if refusal.code == RefusalCode::Denied => Status::Denied,
            Answer::ToolError(_) | Answer::Refused(_) => Status::Failure,
        };
        self.append(status, error)
    }

    fn append(&mut self, status: Status, error: Option<String>) -> Result<(), AuditError> {
        self.recorded = true;
        let took = self.took.unwrap_or_else(|| self.started.elapsed());
        self.gate.metrics.record(self.tool.name(), status, took);
        let record = self.gate.record(self.call, self.tool.name(), Phase::End, None);
        let record = self.gate.ended(record, status, error, took);
        log::ended(self.call, self.tool.name(), status, record.error.as_deref(), took);
        let durability = if self.tool.is_read_only() { Durability::Later } else { Durability::Soon };
        self.gate.parts.audit.append(record, durability)
    }
}

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        if !self.recorded {
            // The caller is gone, so there is no one to report a failure to.
            let _ = self.append(Status::Failure, Some("the caller disconnected".into()));
        }
    }
}

fn unaudited(err: &AuditError, consequence: &str) -> Refusal {
    Refusal::new(RefusalCode::Unaudited, format!("{err}; {consequence}"))
        .with_hint("`gantry doctor` checks the data directory")
}

enum Stopped {
    Tool(ToolError),
    Deadline,
}

/// Step 5. A panic becomes an error of the tool. The deadline cancels the tool, and dropping the call drops it.
async fn run(call: &Arc<Call>, tool: &Tool, input: Value) -> Result<Reply, Stopped> {
    let mut running = pin!(unpanicked(tool.run(call.clone(), input)));
    let Some(deadline) = call.deadline else { return running.await.map_err(Stopped::Tool) };
    match tokio::time::timeout_at(deadline.into(), &mut running).await {
        // A tool with the same deadline may fail just before the timeout. The deadline is the true cause.
        Ok(Err(ToolError::Failed(_))) if tokio::time::Instant::now() >= deadline.into() => {
            Err(Stopped::Deadline)
        }
        Ok(result) => result.map_err(Stopped::Tool),
        Err(_) => {
            call.cancel.cancel();
            // The answer is ignored. The wait only gives the tool time to end its processes.
            let _ = tokio::time::timeout(CLEAN_UP_TIME, running).await;
            Err(Stopped::Deadline)
        }
    }
}

/// Returns the tool's answer, or an internal error if it panicked. A future that panicked is not polled again.
async fn unpanicked(
    mut running: Pin<Box<dyn Future<Output = Result<Reply, ToolError>> + Send>>,
) -> Result<Reply, ToolError> {
    std::future::poll_fn(|cx| {
        let polled = std::panic::catch_unwind(AssertUnwindSafe(|| running.as_mut().poll(cx)));
        polled.unwrap_or_else(|panic| {
            let text = panic.downcast_ref::<&str>().copied().map(str::to_owned);
            let text = text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default();
            Poll::Ready(Err(ToolError::internal(format!("the tool panicked: {text}"))))
        })
    })
    .await
}

/// Step 7, second half. Warns of text that reads like instructions to a model. It is never hidden.
fn warning(answer: &Answer) -> Option<String> {
    match answer {
        Answer::Success(reply) | Answer::ToolError(reply) => match reply {
            Reply::Text(text) => injection_warning(text),
            Reply::Json(value) => warning_in(value),
        },
        Answer::Refused(_) => None,
    }
}

fn warning_in(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => injection_warning(text),
        Value::Array(items) => items.iter().find_map(warning_in),
        Value::Object(object) => object.values().find_map(warning_in),
        _ => None,
    }
}

pub(crate) mod approval;
mod bound;
mod decide;
mod denied;
mod dispatch;
pub(crate) mod escalation;
pub(crate) mod explain;
mod fan_out;
mod log;
pub(crate) mod replay;
mod resume_audit;
#[cfg(test)]
mod tests;
