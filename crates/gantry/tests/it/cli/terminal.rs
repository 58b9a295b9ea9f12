//! Commands at a terminal: `script` gives them one, keys are typed, and what is on the screen is read.

use std::io::{Read, Write};
use std::process::{Child, ChildStdin, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::gateway::{Up, eventually};
use crate::run::World;

pub(crate) struct Terminal {
    child: Child,
    keys: ChildStdin,
    screen: Arc<Mutex<String>>,
    /// How much of it was looked at.
    seen: usize,
}

impl Terminal {
    /// Runs `gantry` with these arguments, as a shell reads them.
    pub(crate) fn open(world: &World, args: &str) -> Terminal {
        Terminal::start(world, &format!("{} {args}", env!("CARGO_BIN_EXE_gantry")))
    }

    /// On a terminal whose width is known.
    pub(crate) fn open_sized(world: &World, columns: u16, args: &str) -> Terminal {
        let gantry = env!("CARGO_BIN_EXE_gantry");
        let line = format!("stty cols {columns} rows 40; TERM=xterm {gantry} {args}");
        Terminal::start(world, &line)
    }

    fn start(world: &World, line: &str) -> Terminal {
        let like = world.command(&[]);
        let mut command = std::process::Command::new("script");
        command.args(["-qfec", line, "/dev/null"]).current_dir(world.workspace()).env_clear();
        command.envs(like.get_envs().filter_map(|(name, value)| Some((name, value?))));
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("script is installed");
        let mut output = child.stdout.take().unwrap();
        let screen = Arc::new(Mutex::new(String::new()));
        let shown = screen.clone();
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(read @ 1..) = output.read(&mut bytes) {
                shown.lock().unwrap().push_str(&String::from_utf8_lossy(&bytes[..read]));
            }
        });
        let keys = child.stdin.take().unwrap();
        Terminal { child, keys, screen, seen: 0 }
    }

    /// All that was on it.
    pub(crate) fn screen(&self) -> String {
        self.screen.lock().unwrap().clone()
    }

    pub(crate) fn type_keys(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).unwrap();
        self.keys.flush().unwrap();
    }

    /// Waits for a text that was not there before.
    pub(crate) fn sees(&mut self, text: &str) {
        let until = std::time::Instant::now() + Duration::from_secs(20);
        loop {
            let screen = self.screen.lock().unwrap().clone();
            if let Some(at) = screen[self.seen..].find(text) {
                self.seen += at + text.len();
                return;
            }
            assert!(std::time::Instant::now() < until, "{text:?} is not on {:?}", &screen[self.seen..]);
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    pub(crate) fn ends(&mut self) {
        let child = &mut self.child;
        eventually("the command ends", Duration::from_secs(20), || child.try_wait().unwrap().is_some());
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What a command leaves on the screen.
fn shown(world: &World, args: &str) -> String {
    let mut terminal = Terminal::open(world, args);
    terminal.ends();
    // The last of it may still be on its way.
    let mut before = None;
    eventually("all is on the screen", Duration::from_secs(20), || {
        std::thread::sleep(Duration::from_millis(100));
        let now = terminal.screen();
        before.replace(now.clone()) == Some(now)
    });
    terminal.screen()
}

#[test]
fn an_error_is_shown_once_and_in_words() {
    let world = World::new();
    let up = Up::start(&world);
    for (args, words) in [
        ("call Read '{\"path\": \"nope.txt\"}'", "nope.txt"),
        ("call Read '{\"pth\": 1}'", "unknown field"),
        ("call Raed", "did you mean Read"),
        ("call Read --local", "has 1 error"),
        ("transfer nosuch:x local:y", "nosuch"),
        ("logs nosuch", "nosuch"),
        ("sessions show nosuch", "nosuch"),
        ("nosuch", "unrecognized subcommand"),
        ("config get nosuch", "unknown configuration key"),
    ] {
        let screen = shown(&world, args);
        assert_eq!(screen.matches("error:").count(), 1, "{args}: {screen}");
        assert!(screen.contains(words) && !screen.contains("\"error\""), "{args}: {screen}");
        // A program gets the object, on a terminal too if it asks for it.
        let screen = shown(&world, &format!("--json {args}"));
        assert!(screen.contains("\"error\""), "{args}: {screen}");
    }
    drop(up);
}

#[test]
fn long_lines_break_between_words() {
    let world = World::new();
    let mut terminal = Terminal::open_sized(&world, 80, "tools --local Bash");
    terminal.sees("--json prints the whole schemas");
    terminal.ends();
    let screen = terminal.screen();
    assert!(screen.lines().all(|line| line.chars().count() <= 90), "{screen}");
}
