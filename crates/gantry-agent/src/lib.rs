//! Agents that go on: sessions kept as journals, a loop without I/O over them, and a driver that performs what it says.
//!
//! [`Sessions`] is the way in. Nothing here reads the environment or talks to a provider: tools are called through the
//! gate, models through [`Model`].

mod agent;
mod answer_labels;
mod child;
mod children;
mod context;
mod data_locations;
mod domain;
mod driver;
mod entry;
mod event;
mod flow;
mod http;
mod key;
mod lasting_approval;
mod loop_guard;
mod methods;
mod model;
mod pairs;
mod prompt;
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
pub use child::{AccountBudget, Child, ChildName, Payer, ToolLimits};
pub use children::{ChildEnd, ChildHandle, MAX_CHILDREN, MAX_DEPTH, MAX_FAMILY};
pub use domain::AgentsDomain;
pub use driver::Status;
pub use entry::{
    Answer, CallResult, CommandEnd, End, Entry, GrantScope, Incoming, LearnedWindow, Question, UserAsked,
};
pub use event::Event;
pub use key::{BadKey, DmScope, Origin, SessionKey};
pub use lasting_approval::{ALWAYS_HOURS, LastingApproval, MAX_ALWAYS_HOURS};
pub use model::{AnswerFuture, Asker, FactsFuture, Model, ModelFacts, ModelFailure};
pub use prompt::NodeLine;
pub use reset::ResetPolicy;
pub use role::{Role, Spec, built_in};
pub use sessions::{IDLE, MAX_MESSAGE_BYTES, OPERATOR, Said, Sent, SessionError, Sessions, SessionsParts};
pub use slash::Slash;
pub use state::{Addressee, State};
pub use tools::{tool_names, tools};
