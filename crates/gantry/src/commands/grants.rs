//! `gantry grants` lists and revokes approvals that also cover later calls of agents.

use anyhow::Result;
use clap::{Args, Subcommand};
use gantry_protocol::{GrantInfo, GrantList, GrantParams, GrantReach, GrantScope, GrantsListParams, method};

use crate::client::{Client, Target};
use crate::environment::Environment;
use crate::exit::{Exit, UsageError};
use crate::output::Output;

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    gantry grants                    list grants, newest first\n  \
    gantry grants explain 3f2a91c0   what a grant covers, and who gave it\n  \
    gantry grants revoke 3f2a91c0    end a grant; the agent asks again")]
pub(crate) struct GrantsArgs {
    #[command(subcommand)]
    action: Option<GrantsAction>,
}

#[derive(Debug, Subcommand)]
enum GrantsAction {
    /// List the grants that count now, newest first
    List {
        /// Only the grants of this agent
        #[arg(long, value_name = "AGENT")]
        agent: Option<String>,
    },
    /// Show what a grant covers, who gave it, and for which question
    Explain {
        /// The grant's id, as `gantry grants` lists it
        id: String,
    },
    /// End a grant; the agent asks again
    Revoke {
        /// The grant's id, as `gantry grants` lists it
        id: String,
    },
}

pub(crate) fn run(environment: &Environment, output: &Output, args: GrantsArgs) -> Result<Exit> {
    let address = Target::gateway(environment, output)?;
    let listed = |agent: Option<String>| -> Result<GrantList> {
        Client::once(&address, output, method::GRANTS_LIST, &GrantsListParams { agent })
    };
    match args.action.unwrap_or(GrantsAction::List { agent: None }) {
        GrantsAction::List { agent } => list(output, &listed(agent)?),
        GrantsAction::Explain { id } => {
            let found = listed(None)?.grants.into_iter().find(|grant| grant.id == id);
            let unknown = || UsageError(format!("unknown grant {id:?}; `gantry grants` lists the grants"));
            explain(output, &found.ok_or_else(unknown)?);
        }
        GrantsAction::Revoke { id } => {
            let revoked: GrantInfo =
                Client::once(&address, output, method::GRANTS_REVOKE, &GrantParams { id })?;
            match output.json {
                true => output.value(&revoked),
                false => output.done(&format!("The grant {} is revoked: {}.", revoked.id, revoked.label)),
            }
        }
    }
    Ok(Exit::Success)
}

fn list(output: &Output, listed: &GrantList) {
    if output.json {
        return output.value(listed);
    }
    if listed.grants.is_empty() {
        output.done("There are no grants.");
    }
    for grant in &listed.grants {
        let sessions = match grant.reach {
            GrantReach::Session => grant.session_key.clone(),
            GrantReach::Agent => "all sessions".to_owned(),
        };
        let facts = format!("since {} · until {} · {sessions}", time(grant.created), time(grant.expires));
        let id = output.bold(&grant.id);
        output.line(&format!("{id}  {}  {}  {}", grant.agent, grant.label, output.dim(&facts)));
    }
}

fn explain(output: &Output, grant: &GrantInfo) {
    if output.json {
        return output.value(grant);
    }
    let sessions = match grant.reach {
        GrantReach::Session => format!("the session {}", grant.session_key),
        GrantReach::Agent => format!("all sessions of the agent {}", grant.agent),
    };
    let limits = match &grant.scope {
        GrantScope::Call => "It covers only a call with the same input.",
        GrantScope::Tool => "It covers any input of the tool, if the same rule asks.",
        GrantScope::Prefix(_) => {
            "It covers a command line in the sandbox if each of its commands starts with the words. Lines with \
             substitutions, redirections to files, variables or `&` are asked about."
        }
        GrantScope::Host(_) => "It covers requests of tools and connections of commands to this host.",
        GrantScope::Path(_) => "It covers changes by file tools to this path and below it.",
        GrantScope::Recipient(_) => "It covers messages to this recipient.",
    };
    output.line(&format!("{}  allows {}", output.bold(&grant.id), grant.label));
    output.line(&format!("  counts in   {sessions}"));
    output.line(&format!("  since       {}", time(grant.created)));
    output.line(&format!("  until       {}", time(grant.expires)));
    output.line(&format!("  given by    {} in {}", grant.by, grant.session_key));
    output.line(&format!("  asked       {} (tool {}, rule {})", grant.asked, grant.tool, grant.rule));
    output.line(&format!(
        "  {limits} It never answers a question about leaving the sandbox, or of a session that holds untrusted and \
         private content."
    ));
}

fn time(ms: i64) -> String {
    jiff::Timestamp::from_millisecond(ms).map_or(String::new(), |time| format!("{time:.0}"))
}
