//! The guarded toolset: files contained in the workspace, allow-listed commands in a kernel
//! sandbox, the web.

mod apply_patch;
mod file_list;
mod file_read;
mod file_write;
mod shell_exec;
mod web_fetch;
mod web_search;

use crate::{Machine, ToolEntry};

pub(crate) const TOOLS: &[ToolEntry<Machine>] = &[
    (file_read::NAME, file_read::tool),
    (file_write::NAME, file_write::tool),
    (file_list::NAME, file_list::tool),
    (apply_patch::NAME, apply_patch::tool),
    (shell_exec::NAME, shell_exec::tool),
    (web_fetch::NAME, web_fetch::tool),
    (web_search::NAME, web_search::tool),
];

#[cfg(test)]
mod tests;
