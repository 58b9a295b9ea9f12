//! Routes without authentication: webhooks, the page, a join code.

use std::net::IpAddr;

use axum::routing::MethodRouter;

use crate::request_context::RequestContext;

/// A route that anybody may reach. The gateway limits its body and how often one address may call
/// it; the handler authenticates the caller.
pub struct PublicRoute {
    pub path: &'static str,
    pub handler: MethodRouter<RequestContext>,
    /// The longest body, in bytes.
    pub max_body_bytes: usize,
    /// Requests that one address may send in a minute.
    pub per_minute: u32,
}

/// The address that sent a request to a public route, as an extension of the request.
#[derive(Debug, Clone, Copy)]
pub struct CallerAddress(pub IpAddr);

/// The name of the page session's cookie. Cookies are shared by all ports of a host, so the name has the port.
pub fn page_cookie_name(host: &str) -> String {
    let port = host.rsplit_once(':').map(|(_, port)| port).filter(|port| port.parse::<u16>().is_ok());
    port.map_or_else(|| "gantry".to_owned(), |port| format!("gantry-{port}"))
}
