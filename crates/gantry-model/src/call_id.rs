//! Ids of tool calls, which every provider makes up in its own way.

use std::borrow::Cow;
use std::hash::{BuildHasher, Hasher, RandomState};

/// The characters that all APIs accept; the same id always becomes the same.
pub(crate) fn legal(id: &str) -> Cow<'_, str> {
    let is_legal = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if !id.is_empty() && id.chars().all(is_legal) {
        return Cow::Borrowed(id);
    }
    let legal: String = id.chars().map(|c| if is_legal(c) { c } else { '_' }).collect();
    Cow::Owned(if legal.is_empty() { "_".into() } else { legal })
}

/// For calls that came without one, or with one that another call has.
pub(crate) fn fresh() -> String {
    format!("call_{:016x}", RandomState::new().build_hasher().finish())
}
