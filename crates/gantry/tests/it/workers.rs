//! Worker processes of a gateway: `bash`, `read_file` and `write_file` run in them, and a worker that fails ends alone.

use std::path::Path;
use std::time::Duration;

use gantry_testkit::{Gateway, World, eventually};
use serde_json::json;

const SOON: Duration = Duration::from_secs(20);

/// The workers among a gateway's children.
fn workers(gateway: &Gateway) -> Vec<u32> {
    let threads = std::fs::read_dir(format!("/proc/{}/task", gateway.pid())).unwrap();
    let children =
        threads.filter_map(|thread| std::fs::read_to_string(thread.ok()?.path().join("children")).ok());
    let children = children.collect::<String>();
    let mut pids: Vec<u32> = children.split_whitespace().filter_map(|pid| pid.parse().ok()).collect();
    pids.retain(|pid| {
        std::fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| line.ends_with(b"\0__worker\0"))
    });
    pids
}

#[test]
fn gateway_runs_three_tools_in_workers_and_ends_them_with_itself() {
    let world = World::new();
    let mut gateway = Gateway::start(&world);
    assert!(workers(&gateway).is_empty());
    let path = world.workspace().join("file");
    let written = gateway.call("write_file", &json!({"path": path, "content": "text"}));
    assert_eq!(written.status, 200, "{written:?}");
    assert_eq!(workers(&gateway).len(), 1);
    let read = gateway.call("read_file", &json!({"path": path}));
    assert_eq!(read.text(), "text");
    // The command's parents are its keeper, the guard and the worker.
    let parents = "p=$$; while [ $p -gt 1 ]; do p=$(cut -d' ' -f4 /proc/$p/stat); echo $p; done";
    let lineage = gateway.call("bash", &json!({"command": parents})).text();
    let worker = workers(&gateway)[0];

    assert!(lineage.lines().any(|pid| pid == worker.to_string()), "{lineage} has no {worker}");
    gateway.signal(rustix::process::Signal::TERM);
    gateway.wait(SOON).unwrap();
    assert!(!Path::new(&format!("/proc/{worker}")).exists());
}

#[test]
fn worker_of_a_killed_gateway_ends() {
    let world = World::new();
    let gateway = Gateway::start(&world);
    gateway.call("bash", &json!({"command": "true"}));
    let worker = workers(&gateway)[0];
    gateway.kill();
    eventually("the worker ends", SOON, || !Path::new(&format!("/proc/{worker}/fd/0")).exists());
}

#[test]
fn worker_above_its_memory_limit_ends_alone() {
    let world = World::new();
    world.configure("[workers]\ncount = 1\nmemoryMb = 32\n");
    let gateway = Gateway::start(&world);
    let euros: Vec<u8> = [0xff, 0xfe].into_iter().chain([0xac, 0x20].repeat(5_000_000)).collect();
    let large = world.workspace().join("large");
    std::fs::write(&large, euros).unwrap();
    let small = world.write("small", "ok");
    let failed = gateway.call("read_file", &json!({"path": large})).text();
    assert!(failed.contains("the worker process of this call ended (SIGABRT)"), "{failed}");
    assert!(failed.contains("a worker may use 32 MB of memory"), "{failed}");
    assert_eq!(gateway.call("read_file", &json!({"path": small})).text(), "ok");
    let data = "python3 -c 'print(len(bytearray(64 << 20)))' || head -c 67108864 /dev/zero | wc -c";
    let allocated = gateway.call("bash", &json!({"command": data})).text();
    assert_eq!(allocated, "67108864\n", "the limit binds no command");
}

#[test]
fn workers_are_off_with_a_count_of_zero_and_for_one_call() {
    let world = World::new();
    let path = world.write("file", "text");
    let input = json!({"path": path}).to_string();
    assert_eq!(world.run(&["call", "read_file", &input]).stdout.trim_end(), "text");
    world.configure("[workers]\ncount = 0\n");
    let gateway = Gateway::start(&world);
    assert_eq!(gateway.call("read_file", &json!({"path": path})).text(), "text");
    assert!(workers(&gateway).is_empty());
}

#[test]
fn settings_of_workers_are_checked() {
    let world = World::new();
    world.configure("[workers]\ncount = 65\nmemoryMb = 8\n");
    let ran = world.run(&["config", "get", "workers"]);
    assert!(ran.stderr.contains("workers.count: must be at most 64"), "{}", ran.stderr);
    assert!(ran.stderr.contains("workers.memoryMb: must be between 32 and 1048576"), "{}", ran.stderr);
}
