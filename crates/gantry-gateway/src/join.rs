//! `JoinDomain` lets machines join: it makes join codes, exchanges them for tokens, hands out this program, and replaces
//! the gateway's key.

mod routes;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use axum::routing::{get, post};
use futures_util::future::BoxFuture;
use gantry_domain::{Domain, MethodContext, Methods, PublicRoute, Running};
use gantry_net::{GatewayUrl, JoinAddress, JoinCode, KeyPin, MAX_JOIN_ADDRESSES, Proof};
use gantry_protocol::{
    ErrorCode, JoinInvite, JoinOffer, KeyRotate, KeyRotation, WireError, current_platform, method,
};
use gantry_store::{Database, DatabaseError, InviteKnown, new_join_token};
use serde_json::json;
use tokio::sync::Semaphore;

use crate::admin::refuse_own_machine;
use crate::nodes::Nodes;
use crate::tls_identity::TlsIdentity;

/// Where a machine exchanges its code, and where it downloads this program.
const TOKEN_PATH: &str = "/join/token";
const PROGRAM_PATH: &str = "/join/gantry";

const MAX_REQUEST_BYTES: usize = 4096;
const REQUESTS_PER_MINUTE: u32 = 20;

/// How many downloads of the program run at once.
const MAX_DOWNLOADS: usize = 4;

/// How often the addresses of this machine are compared with the certificate.
const REFRESH_EVERY: Duration = Duration::from_secs(60);

pub struct JoinParts {
    pub nodes: Arc<Nodes>,
    pub database: Database,
    pub tls: Option<Arc<TlsIdentity>>,
    /// Where other machines may reach this gateway.
    pub addresses: Arc<dyn Fn() -> Vec<JoinAddress> + Send + Sync>,
    /// The names for the gateway's own certificate.
    pub names: Arc<dyn Fn() -> Vec<String> + Send + Sync>,
    /// The address that the gateway listens on, once it does.
    pub listening: Arc<OnceLock<SocketAddr>>,
    /// This program, for machines of the same platform.
    pub program: PathBuf,
    pub version: String,
}

pub struct JoinDomain(Arc<Joining>);

struct Joining {
    parts: JoinParts,
    downloads: Arc<Semaphore>,
}

impl JoinDomain {
    pub fn new(parts: JoinParts) -> JoinDomain {
        if let Some(tls) = &parts.tls {
            parts.nodes.set_tls(tls.clone());
        }
        JoinDomain(Arc::new(Joining { parts, downloads: Arc::new(Semaphore::new(MAX_DOWNLOADS)) }))
    }
}

impl Domain for JoinDomain {
    fn name(&self) -> &'static str {
        "join"
    }

    fn public_routes(&self) -> Vec<PublicRoute> {
        let (exchanging, serving) = (self.0.clone(), self.0.clone());
        let exchange = post(move |body| routes::exchange(exchanging.clone(), body));
        let program = get(move |headers| routes::program(serving.clone(), headers));
        [(TOKEN_PATH, exchange, MAX_REQUEST_BYTES), (PROGRAM_PATH, program, 0)]
            .map(|(path, handler, max_body_bytes)| PublicRoute {
                path,
                handler,
                max_body_bytes,
                per_minute: REQUESTS_PER_MINUTE,
            })
            .into()
    }

    fn methods(&self) -> Methods {
        Methods::default().on_operator(method::JOIN_INVITE, &self.0, invite).on_operator(
            method::JOIN_ROTATE_KEY,
            &self.0,
            rotate_key,
        )
    }

    fn start<'a>(&'a self, running: &'a Running) -> BoxFuture<'a, anyhow::Result<()>> {
        if let Some(tls) = self.0.parts.tls.clone().filter(|tls| tls.is_own()) {
            let names = self.0.parts.names.clone();
            running.spawn_worker(keep_certificate_current(tls, names));
        }
        Box::pin(std::future::ready(Ok(())))
    }
}

async fn keep_certificate_current(tls: Arc<TlsIdentity>, names: Arc<dyn Fn() -> Vec<String> + Send + Sync>) {
    loop {
        tokio::time::sleep(REFRESH_EVERY).await;
        let (tls, names) = (tls.clone(), names.clone());
        match tokio::task::spawn_blocking(move || tls.refresh(names())).await {
            Ok(Ok(true)) => tracing::info!("certificate_reissued"),
            Ok(Ok(false)) => {}
            Ok(Err(err)) => tracing::warn!(error = %err, "certificate_not_reissued"),
            Err(err) => tracing::warn!(error = %err, "certificate_not_reissued"),
        }
    }
}

async fn invite(joining: Arc<Joining>, _: MethodContext, params: JoinInvite) -> Result<JoinOffer, WireError> {
    let parts = &joining.parts;
    if params.renew {
        refuse_own_machine(method::NODES_RENEW, &params.id)?;
    }
    let known = if params.renew { InviteKnown::Renew } else { InviteKnown::IfNew };
    parts.nodes.check_invite(&params.id, &params.tags, known).await.map_err(refused)?;
    let addresses = match params.addresses.is_empty() {
        true => (parts.addresses)(),
        false => params.addresses.iter().map(|url| joining.given(url)).collect::<Result<_, _>>()?,
    };
    if addresses.is_empty() {
        return Err(joining.unreachable());
    }
    let key = parts.tls.as_ref().and_then(|tls| tls.key());
    let needs_key =
        addresses.iter().any(|address| matches!(address.proof, Proof::Key | Proof::KeyOrAuthority));
    let token = new_join_token().map_err(|err| WireError::new(ErrorCode::Internal, err.to_string()))?;
    let expires = parts.nodes.invite(&params.id, &params.tags, known, &token).await.map_err(refused)?;
    let addresses: Vec<JoinAddress> = addresses.into_iter().take(MAX_JOIN_ADDRESSES).collect();
    let code = JoinCode { id: params.id.clone(), token, key: key.filter(|_| needs_key), addresses };
    // The download uses one address: preferably one where the gateway's own key proves who it is.
    let rank = |address: &&JoinAddress| match address.proof {
        Proof::Key => 0,
        Proof::Authority => 1,
        Proof::KeyOrAuthority => 2,
        Proof::Nothing => 3,
    };
    // Over an unencrypted connection the program could be exchanged on the way.
    let download = code.addresses.iter().min_by_key(rank).filter(|best| best.proof != Proof::Nothing);
    Ok(JoinOffer {
        id: params.id,
        code: code.to_string(),
        expires,
        addresses: code.addresses.iter().map(|address| address.url.to_string()).collect(),
        key: code.key.map(|key| key.to_string()),
        program: download.map(|best| format!("{}{PROGRAM_PATH}", best.url)),
        pinned: download.is_some_and(|best| best.proof != Proof::Authority),
        platform: current_platform(),
    })
}

impl Joining {
    /// Returns how the gateway is recognised at an address that the operator gave.
    fn given(&self, url: &str) -> Result<JoinAddress, WireError> {
        let url =
            GatewayUrl::parse(url).map_err(|err| WireError::new(ErrorCode::BadParams, err.to_string()))?;
        let proof = match (url.secure, &self.parts.tls) {
            (false, _) => Proof::Nothing,
            (true, Some(_)) => Proof::KeyOrAuthority,
            (true, None) => Proof::Authority,
        };
        Ok(JoinAddress { url, proof })
    }

    fn unreachable(&self) -> WireError {
        let listening = self.parts.listening.get();
        let listen = listening.map_or_else(|| "no address".to_owned(), ToString::to_string);
        let port = listening.map_or(GatewayUrl::DEFAULT_PORT, SocketAddr::port);
        let mut error = WireError::new(
            ErrorCode::Conflict,
            format!(
                "this gateway listens on {listen} only, which no other machine can reach; no code was made"
            ),
        );
        error.details = Some(json!({"hint": format!(
            "restart the gateway with `--listen 0.0.0.0:{port}` (connections are encrypted then), or put a reverse proxy \
             in front and restart it with `--public-url https://NAME`; with an SSH tunnel, add \
             `--address http://127.0.0.1:{port}`"
        )}));
        error
    }
}

async fn rotate_key(
    joining: Arc<Joining>,
    _: MethodContext,
    params: KeyRotate,
) -> Result<KeyRotation, WireError> {
    let none = |why: &str| WireError::new(ErrorCode::Conflict, format!("there is no key to replace: {why}"));
    let parts = &joining.parts;
    let Some(tls) = &parts.tls else {
        return Err(none("this gateway uses no TLS"));
    };
    let failed = |err: &dyn std::fmt::Display| {
        WireError::new(ErrorCode::Failed, format!("cannot replace the gateway's key: {err}"))
    };
    let next: KeyPin = tls
        .prepare_next()
        .map_err(|err| failed(&err))?
        .ok_or_else(|| none("this gateway uses your own certificate (gateway.tlsCert); replace its files"))?;
    parts.nodes.announce_key_to_all().await;
    let (adopted, waiting) = parts.nodes.adoption_of(&next);
    if params.now || waiting.is_empty() {
        tls.switch().map_err(|err| failed(&err))?;
    }
    Ok(KeyRotation { key: next.to_string(), in_use: tls.key() == Some(next), adopted, waiting })
}

fn refused(err: DatabaseError) -> WireError {
    let code = match err {
        DatabaseError::Refused(_) => ErrorCode::Conflict,
        _ => ErrorCode::Internal,
    };
    WireError::new(code, err.to_string())
}
