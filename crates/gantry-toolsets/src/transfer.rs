//! This machine's part in file transfers. Opening a source is judged as `Read` is, preparing a destination as `Write`: by
//! the same rules, under the same names, with the same audit lines. Neither is among the tools anybody can call.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use gantry_files::FileError;
use gantry_protocol::{
    Caller, ErrorCode, ManifestPage, SentKind, TransferMake, TransferOpen, TransferOpened, TransferParts,
    TransferPrepare, TransferPrepared, WireError,
};
use gantry_tool::{Approver, Call, Consent, Gate, Registry, Tool, ToolError, ToolScope, Toolset, Touch};
use gantry_transfer::{
    BackendFuture, FileBackend, PartFile, SourceFile, TransferBackend, TransferError, TransferService, Wanted,
};
use schemars::JsonSchema;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::Machine;
use crate::machine::file_error;

type Ctx = gantry_tool::Ctx<Transfers>;

const READ: &str = "Read";
const WRITE: &str = "Write";

/// Where parts of files that come are written down, and for whom they come: each gateway knows only its own.
#[derive(Debug, Clone)]
pub struct PartsFolder {
    pub root: PathBuf,
    /// 1 to 64 letters, digits, `-` and `_`.
    pub owner: String,
}

/// Takes part in transfers for this machine: with the judgement of `gate`, and only in what its tools could do too.
pub fn transfer_service(
    machine: &Arc<Machine>,
    gate: &Gate,
    node: Option<&str>,
    workspace: PathBuf,
    parts: &PartsFolder,
) -> Result<Arc<TransferService>, FileError> {
    let books = FileBackend::new(machine.part_records(&parts.root, &parts.owner)?);
    let transfers = Arc::new(Transfers { machine: machine.clone(), books });
    let named = |tool: Tool| node.into_iter().fold(tool, |tool, node| tool.on_node(node));
    let offered = gate.registry().view(&ToolScope::default());
    let registry = Registry::default();
    for tool in [named(read(&transfers)), named(write(&transfers))] {
        if offered.registered(tool.name()) {
            registry.replace(tool);
        }
    }
    let prefix = node.map(|node| format!("{node}__")).unwrap_or_default();
    let (gate, is_gateways_own) = (gate.with_tools(registry), node.is_some());
    Ok(TransferService::new(Arc::new(GatedBackend { gate, transfers, workspace, prefix, is_gateways_own })))
}

struct Transfers {
    machine: Arc<Machine>,
    books: FileBackend,
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
    /// Of a directory that is made.
    mode: Option<u32>,
    /// Where the source really is, when it is on this machine.
    source: Option<PathBuf>,
}

#[derive(Deserialize)]
struct Touched {
    path: String,
}

fn read(transfers: &Arc<Transfers>) -> Tool {
    let machine = transfers.machine.clone();
    Tool::new(READ, Toolset::Node, transfers, open)
        .read_only()
        .touches(move |call, input: Touched| vec![Touch::read(machine.touched_free(call, &input.path))])
}

fn write(transfers: &Arc<Transfers>) -> Tool {
    let machine = transfers.machine.clone();
    Tool::new(WRITE, Toolset::Node, transfers, prepare)
        .idempotent()
        .touches(move |call, input: Touched| vec![Touch::write(machine.touched_free(call, &input.path))])
}

async fn open(ctx: Ctx, input: ReadInput) -> Result<Value, ToolError> {
    blocking(move || {
        let machine = &ctx.state.machine;
        let beneath = |root: &std::path::Path| machine.beneath(&ctx.call, root);
        let scope = machine.free(&ctx.call)?;
        let opened = ctx.state.books.open(&input.transfer, &input.path, scope, &beneath);
        Ok(json!(opened.map_err(file_error)?))
    })
    .await
}

async fn prepare(ctx: Ctx, input: WriteInput) -> Result<Value, ToolError> {
    blocking(move || {
        let machine = &ctx.state.machine;
        let beneath = |root: &std::path::Path| machine.beneath(&ctx.call, root);
        if let Some(source) = &input.source {
            refuse_itself(source, &machine.touched_free(&ctx.call, &input.path))?;
        }
        let kind = if input.directory { SentKind::Directory } else { SentKind::File };
        let scope = machine.free(&ctx.call)?;
        let books = &ctx.state.books;
        let wanted = Wanted { path: &input.path, kind, mode: input.mode };
        let prepared = books.prepare(&input.transfer, wanted, scope, &beneath, &ctx.call.cancel);
        Ok(json!(prepared.map_err(|err| match &err {
            // An earlier receiver of the same file has not noticed yet that it is over.
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

/// Asked before anything is made.
fn refuse_itself(source: &std::path::Path, destination: &std::path::Path) -> Result<(), ToolError> {
    if destination == source {
        return Err(ToolError::input("source and destination are the same"));
    }
    if destination.starts_with(source) {
        return Err(ToolError::input("a directory cannot be sent into itself"));
    }
    Ok(())
}

/// Short file work; it is not worth calling off.
async fn blocking(
    work: impl FnOnce() -> Result<Value, ToolError> + Send + 'static,
) -> Result<Value, ToolError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|err| Err(ToolError::internal(format!("file work did not end well: {err}"))))
}

/// The books of this machine's files, behind its gate.
struct GatedBackend {
    gate: Gate,
    transfers: Arc<Transfers>,
    workspace: PathBuf,
    /// `{node}__`, where tools have that before their names.
    prefix: String,
    /// Whose gate has asked has asked for this machine too. What another one's operator allowed is not allowed here.
    is_gateways_own: bool,
}

/// Who wants it.
struct Asking {
    caller: Caller,
    approved: Vec<String>,
    cancel: CancellationToken,
}

/// Says yes to what somebody has said yes to: the same rule, of the same transfer.
fn already_approved(approved: Vec<String>) -> Approver {
    Approver::new(move |approval| {
        std::future::ready(match approved.contains(&approval.rule) {
            true => Consent::Allowed,
            false => Consent::Denied("nobody was asked about it".into()),
        })
    })
}

impl GatedBackend {
    async fn judged<T: DeserializeOwned>(
        &self,
        name: &str,
        Asking { caller, approved, cancel }: Asking,
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

impl TransferBackend for GatedBackend {
    fn open(&self, ask: TransferOpen, cancel: CancellationToken) -> BackendFuture<'_, TransferOpened> {
        let input = json!({"transfer": ask.transfer, "path": ask.path});
        let asking = Asking { caller: ask.caller, approved: ask.approved, cancel };
        Box::pin(self.judged(READ, asking, input))
    }

    fn prepare(
        &self,
        ask: TransferPrepare,
        cancel: CancellationToken,
    ) -> BackendFuture<'_, TransferPrepared> {
        let directory = ask.kind == SentKind::Directory;
        let input = json!({"transfer": ask.transfer, "path": ask.path, "directory": directory,
            "mode": ask.mode, "source": ask.source});
        let asking = Asking { caller: ask.caller, approved: ask.approved, cancel };
        Box::pin(self.judged(WRITE, asking, input))
    }

    fn page(&self, transfer: &str) -> Result<ManifestPage, TransferError> {
        self.transfers.books.page(transfer)
    }

    fn source_file(&self, transfer: &str, entry: Option<&str>) -> Result<Box<dyn SourceFile>, TransferError> {
        self.transfers.books.source_file(transfer, entry)
    }

    fn part_file(&self, transfer: &str, entry: Option<&str>) -> Result<Box<dyn PartFile>, TransferError> {
        self.transfers.books.part_file(transfer, entry)
    }

    fn make(&self, ask: &TransferMake) -> Result<(), TransferError> {
        self.transfers.books.make(ask)
    }

    fn finish(&self, transfer: &str) -> Result<(), TransferError> {
        self.transfers.books.finish(transfer)
    }

    fn abandon(&self, transfer: &str) -> Result<(), TransferError> {
        self.transfers.books.abandon(transfer)
    }

    fn parts(&self) -> Result<TransferParts, TransferError> {
        self.transfers.books.parts()
    }

    fn sweep(&self, older_than: Duration) -> Result<usize, TransferError> {
        self.transfers.books.sweep(older_than)
    }
}
