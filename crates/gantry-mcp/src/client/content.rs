//! What a server answered, as a tool's reply: text where it is text, structure where it is structure, else every block.

use gantry_tool::{Reply, ToolError, Validator};
use rmcp::model::{CallToolResult, ContentBlock};
use serde_json::{Value, json};

/// Of what is wrong with one answer.
const MAX_VIOLATIONS: usize = 5;

/// Whether a success has the structure that was promised, or what is wrong with it. Others check it too, against the
/// schema that we pass on.
pub(super) fn keeps_promise(result: &CallToolResult, schema: &Validator) -> Result<(), String> {
    if result.is_error == Some(true) {
        return Ok(());
    }
    let Some(structure) = &result.structured_content else {
        return Err("there is no structuredContent".to_owned());
    };
    // Whoever it is passed on to has the schema too.
    if schema.is_too_long(structure) {
        return Ok(());
    }
    let violations = schema.violations(structure);
    let mut told: Vec<String> = violations.iter().take(MAX_VIOLATIONS).map(ToString::to_string).collect();
    if violations.len() > MAX_VIOLATIONS {
        told.push(format!("and {} more", violations.len() - MAX_VIOLATIONS));
    }
    if told.is_empty() { Ok(()) } else { Err(told.join("; ")) }
}

/// Nothing of an answer is left out: what does not fit a simpler form is given block by block.
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
                whole["error"] = json!(words.unwrap_or_else(|| "the tool has failed".to_owned()));
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

/// Whether a text only says again what the structure says, as servers do for clients that read no structure.
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
    fn a_promised_structure_is_kept_or_told() {
        let schema =
            json!({"type": "object", "properties": {"sum": {"type": "integer"}}, "required": ["sum"]});
        let schema = Validator::new(&schema);
        let told = |result: Value| {
            keeps_promise(&serde_json::from_value(result).unwrap(), &schema).err().unwrap_or_default()
        };
        assert_eq!(told(json!({"content": [], "structuredContent": {"sum": 3, "more": "is fine"}})), "");
        assert_eq!(told(json!({"content": [], "isError": true})), "", "an error promises nothing");
        assert!(told(json!({"content": [], "structuredContent": {"sum": "three"}})).contains("sum"));
        assert!(told(json!({"content": [], "structuredContent": {}})).contains("required field \"sum\""));
        assert!(told(json!({"content": []})).contains("no structuredContent"));
    }

    #[test]
    fn each_form_of_answer_keeps_all_of_it() {
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
            Err(Reply::Json(json!({"content": [text("bad"), picture], "error": "the tool has failed"}))),
        );
    }
}
