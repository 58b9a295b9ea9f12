//! `gantry mcp install` changes the client's file once, with consent, and keeps a backup.

use std::os::unix::fs::PermissionsExt;

use gantry_testkit::World;
use serde_json::{Value, json};

#[test]
fn install_shows_asks_backs_up_and_writes_once() {
    let world = World::new();
    let file = world.folder.path().join(".claude.json");
    std::fs::write(&file, "{\n  \"theme\": \"dark\"\n}\n").unwrap();
    // Clients keep credentials in these files.
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
    let shown = world.run(&["mcp", "install", "claude", "--print"]);
    assert_eq!(shown.code, 0, "{}", shown.stderr);
    assert!(shown.stdout.lines().any(|line| line == "+    \"gantry\": {"), "{}", shown.stdout);
    let nobody = world.run(&["mcp", "install", "claude"]);
    assert_eq!(nobody.code, 2, "nobody can be asked: {}", nobody.stderr);
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "{\n  \"theme\": \"dark\"\n}\n");
    let done = world.run(&["mcp", "--read-only", "install", "claude", "--yes"]);
    assert_eq!(done.code, 0, "{}", done.stderr);
    let written: Value = serde_json::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap();
    let data = world.data();
    let args = json!(["--data-dir", data, "mcp", "--read-only"]);
    assert_eq!(written["theme"], "dark");
    assert_eq!(written["mcpServers"]["gantry"]["args"], args);
    let again = world.run(&["mcp", "--read-only", "install", "claude", "--yes"]);
    assert!(again.code == 0 && again.stderr.contains("is already up to date"), "{}", again.stderr);
    // Another choice is another change, with a copy of its own.
    let changed = world.run(&["mcp", "install", "claude", "--yes"]);
    assert_eq!(changed.code, 0, "{changed:?}");
    let written: Value = serde_json::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap();
    assert_eq!(written["mcpServers"]["gantry"]["args"], json!(["--data-dir", data, "mcp"]));
    // No tool can read the data directory: the copies may hold credentials.
    let copies = world.data().join("replaced-files");
    let backups: Vec<_> = std::fs::read_dir(&copies)
        .unwrap()
        .filter_map(|entry| entry.unwrap().file_name().into_string().ok())
        .filter(|name| name.contains("before-gantry"))
        .collect();
    let backups = {
        let mut backups = backups;
        backups.sort();
        backups
    };
    assert_eq!(backups.len(), 2, "one for each change, none for the same again: {backups:?}");
    let old = std::fs::read_to_string(copies.join(&backups[0])).unwrap();
    assert_eq!(old, "{\n  \"theme\": \"dark\"\n}\n");
    let second = std::fs::read_to_string(copies.join(&backups[1])).unwrap();
    assert!(second.contains("--read-only"), "{second}");
    for backup in &backups {
        let mode = std::fs::metadata(copies.join(backup)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "nobody else may read the copy either");
    }
}

#[test]
fn installed_client_uses_the_named_configuration() {
    let world = World::new();
    let other = world.folder.path().join("other.toml");
    std::fs::write(&other, "").unwrap();
    let file = other.to_str().unwrap();
    let shown = world.run(&[
        "--config",
        file,
        "--set",
        "policy.sensitivePaths=[]",
        "mcp",
        "install",
        "cursor",
        "--print",
    ]);
    assert_eq!(shown.code, 0, "{}", shown.stderr);
    for part in ["--config", file, "--set", "policy.sensitivePaths=[]"] {
        assert!(shown.stdout.contains(part), "{part}: {}", shown.stdout);
    }
}

#[test]
fn every_client_has_its_own_file() {
    let world = World::new();
    for (client, file) in [
        ("codex", ".codex/config.toml"),
        ("cursor", ".cursor/mcp.json"),
        ("vscode", ".config/Code/User/mcp.json"),
        ("goose", ".config/goose/config.yaml"),
        ("opencode", ".config/opencode/opencode.json"),
    ] {
        let done = world.run(&["mcp", "install", client, "--yes"]);
        assert_eq!(done.code, 0, "{client}: {}", done.stderr);
        let mode = std::fs::metadata(world.folder.path().join(file)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{client}");
        let text = std::fs::read_to_string(world.folder.path().join(file)).unwrap();
        assert!(text.contains("gantry") && text.contains("mcp"), "{client}: {text}");
    }
    std::fs::write(world.folder.path().join(".cursor/mcp.json"), "{ // mine\n}").unwrap();
    let refused = world.run(&["mcp", "install", "cursor", "--yes"]);
    assert!(refused.code == 2 && refused.stderr.contains("not valid JSON"), "{}", refused.stderr);
    let pasted = refused.stderr.split_once("add this entry yourself:\n").unwrap().1;
    let pasted: Value = serde_json::from_str(pasted).unwrap_or_else(|err| panic!("{err}: {pasted}"));
    assert!(pasted["mcpServers"]["gantry"]["command"].is_string(), "{pasted}");
    assert_eq!(
        std::fs::read_to_string(world.folder.path().join(".cursor/mcp.json")).unwrap(),
        "{ // mine\n}"
    );
}

#[test]
fn goose_file_is_merged_or_left_unchanged() {
    let world = World::new();
    let file = world.folder.path().join(".config/goose/config.yaml");
    std::fs::create_dir_all(file.parent().unwrap()).unwrap();
    let old = "\"extensions\":\n  gantry:\n    cmd: old\n    envs:\n      A: b\nmodel: x # mine\n";
    std::fs::write(&file, old).unwrap();
    let done = world.run(&["mcp", "install", "goose", "--yes"]);
    assert_eq!(done.code, 0, "{}", done.stderr);
    let text = std::fs::read_to_string(&file).unwrap();
    assert!(text.contains("    envs:\n      A: b\n") && text.contains("model: x # mine\n"), "{text}");
    assert!(!text.contains("cmd: old") && text.matches("extensions").count() == 1, "{text}");
    let broken = "extensions:\n  a: [1, 2\n";
    std::fs::write(&file, broken).unwrap();
    let refused = world.run(&["mcp", "install", "goose", "--yes"]);
    assert_eq!(refused.code, 2, "{refused:?}");
    assert!(refused.stderr.contains("not valid YAML") && refused.stderr.contains("    cmd: "), "{refused:?}");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), broken);
}

#[test]
fn tool_choice_is_checked_before_writing() {
    let world = World::new();
    world.configure("[agents.reader]\n");
    let file = world.folder.path().join(".cursor/mcp.json");
    for (flags, parts) in [
        (&["mcp", "--toolset", "nodes"][..], &["unknown toolset", "did you mean \"node\"?"][..]),
        (&["mcp", "--agent", "raeder"], &["unknown agent", "reader"]),
        (&["mcp", "--tools", "Raed"], &["no tool matches \"Raed\"", "local__Read"]),
        (&["--gateway", "http://me:secret@127.0.0.1:1", "mcp"], &["it must not contain a token"]),
        (&["--gateway", "http://127.0.0.1:1?token=secret", "mcp"], &["it must not contain a token"]),
    ] {
        let ran = world.run(&[flags, &["install", "cursor", "--yes"]].concat());
        assert_eq!(ran.code, 2, "{flags:?}: {ran:?}");
        for part in parts {
            assert!(ran.stderr.contains(part), "{part}: {ran:?}");
        }
        assert!(!file.exists(), "{flags:?}");
    }
    let partly = world.run(&["mcp", "--tools", "Read,Raed", "install", "cursor", "--yes"]);
    assert_eq!(partly.code, 0, "{partly:?}");
    assert!(partly.stderr.contains("warning: no tool matches \"Raed\""), "{partly:?}");
    let far = world.run(&["--gateway", "http://127.0.0.1:1", "mcp", "install", "cursor", "--yes"]);
    assert_eq!(far.code, 0, "{far:?}");
    assert!(far.stderr.contains("GANTRY_TOKEN or GANTRY_TOKEN_FILE"), "{far:?}");
}
