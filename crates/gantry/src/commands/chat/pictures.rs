//! Pictures in a message: `@shot.png` attaches the file of this machine.

use std::path::Path;

use anyhow::Result;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use gantry_files::{Files, FilesOptions, media};
use gantry_protocol::{MAX_PICTURE_BYTES, MAX_PICTURES, Picture};

use crate::environment::Environment;
use crate::exit::UsageError;

/// Endings of the names of pictures. The content decides about the type.
const ENDINGS: [&str; 5] = [".png", ".jpg", ".jpeg", ".gif", ".webp"];

/// Reads the pictures that a message names. Paths start in `directory`.
pub(super) fn of(environment: &Environment, directory: &Path, message: &str) -> Result<Vec<Picture>> {
    let mut pictures = Vec::new();
    for name in named(message) {
        pictures.push(read(environment, directory, name)?);
    }
    let total: usize = pictures.iter().map(|picture| picture.data.len()).sum();
    if pictures.len() > MAX_PICTURES || total > MAX_PICTURE_BYTES {
        let limit = format!("at most {MAX_PICTURES} pictures and {} MB together", MAX_PICTURE_BYTES >> 20);
        return Err(UsageError(format!("cannot attach the pictures: a message may have {limit}"))
            .with_hint("send them in several messages, or make them smaller")
            .into());
    }
    Ok(pictures)
}

/// Returns the paths after `@` that end like a picture. Each counts once.
fn named(message: &str) -> Vec<&str> {
    let mut names: Vec<&str> = Vec::new();
    for word in message.split_whitespace() {
        let Some(path) = word.strip_prefix('@') else { continue };
        let path = path.trim_end_matches(['.', ',', ';', ':', '!', '?', ')']);
        let lower = path.to_lowercase();
        if ENDINGS.iter().any(|ending| lower.ends_with(ending)) && !names.contains(&path) {
            names.push(path);
        }
    }
    names
}

fn read(environment: &Environment, directory: &Path, name: &str) -> Result<Picture> {
    let cannot = |why: String| {
        UsageError(format!("cannot attach {name}: {why}"))
            .with_hint("name a picture below the current directory, or write the name without @")
    };
    let files = Files::new(FilesOptions { closed: environment.closed(), pending_dir: None })?;
    let scope = files.free(directory)?;
    let path = environment.expand_home(Path::new(name));
    // Base64 has four characters for three bytes.
    let limit = MAX_PICTURE_BYTES as u64 / 4 * 3;
    let bytes =
        scope.open(&path).and_then(|file| file.read_all(limit)).map_err(|err| cannot(err.to_string()))?;
    let media_type = media::mime(&bytes);
    if !gantry_protocol::is_picture_type(media_type) {
        return Err(cannot(format!("it is not a PNG, JPEG, GIF or WebP picture ({media_type})")).into());
    }
    Ok(Picture { media_type: media_type.to_owned(), data: STANDARD.encode(&bytes) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_words_that_name_a_picture_attach_one() {
        assert_eq!(named("compare @a.png with @b/C.JPEG, please"), ["a.png", "b/C.JPEG"]);
        assert_eq!(named("@a.png @a.png"), ["a.png"]);
        assert_eq!(named("read @src/main.rs, mail me@x.png and a.png"), [""; 0]);
    }
}
