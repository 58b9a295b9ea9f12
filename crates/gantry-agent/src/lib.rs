//! Agents that go on: sessions kept as journals, a loop without I/O over them, and a driver that performs what it says.
//!
//! [`Sessions`] is the way in. Nothing here reads the environment or talks to a provider: tools are called through the
//! gate, models through [`Model`].

mod agent;
mod always;
mod answer_labels;
mod child;
mod children;
mod context;
mod domain;
mod driver;
mod entry;
mod event;
mod flow;
mod harmless;
mod http;
mod key;
mod loop_guard;
mod methods;
mod model;
mod pairs;
mod places;
mod prompt;
mod reset;
mod role;
mod sessions;
mod sessions_api;
mod slash;
mod state;
mod step;
mod tool_search;
mod toolbox;
mod tools;

pub use agent::{APPROVAL_MINUTES, Agent, FlowRule, MAX_REQUESTS};
pub use always::{ALWAYS_HOURS, Always, MAX_ALWAYS_HOURS};
pub use child::{AccountBudget, Child, ChildName, Payer, ToolLimits};
pub use children::{ChildEnd, MAX_CHILDREN, MAX_DEPTH, MAX_FAMILY, Standing};
pub use domain::AgentsDomain;
pub use driver::Status;
pub use entry::{
    Answer, CallResult, CommandEnd, End, Entry, GrantScope, Incoming, LearnedWindow, Question, UserAsked,
};
pub use event::Event;
pub use key::{BadKey, DmScope, Origin, SessionKey};
pub use model::{AnswerFuture, Asker, FactsFuture, Model, ModelFacts, ModelFailure};
pub use prompt::NodeLine;
pub use reset::ResetPolicy;
pub use role::{Role, Spec, built_in};
pub use sessions::{IDLE, MAX_MESSAGE_BYTES, OPERATOR, Said, Sent, SessionError, Sessions, SessionsParts};
pub use slash::Slash;
pub use state::{Addressee, State};
pub use tools::{tool_names, tools};
