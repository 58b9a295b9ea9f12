//! File transfers between nodes, the gateway's own machine and agents' storage.
//!
//! [`TransfersDomain`] plugs the domain into the gateway. [`Transfers`] keeps the running transfers and drives each of
//! them over as many connections and gateway processes as it needs. The endpoints do the work on files with
//! `gantry-transfer`; this crate tells them what to do and relays the frames between them.
//!
//! The gateway provides its nodes through [`NodeConnections`], and reports connections, renames and stream frames to
//! [`Transfers`].

mod attempt;
mod connection;
mod domain;
mod drive;
mod failure;
mod log;
mod meter;
mod methods;
mod node_checks;
mod node_connections;
mod object_backend;
mod orphan_parts;
mod progress;
mod relay;
mod resume;
mod resume_identity;
mod running_transfer;
mod spec;
mod transfers;

pub use domain::TransfersDomain;
pub use node_connections::{NodeConnections, NodeLinks, NodeStatus};
pub use resume::UnfinishedTransfers;
pub use transfers::{IDLE_LIMIT, Transfers, TransfersParts};
