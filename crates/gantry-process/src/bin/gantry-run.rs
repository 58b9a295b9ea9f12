//! An engine as a program: runs one shell script and reports, so that tests can kill an engine or measure its memory.
//!
//! `gantry-run KEEPER LOG_DIR foreground|session SCRIPT`
#![expect(clippy::print_stdout, reason = "the report is this program's output")]

use std::error::Error;
use std::path::PathBuf;
use std::time::Duration;

use gantry_process::{Command, Cwd, Processes, ProcessesOptions, Waited};
use tokio_util::sync::CancellationToken;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [keeper, log_dir, mode, script] = &args[..] else { return Err("four arguments are needed".into()) };
    let processes = Processes::new(ProcessesOptions::new(PathBuf::from(keeper), PathBuf::from(log_dir)));
    let mut command = Command::new("/bin/bash", Cwd::Path(PathBuf::from("/"))).args(["-c", script.as_str()]);
    command.env = vec![("PATH".into(), "/usr/local/bin:/usr/bin:/bin".into())];
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
