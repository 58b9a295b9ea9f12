//! Output is exact: nothing is lost or split, and memory stays bounded for any amount.

use std::time::Duration;

use gantry_process::Capture;
use gantry_testkit::{eventually_async, scaled};
use tokio_util::sync::CancellationToken;

use crate::support::{bench, bench_with, keeper};

#[tokio::test]
async fn character_split_across_writes_arrives_whole() {
    let bench = bench();
    let text = "a\u{e9}\u{20ac}\u{1F600}z";
    for split in 0..=text.len() {
        let octal = |bytes: &[u8]| bytes.iter().map(|byte| format!("\\{byte:03o}")).collect::<String>();
        let (before, after) = text.as_bytes().split_at(split);
        let script = format!("printf '{}'; sleep 0.01; printf '{}'", octal(before), octal(after));
        let finished = bench.processes.run(bench.shell(&script), CancellationToken::new()).await.unwrap();
        assert_eq!(finished.stdout.text, text, "split at {split}");
    }
}

#[tokio::test]
async fn large_text_is_exact_across_every_read_boundary() {
    let bench = bench();
    // The four-byte characters follow 0 to 3 bytes, so reads end inside a character at every
    // possible position.
    for shift in 0..4 {
        let script =
            format!("printf %{shift}s; for i in $(seq 60); do printf '\u{1F600}%.0s' $(seq 1000); done");
        let finished = bench.processes.run(bench.shell(&script), CancellationToken::new()).await.unwrap();
        let expected = format!("{}{}", " ".repeat(shift), "\u{1F600}".repeat(60_000));
        assert!(finished.stdout.text == expected && !finished.stdout.truncated, "shift {shift}");
    }
}

#[tokio::test]
async fn binary_output_is_counted_exactly_and_decoded_once() {
    let bench = bench();
    let script = "for i in $(seq 0 255); do printf \"\\\\x$(printf %x $i)\"; done";
    let finished = bench.processes.run(bench.shell(script), CancellationToken::new()).await.unwrap();
    let bytes: Vec<u8> = (0..=255).collect();
    assert_eq!(finished.stdout.total_bytes, 256);
    assert_eq!(finished.stdout.text, String::from_utf8_lossy(&bytes));
}

#[tokio::test]
async fn output_beyond_the_limit_keeps_the_tail_and_a_full_log() {
    let bench = bench();
    for (keep_tail, lines) in [(10, 20), (1_000, 2_000), (1_000, 100_000)] {
        let mut command = bench.shell(&format!("seq {lines}"));
        command.capture = Capture::Merged { keep_tail };
        let whole: String = (1..=lines).map(|line| format!("{line}\n")).collect();
        let finished = bench.processes.run(command, CancellationToken::new()).await.unwrap();
        assert_eq!(finished.stdout.text, whole[whole.len() - keep_tail..]);
        assert_eq!(finished.stdout.total_bytes, whole.len() as u64);
        assert!(finished.stdout.truncated && finished.logged);
        assert_eq!((finished.ended.log_dropped, finished.ended.log_error), (0, None));
        let page = bench.processes.log(finished.id, lines - 3, 10).await.unwrap();
        assert_eq!(page.lines, [lines - 2, lines - 1, lines].map(|line| line.to_string()));
        assert_eq!((page.total_lines, page.total_chars, page.next_offset), (lines, whole.len() as u64, None));
    }
}

#[tokio::test]
async fn output_of_exactly_the_limit_is_not_truncated() {
    let bench = bench();
    for (script, truncated) in
        [("printf '\u{e9}%.0s' 1 2 3 4", false), ("printf '\u{e9}%.0s' 1 2 3 4 5", true)]
    {
        let mut command = bench.shell(script);
        command.capture = Capture::Merged { keep_tail: 4 };
        let finished = bench.processes.run(command, CancellationToken::new()).await.unwrap();
        assert_eq!(
            (finished.stdout.text.as_str(), finished.stdout.truncated),
            ("\u{e9}\u{e9}\u{e9}\u{e9}", truncated)
        );
        assert_eq!(finished.logged, truncated);
    }
}

#[tokio::test]
async fn full_log_reports_the_dropped_bytes() {
    let bench = bench_with(|options| options.max_log_bytes = 1_000);
    let mut command = bench.shell("seq 100000");
    command.capture = Capture::Merged { keep_tail: 100 };
    let finished = bench.processes.run(command, CancellationToken::new()).await.unwrap();
    assert_eq!((finished.stdout.total_bytes, finished.ended.log_dropped), (588_895, 587_895));
    assert!(finished.stdout.text.ends_with("99999\n100000\n"));

    let id = bench.processes.start(bench.shell("seq 100000")).await.unwrap();
    let gantry_process::Waited::Finished(session) =
        bench.processes.wait(id, Duration::from_secs(20)).await.unwrap()
    else {
        panic!("still running")
    };
    assert_eq!((session.stdout.total_bytes, session.ended.log_dropped), (588_895, 587_895));
    assert!(session.stdout.truncated);
    assert_eq!(session.stdout.text.len(), 200_000);
    assert!(session.stdout.text.ends_with("99999\n100000\n"));
    let page = bench.processes.log(id, 270, 100).await.unwrap();
    let expected: Vec<String> = (271..=277).map(|line| line.to_string()).collect();
    assert_eq!((&page.lines[..7], page.lines.last().unwrap().as_str()), (&expected[..], "277"));
    assert_eq!((page.total_lines, page.dropped_bytes, page.next_offset), (277, 587_895, None));
}

/// The command's exit must not overtake the reading of its last output.
#[tokio::test]
async fn output_written_just_before_exit_is_kept() {
    let bench = bench();
    for round in 0..scaled(500, 60) {
        let script = "head -c 60000 /dev/zero | tr '\\0' x; kill -KILL $$";
        let finished = bench.processes.run(bench.shell(script), CancellationToken::new()).await.unwrap();
        assert_eq!(finished.stdout.text.len(), 60_000, "round {round}");
    }
}

/// Another process holds the pipe open, and the call still returns.
#[tokio::test]
async fn call_returns_although_a_stranger_holds_the_pipe() {
    let bench = bench();
    let fifo = bench.directory.path().join("fifo");
    let made = std::process::Command::new("mkfifo").arg(&fifo).status().unwrap();
    assert!(made.success());
    // The test opens the command's stdout through /proc while it runs, and keeps it open.
    let run = bench
        .processes
        .run(bench.shell("echo $$ > fifo; echo text; read -r < fifo"), CancellationToken::new());
    let path = fifo.clone();
    let holder = tokio::task::spawn_blocking(move || {
        let pid = std::fs::read_to_string(&path).unwrap();
        let held =
            std::fs::OpenOptions::new().write(true).open(format!("/proc/{}/fd/1", pid.trim())).unwrap();
        std::fs::write(&path, "go on\n").unwrap();
        (held, std::time::Instant::now())
    });
    let (finished, holder) = tokio::join!(run, holder);
    let (held, since) = holder.unwrap();
    assert!(since.elapsed() < Duration::from_secs(1), "{:?}", since.elapsed());
    assert_eq!(finished.unwrap().stdout.text, "text\n");
    drop(held);
}

/// The log of a dropped call is removed with it.
#[tokio::test]
async fn dropped_call_leaves_no_log() {
    let bench = bench();
    let mut command = bench.shell("seq 100000; sleep 300");
    command.capture = Capture::Merged { keep_tail: 10 };
    let logs = bench.directory.path().join("logs");
    let count = || {
        let engines = std::fs::read_dir(&logs).into_iter().flatten().flatten();
        engines.map(|engine| std::fs::read_dir(engine.path()).unwrap().count()).sum::<usize>()
    };
    tokio::select! {
        _ = bench.processes.run(command, CancellationToken::new()) => panic!("the command ended by itself"),
        _ = eventually_async("the log is there", Duration::from_secs(10), || count() == 1) => {}
    }
    eventually_async("the log is gone", Duration::from_secs(3), || count() == 0).await;
}

/// The kernel measures the peak memory of a separate engine process.
#[test]
fn two_gigabytes_of_output_use_bounded_memory() {
    let directory = tempfile::tempdir().unwrap();
    let lines = scaled(200_000_000, 20_000_000) as u64;
    for mode in ["foreground", "session"] {
        let script = format!("exec yes 123456789 | head -n {lines} | cat; echo the end");
        let engine = std::process::Command::new(env!("CARGO_BIN_EXE_gantry-run"))
            .arg(keeper())
            .arg(directory.path().join("logs"))
            .args([mode, &script])
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let status = format!("/proc/{}/status", engine.id());
        let watcher = std::thread::spawn(move || {
            let mut peak = 0;
            while let Ok(text) = std::fs::read_to_string(&status) {
                let line = text.lines().find(|line| line.starts_with("VmHWM"));
                let Some(kib) = line.and_then(|line| line.split_whitespace().nth(1)) else { break };
                peak = kib.parse::<u64>().unwrap();
                std::thread::sleep(Duration::from_millis(5));
            }
            peak
        });
        let output = engine.wait_with_output().unwrap();
        let peak = watcher.join().unwrap();
        let report = String::from_utf8(output.stdout).unwrap();
        println!("{mode}: peak {peak} KiB\n{report}");
        // A session's log ends at 1 GiB. Later output is counted, and its tail is kept.
        let total = lines * 10 + 8;
        assert!(report.contains(&format!("total {total}\n")), "{report}");
        assert!(report.contains("kept 200000\n") && report.contains("last the end\n"), "{report}");
        if total < 1 << 30 {
            assert!(report.contains(&format!("lines {}\n", lines + 1)), "{report}");
        }
        assert!(peak > 1_000 && peak < 40_000, "peak {peak} KiB");
    }
}

/// The keeper's start-up time does not count as the command's time.
#[tokio::test]
async fn duration_excludes_the_start_of_the_keeper() {
    let bench = bench_with(|options| {
        options.keeper = "/bin/sh".into();
        options.keeper_args =
            ["-c", "sleep 0.4; exec \"$0\"", keeper().to_str().unwrap()].map(Into::into).to_vec();
        options.spare_keeper = false;
    });
    let finished = bench.processes.run(bench.shell("sleep 0.1"), CancellationToken::new()).await.unwrap();
    let apart = finished.ended.ended_at.duration_since(finished.started_at).unwrap();
    assert!(apart.abs_diff(finished.ended.duration) < Duration::from_millis(100), "{apart:?} {finished:?}");
}
