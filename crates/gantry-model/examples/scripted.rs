//! Runs a scripted model server as a separate program: `scripted SCRIPT.json [ADDRESS]`.
//!
//! It prints its address on one line, then serves until its standard input ends. `GET /scripted`
//! returns what it has received. It exits with 1 if a request broke a rule.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a program")]
#![expect(clippy::disallowed_methods, reason = "it reads the script named on the command line")]

use std::error::Error;
use std::net::SocketAddr;
use std::process::ExitCode;

use gantry_model::testing::{Script, ScriptedServer};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<ExitCode, Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next().ok_or("usage: scripted SCRIPT.json [ADDRESS]")?;
    let address: SocketAddr = arguments.next().unwrap_or_else(|| "127.0.0.1:0".into()).parse()?;
    let script: Script = serde_json::from_str(&std::fs::read_to_string(path)?)?;
    let server = ScriptedServer::bind(address, script).await?;
    println!("{}", server.address());
    tokio::task::spawn_blocking(|| std::io::copy(&mut std::io::stdin(), &mut std::io::sink())).await??;
    for violation in server.violations() {
        eprintln!("{violation}");
    }
    Ok(if server.violations().is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
