//! A conversation with a real model on this machine, with a call of a tool. Opt-in: `GANTRY_LLAMA_PYTHON` is a Python that has
//! `llama-cpp-python[server]`, `GANTRY_LLAMA_MODEL` a small instruction model; see docs/models.md. It tests that both understand each
//! other, not how clever the model is.

use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use gantry_testkit::{Gateway, World, eventually};
use serde_json::Value;

use super::NOBODY;

const PYTHON: &str = "GANTRY_LLAMA_PYTHON";
const MODEL: &str = "GANTRY_LLAMA_MODEL";
const SERVER: &str = include_str!("real_model.py");
/// Its arguments may be no JSON, or its answer nothing.
const TRIES: usize = 5;

struct Server {
    child: Child,
    port: u16,
}

impl Server {
    fn start(python: &str, model: &str) -> Server {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let mut command = Command::new(python);
        command.args(["-c", SERVER, model, &port.to_string()]);
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let server = Server { child, port };
        eventually("the model is loaded", Duration::from_secs(60), || {
            std::net::TcpStream::connect(("127.0.0.1", server.port)).is_ok()
        });
        server
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_real_model_calls_a_tool_and_answers() {
    let (Ok(python), Ok(model)) = (std::env::var(PYTHON), std::env::var(MODEL)) else { return };
    let server = Server::start(&python, &model);
    let world = World::new();
    world.configure(&format!(
        "{NOBODY}[models.limits]\nseconds = 300\n[models.providers.llama]\nbaseUrl = \"http://127.0.0.1:{}/v1\"\n\
         [models.providers.llama.models.small]\ncontextWindow = 8192\nmaxOutput = 200\n\
         [agents.main]\nautonomy = \"guided\"\ntools = [\"Glob\"]\nmaxRequests = 4\n\
         prompt = \"Use the function Glob to find files, then say their names.\"\n",
        server.port
    ));
    world.write("secret-plan.txt", "x\n");
    let _up = Gateway::start(&world);
    let mut seen = Vec::new();
    for number in 0..TRIES {
        let session = format!("try-{number}");
        let ran =
            world.run(&["chat", "--session", &session, "Which text files are there? The pattern is *.txt"]);
        assert!(!ran.stderr.contains("refused the request"), "{ran:?}");
        let exported = world.run(&["sessions", "export", &session]).stdout;
        let events: Vec<Value> = exported.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        // The call was parsed, its result was sent to the model, and the model continued.
        let ended = events.iter().position(|event| event["kind"] == "call_ended");
        let replied = events.iter().rposition(|event| event["kind"] == "replied");
        if ran.code == 0 && ended.is_some() && ended < replied {
            println!("at try {number}: {}", ran.stdout.trim());
            return;
        }
        seen.push((ran.code, ran.stdout, ran.stderr));
    }
    panic!("it called nothing in {TRIES} tries: {seen:?}");
}
