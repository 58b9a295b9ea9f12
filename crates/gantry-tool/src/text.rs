//! What the gate does to text: it masks secrets, shortens inputs for the audit log, and finds characters and
//! orders that are meant for a model and not for a person.

pub(crate) mod injection;
pub(crate) mod invisible;
mod known_secrets;
pub(crate) mod mask;
pub(crate) mod nearest;
pub(crate) mod redact;
