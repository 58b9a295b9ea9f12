//! Converts the outcome of a call to an MCP result: text, structured content, images, or an error.

use gantry_tool::{Answer, Outcome, RefusalCode, Reply};
use rmcp::ErrorData;
use rmcp::model::{CallToolResult, ContentBlock, Resource};
use serde_json::Value;

use crate::resources::result_uri;

/// The field with the handle of the complete result, in a shortened one.
pub(crate) const RESULT_HANDLE: &str = "resultHandle";

/// An unknown tool is a protocol error. All other errors are results that the model reads.
pub(crate) fn result(outcome: Outcome) -> Result<CallToolResult, ErrorData> {
    let mut result = match outcome.answer {
        Answer::Success(Reply::Text(text)) => CallToolResult::success(vec![ContentBlock::text(text)]),
        Answer::Success(Reply::Json(value)) => success(value),
        Answer::ToolError(reply) => CallToolResult::error(vec![ContentBlock::text(reply.to_text())]),
        Answer::Refused(refusal) if refusal.code == RefusalCode::UnknownTool => {
            return Err(ErrorData::invalid_params(refusal.to_string(), None));
        }
        Answer::Refused(refusal) => CallToolResult::error(vec![ContentBlock::text(refusal.describe())]),
    };
    let warnings = outcome.warnings.iter().map(|warning| ContentBlock::text(format!("warning: {warning}")));
    result.content.extend(warnings);
    Ok(result)
}

fn success(value: Value) -> CallToolResult {
    if let Some(blocks) = blocks(&value) {
        let mut result = CallToolResult::success(blocks);
        // An MCP server's answer with blocks and structured content is passed on unchanged.
        result.structured_content = value.get("structuredContent").filter(|own| own.is_object()).cloned();
        return result;
    }
    let mut blocks = vec![ContentBlock::text(value.to_string())];
    if let Some(handle) = value.get(RESULT_HANDLE).and_then(Value::as_str) {
        let whole = Resource::new(result_uri(handle), "the whole result").with_mime_type("text/plain");
        blocks.push(ContentBlock::ResourceLink(whole));
    }
    let mut result = CallToolResult::success(blocks);
    result.structured_content = Some(value).filter(Value::is_object);
    result
}

/// Returns the blocks of an answer that consists of blocks, such as an image with a caption. They are not repeated as
/// structured content.
fn blocks(value: &Value) -> Option<Vec<ContentBlock>> {
    let blocks = value.get("content")?.as_array().filter(|blocks| !blocks.is_empty())?;
    let of_a_kind = |block: &Value| block.get("type").is_some_and(Value::is_string);
    if !blocks.iter().all(of_a_kind) {
        return None;
    }
    blocks.iter().map(|block| serde_json::from_value(block.clone()).ok()).collect()
}

#[cfg(test)]
mod tests {
    use gantry_tool::Refusal;
    use serde_json::json;

    use super::*;

    fn check(answer: Answer) -> Value {
        let outcome = Outcome {
            call_id: String::new(),
            tool: "Read".into(),
            answer,
            labels: Vec::new(),
            warnings: Vec::new(),
        };
        match result(outcome) {
            Ok(result) => {
                let mut value = serde_json::to_value(result).unwrap();
                value.as_object_mut().unwrap().remove("resultType");
                value
            }
            Err(err) => json!({"code": err.code.0, "message": err.message}),
        }
    }

    #[test]
    fn json_is_told_twice_and_text_once() {
        assert_eq!(
            check(Answer::Success(Reply::Json(json!({"a": 1})))),
            json!({"content": [{"type": "text", "text": "{\"a\":1}"}], "structuredContent": {"a": 1}, "isError": false})
        );
        assert_eq!(
            check(Answer::Success(Reply::Text("plain".into()))),
            json!({"content": [{"type": "text", "text": "plain"}], "isError": false})
        );
    }

    #[test]
    fn pictures_are_pictures() {
        let blocks = json!([
            {"type": "text", "text": "Image file: a.png"},
            {"type": "image", "data": "iVBO", "mimeType": "image/png"},
        ]);
        let answer = check(Answer::Success(Reply::Json(json!({"content": blocks.clone()}))));
        assert_eq!(answer, json!({"content": blocks, "isError": false}));
        let text = check(Answer::Success(Reply::Json(json!({"content": "1\tline"}))));
        assert_eq!(text["structuredContent"], json!({"content": "1\tline"}));
    }

    #[test]
    fn errors_and_refusals_say_so() {
        let error = check(Answer::ToolError(Reply::Json(json!({"error": "no such file"}))));
        assert_eq!(
            error,
            json!({"content": [{"type": "text", "text": "{\"error\":\"no such file\"}"}], "isError": true})
        );
        let refusal = Refusal::new(RefusalCode::Denied, "denied: no (rule r)").with_hint("ask");
        let refused = check(Answer::Refused(refusal));
        assert_eq!(refused["content"][0]["text"], "denied: no (rule r)\nhint: ask");
        assert_eq!(refused["isError"], true);
        let unknown = check(Answer::Refused(Refusal::new(RefusalCode::UnknownTool, "unknown tool \"x\"")));
        assert_eq!(unknown, json!({"code": -32602, "message": "unknown tool \"x\""}));
    }

    #[test]
    fn a_shortened_result_links_to_its_whole() {
        let answer = check(Answer::Success(Reply::Json(json!({"output": "…", "resultHandle": "r1"}))));
        assert_eq!(answer["content"][1]["uri"], "gantry://results/r1");
    }
}
