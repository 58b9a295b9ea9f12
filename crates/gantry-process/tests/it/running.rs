//! Foreground commands: what they receive and what they return.

use std::time::Duration;

use gantry_process::{Capture, Cwd, ProcessError, Signal};
use tokio_util::sync::CancellationToken;

use crate::support::{Bench, bench, keeper};

async fn output(bench: &Bench, script: &str) -> String {
    bench.processes.run(bench.shell(script), CancellationToken::new()).await.unwrap().stdout.text
}

#[tokio::test]
async fn merged_streams_keep_their_order() {
    let bench = bench();
    assert_eq!(output(&bench, "echo a; echo b >&2; echo c; echo d >&2").await, "a\nb\nc\nd\n");
}

#[tokio::test]
async fn separate_streams_keep_the_head_and_count_the_rest() {
    let bench = bench();
    let mut command = bench.shell("printf 'h\\303\\251llo'; printf 12345678 >&2; exit 3");
    command.capture = Capture::Separate { stdout: 2, stderr: 5 };
    let finished = bench.processes.run(command, CancellationToken::new()).await.unwrap();
    assert_eq!(
        (finished.stdout.text.as_str(), finished.stdout.total_bytes, finished.stdout.truncated),
        ("h", 6, true)
    );
    assert_eq!(
        (finished.stderr.text.as_str(), finished.stderr.total_bytes, finished.stderr.truncated),
        ("12345", 8, true)
    );
    assert_eq!(finished.ended.exit.code, Some(3));
}

#[tokio::test]
async fn command_gets_exactly_its_environment_directory_and_descriptors() {
    let bench = bench();
    let real = bench.directory.path().canonicalize().unwrap();
    let mut command = bench.command("/usr/bin/env", &[]);
    command.env = vec![("ONLY".into(), "this".into())];
    let finished = bench.processes.run(command, CancellationToken::new()).await.unwrap();
    assert_eq!(finished.stdout.text, "ONLY=this\n");
    assert_eq!(
        output(&bench, "pwd -P; ls -m /proc/self/fd").await,
        format!("{}\n0, 1, 2, 3\n", real.display())
    );
    assert_eq!(output(&bench, "tty; cat").await, "not a tty\n");
}

/// An engine started from a terminal does not pass it on. A command can neither wait for a password
/// nor type into the terminal.
#[tokio::test]
async fn command_has_no_terminal() {
    let bench = bench();
    let engine = env!("CARGO_BIN_EXE_gantry-run");
    let logs = bench.directory.path().join("other-logs");
    let inner = format!("{engine} {} {} session 'exec 3</dev/tty'", keeper().display(), logs.display());
    let arguments = ["-qec", &format!("exec 3</dev/tty && echo terminal; {inner}"), "/dev/null"];
    let on_terminal = bench.command("script", &arguments);
    let finished = bench.processes.run(on_terminal, CancellationToken::new()).await.unwrap();
    let text = finished.stdout.text;
    assert!(text.contains("terminal") && text.contains("/dev/tty: No such device"), "{text}");
}

#[tokio::test]
async fn directory_handle_follows_a_moved_directory() {
    let bench = bench();
    let (inside, moved) = (bench.directory.path().join("inside"), bench.directory.path().join("moved"));
    std::fs::create_dir(&inside).unwrap();
    let handle = std::fs::File::open(&inside).unwrap();
    std::fs::rename(&inside, &moved).unwrap();
    let mut command = bench.shell("pwd -P");
    command.cwd = Cwd::Dir(handle.into());
    let finished = bench.processes.run(command, CancellationToken::new()).await.unwrap();
    assert_eq!(finished.stdout.text, format!("{}\n", moved.canonicalize().unwrap().display()));
}

#[tokio::test]
async fn signals_and_exit_codes_are_distinguished() {
    let bench = bench();
    for (script, code, signal) in [
        ("exit 7", Some(7), None),
        ("kill -TERM $$", None, Some(Signal(15))),
        ("kill -KILL $$", None, Some(Signal(9))),
    ] {
        let finished = bench.processes.run(bench.shell(script), CancellationToken::new()).await.unwrap();
        assert_eq!((finished.ended.exit.code, finished.ended.exit.signal), (code, signal), "{script}");
    }
}

#[tokio::test]
async fn failed_start_reports_the_reason() {
    let bench = bench();
    let directory = bench.directory.path();
    std::fs::write(directory.join("plain"), "text").unwrap();
    let run = async |program: &str, cwd: Option<&str>| {
        let mut command = bench.command(program, &[]);
        if let Some(cwd) = cwd {
            command.cwd = Cwd::Path(directory.join(cwd));
        }
        bench.processes.run(command, CancellationToken::new()).await.unwrap_err()
    };
    let missing = run("/nonexistent/shell", None).await;
    assert_eq!(
        missing.to_string(),
        "cannot start `/nonexistent/shell`: No such file or directory (os error 2)"
    );
    assert!(missing.hint().is_some());
    assert!(matches!(run("no-such-program", None).await, ProcessError::Program { .. }));
    let plain = directory.join("plain").display().to_string();
    let denied = run(&plain, None).await;
    assert_eq!(denied.to_string(), format!("cannot start `{plain}`: Permission denied (os error 13)"));
    let cwd = run("/bin/true", Some("gone")).await;
    let gone = directory.join("gone");
    assert_eq!(
        cwd.to_string(),
        format!("cannot start a command in {}: No such file or directory (os error 2)", gone.display())
    );
    assert!(matches!(run("/bin/true", Some("plain")).await, ProcessError::Directory { .. }));
    assert!(matches!(run("", None).await, ProcessError::Invalid(_)));
    assert!(matches!(run("a\0b", None).await, ProcessError::Invalid(_)));
    let mut long = bench.command("/bin/echo", &[]);
    long.args = vec!["x".repeat(200_000).into()];
    let long = bench.processes.run(long, CancellationToken::new()).await.unwrap_err();
    assert!(long.to_string().contains("Argument list too long") && long.hint().is_some(), "{long}");
}

#[tokio::test]
async fn timeout_and_failure_are_distinguished() {
    let bench = bench();
    let mut command = bench.shell("echo before; sleep 60");
    command.timeout = Some(Duration::from_millis(300));
    let finished = bench.processes.run(command, CancellationToken::new()).await.unwrap();
    assert!(finished.ended.timed_out && !finished.ended.cancelled);
    assert_eq!(finished.stdout.text, "before\n");
    assert_eq!(finished.ended.exit.signal, Some(Signal(15)));
}
