//! One gateway and real nodes, as their owner starts them: every tool, every way in.

mod bad_input;
pub(crate) mod fleet;
pub(crate) mod http;
mod limited;
mod many_machines;
mod same_answers;
pub(crate) mod websocket;
