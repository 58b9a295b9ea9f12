//! The test bench: services on folders, a wire that counts frames, and the transfer of one file.

use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};

use gantry_files::{FileError, Files, FilesOptions, Scope};
use gantry_protocol::{
    Caller, ErrorCode, SentKind, StreamFrame, StreamKind, TransferDone, TransferHas, TransferOpen,
    TransferOpened, TransferPrepare, TransferPrepared, WireError, method, raw,
};
use gantry_transfer::{
    BackendFuture, FileBackend, FrameFuture, FrameOut, Gone, PathOpener, TransferRequest, TransferService,
    Wanted,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

/// An opener that permits everything below one folder.
struct OpenFolder {
    backend: Arc<FileBackend>,
    root: PathBuf,
}

impl OpenFolder {
    /// The records of part files are stored next to the folder.
    fn service(root: PathBuf) -> Arc<TransferService> {
        let files = Files::new(FilesOptions::default()).unwrap();
        let records = files.part_records(&root.with_extension("parts"), "gateway").unwrap();
        let backend = Arc::new(FileBackend::new(records));
        TransferService::new(Arc::new(OpenFolder { backend: backend.clone(), root }), backend)
    }

    fn scope(&self) -> Scope {
        Files::new(FilesOptions::default()).unwrap().contained(&self.root).unwrap()
    }
}

fn beneath(root: &Path) -> Result<Scope, FileError> {
    Files::new(FilesOptions::default())?.contained(root)
}

impl PathOpener for OpenFolder {
    fn open(&self, request: TransferOpen, _cancel: CancellationToken) -> BackendFuture<'_, TransferOpened> {
        let opened = self.backend.open(&request.transfer, &request.path, self.scope(), &beneath);
        Box::pin(async { opened.map_err(|err| WireError::new(ErrorCode::Failed, err.to_string())) })
    }

    fn prepare(
        &self,
        request: TransferPrepare,
        cancel: CancellationToken,
    ) -> BackendFuture<'_, TransferPrepared> {
        let prepared = self.backend.prepare(
            &request.transfer,
            Wanted { path: &request.path, kind: request.kind, mode: request.mode },
            self.scope(),
            &beneath,
            &cancel,
        );
        Box::pin(async { prepared.map_err(|err| WireError::new(ErrorCode::Failed, err.to_string())) })
    }
}

/// What happens to a frame on the wire.
pub(crate) type Tamper = fn(StreamFrame) -> Vec<StreamFrame>;

/// Both directions of one wire.
struct Wire {
    services: [Arc<TransferService>; 2],
    /// How many more frames pass.
    left: AtomicI64,
    cut: CancellationToken,
    first_credit: Mutex<Option<oneshot::Sender<u64>>>,
    tamper: Tamper,
}

struct Plug {
    wire: Arc<Wire>,
    side: usize,
}

impl FrameOut for Plug {
    fn send(&self, frame: StreamFrame) -> FrameFuture<'_> {
        if self.wire.left.fetch_sub(1, Ordering::SeqCst) <= 0 {
            self.wire.cut.cancel();
            return Box::pin(std::future::ready(Err(Gone)));
        }
        for frame in (self.wire.tamper)(frame) {
            let ready =
                (frame.kind() == StreamKind::Credit).then(|| self.wire.first_credit.lock().unwrap().take());
            if let Some(ready) = ready.flatten() {
                let _ = ready.send(frame.offset());
            } else if let Some(back) = self.wire.services[1 - self.side].take(frame) {
                self.wire.services[self.side].take(back);
            }
        }
        Box::pin(std::future::ready(Ok(())))
    }

    fn closed(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(self.wire.cut.cancelled())
    }
}

pub(crate) struct World {
    pub(crate) folder: tempfile::TempDir,
    pub(crate) from: Arc<TransferService>,
    pub(crate) to: Arc<TransferService>,
    next: Mutex<u32>,
}

pub(crate) const CUT_NEVER: i64 = i64::MAX;

impl World {
    pub(crate) fn new() -> World {
        let folder = tempfile::tempdir().unwrap();
        let service = |name: &str| {
            let root = folder.path().join(name);
            std::fs::create_dir_all(&root).unwrap();
            OpenFolder::service(root)
        };
        World { from: service("from"), to: service("to"), next: Mutex::new(0), folder }
    }

    /// Restarts the receiving side: it keeps its files and loses its state.
    pub(crate) fn restart_receiver(&mut self) {
        self.to = OpenFolder::service(self.folder.path().join("to"));
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Returns the names in the receiving folder.
    pub(crate) fn received(&self) -> Vec<String> {
        let mut names: Vec<String> = std::fs::read_dir(self.path("to"))
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    /// Transfers `from/a` to `to/b` over a wire that is cut after `frames` frames.
    pub(crate) async fn transfer(&self, frames: i64, tamper: Tamper) -> Result<TransferDone, WireError> {
        let caller = Caller {
            principal: "operator".into(),
            agent: "main".into(),
            autonomy: "guided".into(),
            surface: "cli".into(),
            session: None,
            labels: Vec::new(),
            escalated: false,
            asks: false,
        };
        let open = TransferOpen {
            transfer: "t".into(),
            path: "a".into(),
            caller: caller.clone(),
            approved: Vec::new(),
        };
        let opened: TransferOpened = ask(&self.from, method::TRANSFER_OPEN, &open, None).await?;
        let kind = SentKind::File;
        let prepare = TransferPrepare {
            transfer: "t".into(),
            path: "b".into(),
            kind,
            mode: None,
            caller,
            source: None,
            approved: Vec::new(),
        };
        let _: TransferPrepared = ask(&self.to, method::TRANSFER_PREPARE, &prepare, None).await?;
        let has: TransferHas = ask(&self.to, method::TRANSFER_HAVE, &json!({"transfer": "t"}), None).await?;
        let stream = {
            let mut next = self.next.lock().unwrap();
            *next += 1;
            *next
        };
        let (ready, first_credit) = oneshot::channel();
        let wire = Arc::new(Wire {
            services: [self.from.clone(), self.to.clone()],
            left: AtomicI64::new(frames),
            cut: CancellationToken::new(),
            first_credit: Mutex::new(Some(ready)),
            tamper,
        });
        let plug = |side| Some(Arc::new(Plug { wire: wire.clone(), side }) as Arc<dyn FrameOut>);
        let receive = json!({"transfer": "t", "stream": stream, "from": has.have, "mode": opened.mode,
            "size": opened.size});
        let (to, out) = (self.to.clone(), plug(1));
        let mut receiving = tokio::spawn(async move {
            ask::<_, TransferDone>(&to, method::TRANSFER_RECEIVE, &receive, out).await
        });
        let credit = tokio::select! {
            credit = first_credit => credit.unwrap(),
            failed = &mut receiving => return Err(failed.unwrap().unwrap_err()),
        };
        let send = json!({"transfer": "t", "stream": stream, "from": has.have, "prefixHash": has.prefix_hash,
            "credit": credit});
        let sent: Result<TransferDone, WireError> =
            ask(&self.from, method::TRANSFER_SEND, &send, plug(0)).await;
        let received = receiving.await.unwrap();
        match (sent, received) {
            (Ok(sent), Ok(received)) => {
                assert_eq!(sent, received);
                Ok(received)
            }
            (Err(error), Err(other)) => Err(if error.code == ErrorCode::Unavailable { other } else { error }),
            (Err(error), _) | (_, Err(error)) => Err(error),
        }
    }

    pub(crate) async fn abandon(&self) {
        let _: Value =
            ask(&self.to, method::TRANSFER_ABANDON, &json!({"transfer": "t"}), None).await.unwrap();
    }
}

pub(crate) async fn ask<P: Serialize, R: DeserializeOwned>(
    service: &TransferService,
    method: &str,
    params: &P,
    out: Option<Arc<dyn FrameOut>>,
) -> Result<R, WireError> {
    let cancel = CancellationToken::new();
    let request = TransferRequest { method: method.to_owned(), params: raw(params), cancel, out };
    let answer = service.answer(request).await?;
    Ok(serde_json::from_str(answer.get()).unwrap())
}
