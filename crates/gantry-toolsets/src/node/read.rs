//! `Read` returns a text file with numbered lines, or an image.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use base64::Engine;
use gantry_files::window::{Start, Window, WindowRequest, window, window_if_cached};
use gantry_files::{FileError, OpenFile};
use gantry_tool::{Capability, Label, Masker, Tool, ToolError, Toolset};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::paths;
use crate::asked;
use crate::blocking::blocking;
use crate::machine::file_error;
use crate::whole_secrets::{beyond_cut, cut_end};
use crate::{Ctx, Machine};

const MAX_TEXT_BYTES: usize = 10 * 1024 * 1024;
const MAX_IMAGE_BYTES: u64 = 10 * 1024 * 1024;

/// Read a text file with line numbers, or an image of up to 10 MB. Other binary files are refused.
///
/// Text is UTF-8, or UTF-16 with a byte-order mark. An `offset` past the end returns nothing.
/// `offset` and `limit` are ignored for images. The error for a binary file states its type.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Input {
    /// Absolute, or relative to the workspace.
    path: String,
    /// Lines to skip: 10 starts at line 11.
    #[serde(default)]
    #[schemars(range(max = 9_007_199_254_740_991_u64))]
    offset: u64,
    /// Most lines to return. Default: all, up to 10 MB.
    #[schemars(range(max = 9_007_199_254_740_991_u64))]
    limit: Option<u64>,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(untagged)]
#[schemars(extend("type" = "object"))]
enum Output {
    Text(TextFile),
    Image(ImageFile),
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct TextFile {
    /// The real absolute path, links followed.
    path: String,
    /// Each line as its number (counted from 1), a tab and the line, without the file's own line
    /// endings.
    content: String,
    /// The number of returned lines.
    lines: u64,
    /// The number of lines in the file.
    total_lines: u64,
    /// Identifies this content of the file; pass it to `Edit` to refuse the edit if the file has
    /// changed.
    tag: String,
    /// Whether the 10 MB limit cut the text.
    truncated: bool,
    /// The `offset` that continues; absent at the end of the file.
    #[serde(skip_serializing_if = "Option::is_none")]
    next_offset: Option<u64>,
    /// The number (from 1) of a line longer than 10 MB; only its beginning is returned.
    #[serde(skip_serializing_if = "Option::is_none")]
    cut_line: Option<u64>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct ImageFile {
    /// A line of text that describes the image, then the image.
    content: [Block; 2],
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(tag = "type", rename_all = "lowercase", rename_all_fields = "camelCase")]
enum Block {
    Text {
        text: String,
    },
    Image {
        /// Base64.
        data: String,
        mime_type: &'static str,
    },
}

pub(super) const NAME: &str = "Read";

pub(crate) fn tool(machine: &Arc<Machine>) -> Tool {
    Tool::new(NAME, Toolset::Node, machine, run)
        .read_only()
        .capabilities(&[Capability::FilesystemRead])
        .labels(&[Label::Private])
        .reads_path("path", machine.free_paths())
        .asks_as(asked::file_read)
        .offered_to_clients()
        .offered_to_agents()
}

async fn run(ctx: Ctx, input: Input) -> Result<Output, ToolError> {
    let file = ctx.state.free(&ctx.call)?.open(&input.path).map_err(file_error)?;
    // Waking a blocking thread would take longer than reading a cached file.
    let masker = ctx.state.masker().clone();
    if let Some(window) = window_if_cached(&file, &input.ask(&masker)) {
        return Ok(Output::Text(numbered(&file, window, &masker)));
    }
    blocking(&ctx, move |_, cancelled| read(&file, &input, &masker, cancelled)).await
}

impl Input {
    fn ask(&self, masker: &Masker) -> WindowRequest {
        let (start, beyond_cut) = (Start::Line(self.offset), beyond_cut(masker));
        WindowRequest { start, limit: self.limit, max_bytes: MAX_TEXT_BYTES, beyond_cut }
    }
}

fn read(
    file: &OpenFile,
    input: &Input,
    masker: &Masker,
    cancelled: &AtomicBool,
) -> Result<Output, ToolError> {
    match window(file, &input.ask(masker), cancelled) {
        Ok(window) => Ok(Output::Text(numbered(file, window, masker))),
        Err(FileError::Binary { mime, .. }) => image(file, &input.path, mime).map(Output::Image),
        Err(err) => Err(file_error(err)),
    }
}

fn numbered(file: &OpenFile, mut window: Window, masker: &Masker) -> TextFile {
    window.text = cut_end(masker, window.text, &window.beyond);
    let mut content = String::with_capacity(window.text.len() + window.text.len() / 8);
    for (number, (line, _)) in (window.first_line + 1..).zip(window.lines()) {
        if !content.is_empty() {
            content.push('\n');
        }
        content.push_str(&number.to_string());
        content.push('\t');
        content.push_str(line);
    }
    TextFile {
        path: paths::text(&file.path),
        content,
        lines: window.lines,
        total_lines: window.total_lines,
        tag: window.tag,
        truncated: window.truncated,
        next_offset: window.next,
        cut_line: window.cut_line.then_some(window.first_line + window.lines),
    }
}

fn image(file: &OpenFile, asked: &str, mime: &'static str) -> Result<ImageFile, ToolError> {
    let size = file.meta.size;
    let name = Path::new(asked).file_name().or(file.path.file_name()).unwrap_or_default().to_string_lossy();
    if !mime.starts_with("image/") {
        let text = format!("Binary file: {name} ({mime}, {size} bytes) — not a text or image file");
        return Err(ToolError::failed(text));
    }
    let bytes = file.read_all(MAX_IMAGE_BYTES).map_err(|err| match err {
        FileError::TooLarge { size, limit, .. } => ToolError::failed(format!(
            "Image file too large: {name} ({mime}, {size} bytes) — at most {limit} bytes (10 MB)"
        )),
        err => file_error(err),
    })?;
    let text = format!("Image file: {name} ({mime}, {} bytes)", bytes.len());
    let data = base64::engine::general_purpose::STANDARD.encode(&bytes);
    Ok(ImageFile { content: [Block::Text { text }, Block::Image { data, mime_type: mime }] })
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "tests prepare their own files")]
mod tests;
