//! Makes the titles of tools that clients show.

/// Returns a tool's title: `web_fetch` becomes `Web fetch`.
pub(crate) fn title(name: &str) -> String {
    let bare = name.rsplit_once("::").map_or(name, |(_, bare)| bare);
    let spaced = bare.replace("__", " ").replace('_', " ");
    let mut chars = spaced.chars();
    chars.next().map(|first| first.to_uppercase().chain(chars).collect()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn titles_have_spaces() {
        assert_eq!(
            ["Read", "tool::web_fetch", "result_read", "laptop__Bash"].map(title),
            ["Read", "Web fetch", "Result read", "Laptop Bash"]
        );
    }
}
