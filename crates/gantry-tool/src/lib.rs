//! The tool contract: what a tool is, who may call it, and the one path that every call takes.
//!
//! | folder | what it holds |
//! | --- | --- |
//! | `call` | a call and its caller, and how a tool asks the caller's user |
//! | `gate` | the path of a call: resolve, validate, decide, record, run, bound, label, record |
//! | `policy` | rules, sensitive paths and verdicts |
//! | `registry` | the list of tools, their names, and the part that each caller sees |
//! | `results` | results that are too long for a model, and the shapes of success and error |
//! | `text` | masking, redaction, invisible characters, near spellings |
//! | `tool` | a tool: its schemas, effects, attributes, paths and reply |
//!
//! This crate does no I/O. Only [`Gate`] can run a [`Tool`]. `gantry-store` implements the traits
//! [`AuditSink`] and [`ResultStore`].

mod audit;
mod call;
mod error;
mod gate;
mod live;
mod metrics;
mod policy;
mod registry;
mod results;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
mod text;
mod tool;
mod wire;

pub use audit::{AuditError, AuditRecord, AuditSink, Durability, Phase};
pub use call::user_asking::{UserAnswers, UserAnswersFuture, UserAsker, UserQuestion};
pub use call::{
    Autonomy, Call, Ctx, Findings, Principal, PrincipalKind, Progress, ProgressSink, Surface,
    UnknownPrincipal,
};
pub use error::{Message, Refusal, RefusalCode, ToolError, Violation};
pub use gate::approval::{
    Approval, Approver, AskedConnection, BORDER_RULE, Consent, ConsentFuture, EGRESS_RULE, ESCALATION_RULE,
    FLOW_RULE, UNATTENDED_RULE,
};
pub use gate::escalation::ESCALATION_FIELD;
pub use gate::explain::{CheckedRule, ExplainedTouch, Explanation};
pub use gate::replay::Replayed;
pub use gate::{Answer, Gate, GateParts, GateSettings, Outcome, ResumedWork};
pub use live::Live;
pub use metrics::{Metrics, Status};
pub use policy::sensitive::SensitivePaths;
pub use policy::{
    Condition, Decision, Implied, ImpliedQuestion, Mismatch, Operator, Policy, Rule, RuleError, Touching,
    Verdict,
};
pub use registry::model_name::{may_be_hashed, published_name};
pub use registry::multi_node::SharedTool;
pub use registry::{LOCAL_NODE, NodeState, Registry, RegistryError, ToolScope, View, canonical_name};
pub use results::budget::{DEFAULT_MAX_MCP_RESULT_CHARS, DEFAULT_MAX_RESULT_CHARS};
pub use results::envelope::{Done, done};
pub use results::{Handle, KeptResult, ResultError, ResultPage, ResultStore, TextLength, WriteText};
pub use text::invisible::{is_hidden, on_one_line, without_hidden};
pub use text::mask::{MASK, Masker, SHORTEST_SECRET, SecretSource, mask_found};
pub use text::nearest::nearest;
pub use text::question::QuestionText;
pub use tool::attributes::Property;
pub use tool::effect::Effect;
pub use tool::locations::{DataAccess, DataLocation};
pub use tool::published_schema::published_input;
pub use tool::schema::{Validator, check_schema, parse_checked, too_costly};
pub use tool::{
    Access, AskedCall, Capability, Crossing, IntoReply, Label, RemoteTool, Reply, Text, Tool, Toolset, Touch,
};
pub use wire::remote_reply;
