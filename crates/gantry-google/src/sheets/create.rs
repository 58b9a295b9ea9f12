//! `create`: a new spreadsheet, which only the owner can see.

use gantry_net::Method;
use gantry_tool::ToolError;
use serde_json::{Value, json};

use super::{Input, WRITE};
use crate::api::{ApiCall, Service};
use crate::declare::Ctx;
use crate::ids::required;
use crate::others_words::line;

const MAX_SHEETS: usize = 50;

pub(super) async fn run(ctx: &Ctx, input: &Input) -> Result<String, ToolError> {
    let google = &ctx.state;
    let account = google.api.accounts().resolve(input.account.as_deref())?;
    let title = required("create", "title", input.title.as_deref())?;
    let mut body = json!({"properties": {"title": title}});
    if let Some(names) = &input.sheet_names {
        if names.is_empty() || names.len() > MAX_SHEETS {
            return Err(ToolError::input(format!("sheet_names must have 1 to {MAX_SHEETS} names")));
        }
        let sheets: Vec<Value> = names.iter().map(|name| json!({"properties": {"title": name}})).collect();
        body["sheets"] = json!(sheets);
    }
    let request = ApiCall::send(Service::Sheets, Method::POST, "", WRITE, body);
    let answer = google.api.call(&ctx.call, Some(&account), request).await?;
    let text = |name: &str| line(answer[name].as_str().unwrap_or_default(), 500);
    Ok(format!(
        "The spreadsheet {:?} was created, account {account}.\nspreadsheet_id: {}\nlink: {}",
        line(title, 200),
        text("spreadsheetId"),
        text("spreadsheetUrl")
    ))
}
