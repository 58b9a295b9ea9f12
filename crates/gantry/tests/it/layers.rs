//! Every edge between our crates is listed here. Any other edge fails, and so does a listed edge that no code uses.

use std::path::Path;

use cargo_metadata::{DependencyKind, MetadataCommand};

/// Who may depend on whom, in the product.
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
    ("gantry-example", &["gantry-domain", "gantry-protocol", "gantry-tool"]),
    ("gantry-agent", &["gantry-domain", "gantry-model", "gantry-protocol", "gantry-store", "gantry-tool"]),
    ("gantry-mcp", &["gantry-domain", "gantry-net", "gantry-process", "gantry-store", "gantry-tool"]),
    ("gantry-apis", &["gantry-net", "gantry-store", "gantry-tool"]),
    ("gantry-store", &["gantry-protocol", "gantry-tool"]),
    ("gantry-transfer", &["gantry-files", "gantry-protocol"]),
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
            "gantry-protocol",
            "gantry-store",
            "gantry-tool",
            "gantry-toolsets",
            "gantry-transfer",
        ],
    ),
    (
        "gantry",
        &[
            "gantry-agent",
            "gantry-apis",
            "gantry-domain",
            "gantry-example",
            "gantry-files",
            "gantry-gateway",
            "gantry-link",
            "gantry-mcp",
            "gantry-model",
            "gantry-net",
            "gantry-node",
            "gantry-process",
            "gantry-protocol",
            "gantry-store",
            "gantry-tool",
            "gantry-toolsets",
            "gantry-transfer",
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

#[test]
fn crates_depend_only_downwards() {
    let metadata = MetadataCommand::new()
        .manifest_path(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml"))
        .exec()
        .unwrap();
    let mut used = Vec::new();
    for package in metadata.workspace_packages() {
        let name = package.name.as_str();
        let (_, allowed) = EDGES
            .iter()
            .find(|(known, _)| *known == name)
            .unwrap_or_else(|| panic!("{name} is not in the list of layers; add it with its edges"));
        for dependency in
            package.dependencies.iter().filter(|dependency| dependency.kind == DependencyKind::Normal)
        {
            let to = dependency.name.as_str();
            if EDGES.iter().any(|(known, _)| *known == to) {
                assert!(allowed.contains(&to), "{name} must not depend on {to}");
                if names_crate(package.manifest_path.with_file_name("src").as_std_path(), to) {
                    used.push((name.to_owned(), to.to_owned()));
                }
            }
            assert!(!ABSENT.contains(&(name, to)), "{name} must not depend on {to}");
        }
    }
    let listed = EDGES.iter().flat_map(|(from, to)| to.iter().map(|to| (from.to_string(), to.to_string())));
    let unused: Vec<_> = listed.filter(|edge| !used.contains(edge)).collect();
    assert_eq!(unused, [], "no source uses these edges; remove them from the list and from the manifest");
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
