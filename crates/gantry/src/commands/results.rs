//! `gantry results`: read a kept result.

use anyhow::Result;
use gantry_store::KeptResults;
use gantry_tool::{Principal, ResultError, ResultStore};
use serde_json::json;

use crate::cli::ResultsArgs;
use crate::exit::{Exit, UsageError};
use crate::output::Output;
use crate::places::Places;

pub(crate) fn run(places: &Places, output: &Output, args: &ResultsArgs) -> Result<Exit> {
    let reader = Principal::Operator.to_string();
    let results = KeptResults::new(places.data.results());
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
            output.warning(&format!("{} characters in all; --offset {next} reads on", page.total_characters));
        }
    }
    Ok(Exit::Success)
}
