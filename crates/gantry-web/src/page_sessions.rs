//! `page.link`, `page.sessions` and `page.revoke`.

use std::sync::Arc;

use gantry_domain::{Identity, MethodContext};
use gantry_protocol::{
    ALL_PAGE_SESSIONS, Empty, ErrorCode, PageLink, PageRevoke, PageRevoked, PageSessionInfo, PageSessionList,
    WireError,
};
use gantry_store::{DatabaseError, PageSession};

use crate::web_domain::{WebState, now_ms};

pub(crate) async fn link(state: Arc<WebState>, _: MethodContext, _: Empty) -> Result<PageLink, WireError> {
    state.link().map_err(|err| WireError::new(ErrorCode::Internal, format!("cannot make a code: {err}")))
}

pub(crate) async fn list(
    state: Arc<WebState>,
    context: MethodContext,
    _: Empty,
) -> Result<PageSessionList, WireError> {
    let own = match &context.identity {
        Identity::Page(session) => Some(session.id.clone()),
        _ => None,
    };
    let info = |session: PageSession| PageSessionInfo {
        current: own.as_ref() == Some(&session.id),
        id: session.id,
        browser: session.browser,
        address: session.address,
        created: session.created,
        last_used: session.last_used,
    };
    Ok(PageSessionList { sessions: all(&state).await?.into_iter().map(info).collect() })
}

pub(crate) async fn revoke(
    state: Arc<WebState>,
    _: MethodContext,
    params: PageRevoke,
) -> Result<PageRevoked, WireError> {
    let all = all(&state).await?;
    let ids: Vec<String> = match params.id.as_str() {
        ALL_PAGE_SESSIONS => all.into_iter().map(|session| session.id).collect(),
        id => vec![only(&all, id)?],
    };
    // A link that a browser made before it was logged out must not log it in again.
    state.codes.clear();
    for id in &ids {
        state.database.remove_page_session(id).await.map_err(failed)?;
        if let Some((_, services)) = state.running.get() {
            services.end_page_session(id);
        }
        tracing::info!(session = id, "page_session_revoked");
    }
    Ok(PageRevoked { ids })
}

async fn all(state: &WebState) -> Result<Vec<PageSession>, WireError> {
    state.database.list_page_sessions(now_ms()).await.map_err(failed)
}

/// The session whose id begins like this.
fn only(all: &[PageSession], id: &str) -> Result<String, WireError> {
    let shown: String = id.chars().take(64).collect();
    let matching: Vec<&str> =
        all.iter().map(|session| session.id.as_str()).filter(|known| known.starts_with(id)).collect();
    match matching.as_slice() {
        [one] if !id.is_empty() => Ok((*one).to_owned()),
        [] => Err(WireError::new(
            ErrorCode::NotFound,
            format!("there is no page session {shown:?}; `gantry page --list` lists them"),
        )),
        several => Err(WireError::new(
            ErrorCode::Conflict,
            format!("{shown:?} is the beginning of {} page sessions: {}", several.len(), several.join(", ")),
        )),
    }
}

fn failed(err: DatabaseError) -> WireError {
    WireError::new(ErrorCode::Internal, err.to_string())
}
