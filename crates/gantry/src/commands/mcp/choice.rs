//! Checks that the chosen tools exist, when they are chosen and not when a client finds none.

use std::sync::Arc;

use anyhow::Result;
use gantry_mcp::Selection;
use gantry_net::GatewayUrl;
use gantry_tool::{RefusalCode, Registry};

use super::in_process::InProcess;
use super::through::Through;
use super::{ServeArgs, selection};
use crate::client::{Target, runtime};
use crate::environment::Environment;
use crate::exit::{Refused, UsageError};
use crate::local::{Lifetime, Local};
use crate::output::Output;

/// Checks toolsets, agent, tools and gateway before they are written into a client's configuration. An unreachable gateway
/// is only a warning.
pub(super) fn check(environment: &Environment, output: &Output, serve: &ServeArgs) -> Result<()> {
    let selection = selection(serve)?;
    if let Some(gateway) = &environment.gateway {
        GatewayUrl::parse(gateway).map_err(|err| UsageError(err.to_string()))?;
    }
    let address = match Target::find(environment, output, serve.local) {
        Ok(Target::Gateway(address)) => address,
        // The default selection always exists.
        Ok(Target::InProcess) if selection.is_default() && serve.agent.is_none() => return Ok(()),
        Ok(Target::InProcess) => {
            let runtime = runtime()?;
            let _entered = runtime.enter();
            let local = Arc::new(Local::open_for(environment.clone(), Lifetime::Conversation)?);
            InProcess::new(local.clone(), serve.agent.clone(), None, selection.clone())?;
            return here(output, &selection, local.gate.registry());
        }
        // The client will have the gateway's token; this shell does not need it.
        Err(_) if environment.gateway.is_some() => return Ok(()),
        Err(err) => return Err(err),
    };
    let opened = runtime()?.block_on(async {
        let through = Through::open(address, environment, serve, selection.clone()).await?;
        anyhow::Ok(through.missing().await)
    });
    match opened {
        Ok(missing) => missing.iter().for_each(|missing| output.warning(missing)),
        Err(err) => match err.downcast_ref::<Refused>() {
            Some(Refused(refusal)) if refusal.code == RefusalCode::Unavailable => {
                output.warning(&format!("cannot check the chosen tools: {refusal}"));
            }
            _ => return Err(err),
        },
    }
    Ok(())
}

/// Checks the selection against the tools of this process. If nothing matches, it is an error.
pub(super) fn here(output: &Output, selection: &Selection, registry: &Registry) -> Result<()> {
    let missing = selection.unmatched(registry);
    if !missing.is_empty() && missing.len() == selection.chosen() {
        return Err(UsageError(missing.join("\n")).into());
    }
    missing.iter().for_each(|missing| output.warning(missing));
    Ok(())
}

/// Explains how to set the gateway's token. It is never written into a client's configuration, which others may read.
pub(super) fn explain_token(environment: &Environment, output: &Output) {
    if let Some(gateway) = &environment.gateway {
        output.done(&format!(
            "The client needs a token for {gateway}. Create one on the gateway with `gantry tokens add`, and set \
             GANTRY_TOKEN or GANTRY_TOKEN_FILE in the client's environment."
        ));
    }
}
