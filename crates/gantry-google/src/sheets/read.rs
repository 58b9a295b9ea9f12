//! `read`: a range as a Markdown table.

use gantry_tool::{Call, ToolError};
use serde_json::Value;

use super::{Input, READ, SERVICE, table, titles, values_path, whole_sheet};
use crate::api::{ApiCall, Service};
use crate::declare::{Ctx, Google};
use crate::errors::GoogleError;
use crate::others_words::{fenced, line};

/// The most sheets that are read at once.
const MAX_SHEETS: usize = 20;

pub(super) async fn run(ctx: &Ctx, input: &Input) -> Result<String, ToolError> {
    let google = &ctx.state;
    let account = google.api.accounts().resolve(input.account.as_deref())?;
    let spreadsheet = input.spreadsheet()?;
    let (range, others) = match input.checked_range()? {
        Some(range) => (range.to_owned(), Vec::new()),
        None => {
            let (_, sheets) = titles(google, &ctx.call, &account, spreadsheet).await?;
            let first = sheets.first().ok_or_else(|| ToolError::failed("the spreadsheet has no sheets"))?;
            (whole_sheet(first), sheets[1..].to_vec())
        }
    };
    let request = ApiCall::get(Service::Sheets, values_path(spreadsheet, &range), READ);
    let answer = google.api.call(&ctx.call, Some(&account), request).await?;
    let rows: Vec<Vec<Value>> = serde_json::from_value(answer["values"].clone()).unwrap_or_default();
    if rows.is_empty() {
        return Ok(format!("The range is empty, account {account}."));
    }
    let read = line(answer["range"].as_str().unwrap_or(&range), 300);
    let mut text = format!("Range: {read}\n\n{}", table::markdown(&rows));
    if !others.is_empty() {
        let names: Vec<String> = others.iter().map(|name| line(name, 100)).collect();
        text.push_str(&format!("\n\nFurther sheets: {}", names.join(", ")));
    }
    Ok(format!("{} rows, account {account}.\n{}", rows.len(), fenced(SERVICE, &text)))
}

/// Every sheet of a spreadsheet as a table, for `google_drive`. The export of a spreadsheet has its first sheet only.
pub(crate) async fn all_sheets(
    google: &Google,
    call: &Call,
    account: &str,
    id: &str,
) -> Result<String, GoogleError> {
    let (_, sheets) = titles(google, call, account, id).await?;
    let mut text = String::new();
    for name in sheets.iter().take(MAX_SHEETS) {
        let request = ApiCall::get(Service::Sheets, values_path(id, &whole_sheet(name)), READ);
        let answer = google.api.call(call, Some(account), request).await?;
        let rows: Vec<Vec<Value>> = serde_json::from_value(answer["values"].clone()).unwrap_or_default();
        text.push_str(&format!("## {}\n\n{}\n\n", line(name, 100), table::markdown(&rows)));
    }
    if sheets.len() > MAX_SHEETS {
        text.push_str(&format!(
            "({} more sheets: use google_sheets with a range)",
            sheets.len() - MAX_SHEETS
        ));
    }
    Ok(text)
}
