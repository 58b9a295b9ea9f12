//! Files in the data directory are private to their owner, whatever the umask.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use gantry_testkit::{Gateway, Process, World, eventually};
use serde_json::{Value, json};

/// With a umask that hides nothing.
fn open_handed(world: &World, args: &[&str]) -> Command {
    let plain = world.command(args);
    let mut command = world.command(&[]);
    let words = format!("umask 0; exec {:?} \"$@\"", plain.get_program());
    let mut shell = Command::new("sh");
    shell.args(["-c", &words, "sh"]).args(args).current_dir(world.workspace()).env_clear();
    shell.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    command = shell;
    command.stdin(Stdio::null()).stdout(Stdio::null());
    command
}

/// Paths below a folder that others may look at, with their modes.
fn open_to_others(folder: &Path) -> (usize, Vec<String>) {
    let (mut seen, mut open) = (0, Vec::new());
    let mut waiting = vec![folder.to_owned()];
    while let Some(path) = waiting.pop() {
        // What is removed while it is looked at is no longer kept.
        let Ok(metadata) = std::fs::symlink_metadata(&path) else { continue };
        seen += 1;
        if metadata.permissions().mode() & 0o077 != 0 && !metadata.is_symlink() {
            open.push(format!("{} {:o}", path.display(), metadata.permissions().mode() & 0o777));
        }
        if metadata.is_dir() {
            waiting
                .extend(std::fs::read_dir(&path).into_iter().flatten().flatten().map(|entry| entry.path()));
        }
    }
    (seen, open)
}

#[test]
fn data_directories_are_private_whatever_the_umask() {
    let (world, machine) = (World::new(), World::new());
    let up = Process::spawn(&mut open_handed(&world, &["up", "--listen", "127.0.0.1:0"]));
    let lock = world.data().join("gateway.lock");
    let mut url = String::new();
    eventually("the gateway listens", Duration::from_secs(20), || {
        let running: Value =
            serde_json::from_str(&std::fs::read_to_string(&lock).unwrap_or_default()).unwrap_or_default();
        running["url"].as_str().unwrap_or_default().clone_into(&mut url);
        !url.is_empty()
    });
    let added = world.run(&["nodes", "add", "box", "--token", "--json"]).json();
    let node = open_handed(&machine, &["node", "--gateway", &url, "--id", "box"])
        .env("GANTRY_TOKEN", added["token"].as_str().unwrap())
        .stderr(Stdio::null())
        .spawn();
    let node = Process { child: node.unwrap() };
    eventually("the node is here", Duration::from_secs(20), || machine.run(&["node", "status"]).code == 0);
    world.write("a.txt", "text");
    machine.write("b.txt", "text");
    let call = |tool: &str, input: Value| {
        let ran = world.run(&["call", tool, &input.to_string()]);
        assert_eq!(ran.code, 0, "{tool}: {} {}", ran.stdout, ran.stderr);
    };
    for node in ["local", "box"] {
        call(&format!("{node}__Write"), json!({"path": "new.txt", "content": "x"}));
        call(&format!("{node}__Bash"), json!({"command": "echo here; sleep 30", "background": true}));
    }
    call("gsv__WriteFile", json!({"path": "deep/er/file", "content": "x"}));
    call("gsv__Transfer", json!({"source": "box:b.txt", "destination": "gsv:deep/b.txt"}));
    let configured = open_handed(&world, &["config", "set", "maxToolResultChars", "40000"]).status().unwrap();
    assert!(configured.success());
    for (home, least) in [(world.data(), 20), (machine.data(), 8)] {
        let (seen, open) = open_to_others(&home);
        assert!(seen >= least, "only {seen} below {}", home.display());
        assert_eq!(open, [""; 0]);
        assert!(home.join("pending").exists() || home.join("nodes/box/pending").exists());
    }
    machine.run(&["node", "stop", "--kill"]);
    drop((up, node));
}

/// A program of the same user can open the directory to others, also from a confined shell.
#[test]
fn changed_modes_are_restored_at_the_next_start() {
    let world = World::new();
    let log = world.workspace().join("log");
    let up = Gateway::start_logged(&world, &log, &[]);
    let client = format!("Bearer {}", up.client_token(&world, "c", &[]));
    let data = world.data();
    let token = data.join("operator.token");
    let script = format!("chmod 755 {} && chmod 644 {}", data.display(), token.display());
    let changed =
        up.call_with("local__Bash", &json!({"command": script}), &[("Authorization", client.as_str())]);
    assert_eq!(changed.status, 200, "{}", changed.text());
    assert_eq!(std::fs::read_to_string(&log).unwrap(), "");
    drop(up);
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&data), mode(&token)), (0o755, 0o644), "else there is nothing to set right");
    let up = Gateway::start_logged(&world, &log, &[]);
    assert_eq!((mode(&data), mode(&token)), (0o700, 0o600));
    let reported = std::fs::read_to_string(&log).unwrap();
    let lines: Vec<_> = reported.lines().filter(|line| line.contains("the modes are fixed")).collect();
    assert!(lines.len() == 1 && lines[0].contains("operator.token (it was 0644)"), "{reported}");
    drop(up);
    let _up = Gateway::start_logged(&world, &log, &[]);
    assert!(!std::fs::read_to_string(&log).unwrap().contains("the modes are fixed"));
}

#[test]
fn writable_configuration_is_reported_at_start() {
    let world = World::new();
    let (log, elsewhere) = (world.workspace().join("log"), world.folder.path().join("other.toml"));
    world.configure("");
    std::fs::write(&elsewhere, "").unwrap();
    let inside = world.data().join("gantry.toml");
    let set = |path: &Path, mode| std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
    let reported = |more: &[&str]| {
        drop(Gateway::start_logged(&world, &log, more));
        std::fs::read_to_string(&log).unwrap()
    };
    set(&inside, 0o664);
    let said = reported(&[]);
    assert!(said.contains("gantry.toml (it was 0664)"), "{said}");
    assert_eq!(std::fs::metadata(&inside).unwrap().permissions().mode() & 0o777, 0o644);
    assert_eq!(reported(&[]), "");
    let named = ["--config", elsewhere.to_str().unwrap()];
    set(&elsewhere, 0o644);
    assert_eq!(reported(&named), "");
    set(&elsewhere, 0o646);
    let said = reported(&named);
    assert!(said.contains("other.toml can be changed by others (mode 0646)"), "{said}");
    assert!(said.contains("chmod go-w"), "{said}");
    assert_eq!(std::fs::metadata(&elsewhere).unwrap().permissions().mode() & 0o777, 0o646, "not ours to set");
    set(&elsewhere, 0o600);
    // Only root can give files away.
    if std::os::unix::fs::chown(&elsewhere, Some(65_534), None).is_ok() {
        let said = reported(&named);
        assert!(said.contains("other.toml belongs to user 65534, who can change it"), "{said}");
    }
}

/// The operator's shell in the background, and a client who finds its socket.
#[test]
fn client_shell_cannot_reach_the_operators_background_shell() {
    let world = World::new();
    let up = Gateway::start(&world);
    let client = format!("Bearer {}", up.client_token(&world, "c", &[]));
    let as_client = [("Authorization", client.as_str())];
    let started = up.call("local__Bash", &json!({"command": "bash", "background": true}));
    assert_eq!(started.status, 200, "{}", started.text());
    let sessions = world.data().join("processes/sessions");
    let mut control = None;
    eventually("the session is kept", Duration::from_secs(10), || {
        let folders = std::fs::read_dir(&sessions).unwrap().flatten().map(|entry| entry.path());
        control = folders.map(|folder| folder.join("control")).find(|control| control.exists());
        control.is_some()
    });
    let control = control.unwrap();
    let stolen = world.workspace().join("stolen");
    let script = world.write(
        "take.py",
        &format!(
            "import array, os, socket, time\n\
             os.chdir({folder:?})\n\
             s = socket.socket(socket.AF_UNIX); s.settimeout(5); s.connect('control')\n\
             s.send(bytes(32))\n\
             data, descriptors, _, _ = s.recvmsg(10, socket.CMSG_SPACE(64))\n\
             print('connected, got', len(data), len(descriptors))\n\
             if descriptors:\n\
             \x20 feed = array.array('i'); feed.frombytes(descriptors[0][2][:4])\n\
             \x20 os.write(feed[0], b'cp {token} {stolen}\\n'); time.sleep(1)\n",
            folder = control.parent().unwrap(),
            token = world.data().join("operator.token").display(),
            stolen = stolen.display(),
        ),
    );
    let command = format!("python3 {}", script.display());
    let reported = up.call_with("local__Bash", &json!({"command": command}), &as_client).text();
    assert!(reported.contains("connected, got 0 0"), "{reported}");
    assert!(!stolen.exists());
    // The operator goes on with it.
    let id = control.parent().unwrap().file_name().unwrap().to_str().unwrap().to_owned();
    let input = json!({"action": "submit", "sessionId": id, "data": "echo still mine"});
    assert_eq!(up.call("local__Process", &input).status, 200);
    eventually("it answers", Duration::from_secs(10), || {
        up.call("local__Process", &json!({"action": "log", "sessionId": id})).text().contains("still mine")
    });
}

/// Somebody with no other rights than to what is theirs: root looks everywhere.
const PLAIN_USER: u32 = 65534;

fn as_plain_user(command: &mut Command) -> &mut Command {
    use std::os::unix::process::CommandExt;
    if rustix::process::geteuid().is_root() { command.uid(PLAIN_USER).gid(PLAIN_USER) } else { command }
}

#[test]
fn gateway_and_keeper_are_not_traceable_by_the_same_user() {
    let world = World::new();
    // A program that its user cannot read is hidden anyway, and a home directory may hide it too.
    let program = world.folder.path().join("gantry");
    std::fs::copy(env!("CARGO_BIN_EXE_gantry"), &program).unwrap();
    std::fs::set_permissions(&program, PermissionsExt::from_mode(0o755)).unwrap();
    if rustix::process::geteuid().is_root() {
        for path in [world.folder.path().to_owned(), world.workspace()] {
            std::os::unix::fs::chown(path, Some(PLAIN_USER), Some(PLAIN_USER)).unwrap();
        }
    }
    let plain = world.command(&["up", "--listen", "127.0.0.1:0", "--json"]);
    let mut command = Command::new(&program);
    command.args(plain.get_args()).current_dir(world.workspace()).env_clear();
    command.envs(plain.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let up = Gateway::spawn(as_plain_user(&mut command));

    let started = up.call("Bash", &json!({"command": "exec sleep 60", "background": true})).json();
    let child = started["pid"].as_u64().unwrap_or_else(|| panic!("{started}"));
    let status = std::fs::read_to_string(format!("/proc/{child}/status")).unwrap();
    let keeper = status.lines().find_map(|line| line.strip_prefix("PPid:")).unwrap().trim().to_owned();
    let seen = |pid: &str| {
        let mut look = Command::new("cat");
        look.arg(format!("/proc/{pid}/environ")).stdout(Stdio::null()).stderr(Stdio::null());
        as_plain_user(&mut look).status().unwrap().success()
    };
    assert!(seen(&child.to_string()), "what it runs is as visible as anything");
    assert!(!seen(&up.pid().to_string()), "the gateway");
    assert!(!seen(&keeper), "the keeper");
    up.call("Process", &json!({"action": "kill", "sessionId": started["sessionId"]}));
}
