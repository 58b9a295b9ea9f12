//! Names for MCP clients and models: at most 64 letters, digits, `_` and `-`. Both use the same form, so two tools collide
//! for both or for neither.

const MAX_CHARS: usize = 64;

/// The length of the hash at the end of a shortened name.
const HASH_CHARS: usize = 16;

/// `tool::file_read` becomes `tool__file_read`. A name that still does not fit is shortened and ends with a hash.
pub fn published_name(name: &str) -> String {
    let spelled = folded(name);
    if spelled.len() <= MAX_CHARS && !spelled.is_empty() && spelled.chars().all(fits) {
        return spelled;
    }
    let head = spelled.chars().map(|c| if fits(c) { c } else { '_' });
    let head: String = head.take(MAX_CHARS - HASH_CHARS - 1).collect();
    format!("{head}_{}", &blake3::hash(name.as_bytes()).to_hex()[..HASH_CHARS])
}

/// Whether a name may end with a hash. The registry knows the original name.
pub fn may_be_hashed(name: &str) -> bool {
    let hash = name.rsplit_once('_').map(|(_, hash)| hash);
    hash.is_some_and(|hash| hash.len() == HASH_CHARS && hash.chars().all(|c| c.is_ascii_hexdigit()))
}

/// The name with `__` for `::`, for surfaces that do not allow colons.
pub(crate) fn folded(name: &str) -> String {
    name.replace("::", "__")
}

fn fits(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_' || c == '-'
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colons_become_underscores_and_the_rest_a_hash() {
        assert_eq!(published_name("tool::file_read"), "tool__file_read");
        assert_eq!(published_name("local__Bash"), "local__Bash");
        let long = published_name(&"x".repeat(65));
        assert_eq!((long.len(), may_be_hashed(&long)), (64, true));
        assert_ne!(long, published_name(&"x".repeat(66)));
        assert!(published_name("a.b").starts_with("a_b_") && published_name("a.b") != published_name("a:b"));
        assert!(!may_be_hashed("tool__file_read"));
    }
}
