//! `write` overwrites a range, and `append` adds rows after the data of a sheet.

use gantry_net::Method;
use gantry_protocol::AskedAction;
use gantry_tool::{AskedCall, ToolError};
use serde_json::{Value, json};

use super::{Action, Input, SERVICE, WRITE, table, titles, values_path, whole_sheet};
use crate::api::{ApiCall, Service};
use crate::declare::{Ctx, Google};
use crate::ids::required;
use crate::others_words::line;
use crate::questions::{change, field, quoted};

const MAX_CELLS: usize = 50_000;

/// The values, checked. Objects and lists are not cells.
fn values(input: &Input) -> Result<&Vec<Vec<Value>>, ToolError> {
    let rows = required(input.action.name(), "values", input.values.as_ref())?;
    let cells: usize = rows.iter().map(Vec::len).sum();
    if cells == 0 || cells > MAX_CELLS {
        return Err(ToolError::input(format!("values must have 1 to {MAX_CELLS} cells")));
    }
    if rows.iter().flatten().any(|cell| cell.is_object() || cell.is_array()) {
        return Err(ToolError::input("values must be rows of texts, numbers, true, false and null"));
    }
    Ok(rows)
}

fn is_formula(cell: &Value) -> bool {
    cell.as_str().is_some_and(|text| text.trim_start().starts_with(['=', '+', '-', '@']))
}

pub(super) async fn question(google: &Google, asked: &AskedCall, input: &Input) -> Option<AskedAction> {
    let rows = values(input).ok()?;
    let account = google.api.accounts().resolve(input.account.as_deref()).ok()?;
    let spreadsheet = input.spreadsheet().ok()?;
    let (title, _) = titles(google, &asked.call, &account, spreadsheet).await.unwrap_or_default();
    let title = if title.is_empty() { spreadsheet.to_owned() } else { line(&title, 200) };
    let range = line(input.checked_range().ok()?.unwrap_or("the first sheet"), 300);
    let (height, width) = (rows.len(), rows.iter().map(Vec::len).max().unwrap_or(0));
    let what = match input.action {
        Action::Append => format!("append {height} rows to {range} of \"{title}\""),
        _ => format!("overwrite {range} of \"{title}\" with {height} × {width} cells"),
    };
    let mut details = vec![field("Account", &account)];
    if input.formulas {
        let count = rows.iter().flatten().filter(|cell| is_formula(cell)).count();
        details.push(field("Formulas", &format!("{count}; a formula can send data to other servers")));
    }
    details.push(quoted("Cells", &table::markdown(rows)));
    change(SERVICE, what, &details)
}

pub(super) async fn run(ctx: &Ctx, input: &Input) -> Result<String, ToolError> {
    let google = &ctx.state;
    let account = google.api.accounts().resolve(input.account.as_deref())?;
    let spreadsheet = input.spreadsheet()?;
    let body = json!({"values": values(input)?});
    let option = if input.formulas { "USER_ENTERED" } else { "RAW" };
    let range = match (input.checked_range()?, input.action) {
        (Some(range), _) => range.to_owned(),
        (None, Action::Append) => {
            let (_, sheets) = titles(google, &ctx.call, &account, spreadsheet).await?;
            whole_sheet(sheets.first().ok_or_else(|| ToolError::failed("the spreadsheet has no sheets"))?)
        }
        (None, _) => return Err(ToolError::input("write needs the field range")),
    };
    let path = values_path(spreadsheet, &range);
    let request = match input.action {
        // Rows would be there twice, so a lost answer is reported and the request is not repeated.
        Action::Append => ApiCall::send(Service::Sheets, Method::POST, format!("{path}:append"), WRITE, body)
            .with("insertDataOption", "INSERT_ROWS"),
        _ => ApiCall::send(Service::Sheets, Method::PUT, path, WRITE, body).repeatable(),
    };
    let answer = google.api.call(&ctx.call, Some(&account), request.with("valueInputOption", option)).await?;
    let updated = if input.action == Action::Append { &answer["updates"] } else { &answer };
    let (cells, range) =
        (updated["updatedCells"].as_u64().unwrap_or(0), updated["updatedRange"].as_str().unwrap_or(&range));
    let verb = if input.action == Action::Append { "appended to" } else { "written to" };
    Ok(format!("{cells} cells were {verb} {}, account {account}.", line(range, 300)))
}
