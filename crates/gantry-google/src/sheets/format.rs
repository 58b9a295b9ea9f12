//! `format`: requests that change how cells look, and nothing else. The API's other requests delete sheets, move data and
//! load data from elsewhere, so only listed kinds pass.

use gantry_net::Method;
use gantry_protocol::AskedAction;
use gantry_tool::{AskedCall, ToolError};
use serde_json::{Value, json};

use super::{Input, SERVICE, WRITE, titles};
use crate::api::{ApiCall, Service};
use crate::declare::{Ctx, Google};
use crate::ids::required;
use crate::others_words::line;
use crate::questions::{change, field, quoted};

const MAX_REQUESTS: usize = 500;
const KINDS: [&str; 14] = [
    "repeatCell",
    "updateBorders",
    "mergeCells",
    "unmergeCells",
    "updateDimensionProperties",
    "autoResizeDimensions",
    "setBasicFilter",
    "clearBasicFilter",
    "addConditionalFormatRule",
    "deleteConditionalFormatRule",
    "addBanding",
    "updateBanding",
    "deleteBanding",
    "updateSheetProperties",
];
/// The properties of a sheet that may change: how it looks, not its name or whether it is hidden.
const SHEET_FIELDS: [&str; 5] = [
    "gridProperties.frozenRowCount",
    "gridProperties.frozenColumnCount",
    "gridProperties.hideGridlines",
    "tabColor",
    "tabColorStyle",
];

/// The requests, checked, and their kinds.
fn requests(input: &Input) -> Result<(&Vec<Value>, Vec<&str>), ToolError> {
    let requests = required("format", "format_requests", input.format_requests.as_ref())?;
    if requests.is_empty() || requests.len() > MAX_REQUESTS {
        return Err(ToolError::input(format!("format_requests must have 1 to {MAX_REQUESTS} requests")));
    }
    let mut kinds = Vec::new();
    for (at, request) in requests.iter().enumerate() {
        let only = request.as_object().filter(|kinds| kinds.len() == 1).and_then(|kinds| kinds.iter().next());
        let (kind, inner) = only.ok_or_else(|| {
            ToolError::input(format!("format_requests[{at}] must be an object with one kind of request"))
        })?;
        if !KINDS.contains(&kind.as_str()) {
            return Err(ToolError::input(format!(
                "format_requests[{at}]: {} is not a formatting request",
                line(kind, 60)
            ))
            .with_hint(format!("these are: {}", KINDS.join(", "))));
        }
        let mask = inner["fields"].as_str().unwrap_or_default();
        if kind == "repeatCell" && !is_format_mask(mask) {
            return Err(ToolError::input(format!(
                "format_requests[{at}]: the fields of repeatCell must be userEnteredFormat or below it"
            )));
        }
        let mut fields = mask.split(',').map(str::trim);
        if kind == "updateSheetProperties" && !fields.all(|field| SHEET_FIELDS.contains(&field)) {
            return Err(ToolError::input(format!(
                "format_requests[{at}]: the fields of updateSheetProperties must be among {}",
                SHEET_FIELDS.join(", ")
            )));
        }
        if reaches_out(inner) {
            return Err(ToolError::input(format!(
                "format_requests[{at}]: formulas and links are not formatting"
            )));
        }
        kinds.push(kind.as_str());
    }
    Ok((requests, kinds))
}

/// Whether a mask names only formats of cells: `userEnteredFormat`, `userEnteredFormat.textFormat` or
/// `userEnteredFormat(textFormat,padding)`.
fn is_format_mask(mask: &str) -> bool {
    let mut depth = 0_i32;
    let outer = mask.split(|c: char| {
        depth += i32::from(c == '(') - i32::from(c == ')');
        c == ',' && depth == 0
    });
    let is_format = |part: &str| {
        let rest = part.trim().strip_prefix("userEnteredFormat");
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '(']))
    };
    outer.into_iter().all(is_format)
}

/// Whether a request contains a formula or a link.
fn reaches_out(value: &Value) -> bool {
    match value {
        Value::String(text) => text.trim_start().starts_with('=') || text == "CUSTOM_FORMULA",
        Value::Array(items) => items.iter().any(reaches_out),
        Value::Object(fields) => {
            let is_link = |name: &String| matches!(name.as_str(), "link" | "hyperlink" | "formulaValue");
            fields.iter().any(|(name, value)| is_link(name) || reaches_out(value))
        }
        _ => false,
    }
}

pub(super) async fn question(google: &Google, asked: &AskedCall, input: &Input) -> Option<AskedAction> {
    let (requests, _) = requests(input).ok()?;
    let account = google.api.accounts().resolve(input.account.as_deref()).ok()?;
    let spreadsheet = input.spreadsheet().ok()?;
    let (title, _) = titles(google, &asked.call, &account, spreadsheet).await.unwrap_or_default();
    let title = if title.is_empty() { spreadsheet.to_owned() } else { line(&title, 200) };
    let lines: Vec<String> = requests.iter().map(Value::to_string).collect();
    let details = [field("Account", &account), quoted("Requests", &lines.join("\n"))];
    change(SERVICE, format!("format \"{title}\" with {} requests", requests.len()), &details)
}

pub(super) async fn run(ctx: &Ctx, input: &Input) -> Result<String, ToolError> {
    let google = &ctx.state;
    let account = google.api.accounts().resolve(input.account.as_deref())?;
    let spreadsheet = input.spreadsheet()?;
    let (requests, kinds) = requests(input)?;
    let body = json!({"requests": requests});
    let request =
        ApiCall::send(Service::Sheets, Method::POST, format!("/{spreadsheet}:batchUpdate"), WRITE, body);
    google.api.call(&ctx.call, Some(&account), request).await?;
    Ok(format!("{} formatting requests were applied ({}), account {account}.", kinds.len(), kinds.join(", ")))
}
