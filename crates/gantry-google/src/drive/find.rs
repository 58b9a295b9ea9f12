//! `search` and `list`.

use gantry_tool::ToolError;

use super::files::{FileList, ListOptions, list};
use super::{Action, Input, SERVICE};
use crate::declare::Ctx;
use crate::ids::{object_id, required};
use crate::others_words::fenced;

/// The words that a query of the API can begin with.
const FIELDS: [&str; 18] = [
    "name",
    "fullText",
    "mimeType",
    "modifiedTime",
    "viewedByMeTime",
    "createdTime",
    "sharedWithMeTime",
    "trashed",
    "starred",
    "owners",
    "writers",
    "readers",
    "sharedWithMe",
    "properties",
    "appProperties",
    "visibility",
    "shortcutDetails.targetId",
    "not",
];
const MAX_QUERY: usize = 2000;

pub(super) async fn run(ctx: &Ctx, input: &Input) -> Result<String, ToolError> {
    let account = ctx.state.api.accounts().resolve(input.account.as_deref())?;
    let (query, order) = match input.action {
        Action::List => {
            let folder = input.folder_id.as_deref().unwrap_or("root");
            if folder != "root" {
                object_id("folder_id", folder)?;
            }
            (format!("'{folder}' in parents and trashed = false"), Some("folder,name"))
        }
        _ => (search_query(required("search", "query", input.query.as_deref())?)?, None),
    };
    let (max_results, page_token) = (input.max_results, input.page_token.clone());
    let options = ListOptions { query, order, max_results, page_token };
    let FileList { lines, count, more } = list(&ctx.state, &ctx.call, &account, options).await?;
    if count == 0 {
        return Ok(format!("No files found, account {account}.{more}"));
    }
    Ok(format!("{count} files, account {account}.\n{}{more}", fenced(SERVICE, &lines.join("\n"))))
}

/// Turns words into a query. A query stays as it is, except that files in the trash are left out unless it names them.
fn search_query(text: &str) -> Result<String, ToolError> {
    let text = text.trim();
    if text.is_empty() || text.len() > MAX_QUERY {
        return Err(ToolError::input(format!("query must have 1 to {MAX_QUERY} characters")));
    }
    if !is_query(text) {
        let escaped = text.replace('\\', "\\\\").replace('\'', "\\'");
        return Ok(format!("fullText contains '{escaped}' and trashed = false"));
    }
    Ok(match text.contains("trashed") {
        true => text.to_owned(),
        false => format!("({text}) and trashed = false"),
    })
}

fn is_query(text: &str) -> bool {
    let start = text.trim_start_matches(['(', ' ']);
    if start.starts_with('\'') {
        return start.contains("' in ");
    }
    let (word, rest) = start.split_at(start.find([' ', '=', '!', '<', '>']).unwrap_or(start.len()));
    let rest = rest.trim_start();
    let has_operator = ["=", "!=", "<", ">", "contains ", "in ", "has ", "("]
        .iter()
        .any(|operator| rest.starts_with(operator));
    FIELDS.contains(&word) && (has_operator || word == "not" && is_query(rest) || word == "sharedWithMe")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_become_a_query_and_queries_stay() {
        for (text, expected) in [
            ("bob's plan", "fullText contains 'bob\\'s plan' and trashed = false"),
            ("name of the plan", "fullText contains 'name of the plan' and trashed = false"),
            ("a\\", "fullText contains 'a\\\\' and trashed = false"),
            (
                "name contains 'x' or starred = true",
                "(name contains 'x' or starred = true) and trashed = false",
            ),
            ("trashed=true", "trashed=true"),
            ("'abc' in parents", "('abc' in parents) and trashed = false"),
            ("not name = 'x'", "(not name = 'x') and trashed = false"),
            ("not today", "fullText contains 'not today' and trashed = false"),
            ("sharedWithMe", "(sharedWithMe) and trashed = false"),
        ] {
            assert_eq!(search_query(text).unwrap(), expected);
        }
        assert!(search_query(" ").is_err());
    }
}
