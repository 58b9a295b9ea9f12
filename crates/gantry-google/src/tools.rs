//! The one list of the domain's tools.

use std::sync::Arc;

use gantry_tool::Tool;

use crate::declare::Google;
use crate::{calendar, drive, sheets};

/// The names of [`all`].
pub(crate) const NAMES: &[&str] = &[sheets::NAME, drive::NAME, calendar::NAME];

pub(crate) fn all(google: &Arc<Google>) -> Vec<Tool> {
    vec![sheets::tool(google), drive::tool(google), calendar::tool(google)]
}
