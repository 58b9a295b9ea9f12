//! Converts a server's answer to a tool's reply: text, structured content, or all blocks.

use gantry_tool::{Reply, ToolError, Validator};
use rmcp::model::{CallToolResult, ContentBlock};
use serde_json::{Value, json};

/// Maximum violations that are listed for one answer.
const MAX_VIOLATIONS: usize = 5;

/// Checks a success against the tool's output schema. Clients check it too, against the schema that Gantry passes on.
pub(super) fn keeps_promise(result: &CallToolResult, schema: &Validator) -> Result<(), String> {
    if result.is_error == Some(true) {
        return Ok(());
    }
    let Some(structure) = &result.structured_content else {
        return Err("structuredContent is missing".to_owned());
    };
    // Clients have the schema too.
    if schema.is_too_long(structure) {
        return Ok(());
    }
    let violations = schema.violations(structure);
    let mut problems: Vec<String> = violations.iter().take(MAX_VIOLATIONS).map(ToString::to_string).collect();
    if violations.len() > MAX_VIOLATIONS {
        problems.push(format!("and {} more", violations.len() - MAX_VIOLATIONS));
    }
    if problems.is_empty() { Ok(()) } else { Err(problems.join("; ")) }
}

/// Converts an answer without losing anything. What does not fit a simpler form is returned block by block.
pub(super) fn reply(result: CallToolResult) -> Result<Reply, ToolError> {
    let texts: Option<Vec<&str>> = result.content.iter().map(text).collect();
    let failed = result.is_error == Some(true);
    let reply = match (texts, &result.structured_content) {
        (Some(texts), None) if failed => Reply::Json(json!({"error": texts.join("\n")})),
        (Some(texts), None) => Reply::Text(texts.join("\n")),
        (Some(texts), Some(structure)) if !failed && texts.iter().all(|text| repeats(structure, text)) => {
            Reply::Json(structure.clone())
        }
        (texts, structure) => {
            let mut whole = json!({"content": result.content});
            if failed {
                let words = texts.filter(|texts| !texts.is_empty()).map(|texts| texts.join("\n"));
                whole["error"] = json!(words.unwrap_or_else(|| "the tool failed".to_owned()));
            }
            if let Some(structure) = structure {
                whole["structuredContent"] = structure.clone();
            }
            Reply::Json(whole)
        }
    };
    if failed { Err(ToolError::Shaped(reply)) } else { Ok(reply) }
}

fn text(block: &ContentBlock) -> Option<&str> {
    match block {
        ContentBlock::Text(text) => Some(&text.text),
        _ => None,
    }
}

/// Returns whether a text only repeats the structured content, as servers do for older clients.
fn repeats(structure: &Value, text: &str) -> bool {
    fn has(value: &Value, text: &str) -> bool {
        match value {
            Value::String(own) => own == text,
            Value::Array(items) => items.iter().any(|item| has(item, text)),
            Value::Object(fields) => fields.values().any(|field| has(field, text)),
            _ => false,
        }
    }
    structure.is_object()
        && (serde_json::from_str::<Value>(text).is_ok_and(|said| said == *structure) || has(structure, text))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(result: Value, expected: Result<Reply, Reply>) {
        let result: CallToolResult = serde_json::from_value(result).unwrap();
        let got = reply(result).map_err(|err| match err {
            ToolError::Shaped(reply) => reply,
            other => panic!("{other}"),
        });
        assert_eq!(got, expected);
    }

    #[test]
    fn answers_are_checked_against_the_output_schema() {
        let schema =
            json!({"type": "object", "properties": {"sum": {"type": "integer"}}, "required": ["sum"]});
        let schema = Validator::new(&schema);
        let error = |result: Value| {
            keeps_promise(&serde_json::from_value(result).unwrap(), &schema).err().unwrap_or_default()
        };
        assert_eq!(error(json!({"content": [], "structuredContent": {"sum": 3, "more": "is fine"}})), "");
        assert_eq!(error(json!({"content": [], "isError": true})), "", "an error promises nothing");
        assert!(error(json!({"content": [], "structuredContent": {"sum": "three"}})).contains("sum"));
        assert!(error(json!({"content": [], "structuredContent": {}})).contains("required field \"sum\""));
        assert!(error(json!({"content": []})).contains("structuredContent is missing"));
    }

    #[test]
    fn every_form_of_answer_is_complete() {
        let text = |text: &str| json!({"type": "text", "text": text});
        check(json!({"content": [text("a"), text("b")]}), Ok(Reply::Text("a\nb".into())));
        check(json!({"content": []}), Ok(Reply::Text(String::new())));
        check(json!({"content": [text("no")], "isError": true}), Err(Reply::Json(json!({"error": "no"}))));
        let sum = json!({"sum": 3});
        check(
            json!({"content": [text("{\"sum\":3}")], "structuredContent": sum}),
            Ok(Reply::Json(sum.clone())),
        );
        let wrapped = json!({"content": "body"});
        check(
            json!({"content": [text("body")], "structuredContent": wrapped}),
            Ok(Reply::Json(wrapped.clone())),
        );
        let picture = json!({"type": "image", "data": "aGk=", "mimeType": "image/png"});
        check(json!({"content": [picture]}), Ok(Reply::Json(json!({"content": [picture]}))));
        check(
            json!({"content": [text("else")], "structuredContent": sum}),
            Ok(Reply::Json(json!({"content": [text("else")], "structuredContent": sum}))),
        );
        check(
            json!({"content": [text("bad"), picture], "isError": true}),
            Err(Reply::Json(json!({"content": [text("bad"), picture], "error": "the tool failed"}))),
        );
    }
}
