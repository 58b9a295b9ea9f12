//! Optional paths in inputs: models write `""` for a path that they do not want to give.

use serde::{Deserialize, Deserializer};

/// Reads an optional path. Null and the empty string both mean that it is absent.
pub(crate) fn absent_when_empty<'de, D: Deserializer<'de>>(input: D) -> Result<Option<String>, D::Error> {
    Ok(Option::<String>::deserialize(input)?.filter(|path| !path.is_empty()))
}
