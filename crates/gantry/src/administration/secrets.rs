//! `secrets.*`: names and hosts of stored secrets. A value goes in and never comes out.

use std::sync::Arc;

use gantry_domain::MethodContext;
use gantry_protocol::{
    Empty, ErrorCode, SecretInfo, SecretList, SecretName, SecretSet, SecretStored, WireError,
};
use gantry_store::SecretsError;
use jiff::Timestamp;

use super::{Answer, State, bad_params, internal, on_disk};
use crate::commands::secrets::checked_hosts;

pub(super) async fn list(state: Arc<State>, _: MethodContext, _: Empty) -> Answer<SecretList> {
    on_disk(move || {
        let secrets = state.environment.secrets().all().map_err(|err| internal(&err))?;
        let info = |(name, secret): (&String, &gantry_store::Secret)| SecretInfo {
            name: name.clone(),
            hosts: secret.hosts.clone(),
            created: secret.created,
            changed: secret.changed,
        };
        Ok(SecretList { secrets: secrets.iter().map(info).collect() })
    })
    .await
}

pub(super) async fn set(state: Arc<State>, _: MethodContext, params: SecretSet) -> Answer<SecretStored> {
    on_disk(move || {
        let SecretSet { name, hosts, value } = params;
        let hosts = checked_hosts(&hosts).map_err(|err| bad_params(err.to_string()))?;
        let now = Timestamp::now().as_millisecond();
        let replaced =
            state.environment.secrets().set(&name, &value, &hosts, now).map_err(|err| match err {
                SecretsError::BadName(_) | SecretsError::BadValue { .. } | SecretsError::NoHosts { .. } => {
                    bad_params(err.to_string())
                }
                other => internal(&other),
            })?;
        Ok(SecretStored { name, replaced })
    })
    .await
}

pub(super) async fn remove(state: Arc<State>, _: MethodContext, params: SecretName) -> Answer<SecretName> {
    on_disk(move || {
        let removed = state.environment.secrets().remove(&params.name).map_err(|err| internal(&err))?;
        let shown: String = params.name.chars().take(80).collect();
        match removed {
            true => Ok(params),
            false => Err(WireError::new(
                ErrorCode::NotFound,
                format!("unknown secret {shown:?}; secrets.list lists the stored secrets"),
            )),
        }
    })
    .await
}
