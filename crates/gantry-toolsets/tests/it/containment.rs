//! Hostile paths in every path field: contained tools never leave the workspace, and no tool
//! reaches Gantry's data directory.

use std::collections::BTreeMap;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use gantry_files::testing::{Arena, INNER, SECRET};
use gantry_tool::testing::{MemoryAudit, MemoryResults, call_as};
use gantry_tool::{Autonomy, Call, Gate, GateParts, Principal, Surface, Tool, Toolset};
use gantry_toolsets::testing::Bench;
use serde_json::Value;

use crate::probes::{Access, Probe, probes};

/// Schema fields that carry a path, by name.
const PATH_FIELDS: &[&str] =
    &["path", "cwd", "workdir", "directory", "destination", "file", "root", "source"];

/// Returns the bench's tools behind a gate whose policy allows everything, so that only the engines
/// can refuse.
fn open_gate(bench: &Bench) -> Gate {
    let (audit, results) = (Arc::new(MemoryAudit::default()), Arc::new(MemoryResults::default()));
    Gate::new(GateParts { registry: bench.gate.registry().clone(), ..GateParts::new(audit, results) })
}

/// Commands run as an agent, because the operator's own shell is not confined. Other tools run as
/// the operator, whom no default rule restricts.
fn call_for(probe: &Probe, workspace: PathBuf) -> Call {
    let principal = match probe.access.starts_a_command() {
        true => Principal::Agent { id: "probe".into() },
        false => Principal::Operator,
    };
    let mut call = Call::new(principal, Surface::Cli, workspace);
    call.autonomy = Autonomy::Guided;
    call
}

fn all_probes(bench: &Bench) -> Vec<(Arc<Tool>, Probe)> {
    let mut all = Vec::new();
    for tool in bench.gate.registry().entries() {
        all.extend(probes(tool.name()).into_iter().map(|probe| (tool.clone(), probe)));
    }
    all
}

/// Starting processes is slow, so commands get a sample of the paths unless the full suite is
/// requested.
fn sample<'a>(probe: &Probe, paths: &'a [String]) -> impl Iterator<Item = &'a String> {
    let step = if probe.access.starts_a_command() { gantry_testkit::scaled(1, 21) } else { 1 };
    paths.iter().step_by(step)
}

#[test]
fn every_path_field_has_a_probe() {
    let bench = Bench::new();
    for tool in bench.gate.registry().entries() {
        let properties = tool.input_schema()["properties"].as_object().cloned().unwrap_or_default();
        let covered: Vec<&str> = probes(tool.name()).iter().map(|probe| probe.field).collect();
        for field in properties.keys() {
            let lower = field.to_lowercase();
            // A profile field ends with "file" but is not a path.
            let carries_path = PATH_FIELDS.contains(&lower.as_str())
                || (["path", "dir", "directory", "cwd", "file"].iter().any(|end| lower.ends_with(end))
                    && lower != "profile");
            assert!(
                !carries_path || covered.contains(&field.as_str()),
                "{}.{field} carries a path and has no probe in probes.rs",
                tool.name()
            );
        }
        for field in covered {
            assert!(properties.contains_key(field), "{} has no field {field}; fix probes.rs", tool.name());
        }
    }
}

#[tokio::test]
async fn contained_tools_never_leave_the_workspace() {
    let bench = Bench::new();
    let gate = open_gate(&bench);
    let folder = tempfile::tempdir().unwrap();
    let arena = Arena::new(folder.path()).unwrap();
    let base = folder.path().canonicalize().unwrap().display().to_string();
    let text = |paths: Vec<std::ffi::OsString>| -> Vec<String> {
        paths.iter().map(|path| path.to_string_lossy().into_owned()).collect()
    };
    let (hostile, malformed) = (text(arena.hostile()), text(arena.malformed()));
    assert!(hostile.len() >= 200, "{}", hostile.len());
    let before = arena.outside().unwrap();
    let contained = all_probes(&bench).into_iter().filter(|(tool, _)| tool.toolset() == Toolset::Guarded);
    for (tool, probe) in contained {
        for path in sample(&probe, &hostile) {
            // If containment fails, this test must still not write to the machine that it runs on.
            if probe.access == Access::Write && path.starts_with('/') && !path.contains(&base) {
                continue;
            }
            let call = call_for(&probe, arena.workspace());
            let answer = call_as(&gate, call, tool.name(), (probe.build)(path)).await;
            let context = format!("{} {} {path:?}: {answer:?}", tool.name(), probe.field);
            assert!(!reveals_secret(&answer), "{context}");
            let may_answer = probe.access == Access::Command || malformed.contains(path);
            assert!(may_answer || answer.is_err(), "{context}");
        }
        assert_eq!(arena.outside().unwrap(), before, "{} {}", tool.name(), probe.field);
    }
}

#[tokio::test]
async fn legitimate_paths_work_for_contained_tools() {
    let bench = Bench::new();
    let gate = open_gate(&bench);
    let folder = tempfile::tempdir().unwrap();
    let arena = Arena::new(folder.path()).unwrap();
    let paths: Vec<String> =
        arena.legitimate().iter().map(|path| path.to_string_lossy().into_owned()).collect();
    assert!(paths.len() >= 50, "{}", paths.len());
    let inner = arena.workspace().join("dir/inner.txt");
    for (name, expected) in [
        ("tool::file_read", INNER),
        ("tool::file_write", "written\n"),
        ("tool::apply_patch", "patched\n"),
        ("tool::file_list", INNER),
        ("tool::shell_exec", INNER),
    ] {
        assert!(bench.gate.registry().registered(name), "{name}");
        for path in &paths {
            std::fs::write(&inner, INNER).unwrap();
            let Some(input) = legitimate_input(name, path) else { continue };
            let call = Call::new(Principal::Operator, Surface::Cli, arena.workspace());
            let answer = call_as(&gate, call, name, input).await;
            assert!(answer.is_ok(), "{name} {path}: {answer:?}");
            assert_eq!(std::fs::read_to_string(&inner).unwrap(), expected, "{name} {path}");
        }
    }
}

fn legitimate_input(tool: &str, path: &str) -> Option<Value> {
    use serde_json::json;
    let folder = path.strip_suffix("/inner.txt");
    match tool {
        "tool::file_read" => Some(json!({"path": path})),
        "tool::file_write" => Some(json!({"path": path, "content": "written\n"})),
        "tool::apply_patch" => {
            Some(json!({"path": path, "patch": "@@ -1 +1 @@\n-inner-content\n+patched\n"}))
        }
        "tool::file_list" => folder.map(|folder| json!({"path": folder})),
        _ => folder.map(|folder| json!({"argv": ["cat", "inner.txt"], "cwd": folder})),
    }
}

#[tokio::test]
async fn data_directory_is_closed_to_every_tool_in_every_spelling() {
    let bench = Bench::new();
    let (data, workspace) = (bench.data(), bench.workspace());
    std::fs::create_dir_all(data.join("inner")).unwrap();
    for name in ["token", "secret", "inner/db", MARKER] {
        std::fs::write(data.join(name), SECRET).unwrap();
    }
    bench.write("plain.txt", "plain\n");
    symlink(&data, workspace.join("link")).unwrap();
    symlink("../data", workspace.join("relative")).unwrap();
    symlink("link/token", workspace.join("token-link")).unwrap();
    symlink("link", workspace.join("chain")).unwrap();
    symlink("/proc/self/root", workspace.join("magic")).unwrap();
    let paths = data_paths(&data, &workspace);
    assert!(paths.len() >= 200, "{}", paths.len());
    let before = own_files(&data);
    // Each path runs once with the engines alone and once with the default policy.
    let open = open_gate(&bench);
    for gate in [&open, &bench.gate] {
        for (tool, probe) in all_probes(&bench) {
            for path in sample(&probe, &paths) {
                let call = call_for(&probe, workspace.clone());
                let answer = call_as(gate, call, tool.name(), (probe.build)(path)).await;
                let context = format!("{} {} {path:?}: {answer:?}", tool.name(), probe.field);
                assert!(!reveals_secret(&answer) && !reveals_marker(&answer, path), "{context}");
            }
            assert_eq!(own_files(&data), before, "{} {}", tool.name(), probe.field);
            bench.write("plain.txt", "plain\n");
        }
    }
}

/// A file name that must not appear in any answer, because no caller may list its directory.
const MARKER: &str = "name-that-nobody-may-see";

/// Returns spellings of the data directory and of existing and missing paths in it.
fn data_paths(data: &Path, workspace: &Path) -> Vec<String> {
    let (data, workspace) = (data.display().to_string(), workspace.display().to_string());
    let folders = [
        data.clone(),
        format!("/proc/self/root{data}"),
        format!("/proc/thread-self/root/proc/self/root{data}"),
        format!("{data}/../data"),
        format!("{data}/inner/.."),
        format!("//{data}"),
        format!("{workspace}/../data"),
        format!("{workspace}/./.././data"),
        "../data".into(),
        "./../data/.".into(),
        "../workspace/../data".into(),
        "link".into(),
        "link/.".into(),
        "link/inner/..".into(),
        "relative".into(),
        "chain".into(),
        "chain/../data".into(),
        format!("magic{data}"),
        format!("{workspace}/link"),
        format!("{workspace}/chain"),
        format!("..{}{data}", "/..".repeat(30)),
    ];
    let names = [
        "",
        "/",
        "/token",
        "/secret",
        "/inner",
        "/inner/db",
        "/planted-file",
        "/new/deep/planted-file",
        "/inner/planted-file",
        "/token/.",
    ];
    let mut paths: Vec<String> =
        folders.iter().flat_map(|folder| names.map(|name| format!("{folder}{name}"))).collect();
    paths.push("token-link".into());
    paths.push(format!("{workspace}/token-link"));
    paths
}

/// Returns the files that tests put into the data directory, and any other files that Gantry did
/// not create.
fn own_files(data: &Path) -> BTreeMap<PathBuf, String> {
    let mut files = BTreeMap::new();
    let mut todo = vec![data.to_owned()];
    while let Some(folder) = todo.pop() {
        for entry in std::fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            let own =
                ["results", "processes", "pending", "objects"].iter().any(|name| path == data.join(name));
            match (own, path.is_dir()) {
                (true, _) => {}
                (false, true) => {
                    files.insert(path.clone(), "directory".into());
                    todo.push(path);
                }
                (false, false) => {
                    files.insert(path.clone(), std::fs::read_to_string(&path).unwrap());
                }
            }
        }
    }
    files
}

fn reveals_secret(answer: &Result<Value, Value>) -> bool {
    Arena::leaks(format!("{answer:?}").as_bytes())
}

fn reveals_marker(answer: &Result<Value, Value>, path: &str) -> bool {
    !path.contains(MARKER) && format!("{answer:?}").contains(MARKER)
}
