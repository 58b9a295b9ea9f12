//! Protocol methods with which the operator administers the gateway: what the commands of the same names do on its machine.
//!
//! It is a domain of the binary, because only the binary knows the environment and the whole configuration.

mod apis;
mod audit;
mod configuration;
mod policy;
mod secrets;
mod usage;

use std::sync::{Arc, OnceLock};

use futures_util::future::BoxFuture;
use gantry_agent::AgentModels;
use gantry_domain::{Domain, GatewayServices, Methods, Running};
use gantry_protocol::{ErrorCode, WireError, method};
use gantry_store::Database;
use gantry_tool::Gate;
use jiff::tz::TimeZone;
use tokio::sync::mpsc;

use crate::environment::Environment;
use crate::live_config::Reload;

pub(crate) struct Administration(Arc<State>);

struct State {
    environment: Environment,
    database: Database,
    models: Arc<AgentModels>,
    zone: TimeZone,
    /// Asks the gateway to apply the configuration file now.
    reload: mpsc::Sender<Reload>,
    /// Set when the gateway starts.
    running: OnceLock<(Arc<Gate>, Arc<dyn GatewayServices>)>,
}

impl Administration {
    pub(crate) fn new(
        environment: Environment,
        database: Database,
        models: Arc<AgentModels>,
        zone: TimeZone,
        reload: mpsc::Sender<Reload>,
    ) -> Administration {
        Administration(Arc::new(State {
            environment,
            database,
            models,
            zone,
            reload,
            running: OnceLock::new(),
        }))
    }
}

impl Domain for Administration {
    fn name(&self) -> &'static str {
        "administration"
    }

    fn methods(&self) -> Methods {
        Methods::default()
            .on_operator(method::AUDIT_SEARCH, &self.0, audit::search)
            .on_operator(method::AUDIT_VERIFY, &self.0, audit::verify)
            .on_operator(method::USAGE_REPORT, &self.0, usage::report)
            .on_operator(method::CONFIG_GET, &self.0, configuration::get)
            .on_operator(method::CONFIG_SCHEMA, &self.0, configuration::schema)
            .on_operator(method::CONFIG_CHECK, &self.0, configuration::check)
            .on_operator(method::CONFIG_SET, &self.0, configuration::set)
            .on_operator(method::CONFIG_RELOAD, &self.0, configuration::reload)
            .on_operator(method::SECRETS_LIST, &self.0, secrets::list)
            .on_operator(method::SECRETS_SET, &self.0, secrets::set)
            .on_operator(method::SECRETS_REMOVE, &self.0, secrets::remove)
            .on_operator(method::APIS_LIST, &self.0, apis::list)
            .on_operator(method::APIS_GET, &self.0, apis::get)
            .on_operator(method::APIS_SAVE, &self.0, apis::save)
            .on_operator(method::APIS_REMOVE, &self.0, apis::remove)
            .on_operator(method::POLICY_EXPLAIN, &self.0, policy::explain)
    }

    fn start<'a>(&'a self, running: &'a Running) -> BoxFuture<'a, anyhow::Result<()>> {
        let _ = self.0.running.set((running.gate.clone(), running.services.clone()));
        Box::pin(std::future::ready(Ok(())))
    }
}

type Answer<T> = Result<T, WireError>;

/// Runs work on files outside of the threads that serve connections.
async fn on_disk<T: Send + 'static>(work: impl FnOnce() -> Answer<T> + Send + 'static) -> Answer<T> {
    tokio::task::spawn_blocking(work).await.map_err(|err| internal(&err))?
}

fn internal(err: &dyn std::fmt::Display) -> WireError {
    WireError::new(ErrorCode::Internal, err.to_string())
}

fn bad_params(message: impl Into<String>) -> WireError {
    WireError::new(ErrorCode::BadParams, message.into())
}
