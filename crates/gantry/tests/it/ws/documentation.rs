//! `docs/protocol.md` names everything in the protocol.

const METHODS: &str = include_str!("../../../../gantry-protocol/src/methods.rs");
const ERRORS: &str = include_str!("../../../../gantry-protocol/src/error.rs");
const CONNECT: &str = include_str!("../../../../gantry-protocol/src/connect.rs");
const TRANSFER: &str = include_str!("../../../../gantry-protocol/src/transfer.rs");
const PAGE: &str = include_str!("../../../../../docs/protocol.md");

/// Texts between quotes after this.
fn quoted<'a>(source: &'a str, after: &str) -> Vec<&'a str> {
    source.split(after).skip(1).filter_map(|rest| rest.split('"').next()).collect()
}

/// Public fields, as they are spelled on the wire.
fn fields(source: &str) -> Vec<String> {
    let names = source
        .lines()
        .filter_map(|line| line.trim().strip_prefix("pub ")?.split_once(": ").map(|(name, _)| name));
    let camel = |name: &str| {
        let mut parts = name.split('_');
        let first = parts.next().unwrap_or_default().to_owned();
        parts.fold(first, |whole, part| whole + &part[..1].to_uppercase() + &part[1..])
    };
    names
        .filter(|name| name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_'))
        .map(camel)
        .collect()
}

#[test]
fn every_method_event_code_and_field_is_documented() {
    let methods = quoted(METHODS, "&str = \"");
    let codes = quoted(ERRORS, "=> \"");
    assert!(methods.len() > 20 && codes.len() > 20, "{methods:?} {codes:?}");
    for name in methods.into_iter().chain(codes) {
        let family = name.split_once('.').map_or(String::new(), |(family, _)| format!("`{family}.*`"));
        assert!(
            PAGE.contains(&format!("`{name}`")) || PAGE.contains(name) && PAGE.contains(&family),
            "{name}"
        );
    }
    for field in [METHODS, CONNECT, TRANSFER].into_iter().flat_map(fields) {
        let known = PAGE.contains(&format!("`{field}`")) || PAGE.contains(&format!("\"{field}\""));
        assert!(known, "the field {field} is not in docs/protocol.md");
    }
}
