//! Optional paths in inputs. Models often write `""` instead of leaving a path out.

use serde::{Deserialize, Deserializer};

/// Deserialises an optional path. Null and the empty string both mean that it is absent.
pub(crate) fn absent_when_empty<'de, D: Deserializer<'de>>(input: D) -> Result<Option<String>, D::Error> {
    Ok(Option::<String>::deserialize(input)?.filter(|path| !path.is_empty()))
}
