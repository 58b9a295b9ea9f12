//! Sessions: input, polling, paging, ending, retention.

use std::time::{Duration, Instant};

use gantry_process::{ProcessError, SessionId, Stdin, Waited, Written};
use gantry_testkit::{eventually_async, scaled};

use crate::support::{Bench, bench, bench_with};

async fn start(bench: &Bench, script: &str) -> SessionId {
    let mut command = bench.shell(script);
    command.stdin = Stdin::Pipe;
    bench.processes.start(command).await.unwrap()
}

async fn finish(bench: &Bench, id: SessionId) -> gantry_process::Finished {
    match bench.processes.wait(id, Duration::from_secs(30)).await.unwrap() {
        Waited::Finished(finished) => finished,
        Waited::Running(running) => panic!("still running: {running:?}"),
    }
}

#[tokio::test]
async fn session_reads_stdin_until_it_is_closed() {
    let bench = bench();
    let id = start(&bench, "while read -r line; do echo \"got $line\"; done; echo eof").await;
    assert_eq!(bench.processes.write(id, b"one\n").await.unwrap(), Written { bytes: 4, complete: true });
    let poll = bench.processes.poll(id, Duration::from_secs(10)).await.unwrap();
    assert_eq!((poll.tail.as_str(), poll.ended), ("got one\n", None));
    bench.processes.write(id, b"two\n").await.unwrap();
    bench.processes.close_stdin(id).await.unwrap();
    let finished = finish(&bench, id).await;
    assert_eq!(finished.stdout.text, "got one\ngot two\neof\n");
    assert!(matches!(bench.processes.write(id, b"x").await, Err(ProcessError::HasEnded(_))));
    assert!(matches!(bench.processes.close_stdin(id).await, Err(ProcessError::HasEnded(_))));
    assert!(!bench.processes.kill(id).await.unwrap());
}

#[tokio::test]
async fn write_to_a_command_that_does_not_read_returns() {
    let bench = bench_with(|options| options.stdin_timeout = Duration::from_millis(200));
    let id = start(&bench, "sleep 300").await;
    let begun = Instant::now();
    let written = bench.processes.write(id, &vec![b'x'; 1 << 20]).await.unwrap();
    assert!(begun.elapsed() < Duration::from_secs(2));
    assert_eq!(written, Written { bytes: 65_536, complete: false });
    bench.processes.close_stdin(id).await.unwrap();
    assert!(matches!(bench.processes.write(id, b"x").await, Err(ProcessError::StdinClosed(_))));
    assert!(matches!(bench.processes.close_stdin(id).await, Err(ProcessError::StdinClosed(_))));
    let closed = start(&bench, "exec <&-; echo closed; sleep 300").await;
    bench.processes.poll(closed, Duration::from_secs(10)).await.unwrap();
    assert!(matches!(bench.processes.write(closed, b"x").await, Err(ProcessError::StdinClosed(_))));
    bench.processes.shutdown().await;
}

#[tokio::test]
async fn poll_returns_on_output_or_timeout() {
    let bench = bench();
    let id = start(&bench, "sleep 0.3; echo news; sleep 0.5; exit 4").await;
    let begun = Instant::now();
    let poll = bench.processes.poll(id, Duration::from_millis(50)).await.unwrap();
    assert!(poll.tail.is_empty() && poll.ended.is_none() && begun.elapsed() < Duration::from_millis(250));
    let poll = bench.processes.poll(id, Duration::from_secs(20)).await.unwrap();
    assert_eq!((poll.tail.as_str(), poll.ended), ("news\n", None));
    let poll = bench.processes.poll(id, Duration::from_secs(20)).await.unwrap();
    assert_eq!(poll.ended.unwrap().exit.code, Some(4));
    assert!(begun.elapsed() < Duration::from_secs(5));
}

#[tokio::test]
async fn million_lines_are_paged_by_stable_numbers() {
    let bench = bench();
    let count = scaled(10_000_000, 1_000_000) as u64;
    let id = start(&bench, &format!("seq 0 {}; printf 'no newline'", count - 1)).await;
    // Pages read while the log grows equal the pages at the end.
    let early = bench.processes.log(id, 0, 3).await.unwrap();
    let finished = finish(&bench, id).await;
    assert_eq!(finished.stdout.text.chars().count(), 200_000);
    assert!(
        early.lines.iter().enumerate().all(|(line, text)| *text == line.to_string()) || early.lines.len() < 3
    );
    for offset in [0, 1, 199, 65_535, 123_456, count / 2, count - 1] {
        let page = bench.processes.log(id, offset, 200).await.unwrap();
        let expected: Vec<String> = (offset..count.min(offset + 200)).map(|line| line.to_string()).collect();
        assert_eq!(page.lines[..expected.len()], expected[..], "offset {offset}");
        assert_eq!(page.total_lines, count + 1);
        let next = (offset + 200 < count + 1).then_some(offset + 200);
        assert_eq!((page.offset, page.next_offset), (offset, next));
    }
    let last = bench.processes.log(id, count, 200).await.unwrap();
    assert_eq!((last.lines.as_slice(), last.next_offset), (["no newline".to_owned()].as_slice(), None));
    assert_eq!(last.total_chars, finished.stdout.total_bytes);
    let past = bench.processes.log(id, count + 5, 200).await.unwrap();
    assert_eq!((past.lines.len(), past.total_lines), (0, count + 1));
}

#[tokio::test]
async fn page_stays_small_and_marks_a_cut_line() {
    let bench = bench();
    let id = start(&bench, "printf 'a\\r\\n\\nb\\n'; head -c 3000000 /dev/zero | tr '\\0' x; echo; echo end")
        .await;
    finish(&bench, id).await;
    let page = bench.processes.log(id, 0, 100).await.unwrap();
    assert_eq!(
        (page.lines.as_slice(), page.next_offset),
        (["a", "", "b"].map(String::from).as_slice(), Some(3))
    );
    let page = bench.processes.log(id, 3, 100).await.unwrap();
    assert_eq!((page.lines.len(), page.lines[0].len(), page.cut_line), (1, 1 << 20, Some(3)));
    assert_eq!(page.next_offset, Some(4));
    let page = bench.processes.log(id, 4, 100).await.unwrap();
    assert_eq!((page.lines.as_slice(), page.total_lines), (["end".to_owned()].as_slice(), 5));
}

/// A session whose log is full still shows its newest output.
#[tokio::test]
async fn full_log_still_updates_tail_and_polls() {
    let bench = bench_with(|options| options.max_log_bytes = 1_000);
    let id = start(&bench, "seq 1000000; while read -r line; do echo \"got $line\"; done").await;
    let deadline = Instant::now() + Duration::from_secs(20);
    let mut poll = bench.processes.poll(id, Duration::from_secs(5)).await.unwrap();
    while !poll.tail.ends_with("\n1000000\n") {
        assert!(Instant::now() < deadline, "{poll:?}");
        poll = bench.processes.poll(id, Duration::from_secs(5)).await.unwrap();
    }
    assert_eq!((poll.total_bytes, poll.tail.len()), (6_888_896, 4_000));
    for word in ["one", "two"] {
        let begun = Instant::now();
        bench.processes.write(id, format!("{word}\n").as_bytes()).await.unwrap();
        poll = bench.processes.poll(id, Duration::from_secs(10)).await.unwrap();
        assert!(poll.tail.ends_with(&format!("got {word}\n")) && begun.elapsed() < Duration::from_secs(5));
    }
    let page = bench.processes.log(id, 0, 10).await.unwrap();
    assert_eq!(page.dropped_bytes, poll.total_bytes - 1_000);
    bench.processes.shutdown().await;
}

/// A tail read while the ring is overwritten is one contiguous piece of the output.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tail_is_contiguous_while_output_continues() {
    let bench = bench_with(|options| options.max_log_bytes = 1_000);
    let id = start(&bench, "seq 100000000 199999999").await;
    let deadline = Instant::now() + Duration::from_millis(scaled(10_000, 1_000) as u64);
    let (mut polls, mut seen) = (0, 0);
    while Instant::now() < deadline {
        let poll = bench.processes.poll(id, Duration::from_secs(5)).await.unwrap();
        let numbers: Vec<u64> = poll.tail.lines().skip(1).filter_map(|line| line.parse().ok()).collect();
        let whole = &numbers[..numbers.len().saturating_sub(1)];
        assert!(whole.windows(2).all(|pair| pair[0] + 1 == pair[1]), "{}", poll.tail);
        assert!(poll.total_bytes >= seen);
        (polls, seen) = (polls + 1, poll.total_bytes);
    }
    println!("{polls} polls of {seen} bytes");
    assert!(polls > 5 && seen > 4 << 20);
    bench.processes.shutdown().await;
}

#[tokio::test]
async fn logs_together_stay_within_the_disk_budget() {
    const MIB: u64 = 1 << 20;
    let bench = bench_with(|options| options.max_total_log_bytes = 40 * MIB);
    let mut ids = Vec::new();
    for _ in 0..5 {
        let id = start(&bench, "head -c 6000000 /dev/zero").await;
        finish(&bench, id).await;
        ids.push(id);
    }
    // Half of the space is for finished logs, which is enough for the three newest.
    eventually_async("the oldest are gone", Duration::from_secs(5), || !bench.processes.knows(ids[1])).await;
    assert_eq!(
        ids.iter().map(|id| bench.processes.knows(*id)).collect::<Vec<_>>(),
        [false, false, true, true, true]
    );
    assert_eq!(logs(&bench), 3);
    // The remaining space is less than a whole log, but 16 MiB are always granted.
    let id = start(&bench, "head -c 20000000 /dev/zero; echo end").await;
    let finished = finish(&bench, id).await;
    assert_eq!(
        (finished.stdout.total_bytes, finished.ended.log_dropped),
        (20_000_004, 20_000_004 - 16 * MIB)
    );
    assert!(finished.stdout.text.ends_with("end\n"));
}

#[tokio::test]
async fn sessions_are_listed_newest_first_and_expire() {
    let bench = bench_with(|options| {
        options.retention = Duration::from_millis(400);
        options.max_sessions = 2;
    });
    let first = start(&bench, "echo one").await;
    finish(&bench, first).await;
    let second = start(&bench, "sleep 300").await;
    let third = start(&bench, "sleep 300").await;
    let listed: Vec<_> =
        bench.processes.list().await.unwrap().into_iter().map(|session| session.id).collect();
    assert_eq!(listed, [third, second, first]);
    let refused = bench.processes.start(bench.shell("true")).await.unwrap_err();
    assert_eq!(refused.to_string(), "2 sessions are already running");
    assert!(matches!(bench.processes.forget(second), Err(ProcessError::StillRunning(_))));
    eventually_async("the log is removed", Duration::from_secs(5), || logs(&bench) == 2).await;
    assert!(matches!(bench.processes.log(first, 0, 1).await, Err(ProcessError::NoSession(_))));
    bench.processes.kill(second).await.unwrap();
    bench.processes.forget(second).unwrap();
    assert_eq!(logs(&bench), 1);
    bench.processes.shutdown().await;
    assert!(matches!(bench.processes.start(bench.shell("true")).await, Err(ProcessError::ShuttingDown)));
    assert!("nonsense".parse::<SessionId>().is_err());
    assert_eq!(third.to_string().parse::<SessionId>().unwrap(), third);
}

fn logs(bench: &Bench) -> usize {
    let engines = std::fs::read_dir(bench.directory.path().join("logs")).unwrap().flatten();
    engines.map(|engine| std::fs::read_dir(engine.path()).unwrap().count()).sum()
}

#[tokio::test]
async fn session_that_cannot_start_leaves_nothing() {
    let bench = bench();
    assert!(bench.processes.start(bench.command("/nonexistent", &[])).await.is_err());
    assert_eq!((logs(&bench), bench.processes.list().await.unwrap().len()), (0, 0));
}

#[tokio::test]
async fn session_timeout_is_enforced() {
    let bench = bench();
    let mut command = bench.shell("echo begun; sleep 300");
    command.timeout = Some(Duration::from_millis(200));
    let id = bench.processes.start(command).await.unwrap();
    let finished = finish(&bench, id).await;
    assert!(finished.ended.timed_out && finished.stdout.text == "begun\n");
}

/// Finished sessions are kept for half an hour, and there may be many of them.
#[tokio::test]
async fn finished_session_holds_no_descriptor() {
    let directory = tempfile::tempdir().unwrap();
    let surviving = crate::support::recover(directory.path()).await;
    let bench = bench();
    for processes in [&bench.processes, &surviving] {
        let descriptors = || std::fs::read_dir("/proc/self/fd").unwrap().count();
        let mut started = Vec::new();
        let before = descriptors();
        for number in 0..30 {
            let mut command = bench.shell(&format!("read line; echo {number}"));
            command.stdin = Stdin::Pipe;
            let id = processes.start(command).await.unwrap();
            processes.write(id, b"go\n").await.unwrap();
            let waited = processes.wait(id, Duration::from_secs(60)).await.unwrap();
            assert!(matches!(waited, Waited::Finished(_)), "{waited:?}");
            started.push(id);
        }
        // The last session closes its descriptor just after its exit is known. A spare keeper has a
        // socket.
        eventually_async("30 sessions hold descriptors", Duration::from_secs(60), || {
            descriptors() < before + 10
        })
        .await;
        for (number, id) in started.into_iter().enumerate() {
            let page = processes.log(id, 0, 10).await.unwrap();
            assert_eq!(page.lines, [number.to_string()]);
            let snapshot = processes.poll(id, Duration::ZERO).await.unwrap();
            assert_eq!(snapshot.tail, format!("{number}\n"));
        }
    }
}

/// The test limits the size of the keeper's files. By default this ends a process that writes.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn keeper_survives_a_file_size_limit() {
    const SIGXFSZ: i32 = 25;
    let bench = bench();
    let id = start(
        &bench,
        "echo $PPID; read line; head -c 100000 /dev/zero; trap - XFSZ; ulimit -f 0; echo x > f",
    )
    .await;
    let mut keeper = String::new();
    while keeper.is_empty() {
        keeper = bench.processes.poll(id, Duration::from_secs(30)).await.unwrap().tail.trim().to_owned();
    }
    let limited =
        std::process::Command::new("prlimit").args(["--pid", &keeper, "--fsize=1000:"]).status().unwrap();
    assert!(limited.success());
    bench.processes.write(id, b"go\n").await.unwrap();
    let ended = finish(&bench, id).await.ended;
    assert!(!ended.keeper_lost && ended.log_error.is_some(), "{ended:?}");
    // The command itself has the default behaviour.
    assert_eq!(ended.exit.signal.map(|signal| signal.0), Some(SIGXFSZ), "{ended:?}");
}
