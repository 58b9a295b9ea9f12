use gantry_tool::testing;
use serde_json::{Value, json};

use super::*;

/// The answer of a tool without a gateway: JSON or the error's text.
async fn check(tool: &str, input: Value) -> Value {
    let (gate, _) = testing::gate(tools(None));
    testing::call(&gate, std::path::Path::new("/"), tool, input).await.unwrap_or_else(|error| error)
}

#[tokio::test]
async fn invalid_input_is_rejected() {
    let one = |more: Value| {
        let mut spec = json!({"name": "a", "task": "b"});
        spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        json!({"agents": [spec]})
    };
    for (tool, input) in [
        ("gsv__SessionsList", json!({"limit": 0})),
        ("gsv__SessionsList", json!({"limit": 101})),
        ("gsv__SessionsList", json!({"messageLimit": 21})),
        // Beyond the type: JSON Schema calls 2^64 an integer.
        ("gsv__SessionsList", json!({"limit": 18_446_744_073_709_551_616.0})),
        (
            "gsv__SessionSend",
            json!({"sessionKey": "k", "message": "m", "waitSeconds": 18_446_744_073_709_551_616.0}),
        ),
        ("gsv__SessionSend", json!({"sessionKey": "main", "message": "hi", "waitSeconds": 121})),
        ("tool::agent_send", json!({"targetAgentId": "x", "message": "y"})),
        ("tool::agent_send", json!({"agentId": "x", "message": "y"})),
        ("tool::agent_send", json!({"agentId": "x", "targetAgentId": "y"})),
        ("tool::agent_spawn", json!({"message": "x"})),
        ("tool::agent_spawn", json!({"template": "x"})),
        ("tool::agent_spawn", json!({"template": "x", "message": "y", "depth": 0})),
        ("tool::agent_spawn", json!({"template": "x", "message": "y", "quota": 100})),
        ("spawn_agent", json!({})),
        ("spawn_agent", json!({"agents": []})),
        ("spawn_agent", json!({"agents": vec![json!({"name": "a", "task": "b"}); 21]})),
        ("spawn_agent", json!({"agents": [{"name": "a"}]})),
        ("spawn_agent", one(json!({"depth": 0}))),
        ("spawn_agent", one(json!({"max_turns": 0}))),
        ("spawn_agent", one(json!({"max_budget_usd": 0}))),
        ("spawn_agent", one(json!({"thinking": "hard"}))),
        ("spawn_agent", one(json!({"effort": "most"}))),
    ] {
        let error = check(tool, input.clone()).await;
        assert_eq!(error["error"]["code"], "invalid_input", "{tool} {input}: {error}");
    }
}

#[tokio::test]
async fn tools_without_a_gateway_report_that_they_need_one() {
    let spec = json!({
        "name": "a", "task": "b", "role": "researcher", "context": "c", "isolated_memory": true,
        "system_prompt": "p", "model": "sonnet", "thinking": 2000, "effort": "low", "tools": ["read_file"],
        "max_turns": 3, "max_tokens": 100, "max_budget_usd": 0.5,
    });
    for (tool, input) in [
        ("gsv__SessionsList", json!({})),
        ("gsv__SessionSend", json!({"sessionKey": "main", "message": "hi"})),
        ("tool::agent_spawn", json!({"template": "main", "parentId": "main", "message": "y"})),
        ("tool__agent_send", json!({"agentId": "main", "targetAgentId": "other", "message": "y"})),
        ("spawn_agent", json!({"agents": [spec]})),
    ] {
        let answer = check(tool, input).await.to_string();
        assert!(answer.contains("this needs a running gateway"), "{tool}: {answer}");
    }
}

#[test]
fn denial_by_a_session_is_a_denial_of_the_tool() {
    let denied = session_error(SessionError::Denied("the run holds both".into()));
    assert!(matches!(denied, ToolError::Denied(_)), "{denied:?}");
    assert!(matches!(session_error(SessionError::Refused("x".into())), ToolError::Input(_)));
}
