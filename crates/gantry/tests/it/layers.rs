//! The allowed edges between our crates. Any other edge fails, and so does one that no code uses.

use std::path::{Path, PathBuf};

use cargo_metadata::{DependencyKind, MetadataCommand};

/// Feature areas. Each may depend on [`BELOW_DOMAINS`], and the binary may depend on each.
const DOMAINS: &[&str] = &[
    "gantry-agent",
    "gantry-apis",
    "gantry-channels",
    "gantry-example",
    "gantry-flow",
    "gantry-google",
    "gantry-mcp",
    "gantry-web",
];

/// Domains that use another domain.
const BETWEEN_DOMAINS: &[(&str, &str)] = &[
    ("gantry-channels", "gantry-agent"),
    ("gantry-channels", "gantry-flow"),
    ("gantry-flow", "gantry-agent"),
];

/// Contracts and substrates that every domain may use.
const BELOW_DOMAINS: &[&str] = &[
    "gantry-domain",
    "gantry-files",
    "gantry-link",
    "gantry-model",
    "gantry-net",
    "gantry-page",
    "gantry-process",
    "gantry-protocol",
    "gantry-store",
    "gantry-tool",
];

/// The edges of all other crates, in the product.
const EDGES: &[(&str, &[&str])] = &[
    ("gantry-tool", &["gantry-protocol"]),
    ("gantry-protocol", &[]),
    ("gantry-link", &["gantry-protocol"]),
    ("gantry-net", &[]),
    ("gantry-model", &["gantry-net"]),
    ("gantry-page", &[]),
    ("gantry-files", &[]),
    ("gantry-process", &[]),
    ("gantry-domain", &["gantry-link", "gantry-protocol", "gantry-store", "gantry-tool"]),
    ("gantry-store", &["gantry-protocol", "gantry-tool"]),
    ("gantry-transfer", &["gantry-files", "gantry-protocol"]),
    (
        "gantry-transfers",
        &[
            "gantry-domain",
            "gantry-link",
            "gantry-protocol",
            "gantry-store",
            "gantry-tool",
            "gantry-toolsets",
            "gantry-transfer",
        ],
    ),
    (
        "gantry-toolsets",
        &[
            "gantry-apis",
            "gantry-files",
            "gantry-net",
            "gantry-page",
            "gantry-process",
            "gantry-protocol",
            "gantry-store",
            "gantry-tool",
            "gantry-transfer",
        ],
    ),
    (
        "gantry-node",
        &[
            "gantry-link",
            "gantry-net",
            "gantry-process",
            "gantry-protocol",
            "gantry-tool",
            "gantry-toolsets",
            "gantry-transfer",
        ],
    ),
    (
        "gantry-gateway",
        &[
            "gantry-agent",
            "gantry-domain",
            "gantry-link",
            "gantry-mcp",
            "gantry-net",
            "gantry-protocol",
            "gantry-store",
            "gantry-tool",
            "gantry-toolsets",
            "gantry-transfers",
        ],
    ),
    (
        "gantry",
        &[
            "gantry-domain",
            "gantry-files",
            "gantry-gateway",
            "gantry-link",
            "gantry-model",
            "gantry-net",
            "gantry-node",
            "gantry-process",
            "gantry-protocol",
            "gantry-store",
            "gantry-tool",
            "gantry-toolsets",
            "gantry-transfer",
            "gantry-transfers",
        ],
    ),
    // Dev-dependencies are free, so any crate's tests may use the kit. No crate may have it in the product.
    ("gantry-testkit", &["gantry-link", "gantry-protocol", "gantry-store"]),
    ("xtask", &[]),
];

/// Crates that may not be anywhere below these: a door has one owner.
const ABSENT: &[(&str, &str)] = &[
    ("gantry-tool", "rustix"),
    ("gantry-tool", "tempfile"),
    ("gantry-files", "tokio"),
    ("gantry-files", "serde_json"),
    ("gantry-toolsets", "rustix"),
    ("gantry-toolsets", "sqlx"),
    ("gantry-toolsets", "object_store"),
];

/// Crates with which a connection could be opened, or spoken on; they are gantry-net's.
const CONNECTING: &[&str] = &[
    "attohttpc",
    "async-compression",
    "curl",
    "h2",
    "hickory-resolver",
    "hyper",
    "hyper-rustls",
    "hyper-util",
    "if-addrs",
    "isahc",
    "native-tls",
    "object_store",
    "openssl",
    "quinn",
    "reqwest",
    "rustls",
    "socket2",
    "surf",
    "tokio-native-tls",
    "tokio-rustls",
    "tokio-tungstenite",
    "tungstenite",
    "ureq",
];

/// Who else may have one of them, and why.
const CONNECTING_ELSEWHERE: &[(&str, &str, &str)] = &[
    ("gantry-gateway", "hyper", "the server side of the gateway's own listener"),
    ("gantry-gateway", "hyper-util", "the server side of the gateway's own listener"),
    ("gantry-gateway", "rustls", "the certificate of the gateway's own listener"),
    ("gantry-gateway", "tokio-rustls", "the certificate of the gateway's own listener"),
    (
        "gantry-store",
        "object_store",
        "speaks to the bucket that the operator configured, never to one that an agent named",
    ),
];

#[test]
fn only_gantry_net_depends_on_network_clients() {
    let metadata = MetadataCommand::new()
        .manifest_path(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml"))
        .exec()
        .unwrap();
    let mut used = Vec::new();
    for package in metadata.workspace_packages() {
        let name = package.name.as_str();
        let dependencies =
            package.dependencies.iter().filter(|dependency| dependency.kind == DependencyKind::Normal);
        for dependency in dependencies.filter(|dependency| CONNECTING.contains(&dependency.name.as_str())) {
            if name == "gantry-net" {
                continue;
            }
            let to = dependency.name.as_str();
            let known = CONNECTING_ELSEWHERE.iter().find(|(who, what, _)| (*who, *what) == (name, to));
            assert!(known.is_some(), "{name} must not depend on {to}; connections are gantry-net's to make");
            let client = dependency.features.iter().find(|feature| feature.starts_with("client"));
            assert_eq!(client, None, "{name} must not have the client of {to}");
            used.extend(known);
        }
    }
    for exception in CONNECTING_ELSEWHERE {
        assert!(used.contains(&exception), "{exception:?} is no longer needed");
    }
}

/// Whether `from` may depend on `to`.
fn is_allowed(from: &str, to: &str) -> bool {
    if DOMAINS.contains(&from) {
        return BELOW_DOMAINS.contains(&to) || BETWEEN_DOMAINS.contains(&(from, to));
    }
    (from == "gantry" && DOMAINS.contains(&to)) || edges_of(from).is_some_and(|edges| edges.contains(&to))
}

fn edges_of(name: &str) -> Option<&'static [&'static str]> {
    EDGES.iter().find(|(known, _)| *known == name).map(|(_, edges)| *edges)
}

#[test]
fn crates_depend_only_downwards() {
    let metadata = MetadataCommand::new()
        .manifest_path(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml"))
        .exec()
        .unwrap();
    let ours: Vec<&str> = metadata.workspace_packages().iter().map(|package| package.name.as_str()).collect();
    let (mut used, mut unused) = (Vec::new(), Vec::new());
    for package in metadata.workspace_packages() {
        let name = package.name.as_str();
        assert!(
            DOMAINS.contains(&name) || edges_of(name).is_some(),
            "{name} is in no list of layers.rs; add it to DOMAINS, or to EDGES with its edges"
        );
        for dependency in
            package.dependencies.iter().filter(|dependency| dependency.kind == DependencyKind::Normal)
        {
            let to = dependency.name.as_str();
            assert!(!ABSENT.contains(&(name, to)), "{name} must not depend on {to}");
            if !ours.contains(&to) {
                continue;
            }
            assert!(is_allowed(name, to), "{name} must not depend on {to}");
            match names_crate(package.manifest_path.with_file_name("src").as_std_path(), to) {
                true => used.push((name, to)),
                false => unused.push((name, to)),
            }
        }
    }
    assert_eq!(unused, [], "no source uses these dependencies; remove them from the manifest");
    let listed = EDGES.iter().flat_map(|(from, to)| to.iter().map(|to| (*from, *to)));
    let listed = listed.chain(BETWEEN_DOMAINS.iter().copied());
    let unused: Vec<_> = listed.filter(|edge| !used.contains(edge)).collect();
    assert_eq!(unused, [], "no source uses these edges; remove them from the list");
}

/// Lines outside its own crate by which a domain plugs in: a dependency, an entry in the list of domains, a section
/// of the configuration, and an entry in [`DOMAINS`]. A command would be a fifth.
const MAX_LINES_OF_A_DOMAIN: usize = 4;

#[test]
fn a_domain_plugs_in_with_four_lines() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut lines = Vec::new();
    for path in source_files(crates) {
        let relative = path.strip_prefix(crates).unwrap();
        let is_test = relative.components().any(|part| part.as_os_str() == "tests");
        let is_this_list = path == Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/layers.rs");
        if relative.starts_with("gantry-example") || (is_test && !is_this_list) {
            continue;
        }
        let text = std::fs::read_to_string(&path).unwrap();
        // Below its list, this file may name the domain.
        let text = if is_this_list { text.split("const BELOW_DOMAINS").next().unwrap() } else { &text };
        let mentions = |line: &&str| {
            let is_field = line.contains("example:") || line.contains("config.example");
            line.contains("gantry-example")
                || line.contains("gantry_example")
                || (relative.starts_with("gantry/src") && is_field)
        };
        let found =
            text.lines().filter(mentions).map(|line| format!("{}: {}", relative.display(), line.trim()));
        lines.extend(found);
    }
    assert!(
        lines.len() <= MAX_LINES_OF_A_DOMAIN,
        "the example domain needs {} lines: {lines:#?}",
        lines.len()
    );
    for place in ["gantry/Cargo.toml", "gantry/src/running_gateway.rs", "gantry/src/config.rs"] {
        assert!(lines.iter().any(|line| line.starts_with(place)), "{place} does not name it: {lines:#?}");
    }
}

/// Rust sources and manifests below a folder.
fn source_files(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries
        .flat_map(|path| match path.is_dir() {
            true if path.file_name().is_some_and(|name| name == "target") => Vec::new(),
            true => source_files(&path),
            false => vec![path],
        })
        .filter(|path| path.extension().is_some_and(|extension| extension == "rs" || extension == "toml"))
        .collect()
}

/// Whether a source file below `folder` names the crate. A manifest can list a dependency that no code uses.
fn names_crate(folder: &Path, package: &str) -> bool {
    let path_prefix = format!("{}::", package.replace('-', "_"));
    std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).any(|path| {
        if path.is_dir() {
            return names_crate(&path, package);
        }
        path.extension().is_some_and(|extension| extension == "rs")
            && std::fs::read_to_string(&path).unwrap().contains(&path_prefix)
    })
}

#[test]
fn only_the_binary_sets_up_a_log() {
    let metadata = MetadataCommand::new()
        .manifest_path(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml"))
        .exec()
        .unwrap();
    for package in metadata.workspace_packages().iter().filter(|package| package.name.as_str() != "gantry") {
        let logging = |name: &str| name == "log" || (name.starts_with("tracing") && name != "tracing");
        let found = package.dependencies.iter().find(|dependency| logging(&dependency.name));
        assert!(found.is_none(), "{} must log through `tracing` alone, not {found:?}", package.name);
    }
}

#[test]
fn testing_feature_is_a_dev_dependency_only() {
    let manifest = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml")).unwrap();
    let product = manifest.split("[dev-dependencies]").next().unwrap();
    assert!(!product.contains("testing"), "the testing feature must not reach the product");
}
