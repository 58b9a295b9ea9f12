//! Separates thinking that a model writes into its answer, between `<think>` and `</think>` at the
//! very start. Servers that do not know the model's format pass the tags on as text.

const OPEN: &str = "<think>";
const CLOSE: &str = "</think>";

/// `ThinkTags` splits the text of one answer as it arrives. A tag may be split between any two
/// pieces.
#[derive(Debug, Default)]
pub(super) struct ThinkTags {
    state: State,
    /// Text that may still turn out to be a tag.
    held: String,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Only white space and a part of the tag have arrived.
    #[default]
    Begin,
    /// The tag has arrived, but no thinking yet.
    Opened,
    Thinking,
    /// The thinking has ended, but nothing of the answer has arrived.
    Between,
    Text,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Piece {
    Text(String),
    Thinking(String),
}

impl ThinkTags {
    pub(super) fn feed(&mut self, text: &str) -> Vec<Piece> {
        self.held.push_str(text);
        let mut pieces = Vec::new();
        loop {
            match self.state {
                State::Begin => {
                    let begins = self.held.trim_start();
                    if let Some(rest) = begins.strip_prefix(OPEN) {
                        self.held = rest.to_owned();
                        self.state = State::Opened;
                    } else if OPEN.starts_with(begins) {
                        break;
                    } else {
                        self.state = State::Text;
                    }
                }
                State::Thinking => match self.held.split_once(CLOSE) {
                    Some((thought, rest)) => {
                        push(&mut pieces, Piece::Thinking, thought);
                        self.held = rest.to_owned();
                        self.state = State::Between;
                    }
                    None => {
                        let sure = self.held.len() - tag_begun_at_end(&self.held);
                        let thought: String = self.held.drain(..sure).collect();
                        push(&mut pieces, Piece::Thinking, &thought);
                        break;
                    }
                },
                State::Opened | State::Between => {
                    self.held = self.held.trim_start().to_owned();
                    if self.held.is_empty() {
                        break;
                    }
                    self.state = if self.state == State::Opened { State::Thinking } else { State::Text };
                }
                State::Text => {
                    push(&mut pieces, Piece::Text, &std::mem::take(&mut self.held));
                    break;
                }
            }
        }
        pieces
    }

    /// Returns what was held back when the answer ended.
    pub(super) fn finish(&mut self) -> Option<Piece> {
        let held = std::mem::take(&mut self.held);
        let piece = if self.state == State::Thinking { Piece::Thinking } else { Piece::Text };
        (!held.is_empty()).then(|| piece(held))
    }
}

fn push(pieces: &mut Vec<Piece>, piece: fn(String) -> Piece, text: &str) {
    if !text.is_empty() {
        pieces.push(piece(text.to_owned()));
    }
}

/// Returns how many bytes at the end may be the start of the closing tag.
fn tag_begun_at_end(text: &str) -> usize {
    (1..CLOSE.len()).rev().find(|length| text.ends_with(&CLOSE[..*length])).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks every way to split the text: first the thinking, then the answer.
    fn check(text: &str, thinking: &str, answer: &str) {
        for size in 1..=text.len() {
            let mut tags = ThinkTags::default();
            let (mut thought, mut said) = (String::new(), String::new());
            let letters: Vec<char> = text.chars().collect();
            let cut: Vec<String> = letters.chunks(size).map(|piece| piece.iter().collect()).collect();
            let mut pieces: Vec<Piece> = cut.iter().flat_map(|piece| tags.feed(piece)).collect();
            pieces.extend(tags.finish());
            for piece in pieces {
                match piece {
                    Piece::Text(text) => said.push_str(&text),
                    Piece::Thinking(text) => thought.push_str(&text),
                }
            }
            assert_eq!((thought.as_str(), said.as_str()), (thinking, answer), "{text:?} by {size}");
        }
    }

    #[test]
    fn thinking_at_the_start_is_split_off() {
        check("<think>\nhm < 3</think>\n\nYes.", "hm < 3", "Yes.");
        check(" \n<think>hm</think>Yes <think>no tag</think>.", "hm", "Yes <think>no tag</think>.");
        check("<think></think>Yes", "", "Yes");
        check("<think>never ends </thin", "never ends </thin", "");
    }

    #[test]
    fn other_text_is_unchanged() {
        check("Yes, <think>is a tag</think>", "", "Yes, <think>is a tag</think>");
        check("<thin", "", "<thin");
        check("  <b>x</b>", "", "  <b>x</b>");
        check("ü", "", "ü");
    }
}
