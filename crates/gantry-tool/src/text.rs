//! Text processing of the gate: masks secrets, redacts inputs, removes invisible characters, finds prompt injections
//! and near spellings.

pub(crate) mod injection;
pub(crate) mod invisible;
mod known_secrets;
pub(crate) mod mask;
pub(crate) mod nearest;
pub(crate) mod question;
pub(crate) mod redact;
