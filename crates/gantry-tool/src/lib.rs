//! The tool contract: what a tool is, who may call it, and the one path every call takes.
//!
//! Nothing here touches files, processes or the network. Only [`Gate`] can run a [`Tool`]; the traits
//! [`AuditSink`] and [`ResultStore`] are implemented by `gantry-store`.

mod approval;
mod attributes;
mod audit;
mod audited;
mod budget;
mod call;
mod convert;
mod described;
mod effect;
mod envelope;
mod error;
mod gate;
mod hidden;
mod implied;
mod known_secrets;
mod labels;
mod linger;
mod listing;
mod locations;
mod mask;
mod metrics;
mod nearest;
mod policy;
mod published;
mod published_schema;
mod registry;
mod results;
mod schema;
mod sensitive;
mod shared;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
mod tool;
mod user_asking;
mod wire;

pub use approval::{Approval, Approver, Consent, ConsentFuture};
pub use attributes::Property;
pub use audit::{AuditError, AuditRecord, AuditSink, Durability, Phase};
pub use budget::{DEFAULT_MAX_MCP_RESULT_CHARS, DEFAULT_MAX_RESULT_CHARS};
pub use call::{
    Autonomy, Call, Ctx, Found, Principal, PrincipalKind, Progress, ProgressSink, Surface, UnknownPrincipal,
};
pub use effect::Effect;
pub use envelope::{Done, done};
pub use error::{Message, Refusal, RefusalCode, ToolError, Violation};
pub use gate::{Answer, Gate, GateParts, Outcome, ResumedWork};
pub use hidden::{is_hidden, without_hidden};
pub use implied::{Asked, Implied};
pub use labels::Label;
pub use linger::Linger;
pub use locations::{DataAccess, DataLocation};
pub use mask::{Masker, SHORTEST_SECRET, SecretSource, mask_found};
pub use metrics::{Metrics, Status};
pub use nearest::nearest;
pub use policy::{Condition, Decision, Operator, Policy, Rule, RuleError, Touching, Verdict};
pub use published::{may_be_hashed, published_name};
pub use published_schema::published_input;
pub use registry::{LOCAL_NODE, NodeState, Registry, RegistryError, ToolScope, View, canonical_name};
pub use results::{Handle, KeptResult, ResultError, ResultPage, ResultStore, TextLength, WriteText};
pub use schema::{Validator, check_schema, parse_checked, too_costly};
pub use sensitive::SensitivePaths;
pub use shared::SharedTool;
pub use tool::{Access, Capability, IntoReply, RemoteTool, Reply, Text, Tool, Toolset, Touch};
pub use user_asking::{UserAnswers, UserAnswersFuture, UserAsker, UserQuestion};
pub use wire::remote_reply;
