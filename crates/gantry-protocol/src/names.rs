//! Node ids. They become parts of tool names and of endpoints.

/// Reserved names. Nodes and MCP servers share one namespace.
const RESERVED: [&str; 2] = ["gsv", "tool"];

const MAX_CHARS: usize = 32;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    #[error(
        "\"{0}\" is not a valid node id: use 1 to {MAX_CHARS} lower-case letters, digits and hyphens, not starting with a hyphen"
    )]
    Form(String),
    #[error("\"{0}\" is reserved and cannot be a node id")]
    Reserved(String),
}

/// `[a-z0-9][a-z0-9-]{0,31}`, and not reserved.
pub fn check_node_id(id: &str) -> Result<(), NameError> {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let bytes = id.as_bytes();
    let well_formed = (1..=MAX_CHARS).contains(&bytes.len())
        && plain(bytes[0])
        && bytes.iter().all(|byte| plain(*byte) || *byte == b'-');
    if !well_formed {
        return Err(NameError::Form(id.chars().take(64).collect()));
    }
    if RESERVED.contains(&id) {
        return Err(NameError::Reserved(id.to_owned()));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_fit_into_names_and_endpoints() {
        for good in ["a", "7", "local", "build-box-2", &"x".repeat(32)] {
            assert!(check_node_id(good).is_ok(), "{good}");
        }
        for bad in ["", "-a", "A", "a_b", "a__b", "a:b", "a.b", "ä", "gsv", "tool", "a\0", &"x".repeat(33)] {
            assert!(check_node_id(bad).is_err(), "{bad}");
        }
    }
}
