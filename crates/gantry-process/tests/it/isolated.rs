//! Isolated commands have their own mounts and their own network.

use std::fs::Permissions;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use gantry_process::{Cwd, Network, NewNetwork, ProcessError, Sandbox, SessionNetwork};
use tokio_util::sync::CancellationToken;

use crate::support::{Bench, KEEPER_COPY, bench, keeper};

/// A home directory with credentials, a start file and a data directory.
struct Home {
    bench: Bench,
    path: PathBuf,
}

impl Home {
    fn new() -> Home {
        let bench = bench();
        let path = bench.directory.path().canonicalize().unwrap().join("home");
        for directory in [".ssh", ".config/fish", "data", "tmp"] {
            std::fs::create_dir_all(path.join(directory)).unwrap();
        }
        for (file, text) in [
            (".ssh/id_ed25519", "top secret"),
            ("data/operator-token", "top secret"),
            (".netrc", "top secret"),
            (".bashrc", "echo hello\n"),
            ("notes.txt", "notes\n"),
        ] {
            std::fs::write(path.join(file), text).unwrap();
        }
        Home { bench, path }
    }

    fn at(&self, names: &[&str]) -> Vec<PathBuf> {
        names.iter().map(|name| self.path.join(name)).collect()
    }

    fn sandbox(&self) -> Sandbox {
        Sandbox::Isolated {
            write: self.at(&[""]),
            covered: self.at(&["data", ".ssh", ".netrc", ".aws"]),
            read_only: self.at(&[".bashrc", ".profile", ".config/fish"]),
            network: Network::Allowed,
        }
    }

    async fn run(&self, network: Option<&Arc<SessionNetwork>>, script: &str) -> Ran {
        self.run_in(&self.path, network, script).await.unwrap()
    }

    async fn run_in(
        &self,
        directory: &Path,
        network: Option<&Arc<SessionNetwork>>,
        script: &str,
    ) -> Result<Ran, ProcessError> {
        let mut command = self.bench.shell(script);
        command.cwd = Cwd::Path(directory.to_owned());
        command.sandbox = self.sandbox();
        command.network = network.cloned();
        let finished = self.bench.processes.run(command, CancellationToken::new()).await?;
        Ok(Ran {
            code: finished.ended.exit.code,
            output: finished.stdout.text,
            quarantined: finished.ended.quarantined,
        })
    }
}

#[derive(Debug)]
struct Ran {
    code: Option<i32>,
    output: String,
    quarantined: Vec<String>,
}

#[tokio::test]
async fn home_directory_is_usable_and_credentials_are_hidden() {
    let home = Home::new();
    let ran =
        home.run(None, "ls -A && cat notes.txt && echo more > new.txt && mkdir sub && cat new.txt").await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(ran.output.contains(".ssh") && ran.output.contains("notes\nmore"), "{ran:?}");
    assert_eq!(std::fs::read_to_string(home.path.join("new.txt")).unwrap(), "more\n");
    for script in [
        "cat .ssh/id_ed25519",
        "cat data/operator-token",
        "grep -r secret .ssh data .netrc",
        "cat $(readlink -f .ssh)/id_ed25519",
        "cat /proc/self/root$PWD/data/operator-token",
        "cat /proc/1/root$PWD/data/operator-token",
        "umount .ssh && cat .ssh/id_ed25519",
        "unshare -Urm sh -c 'umount .ssh; cat .ssh/id_ed25519'",
        "unshare -m sh -c 'umount .ssh; cat .ssh/id_ed25519'",
        "nsenter -t 1 -m cat $PWD/.ssh/id_ed25519",
        "mv .ssh ssh2 && cat ssh2/id_ed25519",
    ] {
        let ran = home.run(None, script).await;
        assert!(ran.code != Some(0) && !ran.output.contains("top secret"), "{script}: {ran:?}");
    }
    assert_eq!(home.run(None, "wc -c < .netrc").await.output.trim(), "0");
}

#[tokio::test]
async fn covered_paths_and_start_files_cannot_be_changed() {
    let home = Home::new();
    for script in [
        "echo evil >> .bashrc",
        "rm .bashrc",
        "mv notes.txt .bashrc",
        "echo evil > .netrc",
        "touch .ssh/authorized_keys",
        "touch data/x",
        "echo evil > .config/fish/config.fish",
        "mount -o remount,rw .ssh",
        // A directory above a protected path would take it away from its mount.
        "mv .config old",
        "mv .config/fish old",
        "umount .config",
    ] {
        let ran = home.run(None, script).await;
        assert_ne!(ran.code, Some(0), "{script}: {ran:?}");
    }
    assert_eq!(std::fs::read_to_string(home.path.join(".bashrc")).unwrap(), "echo hello\n");
    assert_eq!(std::fs::read_to_string(home.path.join(".netrc")).unwrap(), "top secret");
    assert_eq!(home.run(None, "cat .bashrc").await.output, "echo hello\n");
}

#[tokio::test]
async fn protected_paths_that_a_command_creates_are_quarantined() {
    let home = Home::new();
    let ran = home.run(None, "echo evil > .profile; mkdir .aws").await;
    assert_eq!((ran.code, ran.quarantined.len()), (Some(0), 2), "{ran:?}");
    for path in [".profile", ".aws"] {
        assert!(!home.path.join(path).exists(), "{path}");
        assert!(ran.quarantined.iter().any(|line| line.contains(path)), "{path}: {ran:?}");
    }
    assert!(home.run(None, "true").await.quarantined.is_empty());
}

#[tokio::test]
async fn nothing_outside_the_writable_directories_can_be_changed() {
    let home = Home::new();
    let outside = home.path.parent().unwrap().join("outside");
    std::fs::create_dir(&outside).unwrap();
    std::fs::write(outside.join("file"), "readable").unwrap();
    let at = outside.display();
    let ran = home.run(None, &format!("cat {at}/file")).await;
    assert_eq!((ran.code, &*ran.output), (Some(0), "readable"));
    for script in [
        format!("echo x > {at}/new"),
        format!("rm {at}/file"),
        format!("ln {at}/file here"),
        "touch /tmp/isolated-command".into(),
    ] {
        let ran = home.run(None, &script).await;
        assert_ne!(ran.code, Some(0), "{script}: {ran:?}");
    }
}

#[tokio::test]
async fn commands_cannot_start_in_a_covered_directory() {
    let home = Home::new();
    let refused = home.run_in(&home.path.join(".ssh"), None, "cat id_ed25519").await.unwrap_err();
    assert!(refused.to_string().contains("closed to this command"), "{refused}");
}

#[tokio::test]
async fn commands_without_a_session_network_reach_nothing() {
    let home = Home::new();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let connect = format!("exec 3<>/dev/tcp/127.0.0.1/{port}");
    assert_ne!(home.run(None, &connect).await.code, Some(0));
    let mut outside = home.bench.shell(&connect);
    outside.sandbox = Sandbox::None;
    let finished = home.bench.processes.run(outside, CancellationToken::new()).await.unwrap();
    assert_eq!(finished.ended.exit.code, Some(0), "the same connection works outside");
}

#[tokio::test]
async fn commands_of_a_session_share_a_network_whose_only_exit_is_the_listener() {
    let home = Home::new();
    let NewNetwork { network, listener, address } = home.bench.processes.create_network().await.unwrap();
    let network = Arc::new(network);
    let proxy = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut request = [0; 5];
        stream.read_exact(&mut request).unwrap();
        stream.write_all(b"world\n").unwrap();
        request
    });
    let ask = format!("exec 3<>/dev/tcp/{}/{}; echo -n hello >&3; head -1 <&3", address.ip(), address.port());
    let ran = home.run(Some(&network), &ask).await;
    assert_eq!((ran.code, &*ran.output), (Some(0), "world\n"));
    assert_eq!(&proxy.join().unwrap(), b"hello");

    let host = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = host.local_addr().unwrap().port();
    let ran = home.run(Some(&network), &format!("exec 3<>/dev/tcp/127.0.0.1/{port}")).await;
    assert_ne!(ran.code, Some(0), "the machine's loopback is another one");
    let ran = home.run(Some(&network), "ls /sys/class/net 2>&1; cat /proc/net/dev").await;
    assert!(!ran.output.contains("eth0:"), "{ran:?}");

    // A server of one command answers the next one.
    let serve = "python3 -c 'import socket; s=socket.create_server((\"127.0.0.1\", 8123)); \
                 c, _ = s.accept(); c.sendall(b\"from the server\\n\")'";
    let mut server = home.bench.shell(serve);
    (server.sandbox, server.network) = (home.sandbox(), Some(network.clone()));
    let id = home.bench.processes.start(server).await.unwrap();
    let client = "for i in $(seq 100); do exec 3<>/dev/tcp/127.0.0.1/8123 && break; sleep 0.1; done 2>/dev/null; cat <&3";
    assert_eq!(home.run(Some(&network), client).await.output, "from the server\n");
    let ended = home.bench.processes.wait(id, Duration::from_secs(10)).await;
    assert!(ended.is_ok(), "{ended:?}");
}

/// Users without privileges need a user namespace, which `root` does not use. The tests of this file
/// run again as such a user.
#[test]
fn isolation_works_for_ordinary_users() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let folder = tempfile::Builder::new().permissions(Permissions::from_mode(0o755)).tempdir().unwrap();
    let copy = |from: PathBuf, name: &str| {
        let to = folder.path().join(name);
        std::fs::copy(from, &to).unwrap();
        std::fs::set_permissions(&to, Permissions::from_mode(0o755)).unwrap();
        to
    };
    let tests = copy(std::env::current_exe().unwrap(), "tests");
    let keeper = copy(keeper(), "keeper");
    let output = std::process::Command::new("setpriv")
        .args(["--reuid=54321", "--regid=54321", "--clear-groups", "--inh-caps=-all"])
        .arg(&tests)
        .args(["isolated::", "--skip", "ordinary_users"])
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .env(KEEPER_COPY, keeper)
        .current_dir("/")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
    assert!(text.contains("7 passed"), "{text}");
}
