//! A command at a terminal. `script` provides the terminal, and the test types keys and reads the screen.

use std::io::{Read, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::{SOON, World, eventually, program};

/// `Terminal` is a running command with a terminal.
pub struct Terminal {
    child: Child,
    keys: ChildStdin,
    screen: Arc<Mutex<String>>,
    reader: Option<JoinHandle<()>>,
    /// How much of the screen was matched so far.
    seen: usize,
}

impl Terminal {
    /// Runs `gantry` with these arguments, as a shell reads them.
    pub fn open(world: &World, args: &str) -> Terminal {
        Terminal::start(world, &format!("{} {args}", program().display()))
    }

    /// Runs `gantry` on a terminal of that width.
    pub fn open_sized(world: &World, columns: u16, args: &str) -> Terminal {
        let gantry = program().display();
        let line = format!("stty cols {columns} rows 40; TERM=xterm {gantry} {args}");
        Terminal::start(world, &line)
    }

    /// Runs `gantry` on a terminal of that width with further variables, such as `NO_COLOR=1`.
    pub fn open_with(world: &World, columns: u16, variables: &str, args: &str) -> Terminal {
        let gantry = program().display();
        Terminal::start(
            world,
            &format!("stty cols {columns} rows 40; TERM=xterm {variables} {gantry} {args}"),
        )
    }

    fn start(world: &World, line: &str) -> Terminal {
        let like = world.command(&[]);
        let mut command = Command::new("script");
        command.args(["-qfec", line, "/dev/null"]).current_dir(world.workspace()).env_clear();
        command.envs(like.get_envs().filter_map(|(name, value)| Some((name, value?))));
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("script is installed");
        let mut output = child.stdout.take().unwrap();
        let screen = Arc::new(Mutex::new(String::new()));
        let shown = screen.clone();
        let reader = std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(read @ 1..) = output.read(&mut bytes) {
                shown.lock().unwrap().push_str(&String::from_utf8_lossy(&bytes[..read]));
            }
        });
        let keys = child.stdin.take().unwrap();
        Terminal { child, keys, screen, reader: Some(reader), seen: 0 }
    }

    /// Returns everything that was printed so far.
    pub fn screen(&self) -> String {
        self.screen.lock().unwrap().clone()
    }

    pub fn type_keys(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).unwrap();
        self.keys.flush().unwrap();
    }

    /// Waits for a text after the last one that was found.
    pub fn sees(&mut self, text: &str) {
        let until = Instant::now() + SOON;
        loop {
            let screen = self.screen.lock().unwrap().clone();
            if let Some(at) = screen[self.seen..].find(text) {
                self.seen += at + text.len();
                return;
            }
            assert!(Instant::now() < until, "{text:?} is not on {:?}", &screen[self.seen..]);
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Waits for the command to end and returns everything that it printed.
    pub fn whole(mut self) -> String {
        self.ends();
        if let Some(reader) = self.reader.take() {
            reader.join().unwrap();
        }
        self.screen()
    }

    /// Waits for the command to end.
    pub fn ends(&mut self) {
        let child = &mut self.child;
        eventually("the command ends", SOON, || child.try_wait().unwrap().is_some());
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
