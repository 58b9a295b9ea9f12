//! Real commands under a real keeper.

mod output;
mod running;
mod sandbox;
mod sessions;
mod support;
mod trees;
