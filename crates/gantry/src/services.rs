//! Services: the files that make the gateway or a node run in the background, and the service manager that runs them.

pub(crate) mod manager;
pub(crate) mod unit;
