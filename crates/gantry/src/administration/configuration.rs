//! `config.*`: the configuration with its schema, changed key by key.

use std::sync::Arc;

use gantry_domain::MethodContext;
use gantry_protocol::{ConfigChange, ConfigChanged, ConfigSchema, ConfigShown, Empty, ErrorCode, WireError};
use gantry_tool::MASK;
use serde_json::{Value, json};

use super::{Answer, State, bad_params, internal, on_disk};
use crate::config::{Config, ConfigError, Save, needs_restart};

pub(super) async fn get(state: Arc<State>, _: MethodContext, _: Empty) -> Answer<ConfigShown> {
    on_disk(move || {
        let layers = &state.environment.layers;
        // Read before the values: if the file changes in between, a change based on them is refused.
        let hash = layers.file_hash().map_err(wire)?;
        let config = layers.load().map_err(wire)?;
        Ok(ConfigShown {
            file: layers.file.display().to_string(),
            hash,
            values: config.masked().map_err(|err| internal(&err))?,
            set: layers.keys_in_file().map_err(wire)?,
            warnings: config.warnings(),
        })
    })
    .await
}

pub(super) async fn schema(_: Arc<State>, _: MethodContext, _: Empty) -> Answer<ConfigSchema> {
    let schema = schemars::schema_for!(Config);
    Ok(ConfigSchema { schema: schema.to_value() })
}

pub(super) async fn check(
    state: Arc<State>,
    _: MethodContext,
    params: ConfigChange,
) -> Answer<ConfigChanged> {
    change(state, params, Save::No).await
}

pub(super) async fn set(state: Arc<State>, _: MethodContext, params: ConfigChange) -> Answer<ConfigChanged> {
    let key: String = params.key.chars().take(200).collect();
    let changed = change(state.clone(), params, Save::Yes).await?;
    applied(&state).await?;
    tracing::info!(key, "config_changed");
    Ok(changed)
}

/// Applies the configuration file now. An invalid file changes nothing.
pub(super) async fn reload(state: Arc<State>, _: MethodContext, _: Empty) -> Answer<Empty> {
    applied(&state).await.map(|()| Empty {})
}

async fn applied(state: &State) -> Answer<()> {
    let (done, outcome) = tokio::sync::oneshot::channel();
    let stopping = || WireError::new(ErrorCode::Unavailable, "the gateway is stopping");
    state.reload.send(done).await.map_err(|_| stopping())?;
    outcome.await.map_err(|_| stopping())?.map_err(bad_params)
}

async fn change(state: Arc<State>, params: ConfigChange, save: Save) -> Answer<ConfigChanged> {
    let ConfigChange { key, value, hash } = params;
    if key.is_empty() || key.split('.').any(str::is_empty) {
        return Err(bad_params("the key must be names with dots between them, such as shell.sandbox"));
    }
    // What was shown masked would replace the secret itself.
    if has_mask(&value) {
        return Err(bad_params(format!("the value of {key} contains {MASK}, which stands for a secret")));
    }
    on_disk(move || {
        state.environment.data.create().map_err(|err| internal(&err))?;
        let value = Some(&value).filter(|value| !value.is_null());
        let hash = state.environment.layers.change(&key, value, hash.as_deref(), save).map_err(wire)?;
        Ok(ConfigChanged { hash, needs_restart: needs_restart(&key) })
    })
    .await
}

fn has_mask(value: &Value) -> bool {
    match value {
        Value::String(text) => text.contains(MASK),
        Value::Array(values) => values.iter().any(has_mask),
        Value::Object(fields) => fields.values().any(has_mask),
        _ => false,
    }
}

fn wire(err: ConfigError) -> WireError {
    let message = err.to_string();
    match err {
        ConfigError::Invalid { violations } => {
            let mut error = WireError::new(ErrorCode::BadParams, message);
            let violations = violations.iter().map(|one| json!({"path": one.path, "message": one.message}));
            error.details = Some(json!({"violations": violations.collect::<Vec<_>>()}));
            error
        }
        ConfigError::ChangedMeanwhile(_) => WireError::new(ErrorCode::Conflict, message),
        ConfigError::Read { .. } | ConfigError::Write { .. } => WireError::new(ErrorCode::Failed, message),
        _ => WireError::new(ErrorCode::BadParams, message),
    }
}
