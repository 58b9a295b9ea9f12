//! The domain: its routes and methods.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use axum::Extension;
use axum::routing::post;
use futures_util::future::BoxFuture;
use gantry_domain::{Domain, GatewayServices, Methods, PublicRoute, Running};
use gantry_protocol::{PageLink, method};
use gantry_store::Database;

use crate::one_time_codes::{CODE_LIFE, OneTimeCodes};
use crate::page_files::PageFiles;
use crate::{login, page_sessions, rendering, serve_page};

/// Attempts to log in that one address has in a minute.
const LOGINS_PER_MINUTE: u32 = 20;
const MAX_LOGIN_BYTES: usize = 1024;

pub struct WebParts {
    pub database: Database,
    /// Reads the page's files from here on each request, in place of those in the binary.
    pub page_dir: Option<PathBuf>,
    pub public_url: Option<String>,
}

#[derive(Clone)]
pub struct WebDomain(Arc<WebState>);

pub(crate) struct WebState {
    pub(crate) files: PageFiles,
    pub(crate) codes: OneTimeCodes,
    pub(crate) database: Database,
    public_url: Option<String>,
    /// Set when the gateway starts.
    pub(crate) services: OnceLock<Arc<dyn GatewayServices>>,
}

impl WebDomain {
    pub fn new(parts: WebParts) -> WebDomain {
        let files = parts.page_dir.map_or_else(PageFiles::embedded, PageFiles::folder);
        WebDomain(Arc::new(WebState {
            files,
            codes: OneTimeCodes::default(),
            database: parts.database,
            public_url: parts.public_url,
            services: OnceLock::new(),
        }))
    }

    /// Makes a code that opens the page once.
    pub fn link(&self) -> std::io::Result<PageLink> {
        self.0.link()
    }
}

impl WebState {
    pub(crate) fn link(&self) -> std::io::Result<PageLink> {
        let code = self.codes.issue(Instant::now())?.expose().to_owned();
        let life = i64::try_from(CODE_LIFE.as_millis()).unwrap_or(i64::MAX);
        Ok(PageLink { code, expires: now_ms().saturating_add(life), public_url: self.public_url.clone() })
    }
}

impl Domain for WebDomain {
    fn name(&self) -> &'static str {
        "web"
    }

    fn public_routes(&self) -> Vec<PublicRoute> {
        let login = PublicRoute {
            path: "/login",
            handler: post(login::login).layer(Extension(self.0.clone())),
            max_body_bytes: MAX_LOGIN_BYTES,
            per_minute: LOGINS_PER_MINUTE,
        };
        serve_page::routes(&self.0).into_iter().chain([login]).collect()
    }

    fn methods(&self) -> Methods {
        Methods::default()
            .on(method::MARKDOWN_RENDER, &self.0, rendering::markdown)
            .on(method::ANSI_RENDER, &self.0, rendering::ansi)
            .on(method::DIFF_RENDER, &self.0, rendering::diff)
            .on(method::GRAPH_LAYOUT, &self.0, rendering::graph)
            .on_operator(method::PAGE_LINK, &self.0, page_sessions::link)
            .on_operator(method::PAGE_SESSIONS, &self.0, page_sessions::list)
            .on_operator(method::PAGE_REVOKE, &self.0, page_sessions::revoke)
    }

    fn start<'a>(&'a self, running: &'a Running) -> BoxFuture<'a, anyhow::Result<()>> {
        let _ = self.0.services.set(running.services.clone());
        Box::pin(std::future::ready(Ok(())))
    }
}

/// Milliseconds since 1970.
pub(crate) fn now_ms() -> i64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(now.as_millis()).unwrap_or(i64::MAX)
}
