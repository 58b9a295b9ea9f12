//! An endpoint of a transfer: a path on a node, or in the calling agent's workspace.

use std::fmt;

use gantry_protocol::check_node_id;

const WORKSPACE: &str = "gsv";
const MAX_PATH_BYTES: usize = 4095;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Endpoint {
    /// `{nodeId}:/abs/path`, or `{nodeId}:relative`, which starts at the node's workspace.
    Node { node: String, path: String },
    /// `gsv:path`.
    Workspace { path: String },
}

impl Endpoint {
    pub fn parse(text: &str) -> Result<Endpoint, String> {
        let shown: String = text.chars().take(200).collect();
        let Some((end, path)) = text.split_once(':') else {
            return Err(format!(
                "{shown:?} has no machine name; did you mean \"local:{shown}\"? (or gsv:PATH)"
            ));
        };
        if path.is_empty() {
            return Err(format!("the endpoint {shown:?} has no path; write {end}:PATH"));
        }
        if path.contains('\0') {
            return Err(format!("the endpoint {shown:?} contains a NUL character"));
        }
        if path.len() > MAX_PATH_BYTES {
            return Err(format!("the endpoint {shown:?} is longer than {MAX_PATH_BYTES} bytes"));
        }
        let path = path.to_owned();
        if end == WORKSPACE {
            return Ok(Endpoint::Workspace { path });
        }
        check_node_id(end).map_err(|why| format!("invalid endpoint {shown:?}: {why}"))?;
        Ok(Endpoint::Node { node: end.to_owned(), path })
    }

    /// Returns the path of either kind.
    pub fn path(&self) -> &str {
        match self {
            Endpoint::Node { path, .. } | Endpoint::Workspace { path } => path,
        }
    }

    /// Returns the endpoint of an entry below this directory.
    pub fn below(&self, entry: &str) -> Endpoint {
        match self {
            Endpoint::Node { node, path } => {
                let slash = if path.ends_with('/') { "" } else { "/" };
                Endpoint::Node { node: node.clone(), path: format!("{path}{slash}{entry}") }
            }
            // The root is "/", but paths below it have no leading slash.
            Endpoint::Workspace { path } => match path.trim_end_matches('/') {
                "" => Endpoint::Workspace { path: entry.to_owned() },
                folder => Endpoint::Workspace { path: format!("{folder}/{entry}") },
            },
        }
    }

    /// Whether two endpoints are the same path, as far as their text shows.
    pub fn is_same(&self, other: &Endpoint) -> bool {
        match (self, other) {
            (Endpoint::Node { node, path }, Endpoint::Node { node: other_node, path: other_path }) => {
                node == other_node && plain(path) == plain(other_path)
            }
            (Endpoint::Workspace { path }, Endpoint::Workspace { path: other_path }) => {
                plain(path) == plain(other_path)
            }
            _ => false,
        }
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Endpoint::Node { node, path } => write!(formatter, "{node}:{path}"),
            Endpoint::Workspace { path } => write!(formatter, "{WORKSPACE}:{path}"),
        }
    }
}

/// Splits a path without `.`, doubled and final slashes. It keeps `..`, which a link may redirect.
fn plain(path: &str) -> (bool, Vec<&str>) {
    (path.starts_with('/'), path.split('/').filter(|name| !name.is_empty() && *name != ".").collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_are_parsed_or_rejected_with_a_reason() {
        let node = |node: &str, path: &str| Ok(Endpoint::Node { node: node.into(), path: path.into() });
        assert_eq!(Endpoint::parse("box:/a/b"), node("box", "/a/b"));
        assert_eq!(Endpoint::parse("local:rel/x"), node("local", "rel/x"));
        assert_eq!(Endpoint::parse("box:/a:b"), node("box", "/a:b"));
        assert_eq!(Endpoint::parse("gsv:memory/x"), Ok(Endpoint::Workspace { path: "memory/x".into() }));
        let long = format!("box:/{}", "a".repeat(5000));
        for bad in [
            "",
            "box",
            "/a/b",
            ":x",
            "box:",
            "gsv:",
            "Box:/x",
            "a_b:/x",
            "tool:/x",
            "C:\\x",
            "box:/a\0b",
            &long,
        ] {
            assert!(Endpoint::parse(bad).is_err(), "{bad:?}");
        }
        assert_eq!(Endpoint::parse("box:/a").unwrap().to_string(), "box:/a");
    }

    #[test]
    fn entries_have_valid_endpoint_paths() {
        for (folder, expected) in [
            ("box:dir", "box:dir/a/b"),
            ("box:dir/", "box:dir/a/b"),
            ("box:/", "box:/a/b"),
            ("gsv:/", "gsv:a/b"),
            ("gsv:skills/", "gsv:skills/a/b"),
        ] {
            assert_eq!(Endpoint::parse(folder).unwrap().below("a/b").to_string(), expected);
        }
    }

    #[test]
    fn equal_paths_are_recognized_in_different_spellings() {
        let same =
            |one: &str, other: &str| Endpoint::parse(one).unwrap().is_same(&Endpoint::parse(other).unwrap());
        for (one, other) in
            [("b:/a/b", "b:/a/b"), ("b:/a/b", "b://a/./b/"), ("gsv:x", "gsv:./x"), ("b:x", "b:./x")]
        {
            assert!(same(one, other), "{one} {other}");
        }
        for (one, other) in [("b:/a", "c:/a"), ("b:/a", "b:a"), ("gsv:x", "b:x"), ("b:/a/../b", "b:/b")] {
            assert!(!same(one, other), "{one} {other}");
        }
    }
}
