//! What the operator does to the gateway over the wire: nodes and tokens.

use gantry_link::Request;
use gantry_protocol::{ErrorCode, RawJson, WireError, method, raw};
use gantry_store::{ClientToken, DatabaseError, NewClientToken};
use gantry_tool::{ToolScope, Toolset, nearest};
use gantry_toolsets::LOCAL_NODE;
use serde::Deserialize;
use serde_json::json;

use crate::gateway::{Gateway, now_ms};
use crate::nodes::local_info;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct NodeParams {
    id: String,
    #[serde(default)]
    tags: Vec<String>,
    #[serde(default)]
    new_id: Option<String>,
    #[serde(default)]
    limit: Option<u32>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct TokenParams {
    name: String,
    #[serde(default)]
    tools: Option<Vec<String>>,
    #[serde(default)]
    agents: Vec<String>,
    #[serde(default)]
    read_only: bool,
    #[serde(default)]
    expires: Option<i64>,
}

impl Gateway {
    pub(crate) fn node_infos(&self) -> Vec<gantry_protocol::NodeInfo> {
        let local = local_info(self.gate.registry(), &self.version);
        local.into_iter().chain(self.nodes.infos()).collect()
    }

    /// Answers the operator's requests; `None` when it is none of them.
    pub(crate) async fn administer(&self, request: &Request) -> Option<Result<RawJson, WireError>> {
        Some(match request.method.as_str() {
            method::NODES_LIST => request.no_params().map(|()| raw(&json!({"nodes": self.node_infos()}))),
            method::GATEWAY_STATUS => match (request.no_params(), &self.status) {
                (Ok(()), Some(report)) => Ok(raw(&report().await)),
                (Ok(()), None) => Ok(raw(&json!({}))),
                (Err(err), _) => Err(err),
            },
            method::TOKENS_LIST => match request.no_params() {
                Ok(()) => match self.database.list_client_tokens().await {
                    Ok(tokens) => Ok(raw(&json!({"tokens": tokens}))),
                    Err(err) => Err(database_error(err)),
                },
                Err(err) => Err(err),
            },
            method::NODES_ADD
            | method::NODES_RENEW
            | method::NODES_TAG
            | method::NODES_RENAME
            | method::NODES_REVOKE
            | method::NODES_FORGET
            | method::NODES_PROCESSES => match request.parse::<NodeParams>() {
                Ok(params) => self.node_request(&request.method, params).await,
                Err(err) => Err(err),
            },
            method::TOKENS_ADD | method::TOKENS_REVOKE => match request.parse::<TokenParams>() {
                Ok(params) => self.token_request(&request.method, params).await,
                Err(err) => Err(err),
            },
            _ => return None,
        })
    }

    async fn node_request(&self, name: &str, params: NodeParams) -> Result<RawJson, WireError> {
        let id = &params.id;
        refuse_own_machine(name, id)?;
        let done = match name {
            method::NODES_ADD => {
                let token = self.nodes.add(id, &params.tags).await.map_err(database_error)?;
                return Ok(self.invitation(id, &token));
            }
            method::NODES_RENEW => {
                let token = self.nodes.renew(id).await.map_err(database_error)?;
                return Ok(self.invitation(id, &token));
            }
            method::NODES_PROCESSES => {
                let ends = self
                    .database
                    .list_process_ends(Some(id), params.limit.unwrap_or(50).clamp(1, 1000))
                    .await;
                return ends.map(|ends| raw(&json!({"processes": ends}))).map_err(database_error);
            }
            method::NODES_TAG => {
                let tags = self.nodes.tag(id, &params.tags).await.map_err(database_error)?;
                return Ok(raw(&json!({"id": id, "tags": tags})));
            }
            method::NODES_RENAME => {
                let new_id = params.new_id.as_deref();
                let new_id =
                    new_id.ok_or_else(|| WireError::new(ErrorCode::BadParams, "\"newId\" is missing"))?;
                self.nodes.rename(id, new_id).await.map_err(database_error)?;
                let rules = self.gate.policy().rules_about_node(id);
                return Ok(raw(&json!({"id": id, "rules": rules})));
            }
            method::NODES_REVOKE => self.nodes.revoke(id).await,
            _ => self.nodes.forget(id).await,
        };
        done.map(|()| raw(&json!({"id": id}))).map_err(database_error)
    }

    /// With the address to join at, where the gateway was told that one: whoever asks may have come another way.
    fn invitation(&self, id: &str, token: &str) -> RawJson {
        let mut invitation = json!({"id": id, "token": token});
        if let Some(url) = &self.public_url {
            invitation["publicUrl"] = json!(url);
        }
        raw(&invitation)
    }

    async fn token_request(&self, name: &str, params: TokenParams) -> Result<RawJson, WireError> {
        if name == method::TOKENS_REVOKE {
            let tokens = self.database.list_client_tokens().await.map_err(database_error)?;
            if is_revoked(&tokens, &params.name) {
                let message = format!("the client token {:?} is already revoked", params.name);
                return Err(WireError::new(ErrorCode::Conflict, message));
            }
            self.database.revoke_client_token(&params.name, now_ms()).await.map_err(database_error)?;
            self.auth.revoked(&params.name);
            self.close_links_of(&params.name);
            return Ok(raw(&json!({"name": params.name})));
        }
        ToolScope::new(params.tools.as_deref(), &[])
            .map_err(|err| WireError::new(ErrorCode::BadParams, err.to_string()))?;
        let warnings = self.means_nothing(params.tools.as_deref().unwrap_or_default(), &params.agents);
        let new = NewClientToken {
            name: params.name.clone(),
            tools: params.tools,
            agents: params.agents,
            read_only: params.read_only,
            expires: params.expires,
        };
        let token = self.database.add_client_token(&new, now_ms()).await.map_err(database_error)?;
        let mut made = json!({"name": params.name, "token": token.expose()});
        if !warnings.is_empty() {
            made["warnings"] = json!(warnings);
        }
        Ok(raw(&made))
    }

    /// Names of a token's scope that nothing has now, with the nearest. Tools may come later, so they are not refused.
    fn means_nothing(&self, tools: &[String], agents: &[String]) -> Vec<String> {
        let or_near = |name: &str, known: &[&str]| match nearest(name, known.iter().copied()).first() {
            Some(near) => format!("; did you mean {near:?}?"),
            None => String::new(),
        };
        let all = self.gate.registry().entries();
        let bare = |name: &'_ str| name.split_once("__").map(|(_, bare)| bare.to_owned());
        let bare: Vec<String> = all.iter().filter_map(|tool| bare(tool.name())).collect();
        let toolsets = Toolset::ALL.map(Toolset::name);
        let known: Vec<&str> = all
            .iter()
            .map(|tool| tool.name())
            .chain(bare.iter().map(String::as_str))
            .chain(toolsets)
            .collect();
        let is_empty = |selector: &&String| {
            let scope = ToolScope::new(Some(std::slice::from_ref(*selector)), &[]);
            !toolsets.contains(&selector.as_str())
                && !scope.is_ok_and(|scope| all.iter().any(|tool| scope.allows(tool)))
        };
        let tools = tools.iter().filter(is_empty);
        let tools = tools.map(|name| format!("no tool is meant by {name:?} now{}", or_near(name, &known)));
        let known: Vec<&str> = self.agents.keys().map(String::as_str).collect();
        let strangers = agents.iter().filter(|name| *name != "*" && !self.agents.contains_key(*name));
        tools
            .chain(strangers.map(|name| format!("there is no agent {name:?}{}", or_near(name, &known))))
            .collect()
    }
}

/// What is done to machines that join is not done to the gateway's own, which has neither a token nor another name.
fn refuse_own_machine(name: &str, id: &str) -> Result<(), WireError> {
    let cannot = match name {
        _ if id != LOCAL_NODE => return Ok(()),
        method::NODES_RENEW => "it has no token that could be renewed",
        method::NODES_REVOKE => {
            "it has no token that could be revoked (`gantry serve` starts a gateway without it)"
        }
        method::NODES_FORGET => "it cannot be forgotten (`gantry serve` starts a gateway without it)",
        method::NODES_RENAME => "it cannot be renamed",
        method::NODES_TAG => "it cannot be tagged",
        _ => return Ok(()),
    };
    Err(WireError::new(ErrorCode::Conflict, format!("\"{id}\" is the gateway's own machine: {cannot}")))
}

/// Whether there was a token of that name, and none of that name is good any more.
fn is_revoked(tokens: &[ClientToken], name: &str) -> bool {
    let mut same = tokens.iter().filter(|token| token.name == name).peekable();
    same.peek().is_some() && same.all(|token| token.revoked.is_some())
}

fn database_error(err: DatabaseError) -> WireError {
    let code = match err {
        DatabaseError::Refused(_) => ErrorCode::Conflict,
        _ => ErrorCode::Internal,
    };
    WireError::new(code, err.to_string())
}
