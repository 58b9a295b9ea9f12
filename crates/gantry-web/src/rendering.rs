//! `markdown.render`, `ansi.render`, `diff.render` and `graph.layout`.

use std::sync::Arc;

use gantry_domain::MethodContext;
use gantry_protocol::{
    AnsiLines, AnsiParams, DiffParams, DiffRows, ErrorCode, GraphLayout, GraphParams, MarkdownDocuments,
    MarkdownParams, WireError,
};

use crate::web_domain::WebState;
use crate::{ansi, diff, graph, markdown};

const MAX_TEXTS: usize = 1_000;
const MAX_MARKDOWN_BYTES: usize = 8 << 20;
const MAX_ANSI_BYTES: usize = 4 << 20;
const MAX_DIFF_BYTES: usize = 4 << 20;

type Answer<T> = Result<T, WireError>;

pub(crate) async fn markdown(
    _: Arc<WebState>,
    _: MethodContext,
    params: MarkdownParams,
) -> Answer<MarkdownDocuments> {
    if params.texts.len() > MAX_TEXTS {
        return Err(too_large(format!("markdown.render takes at most {MAX_TEXTS} texts")));
    }
    check_length("markdown.render", params.texts.iter().map(String::len).sum(), MAX_MARKDOWN_BYTES)?;
    computed(move || MarkdownDocuments {
        documents: params.texts.iter().map(|text| markdown::document(text)).collect(),
    })
    .await
}

pub(crate) async fn ansi(_: Arc<WebState>, _: MethodContext, params: AnsiParams) -> Answer<AnsiLines> {
    check_length("ansi.render", params.text.len(), MAX_ANSI_BYTES)?;
    computed(move || ansi::lines(&params.text, params.style)).await
}

pub(crate) async fn diff(_: Arc<WebState>, _: MethodContext, params: DiffParams) -> Answer<DiffRows> {
    let texts = [&params.before, &params.after, &params.patch];
    check_length("diff.render", texts.into_iter().flatten().map(String::len).sum(), MAX_DIFF_BYTES)?;
    let rows = computed(move || diff::rows(&params)).await?;
    rows.map_err(|diff::Invalid(reason)| WireError::new(ErrorCode::BadParams, reason))
}

pub(crate) async fn graph(_: Arc<WebState>, _: MethodContext, params: GraphParams) -> Answer<GraphLayout> {
    let placed = computed(move || graph::layout(&params)).await?;
    placed.map_err(|graph::Invalid(reason)| WireError::new(ErrorCode::BadParams, reason))
}

fn check_length(method: &str, bytes: usize, limit: usize) -> Answer<()> {
    match bytes <= limit {
        true => Ok(()),
        false => Err(too_large(format!("{method} takes at most {} MB", limit >> 20))),
    }
}

fn too_large(message: String) -> WireError {
    WireError::new(ErrorCode::TooLarge, message)
}

/// Computes outside of the threads that serve connections.
async fn computed<T: Send + 'static>(compute: impl FnOnce() -> T + Send + 'static) -> Answer<T> {
    let done = tokio::task::spawn_blocking(compute).await;
    done.map_err(|err| WireError::new(ErrorCode::Internal, format!("cannot render: {err}")))
}
