//! The node's token, from a private file or given directly. It is never printed.
#![expect(clippy::disallowed_methods, reason = "the operator names the token's file")]

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

const MAX_TOKEN_BYTES: usize = 1_024;

#[derive(Clone, PartialEq, Eq)]
pub struct Token(String);

impl Token {
    /// White space around the token is removed.
    pub fn new(text: &str) -> Result<Token, TokenError> {
        let text = text.trim();
        let sound = |byte: u8| byte.is_ascii_graphic();
        if text.is_empty() || text.len() > MAX_TOKEN_BYTES || !text.bytes().all(sound) {
            return Err(TokenError::Form);
        }
        Ok(Token(text.to_owned()))
    }

    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}

#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    #[error("invalid token: it must be one word of at most {MAX_TOKEN_BYTES} characters")]
    Form,
    #[error("the token file {} is empty", .0.display())]
    Empty(PathBuf),
    #[error("the token file {path} can be read by others (mode {mode:03o}); run `chmod 600 {path}`", path = path.display())]
    Open { path: PathBuf, mode: u32 },
    #[error("cannot read the token file {}: {source}", path.display())]
    Read { path: PathBuf, source: io::Error },
}

/// Where the token comes from. A file is read again for every connection, so that a renewed token is used.
#[derive(Debug, Clone)]
pub enum TokenSource {
    Given(Token),
    File(PathBuf),
}

impl TokenSource {
    pub fn read(&self) -> Result<Token, TokenError> {
        match self {
            TokenSource::Given(token) => Ok(token.clone()),
            TokenSource::File(path) => read_file(path),
        }
    }
}

fn read_file(path: &Path) -> Result<Token, TokenError> {
    let failed = |source| TokenError::Read { path: path.to_owned(), source };
    let file = File::open(path).map_err(failed)?;
    let metadata = file.metadata().map_err(failed)?;
    if !metadata.is_file() {
        return Err(failed(io::Error::other("not a regular file")));
    }
    let mode = metadata.permissions().mode() & 0o777;
    if mode & 0o077 != 0 {
        return Err(TokenError::Open { path: path.to_owned(), mode });
    }
    let mut text = String::new();
    file.take(2 * MAX_TOKEN_BYTES as u64).read_to_string(&mut text).map_err(failed)?;
    if text.trim().is_empty() {
        return Err(TokenError::Empty(path.to_owned()));
    }
    Token::new(&text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_private_file_is_accepted() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        let check = |content: &str, mode: u32| {
            std::fs::write(&path, content).unwrap();
            std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
            TokenSource::File(path.clone()).read()
        };
        assert_eq!(check("gtn_abc\n", 0o600).unwrap().expose(), "gtn_abc");
        assert!(check("gtn_abc", 0o400).is_ok());
        for mode in [0o640, 0o604, 0o644, 0o660] {
            let message = check("gtn_abc", mode).unwrap_err().to_string();
            assert!(message.contains("chmod 600") && !message.contains("gtn_abc"), "{message}");
        }
        assert!(matches!(check(" \n", 0o600), Err(TokenError::Empty(_))));
        assert!(matches!(check("two words", 0o600), Err(TokenError::Form)));
        assert!(TokenSource::File(folder.path().to_owned()).read().is_err());
        assert!(TokenSource::File(folder.path().join("none")).read().is_err());
    }

    #[test]
    fn a_token_hides_from_logs() {
        let token = Token::new("gtn_secret").unwrap();
        assert!(!format!("{token:?} {:?}", TokenSource::Given(token.clone())).contains("secret"));
    }
}
