//! Reads one line from the terminal without echo.

use std::io::BufRead;

use anyhow::{Context, Result, bail};
use gantry_store::MAX_SECRET_BYTES;
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};

use crate::output::question;

const INTERRUPT: u8 = 3;
const END: u8 = 4;
const KILL_LINE: u8 = 21;

pub(crate) fn read_line(prompt: &str) -> Result<Vec<u8>> {
    // The echo goes first: it drops what was typed before, and whoever sees the prompt may type at once.
    let quiet = Quiet::start().context("cannot turn off the terminal's echo")?;
    question(prompt);
    let line = read_keys(std::io::stdin().lock());
    drop(quiet);
    question("\n");
    line
}

/// Reads keys one by one, so that the terminal is restored before an interrupt ends the program.
fn read_keys(input: impl BufRead) -> Result<Vec<u8>> {
    let mut line = Vec::new();
    for key in input.bytes() {
        match key.context("cannot read from the terminal")? {
            b'\n' | b'\r' => return Ok(line),
            INTERRUPT => bail!("interrupted; nothing was stored"),
            END if line.is_empty() => bail!("no value was given; nothing was stored"),
            END => return Ok(line),
            KILL_LINE => line.clear(),
            8 | 127 => {
                // Remove a whole UTF-8 character.
                while line.pop().is_some_and(|byte| byte & 0xC0 == 0x80) {}
            }
            byte if line.len() <= MAX_SECRET_BYTES => line.push(byte),
            _ => bail!("the value is longer than 64 KiB"),
        }
    }
    Ok(line)
}

/// Turns off echo while it exists.
struct Quiet {
    before: Termios,
}

impl Quiet {
    fn start() -> rustix::io::Result<Quiet> {
        let before = tcgetattr(std::io::stdin())?;
        let mut quiet = before.clone();
        quiet.local_modes.remove(LocalModes::ECHO | LocalModes::ICANON | LocalModes::ISIG);
        tcsetattr(std::io::stdin(), OptionalActions::Flush, &quiet)?;
        Ok(Quiet { before })
    }
}

impl Drop for Quiet {
    fn drop(&mut self) {
        let _ = tcsetattr(std::io::stdin(), OptionalActions::Flush, &self.before);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_read_as_one_line() {
        let line = |keys: &[u8]| read_keys(keys).map_err(|err| err.to_string());
        assert_eq!(line(b"value\nmore"), Ok(b"value".to_vec()));
        assert_eq!(line("vax\u{7f}l\u{e9}\u{7f}ue\r".as_bytes()), Ok(b"value".to_vec()));
        assert_eq!(line(b"wrong\x15right\x04"), Ok(b"right".to_vec()));
        assert_eq!(line(b"val\x03\n"), Err("interrupted; nothing was stored".into()));
        assert_eq!(line(b"\x04"), Err("no value was given; nothing was stored".into()));
        assert!(line(&vec![b'x'; MAX_SECRET_BYTES + 2]).is_err());
    }
}
