use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use gantry_testkit::eventually_async;
use serde_json::{Value, json};

use crate::testing::Bench;

const SOON: Duration = Duration::from_secs(10);

/// The direct children of this process that are workers.
fn workers() -> Vec<u32> {
    let own = std::process::id();
    let children = std::fs::read_to_string(format!("/proc/{own}/task/{own}/children")).unwrap_or_default();
    let all_threads = std::fs::read_dir(format!("/proc/{own}/task")).unwrap();
    let of_thread = |thread: std::fs::DirEntry| std::fs::read_to_string(thread.path().join("children")).ok();
    let all = all_threads.filter_map(|thread| of_thread(thread.ok()?)).collect::<String>() + &children;
    let mut pids: Vec<u32> = all.split_whitespace().filter_map(|pid| pid.parse().ok()).collect();
    pids.sort_unstable();
    pids.dedup();
    pids.retain(|pid| {
        std::fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name.trim() == "gantry-worker")
    });
    pids
}

fn kill(pid: u32) {
    let status = std::process::Command::new("kill").args(["-9", &pid.to_string()]).status().unwrap();
    assert!(status.success());
}

async fn bash(bench: &Bench, command: &str) -> Result<Value, Value> {
    bench.call("bash", json!({"command": command})).await
}

#[tokio::test]
async fn worker_starts_with_the_first_call_serves_the_next_and_ends_when_idle() {
    let bench = Bench::with_workers(|options| options.idle = Duration::from_millis(300));
    assert!(workers().is_empty());
    let path = bench.write("a", "text");
    assert_eq!(bench.call("read_file", json!({"path": path})).await, Ok(json!("text")));
    let first = workers();
    assert_eq!(first.len(), 1);
    assert_eq!(bash(&bench, "echo x").await, Ok(json!("x\n")));
    assert_eq!(workers(), first);
    eventually_async("the idle worker ends", SOON, || workers().is_empty()).await;
    assert_eq!(bash(&bench, "echo x").await, Ok(json!("x\n")));
}

#[tokio::test]
async fn worker_above_its_memory_limit_ends_alone_and_the_next_call_works() {
    let bench = Bench::with_workers(|options| options.memory_bytes = 24 << 20);
    let small = bench.write("small", "ok");
    // Ten megabytes of UTF-16 become fifteen of UTF-8.
    let units = [0xff, 0xfe].into_iter().chain(std::iter::repeat_n([0xac, 0x20], 5_000_000).flatten());
    let large = bench.write("large", units.collect::<Vec<u8>>());
    let error = bench.call("read_file", json!({"path": large})).await.unwrap_err();
    assert_eq!(
        error,
        "the worker process of this call ended (SIGABRT) (a worker may use 24 MB of memory and is ended when it needs more)"
    );
    assert_eq!(bench.call("read_file", json!({"path": small})).await, Ok(json!("ok")));
    let roomy = Bench::with_workers(|_| {});
    let large = roomy.write("large", std::fs::read(large).unwrap());
    assert_eq!(
        roomy.call("read_file", json!({"path": large})).await.unwrap().as_str().unwrap().len(),
        15_000_000
    );
}

#[tokio::test]
async fn memory_limit_of_the_worker_does_not_bind_its_commands() {
    let bench = Bench::with_workers(|options| options.memory_bytes = 64 << 20);
    let own = std::fs::read_to_string("/proc/self/limits").unwrap();
    let line =
        |limits: &str| limits.lines().find(|line| line.starts_with("Max data size")).unwrap().to_owned();
    let limits = bash(&bench, "cat /proc/self/limits").await.unwrap();
    assert_eq!(line(limits.as_str().unwrap()), line(&own));
    let worker = workers()[0];
    let limited = std::fs::read_to_string(format!("/proc/{worker}/limits")).unwrap();
    assert!(line(&limited).contains(&(64 << 20).to_string()), "{limited}");
}

#[tokio::test]
async fn killed_worker_fails_its_call_and_ends_its_command() {
    let bench = Arc::new(Bench::with_workers(|_| {}));
    let (begun, marker) = (bench.workspace().join("begun"), bench.workspace().join("survived"));
    let command = format!("touch {}; sleep 2; touch {}", begun.display(), marker.display());
    let own = bench.clone();
    let call = tokio::spawn(async move { bash(&own, &command).await });
    eventually_async("the command runs", SOON, || begun.exists()).await;
    kill(workers()[0]);
    let error = call.await.unwrap().unwrap_err();
    assert!(
        error.as_str().unwrap().starts_with("the worker process of this call ended (SIGKILL)"),
        "{error}"
    );
    assert_eq!(bash(&bench, "echo next").await, Ok(json!("next\n")));
    tokio::time::sleep(Duration::from_millis(2_200)).await;
    assert!(!marker.exists());
}

#[tokio::test]
async fn idle_worker_that_was_killed_is_replaced_without_an_error() {
    let bench = Bench::with_workers(|_| {});
    bash(&bench, "true").await.unwrap();
    let first = workers();
    kill(first[0]);
    eventually_async("the worker is gone", SOON, || !Path::new(&format!("/proc/{}/fd/0", first[0])).exists())
        .await;
    assert_eq!(bash(&bench, "echo x").await, Ok(json!("x\n")));
    assert_ne!(workers(), first);
}

#[tokio::test]
async fn cancelling_ends_the_worker_and_another_takes_its_place() {
    let bench = Bench::with_workers(|options| options.count = 1);
    bash(&bench, "true").await.unwrap();
    let first = workers();
    let call = bench.operator_call();
    let cancel = call.cancel.clone();
    let stop = async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        cancel.cancel();
    };
    let input = json!({"command": "sleep 60"});
    let (answer, ()) = tokio::join!(bench.call_as(call, "bash", input), stop);
    assert_eq!(answer.unwrap_err()["error"]["code"], "cancelled");
    eventually_async("another worker is ready", SOON, || workers().len() == 1 && workers() != first).await;
    let second = workers();
    assert_eq!(bash(&bench, "echo x").await, Ok(json!("x\n")));
    assert_eq!(workers(), second);
}

#[tokio::test]
async fn calls_wait_when_all_workers_are_busy_and_a_full_queue_rejects() {
    let bench = Bench::with_workers(|options| (options.count, options.max_waiting) = (1, 1));
    bash(&bench, "true").await.unwrap();
    let (started, own) = (Instant::now(), &bench);
    let after = |delay, command| async move {
        tokio::time::sleep(Duration::from_millis(delay)).await;
        bash(own, command).await
    };
    let (one, two, three) =
        tokio::join!(after(0, "sleep 0.6"), after(150, "sleep 0.5; echo x"), after(300, "true"));
    assert_eq!((one, two), (Ok(json!("(no output)")), Ok(json!("x\n"))));
    assert!(started.elapsed() >= Duration::from_secs(1));
    let busy = "all workers are busy, and 1 calls are waiting for one (wait for running calls, or raise workers.count in gantry.toml)";
    assert_eq!(three, Err(json!(busy)));
    assert_eq!(workers().len(), 1);
}

#[tokio::test]
async fn worker_that_cannot_start_is_reported_and_tried_again_with_backoff() {
    let bench = Bench::with_workers(|options| options.program = "/nonexistent/worker".into());
    let error = bash(&bench, "true").await.unwrap_err();
    let text = error.as_str().unwrap();
    assert!(text.starts_with("cannot start a worker process: /nonexistent/worker: No such file"), "{text}");
    assert!(text.contains("the next start is possible in 1 s"), "{text}");
    tokio::time::sleep(Duration::from_millis(1_050)).await;
    let again = bash(&bench, "true").await.unwrap_err();
    assert!(again.as_str().unwrap().contains("in 2 s"), "{again}");
    // Within the wait nothing is started: the time left shrinks.
    tokio::time::sleep(Duration::from_millis(1_050)).await;
    let waiting = bash(&bench, "true").await.unwrap_err();
    assert!(waiting.as_str().unwrap().contains("in 1 s"), "{waiting}");
}

#[tokio::test]
async fn write_in_a_worker_waits_for_an_edit_in_this_process() {
    let bench = Arc::new(Bench::with_workers(|_| {}));
    let path = bench.write("file", "old");
    bash(&bench, "true").await.unwrap();
    let files = gantry_files::Files::new(gantry_files::FilesOptions {
        closed: Vec::new(),
        pending_dir: Some(bench.data().join("pending")),
    });
    let scope = files.unwrap().free(&bench.workspace()).unwrap();
    let update = scope.update(&path, gantry_files::UpdateOptions::default()).unwrap();
    let (own, input) = (bench.clone(), json!({"path": path, "content": "from the worker"}));
    let write = tokio::spawn(async move { own.call("write_file", input).await });
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(bench.read("file"), "old");
    drop(update);
    write.await.unwrap().unwrap();
    assert_eq!(bench.read("file"), "from the worker");
}
