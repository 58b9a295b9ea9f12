//! The jobs that run in worker processes: reading and writing one file, and running one command to its end.
//!
//! The policy, the gate, the audit log and the masking of secrets stay in the gateway. A worker gets what a call may reach,
//! and opens files and starts commands with the same engines. [`worker_main`] is the worker's side.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use gantry_files::{Files, FilesOptions};
use gantry_process::workers::{Frame, WorkerError, serve};
use gantry_process::{Command, CommandData, Finished, Processes, ProcessesOptions, Stream};
use gantry_tool::{Message, SensitivePaths, ToolError};
use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;

use crate::Ctx;
use crate::assistant::{read_whole_file, write_whole_file};
use crate::machine::{FileAccess, FileScopes, process_error};

/// `WorkerSetup` is what a worker needs to open files and start commands as the gateway does.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct WorkerSetup {
    /// Gantry's own paths, closed to every tool.
    pub closed: Vec<PathBuf>,
    /// The folder that records unfinished writes.
    pub pending: PathBuf,
    pub sensitive: SensitivePaths,
    /// The program that runs keepers, and its arguments.
    pub keeper: PathBuf,
    pub keeper_args: Vec<String>,
    pub process_logs: PathBuf,
}

#[derive(Debug, Serialize, Deserialize)]
enum Job {
    ReadFile {
        access: FileAccess,
        path: String,
    },
    /// The body is the content.
    WriteFile {
        access: FileAccess,
        path: String,
    },
    Run {
        command: CommandData,
    },
}

#[derive(Debug, Serialize, Deserialize)]
enum Answer {
    /// The body is the tool's text.
    Text,
    /// The body is the text of standard output, then that of standard error.
    Finished {
        finished: Box<Finished>,
        stdout_bytes: usize,
    },
    Failed(Failure),
}

/// `Failure` is a [`ToolError`] on its way to the gateway.
#[derive(Debug, Serialize, Deserialize)]
struct Failure {
    kind: FailureKind,
    text: String,
    hint: Option<String>,
}

#[derive(Debug, Serialize, Deserialize)]
enum FailureKind {
    Input,
    Failed,
    Denied,
    Cancelled,
    Internal,
}

/// Reads a whole text file, in a worker if there are workers.
pub(crate) async fn read_in_worker(ctx: &Ctx, path: String) -> Option<Result<String, ToolError>> {
    ctx.state.workers()?;
    let access = ctx.state.file_access(&ctx.call);
    Some(text(run(ctx, Job::ReadFile { access, path }, Frame::default()).await))
}

/// Writes a whole file, in a worker if there are workers. Returns the content otherwise.
pub(crate) async fn write_in_worker(
    ctx: &Ctx,
    path: &str,
    content: String,
) -> Result<Result<String, ToolError>, String> {
    if ctx.state.workers().is_none() {
        return Err(content);
    }
    let job = Job::WriteFile { access: ctx.state.file_access(&ctx.call), path: path.to_owned() };
    Ok(text(run(ctx, job, Frame { body: content.into_bytes(), ..Frame::default() }).await))
}

/// Runs a command to its end, in a worker if there are workers. Returns the command otherwise.
pub(crate) async fn command_in_worker(
    ctx: &Ctx,
    command: Command,
) -> Result<Result<Finished, ToolError>, Command> {
    if ctx.state.workers().is_none() {
        return Err(command);
    }
    let (command, descriptors) = match command.into_data() {
        Ok(parts) => parts,
        Err(err) => return Ok(Err(ToolError::internal(format!("cannot pass a command on: {err}")))),
    };
    let frame = Frame { descriptors, ..Frame::default() };
    Ok(finished(run(ctx, Job::Run { command }, frame).await))
}

async fn run(ctx: &Ctx, job: Job, frame: Frame) -> Result<(Answer, Vec<u8>), ToolError> {
    let Some(workers) = ctx.state.workers() else {
        return Err(ToolError::internal("there are no workers"));
    };
    let header = serde_json::to_vec(&job).map_err(|err| ToolError::internal(err.to_string()))?;
    let answer = workers.run(&ctx.call.agent, Frame { header, ..frame }, &ctx.call.cancel).await;
    let Frame { header, body, .. } = answer.map_err(worker_error)?;
    let answer = serde_json::from_slice(&header).map_err(|err| ToolError::internal(err.to_string()))?;
    match answer {
        Answer::Failed(failure) => Err(failure.into()),
        answer => Ok((answer, body)),
    }
}

fn worker_error(err: WorkerError) -> ToolError {
    match err {
        WorkerError::Cancelled => ToolError::Cancelled,
        err => ToolError::Failed(Message { hint: err.hint(), ..Message::new(err.to_string()) }),
    }
}

fn text(answer: Result<(Answer, Vec<u8>), ToolError>) -> Result<String, ToolError> {
    match answer? {
        (Answer::Text, body) => utf8(body),
        (other, _) => Err(unexpected(&other)),
    }
}

fn finished(answer: Result<(Answer, Vec<u8>), ToolError>) -> Result<Finished, ToolError> {
    match answer? {
        (Answer::Finished { mut finished, stdout_bytes }, mut body) if stdout_bytes <= body.len() => {
            finished.stderr.text = utf8(body.split_off(stdout_bytes))?;
            finished.stdout.text = utf8(body)?;
            Ok(*finished)
        }
        (other, _) => Err(unexpected(&other)),
    }
}

fn utf8(bytes: Vec<u8>) -> Result<String, ToolError> {
    String::from_utf8(bytes).map_err(|err| ToolError::internal(format!("a worker sent no text: {err}")))
}

fn unexpected(answer: &Answer) -> ToolError {
    ToolError::internal(format!("a worker sent an unexpected answer: {answer:?}"))
}

impl From<ToolError> for Failure {
    fn from(err: ToolError) -> Failure {
        let of = |kind, message: Message| Failure { kind, text: message.text, hint: message.hint };
        match err {
            ToolError::Input(message) => of(FailureKind::Input, message),
            ToolError::Failed(message) => of(FailureKind::Failed, message),
            ToolError::Denied(message) => of(FailureKind::Denied, message),
            ToolError::Cancelled => of(FailureKind::Cancelled, Message::default()),
            ToolError::Internal { detail, .. } => of(FailureKind::Internal, Message::new(detail)),
            other => of(FailureKind::Internal, Message::new(other.to_string())),
        }
    }
}

impl From<Failure> for ToolError {
    fn from(failure: Failure) -> ToolError {
        let Failure { kind, text, hint } = failure;
        let message = Message { hint, ..Message::new(text) };
        match kind {
            FailureKind::Input => ToolError::Input(message),
            FailureKind::Failed => ToolError::Failed(message),
            FailureKind::Denied => ToolError::Denied(message),
            FailureKind::Cancelled => ToolError::Cancelled,
            FailureKind::Internal => ToolError::internal(message.text),
        }
    }
}

/// Runs a worker until the gateway closes its connection.
pub fn worker_main() -> ExitCode {
    serve::main(|setup, memory| {
        let setup: WorkerSetup =
            serde_json::from_slice(setup).map_err(|err| format!("invalid setup: {err}"))?;
        let options = FilesOptions { closed: setup.closed, pending_dir: Some(setup.pending) };
        let files = Files::new(options).map_err(|err| err.to_string())?;
        let mut keeper_args: Vec<OsString> = setup.keeper_args.into_iter().map(OsString::from).collect();
        keeper_args.push(memory.keeper_argument());
        let options = ProcessesOptions::new(setup.keeper, setup.process_logs);
        let processes = Processes::new(ProcessesOptions { keeper_args, ..options });
        let sensitive = setup.sensitive;
        let is_sensitive = Arc::new(move |path: &Path| sensitive.contains(path));
        let worker = Arc::new(Worker { scopes: FileScopes::new(files, is_sensitive), processes });
        Ok(move |frame, cancel| {
            let worker = worker.clone();
            async move { worker.answer(frame, cancel).await }
        })
    })
}

struct Worker {
    scopes: FileScopes,
    processes: Processes,
}

impl Worker {
    async fn answer(self: Arc<Self>, frame: Frame, cancel: CancellationToken) -> Frame {
        let (answer, body) = match self.perform(frame, cancel).await {
            Ok(answered) => answered,
            Err(err) => (Answer::Failed(err.into()), Vec::new()),
        };
        // An answer consists of strings and numbers, which JSON can always hold.
        Frame { header: serde_json::to_vec(&answer).unwrap_or_default(), body, descriptors: Vec::new() }
    }

    async fn perform(
        self: Arc<Self>,
        frame: Frame,
        cancel: CancellationToken,
    ) -> Result<(Answer, Vec<u8>), ToolError> {
        let Frame { header, body, descriptors } = frame;
        let job = serde_json::from_slice(&header).map_err(|err| ToolError::internal(err.to_string()))?;
        match job {
            Job::ReadFile { access, path } => {
                let text = in_thread(move || read_whole_file(&self.scopes, &access, &path)).await?;
                Ok((Answer::Text, text.into_bytes()))
            }
            Job::WriteFile { access, path } => {
                let text = in_thread(move || write_whole_file(&self.scopes, &access, &path, &body)).await?;
                Ok((Answer::Text, text.into_bytes()))
            }
            Job::Run { command } => {
                let command = command.into_command(descriptors);
                let command = command.map_err(|err| ToolError::internal(err.to_string()))?;
                let mut finished = self.processes.run(command, cancel).await.map_err(process_error)?;
                let taken = |stream: &mut Stream| std::mem::take(&mut stream.text).into_bytes();
                let (mut body, stderr) = (taken(&mut finished.stdout), taken(&mut finished.stderr));
                let stdout_bytes = body.len();
                body.extend(stderr);
                Ok((Answer::Finished { finished: Box::new(finished), stdout_bytes }, body))
            }
        }
    }
}

async fn in_thread<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, ToolError> + Send + 'static,
) -> Result<T, ToolError> {
    let joined = tokio::task::spawn_blocking(work).await;
    joined.unwrap_or_else(|err| Err(ToolError::internal(format!("a file operation panicked: {err}"))))
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "tests inspect the file system directly")]
mod tests;
