//! Measures the cost of a keeper: the time of `true` started directly and through the engine.
//!
//! `cargo run --release --example latency -- target/release/gantry-keeper`
#![expect(clippy::print_stdout, reason = "this program prints its measurements")]
#![expect(clippy::disallowed_methods, reason = "one side of the comparison starts processes directly")]

use std::error::Error;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use gantry_process::{Command, Cwd, Network, Processes, ProcessesOptions, Sandbox};
use tokio_util::sync::CancellationToken;

const ROUNDS: usize = 500;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let keeper = std::env::args_os().nth(1).ok_or("usage: latency KEEPER")?;
    let keeper = PathBuf::from(keeper).canonicalize()?;
    let processes = Processes::new(ProcessesOptions::new(keeper, PathBuf::from("/nonexistent")));
    let command = |sandbox| {
        let mut command = Command::new("/bin/true", Cwd::Path("/".into()));
        command.sandbox = sandbox;
        command
    };
    let only = || Sandbox::Only { read: vec!["/".into()], write: vec![], network: Network::Denied };
    let except = || Sandbox::Except {
        closed: vec!["/var/lib/nothing".into()],
        read_only: vec![],
        network: Network::Allowed,
    };
    // As agents' shells have it: a covered directory, a covered file and a read-only file.
    let home = std::env::temp_dir().join(format!("gantry-latency-{}", std::process::id()));
    std::fs::create_dir_all(home.join("data"))?;
    for name in [".netrc", ".bashrc"] {
        std::fs::write(home.join(name), "")?;
    }
    let isolated = || Sandbox::Isolated {
        write: vec![home.clone()],
        covered: vec![home.join("data"), home.join(".netrc")],
        read_only: vec![home.join(".bashrc")],
        network: Network::Allowed,
    };
    let session = processes.create_network().await?;
    let network = std::sync::Arc::new(session.network);
    let mut times = [const { Vec::new() }; 6];
    for _ in 0..ROUNDS {
        let begun = Instant::now();
        tokio::process::Command::new("/bin/true").current_dir("/").env_clear().output().await?;
        times[0].push(begun.elapsed());
        for (index, sandbox) in [(1, Sandbox::None), (2, only()), (3, except())] {
            let begun = Instant::now();
            processes.run(command(sandbox), CancellationToken::new()).await?;
            times[index].push(begun.elapsed());
        }
        for (index, network) in [(4, None), (5, Some(network.clone()))] {
            let mut command = command(isolated());
            command.network = network;
            let begun = Instant::now();
            processes.run(command, CancellationToken::new()).await?;
            times[index].push(begun.elapsed());
        }
    }
    std::fs::remove_dir_all(&home)?;
    let names = ["direct", "kept", "kept, only", "kept, except", "isolated, no network", "isolated, session"];
    for (name, times) in names.iter().zip(&mut times) {
        times.sort();
        let at = |part: f64| -> Duration { times[(ROUNDS as f64 * part) as usize] };
        println!("{name:>20}: median {:>9.1?}  p90 {:>9.1?}  p99 {:>9.1?}", at(0.5), at(0.9), at(0.99));
    }
    // Sorted above.
    let median_ms = |index: usize| times[index][ROUNDS / 2].as_secs_f64() * 1e3;
    println!("{{\"confinedMs\": {:.2}, \"isolatedMs\": {:.2}}}", median_ms(3), median_ms(5));
    Ok(())
}
