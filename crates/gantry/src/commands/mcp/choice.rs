//! Whether what somebody chose to be served is there: told when it is chosen, not when a client finds nothing.

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

/// Before a client is told to start us so: the toolsets, the agent, the tools and the gateway are there. A gateway that
/// cannot be asked now is only a warning.
pub(super) fn check(environment: &Environment, output: &Output, serve: &ServeArgs) -> Result<()> {
    let selection = selection(serve)?;
    if let Some(gateway) = &environment.gateway {
        GatewayUrl::parse(gateway).map_err(|err| UsageError(err.to_string()))?;
    }
    let address = match Target::find(environment, output, serve.local) {
        Ok(Target::Gateway(address)) => address,
        // What is usual is there, and nothing need be opened to know it.
        Ok(Target::InProcess) if selection.is_default() && serve.agent.is_none() => return Ok(()),
        Ok(Target::InProcess) => {
            let runtime = runtime()?;
            let _entered = runtime.enter();
            let local = Arc::new(Local::open_for(environment.clone(), Lifetime::Conversation)?);
            InProcess::new(local.clone(), serve.agent.clone(), None, selection.clone())?;
            return here(output, &selection, local.gate.registry());
        }
        // Whoever is to use it has the token; it need not be here.
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
                output.warning(&format!("what was chosen cannot be checked: {refusal}"));
            }
            _ => return Err(err),
        },
    }
    Ok(())
}

/// In this process everything there is is known: where nothing of the choice is there, it is a mistake.
pub(super) fn here(output: &Output, selection: &Selection, registry: &Registry) -> Result<()> {
    let missing = selection.unmatched(registry);
    if !missing.is_empty() && missing.len() == selection.chosen() {
        return Err(UsageError(missing.join("\n")).into());
    }
    missing.iter().for_each(|missing| output.warning(missing));
    Ok(())
}

/// It is never written down for a client: files of clients are read by many.
pub(super) fn tell_of_token(environment: &Environment, output: &Output) {
    if let Some(gateway) = &environment.gateway {
        output.done(&format!(
            "the client needs a token for {gateway}: set GANTRY_TOKEN, or GANTRY_TOKEN_FILE, in the environment it is \
             started with; `gantry tokens add` there makes one"
        ));
    }
}
