//! Measures `read_file` of 1 KB and `bash` `true` in this process and in workers. Prints one line of JSON for
//! `cargo xtask bench`.
#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a measurement, not the product")]

use std::time::{Duration, Instant};

use gantry_toolsets::testing::Bench;
use serde_json::{Value, json};

const READS: usize = 1_000;
const COMMANDS: usize = 101;

#[tokio::main]
async fn main() {
    let benches = Bench::without_and_with_workers();
    let (mut reads, mut commands, mut starts) = ([0.0; 2], [0.0; 2], [0.0; 2]);
    for (side, bench) in benches.iter().enumerate() {
        let path = bench.write("file", "x".repeat(1024));
        let started = Instant::now();
        bench.call("read_file", json!({"path": path})).await.unwrap();
        starts[side] = started.elapsed().as_secs_f64() * 1e3;
        reads[side] = median(bench, "read_file", &json!({"path": path}), READS).await * 1e6;
        commands[side] = median(bench, "bash", &json!({"command": "true"}), COMMANDS).await * 1e3;
    }
    println!(
        "{}",
        json!({
            "readUs": reads[0], "readInWorkerUs": reads[1],
            "bashMs": commands[0], "bashInWorkerMs": commands[1],
            "firstCallMs": starts[0], "firstCallInWorkerMs": starts[1],
        })
    );
}

/// The median time of a call in seconds. The engine prepares its next keeper between the calls.
async fn median(bench: &Bench, tool: &str, input: &Value, calls: usize) -> f64 {
    let mut times = Vec::with_capacity(calls);
    for _ in 0..calls {
        let started = Instant::now();
        bench.call(tool, input.clone()).await.unwrap();
        times.push(started.elapsed());
        if tool == "bash" {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
    times.sort();
    times[calls / 2].as_secs_f64()
}
