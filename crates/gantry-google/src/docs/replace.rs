//! `replace`: finds and replaces text.

use gantry_tool::ToolError;
use serde_json::json;

use super::Input;
use super::read::{Loaded, load};
use super::write::update;
use crate::declare::Ctx;
use crate::ids::{object_id, required};

const MAX_TEXT: usize = 100_000;

pub(super) async fn run(ctx: &Ctx, input: &Input) -> Result<String, ToolError> {
    let id = object_id("document_id", required("replace", "document_id", input.document_id.as_deref())?)?;
    let find = required("replace", "find", input.find.as_deref())?;
    let new = required("replace", "replace_with", input.replace_with.as_deref())?;
    if find.is_empty() {
        return Err(ToolError::input("find must not be empty"));
    }
    if find.contains('\n') {
        return Err(ToolError::input("find must not contain line breaks; Docs searches within paragraphs"));
    }
    if find.len() > MAX_TEXT || new.len() > MAX_TEXT {
        return Err(ToolError::input(format!("find and replace_with have at most {MAX_TEXT} bytes each")));
    }
    let google = &ctx.state;
    let account = google.api.accounts().resolve(input.account.as_deref())?;
    let mut revision = String::new();
    if !input.replace_all.unwrap_or(true) {
        let document = load(google, &ctx.call, &account, id, Loaded::Tabs).await?;
        match document.occurrences(find) {
            0 => return Err(not_found(id)),
            1 => {}
            count => {
                let text = format!("the text occurs {count} times in document {id}; nothing was changed");
                return Err(
                    ToolError::input(text).with_hint("find a longer text, or set replace_all to true")
                );
            }
        }
        // The count holds for this revision only.
        revision = document.revision_id;
    }
    let request =
        json!({"replaceAllText": {"containsText": {"text": find, "matchCase": true}, "replaceText": new}});
    let answer = update(ctx, &account, id, &revision, &[request]).await?;
    match answer["replies"][0]["replaceAllText"]["occurrencesChanged"].as_u64().unwrap_or(0) {
        0 => Err(not_found(id)),
        1 => Ok(format!("Replaced 1 occurrence in document {id}. Account: {account}.")),
        count => Ok(format!("Replaced {count} occurrences in document {id}. Account: {account}.")),
    }
}

fn not_found(id: &str) -> ToolError {
    ToolError::failed(format!("the text does not occur in document {id}; nothing was changed"))
        .with_hint("the search is exact, with case; read the document first")
}
