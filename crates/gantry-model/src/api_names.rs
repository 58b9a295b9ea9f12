//! Rewrites names of tools and ids of calls into a form that every API accepts.
//!
//! A model may write any text as a name, and each provider creates ids in its own way. One that
//! another API refuses would fail every later request of the session. Only the outgoing request is
//! rewritten; the conversation keeps what the model wrote.

use std::collections::{HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};

/// OpenAI accepts names of at most 64 characters.
const MAX_NAME_CHARS: usize = 64;
/// OpenAI accepts ids of at most 40 characters.
const MAX_ID_CHARS: usize = 40;

/// `NameRewriter` holds the names of one request. A name is always sent in the same form, and two names
/// never share a form.
#[derive(Debug, Default)]
pub(crate) struct NameRewriter {
    sent: HashMap<String, String>,
    unique: Unique,
}

impl NameRewriter {
    /// `offered` are the tools of the request, which keep their names.
    pub(crate) fn new<'a>(offered: impl Iterator<Item = &'a str>) -> NameRewriter {
        let mut names = NameRewriter::default();
        for name in offered {
            names.unique.taken.insert(name.to_owned());
            names.sent.insert(name.to_owned(), name.to_owned());
        }
        names
    }

    pub(crate) fn accept(&mut self, name: &str) -> String {
        // An offered tool may be written with `::` or `__`.
        let known = self.sent.get(name).or_else(|| self.sent.get(&name.replace("::", "__")));
        if let Some(known) = known {
            return known.clone();
        }
        let accepted = self.unique.make(name, MAX_NAME_CHARS);
        self.sent.insert(name.to_owned(), accepted.clone());
        accepted
    }
}

/// `IdRewriter` holds the ids of one request. Anthropic requires all ids of a conversation to be
/// different.
#[derive(Debug, Default)]
pub(crate) struct IdRewriter {
    unique: Unique,
}

impl IdRewriter {
    /// Returns a form that no earlier call of the request has. It depends only on the calls before
    /// it, so a longer conversation begins with the same bytes.
    pub(crate) fn accept(&mut self, id: &str) -> String {
        self.unique.make(id, MAX_ID_CHARS)
    }
}

#[derive(Debug, Default)]
struct Unique {
    taken: HashSet<String>,
    /// How often each plain form was requested.
    copies: HashMap<String, u64>,
}

impl Unique {
    fn make(&mut self, text: &str, longest: usize) -> String {
        let plain = plain(text, longest);
        let copies = self.copies.entry(plain.clone()).or_insert(0);
        loop {
            *copies += 1;
            let accepted = match *copies {
                1 => plain.clone(),
                number => {
                    let end = format!("_{number}");
                    format!("{}{end}", &plain[..plain.len().min(longest - end.len())])
                }
            };
            if self.taken.insert(accepted.clone()) {
                return accepted;
            }
        }
    }
}

/// Keeps letters, digits, `_` and `-`. A text that is too long ends with a hash of the whole.
fn plain(text: &str, longest: usize) -> String {
    let fits = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    let plain: String = text.chars().map(|c| if fits(c) { c } else { '_' }).take(longest + 1).collect();
    if plain.is_empty() {
        return "_".to_owned();
    }
    if plain.len() <= longest {
        return plain;
    }
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    let hash = format!("_{:016x}", hasher.finish());
    format!("{}{hash}", &plain[..longest - hash.len()])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_rewritten_consistently_and_stay_distinct() {
        let mut names = NameRewriter::new(["Bash", "tool__file_read", "a_b"].into_iter());
        assert_eq!(names.accept("Bash"), "Bash");
        assert_eq!(names.accept("tool::file_read"), "tool__file_read");
        assert_eq!(names.accept("multi_tool_use.parallel"), "multi_tool_use_parallel");
        assert_eq!(names.accept("multi_tool_use:parallel"), "multi_tool_use_parallel_2");
        assert_eq!(names.accept("multi_tool_use.parallel"), "multi_tool_use_parallel");
        assert_eq!(names.accept("a.b"), "a_b_2", "a tool of that name is offered");
        assert_eq!(names.accept(""), "_");
        let long = names.accept(&"x".repeat(1_000));
        assert_eq!(long.len(), MAX_NAME_CHARS);
        assert_ne!(long, names.accept(&"x".repeat(1_001)));
    }

    #[test]
    fn ids_are_distinct_and_short() {
        let mut ids = IdRewriter::default();
        let long = format!("toolu_{}", "1".repeat(60));
        let sent: Vec<String> =
            ["c", "c", "c_2", "c", &long, &long, "", "ü:"].iter().map(|id| ids.accept(id)).collect();
        let distinct: HashSet<&String> = sent.iter().collect();
        assert_eq!(distinct.len(), sent.len(), "{sent:?}");
        assert!(sent.iter().all(|id| (1..=MAX_ID_CHARS).contains(&id.len())), "{sent:?}");
        assert_eq!(sent[..4], ["c", "c_2", "c_2_2", "c_3"]);
    }
}
