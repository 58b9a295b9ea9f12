//! [`Attempt`] is one try to transfer everything, for as long as both connections last. The next attempt continues
//! with what has arrived.

use std::sync::Arc;

use gantry_protocol::{
    SentKind, TransferOpen, TransferOpened, TransferOver, TransferPrepare, TransferPrepared, method,
};
use gantry_tool::Policy;
use gantry_toolsets::Endpoint;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::connection::EndpointConnection;
use crate::failure::Failure;
use crate::meter::Meter;
use crate::progress::TransferProgress;
use crate::relay::Relay;
use crate::spec::TransferSpec;

mod file;
mod tree;

use file::StartAt;

pub(crate) struct Attempt<'a> {
    pub(crate) spec: &'a TransferSpec,
    pub(crate) policy: &'a Policy,
    pub(crate) source: EndpointConnection,
    pub(crate) destination: EndpointConnection,
    pub(crate) relay: Arc<Relay>,
    pub(crate) meter: Arc<Meter>,
}

impl Attempt<'_> {
    /// Opens the source and prepares the destination.
    pub(crate) async fn begin(&self, progress: &mut TransferProgress) -> Result<TransferOpened, Failure> {
        let mut opened = self.open().await?;
        if opened.kind == SentKind::Directory && !progress.begun && self.rules_differ_by_entry() {
            self.check_tree().await?;
            opened = self.open().await?;
        }
        check_mode(opened.mode).map_err(|reason| Failure::failed(reason).at(&self.spec.source))?;
        let prepare = TransferPrepare {
            transfer: self.spec.id.clone(),
            path: self.spec.destination.path().to_owned(),
            kind: opened.kind,
            mode: self.root_mode(&opened),
            caller: self.spec.caller.clone(),
            // Only the machine itself can see that two paths lead to the same file.
            source: self.spec.is_on_one_machine().then(|| opened.path.clone()),
            approved: self.spec.approved(&self.spec.destination, "Write"),
        };
        let _: TransferPrepared = self.request_destination(method::TRANSFER_PREPARE, &prepare).await?;
        self.meter.moved();
        progress.begun = true;
        Ok(opened)
    }

    async fn open(&self) -> Result<TransferOpened, Failure> {
        let open = TransferOpen {
            transfer: self.spec.id.clone(),
            path: self.spec.source.path().to_owned(),
            caller: self.spec.caller.clone(),
            approved: self.spec.approved(&self.spec.source, "Read"),
        };
        let opened = self.source.request(method::TRANSFER_OPEN, &open).await;
        opened.map_err(|failure| failure.at(&self.spec.source))
    }

    /// Copies the opened file or directory and ends the transfer at both endpoints.
    pub(crate) async fn copy_all(
        &self,
        opened: TransferOpened,
        progress: &mut TransferProgress,
    ) -> Result<(), Failure> {
        match opened.kind {
            SentKind::File => {
                self.meter.set_total(opened.size);
                self.meter.set_done(0);
                let start = if progress.from_zero { StartAt::Zero } else { StartAt::ArrivedBytes };
                let done = self.copy_file(None, start, opened.mode, Some(opened.size)).await?;
                let mut arrived = progress.arrived();
                arrived.mime = opened.mime.or_else(|| mime_by_name(&opened.path));
                arrived.bytes = done.bytes;
            }
            SentKind::Directory => self.copy_tree(progress).await?,
        }
        let over = TransferOver { transfer: self.spec.id.clone(), entries: Vec::new() };
        let _: Value = self.destination.request(method::TRANSFER_FINISH, &over).await?;
        // Everything has arrived. A source that cannot be reached now closes the transfer later by itself.
        let _: Result<Value, _> = self.source.request(method::TRANSFER_FINISH, &over).await;
        Ok(())
    }

    async fn request_destination<P: Serialize, R: DeserializeOwned>(
        &self,
        method: &str,
        params: &P,
    ) -> Result<R, Failure> {
        let answer = self.destination.request(method, params).await;
        answer.map_err(|failure| failure.at(&self.spec.destination))
    }

    /// Returns the mode for the directory that is created. Directories of the workspace have no mode.
    fn root_mode(&self, opened: &TransferOpened) -> Option<u32> {
        let from_node = matches!(self.spec.source, Endpoint::Node { .. });
        (opened.kind == SentKind::Directory && from_node).then_some(opened.mode)
    }
}

/// Returns the type that the file name makes certain. For other names the store assumes text, which is only a guess for
/// a file of a node.
fn mime_by_name(path: &str) -> Option<String> {
    let mime = gantry_store::content_type(path);
    let is_guess = mime == "application/octet-stream" || (mime == "text/plain" && !path.ends_with(".txt"));
    (!is_guess).then(|| mime.to_owned())
}

/// Accepts permission bits and the special bits, which are never set. Any other number comes from a broken source.
fn check_mode(mode: u32) -> Result<(), String> {
    if mode <= 0o7777 { Ok(()) } else { Err(format!("invalid mode {mode}")) }
}
