//! `write` writes a whole file, inserts lines, or replaces a range of lines.

use std::sync::Arc;

use gantry_files::line_write::{self, LineWrite};
use gantry_files::text::{self, NotText, Text};
use gantry_files::{FileError, Scope, UpdateOptions, WriteOptions};
use gantry_protocol::AskedAction;
use gantry_tool::{AskedCall, Capability, Tool, ToolError, Toolset};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::asked::{self, Shown};
use crate::blocking::blocking;
use crate::machine::file_error;
use crate::{Ctx, Machine};

/// Write a whole text file, insert lines, or replace a range of lines. Without `start_line` the
/// data becomes the whole file; with `start_line` alone it is inserted before that line; with
/// `start_line` and `end_line` it replaces those lines, both included. Missing directories and
/// files are created. Changes are atomic. Inserting and replacing keep the file's encoding and line
/// endings.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Input {
    /// The file path to write; a relative path starts at the workspace.
    path: String,
    /// The text to write. A whole file is written exactly as given, as UTF-8, whatever the old
    /// encoding. Inserted lines get a final newline if text follows.
    data: String,
    /// Line number to insert or start replacing at, counted from 1. One past the last line appends.
    /// Up to 1000 lines further, empty lines fill the gap; beyond that the data is appended.
    start_line: Option<u64>,
    /// Last line to replace; only with `start_line`. Past the end it means the last line.
    end_line: Option<u64>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Output {
    /// Always true.
    success: bool,
    /// The path that was written, as given.
    path: String,
    /// Bytes of `data`.
    bytes_written: u64,
    /// The kind of write: the whole file, inserted lines, or replaced lines.
    mode: Mode,
    /// Lines of `data`.
    lines_affected: u64,
    /// The first line of the inserted data.
    #[serde(skip_serializing_if = "Option::is_none")]
    inserted_at: Option<u64>,
    /// How many existing lines were replaced.
    #[serde(skip_serializing_if = "Option::is_none")]
    lines_replaced: Option<u64>,
    /// The replaced lines, as in `10-20`.
    #[serde(skip_serializing_if = "Option::is_none")]
    range: Option<String>,
    /// A summary.
    message: String,
}

#[derive(Debug, Clone, Copy, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Mode {
    Write,
    Insert,
    Replace,
}

/// The target lines, counted from 1.
#[derive(Debug, Clone, Copy)]
enum Lines {
    Before(u64),
    Range { start: u64, end: u64 },
}

pub(super) const NAME: &str = "write";

async fn described(machine: Arc<Machine>, asked: AskedCall, input: Input) -> Option<AskedAction> {
    let shown = Shown::Content(input.data.clone());
    let path = input.path.clone();
    let written = move |present: &[u8]| match lines(&input).ok()? {
        None => Some(input.data),
        Some(lines) => {
            let present = text::decode(present).ok()?;
            let written = match lines {
                Lines::Range { start, end } => {
                    line_write::replace(&present.text, &input.data, start, end).ok()?
                }
                Lines::Before(line) => line_write::insert(&present.text, &input.data, line),
            };
            Some(written.parts.concat())
        }
    };
    asked::file_change(&machine, asked, path, shown, Machine::free, written).await
}

pub(crate) fn tool(machine: &Arc<Machine>) -> Tool {
    let own = machine.clone();
    Tool::new(NAME, Toolset::Basic, machine, run)
        .capabilities(&[Capability::FilesystemWrite, Capability::FilesystemEdit])
        .writes_path("path", machine.free_paths())
        .asks_as(move |asked, input| described(own.clone(), asked, input))
}

async fn run(ctx: Ctx, input: Input) -> Result<Output, ToolError> {
    let path = input.path.clone();
    let written = blocking(&ctx, move |ctx, _| {
        let lines = lines(&input)?;
        let scope = ctx.state.free(&ctx.call)?;
        match lines {
            None => write_whole(&scope, input),
            Some(lines) => write_lines(&scope, input, lines),
        }
    });
    written.await.map_err(|err| err.with_field("path", path))
}

/// Returns the target lines, or `None` for the whole file. 0 counts as 1, as in `read`.
fn lines(input: &Input) -> Result<Option<Lines>, ToolError> {
    match (input.start_line.map(|line| line.max(1)), input.end_line.map(|line| line.max(1))) {
        (None, None) => Ok(None),
        (None, Some(_)) => Err(ToolError::input("end_line requires start_line to be specified")),
        (Some(line), None) => Ok(Some(Lines::Before(line))),
        (Some(start), Some(end)) if end < start => Err(ToolError::input("end_line must be >= start_line")),
        (Some(start), Some(end)) => Ok(Some(Lines::Range { start, end })),
    }
}

fn write_whole(scope: &Scope, input: Input) -> Result<Output, ToolError> {
    let options = WriteOptions { make_parents: true, ..WriteOptions::default() };
    scope.replace(&input.path, &[input.data.as_bytes()], options).map_err(file_error)?;
    let message = "File written successfully".to_owned();
    Ok(Output::new(Mode::Write, message, text::count_lines(&input.data), input))
}

fn write_lines(scope: &Scope, input: Input, lines: Lines) -> Result<Output, ToolError> {
    let options = UpdateOptions { create: true, make_parents: true, ..UpdateOptions::default() };
    let update = scope.update(&input.path, options).map_err(file_error)?;
    let binary = |not_text: NotText| {
        file_error(FileError::Binary { path: update.path().to_owned(), mime: not_text.mime })
    };
    let Text { text, encoding } = text::decode(update.bytes()).map_err(binary)?;
    let line_write = match lines {
        Lines::Range { start, end } => line_write::replace(&text, &input.data, start, end)
            .map_err(|err| ToolError::input(err.to_string()))?,
        Lines::Before(line) => line_write::insert(&text, &input.data, line),
    };
    let LineWrite { parts, inserted_at, lines_affected, lines_replaced } = line_write;
    update.write(&text::encode(encoding, parts)).map_err(file_error)?;
    Ok(match lines {
        Lines::Range { start, end } => {
            // A range past the end is clamped. One entirely past it replaces nothing and is
            // reported as requested.
            let end = if lines_replaced == 0 { end } else { start + lines_replaced - 1 };
            let message = format!(
                "Replaced lines {start}-{end} ({lines_replaced} lines) with {lines_affected} new lines"
            );
            Output {
                lines_replaced: Some(lines_replaced),
                range: Some(format!("{start}-{end}")),
                inserted_at: (lines_replaced == 0).then_some(inserted_at),
                ..Output::new(Mode::Replace, message, lines_affected, input)
            }
        }
        Lines::Before(_) => {
            let message = format!("Data inserted at line {inserted_at}");
            let inserted_at = Some(inserted_at);
            Output { inserted_at, ..Output::new(Mode::Insert, message, lines_affected, input) }
        }
    })
}

impl Output {
    fn new(mode: Mode, message: String, lines_affected: u64, input: Input) -> Output {
        Output {
            success: true,
            bytes_written: input.data.len() as u64,
            path: input.path,
            mode,
            lines_affected,
            inserted_at: None,
            lines_replaced: None,
            range: None,
            message,
        }
    }
}

#[cfg(test)]
mod tests;
