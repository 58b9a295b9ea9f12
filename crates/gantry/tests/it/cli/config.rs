//! The configuration through the command line.

use gantry_testkit::World;
use serde_json::json;

#[test]
fn set_get_show_and_path_agree() {
    let world = World::new();
    assert_eq!(world.run(&["config", "set", "maxToolResultChars", "5000"]).code, 0);
    assert_eq!(world.run(&["config", "get", "maxToolResultChars"]).stdout, "5000\n");
    assert_eq!(world.run(&["config", "show"]).json()["maxToolResultChars"], 5000);
    assert_eq!(
        world.run(&["config", "path"]).stdout.trim(),
        world.data().join("gantry.toml").to_str().unwrap()
    );
    let layered =
        world.run_with(&["config", "get", "maxToolResultChars"], &[("GANTRY_MAX_TOOL_RESULT_CHARS", "7")]);
    assert_eq!(layered.stdout, "7\n");
    let flagged = world.run_with(
        &["config", "get", "maxToolResultChars", "--set", "maxToolResultChars=9"],
        &[("GANTRY_MAX_TOOL_RESULT_CHARS", "7")],
    );
    assert_eq!(flagged.stdout, "9\n");
}

#[test]
fn show_includes_defaults() {
    let world = World::new();
    assert_eq!(world.run(&["config", "show"]).json()["session"]["childSeconds"], 600);
    world.configure("[session]\ndmScope = \"per-peer\"\n[agents.main]\nautonomy = \"guided\"\n");
    let shown = world.run(&["config", "show"]).json();
    assert_eq!(shown["session"]["childSeconds"], 600, "{shown}");
    assert_eq!(shown["agents"]["main"]["nativeWebSearch"], true, "{shown}");
}

#[test]
fn unknown_key_error_suggests_the_nearest() {
    let world = World::new();
    let ran = world.run(&["config", "set", "shell.sandbx", "off"]);
    assert!(ran.code == 2 && ran.stderr.contains("did you mean \"sandbox\"?"), "{}", ran.stderr);
    world.configure("maxToolResultChar = 1\n");
    let ran = world.run(&["call", "read", r#"{"path": "x"}"#]);
    assert!(ran.code == 2 && ran.stderr.contains("did you mean \"maxToolResultChars\"?"), "{}", ran.stderr);
}

#[test]
fn secrets_are_masked_with_and_without_a_key() {
    let world = World::new();
    world.configure("[isolation]\nlevel = \"sandboxed\"\n[isolation.envVars]\nAPI_TOKEN = \"abc-abc-abc\"\nSTRIPE_KEY = \"k\"\nPLAIN = \"shown\"\n");
    assert_eq!(
        world.run(&["config", "show"]).json()["isolation"]["envVars"],
        json!({"API_TOKEN": "[masked]", "STRIPE_KEY": "[masked]", "PLAIN": "shown"})
    );
    let printed = world.run(&["call", "bash", r#"{"command": "echo $API_TOKEN $PLAIN"}"#]).stdout;
    assert_eq!(printed, "[masked] shown\n");
    assert_eq!(world.run(&["config", "get", "isolation.envVars.API_TOKEN"]).stdout, "[masked]\n");
}

#[test]
fn symlinks_and_dots_do_not_bypass_sensitive_paths() {
    let world = World::new();
    let (real, link) = (world.folder.path().join("vault"), world.folder.path().join("link"));
    std::fs::create_dir(&real).unwrap();
    std::fs::write(real.join("a"), "secret").unwrap();
    std::os::unix::fs::symlink(&real, &link).unwrap();
    world.configure(&format!(
        "[policy]\nsensitivePaths = [{:?}, \"~/private\"]\n[agents.a]\nautonomy = \"autonomous\"\n",
        link.to_str().unwrap()
    ));
    std::fs::create_dir(world.folder.path().join("private")).unwrap();
    std::fs::write(world.folder.path().join("private/b"), "secret").unwrap();
    for path in [real.join("a"), link.join("a"), world.folder.path().join("private/b")] {
        let ran = world.run(&["call", "read", &json!({ "path": path }).to_string(), "--agent", "a"]);
        assert_eq!(ran.code, 3, "{}: {}", path.display(), ran.stdout);
    }
    let relative = ["call", "bash", r#"{"command": "echo hi"}"#, "--agent", "a", "--data-dir", "../data"];
    assert_eq!(world.run(&relative).stdout, "hi\n", "a relative data directory closes the same place");
}

#[test]
fn unknown_names_are_rejected_with_the_nearest() {
    let world = World::new();
    for (config, part) in [
        ("[agents.a]\ntools = [\"Reed\"]\n", "agents.a: unknown tool \"Reed\"; did you mean \"Read\"?"),
        ("[agents.a]\ndenyTools = [\"bahs\"]\n", "did you mean \"Bash\"?"),
        ("[roles.r]\nallowedTools = [\"raed_file\"]\n", "roles.r: unknown tool \"raed_file\"; did you mean"),
        ("[roles.r]\nmodel = \"fsat\"\n", "roles.r.model: unknown tier \"fsat\"; did you mean \"fast\"?"),
        ("[models]\nfast = \"nolab/m\"\n", "models.fast: unknown provider \"nolab\"; use one of"),
        (
            "[agents.main]\nmodel = \"depe\"\n",
            "agents.main.model: unknown tier \"depe\"; did you mean \"deep\"?",
        ),
        ("[agents.main]\nmaxRequests = 0\n", "agents.main.maxRequests: must be at least 1"),
        (
            "[agents.a]\nmessages = [\"mian\"]\n",
            "agents.a.messages: unknown agent \"mian\"; did you mean \"main\"?",
        ),
        ("[agents.\"a:b/../c\"]\n", "an agent's name must have 1 to 64"),
        (
            "[agents.a]\nautonomy = \"free\"\n",
            "agents.a.autonomy: \"free\" is not one of \"supervised\", \"guided\", \"autonomous\"",
        ),
        (
            "[agents.a]\nthinking = \"adaptve\"\n",
            "\"adaptve\" is not one of \"off\", \"adaptive\", or of type integer; did you mean \"adaptive\"?",
        ),
    ] {
        world.configure(config);
        let ran = world.run(&["config", "show"]);
        assert!(ran.code == 2 && ran.stderr.contains(part), "{config}: {}", ran.stderr);
    }
    world.configure("[agents.a]\ntools = [\"far__Raed\", \"x*\", \"node\"]\nmodel = \"ollama/x\"\n");
    assert_eq!(world.run(&["config", "show"]).code, 0);
}

#[test]
fn concurrent_commands_keep_each_others_changes() {
    let world = World::new();
    let mut children: Vec<_> = (0..20)
        .map(|number| {
            let key = format!("agents.a{number}.autonomy");
            let mut command = world.command(&["config", "set", &key, "guided"]);
            command.stdout(std::process::Stdio::null()).spawn().unwrap()
        })
        .collect();
    for child in &mut children {
        assert!(child.wait().unwrap().success());
    }
    let agents = world.run(&["config", "get", "agents"]).json();
    assert_eq!(agents.as_object().unwrap().len(), 20, "{agents}");
}

#[test]
fn special_file_is_rejected_as_configuration() {
    let world = World::new();
    std::fs::create_dir_all(world.data()).unwrap();
    let path = world.data().join("gantry.toml");
    assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
    let refused = |args: &[&str]| {
        let mut child = world.command(args).stdin(std::process::Stdio::null()).spawn().unwrap();
        let until = std::time::Instant::now() + std::time::Duration::from_secs(5);
        let status = loop {
            if let Some(status) = child.try_wait().unwrap() {
                break status;
            }
            if std::time::Instant::now() > until {
                child.kill().unwrap();
                panic!("{args:?} waits");
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        };
        assert_eq!(status.code(), Some(2), "{args:?}");
    };
    for args in [
        &["config", "get", "shell"][..],
        &["config", "set", "maxToolResultChars", "5"],
        &["config", "check"],
        &["call", "local__Read", r#"{"path": "x"}"#],
        &["up", "--listen", "127.0.0.1:0"],
    ] {
        refused(args);
    }
    std::fs::remove_file(&path).unwrap();
    std::os::unix::fs::symlink("/dev/zero", &path).unwrap();
    refused(&["config", "get", "shell"]);
    let reported = world.run(&["config", "get", "shell"]).stderr;
    assert!(reported.contains("gantry.toml") && reported.contains("not a regular file"), "{reported}");
    std::fs::remove_file(&path).unwrap();
    std::fs::write(&path, format!("a = {} ?", "1".repeat(3_000_000))).unwrap();
    let reported = world.run(&["config", "get", "shell"]);
    assert!(
        reported.code == 2 && reported.stderr.len() < 1000 && reported.stdout.len() < 1000,
        "{}",
        reported.stderr.len()
    );
}

#[test]
fn missing_named_configuration_is_an_error() {
    let world = World::new();
    let missing = world.folder.path().join("none.toml");
    let named = ["--config", missing.to_str().unwrap()];
    for command in [&["config", "get", "maxToolResultChars"][..], &["tools"], &["call", "read", "{}"]] {
        let ran = world.run(&[&named[..], command].concat());
        assert_eq!(ran.code, 2, "{command:?}: {ran:?}");
        assert!(ran.stderr.contains("none.toml: no such file"), "{command:?}: {ran:?}");
    }
    // `config set` creates the file.
    let ran = world.run(&[&named[..], &["config", "set", "maxToolResultChars", "900"]].concat());
    assert_eq!(ran.code, 0, "{ran:?}");
    let ran = world.run(&[&named[..], &["config", "get", "maxToolResultChars"]].concat());
    assert_eq!((ran.code, ran.stdout.trim()), (0, "900"), "{ran:?}");
}

#[test]
fn invalid_listen_address_is_reported_with_its_key() {
    let world = World::new();
    let ran = world.run(&["--set", "gateway.listen=nonsense", "config", "get", "maxToolResultChars"]);
    assert_eq!(ran.code, 2, "{ran:?}");
    assert!(ran.stderr.contains("gateway.listen: \"nonsense\" is not an address and a port"), "{ran:?}");
}
