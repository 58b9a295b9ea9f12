//! Pipelines: up to 20 steps that depend on each other. A step is a task for an agent or one tool call.
//!
//! A run is rows in the database. [`state::next`] decides without I/O which steps start, [`runner`] performs them, each in a
//! background session. A restarted gateway finds these sessions again, so a finished step never runs twice.

pub(crate) mod answer;
pub(crate) mod api;
pub(crate) mod costs;
pub(crate) mod definition;
mod error;
pub(crate) mod http;
mod inputs;
pub(crate) mod methods;
mod parameters;
pub(crate) mod run_pipeline;
mod runner;
pub(crate) mod service;
mod shell;
pub(crate) mod state;
pub(crate) mod template;

pub(crate) use error::PipelineError;
pub(crate) use service::Pipelines;

use crate::tools::MakeTool;

pub(crate) const TOOLS: &[(&str, MakeTool)] = &[(run_pipeline::NAME, run_pipeline::tool)];
