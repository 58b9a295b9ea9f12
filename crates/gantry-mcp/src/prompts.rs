//! Prompts: the skills `skills/{name}/SKILL.md` of the workspace, read through the gate.

use rmcp::ErrorData;
use rmcp::model::{GetPromptResult, Prompt, PromptMessage, Role};
use serde_json::Value;

use crate::backend::Backend;
use crate::resources::Reading;

/// Maximum skills in a list, because each is a file to read.
const MAX_SKILLS: usize = 100;

/// Characters of a description in a list.
const MAX_DESCRIPTION_CHARS: usize = 500;

pub(crate) async fn list<B: Backend>(reading: &Reading<'_, B>) -> Vec<Prompt> {
    // Skills that are missing or may not be read are left out.
    let Ok(folder) = reading.file("skills/").await else { return Vec::new() };
    let names = folder["directories"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let mut prompts = Vec::new();
    for name in names.take(MAX_SKILLS) {
        // A folder without SKILL.md is not a skill.
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
    let unknown = |why: &str| ErrorData::invalid_params(format!("unknown skill {shown:?}: {why}"), None);
    if name.is_empty() || name.contains('/') {
        return Err(unknown("the name must be a folder in skills/"));
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

/// Returns the description in the front matter, and the text after it. It is parsed line by line, because people write
/// colons in values, which YAML rejects.
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
    // Without an end marker it is not front matter.
    (None, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn front_matter_is_split_from_the_text() {
        let text = "---\nname: sum\ndescription: Use when: asked to sum\n---\n\n# Sum\ndo it\n";
        assert_eq!(split(text), (Some("Use when: asked to sum".into()), "# Sum\ndo it\n"));
        assert_eq!(split("# no front matter"), (None, "# no front matter"));
        assert_eq!(split("---\ndescription: x\n"), (None, "---\ndescription: x\n"));
    }
}
