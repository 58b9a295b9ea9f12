//! The tool contract: what a tool is, who may call it, and the one path every call takes.
//!
//! Nothing here touches files, processes or the network. Only [`Gate`] can run a [`Tool`]; the traits
//! [`AuditSink`] and [`ResultStore`] are implemented by `gantry-store`.

mod approval;
mod attributes;
mod audit;
mod budget;
mod busy_poll;
mod call;
mod convert;
mod described;
mod effect;
mod envelope;
mod error;
mod gate;
mod implied;
mod invisible;
mod known_secrets;
mod labels;
mod listing;
mod locations;
mod mask;
mod metrics;
mod model_name;
mod multi_node;
mod nearest;
mod policy;
mod published_schema;
mod redact;
mod registry;
mod results;
mod schema;
mod sensitive;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
mod tool;
mod user_asking;
mod wire;

pub use approval::{Approval, Approver, Consent, ConsentFuture};
pub use attributes::Property;
pub use audit::{AuditError, AuditRecord, AuditSink, Durability, Phase};
pub use budget::{DEFAULT_MAX_MCP_RESULT_CHARS, DEFAULT_MAX_RESULT_CHARS};
pub use busy_poll::BusyPoll;
pub use call::{
    Autonomy, Call, Ctx, Findings, Principal, PrincipalKind, Progress, ProgressSink, Surface,
    UnknownPrincipal,
};
pub use effect::Effect;
pub use envelope::{Done, done};
pub use error::{Message, Refusal, RefusalCode, ToolError, Violation};
pub use gate::{Answer, Gate, GateParts, Outcome, ResumedWork};
pub use implied::{Asked, Implied};
pub use invisible::{is_hidden, without_hidden};
pub use labels::Label;
pub use locations::{DataAccess, DataLocation};
pub use mask::{Masker, SHORTEST_SECRET, SecretSource, mask_found};
pub use metrics::{Metrics, Status};
pub use model_name::{may_be_hashed, published_name};
pub use multi_node::SharedTool;
pub use nearest::nearest;
pub use policy::{Condition, Decision, Operator, Policy, Rule, RuleError, Touching, Verdict};
pub use published_schema::published_input;
pub use registry::{LOCAL_NODE, NodeState, Registry, RegistryError, ToolScope, View, canonical_name};
pub use results::{Handle, KeptResult, ResultError, ResultPage, ResultStore, TextLength, WriteText};
pub use schema::{Validator, check_schema, parse_checked, too_costly};
pub use sensitive::SensitivePaths;
pub use tool::{Access, Capability, IntoReply, RemoteTool, Reply, Text, Tool, Toolset, Touch};
pub use user_asking::{UserAnswers, UserAnswersFuture, UserAsker, UserQuestion};
pub use wire::remote_reply;
