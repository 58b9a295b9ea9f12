//! Whatever a command leaves behind is gone, and reaped, when the call returns.

use std::time::{Duration, Instant};

use gantry_process::Signal;
use gantry_testkit::{Random, eventually_async, scaled};
use tokio_util::sync::CancellationToken;

use crate::support::{Bench, assert_clean, bench, keeper, marker, running, survivors, zombies};

/// Ways to escape a kill of the process group. `SLEEP` becomes a process that has the marker as its
/// name.
const TREES: &[(&str, &str)] = &[
    ("child", "(SLEEP) &"),
    ("double fork", "( ( (SLEEP) & ) & )"),
    ("triple fork", "( ( ( (SLEEP) & ) & ) & )"),
    ("setsid", "setsid bash -c 'SLEEP' &"),
    ("setsid -f", "setsid -f bash -c 'SLEEP'"),
    ("setsid twice", "setsid -f setsid -f bash -c 'SLEEP'"),
    ("nohup", "nohup bash -c 'SLEEP' >/dev/null 2>&1 &"),
    ("daemon", "setsid -f bash -c 'cd /; SLEEP' </dev/null >/dev/null 2>&1"),
    ("ignores SIGTERM", "trap '' TERM; (SLEEP) &"),
    ("deaf daemon", "trap '' TERM HUP INT; setsid -f bash -c 'SLEEP' </dev/null >/dev/null 2>&1"),
    ("stopped", "(SLEEP) & sleep 0.05; kill -STOP $!"),
    ("pipe in between", "(SLEEP) | (SLEEP) &"),
    ("storm", "for i in $(seq 30); do setsid -f bash -c 'SLEEP'; done"),
    ("deaf storm", "trap '' TERM; for i in $(seq 30); do ( ( setsid bash -c 'SLEEP' & ) & ) ; done"),
    (
        "respawning",
        "setsid -f bash -c 'trap \"\" TERM; while :; do (exec -a MARK sleep 0.05) & sleep 0.01; done'",
    ),
];

fn script(tree: &str, marker: &str, end: &str) -> String {
    let tree = tree.replace("SLEEP", &format!("exec -a {marker} sleep 300")).replace("MARK", marker);
    format!("{tree}\necho ready\n{end}")
}

#[derive(Debug, Clone, Copy)]
enum End {
    ByItself,
    Timeout,
    Cancel,
    Drop,
    SessionKilled,
    SessionTerminated,
    SessionEndsByItself,
}

const ENDS: &[End] = &[
    End::ByItself,
    End::Timeout,
    End::Cancel,
    End::Drop,
    End::SessionKilled,
    End::SessionTerminated,
    End::SessionEndsByItself,
];

/// The grace period of 250 ms, plus what a busy machine with two cores needs.
const IN_TIME: Duration = Duration::from_millis(250 + 1_500);

async fn check(bench: &Bench, tree: &str, end: End) {
    let marker = marker();
    let own_end = "sleep 0.1; exit 5";
    let lasting = "sleep 300";
    let processes = &bench.processes;
    let mut command = bench.shell(&script(
        tree,
        &marker,
        if matches!(end, End::ByItself | End::SessionEndsByItself) { own_end } else { lasting },
    ));
    match end {
        End::ByItself => {
            let begun = Instant::now();
            let finished = processes.run(command, CancellationToken::new()).await.unwrap();
            assert!(begun.elapsed() < IN_TIME + Duration::from_secs(1), "{:?}", begun.elapsed());
            assert_eq!((finished.ended.exit.code, finished.stdout.text.as_str()), (Some(5), "ready\n"));
            assert_clean(&marker);
        }
        End::Timeout => {
            let timeout = Duration::from_millis(400);
            command.timeout = Some(timeout);
            let begun = Instant::now();
            let finished = processes.run(command, CancellationToken::new()).await.unwrap();
            assert!(begun.elapsed() < timeout + IN_TIME, "{:?}", begun.elapsed());
            assert!(finished.ended.timed_out && finished.ended.exit.signal.is_some());
            assert_eq!(finished.ended.survivors, 0);
            assert_clean(&marker);
        }
        End::Cancel => {
            let cancel = CancellationToken::new();
            let run = processes.run(command, cancel.clone());
            let cancelling = async {
                eventually_async("the tree is running", Duration::from_secs(10), || running(&marker)).await;
                cancel.cancel();
                Instant::now()
            };
            let (finished, cancelled_at) = tokio::join!(run, cancelling);
            assert!(cancelled_at.elapsed() < IN_TIME, "{:?}", cancelled_at.elapsed());
            assert!(finished.unwrap().ended.cancelled);
            assert_clean(&marker);
        }
        End::Drop => {
            let run = processes.run(command, CancellationToken::new());
            tokio::select! {
                _ = run => panic!("the command ended by itself"),
                _ = eventually_async("the tree is running", Duration::from_secs(10), || running(&marker)) => {}
            }
            eventually_async("everything is gone", IN_TIME, || {
                survivors(&marker).is_empty() && zombies().is_empty()
            })
            .await;
        }
        End::SessionKilled | End::SessionTerminated => {
            let id = processes.start(command).await.unwrap();
            eventually_async("the tree is running", Duration::from_secs(10), || running(&marker)).await;
            let begun = Instant::now();
            if matches!(end, End::SessionKilled) {
                assert!(processes.kill(id).await.unwrap());
                let ended = processes.poll(id, Duration::ZERO).await.unwrap().ended.unwrap();
                assert_eq!(ended.exit.signal, Some(Signal(9)));
            } else {
                assert!(processes.terminate(id).await.unwrap());
            }
            assert!(begun.elapsed() < IN_TIME, "{:?}", begun.elapsed());
            assert_clean(&marker);
        }
        End::SessionEndsByItself => {
            let id = processes.start(command).await.unwrap();
            let gantry_process::Waited::Finished(finished) =
                processes.wait(id, Duration::from_secs(10)).await.unwrap()
            else {
                panic!("still running")
            };
            assert_eq!((finished.ended.exit.code, finished.stdout.text.as_str()), (Some(5), "ready\n"));
            assert_clean(&marker);
        }
    }
}

async fn check_all(end: End) {
    let bench = bench();
    for (name, tree) in TREES {
        println!("{name} / {end:?}");
        check(&bench, tree, end).await;
    }
}

#[tokio::test]
async fn nothing_survives_the_commands_own_end() {
    check_all(End::ByItself).await;
}

#[tokio::test]
async fn nothing_survives_a_timeout() {
    check_all(End::Timeout).await;
}

#[tokio::test]
async fn nothing_survives_a_cancel() {
    check_all(End::Cancel).await;
}

#[tokio::test]
async fn nothing_survives_a_dropped_call() {
    check_all(End::Drop).await;
}

#[tokio::test]
async fn nothing_survives_a_killed_session() {
    check_all(End::SessionKilled).await;
}

#[tokio::test]
async fn nothing_survives_a_session() {
    check_all(End::SessionTerminated).await;
    check_all(End::SessionEndsByItself).await;
}

#[tokio::test]
async fn nothing_survives_the_engine() {
    let bench = bench();
    for mode in ["foreground", "session"] {
        for (name, tree) in TREES {
            println!("{name} / {mode}");
            let marker = marker();
            let mut engine = std::process::Command::new(env!("CARGO_BIN_EXE_gantry-run"))
                .arg(keeper())
                .arg(bench.directory.path().join("other-logs"))
                .args([mode, &script(tree, &marker, "sleep 300")])
                .stdout(std::process::Stdio::null())
                .spawn()
                .unwrap();
            eventually_async("the tree is running", Duration::from_secs(10), || running(&marker)).await;
            engine.kill().unwrap();
            engine.wait().unwrap();
            eventually_async("everything is gone", IN_TIME, || survivors(&marker).is_empty()).await;
        }
    }
}

/// Without its keeper a tree is orphaned, but nothing of it is left when the call returns.
#[tokio::test]
async fn killed_keeper_is_reported_and_its_command_ended() {
    let bench = bench();
    for (name, tree) in TREES {
        println!("{name}");
        let marker = marker();
        let script = script(tree, &marker, "sleep 0.2; kill -KILL $PPID; sleep 300");
        let begun = Instant::now();
        let finished = bench.processes.run(bench.shell(&script), CancellationToken::new()).await.unwrap();
        assert!(begun.elapsed() < Duration::from_secs(4), "{name}: {:?}", begun.elapsed());
        assert!(finished.ended.keeper_lost && finished.stdout.text == "ready\n", "{name}: {finished:?}");
        assert_clean(&marker);
    }
}

/// The engine must not take another command's tree, or a child of the program around it, for an
/// orphan.
#[tokio::test]
async fn lost_keeper_ends_no_other_process() {
    let bench = bench();
    let (ours, others) = (marker(), marker());
    let other = script("setsid -f bash -c 'SLEEP'; ( ( (SLEEP) & ) & )", &others, "sleep 300");
    let other = bench.processes.start(bench.shell(&other)).await.unwrap();
    let mut stranger = std::process::Command::new("setsid").args(["sleep", "300"]).spawn().unwrap();
    // Matches processes by their own name. The shells that start them only mention it.
    let sleepers = || -> Vec<String> {
        survivors(&others).into_iter().filter(|line| line.contains(&format!(": {others}"))).collect()
    };
    eventually_async("the other tree is running", Duration::from_secs(10), || sleepers().len() == 2).await;
    let before = sleepers();
    for _ in 0..5 {
        let script = script("setsid -f bash -c 'SLEEP'", &ours, "sleep 0.1; kill -KILL $PPID; sleep 300");
        let lost = bench.processes.run(bench.shell(&script), CancellationToken::new()).await.unwrap();
        assert!(lost.ended.keeper_lost);
        assert_clean(&ours);
    }
    assert_eq!(sleepers(), before);
    assert!(stranger.try_wait().unwrap().is_none());
    assert!(bench.processes.kill(other).await.unwrap());
    assert_clean(&others);
    stranger.kill().unwrap();
    stranger.wait().unwrap();
}

/// Without its guard the keeper still does its work and reports.
#[tokio::test]
async fn killed_guard_does_not_affect_the_command() {
    let bench = bench();
    let marker = marker();
    let end = "kill -KILL $(cut -d' ' -f4 /proc/$PPID/stat); sleep 0.1; exit 3";
    let script = script("setsid -f bash -c 'SLEEP'", &marker, end);
    let finished = bench.processes.run(bench.shell(&script), CancellationToken::new()).await.unwrap();
    assert_eq!((finished.ended.exit.code, finished.ended.keeper_lost), (Some(3), false));
    assert_clean(&marker);
}

/// A keeper that does not answer is killed together with its tree.
#[tokio::test]
async fn stopped_keeper_is_given_up_and_its_command_ended() {
    let bench = bench();
    let marker = marker();
    let script = script("setsid -f bash -c 'SLEEP'", &marker, "kill -STOP $PPID; sleep 300");
    let mut command = bench.shell(&script);
    command.timeout = Some(Duration::from_millis(200));
    let finished = bench.processes.run(command, CancellationToken::new()).await.unwrap();
    assert!(finished.ended.keeper_lost && finished.ended.timed_out, "{finished:?}");
    assert_clean(&marker);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_commands_do_not_affect_each_other() {
    let bench = bench();
    let long = bench.shell("setsid -f sleep 0.01; sleep 1.5; echo done");
    let long = bench.processes.run(long, CancellationToken::new());
    let short = async {
        for _ in 0..scaled(200, 20) {
            let mut command = bench.shell("trap '' TERM; setsid -f sleep 300; sleep 300");
            command.timeout = Some(Duration::from_millis(20));
            assert!(bench.processes.run(command, CancellationToken::new()).await.unwrap().ended.timed_out);
        }
    };
    let several = run_twelve_commands_during(short, &bench);
    let (long, ()) = tokio::join!(long, several);
    let long = long.unwrap();
    assert_eq!((long.ended.exit.code, long.stdout.text.as_str()), (Some(0), "done\n"));
}

/// Runs twelve commands at once, each with its own output and code, while `other` runs.
async fn run_twelve_commands_during(other: impl Future<Output = ()>, bench: &Bench) {
    let mut tasks = tokio::task::JoinSet::new();
    for number in 0..12 {
        let command =
            bench.shell(&format!("for i in 1 2 3 4 5; do echo {number}; sleep 0.02; done; exit {number}"));
        let processes = bench.processes.clone();
        tasks.spawn(async move { (number, processes.run(command, CancellationToken::new()).await.unwrap()) });
    }
    other.await;
    while let Some(done) = tasks.join_next().await {
        let (number, finished) = done.unwrap();
        assert_eq!(finished.ended.exit.code, Some(number));
        assert_eq!(finished.stdout.text, format!("{number}\n").repeat(5));
    }
}

#[tokio::test]
async fn random_trees_never_survive() {
    let bench = bench();
    let mut random = Random::new();
    for round in 0..scaled(200, 16) {
        let ((name, tree), end) = (TREES[random.below(TREES.len())], ENDS[random.below(ENDS.len())]);
        println!("{round}: {name} / {end:?}");
        check(&bench, tree, end).await;
    }
}

/// Only processes that ignore SIGTERM use up the grace period.
#[tokio::test]
async fn grace_period_is_skipped_when_not_needed() {
    let bench = bench();
    let begun = Instant::now();
    for _ in 0..10 {
        bench.processes.run(bench.command("/bin/true", &[]), CancellationToken::new()).await.unwrap();
    }
    assert!(begun.elapsed() < Duration::from_millis(10 * 100), "{:?}", begun.elapsed());
    let begun = Instant::now();
    bench
        .processes
        .run(bench.shell("sleep 300 & setsid -f sleep 300"), CancellationToken::new())
        .await
        .unwrap();
    assert!(begun.elapsed() < Duration::from_millis(230), "sleep obeys SIGTERM: {:?}", begun.elapsed());
}
