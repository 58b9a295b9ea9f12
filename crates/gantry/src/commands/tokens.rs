//! `gantry tokens`: for client programs, each with what it may do.

use anyhow::Result;
use gantry_protocol::method;
use serde_json::{Value, json};

use crate::cli::{TokensAction, TokensArgs};
use crate::client::{Client, Target};
use crate::exit::Exit;
use crate::output::Output;
use crate::places::Places;

pub(crate) fn run(places: &Places, output: &Output, args: TokensArgs) -> Result<Exit> {
    let address = match Target::gateway(places, output) {
        Ok(address) => address,
        Err(refusal) => return Ok(output.refused(&refusal)),
    };
    let ask = |method: &str, params: Value| Client::once(&address, output, method, params);
    let answer = match args.action.unwrap_or(TokensAction::List) {
        TokensAction::List => ask(method::TOKENS_LIST, json!({}))?.map(|answer| list(output, &answer)),
        TokensAction::Add { name, tools, agents, read_only, expires } => {
            let expires = expires.and_then(|after| jiff::Timestamp::now().checked_add(after).ok());
            let params = json!({
                "name": name,
                "tools": (!tools.is_empty()).then_some(tools),
                "agents": agents,
                "readOnly": read_only,
                "expires": expires.map(jiff::Timestamp::as_millisecond),
            });
            ask(method::TOKENS_ADD, params)?.map(|answer| {
                if output.json {
                    return output.value(&answer);
                }
                output.line(answer["token"].as_str().unwrap_or_default());
                output.warning("the token is shown this once; the gateway keeps only its hash");
            })
        }
        TokensAction::Revoke { name } => ask(method::TOKENS_REVOKE, json!({"name": name}))?
            .map(|_| output.done(&format!("{name} is revoked"))),
    };
    Ok(match answer {
        Ok(()) => Exit::Success,
        Err(refusal) => output.refused(&refusal),
    })
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
