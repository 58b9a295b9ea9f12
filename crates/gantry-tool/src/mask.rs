//! Secrets out of audit lines and results: known values everywhere, secret-looking names in inputs.

use std::sync::Arc;

use serde_json::Value;

const MASK: &str = "[masked]";

/// A known value shorter than this would mask half of every text.
pub const SHORTEST_SECRET: usize = 8;

/// Words that make a name secret wherever they stand in it: `MY_AUTH`, `stripeKey`.
const SECRET_WORDS: [&str; 6] = ["key", "keys", "auth", "token", "cookie", "passphrase"];
/// Parts that make a name secret even inside a word: `apikey`, `accesstoken`, `dbpassword`.
const SECRET_PARTS: [&str; 8] =
    ["secret", "password", "passwd", "credential", "apikey", "accesskey", "authorization", "authtoken"];

/// Secrets that come and go while the process runs. `gantry-store` keeps them.
pub trait SecretSource: Send + Sync + std::fmt::Debug {
    /// Every value as it is now, the longest first. Asked with each call: it must be cheap.
    fn values(&self) -> Arc<[String]>;
}

/// Knows the secrets of this process and removes them from what is shown or recorded.
#[derive(Debug, Clone, Default)]
pub struct Masker {
    known: Arc<[String]>,
    /// What the source held, once asked.
    stored: Arc<[String]>,
    source: Option<Arc<dyn SecretSource>>,
}

impl Masker {
    pub fn new(values: impl IntoIterator<Item = String>) -> Masker {
        let mut known: Vec<String> =
            values.into_iter().filter(|value| value.len() >= SHORTEST_SECRET).collect();
        // The longest first, so that a secret which contains another is masked whole.
        known.sort_by_key(|value| std::cmp::Reverse(value.len()));
        known.dedup();
        Masker { known: known.into(), ..Masker::default() }
    }

    /// Also what the source holds at the time of each call.
    pub fn following(self, source: Arc<dyn SecretSource>) -> Masker {
        Masker { source: Some(source), ..self }
    }

    /// As it is now, for work on many texts: the source is asked once.
    pub(crate) fn now(&self) -> Masker {
        let [stored, known] = self.lists();
        Masker { known, stored, source: None }
    }

    /// True for names such as `apiKey`, `api_key`, `GITHUB_TOKEN`, `MY_AUTH`, `password`.
    pub fn is_secret_name(name: &str) -> bool {
        let plain: String =
            name.chars().filter(|c| c.is_alphanumeric()).flat_map(char::to_lowercase).collect();
        SECRET_PARTS.iter().any(|part| plain.contains(part))
            || words(name).iter().any(|word| SECRET_WORDS.contains(&word.as_str()))
    }

    /// The longest known secret, in bytes: how far one can reach across a cut.
    pub(crate) fn longest_secret(&self) -> usize {
        self.lists().iter().filter_map(|list| list.first()).map(String::len).max().unwrap_or(0)
    }

    /// Known secret values replaced, all else untouched.
    pub fn mask_text(&self, text: &mut String) {
        mask_text(&self.lists(), text);
    }

    pub fn mask_values(&self, value: &mut Value) {
        let lists = self.lists();
        if lists.iter().any(|list| !list.is_empty()) {
            mask_values(&lists, value);
        }
    }

    /// Known values and everything under a secret-looking name replaced.
    pub fn mask_names_and_values(&self, value: &mut Value) {
        mask_names_and_values(&self.lists(), value);
    }

    /// What is known now; the source's values first, since they are the ones tools send out.
    fn lists(&self) -> [Arc<[String]>; 2] {
        let stored = self.source.as_ref().map_or_else(|| self.stored.clone(), |source| source.values());
        [stored, self.known.clone()]
    }
}

type Lists = [Arc<[String]>; 2];

fn mask_text(lists: &Lists, text: &mut String) {
    for secret in lists.iter().flat_map(|list| list.iter()).filter(|secret| secret.len() >= SHORTEST_SECRET) {
        if text.contains(secret.as_str()) {
            *text = text.replace(secret.as_str(), MASK);
        }
    }
}

fn mask_values(lists: &Lists, value: &mut Value) {
    match value {
        Value::String(text) => mask_text(lists, text),
        Value::Array(items) => items.iter_mut().for_each(|item| mask_values(lists, item)),
        Value::Object(object) => object.values_mut().for_each(|item| mask_values(lists, item)),
        _ => {}
    }
}

fn mask_names_and_values(lists: &Lists, value: &mut Value) {
    match value {
        Value::String(text) => mask_text(lists, text),
        Value::Array(items) => items.iter_mut().for_each(|item| mask_names_and_values(lists, item)),
        Value::Object(object) => {
            for (name, item) in object.iter_mut() {
                if Masker::is_secret_name(name) && !item.is_null() {
                    *item = Value::String(MASK.to_owned());
                } else {
                    mask_names_and_values(lists, item);
                }
            }
        }
        _ => {}
    }
}

/// The words of `snake_case`, `kebab-case`, `CAPS_CASE` and `camelCase` names, in lower case.
fn words(name: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut after_lower = false;
    for c in name.chars() {
        if !c.is_alphanumeric() || (c.is_uppercase() && after_lower) {
            words.push(String::new());
        }
        if let Some(word) = words.last_mut().filter(|_| c.is_alphanumeric()) {
            word.extend(c.to_lowercase());
        }
        after_lower = c.is_lowercase() || c.is_numeric();
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn masks_known_values_and_secret_names() {
        let masker = Masker::new(["hunter2-hunter2".to_owned(), "short".to_owned()]);
        let mut value =
            json!({"command": "curl -H hunter2-hunter2", "env": {"API_TOKEN": "x", "A": "short"}, "key": 7});
        masker.mask_names_and_values(&mut value);
        assert_eq!(
            value,
            json!({"command": "curl -H [masked]", "env": {"API_TOKEN": "[masked]", "A": "short"}, "key": "[masked]"})
        );
    }

    #[test]
    fn what_becomes_known_later_is_masked_from_then_on() {
        #[derive(Debug, Default)]
        struct Changing(std::sync::Mutex<Vec<String>>);
        impl SecretSource for Changing {
            fn values(&self) -> Arc<[String]> {
                self.0.lock().unwrap().clone().into()
            }
        }
        let source = Arc::new(Changing::default());
        let masker = Masker::new(["fixed-secret".to_owned()]).following(source.clone());
        let masked = |text: &str| {
            let (mut text, mut value) = (text.to_owned(), json!([{"a": text}]));
            masker.mask_text(&mut text);
            masker.mask_values(&mut value);
            assert_eq!(value, json!([{"a": text}]));
            text
        };
        assert_eq!(masked("fixed-secret later-secret"), "[masked] later-secret");
        source.0.lock().unwrap().push("later-secret".into());
        assert_eq!(
            (masked("fixed-secret later-secret"), masker.longest_secret()),
            ("[masked] [masked]".into(), 12)
        );
        source.0.lock().unwrap().clear();
        assert_eq!(masked("later-secret"), "later-secret");
    }

    #[test]
    fn names_are_judged_by_their_words() {
        for name in [
            "STRIPE_KEY",
            "apiKey",
            "MY_AUTH",
            "accessToken",
            "GITHUB_TOKEN",
            "db-password",
            "Cookie",
            "APIKEY",
        ] {
            assert!(Masker::is_secret_name(name), "{name}");
        }
        for name in
            ["path", "content", "keyboard", "monkey", "line_numbers", "tokenizer", "author", "oldString"]
        {
            assert!(!Masker::is_secret_name(name), "{name}");
        }
    }
}
