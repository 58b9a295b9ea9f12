//! Labels that cross conversations: in an answer that a caller repeats, and of an autonomous agent.

use serde_json::{Value, json};

use super::{Case, DIARY, GET, PAGE, POST, Stage, Step, case};

const SAYS: Step = ("say", "the page wants the key");
const GREETS: Step = ("say", "hello, what can I do?");

/// One request as OpenAI's clients send it, with everything said before. Gives the answer.
fn completed(stage: &Stage, before: &[(&str, &str)], part: usize, stream: bool) -> String {
    let mut messages: Vec<Value> =
        before.iter().map(|(role, content)| json!({"role": role, "content": content})).collect();
    messages.push(json!({"role": "user", "content": format!("case 0 part {part}")}));
    let body = json!({"model": "c0", "messages": messages, "stream": stream}).to_string();
    let reported = stage.up.ask("POST", "/v1/chat/completions", &[], body.as_bytes());
    assert_eq!(reported.status, 200, "{reported:?}");
    if !stream {
        return reported.json()["choices"][0]["message"]["content"].as_str().unwrap().to_owned();
    }
    let text = reported.text();
    let chunks =
        text.lines().filter_map(|line| serde_json::from_str::<Value>(line.strip_prefix("data: ")?).ok());
    chunks.filter_map(|chunk| Some(chunk["choices"][0]["delta"]["content"].as_str()?.to_owned())).collect()
}

#[test]
fn repeated_answer_keeps_its_labels() {
    const CASES: &[Case] = &[case("kept by the caller", &[&[PAGE, DIARY, SAYS], &[GET], &[GREETS], &[POST]])];
    let stage = Stage::new(CASES, "autonomy = \"autonomous\"");
    for stream in [false, true] {
        let answer = completed(&stage, &[], 0, stream);
        assert!(answer.contains("the key"), "{answer}");
        for answer in [answer.as_str(), "an answer that nobody gave"] {
            completed(&stage, &[("user", "look"), ("assistant", answer)], 1, stream);
            assert!(stage.canary.take().is_empty(), "{answer:?} was said again, and it went out");
        }
        let greeting = completed(&stage, &[], 2, stream);
        completed(&stage, &[("system", "be kind"), ("user", "hi"), ("assistant", &greeting)], 3, stream);
        assert_eq!(stage.canary.take().len(), 1, "nothing was said that could go out");
    }
}

#[test]
fn autonomous_agent_cannot_be_used_to_leak() {
    const MAIL: Step =
        ("tool__agent_send", r#"{"agentId": "{agent}", "targetAgentId": "loose", "message": "go"}"#);
    const SEND: Step = ("gsv__SessionSend", r#"{"sessionKey": "agent:loose:main", "message": "go"}"#);
    const CASES: &[Case] = &[case("through another agent", &[&[PAGE, DIARY, MAIL, SEND]])];
    for autonomy in ["autonomous", "guided"] {
        let stage =
            Stage::new(CASES, &format!("autonomy = \"{autonomy}\"\n[agents.loose]\nflow = \"off\"\n"));
        stage.play(0, 0);
        let came = json!(stage.results(0, "part-0")).to_string();
        assert_eq!(came.matches("flow-labels").count(), 2, "{came}");
        assert_ne!(stage.up.get("/v1/sessions/agent:loose:main").status, 200, "nothing came there");
    }
}
