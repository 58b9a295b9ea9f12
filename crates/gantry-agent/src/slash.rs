//! What begins with a slash is said to the session, not to the model.

use gantry_model::Thinking;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Slash {
    Stop,
    /// Begin anew.
    New,
    Compact,
    Status,
    /// Without a name: say which one it is.
    Model(Option<String>),
    Think(Thinking),
    /// A question's id, or the only one that is open.
    Approve(Option<String>),
    Deny(Option<String>),
    Always(Option<String>),
    /// A file, a directory or `gsv:` and an object: what is there counts as the owner's own again.
    Trust(String),
    Help,
}

pub(crate) const HELP: &str = "/stop ends the run · /new begins anew · /compact sums up what was said · /status · /model [NAME] · \
     /think off|on|TOKENS · /approve, /always, /deny [ID] answer a question · /trust PATH takes away the label of what others may have written";

/// The command a message is, if it is one; what is wrong with it, if it looks like one.
pub(crate) fn parse(text: &str) -> Option<Result<Slash, String>> {
    let text = text.trim();
    let rest = text.strip_prefix('/')?;
    // A path or several lines are no command.
    if text.lines().count() > 1 || rest.split_whitespace().next().is_none_or(|word| word.contains('/')) {
        return None;
    }
    let (word, argument) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
    let argument = Some(argument.trim()).filter(|argument| !argument.is_empty()).map(str::to_owned);
    Some(match (word.to_lowercase().as_str(), argument) {
        ("stop", None) => Ok(Slash::Stop),
        ("new" | "reset", None) => Ok(Slash::New),
        ("compact", None) => Ok(Slash::Compact),
        ("status", None) => Ok(Slash::Status),
        ("model", name) => Ok(Slash::Model(name)),
        ("think" | "t", Some(level)) => thinking(&level).map(Slash::Think),
        ("think" | "t", None) => Err("say /think off, /think on, or how many tokens".into()),
        ("approve" | "yes", id) => Ok(Slash::Approve(id)),
        ("deny" | "no", id) => Ok(Slash::Deny(id)),
        ("always", id) => Ok(Slash::Always(id)),
        ("trust", Some(place)) => Ok(Slash::Trust(place)),
        ("trust", None) => Err("say which file, directory or gsv:OBJECT to trust".into()),
        ("help" | "?", None) => Ok(Slash::Help),
        (word, _) => Err(format!("/{word} is no command, or takes nothing; {HELP}")),
    })
}

fn thinking(level: &str) -> Result<Thinking, String> {
    match level {
        "off" | "none" => Ok(Thinking::Off),
        "on" | "adaptive" | "low" | "medium" | "high" => Ok(Thinking::Adaptive),
        number => {
            let tokens =
                number.parse().map_err(|_| format!("{number:?} is not off, on or a number of tokens"))?;
            Ok(Thinking::Budget(tokens))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_told_from_messages() {
        assert_eq!(parse(" /STOP "), Some(Ok(Slash::Stop)));
        assert_eq!(parse("/model local/qwen"), Some(Ok(Slash::Model(Some("local/qwen".into())))));
        assert_eq!(parse("/think 2000"), Some(Ok(Slash::Think(Thinking::Budget(2000)))));
        assert_eq!(parse("/yes a1b2"), Some(Ok(Slash::Approve(Some("a1b2".into())))));
        for message in ["stop", "/etc/passwd is what?", "/stop\nand more", "", "/"] {
            assert_eq!(parse(message), None, "{message:?}");
        }
        for wrong in ["/stopp", "/think", "/think much", "/new session"] {
            assert!(matches!(parse(wrong), Some(Err(_))), "{wrong:?}");
        }
    }
}
