//! Detached sessions under bad conditions: invalid requests on their socket, torn records, killed
//! keepers.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use gantry_process::{Network, Processes, Sandbox, SessionId, Stdin, end_sessions};
use gantry_testkit::eventually_async;
use tokio_util::sync::CancellationToken;

use crate::support::{bench, marker, recover, survivors};

/// Starts a detached session that answers each line. Its folder has a path short enough for a
/// socket.
async fn detached(processes: &Processes, script: &str) -> SessionId {
    let mut command = bench().shell(script);
    command.cwd = gantry_process::Cwd::Path("/".into());
    command.stdin = Stdin::Pipe;
    let id = processes.start(command).await.unwrap();
    processes.detach(id, "note").await.unwrap();
    id
}

fn folder(log_dir: &Path, id: SessionId) -> PathBuf {
    log_dir.join(format!("sessions/{id}"))
}

fn connect(log_dir: &Path, id: SessionId) -> UnixStream {
    let socket = UnixStream::connect(folder(log_dir, id).join("control")).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    socket
}

/// Connects and shows the key, as Gantry does.
fn connect_with_the_key(log_dir: &Path, id: SessionId) -> UnixStream {
    let mut socket = connect(log_dir, id);
    socket.write_all(&std::fs::read(folder(log_dir, id).join("key")).unwrap()).unwrap();
    socket
}

async fn answers(processes: &Processes, id: SessionId, word: &str) {
    let deadline = Instant::now() + Duration::from_secs(10);
    processes.write(id, format!("{word}\n").as_bytes()).await.unwrap();
    while !processes.poll(id, Duration::from_millis(200)).await.unwrap().tail.contains(word) {
        assert!(Instant::now() < deadline, "no answer to {word}");
    }
}

const ECHO: &str = "while read -r line; do echo \"got $line\"; done";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn invalid_bytes_on_the_socket_do_no_harm() {
    let directory = tempfile::tempdir().unwrap();
    let processes = recover(directory.path()).await;
    let id = detached(&processes, ECHO).await;
    // Only the first connection may send a record. The other bytes are invalid requests, or too
    // long.
    let long = vec![b'C'; 8 << 20];
    for nonsense in [&b"\0"[..], b"{\"json\": true}\n", b"D\xff\xff\xff\xff", b"D\x02\0\0\0{}", &long] {
        for (mut socket, expected) in
            [(connect(directory.path(), id), &b""[..]), (connect_with_the_key(directory.path(), id), b"W")]
        {
            let mut greeting = vec![0; expected.len()];
            socket.read_exact(&mut greeting).unwrap();
            assert_eq!(greeting, expected);
            let _ = socket.write_all(nonsense);
            let mut rest = Vec::new();
            let _ = socket.shutdown(std::net::Shutdown::Write);
            let _ = socket.read_to_end(&mut rest);
            assert!(rest.is_empty(), "{rest:?}");
        }
    }
    // `C` was a valid request. It closes only the keeper's copy of standard input, not the
    // engine's.
    answers(&processes, id, "still").await;
    assert!(processes.kill(id).await.unwrap());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn engine_reconnects_after_many_other_connections() {
    let directory = tempfile::tempdir().unwrap();
    let processes = recover(directory.path()).await;
    let id = detached(&processes, ECHO).await;
    let strangers: Vec<UnixStream> = (0..100).map(|_| connect(directory.path(), id)).collect();
    let sockets: Vec<UnixStream> = (0..100).map(|_| connect_with_the_key(directory.path(), id)).collect();
    answers(&processes, id, "amid").await;
    drop((strangers, sockets));
    let begun = Instant::now();
    assert!(processes.kill(id).await.unwrap());
    assert!(begun.elapsed() < Duration::from_secs(3), "{:?}", begun.elapsed());
    assert!(!processes.poll(id, Duration::ZERO).await.unwrap().ended.unwrap().keeper_lost);
}

#[tokio::test]
async fn unreadable_records_are_skipped_with_a_warning() {
    let directory = tempfile::tempdir().unwrap();
    let processes = recover(directory.path()).await;
    let good = detached(&processes, "sleep 300").await;
    let torn = detached(&processes, "exit 3").await;
    processes.wait(torn, Duration::from_secs(10)).await.unwrap();
    drop(processes);
    let sessions = directory.path().join("sessions");
    let record = std::fs::read(folder(directory.path(), good).join("session.json")).unwrap();
    // An exit record that cannot be read is ignored, so the session counts as lost.
    std::fs::write(folder(directory.path(), torn).join("ended.json"), "{\"code\":").unwrap();
    let strange = String::from_utf8(record.clone()).unwrap().replace("\"version\":1", "\"version\":99");
    let records: [&[u8]; 7] =
        [b"", b"\0\0\0", b"{", b"[]", &record[..record.len() / 2], strange.as_bytes(), &vec![b' '; 2 << 20]];
    for (number, record) in records.iter().enumerate() {
        let folder = sessions.join(format!("00000000-0000-4000-8000-00000000000{number}"));
        std::fs::create_dir(&folder).unwrap();
        std::fs::write(folder.join("session.json"), record).unwrap();
    }
    std::fs::create_dir_all(sessions.join("00000000-0000-4000-8000-00000000000a/session.json")).unwrap();
    std::os::unix::fs::symlink("/dev/zero", sessions.join("00000000-0000-4000-8000-00000000000b")).unwrap();
    std::fs::write(sessions.join("stray"), "").unwrap();
    // A folder without a record is a session that was never detached and whose keeper is gone.
    std::fs::create_dir(sessions.join("00000000-0000-4000-8000-00000000000c")).unwrap();

    let processes = recover(directory.path()).await;
    assert_eq!(processes.warnings().len(), 8, "{:#?}", processes.warnings());
    assert!(processes.warnings().iter().all(|warning| warning.starts_with("skipped ")));
    assert!(!sessions.join("00000000-0000-4000-8000-00000000000c").exists());
    let ids: Vec<_> = processes.list().await.unwrap().into_iter().map(|session| session.id).collect();
    assert_eq!(ids.len(), 2);
    eventually_async("the torn exit record is replaced", Duration::from_secs(5), || {
        std::fs::read_to_string(folder(directory.path(), torn).join("ended.json"))
            .unwrap()
            .contains("KeeperLost")
    })
    .await;
    processes.end_all().await;
}

/// Such a session cannot be described, but it can still be ended.
#[tokio::test]
async fn running_session_with_a_torn_record_can_be_ended() {
    let directory = tempfile::tempdir().unwrap();
    let marker = marker();
    let processes = recover(directory.path()).await;
    let torn = detached(&processes, &format!("exec -a {marker} sleep 300")).await;
    let logless = detached(&processes, &format!("exec -a {marker} sleep 300")).await;
    eventually_async("both run", Duration::from_secs(5), || survivors(&marker).len() == 2).await;
    drop(processes);
    std::fs::write(folder(directory.path(), torn).join("session.json"), "{").unwrap();
    std::fs::remove_file(folder(directory.path(), logless).join("log")).unwrap();
    let processes = recover(directory.path()).await;
    assert!(!processes.knows(torn) && processes.knows(logless));
    drop(processes);
    assert_eq!(end_sessions(directory.path()).await.unwrap(), 2);
    assert_eq!(survivors(&marker), Vec::<String>::new());
}

/// Kills the keeper of a session. With `guard_too` it kills the guard first.
fn kill_keepers(log_dir: &Path, id: SessionId, guard_too: bool) {
    let record = std::fs::read_to_string(folder(log_dir, id).join("session.json")).unwrap();
    let number = |after: &str| -> i32 {
        let rest = record.split(after).nth(1).unwrap();
        rest.split("\"pid\":").nth(1).unwrap().split([',', '}']).next().unwrap().parse().unwrap()
    };
    let command = number("\"process\"");
    let stat = std::fs::read_to_string(format!("/proc/{command}/stat")).unwrap();
    let keeper: i32 = stat.rsplit(')').next().unwrap().split_whitespace().nth(1).unwrap().parse().unwrap();
    let kill = |pid: i32| {
        let pid = rustix::process::Pid::from_raw(pid).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    };
    if guard_too {
        kill(number("\"guard\""));
    }
    kill(keeper);
}

#[tokio::test]
async fn lost_keeper_is_reported_with_and_without_an_engine() {
    let directory = tempfile::tempdir().unwrap();
    for guard_too in [false, true] {
        for engine_there in [true, false] {
            println!("guard killed: {guard_too}, engine there: {engine_there}");
            let marker = marker();
            let script = format!("(exec -a {marker} sleep 300) & echo out; exec -a {marker} sleep 300");
            let mut processes = recover(directory.path()).await;
            let id = detached(&processes, &script).await;
            eventually_async("it runs", Duration::from_secs(5), || survivors(&marker).len() == 2).await;
            assert_eq!(processes.poll(id, Duration::from_secs(5)).await.unwrap().tail, "out\n");
            if engine_there {
                kill_keepers(directory.path(), id, guard_too);
            } else {
                drop(processes);
                kill_keepers(directory.path(), id, guard_too);
                processes = recover(directory.path()).await;
            }
            processes.wait(id, Duration::from_secs(10)).await.unwrap();
            assert_eq!(survivors(&marker), Vec::<String>::new());
            let poll = processes.poll(id, Duration::ZERO).await.unwrap();
            assert_eq!((poll.tail.as_str(), poll.ended.as_ref().unwrap().keeper_lost), ("out\n", true));
            drop(processes);
            let processes = recover(directory.path()).await;
            assert_eq!(processes.poll(id, Duration::ZERO).await.unwrap().ended, poll.ended);
        }
    }
}

/// A stopped keeper does not answer, but its command is ended anyway.
#[tokio::test]
async fn command_of_a_stopped_keeper_is_ended() {
    let directory = tempfile::tempdir().unwrap();
    let marker = marker();
    let processes = recover(directory.path()).await;
    let id = detached(&processes, &format!("read -r _; kill -STOP $PPID; exec -a {marker} sleep 300")).await;
    processes.write(id, b"\n").await.unwrap();
    eventually_async("it runs", Duration::from_secs(5), || crate::support::running(&marker)).await;
    drop(processes);
    let begun = Instant::now();
    assert_eq!(end_sessions(directory.path()).await.unwrap(), 1);
    assert_eq!(survivors(&marker), Vec::<String>::new());
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
}

/// A session with a stopped keeper cannot be detached. The call fails in time.
#[tokio::test]
async fn detach_with_a_stopped_keeper_fails_in_time() {
    let directory = tempfile::tempdir().unwrap();
    let marker = marker();
    let processes = recover(directory.path()).await;
    let mut command = bench().shell(&format!("sleep 0.5; kill -STOP $PPID; exec -a {marker} sleep 300"));
    command.cwd = gantry_process::Cwd::Path("/".into());
    let id = processes.start(command).await.unwrap();
    eventually_async("it runs", Duration::from_secs(5), || crate::support::running(&marker)).await;
    let refused = processes.detach(id, "").await.unwrap_err();
    assert!(refused.to_string().contains("cannot detach session"), "{refused}");
    assert!(processes.kill(id).await.unwrap());
    assert_eq!(survivors(&marker), Vec::<String>::new());
}

/// Removing a session's folder makes the session unreachable, so its keeper ends it.
#[tokio::test]
async fn session_ends_when_its_folder_is_removed() {
    let directory = tempfile::tempdir().unwrap();
    let marker = marker();
    let processes = recover(directory.path()).await;
    let id = detached(&processes, &format!("exec -a {marker} sleep 300")).await;
    eventually_async("it runs", Duration::from_secs(5), || survivors(&marker).len() == 1).await;
    drop(processes);
    std::fs::remove_dir_all(folder(directory.path(), id)).unwrap();
    eventually_async("the process is gone", Duration::from_secs(5), || survivors(&marker).is_empty()).await;
    // The same happens while an engine runs, and the engine notices it.
    let processes = recover(directory.path()).await;
    let id = detached(&processes, &format!("exec -a {marker} sleep 300")).await;
    std::fs::remove_dir_all(folder(directory.path(), id)).unwrap();
    processes.wait(id, Duration::from_secs(5)).await.unwrap();
    assert!(processes.poll(id, Duration::ZERO).await.unwrap().ended.is_some());
    assert_eq!(survivors(&marker), Vec::<String>::new());
}

/// Nobody can talk to the keeper, so the warning is all that can be reported.
#[tokio::test]
async fn session_without_its_key_is_ended_with_a_warning() {
    let directory = tempfile::tempdir().unwrap();
    let marker = marker();
    let processes = recover(directory.path()).await;
    let id = detached(&processes, &format!("exec -a {marker} sleep 300")).await;
    drop(processes);
    std::fs::remove_file(folder(directory.path(), id).join("key")).unwrap();
    let processes = recover(directory.path()).await;
    assert!(
        processes.warnings().len() == 1
            && processes.warnings()[0].contains("is lost and its command is ended")
    );
    processes.wait(id, Duration::from_secs(10)).await.unwrap();
    assert!(processes.poll(id, Duration::ZERO).await.unwrap().ended.unwrap().keeper_lost);
    assert_eq!(survivors(&marker), Vec::<String>::new());
}

/// A sandboxed command runs as the same user and knows where the socket is.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sandboxed_command_cannot_reach_another_session() {
    let bench = bench();
    let data = bench.directory.path().canonicalize().unwrap().join("data");
    let processes = recover(&data).await;
    let id = detached(&processes, ECHO).await;
    let run = async |sandbox: Sandbox, script: &str| {
        let mut command = bench.command("python3", &["-c", script]);
        command.sandbox = sandbox;
        let finished = bench.processes.run(command, CancellationToken::new()).await.unwrap();
        (finished.ended.exit.code, finished.stdout.text)
    };
    let folder = folder(&data, id);
    let confined =
        || Sandbox::Except { closed: vec![data.clone()], read_only: vec![], network: Network::Allowed };
    // Connects, sends the given bytes, and prints everything received, descriptors included.
    let attack = |words: &str| {
        format!(
            "import os, socket\n\
             os.chdir({folder:?})\n\
             s = socket.socket(socket.AF_UNIX); s.settimeout(5); s.connect('control')\n\
             {words}\n\
             try: data, descriptors, _, _ = s.recvmsg(100, socket.CMSG_SPACE(64))\n\
             except ConnectionResetError: data, descriptors = b'', []\n\
             print('got', data, len(descriptors))\n",
        )
    };
    for words in ["", "s.send(bytes(32))", "s.send(b'K')", "s.send(bytes(32) + b'K')"] {
        assert_eq!(run(confined(), &attack(words)).await, (Some(0), "got b'' 0\n".to_owned()), "{words:?}");
    }
    // The key would give it the write end of standard input, so the key must be unreadable.
    let shown = attack("s.send(open('key', 'rb').read())");
    let (code, output) = run(confined(), &shown).await;
    assert!(code != Some(0) && output.contains("PermissionError"), "{code:?} {output}");
    assert_eq!(run(Sandbox::None, &shown).await, (Some(0), "got b'W' 1\n".to_owned()));
    answers(&processes, id, "still").await;
    // The processes that know the key must be unreadable too: the keeper, its guard, and the
    // engine, which is this process.
    let record = std::fs::read_to_string(folder.join("session.json")).unwrap();
    let pid = record.split("\"process\":{\"pid\":").nth(1).unwrap().split([',', '}']).next().unwrap();
    let look = format!(
        "import os\n\
         def parent(pid): return int(open(f'/proc/{{pid}}/stat').read().rsplit(')', 1)[1].split()[1])\n\
         keeper = parent({pid}); guard = parent(keeper)\n\
         for pid in [keeper, guard, {own}]:\n\
         \x20 for look in [lambda: open(f'/proc/{{pid}}/mem', 'rb'), lambda: open(f'/proc/{{pid}}/environ').read(),\n\
         \x20             lambda: os.readlink(f'/proc/{{pid}}/fd/0'),\n\
         \x20             lambda: open(f'/proc/{{pid}}/fd/0'), lambda: os.listdir(f'/proc/{{pid}}/cwd/'),\n\
         \x20             lambda: open(f'/proc/{{pid}}/maps').read(), lambda: os.kill(pid, 0)]:\n\
         \x20   try: look(); print('seen', pid)\n\
         \x20   except PermissionError: print('refused')\n\
         \x20   except OSError: print('no file')\n",
        own = std::process::id()
    );
    assert_eq!(run(confined(), &look).await, (Some(0), "refused\n".repeat(21)));
    let (_, output) = run(Sandbox::None, &look).await;
    assert!(output.contains(&format!("seen {}", std::process::id())), "{output}");
    processes.end_all().await;
}

/// Writing to a command that does not read returns, before and after a restart. Nothing is written
/// later.
#[tokio::test]
async fn full_pipe_is_reported_after_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let processes = recover(directory.path()).await;
    let id = detached(&processes, "sleep 1; wc -c").await;
    drop(processes);
    let mut options =
        gantry_process::ProcessesOptions::new(crate::support::keeper(), directory.path().into());
    options.stdin_timeout = Duration::from_millis(200);
    let processes = Processes::recover(options).await.unwrap();
    let written = processes.write(id, &vec![b'x'; 1 << 20]).await.unwrap();
    assert_eq!((written.bytes, written.complete), (65_536, false));
    processes.close_stdin(id).await.unwrap();
    processes.wait(id, Duration::from_secs(10)).await.unwrap();
    assert_eq!(processes.poll(id, Duration::ZERO).await.unwrap().tail, "65536\n");
}
