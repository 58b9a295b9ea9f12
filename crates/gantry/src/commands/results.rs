//! `gantry results` reads a stored tool result.

use anyhow::Result;
use clap::Args;
use gantry_store::KeptResults;
use gantry_tool::{Principal, ResultError, ResultStore};
use serde_json::json;

use crate::environment::Environment;
use crate::exit::{Exit, UsageError};
use crate::output::Output;

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    gantry results res_0123456789abcdef0123456789abcdef --limit 2000\n  \
    gantry results res_0123456789abcdef0123456789abcdef --grep 'error|warning'")]
pub(crate) struct ResultsArgs {
    /// Handle of the result, from `resultHandle`
    pub(crate) handle: String,
    /// First character to show; with --grep, how many matches to skip
    #[arg(long, default_value_t = 0)]
    pub(crate) offset: usize,
    /// Maximum number of characters to show
    #[arg(long, default_value_t = 80_000)]
    pub(crate) limit: usize,
    /// Show only passages that match this regular expression
    #[arg(long, value_name = "REGEX")]
    pub(crate) grep: Option<String>,
}

pub(crate) fn run(environment: &Environment, output: &Output, args: &ResultsArgs) -> Result<Exit> {
    let reader = Principal::Operator.to_string();
    let results = KeptResults::new(environment.data.results());
    let page = match results.read(&reader, &args.handle, args.offset, args.limit, args.grep.as_deref()) {
        Ok(page) => page,
        Err(ResultError::BadPattern(text)) => return Err(UsageError(text).into()),
        Err(err) => return Err(err.into()),
    };
    if output.json {
        output.value(&json!({
            "handle": args.handle, "text": page.text, "totalCharacters": page.total_characters,
            "nextOffset": page.next_offset, "matches": page.matches,
        }));
    } else {
        output.reply(&gantry_tool::Reply::Text(page.text));
        if let Some(next) = page.next_offset {
            output.warning(&format!(
                "{} characters in total; continue with --offset {next}",
                page.total_characters
            ));
        }
    }
    Ok(Exit::Success)
}
