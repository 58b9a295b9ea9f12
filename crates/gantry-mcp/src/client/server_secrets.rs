//! Masks the secrets that a server was given in everything it returns. They are found in plain form, percent-encoded and as
//! base64, also inside longer text such as `user:password`.

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE};
use gantry_store::references;
use gantry_tool::{Masker, Reply};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use super::oauth;
use super::spec::{Place, ProgramSpec, ServerSpec, Surroundings, Variable};

/// Percent-encodings: of most libraries, of browsers, and of paths.
const STRICT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');
const OF_BROWSERS: &AsciiSet = &STRICT.remove(b'!').remove(b'*').remove(b'\'').remove(b'(').remove(b')');
const OF_PATHS: &AsciiSet = &STRICT.remove(b'/');

impl Surroundings {
    /// Returns a masker of all stored secrets and all forms of this server's own, or why they cannot be read.
    pub(super) fn masker(&self, spec: &ServerSpec) -> Result<Masker, String> {
        let stored = self.secrets.all().map_err(|err| err.to_string())?;
        let given = self.given(spec)?;
        let plain = stored.values().map(|secret| secret.expose().to_owned());
        Ok(Masker::new(plain.chain(given.iter().flat_map(|secret| forms(secret)))))
    }

    /// Masks the encoded forms of the server's secrets in an answer. The gate masks the plain form.
    pub(super) fn in_confidence(&self, spec: &ServerSpec, reply: &mut Reply) -> Result<(), String> {
        let given = self.given(spec)?;
        if given.is_empty() {
            return Ok(());
        }
        let masker = Masker::new(given.iter().flat_map(|secret| forms(secret)));
        match reply {
            Reply::Text(text) => masker.mask_text(text),
            Reply::Json(value) => masker.mask_texts(value),
        }
        Ok(())
    }

    /// Returns the secrets in the server's configuration and of its login.
    fn given(&self, spec: &ServerSpec) -> Result<Vec<String>, String> {
        let names: Vec<String> = match &spec.place {
            Place::Program(program) => named(program),
            Place::Address(address) => {
                let texts = address.headers.iter().flat_map(|(_, text)| references(text));
                let login = oauth::secret_names(&spec.name);
                texts.map(|reference| reference.name.to_owned()).chain(login).collect()
            }
        };
        let stored = self.secrets.all().map_err(|err| err.to_string())?;
        let secrets =
            names.iter().filter_map(|name| stored.get(name)).map(|secret| secret.expose().to_owned());
        Ok(secrets.chain(self.inherited(spec)).collect())
    }

    /// Returns the values of a program's variables whose names look secret.
    fn inherited(&self, spec: &ServerSpec) -> Vec<String> {
        let Place::Program(program) = &spec.place else { return Vec::new() };
        let is_given = |name: &str| {
            let given = |variable: &Variable| matches!(variable, Variable::Inherited(own) if own == name);
            Masker::is_secret_name(name) && program.env.iter().any(given)
        };
        let given = self.variables.iter().filter(|(name, _)| name.to_str().is_some_and(is_given));
        given.filter_map(|(_, value)| value.to_str()).map(str::to_owned).collect()
    }
}

fn named(program: &ProgramSpec) -> Vec<String> {
    let secret = |variable: &Variable| match variable {
        Variable::Secret { secret, .. } => Some(secret.clone()),
        Variable::Inherited(_) => None,
    };
    program.env.iter().filter_map(secret).collect()
}

/// Returns all forms of one secret. The masker ignores those that are too short.
fn forms(secret: &str) -> Vec<String> {
    let mut forms = vec![secret.to_owned()];
    for set in [STRICT, OF_BROWSERS, OF_PATHS] {
        let upper = utf8_percent_encode(secret, set).to_string();
        let blank = upper.replace("%20", "+");
        forms.extend([lower_hex(&upper), lower_hex(&blank), upper, blank]);
    }
    for engine in [&STANDARD, &URL_SAFE] {
        let whole = engine.encode(secret);
        forms.extend([whole.trim_end_matches('=').to_owned(), whole]);
        forms
            .extend((0..3).map(|before| {
                within(engine.encode([&[0; 3][..before], secret.as_bytes()].concat()), before)
            }));
    }
    forms.sort_unstable();
    forms.dedup();
    forms
}

/// `%2F` as `%2f`.
fn lower_hex(encoded: &str) -> String {
    let mut parts = encoded.split('%');
    let mut lower = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (hex, rest) = part.split_at_checked(2).unwrap_or((part, ""));
        lower.push('%');
        lower.push_str(&hex.to_ascii_lowercase());
        lower.push_str(rest);
    }
    lower
}

/// Returns the part of a base64 text that depends only on the secret, and not on the text around it.
fn within(encoded: String, before: usize) -> String {
    let of_others = match before {
        0 => 0,
        1 => 2,
        _ => 3,
    };
    let shared = usize::from(encoded.ends_with('='));
    let end = encoded.trim_end_matches('=').len() - shared;
    encoded.get(of_others..end).unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &str = "p/ss+word & 100% süß?";

    fn masked(text: &str) -> String {
        let mut text = text.to_owned();
        Masker::new(forms(SECRET)).mask_text(&mut text);
        text
    }

    #[test]
    fn percent_encoded_forms_are_found() {
        for said in [
            "p%2Fss%2Bword%20%26%20100%25%20s%C3%BC%C3%9F%3F",
            "p%2fss%2bword%20%26%20100%25%20s%c3%bc%c3%9f%3f",
            "p/ss%2Bword%20%26%20100%25%20s%C3%BC%C3%9F%3F",
            "p%2Fss%2Bword+%26+100%25+s%C3%BC%C3%9F%3F",
            SECRET,
        ] {
            assert_eq!(masked(&format!("q={said}&x")), "q=[masked]&x", "{said}");
        }
    }

    #[test]
    fn base64_forms_are_found_at_any_offset() {
        for before in ["", "u", "us", "use", "user:", "Bearer "] {
            for after in ["", "a", "ab", "abc"] {
                for engine in [&STANDARD, &URL_SAFE] {
                    let said = engine.encode(format!("{before}{SECRET}{after}"));
                    let left = masked(&said);
                    assert!(left.contains("[masked]"), "{before:?} {after:?}: {left}");
                    let alphabet = said.trim_end_matches('=').len();
                    let others = 4 * (before.len() + after.len() + 2) / 3 + 2;
                    assert!(left.len() - "[masked]".len() <= others, "{left} of {alphabet}");
                }
            }
        }
        let bare = STANDARD.encode(SECRET);
        assert_eq!(masked(&bare), "[masked]");
        assert_eq!(masked("c29tZXRoaW5nIGVsc2UgYWx0b2dldGhlcg=="), "c29tZXRoaW5nIGVsc2UgYWx0b2dldGhlcg==");
    }
}
