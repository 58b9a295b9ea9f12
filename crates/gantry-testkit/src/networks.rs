//! A second machine in a network of its own, connected to this one by a cable. Both are network namespaces.

use std::io::Write;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::{SOON, World, eventually};

const INSIDE: &str = "GANTRY_OWN_NETWORK";

/// This machine's address on the cable.
pub const NEAR: &str = "10.9.0.1";
const FAR: &str = "10.9.0.2";

/// Runs `inside` in a network of its own, by running the test again. `test` is the full name of the calling test.
pub fn in_a_network_of_its_own(test: &str, inside: impl FnOnce()) {
    if std::env::var_os(INSIDE).is_some() {
        ip("link set lo up");
        return inside();
    }
    let flags = ["-Urnm", "-nm"].into_iter().find(|flags| {
        let tried = Command::new("unshare").args([flags, "true"]).stderr(Stdio::null()).status();
        tried.expect("unshare (util-linux) is needed").success()
    });
    let flags = flags.expect("this machine allows no network namespace, without which this cannot be tested");
    let output = Command::new("unshare")
        .arg(flags)
        .arg(std::env::current_exe().unwrap())
        .args([test, "--exact", "--nocapture"])
        .env(INSIDE, "1")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    print!("{said}");
    assert!(output.status.success(), "{said}\n{}", String::from_utf8_lossy(&output.stderr));
    assert!(said.contains("test result: ok. 1 passed"), "there is no test called {test}");
}

/// `OtherMachine` has its own network, home folder and data directory.
pub struct OtherMachine {
    holder: Child,
    pub world: World,
}

impl OtherMachine {
    /// Connects a machine to this one. Call it once, in a network of its own.
    pub fn connected() -> OtherMachine {
        let holder = Command::new("unshare").args(["-n", "sleep", "3600"]).spawn().unwrap();
        let machine = OtherMachine { holder, world: World::new() };
        let own = std::fs::read_link("/proc/self/ns/net").unwrap();
        let theirs = format!("/proc/{}/ns/net", machine.holder.id());
        eventually("the second network exists", SOON, || {
            std::fs::read_link(&theirs).is_ok_and(|theirs| theirs != own)
        });
        ip(&format!(
            "link add near type veth peer name far netns {}
             addr add {NEAR}/24 dev near
             link set near up",
            machine.holder.id()
        ));
        let far = format!("ip link set lo up; ip addr add {FAR}/24 dev far; ip link set far up");
        assert!(machine.inside(Command::new("sh").args(["-c", &far])).status().unwrap().success());
        machine
    }

    /// Moves a command to this machine's network.
    pub fn inside(&self, command: &Command) -> Command {
        let mut inside = Command::new("nsenter");
        inside.args(["-t", &self.holder.id().to_string(), "-n"]).arg(command.get_program());
        inside.args(command.get_args());
        if command.get_envs().next().is_some() {
            inside.env_clear();
            inside.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
        }
        command.get_current_dir().map(|folder| inside.current_dir(folder));
        inside
    }

    /// Returns a `gantry` command on this machine.
    pub fn command(&self, args: &[&str]) -> Command {
        self.inside(&self.world.command(args))
    }

    /// Runs `gantry` on this machine. Returns the exit code and both outputs.
    pub fn run(&self, args: &[&str]) -> (Option<i32>, String) {
        let output = self.command(args).stdin(Stdio::null()).output().unwrap();
        let said = [output.stdout, output.stderr].concat();
        (output.status.code(), String::from_utf8_lossy(&said).into_owned())
    }
}

impl Drop for OtherMachine {
    fn drop(&mut self) {
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}

/// Runs `ip` with each line.
fn ip(commands: &str) {
    let mut child = Command::new("ip").args(["-batch", "-"]).stdin(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(commands.as_bytes()).unwrap();
    assert!(child.wait().unwrap().success(), "ip failed on:\n{commands}");
    // The address of a new link is usable after a moment.
    std::thread::sleep(Duration::from_millis(50));
}
