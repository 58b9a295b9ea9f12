//! What Gantry keeps is its owner's alone, whatever the umask.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

use super::eventually;
use crate::run::World;

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

struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
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
fn everything_in_the_data_directories_is_its_owners_alone() {
    let (world, machine) = (World::new(), World::new());
    let up = Running(open_handed(&world, &["up", "--listen", "127.0.0.1:0"]).spawn().unwrap());
    let lock = world.data().join("gateway.lock");
    let mut url = String::new();
    eventually("the gateway listens", Duration::from_secs(20), || {
        let running: Value =
            serde_json::from_str(&std::fs::read_to_string(&lock).unwrap_or_default()).unwrap_or_default();
        running["url"].as_str().unwrap_or_default().clone_into(&mut url);
        !url.is_empty()
    });
    let added = world.run(&["nodes", "add", "box", "--json"]).json();
    let node = open_handed(&machine, &["node", "--gateway", &url, "--id", "box"])
        .env("GANTRY_TOKEN", added["token"].as_str().unwrap())
        .stderr(Stdio::null())
        .spawn();
    let node = Running(node.unwrap());
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
