//! Prompts: the skills of the workspace, `skills/{name}/SKILL.md`, read through the gate.

use rmcp::ErrorData;
use rmcp::model::{GetPromptResult, Prompt, PromptMessage, Role};
use serde_json::Value;

use crate::backend::Backend;
use crate::resources::Reading;

/// Each is a file to read.
const MAX_SKILLS: usize = 100;

/// Of a description in a list.
const MAX_DESCRIPTION_CHARS: usize = 500;

pub(crate) async fn list<B: Backend>(reading: &Reading<'_, B>) -> Vec<Prompt> {
    // Skills that may not be read, or are not there, are none.
    let Ok(folder) = reading.file("skills/").await else { return Vec::new() };
    let names = folder["directories"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let mut prompts = Vec::new();
    for name in names.take(MAX_SKILLS) {
        // A folder without SKILL.md is no skill.
        if let Ok(skill) = reading.file(&path(name)).await
            && let Some(text) = skill["content"].as_str()
        {
            prompts.push(Prompt::new(name, split(text).0, None));
        }
    }
    prompts
}

pub(crate) async fn get<B: Backend>(
    reading: &Reading<'_, B>,
    name: &str,
) -> Result<GetPromptResult, ErrorData> {
    let shown: String = name.chars().take(100).collect();
    let unknown = |why: &str| ErrorData::invalid_params(format!("no skill {shown:?}: {why}"), None);
    if name.is_empty() || name.contains('/') {
        return Err(unknown("a skill is named by its folder"));
    }
    let skill = reading.file(&path(name)).await.map_err(|refusal| unknown(&refusal.describe()))?;
    let text = skill["content"].as_str().ok_or_else(|| unknown("it has no SKILL.md"))?;
    let (description, body) = split(text);
    let result = GetPromptResult::new(vec![PromptMessage::new_text(Role::User, body)]);
    Ok(match description {
        Some(description) => result.with_description(description),
        None => result,
    })
}

fn path(name: &str) -> String {
    format!("skills/{name}/SKILL.md")
}

/// The description in the front matter, and the text after it. Read line by line: people write colons in values, which
/// YAML refuses.
fn split(text: &str) -> (Option<String>, &str) {
    let Some(rest) = text.strip_prefix("---\n").or_else(|| text.strip_prefix("---\r\n")) else {
        return (None, text);
    };
    let mut description = None;
    let mut offset = 0;
    for line in rest.split_inclusive('\n') {
        offset += line.len();
        if line.trim_end() == "---" {
            return (description, rest[offset..].trim_start_matches(['\r', '\n']));
        }
        if let Some(value) = line.strip_prefix("description:") {
            let value = value.trim().trim_matches(['"', '\'']);
            description = Some(value.chars().take(MAX_DESCRIPTION_CHARS).collect());
        }
    }
    // It never ends: then it is no front matter.
    (None, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn front_matter_is_told_apart() {
        let text = "---\nname: sum\ndescription: Use when: asked to sum\n---\n\n# Sum\ndo it\n";
        assert_eq!(split(text), (Some("Use when: asked to sum".into()), "# Sum\ndo it\n"));
        assert_eq!(split("# no front matter"), (None, "# no front matter"));
        assert_eq!(split("---\ndescription: x\n"), (None, "---\ndescription: x\n"));
    }
}
