//! `google_sheets` reads, writes and formats spreadsheets.

use std::sync::Arc;

use gantry_protocol::AskedAction;
use gantry_tool::{AskedCall, Call, Crossing, Text, Tool, ToolError, Toolset};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::api::{ApiCall, Service};
use crate::declare::{Ctx, Google, declared};
use crate::errors::GoogleError;
use crate::ids::{object_id, required, segment};
use crate::questions::unresolved;

mod create;
mod format;
mod list;
pub(crate) mod read;
mod table;
#[cfg(test)]
mod tests;
mod write;

pub(crate) const NAME: &str = "google_sheets";
const SERVICE: &str = "Google Sheets";

const READ: &[&str] = &["spreadsheets.readonly", "spreadsheets", "drive.readonly", "drive.file", "drive"];
const WRITE: &[&str] = &["spreadsheets", "drive.file", "drive"];
/// The longest range in A1 notation.
const MAX_RANGE: usize = 300;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Action {
    Read,
    Write,
    Append,
    Create,
    List,
    Format,
}

/// Work with Google Sheets. `read` returns a range as a Markdown table (default: the whole first sheet). `write` overwrites a
/// range with values. `append` adds rows after the data of a sheet. `create` makes a spreadsheet. `list` lists spreadsheets.
/// `format` applies formatting requests of the Sheets API. Values are stored as they are; formulas need formulas = true.
#[derive(Debug, Clone, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Input {
    action: Action,
    /// The Google account, by address (default: the first one that signed in).
    account: Option<String>,
    /// The spreadsheet, as list returns it.
    spreadsheet_id: Option<String>,
    /// A range such as Sheet1!A1:C10, 'My sheet'!B:B or Sheet1.
    range: Option<String>,
    /// Rows of cells: texts, numbers, true, false; null leaves a cell as it is, "" clears it.
    values: Option<Vec<Vec<Value>>>,
    /// write, append: texts that begin with = become formulas, and dates and numbers in texts are recognised.
    #[serde(default)]
    formulas: bool,
    /// create: the title.
    title: Option<String>,
    /// create: the names of its sheets (default: one sheet).
    sheet_names: Option<Vec<String>>,
    /// format: requests of spreadsheets.batchUpdate that only change how cells look.
    format_requests: Option<Vec<Value>>,
    /// list: 1 to 100 (default 20).
    max_results: Option<u32>,
    /// list: the page that an earlier call named.
    page_token: Option<String>,
}

pub(crate) fn tool(google: &Arc<Google>) -> Tool {
    let asked = google.clone();
    declared(Tool::new(NAME, Toolset::Assistant, google, run))
        .crosses(crossings)
        .asks_as(move |call: AskedCall, input: Input| question(asked.clone(), call, input))
}

/// How an action crosses the border. Others may see an existing spreadsheet, and formulas can send data to any server.
fn crossings(_: &Call, input: Input) -> Vec<Crossing> {
    let change = |what: &str| vec![Crossing::Change { what: what.to_owned() }];
    match input.action {
        // A new spreadsheet belongs to the owner alone.
        Action::Read | Action::List | Action::Create => Vec::new(),
        Action::Write | Action::Append if input.formulas => change("write formulas into a Google Sheet"),
        Action::Write => change("overwrite cells of a Google Sheet"),
        Action::Append | Action::Format => vec![Crossing::Network],
    }
}

async fn question(google: Arc<Google>, call: AskedCall, input: Input) -> Option<AskedAction> {
    let described = match input.action {
        Action::Read | Action::List | Action::Create => return None,
        Action::Write | Action::Append => write::question(&google, &call, &input).await,
        Action::Format => format::question(&google, &call, &input).await,
    };
    described.or_else(|| unresolved(SERVICE, &input))
}

async fn run(ctx: Ctx, input: Input) -> Result<Text, ToolError> {
    match input.action {
        Action::Read => read::run(&ctx, &input).await,
        Action::Write | Action::Append => write::run(&ctx, &input).await,
        Action::Create => create::run(&ctx, &input).await,
        Action::List => list::run(&ctx, &input).await,
        Action::Format => format::run(&ctx, &input).await,
    }
    .map(Text)
}

impl Action {
    fn name(self) -> &'static str {
        match self {
            Action::Read => "read",
            Action::Write => "write",
            Action::Append => "append",
            Action::Create => "create",
            Action::List => "list",
            Action::Format => "format",
        }
    }
}

impl Input {
    fn spreadsheet(&self) -> Result<&str, ToolError> {
        object_id(
            "spreadsheet_id",
            required(self.action.name(), "spreadsheet_id", self.spreadsheet_id.as_deref())?,
        )
    }

    /// The range, if there is one, checked. Google reads A1 notation itself.
    fn checked_range(&self) -> Result<Option<&str>, ToolError> {
        let Some(range) = self.range.as_deref() else { return Ok(None) };
        match !range.trim().is_empty() && range.len() <= MAX_RANGE && !range.chars().any(char::is_control) {
            true => Ok(Some(range.trim())),
            false => Err(ToolError::input("range must be in A1 notation, such as Sheet1!A1:C10")),
        }
    }
}

/// The path of a range's values.
fn values_path(spreadsheet: &str, range: &str) -> String {
    format!("/{spreadsheet}/values/{}", segment(range))
}

/// The title of a spreadsheet and those of its sheets.
async fn titles(
    google: &Google,
    call: &Call,
    account: &str,
    spreadsheet: &str,
) -> Result<(String, Vec<String>), GoogleError> {
    let request = ApiCall::get(Service::Sheets, format!("/{spreadsheet}"), READ)
        .with("fields", "properties(title),sheets(properties(title))");
    let answer = google.api.call(call, Some(account), request).await?;
    let title = answer["properties"]["title"].as_str().unwrap_or_default().to_owned();
    let sheets = answer["sheets"].as_array().into_iter().flatten();
    let sheets = sheets.filter_map(|sheet| sheet["properties"]["title"].as_str()).map(str::to_owned);
    Ok((title, sheets.collect()))
}

/// The range of a whole sheet. The name is quoted, so that a sheet called A1 is not a cell.
fn whole_sheet(name: &str) -> String {
    format!("'{}'", name.replace('\'', "''"))
}
