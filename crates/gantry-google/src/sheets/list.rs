//! `list`: spreadsheets in Drive. The Sheets API cannot list them, so this needs a scope of Drive.

use gantry_tool::ToolError;

use super::{Input, SERVICE};
use crate::declare::Ctx;
use crate::drive::files::{FileList, ListOptions, list};
use crate::others_words::fenced;

pub(super) async fn run(ctx: &Ctx, input: &Input) -> Result<String, ToolError> {
    let account = ctx.state.api.accounts().resolve(input.account.as_deref())?;
    let options = ListOptions {
        query: "mimeType = 'application/vnd.google-apps.spreadsheet' and trashed = false".to_owned(),
        order: Some("modifiedTime desc"),
        max_results: input.max_results,
        page_token: input.page_token.clone(),
    };
    let FileList { lines, count, more } = list(&ctx.state, &ctx.call, &account, options).await?;
    if count == 0 {
        return Ok(format!("No spreadsheets, account {account}."));
    }
    Ok(format!("{count} spreadsheets, account {account}.\n{}{more}", fenced(SERVICE, &lines.join("\n"))))
}
