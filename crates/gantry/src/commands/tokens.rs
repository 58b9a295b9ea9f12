//! `gantry tokens`: for client programs, each with what it may do.

use anyhow::Result;
use clap::{Args, Subcommand};
use gantry_protocol::method;
use serde_json::{Value, json};

use crate::cli::parse_long_duration;
use crate::client::{Client, Target};
use crate::exit::{Exit, UsageError};
use crate::output::Output;
use crate::places::Places;

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
    /// All tokens and what they may do
    List,
    /// Make a token; it is shown once
    Add {
        /// What the token shall be called
        name: String,
        /// Names, globs, toolsets and effects (effect:writes_files) it may call [default: all]
        #[arg(long, value_delimiter = ',', value_name = "TOOLS")]
        tools: Vec<String>,
        /// Agents it may act as
        #[arg(long, value_delimiter = ',', value_name = "AGENTS")]
        agents: Vec<String>,
        /// Only tools that change nothing
        #[arg(long)]
        read_only: bool,
        /// How long it works, such as 12h or 30d
        #[arg(long, value_name = "TIME", value_parser = parse_long_duration)]
        expires: Option<std::time::Duration>,
    },
    /// Make a token invalid and close its connections
    Revoke {
        /// The token's name, as `gantry tokens` lists it
        name: String,
    },
}

pub(crate) fn run(places: &Places, output: &Output, args: TokensArgs) -> Result<Exit> {
    let address = Target::gateway(places, output)?;
    let ask = |method: &str, params: Value| Client::once(&address, output, method, params);
    match args.action.unwrap_or(TokensAction::List) {
        TokensAction::List => list(output, &ask(method::TOKENS_LIST, json!({}))?),
        TokensAction::Add { name, tools, agents, read_only, expires } => {
            let params = json!({
                "name": name,
                "tools": (!tools.is_empty()).then_some(tools),
                "agents": agents,
                "readOnly": read_only,
                "expires": expires.map(end_of).transpose()?.map(jiff::Timestamp::as_millisecond),
            });
            let answer = ask(method::TOKENS_ADD, params)?;
            let warnings = answer["warnings"].as_array().into_iter().flatten().filter_map(Value::as_str);
            warnings.for_each(|warning| output.warning(warning));
            if output.json {
                output.value(&answer);
            } else {
                output.line(answer["token"].as_str().unwrap_or_default());
                output.warning("the token is shown this once; the gateway keeps only its hash");
            }
        }
        TokensAction::Revoke { name } => {
            ask(method::TOKENS_REVOKE, json!({"name": name}))?;
            output.done(&format!("{name} is revoked"));
        }
    }
    Ok(Exit::Success)
}

fn end_of(life: std::time::Duration) -> Result<jiff::Timestamp> {
    let end = jiff::Timestamp::now().checked_add(life);
    end.map_err(|_| UsageError("--expires is further away than a calendar goes".into()).into())
}

fn list(output: &Output, answer: &Value) {
    if output.json {
        return output.value(&answer["tokens"]);
    }
    let listed = |value: &Value| {
        let texts: Vec<&str> = value.as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        texts.join(", ")
    };
    for token in answer["tokens"].as_array().into_iter().flatten() {
        let time =
            |field: &str| token[field].as_i64().and_then(|ms| jiff::Timestamp::from_millisecond(ms).ok());
        let mut facts = vec![match &token["tools"] {
            Value::Null => "all tools".to_owned(),
            tools => listed(tools),
        }];
        facts.extend((token["readOnly"] == true).then(|| "read-only".to_owned()));
        let agents = listed(&token["agents"]);
        facts.extend((!agents.is_empty()).then(|| format!("as {agents}")));
        facts.extend(time("expires").map(|time| format!("until {time:.0}")));
        facts.extend(time("revoked").map(|_| output.red("revoked")));
        let name = token["name"].as_str().unwrap_or_default();
        output.line(&format!("{}  {}", output.bold(name), facts.join(" · ")));
    }
}
