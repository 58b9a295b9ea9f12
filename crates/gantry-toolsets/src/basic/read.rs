//! `read` returns lines of a text file and holds only those lines in memory.

use std::sync::Arc;

use gantry_files::FileError;
use gantry_files::window::{Start, Window, WindowRequest, window};
use gantry_tool::{Capability, Label, Tool, ToolError, Toolset};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::asked;
use crate::blocking::blocking;
use crate::machine::file_error;
use crate::whole_secrets::{beyond_cut, cut_end};
use crate::{Ctx, Machine};

/// The largest content of one reply.
const MAX_BYTES: usize = 10 * 1024 * 1024;

/// Read a text file, or some of its lines. Text is UTF-8, or UTF-16 with a byte-order mark; binary
/// files are refused. `total_lines` is the length of the file. A reply holds at most 10 MiB; if
/// there is more, `truncated` is true and `next_offset` continues.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Input {
    /// The file path to read; a relative path starts at the workspace.
    path: String,
    /// Line number to start reading from, counted from 1 (default 1). A negative number counts from
    /// the end: -100 reads the last 100 lines. Past the end, the content is empty.
    #[serde(default = "first_line")]
    offset: i64,
    /// Number of lines to read; null, the default, means all lines.
    limit: Option<u64>,
    /// Put the line number and a tab before each line (default false).
    #[serde(default)]
    line_numbers: bool,
}

fn first_line() -> i64 {
    1
}

#[derive(Debug, Serialize, JsonSchema)]
struct Output {
    /// The lines, with the file's own line endings.
    content: String,
    /// The path that was read, as given.
    path: String,
    /// The number of lines in the file.
    total_lines: u64,
    /// The number of lines in `content`.
    lines_read: u64,
    /// The first line of `content`, counted from 1.
    offset: u64,
    /// The requested limit.
    limit: Option<u64>,
    /// The reply was full before all requested lines were in it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    truncated: bool,
    /// The `offset` that continues, if `truncated`.
    #[serde(skip_serializing_if = "Option::is_none")]
    next_offset: Option<u64>,
    /// The only line of `content` is longer than a reply and was truncated; its rest cannot be read
    /// by line.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    line_cut: bool,
}

pub(super) const NAME: &str = "read";

pub(crate) fn tool(machine: &Arc<Machine>) -> Tool {
    Tool::new(NAME, Toolset::Basic, machine, run)
        .read_only()
        .capabilities(&[Capability::FilesystemRead])
        .labels(&[Label::Private])
        .reads_path("path", machine.free_paths())
        .asks_as(asked::file_read)
        .errors_without_success()
}

async fn run(ctx: Ctx, input: Input) -> Result<Output, ToolError> {
    let path = input.path.clone();
    let read = blocking(&ctx, move |ctx, cancelled| {
        let start = match input.offset {
            // 0 counts as 1.
            0.. => Start::Line(input.offset.unsigned_abs().saturating_sub(1)),
            _ => Start::FromEnd(input.offset.unsigned_abs()),
        };
        let masker = ctx.state.masker();
        let ask =
            WindowRequest { start, limit: input.limit, max_bytes: MAX_BYTES, beyond_cut: beyond_cut(masker) };
        let file =
            ctx.state.free(&ctx.call)?.open(&input.path).map_err(|err| read_error(err, &input.path))?;
        let mut window = window(&file, &ask, cancelled).map_err(file_error)?;
        window.text = cut_end(masker, window.text, &window.beyond);
        Ok(output(input, window))
    });
    read.await.map_err(|err| err.with_field("path", path))
}

fn read_error(err: FileError, path: &str) -> ToolError {
    match err {
        FileError::NotFound { .. } => ToolError::failed(format!("File not found: {path}")),
        other => file_error(other),
    }
}

fn output(input: Input, window: Window) -> Output {
    let first = window.first_line + 1;
    let (content, lines_read) =
        if input.line_numbers { numbered(&window, first) } else { (window.text, window.lines) };
    let left_over = lines_read < window.lines;
    let truncated = window.truncated || left_over;
    let next = first + lines_read;
    Output {
        content,
        path: input.path,
        total_lines: window.total_lines,
        lines_read,
        // Past the end there is no first line, so this returns the requested offset.
        offset: if window.lines == 0 { u64::try_from(input.offset).unwrap_or(1).max(first) } else { first },
        limit: input.limit,
        truncated,
        next_offset: (truncated && next <= window.total_lines).then_some(next),
        line_cut: window.cut_line,
    }
}

/// Returns as many numbered lines as fit, at least the first one.
fn numbered(window: &Window, first: u64) -> (String, u64) {
    let mut content = String::with_capacity(window.text.len());
    let mut count = 0;
    for (number, (line, ending)) in (first..).zip(window.lines()) {
        let number = number.to_string();
        if count > 0 && content.len() + number.len() + 1 + line.len() + 2 > MAX_BYTES {
            break;
        }
        for part in [&number, "\t", line, ending.as_str()] {
            content.push_str(part);
        }
        count += 1;
    }
    (content, count)
}

#[cfg(test)]
mod tests;
