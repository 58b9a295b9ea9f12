//! Builds the sessions of agents from the configuration.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use anyhow::Result;
use gantry_agent::{AgentModels, Role, SessionSettings, Sessions, SessionsParts};
use gantry_gateway::{Nodes, node_lines};
use gantry_store::{Database, Journal};
use gantry_tool::Gate;
use gantry_toolsets::{Machine, Native};

use crate::config::{AgentConfig, Config};
use crate::local::MAIN_AGENT;

/// The parts of a gateway that its sessions use.
pub(crate) struct SessionsOf<'a> {
    pub(crate) models: Arc<AgentModels>,
    pub(crate) config: &'a Config,
    pub(crate) gate: &'a Arc<Gate>,
    pub(crate) nodes: &'a Arc<Nodes>,
    pub(crate) database: &'a Database,
    pub(crate) native: &'a Native,
    pub(crate) machine: &'a Arc<Machine>,
    pub(crate) workspace: &'a Path,
}

/// Builds the sessions of the agents that this gateway runs.
pub(crate) fn sessions(of: SessionsOf<'_>) -> Result<Sessions> {
    let (machine, labelled) = (of.machine.clone(), of.machine.clone());
    let version = env!("CARGO_PKG_VERSION").to_owned();
    Ok(Sessions::new(SessionsParts {
        journal: Journal::new(of.database.clone()),
        gate: of.gate.clone(),
        model: of.models,
        objects: of.native.objects().clone(),
        settings: session_settings(of.config, of.workspace, of.machine)?,
        changes: Arc::new(move || {
            let machine = machine.clone();
            Box::pin(async move { machine.take_changes().await })
        }),
        session_labels: Arc::new(move |session, labels| labelled.set_session_labels(session, labels)),
        idle: gantry_agent::IDLE,
        nodes: node_lines(of.gate.registry().clone(), of.nodes.clone(), version),
    }))
}

/// Returns the settings that a changed configuration replaces.
pub(crate) fn session_settings(
    config: &Config,
    workspace: &Path,
    machine: &Machine,
) -> Result<SessionSettings> {
    let mut agents = BTreeMap::new();
    for (id, agent) in &config.agents {
        agents.insert(id.clone(), agent.settings(workspace.to_owned())?);
    }
    if !agents.contains_key(MAIN_AGENT) {
        agents.insert(MAIN_AGENT.to_owned(), AgentConfig::default().settings(workspace.to_owned())?);
    }
    Ok(SessionSettings {
        untrusted_paths: config.policy.untrusted_paths.clone(),
        cache_paths: machine.caches(),
        roles: roles(config),
        child_limit: config.session.child_limit(),
        dm_scope: config.session.dm_scope(),
        zone: zone(config)?,
        ..SessionSettings::of(agents)
    })
}

/// Returns the user's time zone: the configured one, or the machine's.
pub(crate) fn zone(config: &Config) -> Result<jiff::tz::TimeZone> {
    Ok(match &config.user_timezone {
        Some(name) => jiff::tz::TimeZone::get(name)?,
        None => jiff::tz::TimeZone::system(),
    })
}

/// Returns the built-in roles and the configured ones. A configured role replaces a built-in one.
fn roles(config: &Config) -> BTreeMap<String, Role> {
    let mut roles = gantry_agent::built_in();
    roles.extend(config.roles.iter().map(|(name, role)| (name.clone(), role.role())));
    roles
}
