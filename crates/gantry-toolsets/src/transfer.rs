//! This machine's part in file transfers. The gate decides about a source as about `Read`, and about a destination as
//! about `Write`: by the same rules, under the same names, with the same audit lines. Callers cannot call these two
//! tools; only the transfer service does.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use gantry_files::FileError;
use gantry_protocol::{
    Caller, ErrorCode, SentKind, TransferOpen, TransferOpened, TransferPrepare, TransferPrepared, WireError,
};
use gantry_tool::{Approver, Call, Consent, Gate, Registry, Tool, ToolError, ToolScope, Toolset, Touch};
use gantry_transfer::{BackendFuture, FileBackend, PathOpener, TransferService, Wanted};
use schemars::JsonSchema;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::Machine;
use crate::machine::file_error;

type Ctx = gantry_tool::Ctx<MachineFiles>;

const READ: &str = "Read";
const WRITE: &str = "Write";

/// Where the part files of incoming transfers are recorded, and for which gateway. Each gateway knows only its own.
#[derive(Debug, Clone)]
pub struct PartsFolder {
    pub root: PathBuf,
    /// 1 to 64 letters, digits, `-` and `_`.
    pub owner: String,
}

/// Creates the transfer service of this machine. It opens a path only if `gate` allows it, and only if the machine offers
/// the tool that would do the same.
pub fn transfer_service(
    machine: &Arc<Machine>,
    gate: &Gate,
    node: Option<&str>,
    workspace: PathBuf,
    parts: &PartsFolder,
) -> Result<Arc<TransferService>, FileError> {
    let backend = Arc::new(FileBackend::new(machine.part_records(&parts.root, &parts.owner)?));
    let files = Arc::new(MachineFiles { machine: machine.clone(), backend: backend.clone() });
    let named = |tool: Tool| node.into_iter().fold(tool, |tool, node| tool.on_node(node));
    let offered = gate.registry().view(&ToolScope::default());
    let registry = Registry::default();
    for tool in [named(read(&files)), named(write(&files))] {
        if offered.registered(tool.name()) {
            registry.replace(tool);
        }
    }
    let prefix = node.map(|node| format!("{node}__")).unwrap_or_default();
    let (gate, is_gateways_own) = (gate.with_tools(registry), node.is_some());
    let opener = GatedOpener { gate, workspace, prefix, is_gateways_own };
    Ok(TransferService::new(Arc::new(opener), backend))
}

/// The state of the two tools.
struct MachineFiles {
    machine: Arc<Machine>,
    backend: Arc<FileBackend>,
}

#[derive(Debug, Deserialize, JsonSchema)]
struct ReadInput {
    transfer: String,
    path: String,
}

#[derive(Debug, Deserialize, JsonSchema)]
struct WriteInput {
    transfer: String,
    path: String,
    directory: bool,
    /// The mode of a directory that is created.
    mode: Option<u32>,
    /// The resolved path of the source, if it is on this machine.
    source: Option<PathBuf>,
}

#[derive(Deserialize)]
struct Touched {
    path: String,
}

fn read(files: &Arc<MachineFiles>) -> Tool {
    let machine = files.machine.clone();
    Tool::new(READ, Toolset::Node, files, open)
        .read_only()
        .touches(move |call, input: Touched| vec![Touch::read(machine.touched_free(call, &input.path))])
}

fn write(files: &Arc<MachineFiles>) -> Tool {
    let machine = files.machine.clone();
    Tool::new(WRITE, Toolset::Node, files, prepare)
        .idempotent()
        .touches(move |call, input: Touched| vec![Touch::write(machine.touched_free(call, &input.path))])
}

async fn open(ctx: Ctx, input: ReadInput) -> Result<Value, ToolError> {
    blocking(move || {
        let machine = &ctx.state.machine;
        let beneath = |root: &Path| machine.beneath(&ctx.call, root);
        let scope = machine.free(&ctx.call)?;
        let opened = ctx.state.backend.open(&input.transfer, &input.path, scope, &beneath);
        Ok(json!(opened.map_err(file_error)?))
    })
    .await
}

async fn prepare(ctx: Ctx, input: WriteInput) -> Result<Value, ToolError> {
    blocking(move || {
        let machine = &ctx.state.machine;
        let beneath = |root: &Path| machine.beneath(&ctx.call, root);
        if let Some(source) = &input.source {
            reject_self_copy(source, &machine.touched_free(&ctx.call, &input.path))?;
        }
        let kind = if input.directory { SentKind::Directory } else { SentKind::File };
        let scope = machine.free(&ctx.call)?;
        let wanted = Wanted { path: &input.path, kind, mode: input.mode };
        let backend = &ctx.state.backend;
        let prepared = backend.prepare(&input.transfer, wanted, scope, &beneath, &ctx.call.cancel);
        Ok(json!(prepared.map_err(|err| match &err {
            // An earlier receiver of the same file has not noticed yet that its connection is lost.
            FileError::Io { source, .. } if source.kind() == std::io::ErrorKind::WouldBlock => {
                ToolError::unavailable("the file is still being received")
            }
            FileError::NotAFile { what: "a directory", .. } => {
                file_error(err).with_hint("name the file in it: a directory is not replaced by a file")
            }
            _ => file_error(err),
        })?))
    })
    .await
}

/// Rejects a transfer onto or into its own source, before anything is created.
fn reject_self_copy(source: &Path, destination: &Path) -> Result<(), ToolError> {
    if destination == source {
        return Err(ToolError::input("source and destination are the same"));
    }
    if destination.starts_with(source) {
        return Err(ToolError::input("a directory cannot be sent into itself"));
    }
    Ok(())
}

/// Runs short file work, which is not cancelled.
async fn blocking(
    work: impl FnOnce() -> Result<Value, ToolError> + Send + 'static,
) -> Result<Value, ToolError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|err| Err(ToolError::internal(format!("a file task failed: {err}"))))
}

/// Opens paths of this machine through its gate.
struct GatedOpener {
    gate: Gate,
    workspace: PathBuf,
    /// `{node}__` where tool names begin with the node, otherwise empty.
    prefix: String,
    /// Whether this is the gateway's own machine. Its operator has already answered the gateway's questions. An approval
    /// by another machine's operator does not count here.
    is_gateways_own: bool,
}

impl PathOpener for GatedOpener {
    fn open(&self, request: TransferOpen, cancel: CancellationToken) -> BackendFuture<'_, TransferOpened> {
        let input = json!({"transfer": request.transfer, "path": request.path});
        Box::pin(self.call(READ, request.caller, request.approved, cancel, input))
    }

    fn prepare(
        &self,
        request: TransferPrepare,
        cancel: CancellationToken,
    ) -> BackendFuture<'_, TransferPrepared> {
        let directory = request.kind == SentKind::Directory;
        let input = json!({"transfer": request.transfer, "path": request.path, "directory": directory,
            "mode": request.mode, "source": request.source});
        Box::pin(self.call(WRITE, request.caller, request.approved, cancel, input))
    }
}

impl GatedOpener {
    /// Calls [`open`] or [`prepare`] through the gate, as the caller of the transfer.
    async fn call<T: DeserializeOwned>(
        &self,
        name: &str,
        caller: Caller,
        approved: Vec<String>,
        cancel: CancellationToken,
        input: Value,
    ) -> Result<T, WireError> {
        let mut call = Call::on_behalf(&caller, self.workspace.clone())?;
        call.autonomy_judged = !self.is_gateways_own;
        call.cancel = cancel;
        call.approver = (self.is_gateways_own && !approved.is_empty()).then(|| already_approved(approved));
        let tool = format!("{}{name}", self.prefix);
        let result = self.gate.call(call, &tool, input).await.into_wire().map_err(|mut error| {
            if error.code == ErrorCode::UnknownTool {
                let message = format!("this machine does not offer {name}, which a transfer needs here");
                error = WireError::new(ErrorCode::Denied, message);
            }
            error
        })?;
        let answer: Value =
            result.json.and_then(|json| serde_json::from_str(json.get()).ok()).unwrap_or_default();
        if result.is_error {
            let message = answer["error"].as_str().unwrap_or("it failed").to_owned();
            return Err(WireError::new(ErrorCode::Failed, message));
        }
        serde_json::from_value(answer).map_err(|err| WireError::new(ErrorCode::Internal, err.to_string()))
    }
}

/// Allows what was already approved for the same transfer, by the name of the rule.
fn already_approved(approved: Vec<String>) -> Approver {
    Approver::new(move |approval| {
        std::future::ready(match approved.contains(&approval.rule) {
            true => Consent::Allowed,
            false => Consent::Denied("it was not part of the approval".into()),
        })
    })
}
