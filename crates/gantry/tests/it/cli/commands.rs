//! Commands, exit codes, and which output goes to which stream.

use gantry_testkit::{Gateway, World};
use serde_json::json;

#[test]
fn result_is_one_line_of_json_on_stdout() {
    let world = World::new();
    world.write("a.txt", "one\ntwo\n");
    let ran = world.run(&["call", "Read", r#"{"path": "a.txt", "limit": 1}"#]);
    assert_eq!((ran.code, ran.stderr.as_str(), ran.stdout.lines().count()), (0, "", 1));
    assert_eq!(ran.json()["content"], "1\tone");
}

#[test]
fn text_results_are_printed_unchanged() {
    let world = World::new();
    let path = world.write("a.txt", "no final newline");
    let ran = world.run(&["call", "read_file", &json!({ "path": path }).to_string()]);
    assert_eq!((ran.code, ran.stdout.as_str()), (0, "no final newline"));
}

#[test]
fn input_comes_from_argument_file_or_stdin() {
    let world = World::new();
    world.write("a.txt", "x\n");
    world.write("input.json", r#"{"path": "a.txt"}"#);
    let typed = world.run(&["call", "read", r#"{"path": "a.txt"}"#]);
    let from_file = world.run(&["call", "read", "@input.json"]);
    let piped = world.run_with_input(&["call", "read", "-"], r#"{"path": "a.txt"}"#);
    assert_eq!(typed.json()["content"], "x\n");
    assert_eq!((&typed.stdout, &typed.stdout), (&from_file.stdout, &piped.stdout));
    let absent = world.run(&["call", "read"]);
    assert_eq!(absent.code, 2, "absent means an empty object, which lacks a path");
    assert_eq!(world.run(&["call", "read", "@missing.json"]).code, 2);
}

#[test]
fn outcomes_map_to_exit_codes() {
    let world = World::new();
    world.configure("[[policy.rules]]\ntool = \"write\"\ndecision = \"deny\"\nreason = \"not today\"\n");
    let cases: [(&[&str], i32, &str); 8] = [
        (&["call", "exec", r#"{"command": "exit 3"}"#], 0, "exit_code"),
        (&["call", "read", r#"{"path": "missing"}"#], 1, "File not found"),
        (&["call", "bash", r#"{"command": "exit 3"}"#], 1, "exit code 3"),
        (&["call", "raed", "{}"], 2, "unknown_tool"),
        (&["call", "read", r#"{"pth": 1}"#], 2, "invalid_input"),
        (&["cal"], 2, "usage"),
        (&["call", "write", r#"{"path": "x", "data": "y"}"#], 3, "not today"),
        (&["call", "exec", r#"{"command": "sleep 20"}"#, "--deadline", "300ms"], 124, "deadline"),
    ];
    for (args, code, text) in cases {
        let ran = world.run(args);
        assert_eq!(ran.code, code, "{args:?}: {} {}", ran.stdout, ran.stderr);
        assert!(ran.stdout.contains(text), "{args:?}: {}", ran.stdout);
        if matches!(code, 2 | 3 | 124) {
            assert!(ran.json()["error"]["code"].is_string(), "{args:?}");
            assert!(!ran.stderr.is_empty(), "{args:?}: the same in words on standard error");
        }
    }
    assert!(!world.workspace().join("x").exists());
}

#[test]
fn every_schema_violation_is_listed() {
    let world = World::new();
    let ran = world.run(&["call", "write", r#"{"pathh": "x", "data": 5, "start_line": "one"}"#]);
    assert_eq!(ran.code, 2);
    let error = &ran.json()["error"];
    assert_eq!(error["violations"].as_array().unwrap().len(), 4, "{error}");
    assert!(ran.stderr.contains("did you mean \"path\"?"), "{}", ran.stderr);
    assert_eq!(std::fs::read_dir(world.workspace()).unwrap().count(), 0);
}

#[test]
fn workspace_option_sets_the_base_of_relative_paths() {
    let world = World::new();
    let other = world.folder.path().join("other");
    std::fs::create_dir(&other).unwrap();
    let ran = world.run(&[
        "call",
        "Write",
        r#"{"path": "new.txt", "content": "x"}"#,
        "--workspace",
        other.to_str().unwrap(),
    ]);
    assert_eq!(ran.code, 0, "{}", ran.stdout);
    assert!(other.join("new.txt").exists());
}

#[test]
fn one_shot_call_rejects_background_and_waits_despite_yield() {
    let world = World::new();
    let ran = world.run(&["call", "Bash", r#"{"command": "sleep 1", "background": true}"#]);
    assert_eq!(ran.code, 1);
    assert!(ran.stdout.contains("gantry up"), "{}", ran.stdout);
    let ran = world.run(&["call", "Bash", r#"{"command": "sleep 0.2; echo done", "yieldMs": 10}"#]);
    assert_eq!((ran.code, &ran.json()["status"]), (0, &json!("completed")));
}

#[test]
fn interrupted_call_leaves_no_process() {
    let world = World::new();
    let marker = format!("31{}", std::process::id());
    let input = json!({"command": format!("setsid sleep {marker} & sleep {marker}")}).to_string();
    let mut child = world
        .command(&["call", "Bash", &input])
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let alive = || {
        let processes = std::fs::read_dir("/proc").unwrap().flatten();
        processes
            .filter(|entry| {
                let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
                let line = String::from_utf8_lossy(&line).replace('\0', " ");
                line.trim_end() == format!("sleep {marker}")
            })
            .count()
    };
    wait_until("both sleeps run", || alive() == 2);
    std::process::Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    wait_until("the call ends", || child.try_wait().unwrap().is_some());
    wait_until("no process is left", || alive() == 0);
}

pub(crate) fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let until = std::time::Instant::now() + std::time::Duration::from_secs(10);
    while !holds() {
        assert!(std::time::Instant::now() < until, "never: {what}");
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
}

#[test]
fn tools_lists_shows_and_suggests_the_nearest_name() {
    let world = World::new();
    let list = world.run(&["tools", "--json"]).json();
    let names: Vec<&str> =
        list.as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap()).collect();
    assert_eq!(
        names,
        [
            "Bash",
            "Edit",
            "Glob",
            "Grep",
            "Process",
            "Read",
            "Write",
            "local__Bash",
            "local__Edit",
            "local__Glob",
            "local__Grep",
            "local__Process",
            "local__Read",
            "local__Write",
            "gsv__ConfigGet",
            "gsv__Cron",
            "gsv__DeleteFile",
            "gsv__EditFile",
            "gsv__LogsGet",
            "gsv__Message",
            "gsv__ReadFile",
            "gsv__SessionSend",
            "gsv__SessionsList",
            "gsv__Transfer",
            "gsv__WriteFile",
            "tool::agent_send",
            "tool::agent_spawn",
            "tool::apply_patch",
            "tool::file_list",
            "tool::file_read",
            "tool::file_write",
            "tool::shell_exec",
            "tool::web_fetch",
            "tool::web_search",
            "exec",
            "read",
            "write",
            "api_setup",
            "ask_user",
            "bash",
            "batch_files",
            "capture_process",
            "http_request",
            "memory_recall",
            "memory_store",
            "plan_task",
            "promote_process",
            "read_file",
            "run_pipeline",
            "spawn_agent",
            "task_create",
            "task_list",
            "task_update",
            "write_file",
            "result_read",
        ]
    );
    for tool in list.as_array().unwrap() {
        assert!(tool["description"].as_str().unwrap().len() > 20, "{}", tool["name"]);
        for (field, schema) in tool["inputSchema"]["properties"].as_object().unwrap() {
            assert!(schema["description"].is_string(), "{}.{field} has no description", tool["name"]);
        }
    }
    let text = world.run(&["tools", "--toolset", "basic"]).stdout;
    assert!(text.starts_with("# basic\n") && text.lines().count() == 4, "{text}");
    let one = world.run(&["tools", "tool__file_read"]);
    assert!(one.code == 0 && one.stdout.contains("maxBytes"), "{}", one.stdout);
    let ran = world.run(&["tools", "Grap"]);
    assert_eq!(ran.code, 2);
    assert!(ran.stderr.contains("local__Grep"), "{}", ran.stderr);
    assert_eq!(world.run(&["tools", "--toolset", "nodes"]).code, 2);
}

#[test]
fn help_has_examples_and_completions_are_valid_scripts() {
    let world = World::new();
    for command in [
        &["--help"][..],
        &["call", "--help"],
        &["tools", "--help"],
        &["audit", "--help"],
        &["results", "--help"],
    ] {
        let ran = world.run(command);
        assert!(ran.code == 0 && ran.stdout.contains("Examples:"), "{command:?}");
    }
    for shell in ["bash", "zsh", "fish"] {
        let ran = world.run(&["completions", shell]);
        assert!(ran.code == 0 && ran.stdout.contains("gantry"), "{shell}");
    }
}

#[test]
fn doctor_reports_problems() {
    let world = World::new();
    let ran = world.run(&["doctor", "--json"]);
    assert_eq!((ran.code, &ran.json()["healthy"]), (0, &json!(true)), "{}", ran.stdout);
    world.configure("[[policy.rules]]\ntool = \"Bsah\"\ndecision = \"deny\"\nagents = [\"ghost\"]\n[agents.a]\ntools = [\"far__raed\"]\n");
    let ran = world.run(&["doctor"]);
    assert_eq!(ran.code, 0, "{}", ran.stdout);
    for warning in ["\"Bsah\" matches no tool", "unknown agent \"ghost\"", "\"far__raed\" matches no tool"] {
        assert!(ran.stdout.contains(warning), "{warning}: {}", ran.stdout);
    }
    world.configure("shel = 1\n");
    let ran = world.run(&["doctor"]);
    assert_eq!(ran.code, 1);
    assert!(ran.stdout.contains("did you mean \"shell\"?"), "{}", ran.stdout);
}

#[test]
fn call_for_an_unreachable_gateway_does_not_run_locally() {
    let world = World::new();
    let write = ["call", "write", r#"{"path": "x", "data": "y"}"#];
    for (args, variables) in [
        (&["--gateway", "http://127.0.0.1:1"][..], &[("GANTRY_TOKEN", "gto_x")][..]),
        (&[], &[("GANTRY_GATEWAY", "http://127.0.0.1:1"), ("GANTRY_TOKEN", "gto_x")]),
    ] {
        let ran = world.run_with(&[&write[..], args].concat(), variables);
        assert_eq!((ran.code, &ran.json()["error"]["code"]), (4, &json!("unavailable")), "{}", ran.stdout);
        assert!(!world.workspace().join("x").exists());
        assert_eq!(world.run_with(&[&["tools"][..], args].concat(), variables).code, 4);
    }
    let named = [("GANTRY_GATEWAY", "http://127.0.0.1:1")];
    let ran = world.run_with(&write, &named);
    assert_eq!(ran.code, 2, "our own operator's token is not for strangers: {}", ran.stdout);
    assert_eq!(world.run_with(&[&write[..], &["--local"]].concat(), &named).code, 0);
}

#[test]
fn unusual_numbers_and_bytes_are_rejected_or_harmless() {
    let world = World::new();
    world.write("a.txt", "x");
    let read = ["call", "read", r#"{"path": "a.txt"}"#, "--deadline"];
    assert_eq!(
        world.run(&[&read[..], &["18446744073709551615"]].concat()).code,
        0,
        "never means no deadline"
    );
    assert_eq!(world.run(&[&read[..], &["-1"]].concat()).code, 2);
    assert_eq!(world.run(&["audit", "--since", "999999999999999999d"]).code, 2);
    std::fs::write(world.workspace().join("bytes.json"), b"{\"path\": \"\xff\"}").unwrap();
    assert_eq!(world.run(&["call", "read", "@bytes.json"]).code, 2);
}

#[test]
fn caller_text_cannot_control_the_terminal() {
    let world = World::new();
    let ran = world.run(&["call", "re\u{1b}[31mad"]);
    assert!(ran.code == 2 && !ran.stderr.contains('\u{1b}'), "{:?}", ran.stderr);
    assert!(!world.run(&["audit"]).stdout.contains('\u{1b}'));
}

#[test]
fn shared_directory_is_rejected_as_data_directory() {
    use std::os::unix::fs::PermissionsExt;
    let world = World::new();
    let shared = world.folder.path().join("shared");
    std::fs::create_dir(&shared).unwrap();
    std::fs::set_permissions(&shared, std::fs::Permissions::from_mode(0o755)).unwrap();
    std::fs::write(shared.join("theirs"), "x").unwrap();
    let ran = world.run(&["call", "read", "{}", "--data-dir", shared.to_str().unwrap()]);
    assert!(ran.code == 1 && ran.stderr.contains("open to other users"), "{}", ran.stderr);
    assert_eq!(std::fs::metadata(&shared).unwrap().permissions().mode() & 0o777, 0o755);
}

#[test]
fn failed_output_is_not_success() {
    let world = World::new();
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    let status = world.command(&["tools"]).stdout(full).stderr(std::process::Stdio::null()).status().unwrap();
    assert_eq!(status.code(), Some(1));
}

/// What a person sees who runs it on a terminal.
fn on_a_terminal(world: &World, args: &[&str]) -> String {
    let quoted: Vec<String> = args.iter().map(|arg| format!("'{arg}'")).collect();
    let program = world.command(&[]);
    let command = format!("{} {}", program.get_program().to_str().unwrap(), quoted.join(" "));
    let mut script = std::process::Command::new("script");
    script.args(["-qec", &command, "/dev/null"]).current_dir(world.workspace()).env_clear();
    script.envs(program.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let ran = script.stdin(std::process::Stdio::null()).output().unwrap();
    String::from_utf8(ran.stdout).unwrap()
}

#[test]
fn text_gets_a_final_newline_on_a_terminal_only() {
    let world = World::new();
    for (said, shown) in [("open", "open\r\n"), ("ended\\n", "ended\r\n")] {
        let input = json!({"command": format!("printf \"{said}\"")}).to_string();
        assert_eq!(on_a_terminal(&world, &["call", "bash", &input]), shown);
        assert_eq!(world.run(&["call", "bash", &input]).stdout, said.replace("\\n", "\n"));
    }
}

#[test]
fn stored_text_cannot_control_the_terminal() {
    let world = World::new();
    world.run(&["config", "set", "maxToolResultChars", "80000"]);
    std::fs::create_dir(world.data().join("apis")).unwrap();
    let profile = json!({
        "id": "shop", "name": "E\u{1b}]0;pwned\u{7}\u{1b}[2J\u{9b}2J\nfake  line", "base_url": "https://shop.example/v1",
        "description": "Orders.", "auth": {"type": "none"},
        "endpoints": [{"method": "GET", "path": "/orders", "description": "All orders."}],
        "guidelines": ["Ask for pages."], "avoid": ["Asking for everything."],
    });
    std::fs::write(world.data().join("apis/shop.json"), profile.to_string()).unwrap();
    let mut sound = profile;
    (sound["id"], sound["name"]) = (json!("sound"), json!("Sound"));
    sound["base_url"] = json!("https://sound.example/v1");
    std::fs::write(world.data().join("apis/sound.json"), sound.to_string()).unwrap();
    let path = world.write("esc.txt", "one\u{1b}]0;pwned\u{7}\u{9b}2J\ttwo\r\nthree\n");
    let read = json!({ "path": path }).to_string();
    for args in [
        &["apis", "--color", "never"][..],
        &["apis", "show", "shop", "--color", "never"],
        &["call", "read_file", &read],
        &["call", "Read", &read],
    ] {
        let shown = on_a_terminal(&world, args);
        let control = |c: char| c.is_control() && c != '\r' && c != '\n' && c != '\t';
        assert!(!shown.is_empty() && !shown.contains(control), "{args:?}: {shown:?}");
        assert!(!shown.contains("\nfake"), "{args:?}: {shown:?}");
    }
    assert!(on_a_terminal(&world, &["apis"]).contains("\u{1b}[1msound\u{1b}[0m"), "our own colours stay");
    let piped = world.run(&["call", "read_file", &read]);
    assert_eq!(piped.stdout, "one\u{1b}]0;pwned\u{7}\u{9b}2J\ttwo\r\nthree\n", "as it is");
}

/// What `doctor` says of one thing.
fn checked(world: &World, name: &str) -> Vec<(String, String)> {
    let reported = world.run(&["doctor", "--json"]).json();
    let of = |check: &serde_json::Value, key: &str| check[key].as_str().unwrap().to_owned();
    let checks = reported["checks"].as_array().unwrap().iter().filter(|check| check["check"] == name);
    checks.map(|check| (of(check, "health"), of(check, "text"))).collect()
}

#[test]
fn doctor_checks_the_storage() {
    let world = World::new();
    assert_eq!(checked(&world, "storage")[0].0, "good");
    // Nobody listens, or nobody answers.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    for port in [9, silent.local_addr().unwrap().port()] {
        world.configure(&format!(
            "[storage]\nkind = \"s3\"\nendpoint = \"http://127.0.0.1:{port}\"\nbucket = \"b\"\naccessKeyId = \"k\"\n\
             secretAccessKey = \"very-secret-key\"\n"
        ));
        let begun = std::time::Instant::now();
        let (health, text) = checked(&world, "storage").remove(0);
        assert_eq!(health, "bad", "{text}");
        assert!(text.contains("storage.bucket") && !text.contains("very-secret-key"), "{text}");
        assert!(begun.elapsed() < std::time::Duration::from_secs(15), "{:?}", begun.elapsed());
        assert_eq!(world.run(&["doctor"]).code, 1);
    }
}

#[test]
fn doctor_checks_the_database() {
    const PAGE: usize = 4096;
    let world = World::new();
    assert_eq!(checked(&world, "database"), [("good".to_owned(), "not created yet".to_owned())]);
    assert!(!world.data().join("gateway.db").exists(), "a look makes nothing");
    let path = world.data().join("gateway.db");
    {
        let _up = Gateway::start(&world);
        let (health, text) = checked(&world, "database").remove(0);
        assert_eq!(health, "good", "{text}");
        assert!(text.contains("is intact"), "{text}");
    }
    let sound = std::fs::read(&path).unwrap();
    let reported = |bytes: &[u8]| {
        std::fs::write(&path, bytes).unwrap();
        let (health, text) = checked(&world, "database").remove(0);
        assert_eq!(health, "bad", "{text}");
        assert_eq!(std::fs::read(&path).unwrap(), bytes, "a look changes nothing");
        assert_eq!(world.run(&["doctor"]).code, 1);
        text
    };
    let text = reported(&(0..20_000_u32).map(|at| ((at * at) >> 3) as u8).collect::<Vec<_>>());
    assert!(text.contains("file is not a database") && text.contains("gateway.db"), "{text}");
    let damaged = |pages: std::ops::Range<usize>| {
        let mut bytes = sound.clone();
        bytes[pages.start * PAGE..pages.end * PAGE].iter_mut().for_each(|byte| *byte ^= 0x5a);
        let text = reported(&bytes);
        assert!(text.contains("restore it from a backup"), "{text}");
        text
    };
    // Some pages are needed to open it, others are not.
    let pages = sound.len() / PAGE;
    assert!(damaged(1..pages).contains("malformed"));
    assert!((1..pages).rev().any(|page| damaged(page..page + 1).contains("is damaged")));
    std::fs::write(&path, &sound).unwrap();
    assert_eq!(checked(&world, "database").remove(0).0, "good");
}

#[test]
fn doctor_reports_readable_keys() {
    use std::os::unix::fs::PermissionsExt;
    let world = World::new();
    world.run(&["call", "--local", "Glob", r#"{"pattern": "*"}"#]);
    assert_eq!(checked(&world, "private files"), []);
    let key = world.data().join("audit.key");
    std::fs::set_permissions(&key, PermissionsExt::from_mode(0o644)).unwrap();
    let (health, text) = checked(&world, "private files").remove(0);
    assert_eq!(health, "warning");
    assert!(text.contains(&format!("chmod 600 {}", key.display())) && text.contains("0644"), "{text}");
}

#[test]
fn doctor_lists_every_configuration_error() {
    let world = World::new();
    world.configure("[gateway\nlisten = 5\n");
    let reported = world.run(&["doctor"]).stdout;
    assert!(!reported.contains("\\n"), "{reported}");
    assert!(reported.lines().any(|line| line.starts_with("          ") && line.contains('|')), "{reported}");
}

#[test]
fn help_names_its_own_command_and_time_errors_give_examples() {
    let world = World::new();
    let help = world.run(&["serve", "--help"]).stdout;
    assert!(help.contains("gantry serve --listen") && !help.contains("gantry up"), "{help}");
    let help = world.run(&["up", "--help"]).stdout;
    assert!(help.contains("gantry up --listen") && !help.contains("gantry serve"), "{help}");
    for (args, time) in
        [(["tokens", "add", "ci", "--expires"], "30d"), (["call", "Read", "{}", "--deadline"], "15m")]
    {
        for wrong in ["1y", "", "soon"] {
            let args = [args.as_slice(), &[wrong]].concat();
            let reported = world.run(&args);
            assert_eq!(reported.code, 2, "{args:?}: {reported:?}");
            assert!(
                reported.stderr.contains(time) && !reported.stderr.to_lowercase().contains("jiff"),
                "{}",
                reported.stderr
            );
        }
    }
}

#[test]
fn status_shows_everything_at_a_glance() {
    let world = World::new();
    let away = world.run(&["status"]);
    assert_eq!(away.code, 4, "{away:?}");
    assert!(away.stderr.contains("gantry up"), "{away:?}");
    world.configure("[channels.webhook.default]\nsecret = \"secret:HOOK\"\n");
    let _up = Gateway::start(&world);
    let shown = world.run(&["status"]).stdout;
    for part in ["local online", "webhook:default", "0 jobs", "conversation"] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    let status = world.run(&["status", "--json"]).json();
    assert_eq!(status["nodes"]["nodes"][0]["id"], "local", "{status}");
    assert!(status["started"].as_i64().is_some(), "{status}");
}
