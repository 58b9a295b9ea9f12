//! Runs an engine as a separate program, so that tests can kill an engine or measure its memory.
//!
//! - `gantry-run KEEPER LOG_DIR foreground|session SCRIPT` runs one script to its end.
//! - `gantry-run KEEPER LOG_DIR attached|detached SCRIPT [TIMEOUT_MS]` starts one session of an
//!   engine that a test will restart. It prints the session's id and waits until it is killed.
//! - `gantry-run KEEPER LOG_DIR many SCRIPT` starts detached sessions in a loop.
#![expect(clippy::print_stdout, reason = "the report is this program's output")]

use std::error::Error;
use std::path::PathBuf;
use std::time::Duration;

use gantry_process::{Command, Cwd, Processes, ProcessesOptions, SessionId, Stdin, Waited};
use tokio_util::sync::CancellationToken;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [keeper, log_dir, mode, script, rest @ ..] = &args[..] else {
        return Err("usage: gantry-run KEEPER LOG_DIR MODE SCRIPT".into());
    };
    let options = ProcessesOptions::new(PathBuf::from(keeper), PathBuf::from(log_dir));
    let mut command = Command::new("/bin/bash", Cwd::Path(PathBuf::from("/"))).args(["-c", script.as_str()]);
    command.env = vec![("PATH".into(), "/usr/local/bin:/usr/bin:/bin".into())];
    command.timeout = rest.first().map(|timeout| timeout.parse()).transpose()?.map(Duration::from_millis);
    match mode.as_str() {
        "foreground" | "session" => run_to_end(options, command, mode).await,
        _ => run_until_killed(options, command, mode).await,
    }
}

async fn run_to_end(options: ProcessesOptions, command: Command, mode: &str) -> Result<(), Box<dyn Error>> {
    let processes = Processes::new(options);
    let finished = if mode == "session" {
        let id = processes.start(command).await?;
        match processes.wait(id, Duration::from_secs(600)).await? {
            Waited::Finished(finished) => finished,
            Waited::Running(_) => return Err("still running".into()),
        }
    } else {
        processes.run(command, CancellationToken::new()).await?
    };
    let page = processes.log(finished.id, 0, 1).await?;
    println!("total {}", finished.stdout.total_bytes);
    println!("lines {}", page.total_lines);
    println!("chars {}", page.total_chars);
    println!("kept {}", finished.stdout.text.chars().count());
    println!("last {}", finished.stdout.text.lines().last().unwrap_or_default());
    Ok(())
}

async fn run_until_killed(
    options: ProcessesOptions,
    command: Command,
    mode: &str,
) -> Result<(), Box<dyn Error>> {
    let options = ProcessesOptions { max_sessions: 1_000, ..options };
    let processes = Processes::recover(options).await?;
    loop {
        let id = start(&processes, &command).await?;
        if mode != "attached" {
            processes.detach(id, &format!("note of {id}")).await?;
        }
        println!("{id}");
        if mode != "many" {
            tokio::time::sleep(Duration::from_secs(600)).await;
        }
    }
}

async fn start(processes: &Processes, command: &Command) -> Result<SessionId, Box<dyn Error>> {
    let mut another = Command::new(&command.program, Cwd::Path(PathBuf::from("/"))).args(&command.args);
    another.env.clone_from(&command.env);
    another.timeout = command.timeout;
    another.stdin = Stdin::Pipe;
    Ok(processes.start(another).await?)
}
