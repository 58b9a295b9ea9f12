//! A request of OpenAI's interface, and the message that it has for the agent.

use serde::Deserialize;
use serde_json::Value;

/// The supported fields of a request. Other fields are ignored, except for tools, which are rejected.
#[derive(Debug, Deserialize)]
pub(super) struct CompletionRequest {
    pub(super) model: String,
    messages: Vec<ChatMessage>,
    #[serde(default)]
    pub(super) stream: bool,
    #[serde(default)]
    pub(super) stream_options: StreamOptions,
    #[serde(default)]
    tools: Vec<Value>,
    /// Labels of the messages: `untrusted`, `private`.
    #[serde(default)]
    pub(super) labels: Vec<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct StreamOptions {
    pub(super) include_usage: bool,
}

#[derive(Debug, Deserialize)]
pub(super) struct ChatMessage {
    role: String,
    #[serde(default)]
    content: Content,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Content {
    Text(String),
    Parts(Vec<ContentPart>),
    Nothing(()),
}

impl Default for Content {
    fn default() -> Self {
        Content::Nothing(())
    }
}

#[derive(Debug, Deserialize)]
struct ContentPart {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    text: String,
}

/// Returns the message for the agent: the last message. A separate conversation also gets the earlier messages.
pub(super) fn message_text(body: &CompletionRequest, kept: bool) -> Result<String, String> {
    if !body.tools.is_empty() {
        return Err("an agent has its own tools; leave \"tools\" out".into());
    }
    let mut texts = Vec::with_capacity(body.messages.len());
    for message in &body.messages {
        texts.push((message.role.as_str(), text(&message.content)?));
    }
    let Some((("user", last), before)) = texts.split_last().map(|(last, before)| ((last.0, &last.1), before))
    else {
        return Err("the last message must have the role user".into());
    };
    if kept || before.is_empty() {
        return Ok(last.clone());
    }
    let before: Vec<String> = before.iter().map(|(role, text)| format!("{role}: {text}")).collect();
    Ok(format!("[Earlier messages]\n{}\n[End of the earlier messages]\n\n{last}", before.join("\n")))
}

/// Returns the earlier answers, which carry the labels of the run that gave them.
pub(super) fn earlier_answers(body: &CompletionRequest) -> impl Iterator<Item = String> {
    let own = ["user", "system", "developer"];
    let theirs = body.messages.iter().filter(move |message| !own.contains(&message.role.as_str()));
    theirs.map(|message| text(&message.content).unwrap_or_default())
}

fn text(content: &Content) -> Result<String, String> {
    match content {
        Content::Nothing(()) => Ok(String::new()),
        Content::Text(text) => Ok(text.clone()),
        Content::Parts(parts) => {
            let texts: Result<Vec<&str>, String> = parts
                .iter()
                .map(|part| match part.kind.as_str() {
                    "text" => Ok(part.text.as_str()),
                    other => Err(format!("content of type {other:?} is not supported; send text")),
                })
                .collect();
            Ok(texts?.join("\n"))
        }
    }
}
