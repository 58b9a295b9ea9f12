//! Administration of nodes and tokens, for the operator.

use std::collections::BTreeMap;

use gantry_domain::{Finding, FindingLevel};
use gantry_link::Request;
use gantry_protocol::{
    DoctorFinding, DoctorReport, ErrorCode, GatewayStatus, Invitation, NodeId, NodeList, NodeProcesses,
    NodeRename, NodeRenamed, NodeTags, ProcessList, ProcessRecord, RawJson, TokenAdd, TokenAdded, TokenList,
    TokenName, WireError, method, raw,
};
use gantry_store::{ClientToken, DatabaseError};
use gantry_tool::{ToolScope, Toolset, nearest};
use gantry_toolsets::LOCAL_NODE;

use crate::gateway::{Gateway, now_ms};
use crate::nodes::local_info;

impl Gateway {
    pub(crate) fn node_infos(&self) -> Vec<gantry_protocol::NodeInfo> {
        let local = local_info(self.gate.registry(), &self.version);
        local.into_iter().chain(self.nodes.infos()).collect()
    }

    /// Answers an administrative request. Returns `None` for other methods.
    pub(crate) async fn administer(&self, request: &Request) -> Option<Result<RawJson, WireError>> {
        Some(match request.method.as_str() {
            method::GATEWAY_STATUS => self.report_status(request).await.map(|status| raw(&status)),
            method::GATEWAY_DOCTOR => self.examine(request).await.map(|report| raw(&report)),
            name if name.starts_with("nodes.") => self.administer_nodes(request).await,
            name if name.starts_with("tokens.") => self.administer_tokens(request).await,
            _ => return None,
        })
    }

    async fn report_status(&self, request: &Request) -> Result<GatewayStatus, WireError> {
        request.no_params()?;
        match &self.status {
            Some(report) => Ok(report().await),
            None => Ok(GatewayStatus::default()),
        }
    }

    /// Asks every domain for its findings.
    async fn examine(&self, request: &Request) -> Result<DoctorReport, WireError> {
        request.no_params()?;
        let mut findings = BTreeMap::new();
        for domain in &self.domains {
            let found: Vec<DoctorFinding> = domain.doctor().await.into_iter().map(finding).collect();
            if !found.is_empty() {
                findings.insert(domain.name().to_owned(), found);
            }
        }
        Ok(DoctorReport { findings })
    }

    async fn administer_nodes(&self, request: &Request) -> Result<RawJson, WireError> {
        Ok(match request.method.as_str() {
            method::NODES_LIST => {
                request.no_params()?;
                raw(&NodeList { nodes: self.node_infos() })
            }
            method::NODES_ADD => {
                let NodeTags { id, tags } = request.parse()?;
                let token = self.nodes.add(&id, &tags).await.map_err(database_error)?;
                raw(&self.invitation(id, token))
            }
            method::NODES_RENEW => {
                let NodeId { id } = joined_node(request)?;
                let token = self.nodes.renew(&id).await.map_err(database_error)?;
                raw(&self.invitation(id, token))
            }
            method::NODES_TAG => {
                let NodeTags { id, tags } = request.parse()?;
                refuse_own_machine(&request.method, &id)?;
                let tags = self.nodes.tag(&id, &tags).await.map_err(database_error)?;
                raw(&NodeTags { id, tags })
            }
            method::NODES_RENAME => {
                let NodeRename { id, new_id } = request.parse()?;
                refuse_own_machine(&request.method, &id)?;
                self.nodes.rename(&id, &new_id).await.map_err(database_error)?;
                let policy = self.gate.policy();
                let rules = policy.rules_about_node(&id);
                let rules = rules.into_iter().map(str::to_owned).collect();
                raw(&NodeRenamed { id, rules })
            }
            method::NODES_REVOKE => {
                let node = joined_node(request)?;
                self.nodes.revoke(&node.id).await.map_err(database_error)?;
                raw(&node)
            }
            method::NODES_FORGET => {
                let node = joined_node(request)?;
                self.nodes.forget(&node.id).await.map_err(database_error)?;
                raw(&node)
            }
            method::NODES_PROCESSES => raw(&self.process_ends(&request.parse()?).await?),
            _ => return Err(request.unknown()),
        })
    }

    async fn process_ends(&self, params: &NodeProcesses) -> Result<ProcessList, WireError> {
        let limit = params.limit.unwrap_or(50).clamp(1, 1000);
        let ends = self.database.list_process_ends(Some(&params.id), limit).await.map_err(database_error)?;
        let processes = ends.into_iter().filter_map(|end| {
            Some(ProcessRecord {
                event: serde_json::from_value(end.event).ok()?,
                node: end.node,
                event_id: end.event_id,
                recorded: end.recorded,
            })
        });
        Ok(ProcessList { processes: processes.collect() })
    }

    /// Makes an invitation with the configured public URL, because the operator may use another address.
    fn invitation(&self, id: String, token: String) -> Invitation {
        Invitation { id, token, public_url: self.public_url.clone() }
    }

    async fn administer_tokens(&self, request: &Request) -> Result<RawJson, WireError> {
        Ok(match request.method.as_str() {
            method::TOKENS_LIST => {
                request.no_params()?;
                let tokens = self.database.list_client_tokens().await.map_err(database_error)?;
                raw(&TokenList { tokens: tokens.into_iter().map(|token| token.info).collect() })
            }
            method::TOKENS_ADD => raw(&self.add_token(request.parse()?).await?),
            method::TOKENS_REVOKE => {
                let token: TokenName = request.parse()?;
                self.revoke_token(&token.name).await?;
                raw(&token)
            }
            _ => return Err(request.unknown()),
        })
    }

    async fn revoke_token(&self, name: &str) -> Result<(), WireError> {
        let tokens = self.database.list_client_tokens().await.map_err(database_error)?;
        if is_revoked(&tokens, name) {
            let message = format!("the client token {name:?} is already revoked");
            return Err(WireError::new(ErrorCode::Conflict, message));
        }
        self.database.revoke_client_token(name, now_ms()).await.map_err(database_error)?;
        self.auth.revoked(name);
        self.close_links_of(name);
        Ok(())
    }

    async fn add_token(&self, params: TokenAdd) -> Result<TokenAdded, WireError> {
        ToolScope::new(params.tools.as_deref(), &[])
            .map_err(|err| WireError::new(ErrorCode::BadParams, err.to_string()))?;
        let warnings = self.unmatched_names(params.tools.as_deref().unwrap_or_default(), &params.agents);
        let token = self.database.add_client_token(&params, now_ms()).await.map_err(database_error)?;
        Ok(TokenAdded { name: params.name, token: token.expose().to_owned(), warnings })
    }

    /// Warns of names in a token's scope that match nothing now. They are accepted, because tools may appear later.
    fn unmatched_names(&self, tools: &[String], agents: &[String]) -> Vec<String> {
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
        let tools = tools.map(|name| format!("no tool matches {name:?} now{}", or_near(name, &known)));
        let configured = self.agents();
        let known: Vec<&str> = configured.keys().map(String::as_str).collect();
        let unknown = agents.iter().filter(|name| *name != "*" && !configured.contains_key(*name));
        tools.chain(unknown.map(|name| format!("unknown agent {name:?}{}", or_near(name, &known)))).collect()
    }
}

fn finding(finding: Finding) -> DoctorFinding {
    let level = match finding.level {
        FindingLevel::Ok => "ok",
        FindingLevel::Warning => "warning",
        FindingLevel::Error => "error",
    };
    DoctorFinding { level: level.to_owned(), message: finding.message, fix: finding.fix }
}

/// Rejects requests that change the gateway's own machine, which has no token and a fixed name.
pub(crate) fn refuse_own_machine(name: &str, id: &str) -> Result<(), WireError> {
    let cannot = match name {
        _ if id != LOCAL_NODE => return Ok(()),
        method::NODES_RENEW => "it has no token to renew",
        method::NODES_REVOKE => {
            "it has no token to revoke (`gantry serve` starts a gateway without this machine's tools)"
        }
        method::NODES_FORGET => {
            "it cannot be removed (`gantry serve` starts a gateway without this machine's tools)"
        }
        method::NODES_RENAME => "it cannot be renamed",
        method::NODES_TAG => "it cannot be tagged",
        _ => return Ok(()),
    };
    Err(WireError::new(ErrorCode::Conflict, format!("\"{id}\" is the gateway's own machine: {cannot}")))
}

/// Returns the node that a request names. The gateway's own machine is rejected.
fn joined_node(request: &Request) -> Result<NodeId, WireError> {
    let node: NodeId = request.parse()?;
    refuse_own_machine(&request.method, &node.id)?;
    Ok(node)
}

/// Returns whether a token of that name existed and all such tokens are revoked.
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
