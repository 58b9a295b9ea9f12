//! `uploads.*` and `PUT /v1/uploads/{id}`: a file of the client becomes a file in an agent's storage. It arrives in pieces,
//! and an interrupted upload continues where it stopped, also after a restart of the gateway.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use axum::Extension;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use gantry_domain::http::{Named, bad_header, header_text, json_response, problem, read_body};
use gantry_domain::{Identity, MethodContext, RequestContext};
use gantry_protocol::{ErrorCode, UploadBegin, UploadDone, UploadId, UploadState, WireError};
use gantry_store::{PlainToken, Staged, content_type};
use gantry_tool::{Refusal, RefusalCode, ResumedWork};

use crate::storage_access::{StoredFile, Use};
use crate::web_domain::WebState;

/// Marks the staged files of uploads among those of transfers.
pub(crate) use gantry_store::UPLOAD_PREFIX;

/// Uploads that may be open at a time.
const MAX_OPEN: usize = 32;
/// An upload without a piece for this long is closed.
const IDLE_LIMIT: Duration = Duration::from_secs(3600);
/// The longest piece.
const MAX_PIECE: usize = 8 << 20;
const OFFSET_HEADER: &str = "gantry-offset";

#[derive(Default)]
pub(crate) struct Uploads(Mutex<HashMap<String, Arc<Upload>>>);

struct Upload {
    file: StoredFile,
    size: u64,
    /// Taken by the piece that is being written, and at the end.
    staged: Mutex<Option<Staged>>,
    work: Mutex<Option<ResumedWork>>,
    /// When it was begun, or its last piece came.
    used: Mutex<Instant>,
}

impl Uploads {
    fn open(&self) -> MutexGuard<'_, HashMap<String, Arc<Upload>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn find(&self, id: &str) -> Result<Arc<Upload>, WireError> {
        let unknown = || WireError::new(ErrorCode::NotFound, "there is no such upload; begin it again");
        self.open().get(id).cloned().ok_or_else(unknown)
    }
}

pub(crate) async fn begin(
    state: Arc<WebState>,
    context: MethodContext,
    params: UploadBegin,
) -> Result<UploadState, WireError> {
    let file = StoredFile::parse(params.agent, &params.path)?;
    let id = match params.upload {
        Some(id) if is_upload(&id) => id,
        Some(_) => return Err(WireError::new(ErrorCode::BadParams, "this is not the id of an upload")),
        None => {
            let made = PlainToken::one_time_code();
            let made = made.map_err(|err| WireError::new(ErrorCode::Internal, err.to_string()))?;
            format!("{UPLOAD_PREFIX}{}", made.expose())
        }
    };
    if let Some(known) = state.uploads.open().get(&id).cloned() {
        if known.file.key != file.key || known.size != params.size {
            let message = "this upload has another path or size; begin a new one";
            return Err(WireError::new(ErrorCode::Conflict, message));
        }
        let have = lock(&known.staged).as_ref().map(Staged::length);
        let busy = || WireError::new(ErrorCode::Conflict, "a piece of this upload is being written");
        return Ok(UploadState { upload: id, have: have.ok_or_else(busy)? });
    }
    let work = state.admit(&context, &file, Use::Write).await?;
    let (data, name) = (state.data.clone(), id.clone());
    let opened = tokio::task::spawn_blocking(move || Staged::open(&data, &name)).await;
    let staged = opened.map_err(|err| failed(&err))?.map_err(|err| failed(&err))?;
    let have = staged.length();
    let upload = Upload {
        file,
        size: params.size,
        staged: Mutex::new(Some(staged)),
        work: Mutex::new(Some(work)),
        used: Mutex::new(Instant::now()),
    };
    let mut open = state.uploads.open();
    // Their bytes stay on disk, so that they can be begun again.
    open.retain(|_, upload| lock(&upload.used).elapsed() < IDLE_LIMIT);
    if open.len() >= MAX_OPEN {
        let message = format!("{MAX_OPEN} uploads are open; finish or cancel one");
        return Err(WireError::new(ErrorCode::TooMany, message));
    }
    open.insert(id.clone(), Arc::new(upload));
    Ok(UploadState { upload: id, have })
}

/// Takes a piece. It may repeat bytes that have arrived, and must not leave a gap.
pub(crate) async fn put(
    State(context): State<RequestContext>,
    Extension(state): Extension<Arc<WebState>>,
    Extension(identity): Extension<Identity>,
    Named(id): Named,
    headers: HeaderMap,
    body: Body,
) -> Response {
    match take_piece(&context, &state, &identity, &id, &headers, body).await {
        Ok(have) => json_response(StatusCode::OK, &UploadState { upload: id, have }),
        Err(refused) => *refused,
    }
}

async fn take_piece(
    context: &RequestContext,
    state: &WebState,
    identity: &Identity,
    id: &str,
    headers: &HeaderMap,
    body: Body,
) -> Result<u64, Box<Response>> {
    let refuse = |status, code: &str, message: &str| Box::new(problem(status, code, message, None));
    if !identity.is_operator() {
        return Err(refuse(StatusCode::FORBIDDEN, "forbidden", "only the operator may upload files"));
    }
    let unknown = |err: WireError| refuse(StatusCode::NOT_FOUND, "not_found", &err.message);
    let upload = state.uploads.find(id).map_err(unknown)?;
    let offset = header_text(headers, OFFSET_HEADER)?.and_then(|text| text.parse::<u64>().ok());
    let offset = offset.ok_or_else(|| bad_header(OFFSET_HEADER, "the offset of the piece in bytes"))?;
    let piece = read_body(&context.quota.of(identity), body).await?;
    if piece.bytes.len() > MAX_PIECE {
        let message = format!("a piece has at most {} MB", MAX_PIECE >> 20);
        return Err(refuse(StatusCode::PAYLOAD_TOO_LARGE, "too_large", &message));
    }
    let end = u64::try_from(piece.bytes.len()).ok().and_then(|length| offset.checked_add(length));
    if end.is_none_or(|end| end > upload.size) {
        let message = format!("the file was declared to have {} bytes", upload.size);
        return Err(refuse(StatusCode::BAD_REQUEST, "bad_params", &message));
    }
    let Some(mut staged) = lock(&upload.staged).take() else {
        return Err(refuse(
            StatusCode::CONFLICT,
            "conflict",
            "another piece of this upload is being written",
        ));
    };
    let have = staged.length();
    if offset > have {
        *lock(&upload.staged) = Some(staged);
        let message = format!("{have} bytes have arrived; continue there");
        return Err(refuse(StatusCode::CONFLICT, "conflict", &message));
    }
    *lock(&upload.used) = Instant::now();
    // The task gives the file back also when the client disconnects.
    let held = upload.clone();
    let written = tokio::task::spawn_blocking(move || {
        let written = staged.write_at(offset, &piece.bytes);
        let have = staged.length();
        *lock(&held.staged) = Some(staged);
        written.map(|()| have)
    });
    match written.await {
        Ok(Ok(have)) => Ok(have),
        Ok(Err(err)) => {
            let message = format!("cannot store the piece: {err}");
            Err(refuse(StatusCode::INSUFFICIENT_STORAGE, "failed", &message))
        }
        Err(err) => Err(refuse(StatusCode::INTERNAL_SERVER_ERROR, "internal", &err.to_string())),
    }
}

pub(crate) async fn finish(
    state: Arc<WebState>,
    _: MethodContext,
    params: UploadId,
) -> Result<UploadDone, WireError> {
    let upload = state.uploads.find(&params.upload)?;
    let busy = || WireError::new(ErrorCode::Conflict, "a piece of this upload is being written");
    let staged = lock(&upload.staged).take().ok_or_else(busy)?;
    let have = staged.length();
    if have != upload.size {
        *lock(&upload.staged) = Some(staged);
        let message = format!("{have} of {} bytes have arrived", upload.size);
        return Err(WireError::new(ErrorCode::Conflict, message));
    }
    let checked = tokio::task::spawn_blocking(move || {
        let hash = staged.hash_prefix().map(|hasher| hasher.finalize().to_hex().to_string());
        let synced = hash.and_then(|hash| staged.sync().map(|()| hash));
        (staged, synced)
    });
    let (staged, hash) = checked.await.map_err(|err| failed(&err))?;
    let hash = match hash {
        Ok(hash) => hash,
        Err(err) => {
            *lock(&upload.staged) = Some(staged);
            return Err(failed(&err));
        }
    };
    let kind = content_type(&upload.file.key);
    let put = state.objects.put_staged(&upload.file.key, staged, kind, None, &|| {}).await;
    // On failure the bytes stay on disk, and the upload can be begun again with its id.
    state.uploads.open().remove(&params.upload);
    let work = lock(&upload.work).take();
    match put {
        Ok(()) => {
            if let Some(work) = work {
                work.ended(Ok(()));
            }
            let path = format!("gsv:{}", upload.file.path);
            Ok(UploadDone { path, size: upload.size, hash })
        }
        Err(err) => {
            let refusal = Refusal::new(RefusalCode::Unavailable, err.to_string());
            if let Some(work) = work {
                work.ended(Err(&refusal));
            }
            Err(failed(&err))
        }
    }
}

pub(crate) async fn cancel(
    state: Arc<WebState>,
    _: MethodContext,
    params: UploadId,
) -> Result<UploadId, WireError> {
    let upload = state.uploads.find(&params.upload)?;
    let staged = lock(&upload.staged).take();
    let busy = || WireError::new(ErrorCode::Conflict, "a piece of this upload is being written");
    state.objects.discard_staged(staged.ok_or_else(busy)?).await.map_err(|err| failed(&err))?;
    state.uploads.open().remove(&params.upload);
    if let Some(work) = lock(&upload.work).take() {
        work.ended(Err(&Refusal::new(RefusalCode::Cancelled, "the upload was cancelled")));
    }
    Ok(params)
}

/// An id that this module made: others name the files of transfers.
fn is_upload(id: &str) -> bool {
    let rest = id.strip_prefix(UPLOAD_PREFIX);
    rest.is_some_and(|rest| {
        rest.len() == 22 && rest.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_".contains(&b))
    })
}

fn lock<T>(value: &Mutex<T>) -> MutexGuard<'_, T> {
    value.lock().unwrap_or_else(PoisonError::into_inner)
}

fn failed(err: &dyn std::fmt::Display) -> WireError {
    WireError::new(ErrorCode::Failed, err.to_string())
}
