//! Cells as a Markdown table.

use serde_json::Value;

/// Makes a table. The first row is its head. Google leaves out empty cells at the end of a row, so rows are filled up.
pub(super) fn markdown(rows: &[Vec<Value>]) -> String {
    let width = rows.iter().map(Vec::len).max().unwrap_or(0);
    let line = |row: &Vec<Value>| {
        let cells = (0..width).map(|at| row.get(at).map(cell).unwrap_or_default());
        format!("| {} |", cells.collect::<Vec<_>>().join(" | "))
    };
    let mut lines: Vec<String> = rows.iter().map(line).collect();
    if !lines.is_empty() {
        lines.insert(1, format!("|{}", " --- |".repeat(width)));
    }
    lines.join("\n")
}

/// A cell on one line. A bar would begin another cell.
fn cell(value: &Value) -> String {
    let text = match value {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        other => other.to_string(),
    };
    text.replace('\\', "\\\\").replace('|', "\\|").replace("\r\n", "<br>").replace(['\n', '\r'], "<br>")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn rows_are_filled_up_and_bars_escaped() {
        let rows: Vec<Vec<Value>> =
            serde_json::from_value(json!([["a"], ["x|y", 1.5, true], [], ["line\nbreak", null, "\\"]]))
                .unwrap();
        let expected = "| a |  |  |\n| --- | --- | --- |\n| x\\|y | 1.5 | true |\n|  |  |  |\n| line<br>break |  | \\\\ |";
        assert_eq!(markdown(&rows), expected);
        assert_eq!(markdown(&[]), "");
    }
}
