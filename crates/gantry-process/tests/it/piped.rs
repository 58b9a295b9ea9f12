//! Piped commands: the caller owns their streams, and nothing of them outlives the engine.

use std::time::Duration;

use gantry_process::{Capture, Command, Piped, ProcessError, Stdin};
use gantry_testkit::eventually_async;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};

use crate::support::{Bench, bench, marker, survivors};

const LIMIT: Duration = Duration::from_secs(20);

fn piped(bench: &Bench, script: &str) -> Command {
    Command { stdin: Stdin::Pipe, capture: Capture::Separate { stdout: 0, stderr: 0 }, ..bench.shell(script) }
}

#[tokio::test]
async fn pipes_work_both_ways_and_the_exit_is_reported() {
    let bench = bench();
    let script = "while read line; do echo \"heard $line\"; done; echo bye >&2; exit 3";
    let Piped { mut stdin, stdout, mut stderr, process } =
        bench.processes.pipe(piped(&bench, script)).await.unwrap();
    let mut lines = BufReader::new(stdout).lines();
    for word in ["one", "two"] {
        stdin.write_all(format!("{word}\n").as_bytes()).await.unwrap();
        assert_eq!(lines.next_line().await.unwrap().unwrap(), format!("heard {word}"));
    }
    assert!(process.pid() > 1 && process.ended().is_none());
    drop(stdin);
    let ended = process.wait(Duration::from_secs(10)).await.unwrap();
    assert_eq!(ended.exit.code, Some(3));
    let mut last = String::new();
    stderr.read_to_string(&mut last).await.unwrap();
    assert_eq!(last, "bye\n");
}

#[tokio::test]
async fn drop_terminate_and_shutdown_leave_no_process() {
    for end in ["drop", "terminate", "shutdown"] {
        let bench = bench();
        let marker = marker();
        let script = format!(
            "trap '' TERM; setsid -f bash -c 'exec -a {marker} sleep 300'; echo up; exec -a {marker} sleep 300"
        );
        let Piped { stdin, stdout, stderr, process } =
            bench.processes.pipe(piped(&bench, &script)).await.unwrap();
        let mut lines = BufReader::new(stdout).lines();
        assert_eq!(lines.next_line().await.unwrap().unwrap(), "up");
        eventually_async("both processes run", LIMIT, || survivors(&marker).len() >= 2).await;
        match end {
            "drop" => drop(process),
            "terminate" => assert!(process.terminate().await.is_some()),
            _ => bench.processes.shutdown().await,
        }
        if end == "drop" {
            eventually_async("all are gone", LIMIT, || survivors(&marker).is_empty()).await;
        }
        assert_eq!(survivors(&marker), Vec::<String>::new(), "after {end}");
        drop((stdin, stderr));
    }
}

#[tokio::test]
async fn invalid_piped_commands_are_rejected() {
    let bench = bench();
    let missing = Command {
        stdin: Stdin::Pipe,
        capture: Capture::Separate { stdout: 0, stderr: 0 },
        ..bench.command("no-such-program-here", &[])
    };
    assert!(matches!(bench.processes.pipe(missing).await, Err(ProcessError::Program { .. })));
    let merged = Command { stdin: Stdin::Pipe, ..bench.shell("true") };
    assert!(matches!(bench.processes.pipe(merged).await, Err(ProcessError::Invalid(_))));
    bench.processes.shutdown().await;
    let late = bench.processes.pipe(piped(&bench, "true")).await;
    assert!(matches!(late, Err(ProcessError::ShuttingDown)));
}
