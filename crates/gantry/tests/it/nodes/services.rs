//! `gantry service`, with a fake `systemctl` that records what it is asked, and units that systemd's own checker reads.

use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};

use gantry_testkit::{Gateway, SOON, World, eventually};

/// Puts a `systemctl` in front of `PATH`. It starts and stops nothing.
fn path_with_fake_manager(world: &World) -> String {
    let script =
        "#!/bin/sh\necho \"$*\" >> \"$HOME/asked\"\ncase \"$*\" in *is-active*) echo active;; esac\n";
    let program = world.write("bin/systemctl", script);
    std::fs::set_permissions(&program, PermissionsExt::from_mode(0o755)).unwrap();
    format!("{}:/usr/bin:/bin", program.parent().unwrap().display())
}

fn asked(world: &World) -> Vec<String> {
    let file = world.folder.path().join("asked");
    let text = std::fs::read_to_string(&file).unwrap_or_default();
    let _ = std::fs::remove_file(&file);
    text.lines().filter(|line| !line.contains("show-environment")).map(str::to_owned).collect()
}

#[test]
fn gateway_service_is_installed_managed_and_removed() {
    let world = World::new();
    let path = path_with_fake_manager(&world);
    let run = |args: &[&str]| world.run_with(&[&["service"], args].concat(), &[("PATH", &path)]);
    let unit = world.folder.path().join(".config/systemd/user/gantry.service");
    for verb in ["uninstall", "start", "stop", "restart"] {
        let refused = run(&[verb]);
        assert!(
            refused.code == 1 && refused.stderr.contains("is not installed as a service"),
            "{verb}: {}",
            refused.stderr
        );
        assert!(refused.stderr.contains("gantry service install"), "{}", refused.stderr);
    }
    let status = run(&["status"]);
    assert!(status.code == 1 && status.stdout.contains("not installed"), "{}", status.stdout);
    assert_eq!(asked(&world), [""; 0]);

    let installed = run(&["install", "--listen", "0.0.0.0:7770", "--public-url", "https://gantry.example"]);
    assert_eq!(installed.code, 0, "{}", installed.stderr);
    assert!(installed.stdout.contains("enable-linger"), "{}", installed.stdout);
    assert_eq!(
        asked(&world),
        ["--user daemon-reload", "--user enable gantry.service", "--user restart gantry.service"]
    );
    let text = std::fs::read_to_string(&unit).unwrap();
    let workspace = world.workspace();
    assert!(text.contains(&format!("\"up\" \"--workspace\" \"{}\"", workspace.display())), "{text}");
    assert!(
        text.contains("\"--listen\" \"0.0.0.0:7770\" \"--public-url\" \"https://gantry.example\""),
        "{text}"
    );
    // Ten seconds for running calls, and a margin to close.
    assert!(text.contains("TimeoutStopSec=30\n"), "{text}");

    for (verb, words) in [
        ("restart", "--user restart gantry.service"),
        ("stop", "--user stop gantry.service"),
        ("start", "--user start gantry.service"),
    ] {
        let ran = run(&[verb]);
        assert_eq!(ran.code, 0, "{verb}: {}", ran.stderr);
        assert_eq!(asked(&world), [words]);
    }
    assert!(run(&["status"]).stdout.contains("installed, active"));
    asked(&world);
    assert_eq!(run(&["uninstall"]).code, 0);
    assert_eq!(asked(&world), ["--user disable --now gantry.service", "--user daemon-reload"]);
    assert!(!unit.exists());
}

#[test]
fn running_gateway_is_not_replaced_by_a_service() {
    let world = World::new();
    let path = path_with_fake_manager(&world);
    let up = Gateway::start(&world);
    let refused = world.run_with(&["service", "install"], &[("PATH", &path)]);
    assert!(
        refused.code == 1 && refused.stderr.contains("runs on this data directory already"),
        "{}",
        refused.stderr
    );
    let status = world.run_with(&["service", "status", "--json"], &[("PATH", &path)]);
    assert_eq!((status.code, &status.json()["pid"]), (0, &serde_json::json!(up.pid())));
    let logs = world.run(&["service", "logs", "-n", "5"]);
    assert!(logs.code == 0 && logs.stdout.contains("started"), "{} {}", logs.stdout, logs.stderr);
}

#[test]
fn join_installs_the_node_as_a_service_whose_unit_starts_it() {
    let world = World::new();
    let up = Gateway::start(&world);
    let offer = world.run(&["nodes", "add", "laptop", "--address", &up.url, "--json"]).json();
    let machine = World::new();
    let path = path_with_fake_manager(&machine);
    let joined = machine.run_with(&["join", offer["code"].as_str().unwrap(), "--yes"], &[("PATH", &path)]);
    assert_eq!(joined.code, 0, "{} {}", joined.stdout, joined.stderr);
    assert!(joined.stdout.contains("Installed and started gantry-node-laptop.service"), "{}", joined.stdout);
    let unit = machine.folder.path().join(".config/systemd/user/gantry-node-laptop.service");
    let text = std::fs::read_to_string(&unit).unwrap();
    let command = text.lines().find_map(|line| line.strip_prefix("ExecStart=")).unwrap();
    assert!(!command.contains("gtn_") && !text.contains("gtj_"), "no secret: {text}");

    // What systemd would run, with an environment as small as systemd's.
    let mut service = Command::new("sh");
    service.args(["-c", &format!("exec {command}")]).env_clear().env("HOME", machine.folder.path());
    service.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let _node = gantry_testkit::Process::spawn(&mut service);
    eventually("the service's command connects the node", SOON, || up.node("laptop")["online"] == true);
    let status = machine.run_with(&["service", "status", "--node"], &[("PATH", &path)]);
    assert!(
        status.code == 0 && status.stdout.contains("gantry-node-laptop.service (installed, active)"),
        "{}",
        status.stdout
    );
}

#[test]
fn systemd_accepts_the_units() {
    let world = World::new();
    let up = Gateway::start(&world);
    let offer = world.run(&["nodes", "add", "laptop", "--address", &up.url, "--json"]).json();
    let machine = World::new();
    let joined = machine.run(&["join", offer["code"].as_str().unwrap(), "--no-start"]);
    assert_eq!(joined.code, 0, "{}", joined.stderr);
    let folder = machine.folder.path().join("units");
    std::fs::create_dir(&folder).unwrap();
    for (name, args) in [
        ("gantry.service", &["service", "install", "--print"][..]),
        ("gantry-serve.service", &["service", "install", "--print", "--without-tools"]),
        ("gantry-system.service", &["service", "install", "--print", "--system", "--run-as", "root"]),
        ("gantry-node-laptop.service", &["service", "install", "--print", "--node"]),
        (
            "gantry-node-system.service",
            &["service", "install", "--print", "--node", "laptop", "--system", "--run-as", "root"],
        ),
    ] {
        let printed = machine.run(args);
        assert_eq!(printed.code, 0, "{name}: {}", printed.stderr);
        let file = folder.join(name);
        std::fs::write(&file, &printed.stdout).unwrap();
        let scope = if name.contains("system") { "--system" } else { "--user" };
        let verified = Command::new("systemd-analyze")
            .args(["verify", "--man=no", "--recursive-errors=no", scope])
            .arg(&file)
            .env("XDG_RUNTIME_DIR", &folder)
            .output()
            .expect("systemd-analyze (systemd) is needed");
        let said = String::from_utf8_lossy(&verified.stderr);
        assert!(verified.status.success() && !said.contains(name), "{name}: {said}\n{}", printed.stdout);
    }
    let refused = machine.run(&["service", "install", "--system"]);
    let reasons = ["--run-as USER is missing", "needs root"];
    assert_eq!(refused.code, 2, "{}", refused.stderr);
    assert!(reasons.iter().any(|reason| refused.stderr.contains(reason)), "{}", refused.stderr);
}
