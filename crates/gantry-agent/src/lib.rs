//! Agents and their sessions. A session is a journal, a step function without I/O, and a driver that
//! performs the steps.
//!
//! [`Sessions`] is the entry point. Sessions call tools through the gate and models through [`Model`].
//! [`AgentModels`] implements it over the configured providers. This crate does not read the environment.

mod agent;
mod answer_labels;
mod background;
mod child;
mod children;
mod context;
mod data_locations;
mod domain;
mod driver;
mod entry;
mod feed;
mod flow;
mod grants;
mod http;
mod key;
mod lasting_approval;
mod loop_guard;
mod methods;
mod models;
mod pairs;
mod prompt;
mod recorded_calls;
mod reset;
mod role;
mod sanitize_markdown;
mod sessions;
mod sessions_api;
mod slash;
mod state;
mod step;
mod tool_search;
mod toolbox;
mod tools;

pub use agent::{APPROVAL_MINUTES, Agent, FlowRule, MAX_REQUESTS};
pub use background::{
    Authority, Background, BackgroundChange, BackgroundEnd, BackgroundRun, BackgroundSpec, BackgroundWork,
    FixedCall,
};
pub use child::{AccountBudget, Child, ChildName, Payer, ToolLimits};
pub use children::{ChildEnd, ChildHandle, MAX_CHILDREN, MAX_DEPTH, MAX_FAMILY};
pub use domain::AgentsDomain;
pub use driver::Status;
pub use entry::{CallResult, CommandEnd, End, Entry, Image, Incoming, LearnedWindow, Notice};
pub use gantry_protocol::{ApprovalDecision, GrantReach, GrantScope, Question, SessionEvent, UserAsked};
pub use key::{BadKey, DmScope, Origin, SessionKey};
pub use lasting_approval::{ALWAYS_HOURS, LastingApproval, MAX_ALWAYS_HOURS};
pub use models::{
    AgentModels, AnswerFuture, AnswerLimits, Asker, ConfigVersion, DiscoveredModels, FactsFuture,
    LocalServer, Model, ModelFacts, ModelFailure, ModelSetup, ModelSource, NO_MODEL, is_loopback,
    set_usual_tiers,
};
pub use prompt::NodeLine;
pub use recorded_calls::{RecordedCall, RecordedCalls};
pub use reset::ResetPolicy;
pub use role::{Role, Spec, built_in};
pub use sessions::{
    ChangedFiles, IDLE, MAX_IMAGE_BYTES, MAX_MESSAGE_BYTES, NewMessage, OPERATOR, OPERATOR_VIA, Outgoing,
    Sent, SessionError, SessionLabels, SessionSettings, Sessions, SessionsParts,
};
pub use slash::{SLASH_COMMANDS, Slash, thinking};
pub use state::{Addressee, State};
pub use tools::{tool_names, tools};
