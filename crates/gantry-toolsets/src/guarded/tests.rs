//! Tests that hold for every guarded file tool: it cannot leave the workspace, the data directory
//! is closed, and sensitive paths need approval.
#![allow(clippy::disallowed_methods, reason = "tests prepare their own files")]

use std::path::Path;

use gantry_files::testing::{Arena, INNER, SECRET};
use gantry_tool::{Call, Principal, Surface};
use serde_json::{Value, json};

use crate::testing::Bench;

const PATCH: &str = "@@ -1 +1 @@\n-the-secret-outside\n+changed\n";

/// A call of each file tool on one path.
fn calls(path: &str) -> [(&'static str, Value); 4] {
    [
        ("tool::file_read", json!({"path": path})),
        ("tool::file_list", json!({"path": path})),
        ("tool::file_write", json!({"path": path, "content": "changed"})),
        ("tool::apply_patch", json!({"path": path, "patch": PATCH})),
    ]
}

#[tokio::test]
async fn hostile_paths_stay_inside_and_legitimate_paths_work() {
    let bench = Bench::new();
    let folder = tempfile::tempdir().unwrap();
    let arena = Arena::new(folder.path()).unwrap();
    let before = arena.outside().unwrap();
    let workspace = arena.workspace().canonicalize().unwrap();
    let call = || Call::new(Principal::Operator, Surface::Cli, arena.workspace());
    let mut tried = 0;
    for path in arena.legitimate() {
        let Some(path) = path.to_str() else { continue };
        let reply = bench.call_as(call(), "tool::file_read", json!({"path": path})).await.unwrap();
        let real = arena.workspace().join("dir/inner.txt");
        let expected = json!({"content": INNER, "path": real, "size": INNER.len(), "truncated": false});
        assert_eq!(reply, expected, "{path}");
    }
    for path in arena.hostile() {
        let Some(path) = path.to_str() else { continue };
        for (name, input) in calls(path) {
            let reply = bench.call_as(call(), name, input).await;
            let shown = format!("{reply:?}");
            // A name such as `~` is an ordinary name: a file under it stays inside.
            let real = reply.ok().map(|reply| reply["path"].as_str().unwrap().to_owned());
            assert!(
                real.is_none_or(|real| Path::new(&real).starts_with(&workspace)),
                "{name} {path:?}: {shown}"
            );
            assert!(!shown.contains(SECRET), "{name} {path:?}: {shown}");
        }
        tried += 1;
    }
    assert!(tried >= 200, "{tried}");
    assert_eq!(arena.outside().unwrap(), before);
}

#[tokio::test]
async fn data_directory_inside_the_workspace_is_closed() {
    let bench = Bench::new();
    std::fs::write(bench.data().join("token"), SECRET).unwrap();
    // The workspace is the whole bench folder, which contains the data directory.
    let root = bench.data().parent().unwrap().to_owned();
    for path in ["data/token", "data", "workspace/../data/token"] {
        for (name, input) in calls(path) {
            let call = Call::new(Principal::Operator, Surface::Cli, root.clone());
            let refused = bench.call_as(call, name, input).await.unwrap_err();
            assert_eq!(refused["error"]["code"], "denied", "{name} {path}: {refused}");
        }
    }
    assert_eq!(std::fs::read_to_string(bench.data().join("token")).unwrap(), SECRET);
}

#[tokio::test]
async fn agents_need_approval_for_sensitive_files_also_through_links() {
    let bench = Bench::new();
    let env = bench.write(".env", "KEY=1\n");
    std::os::unix::fs::symlink(env, bench.workspace().join("notes")).unwrap();
    for path in [".env", "notes", "sub/../.env", ".ssh/config"] {
        for (name, input) in calls(path) {
            let refused = bench.call_as(bench.agent_call("a"), name, input).await.unwrap_err();
            assert_eq!(refused["error"]["code"], "approval_needed", "{name} {path}: {refused}");
        }
    }
    assert_eq!(bench.read(".env"), "KEY=1\n");
}

/// Policy does not know the vault here, as if a link had been swapped after the policy decision.
#[tokio::test]
async fn sensitive_path_unknown_to_policy_is_denied_on_open() {
    let bench = Bench::with(|parts| {
        let vault = parts.temp_dir.parent().unwrap().join("workspace/vault");
        parts.settings.sensitive = gantry_tool::SensitivePaths::new(vec![vault]);
    });
    let key = bench.write("vault/key", "KEY=1\n");
    std::os::unix::fs::symlink(&key, bench.workspace().join("notes")).unwrap();
    for path in ["vault/key", "notes", "vault/new"] {
        let reads = [("Read", json!({"path": path})), ("Grep", json!({"pattern": "KEY", "path": path}))];
        for (name, input) in calls(path).into_iter().chain(reads) {
            let refused = bench.call_as(bench.agent_call("a"), name, input).await.unwrap_err();
            assert_eq!(refused["error"]["code"], "denied", "{name} {path}: {refused}");
        }
    }
    assert_eq!(bench.read("vault/key"), "KEY=1\n");
    assert!(!bench.workspace().join("vault/new").exists());
    assert_eq!(bench.call("Read", json!({"path": "notes"})).await.unwrap()["content"], "1\tKEY=1");
}
