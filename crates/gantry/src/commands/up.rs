//! `gantry up` and `gantry serve` run the gateway, with or without this machine's tools.

use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::Args;
use gantry_files::{Files, FilesOptions};
use gantry_gateway::ServeError;
use gantry_net::KeyPin;
use gantry_store::GatewayLockError;
use serde_json::json;

use crate::commands::interrupted;
use crate::commands::page::page_url;
use crate::config::{LogLevel, TlsMode};
use crate::environment::Environment;
use crate::exit::{Exit, UsageError};
use crate::output::Output;
use crate::running_gateway::{LocalNode, RunningGateway};

pub(crate) const SERVE_EXAMPLES: &str = "Examples:\n  \
    gantry serve                                     listen on 127.0.0.1:7770; tools come from nodes\n  \
    gantry serve --listen 127.0.0.1:0 --json         pick a free port and print it as JSON\n  \
    gantry serve --listen 0.0.0.0:7770               let other machines connect, encrypted with the gateway's own key";

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    gantry up                                        listen on 127.0.0.1:7770; tools work in this directory\n  \
    gantry up --listen 127.0.0.1:0 --json            pick a free port and print it as JSON\n  \
    gantry up --listen 0.0.0.0:7770                  let other machines connect, encrypted with the gateway's own key\n  \
    gantry up --listen 0.0.0.0:7770 --tls-cert chain.pem --tls-key key.pem\n  \
    gantry up --public-url https://gantry.example.com    behind a reverse proxy on this machine")]
pub(crate) struct UpArgs {
    /// Address and port to listen on; port 0 picks a free one [default: 127.0.0.1:7770]
    #[arg(long, value_name = "ADDR")]
    pub(crate) listen: Option<std::net::SocketAddr>,
    /// Directory that relative paths start in [default: the current directory]
    #[arg(long, value_name = "DIR")]
    pub(crate) workspace: Option<PathBuf>,
    /// URL at which other machines reach this gateway
    #[arg(long, value_name = "URL")]
    pub(crate) public_url: Option<String>,
    /// TLS: on addresses that are not loopback, or off, for a proxy that encrypts [default: auto]
    #[arg(long, value_name = "WHEN", value_enum)]
    pub(crate) tls: Option<TlsMode>,
    /// TLS certificate chain (PEM file), in place of the gateway's own key
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub(crate) tls_cert: Option<PathBuf>,
    /// TLS private key (PEM file)
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub(crate) tls_key: Option<PathBuf>,
    /// Read the web page's files from this directory on each request, to develop the page
    #[arg(long, value_name = "DIR")]
    pub(crate) page_dir: Option<PathBuf>,
    /// Log level, for standard error and the log file in the data directory [default: info]
    #[arg(long, value_name = "LEVEL", value_enum)]
    pub(crate) log_level: Option<LogLevel>,
}

pub(crate) fn run(
    mut environment: Environment,
    output: &Output,
    args: UpArgs,
    local: LocalNode,
) -> Result<Exit> {
    gantry_process::hide_from_others();
    let overrides = [
        ("gateway.listen", args.listen.map(|address| address.to_string())),
        ("gateway.publicUrl", args.public_url.clone()),
        ("gateway.tls", args.tls.map(|mode| mode.name().to_owned())),
        ("gateway.tlsCert", args.tls_cert.map(|path| path.display().to_string())),
        ("gateway.tlsKey", args.tls_key.map(|path| path.display().to_string())),
        ("log.level", args.log_level.map(|level| level.name().to_owned())),
    ];
    // Flags override every other layer of the configuration.
    let flags = overrides.into_iter().filter_map(|(key, value)| Some(format!("{key}={}", json!(value?))));
    environment.layers.overrides.extend(flags);
    let workspace = environment.resolve(&environment.current_dir.join(args.workspace.unwrap_or_default()));
    if local == LocalNode::Included {
        let opened = Files::new(FilesOptions::default()).and_then(|files| files.contained(&workspace));
        opened.map_err(|err| UsageError(format!("cannot use the workspace: {err}")))?;
    }
    let page_dir = args.page_dir.map(|folder| environment.resolve(&environment.current_dir.join(folder)));
    if let Some(folder) = &page_dir {
        let files = Files::new(FilesOptions::default()).and_then(|files| files.contained(folder));
        files
            .and_then(|files| files.open("index.html"))
            .map_err(|err| UsageError(format!("cannot use --page-dir: {err}")))?;
    }
    // A gateway mostly forwards messages, and slow work has its own threads. More workers would only hand calls from one
    // thread to another.
    let workers = std::thread::available_parallelism().map_or(1, |cores| (cores.get() / 2).max(1));
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    let runtime = builder.worker_threads(workers).enable_all().build().context("cannot start")?;
    let exit = runtime.block_on(async {
        // Signals are caught before anybody can reach the gateway.
        let interrupt = interrupted();
        let notes = output.running_notes();
        let started = RunningGateway::start(&environment, local, workspace, page_dir, notes).await;
        let served = match started {
            Ok(served) => served,
            Err(err) => return report_start_error(output, err),
        };
        announce(output, &environment, &served, local);
        interrupt.await;
        let second_interrupt = interrupted();
        let notes = output.running_notes();
        notes.info("Stopping: waiting for running calls. Press Ctrl-C again to end them now.");
        tokio::select! {
            () = served.stop() => notes.info("Gantry has stopped."),
            () = second_interrupt => notes.info("Gantry has stopped and ended the running calls."),
        }
        Ok(Exit::Success)
    });
    runtime.shutdown_timeout(std::time::Duration::from_secs(1));
    exit
}

/// Reports why the gateway did not start, with a hint where the user can fix it.
fn report_start_error(output: &Output, err: anyhow::Error) -> Result<Exit> {
    match err.downcast_ref::<GatewayLockError>() {
        Some(GatewayLockError::AlreadyRunning { .. }) => {
            output.error(&format!("{err}\nhint: stop it first, or use another --data-dir"));
            Ok(Exit::Failure)
        }
        _ => Err(match err.downcast_ref::<ServeError>() {
            Some(ServeError::Listen { address, source })
                if source.kind() == std::io::ErrorKind::AddrInUse =>
            {
                let host = address.ip();
                let message = format!(
                    "cannot listen on {address}: the address is in use\n\
                     hint: choose another port with --listen {host}:PORT (port 0 picks a free one)"
                );
                anyhow::anyhow!(message)
            }
            _ => err,
        }),
    }
}

fn announce(output: &Output, environment: &Environment, served: &RunningGateway, local: LocalNode) {
    let token = environment.data.operator_token_file();
    served.warnings.iter().for_each(|warning| output.warning(warning));
    if output.json {
        return output.value(&json!({
            "url": served.url.to_string(),
            "publicUrl": served.public_url,
            "pid": std::process::id(),
            "dataDir": environment.data.root(),
            "tokenFile": token,
            "workspace": served.workspace,
            "agentShells": served.agent_shells,
        }));
    }
    let row =
        |name: &str, text: &str| output.line(&format!("  {}  {text}", output.dim(&format!("{name:<15}"))));
    output.line(&format!("{} {} is up", output.bold("Gantry"), env!("CARGO_PKG_VERSION")));
    row("gateway", &served.url.to_string());
    if let Some(url) = &served.public_url {
        row("public URL", url);
    }
    row("data directory", &environment.data.root().display().to_string());
    row("operator token", &token.display().to_string());
    if local == LocalNode::Included {
        row("workspace", &format!("{} (node \"local\")", served.workspace.display()));
        let [reach, closed] = &served.agent_shells;
        row("agents' shells", reach);
        row("", closed);
    }
    output.line("");
    // The full name stays valid once other machines have joined.
    match local {
        LocalNode::Included => row("call a tool", "gantry call local__Bash '{\"command\": \"uname -a\"}'"),
        LocalNode::LeftOut => row("list the tools", "gantry tools"),
    }
    let own = served.url.to_string();
    let public = served.public_url.as_deref().map(|url| url.trim_end_matches('/'));
    // Certificates are rarely issued for 127.0.0.1.
    let named = public.filter(|_| served.url.secure).unwrap_or(&own);
    // A link logs in, so it is for a person's eyes: never for a pipe or a log.
    if output.is_terminal() {
        match served.web.link() {
            Ok(link) => {
                row("web page", &page_url(named, &link.code));
                row("", "valid once, for ten minutes; `gantry page` prints another");
            }
            Err(err) => output.warning(&format!("cannot make a link to the web page: {err}")),
        }
    }
    row("over HTTP", &curl(named, served.key.as_ref(), &token.display().to_string()));
    row("MCP clients", "gantry mcp install claude   (or codex, cursor, vscode, goose, opencode)");
    row("MCP over HTTP", &format!("{}/mcp   (send the token as bearer token)", public.unwrap_or(&own)));
    row(
        "another machine",
        match served.is_reachable() {
            true => "gantry nodes add laptop   (prints the line to run there)",
            false => "start with --listen 0.0.0.0:7770, then: gantry nodes add laptop",
        },
    );
    output.line("");
    output.line(&output.dim("Press Ctrl-C to stop. Background commands keep running."));
}

/// Returns a command line for curl. It recognises a gateway that made its own key by that key.
fn curl(url: &str, key: Option<&KeyPin>, token: &str) -> String {
    let pinned = key.map(|key| format!("-k --pinnedpubkey '{key}' ")).unwrap_or_default();
    format!("curl {pinned}-H \"Authorization: Bearer $(cat {})\" {url}/v1/tools", shell_quoted(token))
}

fn shell_quoted(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-".contains(c);
    if text.chars().all(plain) { text.to_owned() } else { format!("'{}'", text.replace('\'', "'\\''")) }
}
