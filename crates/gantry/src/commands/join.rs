//! `gantry join CODE` lets this machine join a gateway: it finds the gateway, gets the node's token, writes the node's
//! configuration, and starts the node.

use std::io::{BufRead, IsTerminal, Read};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::Args;
use gantry_net::{GatewayUrl, JoinAddress, JoinCode, Proof, post_to_gateway};
use gantry_node::{JoinedGateway, JoinedNode, NodeHome, check_address, trust};
use gantry_protocol::{HttpProblem, JoinRequest, Joined};
use gantry_store::new_node_token;
use gantry_tool::{Refusal, RefusalCode};

use crate::client::runtime;
use crate::commands::node::foreground::{authorities, workspace};
use crate::commands::node::{NodeArgs, foreground};
use crate::commands::service::{Installing, install_node, is_node_installed, node_problem};
use crate::environment::Environment;
use crate::exit::{Exit, Refused, UsageError};
use crate::output::{self, Output};

/// Codes are short; a longer file is another file.
const MAX_CODE_FILE_BYTES: u64 = 64 * 1024;

/// Where a machine exchanges its code.
const TOKEN_PATH: &str = "/join/token";

/// The workspace of people who join in their home folder, which holds the data directory.
const WORKSPACE_NAME: &str = "gantry-workspace";

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    gantry join gtj_AbC…                             join, with a few questions\n  \
    gantry join gtj_AbC… --yes --workspace ~/src     join without questions; runs as a service if possible\n  \
    gantry join - < code.txt                         keep the code out of the list of processes\n  \
    gantry join @code.txt --no-service               run the node in this terminal\n\n\
    `gantry nodes add NAME` on the gateway prints the code. It works once, for 10 minutes, for that name.")]
pub(crate) struct JoinArgs {
    /// Join code; @FILE reads it from a file, - from standard input
    #[arg(value_name = "CODE")]
    code: String,
    /// Directory that relative paths of tools start in [default: the current directory]
    #[arg(long, value_name = "DIR")]
    workspace: Option<PathBuf>,
    /// Offer only these tools, such as Read,Glob,Grep
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    tools: Option<Vec<String>>,
    /// Keep all tools inside the workspace; the kernel confines shells
    #[arg(long)]
    contain: bool,
    /// Take the default answer to every question
    #[arg(short, long)]
    yes: bool,
    /// Run the node as a service of this user, started now and at login
    #[arg(long, conflicts_with_all = ["no_service", "no_start"])]
    service: bool,
    /// Run the node in the foreground
    #[arg(long)]
    no_service: bool,
    /// Only write the configuration; `gantry node` starts the node
    #[arg(long, conflicts_with = "no_service")]
    no_start: bool,
    /// Also trust this certificate authority (PEM file), for a gateway behind a proxy [default: GANTRY_TLS_CA]
    #[arg(long, value_name = "FILE")]
    tls_ca: Option<PathBuf>,
    /// Allow an unencrypted connection to a gateway on another machine
    #[arg(long)]
    insecure: bool,
}

/// How the node is started after joining.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Start {
    Service,
    Foreground,
    Later,
}

pub(crate) fn run(environment: Environment, output: &Output, args: &JoinArgs) -> Result<Exit> {
    gantry_process::hide_from_others();
    let code = read_code(&environment, &args.code)?;
    // Everything that can fail here is checked before the code is used up.
    let home = NodeHome::new(environment.data.root(), &code.id).map_err(|err| UsageError(err.to_string()))?;
    if let Some(pid) = home.running() {
        let hint = format!("stop it with `gantry node stop --id {}`, and join again", code.id);
        let message = format!("the node \"{}\" runs on this machine (process {pid})", code.id);
        return Err(UsageError(message).with_hint(hint).into());
    }
    let usable = usable_addresses(&code, args.insecure)?;
    authorities(&environment, args.tls_ca.as_deref())?;
    if !output.json {
        output.line(&format!("Joining as \"{}\".", code.id));
    }
    let asks = !args.yes && !output.json && std::io::stdin().is_terminal() && args.code != "-";
    let folder = choose_workspace(&environment, args, asks)?;
    let start = choose_start(&environment, output, &code, args, asks)?;
    environment.data.restore()?;

    let token = new_node_token().context("cannot make a token")?;
    let (address, joined) =
        runtime()?.block_on(exchange(&environment, args, &code, &usable, token.expose()))?;
    home.replace_durably(&home.token_file(), token.expose())
        .with_context(|| format!("cannot write {}", home.token_file().display()))?;
    record(&environment, args, &code, &usable, &address, folder.clone()).write(&home)?;
    if output.json {
        output.value(&serde_json::json!({
            "id": code.id, "gateway": address.url.to_string(), "version": joined.version, "workspace": folder,
        }));
    } else {
        output.line(&format!("Joined the gateway at {} as \"{}\".", address.url, code.id));
    }
    warn_of_other_version(output, &joined.version);
    let node = NodeArgs { id: Some(code.id.clone()), ..NodeArgs::default() };
    match start {
        Start::Service => install_node(&environment, output, &node, &Installing::default()),
        Start::Later => {
            output.note_on_terminal(&format!("Start the node with `gantry node --id {}`.", code.id));
            Ok(Exit::Success)
        }
        Start::Foreground => {
            output.note_on_terminal(
                "The node runs now. Press Ctrl-C to stop it; `gantry node` starts it again.",
            );
            foreground::run(environment, output, &node)
        }
    }
}

fn read_code(environment: &Environment, given: &str) -> Result<JoinCode> {
    let text = match (given, given.strip_prefix('@')) {
        ("-", _) => {
            let mut text = String::new();
            std::io::stdin()
                .take(MAX_CODE_FILE_BYTES)
                .read_to_string(&mut text)
                .context("cannot read the code from standard input")?;
            text
        }
        (_, Some(file)) => {
            let bytes = environment.read_own(Path::new(file))?;
            String::from_utf8(bytes).map_err(|_| UsageError(format!("{file} contains no join code")))?
        }
        _ => given.to_owned(),
    };
    JoinCode::parse(&text).map_err(|err| {
        UsageError(err.to_string()).with_hint("`gantry nodes add NAME` on the gateway prints a code").into()
    })
}

/// Returns the addresses that this machine may dial. Without encryption others could read the node's token.
fn usable_addresses(code: &JoinCode, insecure: bool) -> Result<Vec<JoinAddress>> {
    let allowed = |address: &&JoinAddress| check_address(&address.url, insecure).is_ok();
    let usable: Vec<JoinAddress> = code.addresses.iter().filter(allowed).cloned().collect();
    match (usable.is_empty(), code.addresses.first()) {
        (true, Some(first)) => {
            let err = check_address(&first.url, insecure).err().map(|err| err.to_string());
            Err(UsageError(err.unwrap_or_default()).into())
        }
        _ => Ok(usable),
    }
}

fn choose_workspace(environment: &Environment, args: &JoinArgs, asks: bool) -> Result<PathBuf> {
    if let Some(given) = &args.workspace {
        return workspace(environment, Some(given));
    }
    let here = &environment.current_dir;
    // A workspace that contains the data directory is closed to agents' shells in part.
    let default = match environment.data.root().starts_with(here) {
        true => here.join(WORKSPACE_NAME),
        false => here.clone(),
    };
    let chosen = match asks {
        false => default.clone(),
        true => {
            let typed = ask(&format!("Directory for this machine's tools [{}]: ", default.display()))?;
            if typed.is_empty() { default.clone() } else { environment.expand_home(Path::new(&typed)) }
        }
    };
    if chosen == default && default != *here {
        gantry_store::make_folder(&default)
            .with_context(|| format!("cannot create {}", default.display()))?;
    }
    workspace(environment, Some(&chosen))
}

fn choose_start(
    environment: &Environment,
    output: &Output,
    code: &JoinCode,
    args: &JoinArgs,
    asks: bool,
) -> Result<Start> {
    if args.no_start {
        return Ok(Start::Later);
    }
    if args.no_service {
        return Ok(Start::Foreground);
    }
    // A service that exists is restarted with the new token.
    if is_node_installed(environment, &code.id) {
        return Ok(Start::Service);
    }
    match node_problem(environment) {
        Some(problem) if args.service => {
            let hint = "leave --service out to run the node in this terminal";
            Err(UsageError(format!("this user cannot run services here ({problem})")).with_hint(hint).into())
        }
        Some(problem) => {
            let text =
                format!("This user cannot run services here ({problem}), so the node runs in this terminal.");
            output.note_on_terminal(&text);
            Ok(Start::Foreground)
        }
        None if args.service || !asks => Ok(Start::Service),
        None => {
            let answer = ask("Run the node as a service, now and at every login? [Y/n]: ")?;
            let is_no = matches!(answer.to_ascii_lowercase().as_str(), "n" | "no");
            Ok(if is_no { Start::Foreground } else { Start::Service })
        }
    }
}

fn ask(question: &str) -> Result<String> {
    output::question(question);
    let mut answer = String::new();
    std::io::stdin().lock().read_line(&mut answer).context("cannot read the answer")?;
    Ok(answer.trim().to_owned())
}

/// Tries the addresses in turn. A gateway that refuses the code ends the search, because the others are the same one.
async fn exchange(
    environment: &Environment,
    args: &JoinArgs,
    code: &JoinCode,
    addresses: &[JoinAddress],
    token: &str,
) -> Result<(JoinAddress, Joined)> {
    let request = JoinRequest { id: code.id.clone(), code: code.token_text(), node_token: token.to_owned() };
    let request = serde_json::to_string(&request)?;
    let keys = gantry_net::KnownKeys::new(code.key);
    let authority = authorities(environment, args.tls_ca.as_deref())?;
    let mut failures = Vec::new();
    for address in addresses {
        let trust = trust(address.proof, &keys, &authority);
        let (status, body) = match post_to_gateway(&address.url, &trust, TOKEN_PATH, request.clone()).await {
            Ok(answer) => answer,
            Err(err) => {
                failures.push(err.to_string());
                continue;
            }
        };
        if status == 200 {
            let joined = serde_json::from_slice(&body).context("the gateway's answer is invalid")?;
            return Ok((address.clone(), joined));
        }
        match serde_json::from_slice::<HttpProblem>(&body) {
            Ok(HttpProblem { error }) if error.code == "join_refused" => {
                let refusal = Refusal::new(RefusalCode::Denied, error.message);
                let refusal = error.hint.into_iter().fold(refusal, Refusal::with_hint);
                return Err(Refused(refusal).into());
            }
            Ok(HttpProblem { error }) => failures.push(format!("{}: {}", address.url, error.message)),
            Err(_) => failures.push(format!("{} answered with status {status}", address.url)),
        }
    }
    let tried = failures.iter().map(|failure| format!("\n  - {failure}")).collect::<String>();
    let refusal = Refusal::new(RefusalCode::Unavailable, format!("cannot reach the gateway{tried}"));
    let hint = "check that the gateway runs, that its firewall admits this machine, and that both are in one network; \
                the code is still valid if its 10 minutes are not over";
    Err(Refused(refusal.with_hint(hint)).into())
}

/// Returns what the node keeps. The address that worked comes first.
fn record(
    environment: &Environment,
    args: &JoinArgs,
    code: &JoinCode,
    usable: &[JoinAddress],
    worked: &JoinAddress,
    workspace: PathBuf,
) -> JoinedNode {
    let others = usable.iter().filter(|address| *address != worked);
    let gateway = |address: &JoinAddress| JoinedGateway {
        url: GatewayUrl::to_string(&address.url),
        proof: Proof::name(address.proof).to_owned(),
    };
    let ca = args.tls_ca.as_deref().or_else(|| environment.tls_ca());
    JoinedNode {
        gateways: std::iter::once(worked).chain(others).map(gateway).collect(),
        keys: code.key.iter().map(ToString::to_string).collect(),
        workspace,
        tools: args.tools.clone(),
        contain: args.contain,
        tls_ca: ca.map(|file| environment.resolve(file)),
        insecure: args.insecure,
    }
}

fn warn_of_other_version(output: &Output, theirs: &str) {
    let ours = env!("CARGO_PKG_VERSION");
    if ours != theirs {
        output.warning(&format!("the gateway has version {theirs}, this program has version {ours}"));
    }
}
