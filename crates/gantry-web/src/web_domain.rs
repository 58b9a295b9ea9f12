//! The domain: its routes and methods.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use axum::routing::{get, post, put};
use axum::{Extension, Router};
use futures_util::future::BoxFuture;
use gantry_domain::{Domain, GatewayServices, Methods, PublicRoute, RequestContext, Running};
use gantry_protocol::{PageLink, method};
use gantry_store::{DataDir, Database, Objects};
use gantry_tool::Gate;

use crate::downloads::{self, Downloads};
use crate::one_time_codes::{CODE_LIFE, OneTimeCodes};
use crate::page_files::PageFiles;
use crate::uploads::{self, Uploads};
use crate::{login, page_sessions, rendering, serve_page};

/// Attempts to log in that one address has in a minute.
const LOGINS_PER_MINUTE: u32 = 20;
const DOWNLOADS_PER_MINUTE: u32 = 300;
const MAX_LOGIN_BYTES: usize = 1024;

pub struct WebParts {
    pub database: Database,
    /// Reads the page's files from here on each request, in place of those in the binary.
    pub page_dir: Option<PathBuf>,
    pub public_url: Option<String>,
    pub objects: Objects,
    pub data: DataDir,
}

#[derive(Clone)]
pub struct WebDomain(Arc<WebState>);

pub(crate) struct WebState {
    pub(crate) files: PageFiles,
    pub(crate) codes: OneTimeCodes,
    pub(crate) database: Database,
    public_url: Option<String>,
    pub(crate) objects: Objects,
    pub(crate) data: DataDir,
    pub(crate) uploads: Uploads,
    pub(crate) downloads: Downloads,
    /// Set when the gateway starts.
    pub(crate) running: OnceLock<(Arc<Gate>, Arc<dyn GatewayServices>)>,
}

impl WebDomain {
    pub fn new(parts: WebParts) -> WebDomain {
        let files = parts.page_dir.map_or_else(PageFiles::embedded, PageFiles::folder);
        WebDomain(Arc::new(WebState {
            files,
            codes: OneTimeCodes::default(),
            database: parts.database,
            public_url: parts.public_url,
            objects: parts.objects,
            data: parts.data,
            uploads: Uploads::default(),
            downloads: Downloads::default(),
            running: OnceLock::new(),
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

    fn routes(&self) -> Router<RequestContext> {
        Router::new().route("/v1/uploads/{id}", put(uploads::put)).layer(Extension(self.0.clone()))
    }

    fn public_routes(&self) -> Vec<PublicRoute> {
        let login = PublicRoute {
            path: "/login",
            handler: post(login::login).layer(Extension(self.0.clone())),
            max_body_bytes: MAX_LOGIN_BYTES,
            per_minute: LOGINS_PER_MINUTE,
        };
        let download = PublicRoute {
            path: "/download/{name}",
            handler: get(downloads::download).layer(Extension(self.0.clone())),
            max_body_bytes: MAX_LOGIN_BYTES,
            per_minute: DOWNLOADS_PER_MINUTE,
        };
        serve_page::routes(&self.0).into_iter().chain([login, download]).collect()
    }

    fn methods(&self) -> Methods {
        Methods::default()
            .on(method::MARKDOWN_RENDER, &self.0, rendering::markdown)
            .on(method::ANSI_RENDER, &self.0, rendering::ansi)
            .on(method::DIFF_RENDER, &self.0, rendering::diff)
            .on(method::GRAPH_LAYOUT, &self.0, rendering::graph)
            .on_operator(method::UPLOADS_BEGIN, &self.0, uploads::begin)
            .on_operator(method::UPLOADS_FINISH, &self.0, uploads::finish)
            .on_operator(method::UPLOADS_CANCEL, &self.0, uploads::cancel)
            .on_operator(method::DOWNLOADS_LINK, &self.0, downloads::link)
            .on_operator(method::PAGE_LINK, &self.0, page_sessions::link)
            .on_operator(method::PAGE_SESSIONS, &self.0, page_sessions::list)
            .on_operator(method::PAGE_REVOKE, &self.0, page_sessions::revoke)
    }

    fn start<'a>(&'a self, running: &'a Running) -> BoxFuture<'a, anyhow::Result<()>> {
        let _ = self.0.running.set((running.gate.clone(), running.services.clone()));
        Box::pin(std::future::ready(Ok(())))
    }
}

/// Milliseconds since 1970.
pub(crate) fn now_ms() -> i64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(now.as_millis()).unwrap_or(i64::MAX)
}
