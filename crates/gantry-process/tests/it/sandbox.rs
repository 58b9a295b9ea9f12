//! The kernel keeps a sandboxed command and all its children from what they may not reach.

use std::io::Write;
use std::net::TcpListener;
use std::path::{Path, PathBuf};

use gantry_process::{Network, ProcessError, Sandbox, sandbox_support};
use tokio_util::sync::CancellationToken;

use crate::support::{Bench, bench};

/// Runs a script and returns its exit code and output.
async fn run(bench: &Bench, sandbox: &Sandbox, script: &str) -> (Option<i32>, String) {
    let mut command = bench.shell(script);
    command.cwd = gantry_process::Cwd::Path("/".into());
    command.sandbox = sandbox.clone();
    let finished = bench.processes.run(command, CancellationToken::new()).await.unwrap();
    (finished.ended.exit.code, finished.stdout.text)
}

async fn allowed(bench: &Bench, sandbox: &Sandbox, script: &str) {
    let (code, output) = run(bench, sandbox, script).await;
    assert_eq!(code, Some(0), "{script}: {output}");
}

async fn refused(bench: &Bench, sandbox: &Sandbox, script: &str) {
    let (code, output) = run(bench, sandbox, script).await;
    assert!(code != Some(0) && !output.contains("top secret"), "{script}: {code:?} {output}");
    // The same script works outside, so it is the sandbox that refuses it.
    let (code, output) = run(bench, &Sandbox::None, script).await;
    assert_eq!(code, Some(0), "{script}: {output}");
}

fn system() -> Vec<PathBuf> {
    ["/usr", "/bin", "/lib", "/lib64", "/etc"].map(PathBuf::from).to_vec()
}

struct Scene {
    bench: Bench,
    root: PathBuf,
}

/// Creates `open/file` and `closed/secret`, and links into the closed directory.
fn scene() -> Scene {
    let bench = bench();
    let root = bench.directory.path().canonicalize().unwrap();
    for name in ["open", "closed", "closed/deep"] {
        std::fs::create_dir(root.join(name)).unwrap();
    }
    std::fs::write(root.join("open/file"), "readable").unwrap();
    std::fs::write(root.join("closed/secret"), "top secret").unwrap();
    std::os::unix::fs::symlink(root.join("closed"), root.join("open/link")).unwrap();
    std::os::unix::fs::symlink(&root, root.join("open/up")).unwrap();
    Scene { bench, root }
}

#[test]
fn this_machine_can_enforce_sandboxes() {
    let support = sandbox_support();
    assert!(support.landlock_abi.is_some_and(|abi| abi >= 3) && support.seccomp, "{support:?}");
    assert_eq!(support.reason, None);
}

#[tokio::test]
async fn only_the_listed_paths_can_be_reached() {
    let Scene { bench, root } = scene();
    let root = root.display();
    let sandbox = Sandbox::Only {
        read: [system(), vec!["/nonexistent".into()]].concat(),
        write: vec![format!("{root}/open").into()],
        network: Network::Allowed,
    };
    for script in [
        format!("cat {root}/open/file"),
        format!(
            "cd {root}/open && echo x > new && mkdir d && mv new d/newer && ln d/newer hard && rm -r d hard"
        ),
        format!("cd {root}/open && echo long > t && : > t && rm t"),
        "echo x > /dev/null; head -c 1 /dev/urandom > /dev/null; cat /proc/self/status > /dev/null"
            .to_owned(),
        "ls /usr/bin > /dev/null".to_owned(),
    ] {
        allowed(&bench, &sandbox, &script).await;
    }
    for script in [
        format!("cat {root}/closed/secret"),
        format!("cat {root}/open/link/secret"),
        format!("cat {root}/open/up/closed/secret"),
        format!("cat /proc/self/root{root}/closed/secret"),
        format!("cat /proc/self/cwd{root}/closed/secret"),
        format!("bash -c 'setsid -w cat {root}/closed/secret'"),
        format!("ls {root}"),
        format!("echo x > {root}/outside"),
        format!("echo x >> {root}/closed/secret"),
        format!(
            "python3 -c 'import os; os.truncate(\"{root}/closed/deep/t\", 0)' 2>&1 || touch {root}/closed/deep/t"
        ),
        format!("echo x > {root}/closed/deep/u"),
        format!("ln {root}/closed/secret {root}/open/hard$$"),
        format!("mv {root}/closed/deep/u {root}/open/u"),
        "ls /".to_owned(),
        "ls /root".to_owned(),
        "touch /usr/bin/gantry-test-file && rm /usr/bin/gantry-test-file".to_owned(),
    ] {
        refused(&bench, &sandbox, &script).await;
    }
}

#[tokio::test]
async fn everything_but_the_closed_directory_can_be_reached() {
    let Scene { bench, root } = scene();
    let root = root.display();
    let link = format!("{root}/open/link");
    // The closed directory is given by its own name, and through a link.
    for closed in [format!("{root}/closed"), link] {
        let sandbox =
            Sandbox::Except { closed: vec![closed.into()], read_only: vec![], network: Network::Allowed };
        for script in [
            format!("cat {root}/open/file"),
            format!("echo x > {root}/open/new && rm {root}/open/new"),
            "ls /etc > /dev/null && ls /usr /proc > /dev/null".to_owned(),
        ] {
            allowed(&bench, &sandbox, &script).await;
        }
        for script in [
            format!("cat {root}/closed/secret"),
            format!("cat {root}/open/link/secret"),
            format!("cat {root}/open/up/closed/secret"),
            format!("cat /proc/self/root{root}/closed/secret"),
            format!("cd {root}/closed && cat secret"),
            format!("ls {root}/closed"),
            format!("echo x > {root}/closed/new"),
            format!("echo x > {root}/closed/deep/new"),
            format!("bash -c '( setsid -w cat {root}/closed/secret )'"),
            // A directory that is moved to an allowed place keeps its rules.
            format!(
                "mv {root}/closed/deep {root}/open/deep && ls {root}/open/deep && mv {root}/open/deep {root}/closed/deep"
            ),
        ] {
            refused(&bench, &sandbox, &script).await;
        }
    }
}

#[tokio::test]
async fn closed_directory_need_not_exist_yet() {
    let Scene { bench, root } = scene();
    let closed = root.join("open/later/data");
    let sandbox =
        Sandbox::Except { closed: vec![closed.clone()], read_only: vec![], network: Network::Allowed };
    allowed(&bench, &sandbox, &format!("cat {}/open/file", root.display())).await;
    // The directory appears while the command runs.
    let script = format!(
        "for i in $(seq 200); do test -e {0} && break; sleep 0.01; done; test -e {0} || exit 0; cat {0}",
        closed.join("secret").display()
    );
    let running = run(&bench, &sandbox, &script);
    let making = async {
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        std::fs::create_dir_all(&closed).unwrap();
        std::fs::write(closed.join("secret"), "top secret").unwrap();
    };
    let ((code, output), ()) = tokio::join!(running, making);
    assert!(code == Some(1) && !output.contains("top secret"), "{code:?} {output}");
}

#[tokio::test]
async fn invalid_closed_path_is_rejected() {
    let bench = bench();
    for closed in ["relative", "/tmp/../etc"] {
        let mut command = bench.shell("true");
        command.sandbox =
            Sandbox::Except { closed: vec![closed.into()], read_only: vec![], network: Network::Allowed };
        let err = bench.processes.run(command, CancellationToken::new()).await.unwrap_err();
        assert!(
            matches!(&err, ProcessError::SandboxUnavailable { reason } if reason.contains(closed)),
            "{err}"
        );
        assert!(err.hint().is_some());
    }
}

#[tokio::test]
async fn denied_network_allows_no_sockets() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let _ = stream.unwrap().write_all(b"hello\n");
        }
    });
    let bench = bench();
    let except =
        |network| Sandbox::Except { closed: vec!["/nonexistent-data".into()], read_only: vec![], network };
    let only = |network| Sandbox::Only { read: vec!["/".into()], write: vec![], network };
    let python = |code: &str| format!("python3 -c 'import socket; {code}'");
    let scripts = [
        format!("read -r line < /dev/tcp/127.0.0.1/{port} && test \"$line\" = hello"),
        python(&format!("socket.create_connection((\"127.0.0.1\", {port}))")),
        python("socket.socket(socket.AF_INET, socket.SOCK_DGRAM)"),
        python("socket.socket(socket.AF_INET6)"),
        python("socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)"),
        format!("setsid -w bash -c 'exec 3<>/dev/tcp/127.0.0.1/{port}'"),
    ];
    for script in &scripts {
        for sandbox in [except(Network::Allowed), only(Network::Allowed)] {
            allowed(&bench, &sandbox, script).await;
        }
        for sandbox in [except(Network::Denied), only(Network::Denied)] {
            refused(&bench, &sandbox, script).await;
        }
    }
    // Only the server of a socket file decides who may connect. A command limited to its workspace
    // therefore gets no local sockets either.
    let local = [
        python("socket.socket(socket.AF_UNIX)"),
        python("socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)"),
        // Although these are pairs, they can send to any datagram socket.
        python("socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)"),
        python("socket.socketpair(socket.AF_UNIX, socket.SOCK_RAW)"),
    ];
    let confined = [except(Network::Denied), only(Network::Denied), only(Network::Allowed)];
    for script in &local {
        allowed(&bench, &except(Network::Allowed), script).await;
        for sandbox in &confined {
            refused(&bench, sandbox, script).await;
        }
    }
    for sandbox in &confined {
        for kind in ["SOCK_STREAM", "SOCK_SEQPACKET"] {
            let script = format!("a, b = socket.socketpair(type=socket.{kind}); a.send(b\"x\"); b.recv(1)");
            allowed(&bench, sandbox, &python(&script)).await;
        }
    }
}

/// A pair of sockets cannot be redirected to another socket afterwards.
#[tokio::test]
async fn socket_pair_reaches_no_socket_file() {
    let Scene { bench, root } = scene();
    let path = root.join("closed/server");
    let server = std::os::unix::net::UnixListener::bind(&path).unwrap();
    let sandbox =
        Sandbox::Only { read: vec!["/".into()], write: vec![root.join("open")], network: Network::Allowed };
    let script = format!(
        "import socket\n\
         for kind in [socket.SOCK_STREAM, socket.SOCK_SEQPACKET]:\n\
         \x20 for step in [lambda a, b: None, lambda a, b: b.close(), lambda a, b: a.shutdown(2)]:\n\
         \x20   a, b = socket.socketpair(type=kind); step(a, b)\n\
         \x20   try: a.connect({path:?}); print('connected')\n\
         \x20   except OSError: pass\n"
    );
    let (code, output) = run(&bench, &sandbox, &format!("python3 -c \"{}\"", script.replace('"', "'"))).await;
    assert_eq!((code, output.as_str()), (Some(0), ""));
    server.set_nonblocking(true).unwrap();
    assert!(server.accept().is_err());
}

/// Everyday programs need no local sockets.
#[tokio::test]
async fn ordinary_programs_work_without_local_sockets() {
    let Scene { bench, root } = scene();
    let open = root.join("open");
    // Python's semaphores are files in `/dev/shm`.
    let write = vec![open.clone(), "/dev/shm".into()];
    let sandbox = Sandbox::Only { read: vec!["/".into()], write, network: Network::Allowed };
    for script in [
        "bash -lc 'echo a | sort | wc -l'",
        "git init -q repo && cd repo && git config user.email a@b && git config user.name a && echo x > f && git add f && git commit -qm m && cd .. && git clone -q repo copy && test -f copy/f",
        "python3 -c 'import multiprocessing as m; p = m.Pool(2); print(p.map(abs, [-1, -2])); q = m.Queue(); a, b = m.Pipe(); a.send(1); b.recv()'",
        "python3 -c 'import asyncio, subprocess; asyncio.run(asyncio.create_subprocess_exec(\"true\"))'",
        "getent hosts localhost && getent passwd root && id && hostname",
        "mkdir t && echo x > t/f && tar cf t.tar t && tar xf t.tar && cp -a t u && sed -i s/x/y/ u/f",
    ] {
        let script = format!("cd {0} && export HOME={0} TMPDIR={0} && {script}", open.display());
        allowed(&bench, &sandbox, &script).await;
    }
}

#[tokio::test]
async fn processes_outside_cannot_be_signalled_or_read() {
    let bench = bench();
    let mut outside =
        std::process::Command::new("sleep").arg("300").env("HIDDEN", "top secret").spawn().unwrap();
    let pid = outside.id();
    for sandbox in [
        Sandbox::Only { read: vec!["/".into()], write: vec![], network: Network::Denied },
        Sandbox::Except {
            closed: vec!["/nonexistent-data".into()],
            read_only: vec![],
            network: Network::Allowed,
        },
    ] {
        refused(&bench, &sandbox, &format!("kill -0 {pid}")).await;
        // `cat` would print the environment. Outside, the test only checks whether it can be read.
        refused(&bench, &sandbox, &format!("head -c 1 /proc/{pid}/environ | grep -q .")).await;
        refused(&bench, &sandbox, &format!("readlink /proc/{pid}/fd/1 > /dev/null")).await;
        refused(&bench, &sandbox, &format!("ls /proc/{pid}/root/ > /dev/null")).await;
        // The command's keeper is outside as well, but its own children are not.
        let (code, output) =
            run(&bench, &sandbox, "kill -KILL $PPID; sleep 300 & kill $! && echo alive").await;
        assert!(code == Some(0) && output.ends_with("alive\n"), "{code:?} {output}");
    }
    outside.kill().unwrap();
    outside.wait().unwrap();
}

/// Returns one sandbox of each mode, with as much allowed as possible.
fn every_mode(root: &Path) -> Vec<Sandbox> {
    let closed = vec![root.join("closed")];
    let (read, write) = (vec![PathBuf::from("/")], vec![root.join("open")]);
    let modes = |network| {
        [
            Sandbox::Except { closed: vec![], read_only: vec![], network },
            Sandbox::Except { closed: closed.clone(), read_only: vec![], network },
            Sandbox::Only { read: read.clone(), write: write.clone(), network },
            Sandbox::Only { read: system(), write: write.clone(), network },
            Sandbox::OnlyExcept {
                read: read.clone(),
                write: write.clone(),
                closed: closed.clone(),
                read_only: vec![],
                network,
            },
        ]
    };
    [modes(Network::Allowed), modes(Network::Denied)].concat()
}

#[tokio::test]
async fn limits_of_other_processes_cannot_be_changed() {
    let Scene { bench, root } = scene();
    let mut outside = std::process::Command::new("sleep").arg("300").spawn().unwrap();
    let pid = outside.id();
    let python = |code: &str| format!("python3 -c 'import resource as r, ctypes, os; {code}'");
    let change = python(&format!(
        "a, b = r.prlimit({pid}, r.RLIMIT_FSIZE); r.prlimit({pid}, r.RLIMIT_FSIZE, (1 << 40, b))"
    ));
    // x32 numbers work in every program. The call must be refused, not merely unknown.
    let second_set = python(&format!(
        "c = ctypes.CDLL(None, use_errno=True); l = (ctypes.c_ulong * 2)(1 << 40, 1 << 40); \
         c.syscall(0x40000000 | 302, {pid}, r.RLIMIT_FSIZE, l, None); os._exit(ctypes.get_errno() != 1)"
    ));
    for sandbox in every_mode(&root) {
        refused(&bench, &sandbox, &change).await;
        if cfg!(target_arch = "x86_64") {
            allowed(&bench, &sandbox, &second_set).await;
        }
        for script in [
            "ulimit -n 99 && test $(ulimit -n) = 99".to_owned(),
            python("r.prlimit(0, r.RLIMIT_NOFILE, (50, 60)); r.setrlimit(r.RLIMIT_FSIZE, (1, 2))"),
            python(&format!("r.prlimit({pid}, r.RLIMIT_FSIZE)")),
        ] {
            allowed(&bench, &sandbox, &script).await;
        }
    }
    outside.kill().unwrap();
    outside.wait().unwrap();
}

/// A command that can read a disk can read closed directories.
#[tokio::test]
async fn disks_are_out_of_reach() {
    let Scene { bench, root } = scene();
    let is_disk = |path: &PathBuf| {
        use std::os::unix::fs::FileTypeExt;
        std::fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_block_device())
    };
    let devices = std::fs::read_dir("/dev").unwrap().map(|entry| entry.unwrap().path());
    let readable = |path: &PathBuf| std::fs::File::open(path).is_ok();
    // The list is empty if the test does not run as root, or on a machine without disks.
    let disks: Vec<PathBuf> = devices.filter(is_disk).filter(readable).take(3).collect();
    for sandbox in every_mode(&root) {
        for disk in &disks {
            refused(&bench, &sandbox, &format!("exec 3< {}", disk.display())).await;
            refused(&bench, &sandbox, &format!("exec 3< /proc/self/root{}", disk.display())).await;
        }
        for script in [
            "echo x > /dev/null && head -c 9 /dev/zero > /dev/null && head -c 9 /dev/urandom > /dev/null",
            "! echo x > /dev/full",
            "echo x | cat /dev/stdin > /dev/stdout && exec 3< /dev/fd/0",
        ] {
            allowed(&bench, &sandbox, script).await;
        }
    }
    let except =
        Sandbox::Except { closed: vec![root.join("closed")], read_only: vec![], network: Network::Allowed };
    let script = "ls /dev > /dev/null && f=$(mktemp -p /dev/shm) && echo x > $f && rm $f";
    allowed(&bench, &except, script).await;
}

/// Other people's terminals must be neither readable nor writable.
#[tokio::test]
async fn terminals_of_others_are_out_of_reach() {
    use std::io::BufRead;
    let Scene { bench, root } = scene();
    let mut holder = std::process::Command::new("python3");
    holder.args(["-c", "import os, pty; print(os.ttyname(pty.openpty()[1]), flush=True); input()"]);
    let mut holder =
        holder.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped()).spawn().unwrap();
    let mut terminal = String::new();
    std::io::BufReader::new(holder.stdout.take().unwrap()).read_line(&mut terminal).unwrap();
    let terminal = terminal.trim();
    for sandbox in every_mode(&root) {
        refused(&bench, &sandbox, &format!("exec 3< {terminal}")).await;
        refused(&bench, &sandbox, &format!("echo x > {terminal}")).await;
        refused(&bench, &sandbox, &format!("exec 3< /proc/{}/fd/2", holder.id())).await;
    }
    drop(holder.stdin.take());
    holder.wait().unwrap();
}

/// A sandboxed tree is ended like any other, because its keeper is outside the sandbox and sees all
/// of it.
#[tokio::test]
async fn nothing_survives_a_sandboxed_command() {
    let bench = bench();
    let marker = crate::support::marker();
    let mut command =
        bench.shell(&format!("trap '' TERM; setsid -f bash -c 'exec -a {marker} sleep 300'; sleep 300"));
    command.timeout = Some(std::time::Duration::from_millis(300));
    command.sandbox = Sandbox::Only { read: system(), write: vec![], network: Network::Denied };
    let finished = bench.processes.run(command, CancellationToken::new()).await.unwrap();
    assert!(finished.ended.timed_out && !finished.ended.keeper_lost, "{finished:?}");
    crate::support::assert_clean(&marker);
}

/// Files that the engine's parent holds open must not leak through engine and keeper into the
/// command.
#[tokio::test]
async fn inherited_descriptors_do_not_reach_the_command() {
    let directory = tempfile::tempdir().unwrap();
    let leak = directory.path().join("leak");
    std::fs::write(&leak, "top secret").unwrap();
    let script = format!(
        "exec 9<{leak}; exec {engine} {keeper} {logs} session 'ls -m /proc/self/fd; cat <&9'",
        leak = leak.display(),
        engine = env!("CARGO_BIN_EXE_gantry-run"),
        keeper = crate::support::keeper().display(),
        logs = directory.path().join("logs").display(),
    );
    let output = std::process::Command::new("/bin/bash").args(["-c", &script]).output().unwrap();
    let output = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.contains("total ") && output.contains("Bad file descriptor") && !output.contains("secret"),
        "{output}"
    );
    assert!(Path::new(&leak).exists());
}

/// Closes files and directories next to each other and below each other, in a home of a thousand
/// entries.
#[tokio::test]
async fn many_closed_paths_in_a_home_leave_the_rest_open() {
    let bench = bench();
    let home = bench.directory.path().canonicalize().unwrap().join("home");
    for folder in [".ssh", ".config/gh", ".config/gcloud", ".config/app", ".local/share/keyrings", "project"]
    {
        std::fs::create_dir_all(home.join(folder)).unwrap();
        std::fs::write(home.join(folder).join("file"), format!("text of {folder}\n")).unwrap();
    }
    for name in [".netrc", ".npmrc", ".bashrc"] {
        std::fs::write(home.join(name), format!("text of {name}\n")).unwrap();
    }
    for number in 0..1_000 {
        std::fs::write(home.join(format!("entry-{number}")), "x").unwrap();
    }
    let closed =
        [".ssh", ".config/gh", ".config/gcloud", ".local/share/keyrings", ".netrc", ".npmrc", ".none"];
    let closed = gantry_process::existing(&closed.map(|place| home.join(place)));
    assert_eq!(closed.len(), 6);
    let run = async |script: &str| {
        let mut command = bench.shell(script);
        command.cwd = gantry_process::Cwd::Path(home.join("project"));
        command.sandbox =
            Sandbox::Except { closed: closed.clone(), read_only: vec![], network: Network::Allowed };
        bench.processes.run(command, CancellationToken::new()).await.unwrap()
    };
    for place in [
        ".ssh/file",
        ".config/gh/file",
        ".config/gcloud/file",
        ".local/share/keyrings/file",
        ".netrc",
        ".npmrc",
    ] {
        let finished =
            run(&format!("cat ../{place}; echo x >> ../{place}; mv ../{place} taken; cat taken")).await;
        assert!(!finished.stdout.text.contains("text of"), "{place}: {}", finished.stdout.text);
        assert!(std::fs::read_to_string(home.join(place)).unwrap().starts_with("text of"));
    }
    let begun = std::time::Instant::now();
    let open = run("cat file ../.bashrc ../.config/app/file ../entry-999; git init -q . && git status --short; python3 -c 'print(1)'").await;
    println!("{:?}", begun.elapsed());
    assert_eq!(open.stdout.text, "text of project\ntext of .bashrc\ntext of .config/app\nx?? file\n1\n");
}

/// The read-only files are those that a login shell runs, in homes with and without closed
/// directories.
#[tokio::test]
async fn read_only_paths_can_be_read_but_not_changed_or_replaced() {
    let bench = bench();
    let root = bench.directory.path().canonicalize().unwrap();
    for folder in ["home/project", "home/dotfiles", "home/.ssh", "home/.config/fish"] {
        std::fs::create_dir_all(root.join(folder)).unwrap();
    }
    for name in ["home/.profile", "home/dotfiles/zshrc", "home/.config/fish/config.fish", "home/.ssh/key"] {
        std::fs::write(root.join(name), "true\n").unwrap();
    }
    std::os::unix::fs::symlink("dotfiles/zshrc", root.join("home/.zshrc")).unwrap();
    std::os::unix::fs::symlink("loop", root.join("home/loop")).unwrap();
    std::os::unix::fs::symlink(root.join("home"), root.join("way")).unwrap();
    let read_only = [".profile", ".bash_profile", ".zshrc", ".config/fish/config.fish", "loop"]
        .map(|name| root.join("way").join(name))
        .to_vec();
    let home = root.join("home");
    let home = home.display();
    for closed in [vec![], vec![root.join("home/.ssh")]] {
        let open = closed.is_empty();
        let sandbox = Sandbox::Except { closed, read_only: read_only.clone(), network: Network::Allowed };
        for script in [
            format!("cd {home} && cat .profile .zshrc dotfiles/zshrc .config/fish/config.fish > /dev/null"),
            format!(
                "HOME={home} bash -lc 'cd && cd project && echo x > file && mkdir d && mv file d/ && rm -r d'"
            ),
            format!("cd {home}/project && git init -q . && rm -rf .git && ls {home}/.config > /dev/null"),
        ] {
            allowed(&bench, &sandbox, &script).await;
        }
        // Reading and listing work as before, unless something in there is closed.
        let (code, _) = run(&bench, &sandbox, &format!("ls -a {home} && cat {home}/.ssh/key")).await;
        assert_eq!(code == Some(0), open);
        for script in [
            "echo x >> .profile",
            ": > .profile",
            "truncate -s 0 .profile",
            "rm .profile && echo > .profile",
            "echo y > project/x; mv -f project/x .profile",
            "ln -f .profile project/hard && echo x >> project/hard",
            "ln -s project/x .bash_profile && rm .bash_profile",
            "echo x > .bash_profile && rm .bash_profile",
            "mkdir .bash_profile && rmdir .bash_profile",
            "echo x >> .zshrc",
            "echo x >> dotfiles/zshrc",
            "echo y > project/x; mv -f project/x dotfiles/zshrc",
            "rm .zshrc && ln -s dotfiles/zshrc .zshrc",
            "echo x >> .config/fish/config.fish",
            "touch .config/fish/other && rm .config/fish/other",
            "mv .config/fish .config/f && mv .config/f .config/fish",
            "mv dotfiles project/ && mv project/dotfiles .",
            "touch new && rm new",
        ] {
            refused(&bench, &sandbox, &format!("cd {home} && {script}")).await;
        }
    }
}

/// Creates a home as dotfile tools lay it out. Each script tries to replace the content of a start
/// file.
async fn read_only_behind_links(links: &[(&str, &str)], read_only: &[&str], scripts: &[&str]) {
    let bench = bench();
    let root = bench.directory.path().canonicalize().unwrap();
    for folder in [".config/fish", ".config/git", "dots/conf.d", "d", "e", "links", "real", "project"] {
        std::fs::create_dir_all(root.join(folder)).unwrap();
    }
    for name in ["dots/gitconfig", "dots/conf.d/a.fish", "e/bashrc", "real/zshrc", "project/file"] {
        std::fs::write(root.join(name), "true\n").unwrap();
    }
    for (link, target) in links {
        std::os::unix::fs::symlink(target, root.join(link)).unwrap();
    }
    let read_only: Vec<PathBuf> = read_only.iter().map(|name| root.join(name)).collect();
    let home = root.display();
    let write = vec![root.clone(), "/dev".into()];
    for sandbox in [
        Sandbox::Except { closed: vec![], read_only: read_only.clone(), network: Network::Allowed },
        Sandbox::OnlyExcept { read: system(), write, closed: vec![], read_only, network: Network::Allowed },
    ] {
        for script in scripts {
            refused(&bench, &sandbox, &format!("cd {home} && {script}")).await;
        }
        let script = "cat dots/gitconfig real/zshrc > /dev/null && cd project && echo x > new && rm new";
        allowed(&bench, &sandbox, &format!("cd {home} && {script}")).await;
    }
}

#[tokio::test]
async fn link_targets_of_a_read_only_directory_are_read_only() {
    let links = [
        (".config/git/config", "../../dots/gitconfig"),
        (".config/fish/conf.d", "../../dots/conf.d"),
        ("dots/conf.d/b.fish", "../../real/zshrc"),
        // These links must not make the shell fail or close more than intended.
        (".config/fish/home", "../.."),
        (".config/fish/loop", "loop"),
        (".config/fish/none", "/dev/null"),
        (".config/fish/later", "../../e/later"),
    ];
    let scripts = [
        "echo x >> dots/gitconfig",
        "echo y > project/x; mv -f project/x dots/gitconfig",
        "echo x >> dots/conf.d/a.fish",
        "touch dots/conf.d/new && rm dots/conf.d/new",
        "echo x >> real/zshrc",
        "echo x > e/later && rm e/later",
    ];
    read_only_behind_links(&links, &[".config/git", ".config/fish"], &scripts).await;
}

#[tokio::test]
async fn links_on_the_path_to_a_read_only_file_cannot_be_replaced() {
    let links = [
        (".zshrc", "links/zl"),
        ("links/zl", "../real/zshrc"),
        (".bashrc", "d/sub/bashrc"),
        ("d/sub", "../e"),
        (".profile", "links/none/../x"),
    ];
    let scripts = [
        "ln -sfn ../project/file links/zl && ln -sfn ../real/zshrc links/zl",
        "ln -sfn ../project d/sub && ln -sfn ../e d/sub",
        "mv links l && mv l links",
        "echo x >> real/zshrc",
        "echo x >> e/bashrc",
    ];
    read_only_behind_links(&links, &[".zshrc", ".bashrc", ".profile"], &scripts).await;
}
