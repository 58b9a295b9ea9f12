//! The providers as their documentation has them speak, and the order in which they are asked.

use super::*;

pub(super) fn query(text: &str) -> Query {
    Query {
        text: text.to_owned(),
        max_results: DEFAULT_RESULTS,
        topic: Topic::General,
        time_range: None,
        with_content: false,
    }
}
