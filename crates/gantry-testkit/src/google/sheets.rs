//! The behaviour of Google Sheets: A1 ranges, values that are left out at the end, appending after a table.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{Reply, Seen};

#[derive(Default)]
pub struct Sheets {
    pub spreadsheets: BTreeMap<String, Spreadsheet>,
    next: u64,
}

#[derive(Debug, Clone, Default)]
pub struct Spreadsheet {
    pub title: String,
    /// Sheets in their order: title and rows.
    pub sheets: Vec<(String, Vec<Vec<Value>>)>,
    /// Requests of `batchUpdate` that were applied.
    pub updates: Vec<Value>,
}

/// A range within a sheet, from zero. The ends are exclusive; an open end is `None`.
struct Range {
    sheet: usize,
    rows: (usize, Option<usize>),
    columns: (usize, Option<usize>),
}

impl Sheets {
    /// Adds a spreadsheet and returns its id.
    pub fn add(&mut self, title: &str, sheets: &[(&str, Value)]) -> String {
        self.next += 1;
        let id = format!("sheet-{:05}", self.next);
        let rows = |value: &Value| -> Vec<Vec<Value>> {
            value
                .as_array()
                .into_iter()
                .flatten()
                .map(|row| row.as_array().cloned().unwrap_or_default())
                .collect()
        };
        let sheets = sheets.iter().map(|(name, value)| ((*name).to_owned(), rows(value))).collect();
        let spreadsheet = Spreadsheet { title: title.to_owned(), sheets, updates: Vec::new() };
        self.spreadsheets.insert(id.clone(), spreadsheet);
        id
    }
}

impl Spreadsheet {
    fn range(&self, text: &str) -> Option<Range> {
        let (sheet, cells) = match text.rsplit_once('!') {
            Some((sheet, cells)) => (Some(unquoted(sheet)), Some(cells)),
            None if self.sheets.iter().any(|(name, _)| *name == unquoted(text)) => {
                (Some(unquoted(text)), None)
            }
            None => (None, Some(text)),
        };
        let sheet = match sheet {
            None => 0,
            Some(name) => self.sheets.iter().position(|(known, _)| *known == name)?,
        };
        let Some(cells) = cells else { return Some(Range { sheet, rows: (0, None), columns: (0, None) }) };
        let (from, to) = cells.split_once(':').unwrap_or((cells, cells));
        let (from_column, from_row) = cell(from)?;
        let (to_column, to_row) = cell(to)?;
        Some(Range {
            sheet,
            rows: (from_row.unwrap_or(0), to_row.map(|row| row + 1)),
            columns: (from_column.unwrap_or(0), to_column.map(|column| column + 1)),
        })
    }

    fn described(&self, range: &Range, height: usize, width: usize) -> String {
        let name = &self.sheets[range.sheet].0;
        let plain = name.chars().all(char::is_alphanumeric);
        let name = if plain { name.clone() } else { format!("'{}'", name.replace('\'', "''")) };
        let (row, column) = (range.rows.0, range.columns.0);
        let last = (row + height.max(1), column + width.max(1) - 1);
        format!("{name}!{}{}:{}{}", letters(column), row + 1, letters(last.1), last.0)
    }

    fn put(&mut self, range: &Range, row: usize, values: &[Vec<Value>], is_raw: bool) -> (usize, usize) {
        let rows = &mut self.sheets[range.sheet].1;
        let mut width = 0;
        for (at, given) in values.iter().enumerate() {
            while rows.len() <= row + at {
                rows.push(Vec::new());
            }
            for (offset, value) in given.iter().enumerate() {
                let cells = &mut rows[row + at];
                while cells.len() <= range.columns.0 + offset {
                    cells.push(json!(""));
                }
                // `null` leaves a cell as it is.
                if !value.is_null() {
                    let is_formula = !is_raw && value.as_str().is_some_and(|text| text.starts_with('='));
                    cells[range.columns.0 + offset] = match is_formula {
                        true => json!({"formula": value}),
                        false => value.clone(),
                    };
                }
            }
            width = width.max(given.len());
        }
        (values.len(), width)
    }
}

fn unquoted(name: &str) -> String {
    match name.strip_prefix('\'').and_then(|name| name.strip_suffix('\'')) {
        Some(inside) => inside.replace("''", "'"),
        None => name.to_owned(),
    }
}

/// Column and row of a cell such as `B7`, a column `B` or a row `7`.
fn cell(text: &str) -> Option<(Option<usize>, Option<usize>)> {
    let at = text.find(|c: char| c.is_ascii_digit()).unwrap_or(text.len());
    let (column, row) = text.split_at(at);
    if text.is_empty() || column.len() > 3 || !column.bytes().all(|byte| byte.is_ascii_alphabetic()) {
        return None;
    }
    let number = |column: &str| {
        column.bytes().fold(0, |sum, byte| sum * 26 + usize::from(byte.to_ascii_uppercase() - b'A') + 1) - 1
    };
    let row = match row {
        "" => None,
        row => Some(row.parse::<usize>().ok()?.checked_sub(1)?),
    };
    Some(((!column.is_empty()).then(|| number(column)), row))
}

fn letters(mut column: usize) -> String {
    let mut text = String::new();
    loop {
        text.insert(0, char::from(b'A' + u8::try_from(column % 26).unwrap()));
        if column < 26 {
            return text;
        }
        column = column / 26 - 1;
    }
}

/// A cell as `FORMATTED_VALUE` returns it.
fn formatted(value: &Value) -> Value {
    match value {
        Value::String(text) => json!(text),
        Value::Object(formula) => {
            json!(format!("result of {}", formula["formula"].as_str().unwrap_or_default()))
        }
        Value::Bool(flag) => json!(flag.to_string().to_uppercase()),
        other => json!(other.to_string()),
    }
}

pub(super) fn answer(state: &mut Sheets, seen: &Seen) -> Reply {
    if seen.id == "sheets.spreadsheets.create" {
        let title = seen.body["properties"]["title"].as_str().unwrap_or("Untitled spreadsheet").to_owned();
        let titles = seen.body["sheets"].as_array().into_iter().flatten();
        let mut titles: Vec<&str> =
            titles.filter_map(|sheet| sheet["properties"]["title"].as_str()).collect();
        if titles.is_empty() {
            titles.push("Sheet1");
        }
        let sheets: Vec<(&str, Value)> = titles.into_iter().map(|title| (title, json!([]))).collect();
        let id = state.add(&title, &sheets);
        return Reply::Json(described(&id, &state.spreadsheets[&id]));
    }
    let id = seen.path("spreadsheetId").to_owned();
    let Some(spreadsheet) = state.spreadsheets.get_mut(&id) else {
        return Reply::Error(404, "notFound", "Requested entity was not found.".to_owned());
    };
    if seen.id == "sheets.spreadsheets.get" {
        return Reply::Json(described(&id, spreadsheet));
    }
    if seen.id == "sheets.spreadsheets.batchUpdate" {
        return batch_update(&id, spreadsheet, seen);
    }
    let text = seen.path("range").to_owned();
    let Some(range) = spreadsheet.range(&text) else {
        return Reply::Error(400, "badRequest", format!("Unable to parse range: {text}"));
    };
    let is_raw = match seen.parameter("valueInputOption") {
        Some("RAW") => true,
        Some("USER_ENTERED") => false,
        _ if seen.id == "sheets.spreadsheets.values.get" => true,
        _ => {
            return Reply::Error(
                400,
                "badRequest",
                "'valueInputOption' is required but not specified".to_owned(),
            );
        }
    };
    let values: Vec<Vec<Value>> = serde_json::from_value(seen.body["values"].clone()).unwrap_or_default();
    match seen.id.as_str() {
        "sheets.spreadsheets.values.get" => {
            let rows = &spreadsheet.sheets[range.sheet].1;
            let until = range.rows.1.unwrap_or(rows.len()).min(rows.len());
            let mut found: Vec<Vec<Value>> = Vec::new();
            for row in rows.get(range.rows.0..until).unwrap_or_default() {
                let end = range.columns.1.unwrap_or(row.len()).min(row.len());
                let mut cells: Vec<Value> =
                    row.get(range.columns.0..end).unwrap_or_default().iter().map(formatted).collect();
                while cells.last().is_some_and(|cell| cell == "") {
                    cells.pop();
                }
                found.push(cells);
            }
            // Empty rows at the end are left out.
            while found.last().is_some_and(Vec::is_empty) {
                found.pop();
            }
            let width = found.iter().map(Vec::len).max().unwrap_or(1);
            let mut answer =
                json!({"range": spreadsheet.described(&range, found.len(), width), "majorDimension": "ROWS"});
            if !found.is_empty() {
                answer["values"] = json!(found);
            }
            Reply::Json(answer)
        }
        "sheets.spreadsheets.values.update" => {
            let too_large = range.rows.1.is_some_and(|end| values.len() > end - range.rows.0)
                || range
                    .columns
                    .1
                    .is_some_and(|end| values.iter().any(|row| row.len() > end - range.columns.0));
            // One cell stands for the corner of a larger range.
            if too_large && text.rsplit('!').next().is_some_and(|cells| cells.contains(':')) {
                return Reply::Error(
                    400,
                    "badRequest",
                    format!("Requested writing within range [{text}], but tried writing outside it"),
                );
            }
            let row = range.rows.0;
            let (height, width) = spreadsheet.put(&range, row, &values, is_raw);
            Reply::Json(updated(&id, &spreadsheet.described(&range, height, width), height, width))
        }
        "sheets.spreadsheets.values.append" => {
            let row = spreadsheet.sheets[range.sheet].1.len();
            let range = Range { rows: (row, None), ..range };
            let (height, width) = spreadsheet.put(&range, row, &values, is_raw);
            let updates = updated(&id, &spreadsheet.described(&range, height, width), height, width);
            Reply::Json(json!({"spreadsheetId": id, "updates": updates}))
        }
        other => Reply::Error(501, "notImplemented", format!("this server has no {other}")),
    }
}

fn updated(id: &str, range: &str, rows: usize, columns: usize) -> Value {
    json!({
        "spreadsheetId": id, "updatedRange": range, "updatedRows": rows, "updatedColumns": columns,
        "updatedCells": rows * columns,
    })
}

fn described(id: &str, spreadsheet: &Spreadsheet) -> Value {
    let sheet = |(index, (title, rows)): (usize, &(String, Vec<Vec<Value>>))| {
        json!({"properties": {
            "sheetId": index, "title": title, "index": index, "sheetType": "GRID",
            "gridProperties": {"rowCount": rows.len().max(1000), "columnCount": 26},
        }})
    };
    json!({
        "spreadsheetId": id,
        "properties": {"title": spreadsheet.title, "locale": "en_US", "timeZone": "Europe/Berlin"},
        "sheets": spreadsheet.sheets.iter().enumerate().map(sheet).collect::<Vec<_>>(),
        "spreadsheetUrl": format!("https://docs.google.com/spreadsheets/d/{id}/edit"),
    })
}

/// All requests are applied, or none.
fn batch_update(id: &str, spreadsheet: &mut Spreadsheet, seen: &Seen) -> Reply {
    let requests = seen.body["requests"].as_array().cloned().unwrap_or_default();
    if requests.is_empty() {
        return Reply::Error(400, "badRequest", "Must specify at least one request.".to_owned());
    }
    for (at, request) in requests.iter().enumerate() {
        let Some((_, inner)) =
            request.as_object().filter(|kinds| kinds.len() == 1).and_then(|kinds| kinds.iter().next())
        else {
            return Reply::Error(400, "badRequest", format!("Invalid requests[{at}]: one kind is required"));
        };
        let sheet =
            inner["range"]["sheetId"].as_u64().or(inner["properties"]["sheetId"].as_u64()).unwrap_or(0);
        if usize::try_from(sheet).unwrap() >= spreadsheet.sheets.len() {
            return Reply::Error(
                400,
                "badRequest",
                format!("Invalid requests[{at}]: No grid with id: {sheet}"),
            );
        }
    }
    let replies: Vec<Value> = requests.iter().map(|_| json!({})).collect();
    spreadsheet.updates.extend(requests);
    Reply::Json(json!({"spreadsheetId": id, "replies": replies}))
}
