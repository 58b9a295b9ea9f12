//! `gantry tokens` manages the access tokens of client programs.

use anyhow::Result;
use clap::{Args, Subcommand};
use gantry_protocol::{Empty, TokenAdd, TokenAdded, TokenList, TokenName, method};

use crate::cli::parse_long_duration;
use crate::client::{Client, Target};
use crate::environment::Environment;
use crate::exit::{Exit, UsageError};
use crate::output::Output;

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    gantry tokens add ci --tools 'local__Read,local__Grep' --read-only --expires 30d\n  \
    gantry tokens revoke ci")]
pub(crate) struct TokensArgs {
    #[command(subcommand)]
    pub(crate) action: Option<TokensAction>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum TokensAction {
    /// List all tokens and their permissions
    List,
    /// Create a token; it is shown only once
    Add {
        /// New token's name
        name: String,
        /// Tools it may call: names, globs, toolsets, effects such as effect:writes_files [default: all]
        #[arg(long, value_delimiter = ',', value_name = "TOOLS")]
        tools: Vec<String>,
        /// Agents it may act as
        #[arg(long, value_delimiter = ',', value_name = "AGENTS")]
        agents: Vec<String>,
        /// Allow only read-only tools
        #[arg(long)]
        read_only: bool,
        /// Expire after this time, such as 12h or 30d [default: never]
        #[arg(long, value_name = "TIME", value_parser = parse_long_duration)]
        expires: Option<std::time::Duration>,
    },
    /// Invalidate a token and close its connections
    Revoke {
        /// The token's name, as `gantry tokens` lists it
        name: String,
    },
}

pub(crate) fn run(environment: &Environment, output: &Output, args: TokensArgs) -> Result<Exit> {
    let address = Target::gateway(environment, output)?;
    match args.action.unwrap_or(TokensAction::List) {
        TokensAction::List => list(output, &Client::once(&address, output, method::TOKENS_LIST, &Empty {})?),
        TokensAction::Add { name, tools, agents, read_only, expires } => {
            let params = TokenAdd {
                name,
                tools: (!tools.is_empty()).then_some(tools),
                agents,
                read_only,
                expires: expires.map(expiry_after).transpose()?.map(jiff::Timestamp::as_millisecond),
            };
            let added: TokenAdded = Client::once(&address, output, method::TOKENS_ADD, &params)?;
            added.warnings.iter().for_each(|warning| output.warning(warning));
            if output.json {
                output.value(&added);
            } else {
                output.line(&added.token);
                output.warning("the token is shown only once; the gateway keeps only its hash");
            }
        }
        TokensAction::Revoke { name } => {
            let TokenName { name } =
                Client::once(&address, output, method::TOKENS_REVOKE, &TokenName { name })?;
            output.done(&format!("The token {name} is revoked."));
        }
    }
    Ok(Exit::Success)
}

fn expiry_after(life: std::time::Duration) -> Result<jiff::Timestamp> {
    let end = jiff::Timestamp::now().checked_add(life);
    end.map_err(|_| UsageError("--expires is too far in the future".into()).into())
}

fn list(output: &Output, listed: &TokenList) {
    if output.json {
        return output.value(&listed.tokens);
    }
    let time = |ms: Option<i64>| ms.and_then(|ms| jiff::Timestamp::from_millisecond(ms).ok());
    if listed.tokens.is_empty() {
        output.note_on_terminal("There are no client tokens. `gantry tokens add NAME` makes one.");
    }
    for token in &listed.tokens {
        let mut facts = vec![match &token.tools {
            None => "all tools".to_owned(),
            Some(tools) => tools.join(", "),
        }];
        facts.extend(token.read_only.then(|| "read-only".to_owned()));
        facts.extend((!token.agents.is_empty()).then(|| format!("as {}", token.agents.join(", "))));
        facts.extend(time(token.expires).map(|time| format!("until {time:.0}")));
        facts.extend(time(token.revoked).map(|_| output.red("revoked")));
        output.line(&format!("{}  {}", output.bold(&token.name), facts.join(" · ")));
    }
}
