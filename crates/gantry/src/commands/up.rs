//! `gantry up` and `gantry serve`: the gateway, with this machine's tools or without.

use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::Args;
use gantry_files::{Files, FilesOptions};
use gantry_gateway::ServeError;
use gantry_store::GatewayLockError;
use serde_json::json;

use crate::commands::interrupted;
use crate::config::LogLevel;
use crate::environment::Environment;
use crate::exit::{Exit, UsageError};
use crate::output::Output;
use crate::running_gateway::{LocalNode, RunningGateway};

pub(crate) const SERVE_EXAMPLES: &str = "Examples:\n  \
    gantry serve                                     on 127.0.0.1:7770; tools are those of machines that join\n  \
    gantry serve --listen 127.0.0.1:0 --json         any free port, told as JSON\n  \
    gantry serve --listen 0.0.0.0:7770 --public-url https://gantry.example.com \\\n            \
        --tls-cert chain.pem --tls-key key.pem";

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    gantry up                                        on 127.0.0.1:7770, tools work in the current directory\n  \
    gantry up --listen 127.0.0.1:0 --json            any free port, told as JSON\n  \
    gantry up --listen 0.0.0.0:7770 --public-url https://gantry.example.com \\\n            \
        --tls-cert chain.pem --tls-key key.pem")]
pub(crate) struct UpArgs {
    /// Address and port; port 0 picks one [default: 127.0.0.1:7770]
    #[arg(long, value_name = "ADDR")]
    pub(crate) listen: Option<std::net::SocketAddr>,
    /// Where relative paths start [default: the current directory]
    #[arg(long, value_name = "DIR")]
    pub(crate) workspace: Option<PathBuf>,
    /// The address by which others reach this gateway, with its scheme
    #[arg(long, value_name = "URL")]
    pub(crate) public_url: Option<String>,
    /// Certificate chain as a PEM file
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub(crate) tls_cert: Option<PathBuf>,
    /// The certificate's key as a PEM file
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub(crate) tls_key: Option<PathBuf>,
    /// What is logged, on standard error and in the data directory [default: info]
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
        ("gateway.tlsCert", args.tls_cert.map(|path| path.display().to_string())),
        ("gateway.tlsKey", args.tls_key.map(|path| path.display().to_string())),
        ("log.level", args.log_level.map(|level| level.name().to_owned())),
    ];
    // A flag is the last layer of the configuration.
    let flags = overrides.into_iter().filter_map(|(key, value)| Some(format!("{key}={}", json!(value?))));
    environment.layers.overrides.extend(flags);
    let workspace = environment.resolve(&environment.current_dir.join(args.workspace.unwrap_or_default()));
    if local == LocalNode::Included {
        let opened = Files::new(FilesOptions::default()).and_then(|files| files.contained(&workspace));
        opened.map_err(|err| UsageError(format!("the workspace cannot be used: {err}")))?;
    }
    // A gateway passes things on: what takes time has threads of its own, and each worker more means calls that are
    // handed from one to another.
    let workers = std::thread::available_parallelism().map_or(1, |cores| (cores.get() / 2).max(1));
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    let runtime = builder.worker_threads(workers).enable_all().build().context("cannot start")?;
    let exit = runtime.block_on(async {
        let served = match RunningGateway::start(&environment, local, workspace, output.running_notes()).await
        {
            Ok(served) => served,
            Err(err) => return refuse(output, err),
        };
        let interrupt = interrupted();
        announce(output, &environment, &served, local);
        interrupt.await;
        let second_interrupt = interrupted();
        let notes = output.running_notes();
        notes.info("Stopping: calls under way may finish. A second interrupt ends them.");
        tokio::select! {
            () = served.stop() => notes.info("Gantry has stopped."),
            () = second_interrupt => notes.info("Gantry has stopped; calls under way were ended."),
        }
        Ok(Exit::Success)
    });
    runtime.shutdown_timeout(std::time::Duration::from_secs(1));
    exit
}

/// Another gateway on the same directory is named, with what to do.
fn refuse(output: &Output, err: anyhow::Error) -> Result<Exit> {
    match err.downcast_ref::<GatewayLockError>() {
        Some(GatewayLockError::AlreadyRunning { .. }) => {
            output.error(&format!("{err}; stop it first, or use another --data-dir"));
            Ok(Exit::Failure)
        }
        _ => Err(match err.downcast_ref::<ServeError>() {
            Some(ServeError::Listen { address, source })
                if source.kind() == std::io::ErrorKind::AddrInUse =>
            {
                let host = address.ip();
                let message = format!(
                    "cannot listen on {address}: the address is in use; choose another one with --listen {host}:PORT \
                     (port 0 picks a free one)"
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
        }));
    }
    let row =
        |name: &str, text: &str| output.line(&format!("  {}  {text}", output.dim(&format!("{name:<15}"))));
    output.line(&format!("{} {} is up", output.bold("Gantry"), env!("CARGO_PKG_VERSION")));
    row("gateway", &served.url.to_string());
    if let Some(url) = &served.public_url {
        row("for others", url);
    }
    row("data directory", &environment.data.root().display().to_string());
    row("operator token", &token.display().to_string());
    if local == LocalNode::Included {
        row("workspace", &format!("{} (node \"local\")", served.workspace.display()));
    }
    output.line("");
    // By its full name, which means the same once other machines have joined.
    match local {
        LocalNode::Included => row("call a tool", "gantry call local__Bash '{\"command\": \"uname -a\"}'"),
        LocalNode::LeftOut => row("what there is", "gantry tools"),
    }
    let own = served.url.to_string();
    let public = served.public_url.as_deref().map(|url| url.trim_end_matches('/'));
    // A certificate is hardly ever for 127.0.0.1.
    let named = public.filter(|_| served.url.secure).unwrap_or(&own);
    row("over HTTP", &curl(named, &token.display().to_string()));
    row("MCP clients", "gantry mcp install claude   (or codex, cursor, vscode, goose, opencode)");
    row("MCP over HTTP", &format!("{}/mcp   (with the token as bearer)", public.unwrap_or(&own)));
    row("another machine", "gantry nodes add laptop   (prints the command to run there)");
    output.line("");
    output.line(&output.dim("Ctrl-C stops it; what runs in the background goes on."));
}

fn curl(url: &str, token: &str) -> String {
    format!("curl -H \"Authorization: Bearer $(cat {})\" {url}/v1/tools", shell_quoted(token))
}

fn shell_quoted(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-".contains(c);
    if text.chars().all(plain) { text.to_owned() } else { format!("'{}'", text.replace('\'', "'\\''")) }
}
