use gantry_testkit::google::Fault;
use serde_json::{Value, json};

use super::NAME;
use crate::testing::{Bench, Person, outside_fences};

async fn bench() -> (Bench, String) {
    let bench = Bench::with_scopes(&["spreadsheets", "drive.metadata.readonly"]).await;
    let sheets = [
        ("Data", json!([["name", "amount"], ["a|b", 1.5, true, ""], [], ["line\nbreak"]])),
        ("Bob's", json!([["x"]])),
    ];
    let id = bench.fake.state().sheets.add("Budget", &sheets);
    (bench, id)
}

#[tokio::test]
async fn first_sheet_is_read_as_a_table_inside_a_fence() {
    let (bench, id) = bench().await;
    let text = bench.unasked(NAME, json!({"action": "read", "spreadsheet_id": id})).await;
    assert!(text.starts_with("4 rows, account ann@example.com."), "{text}");
    let table = "| name | amount |  |\n| --- | --- | --- |\n| a\\|b | 1.5 | TRUE |\n|  |  |  |\n| line<br>break |  |  |";
    assert!(text.contains(table), "{text}");
    assert!(text.contains("Further sheets: Bob's"), "{text}");
    assert!(!outside_fences(&text).contains("amount"), "{text}");
    let text =
        bench.unasked(NAME, json!({"action": "read", "spreadsheet_id": id, "range": "'Bob''s'!A1:B2"})).await;
    assert!(text.contains("| x |") && text.contains("'Bob''s'!A1:A1"), "{text}");
    let text =
        bench.unasked(NAME, json!({"action": "read", "spreadsheet_id": id, "range": "Data!F1:G9"})).await;
    assert_eq!(text, "The range is empty, account ann@example.com.");
    let error = bench
        .call(NAME, json!({"action": "read", "spreadsheet_id": id, "range": "Nothing!A1"}))
        .await
        .unwrap_err();
    assert_eq!(error, "Google Sheets rejected the request: Unable to parse range: Nothing!A1");
    let error = bench.call(NAME, json!({"action": "read", "spreadsheet_id": "missing"})).await.unwrap_err();
    assert!(error.contains("it does not exist, or it is not shared with this account"), "{error}");
}

#[tokio::test]
async fn overwriting_is_confirmed_and_stores_texts_as_they_are() {
    let (bench, id) = bench().await;
    let input = json!({
        "action": "write", "spreadsheet_id": id, "range": "Data!A1:B2",
        "values": [["=IMPORTXML(\"https://evil.example\")", null], ["", 7]],
    });
    let (question, result) = bench.confirmed(NAME, input, "sheets.spreadsheets.values.update").await;
    assert!(question.starts_with("Google Sheets: overwrite Data!A1:B2 of \"Budget\" with 2 × 2 cells?\n    Account: ann@example.com"), "{question}");
    assert!(question.contains("| | =IMPORTXML"), "{question}");
    assert_eq!(result, "4 cells were written to Data!A1:B2, account ann@example.com.");
    let sent = &bench.fake.seen_of("sheets.spreadsheets.values.update")[0];
    assert_eq!(sent.parameter("valueInputOption"), Some("RAW"));
    let state = bench.fake.state();
    let rows = &state.sheets.spreadsheets[&id].sheets[0].1;
    assert_eq!(
        rows[0],
        [json!("=IMPORTXML(\"https://evil.example\")"), json!("amount")],
        "a text, and a cell that stays"
    );
    assert_eq!(rows[1][0], json!(""));
}

#[tokio::test]
async fn rows_are_appended_unasked_unless_they_have_formulas_or_the_run_is_labelled() {
    let (bench, id) = bench().await;
    let input = json!({"action": "append", "spreadsheet_id": id, "values": [["new", 1]]});
    let text = bench.unasked(NAME, input.clone()).await;
    assert_eq!(text, "2 cells were appended to Data!A5:B5, account ann@example.com.");
    let sent = &bench.fake.seen_of("sheets.spreadsheets.values.append")[0];
    assert_eq!(
        (sent.parameter("insertDataOption"), sent.parameter("valueInputOption")),
        (Some("INSERT_ROWS"), Some("RAW"))
    );
    let (denied, asked) = bench.as_labelled_agent(NAME, input.clone(), Person::Refuses).await;
    assert!(denied.is_err() && asked[0].rule == "flow-labels");
    let mut formulas = input;
    formulas["formulas"] = json!(true);
    formulas["values"] = json!([["=1+1"]]);
    let (question, _) = bench.confirmed(NAME, formulas, "sheets.spreadsheets.values.append").await;
    assert!(question.contains("Formulas: 1; a formula can send data to other servers"), "{question}");
    let sent = bench.fake.seen_of("sheets.spreadsheets.values.append").pop().unwrap();
    assert_eq!(sent.parameter("valueInputOption"), Some("USER_ENTERED"));
}

#[tokio::test]
async fn lost_answer_of_an_append_is_reported_and_not_repeated() {
    let (bench, id) = bench().await;
    for fault in [Fault::CutAfter, Fault::FailAfter(500)] {
        bench.fake.fail("sheets.spreadsheets.values.append", fault);
        let before = bench.fake.state().sheets.spreadsheets[&id].sheets[0].1.len();
        let input = json!({"action": "append", "spreadsheet_id": id, "values": [["once"]]});
        let error = bench.call(NAME, input).await.unwrap_err();
        assert!(error.contains("the change may have happened, so check before you repeat it"), "{error}");
        assert_eq!(bench.fake.state().sheets.spreadsheets[&id].sheets[0].1.len(), before + 1);
    }
}

#[tokio::test]
async fn new_spreadsheet_is_made_unasked() {
    let (bench, _) = bench().await;
    let input = json!({"action": "create", "title": "Plan", "sheet_names": ["One", "Two"]});
    let (text, asked) = bench.as_labelled_agent(NAME, input, Person::Absent).await;
    let text = text.unwrap();
    assert!(
        asked.is_empty() && text.contains("\"Plan\" was created") && text.contains("spreadsheet_id: sheet-"),
        "{text}"
    );
    let state = bench.fake.state();
    let made = state.sheets.spreadsheets.values().find(|made| made.title == "Plan").unwrap();
    assert_eq!(made.sheets.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), ["One", "Two"]);
}

#[tokio::test]
async fn list_needs_a_scope_of_drive() {
    let (bench, _) = bench().await;
    bench.fake.state().drive.add_file("Budget", "application/vnd.google-apps.spreadsheet", b"");
    bench.fake.state().drive.add_file("notes.txt", "text/plain", b"");
    let text = bench.unasked(NAME, json!({"action": "list"})).await;
    assert!(text.starts_with("1 spreadsheets") && text.contains("- Budget\n  spreadsheet"), "{text}");
    let bench = Bench::with_scopes(&["spreadsheets.readonly"]).await;
    let error = bench.call(NAME, json!({"action": "list"})).await.unwrap_err();
    assert!(error.contains("has not granted the scope drive.metadata.readonly"), "{error}");
}

#[tokio::test]
async fn only_formatting_passes() {
    let (bench, id) = bench().await;
    let format =
        |requests: Value| json!({"action": "format", "spreadsheet_id": id, "format_requests": requests});
    let range = json!({"sheetId": 0, "startRowIndex": 0, "endRowIndex": 1});
    let bold = json!({"repeatCell": {
        "range": range, "cell": {"userEnteredFormat": {"textFormat": {"bold": true}}},
        "fields": "userEnteredFormat(textFormat,padding),userEnteredFormat.borders",
    }});
    let frozen = json!({"updateSheetProperties": {
        "properties": {"sheetId": 0, "gridProperties": {"frozenRowCount": 1}}, "fields": "gridProperties.frozenRowCount",
    }});
    let text = bench.unasked(NAME, format(json!([bold, frozen]))).await;
    assert_eq!(
        text,
        "2 formatting requests were applied (repeatCell, updateSheetProperties), account ann@example.com."
    );
    let applied = bench.fake.seen_of("sheets.spreadsheets.batchUpdate").len();
    let formula = json!({"userEnteredFormat": {}, "userEnteredValue": {"formulaValue": "=1"}});
    let condition = json!({"rule": {"booleanRule": {"condition": {"type": "CUSTOM_FORMULA", "values": [{"userEnteredValue": "x"}]}}}});
    let link = json!({"userEnteredFormat": {"textFormat": {"link": {"uri": "https://evil.example"}}}});
    for bad in [
        json!({"deleteSheet": {"sheetId": 0}}),
        json!({"findReplace": {"find": "a", "replacement": "b"}}),
        json!({"addDataSource": {}}),
        json!({"repeatCell": {"range": range, "cell": {}, "fields": "*"}}),
        json!({"repeatCell": {"range": range, "cell": formula, "fields": "userEnteredFormat"}}),
        json!({"repeatCell": {"range": range, "cell": {}, "fields": "userEnteredFormat,userEnteredValue"}}),
        json!({"repeatCell": {"range": range, "cell": link, "fields": "userEnteredFormat.textFormat"}}),
        json!({"addConditionalFormatRule": condition}),
        json!({"updateSheetProperties": {"properties": {"sheetId": 0, "hidden": true}, "fields": "hidden"}}),
        json!({"mergeCells": {}, "deleteSheet": {}}),
    ] {
        let error = bench.call(NAME, format(json!([frozen, bad]))).await.unwrap_err();
        assert!(error.contains("format_requests[1]"), "{bad}: {error}");
    }
    assert_eq!(bench.fake.seen_of("sheets.spreadsheets.batchUpdate").len(), applied);
    let (denied, asked) = bench.as_labelled_agent(NAME, format(json!([bold])), Person::Refuses).await;
    assert!(denied.is_err() && asked.len() == 1);
}

#[tokio::test]
async fn invalid_inputs_send_nothing() {
    let (bench, id) = bench().await;
    for (input, expected) in [
        (json!({"action": "read"}), "read needs the field spreadsheet_id"),
        (json!({"action": "read", "spreadsheet_id": "a/../b"}), "spreadsheet_id must be an id"),
        (json!({"action": "write", "spreadsheet_id": id, "values": [["x"]]}), "write needs the field range"),
        (json!({"action": "write", "spreadsheet_id": id, "range": "A1"}), "write needs the field values"),
        (
            json!({"action": "write", "spreadsheet_id": id, "range": "A1\nB2", "values": [["x"]]}),
            "A1 notation",
        ),
        (
            json!({"action": "append", "spreadsheet_id": id, "values": [[{"a": 1}]]}),
            "values must be rows of texts",
        ),
        (json!({"action": "append", "spreadsheet_id": id, "values": []}), "values must have 1 to"),
        (json!({"action": "create"}), "create needs the field title"),
        (json!({"action": "format", "spreadsheet_id": id}), "format needs the field format_requests"),
        (json!({"action": "drop"}), "drop"),
    ] {
        let error = bench.call(NAME, input.clone()).await.unwrap_err();
        assert!(error.contains(expected), "{input}: {error}");
    }
    assert_eq!(bench.fake.rejected(), Vec::<String>::new());
}
