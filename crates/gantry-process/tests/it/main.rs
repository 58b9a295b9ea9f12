//! Real commands under a real keeper.

mod running;
mod support;
