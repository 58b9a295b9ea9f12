//! Detached sessions continue when their engine is killed, and the next engine adopts them.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use gantry_process::{
    ExitReport, ProcessError, Processes, ProcessesOptions, SessionId, Signal, Waited, Written, end_sessions,
};
use gantry_testkit::{Random, eventually_async, scaled};

use crate::support::{bench, keeper, marker, recover, recover_with, survivors, zombies};

/// `Engine` is an engine in a separate process, and the session whose id it printed.
pub(crate) struct Engine {
    process: Child,
    pub(crate) id: SessionId,
}

impl Engine {
    pub(crate) fn start(log_dir: &Path, mode: &str, script: &str, timeout_ms: Option<u64>) -> Engine {
        let mut process = std::process::Command::new(env!("CARGO_BIN_EXE_gantry-run"))
            .arg(keeper())
            .arg(log_dir)
            .args([mode, script])
            .args(timeout_ms.map(|timeout| timeout.to_string()))
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        Engine { process, id: line.trim().parse().unwrap() }
    }

    /// Kills the engine with SIGKILL.
    pub(crate) fn kill(mut self) -> SessionId {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
        self.id
    }
}

async fn finish(processes: &Processes, id: SessionId) -> gantry_process::Finished {
    match processes.wait(id, Duration::from_secs(60)).await.unwrap() {
        Waited::Finished(finished) => finished,
        Waited::Running(running) => panic!("still running: {running:?}"),
    }
}

async fn next_end(processes: &Processes) -> ExitReport {
    tokio::time::timeout(Duration::from_secs(20), processes.exit_reports().next()).await.unwrap().unwrap()
}

async fn no_end(processes: &Processes) {
    let mut ends = processes.exit_reports();
    let next = tokio::time::timeout(Duration::from_millis(200), ends.next());
    assert!(next.await.is_err(), "an end is offered");
}

#[tokio::test]
async fn session_continues_after_the_engine_is_killed() {
    let directory = tempfile::tempdir().unwrap();
    let script = "echo begun; while read -r line; do echo \"got $line\"; done; echo eof; exit 3";
    let id = Engine::start(directory.path(), "detached", script, None).kill();

    let processes = recover(directory.path()).await;
    let listed = processes.list().await.unwrap();
    assert_eq!((listed.len(), listed[0].id, listed[0].ended.is_none()), (1, id, true));
    assert_eq!(processes.note(id).unwrap(), format!("note of {id}"));
    let pid = listed[0].pid;
    assert_eq!(processes.write(id, b"one\n").await.unwrap(), Written { bytes: 4, complete: true });
    eventually_async("the line is answered", Duration::from_secs(10), || {
        std::fs::read_to_string(directory.path().join(format!("sessions/{id}/log"))).unwrap().contains("one")
    })
    .await;
    // This is a second restart, in the same process.
    drop(processes);
    let processes = recover(directory.path()).await;
    assert_eq!(processes.poll(id, Duration::ZERO).await.unwrap().tail, "begun\ngot one\n");
    processes.write(id, b"two\n").await.unwrap();
    processes.close_stdin(id).await.unwrap();
    let finished = finish(&processes, id).await;
    assert_eq!(finished.stdout.text, "begun\ngot one\ngot two\neof\n");
    assert_eq!((finished.ended.exit.code, finished.pid), (Some(3), pid));
    assert!(matches!(processes.write(id, b"x").await, Err(ProcessError::HasEnded(_))));
    assert_eq!(processes.log(id, 1, 1).await.unwrap().lines, ["got one"]);
}

#[tokio::test]
async fn closed_stdin_stays_closed_after_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let id = Engine::start(directory.path(), "detached", "cat; sleep 300", None).kill();
    let processes = recover(directory.path()).await;
    processes.close_stdin(id).await.unwrap();
    drop(processes);
    let processes = recover(directory.path()).await;
    assert!(matches!(processes.write(id, b"x").await, Err(ProcessError::StdinClosed(_))));
    assert!(matches!(processes.close_stdin(id).await, Err(ProcessError::StdinClosed(_))));
    processes.end_all().await;
}

#[tokio::test]
async fn session_killed_after_a_restart_leaves_no_process() {
    let directory = tempfile::tempdir().unwrap();
    let marker = marker();
    let script = format!("setsid -f bash -c 'exec -a {marker} sleep 300'; exec -a {marker} sleep 300");
    let id = Engine::start(directory.path(), "detached", &script, None).kill();
    eventually_async("the tree is running", Duration::from_secs(10), || survivors(&marker).len() >= 2).await;
    let processes = recover(directory.path()).await;
    assert!(processes.kill(id).await.unwrap());
    assert_eq!(survivors(&marker), Vec::<String>::new());
    let ended = processes.poll(id, Duration::ZERO).await.unwrap().ended.unwrap();
    assert_eq!((ended.exit.signal, ended.killed), (Some(Signal(9)), true));
    assert!(!processes.kill(id).await.unwrap());
}

/// Every line is in the log once, wherever the restarts happen.
#[tokio::test]
async fn output_is_complete_across_restarts() {
    let directory = tempfile::tempdir().unwrap();
    let count = scaled(1_000_000, 100_000);
    let script = format!("for i in $(seq {count}); do echo line $i; done");
    let id = Engine::start(directory.path(), "detached", &script, None).kill();
    let mut restarts = 0;
    let finished = loop {
        let processes = recover(directory.path()).await;
        match processes.wait(id, Duration::from_millis(30)).await.unwrap() {
            Waited::Finished(finished) => break finished,
            Waited::Running(_) => restarts += 1,
        }
    };
    println!("{restarts} restarts while it ran");
    assert!(restarts > 0 && finished.ended.exit.code == Some(0), "{:?}", finished.ended);
    let text = std::fs::read_to_string(directory.path().join(format!("sessions/{id}/log"))).unwrap();
    assert!(text.lines().eq((1..=count).map(|number| format!("line {number}"))));
}

#[tokio::test]
async fn exit_during_a_restart_is_offered_until_acknowledged() {
    let directory = tempfile::tempdir().unwrap();
    let id = Engine::start(directory.path(), "detached", "sleep 0.3; seq 2000; exit 7", None).kill();
    eventually_async("the session has ended", Duration::from_secs(10), || {
        directory.path().join(format!("sessions/{id}/ended.json")).exists()
    })
    .await;
    let processes = recover(directory.path()).await;
    let finished = finish(&processes, id).await;
    assert_eq!((finished.ended.exit.code, finished.stdout.total_bytes), (Some(7), 8_893));
    let report = next_end(&processes).await;
    assert_eq!((report.id, report.note.clone()), (id, format!("note of {id}")));
    assert_eq!(report.ended, finished.ended);
    assert!(report.tail.ends_with("\n2000\n") && report.tail.chars().count() == 4_000);
    drop(processes);

    // Nobody has acknowledged the exit, so it is offered again, with the same id, to each new
    // listener.
    let processes = recover(directory.path()).await;
    let again = next_end(&processes).await;
    assert_eq!(again, report);
    assert_eq!(next_end(&processes).await, report);
    assert!(processes.acknowledge(report.event_id).await.unwrap());
    assert!(!processes.acknowledge(report.event_id).await.unwrap());
    no_end(&processes).await;
    drop(processes);
    let processes = recover(directory.path()).await;
    no_end(&processes).await;
    assert_eq!(processes.log(id, 0, 1).await.unwrap().total_lines, 2_000);
}

#[tokio::test]
async fn exits_are_reported_as_they_occur() {
    let directory = tempfile::tempdir().unwrap();
    let processes = recover(directory.path()).await;
    let bench = bench();
    let mut ends = processes.exit_reports();
    for code in 0..5 {
        // Some sessions end before they can be detached.
        let id = processes.start(bench.shell(&format!("sleep 0.0{}; exit {code}", code % 2))).await.unwrap();
        processes.detach(id, "n").await.unwrap();
        let report = tokio::time::timeout(Duration::from_secs(10), ends.next()).await.unwrap().unwrap();
        assert_eq!((report.id, report.ended.exit.code), (id, Some(code)));
        processes.acknowledge(report.event_id).await.unwrap();
    }
    // The exit of a session that was never detached is not reported.
    let id = processes.start(bench.shell("true")).await.unwrap();
    finish(&processes, id).await;
    no_end(&processes).await;
}

#[tokio::test]
async fn exit_before_the_detach_is_reported() {
    let directory = tempfile::tempdir().unwrap();
    let processes = recover(directory.path()).await;
    let id = processes.start(bench().command("/bin/true", &[])).await.unwrap();
    let finished = finish(&processes, id).await;
    processes.detach(id, "late").await.unwrap();
    let report = next_end(&processes).await;
    assert_eq!((report.id, report.note.as_str(), &report.ended), (id, "late", &finished.ended));
    drop(processes);
    let processes = recover(directory.path()).await;
    // Durations are recorded in whole milliseconds.
    let again = next_end(&processes).await;
    assert_eq!((again.event_id, again.ended.ended_at), (report.event_id, report.ended.ended_at));
    assert!(processes.knows(id));
}

#[tokio::test]
async fn timeout_is_enforced_without_an_engine() {
    let directory = tempfile::tempdir().unwrap();
    let marker = marker();
    let script = format!("exec -a {marker} sleep 300");
    let id = Engine::start(directory.path(), "detached", &script, Some(600)).kill();
    let begun = Instant::now();
    eventually_async("the process is gone", Duration::from_secs(5), || survivors(&marker).is_empty()).await;
    println!("gone after {:?}", begun.elapsed());
    let processes = recover(directory.path()).await;
    let ended = finish(&processes, id).await.ended;
    assert!(ended.timed_out && !ended.killed && !ended.cancelled, "{ended:?}");
    assert_eq!(ended.exit.signal, Some(Signal(15)));
}

#[tokio::test]
async fn attached_session_ends_with_the_engine() {
    let directory = tempfile::tempdir().unwrap();
    let marker = marker();
    let script = format!("setsid -f bash -c 'exec -a {marker} sleep 300'; exec -a {marker} sleep 300");
    let id = Engine::start(directory.path(), "attached", &script, None).kill();
    eventually_async("everything is gone", Duration::from_secs(3), || survivors(&marker).is_empty()).await;
    let processes = recover(directory.path()).await;
    assert!(!processes.knows(id));
    eventually_async("its folder is swept", Duration::from_secs(5), || {
        !directory.path().join(format!("sessions/{id}")).exists()
    })
    .await;
}

#[tokio::test]
async fn shutdown_keeps_only_detached_sessions() {
    let directory = tempfile::tempdir().unwrap();
    let (kept, ended) = (marker(), marker());
    let bench = bench();
    let processes = recover(directory.path()).await;
    let detached = processes.start(bench.shell(&format!("exec -a {kept} sleep 300"))).await.unwrap();
    processes.detach(detached, "").await.unwrap();
    let attached = processes.start(bench.shell(&format!("exec -a {ended} sleep 300"))).await.unwrap();
    eventually_async("both run", Duration::from_secs(5), || {
        !survivors(&kept).is_empty() && !survivors(&ended).is_empty()
    })
    .await;
    processes.shutdown().await;
    assert!(survivors(&ended).is_empty() && survivors(&kept).len() == 1);
    drop(processes);
    let processes = recover(directory.path()).await;
    assert!(processes.knows(detached) && !processes.knows(attached));
    assert!(processes.poll(detached, Duration::ZERO).await.unwrap().ended.is_none());
    processes.end_all().await;
    assert_eq!(survivors(&kept), Vec::<String>::new());
    assert!(processes.poll(detached, Duration::ZERO).await.unwrap().ended.unwrap().cancelled);
}

#[tokio::test]
async fn end_sessions_works_only_without_a_running_engine() {
    let directory = tempfile::tempdir().unwrap();
    assert_eq!(end_sessions(&directory.path().join("none")).await.unwrap(), 0);
    let marker = marker();
    let script = format!("trap '' TERM; (exec -a {marker} sleep 300) & exec -a {marker} sleep 300");
    let engine = Engine::start(directory.path(), "detached", &script, None);
    let pid = engine.process.id();
    for refused in [
        end_sessions(directory.path()).await.unwrap_err(),
        Processes::recover(ProcessesOptions::new(keeper(), directory.path().into())).await.err().unwrap(),
    ] {
        assert!(refused.to_string().ends_with(&format!("process {pid}")), "{refused}");
    }
    assert!(!survivors(&marker).is_empty());
    engine.kill();
    assert_eq!(end_sessions(directory.path()).await.unwrap(), 1);
    assert_eq!(survivors(&marker), Vec::<String>::new());
    assert_eq!(end_sessions(directory.path()).await.unwrap(), 0);
    // Their exits are still to be reported.
    let report = next_end(&recover(directory.path()).await).await;
    assert!(report.ended.cancelled);
}

#[tokio::test]
async fn retention_counts_from_the_exit_and_the_report_outlasts_it() {
    let directory = tempfile::tempdir().unwrap();
    let id = Engine::start(directory.path(), "detached", "echo done; exit 1", None).kill();
    let folder = directory.path().join(format!("sessions/{id}"));
    eventually_async("the session has ended", Duration::from_secs(10), || folder.join("ended.json").exists())
        .await;
    tokio::time::sleep(Duration::from_millis(700)).await;
    let short = |options: &mut ProcessesOptions| options.retention = Duration::from_millis(1_500);
    let processes = recover_with(directory.path(), short).await;
    assert!(processes.knows(id));
    eventually_async("the retention time is over", Duration::from_millis(1_300), || !processes.knows(id))
        .await;
    assert!(!folder.join("log").exists() && folder.join("session.json").exists());
    assert_eq!(next_end(&processes).await.tail, "done\n");
    drop(processes);
    // Much later the session is gone, but its exit is still to be reported.
    let processes = recover_with(directory.path(), short).await;
    assert!(!processes.knows(id));
    let report = next_end(&processes).await;
    assert_eq!((report.tail.as_str(), report.ended.exit.code), ("done\n", Some(1)));
    processes.acknowledge(report.event_id).await.unwrap();
    assert!(!folder.exists());
}

/// The engine may be killed at any moment. Every session that it reported as detached is found
/// again, and no other process is left in the end.
#[tokio::test]
async fn engine_killed_at_any_moment_loses_no_session_and_leaks_none() {
    let mut random = Random::new();
    for round in 0..scaled(100, 10) {
        let directory = tempfile::tempdir().unwrap();
        let marker = marker();
        let script = format!("setsid -f bash -c 'exec -a {marker} sleep 300'; exec -a {marker} sleep 300");
        let mut engine = std::process::Command::new(env!("CARGO_BIN_EXE_gantry-run"))
            .arg(keeper())
            .arg(directory.path())
            .args(["many", &script])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let delay = Duration::from_micros(random.below(300_000) as u64);
        tokio::time::sleep(delay).await;
        engine.kill().unwrap();
        let printed = std::io::read_to_string(engine.stdout.take().unwrap()).unwrap();
        engine.wait().unwrap();
        let detached: Vec<SessionId> =
            printed.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n')?.parse().ok()).collect();
        let processes = recover_with(directory.path(), |options| options.max_sessions = 1_000).await;
        println!("{round}: {} detached in {delay:?}", detached.len());
        for id in &detached {
            let snapshot = processes.poll(*id, Duration::ZERO).await.unwrap();
            assert!(snapshot.ended.is_none(), "{snapshot:?}");
        }
        // There may be one more: the session that the engine was about to name.
        let found = processes.list().await.unwrap().len();
        assert!(found == detached.len() || found == detached.len() + 1, "{found}");
        drop(processes);
        assert_eq!(end_sessions(directory.path()).await.unwrap(), found);
        eventually_async("nothing is left", Duration::from_secs(2), || survivors(&marker).is_empty()).await;
    }
    assert_eq!(zombies(), Vec::<String>::new());
}
