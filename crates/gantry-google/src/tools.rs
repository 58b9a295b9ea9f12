//! The one list of the domain's tools.

use std::sync::Arc;

use gantry_tool::Tool;

use crate::declare::Google;
use crate::{calendar, docs, drive, gmail, sheets};

/// The names of [`all`].
pub(crate) const NAMES: &[&str] = &[gmail::NAME, sheets::NAME, drive::NAME, calendar::NAME, docs::NAME];

pub(crate) fn all(google: &Arc<Google>) -> Vec<Tool> {
    vec![
        gmail::tool(google),
        sheets::tool(google),
        drive::tool(google),
        calendar::tool(google),
        docs::tool(google),
    ]
}
