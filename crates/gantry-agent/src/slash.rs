//! Slash commands: messages that start with a slash are commands to the session, not input for the model.

use gantry_model::{Effort, Thinking};

use crate::lasting_approval::LastingApproval;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Slash {
    Stop,
    /// Reset the conversation.
    New,
    Compact,
    Status,
    /// Set the model. Without a name, show the current one.
    Model(Option<String>),
    Think(Thinking, Option<Effort>),
    /// The id of a question. The only open question when `None`.
    Approve(Option<String>),
    Deny(Option<String>),
    /// As `Approve`, with a scope and a duration.
    Always(Option<String>, LastingApproval),
    /// Remove the untrusted mark from a file, a directory or `gsv:OBJECT`.
    Trust(String),
    Help,
}

/// The commands: name, arguments and what it does.
pub const SLASH_COMMANDS: &[(&str, &str, &str)] = &[
    ("help", "", "List the commands"),
    ("status", "", "Show the model, the run, the directory and the labels"),
    ("stop", "", "Stop the run"),
    ("new", "", "Start over; the journal keeps the earlier messages"),
    ("compact", "", "Replace earlier messages by a summary"),
    ("model", "[NAME]", "Show or choose the model"),
    ("think", "LEVEL", "Choose how much the model thinks: off, on, low, medium, high or a number of tokens"),
    ("approve", "[ID]", "Answer yes to a question"),
    ("deny", "[ID]", "Answer no to a question"),
    (
        "always",
        "[…]",
        "Allow later calls too: /always 1 takes an offer, /always 8h a time, /always any any arguments",
    ),
    ("trust", "PATH", "Remove the untrusted mark from a file or directory"),
];

/// Returns the commands as lines of a table, with those of other domains.
pub(crate) fn help(more: &[(&str, &str, &str)]) -> String {
    let usage = |name: &str, arguments: &str| format!("/{name} {arguments}").trim_end().to_owned();
    let all = || SLASH_COMMANDS.iter().chain(more);
    let width = all().map(|(name, arguments, _)| usage(name, arguments).len()).max();
    let width = width.unwrap_or_default();
    let line =
        |(name, arguments, about): &(&str, &str, &str)| format!("{:width$}  {about}", usage(name, arguments));
    all().map(line).collect::<Vec<_>>().join("\n")
}

/// Returns the word of a command in lower case, and its argument. Returns `None` for a message that is not a command.
pub(crate) fn word(text: &str) -> Option<(String, Option<String>)> {
    let text = text.trim();
    let rest = text.strip_prefix('/')?;
    // A path and several lines are messages.
    if text.lines().count() > 1 || rest.split_whitespace().next().is_none_or(|word| word.contains('/')) {
        return None;
    }
    let (word, argument) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
    let argument = Some(argument.trim()).filter(|argument| !argument.is_empty()).map(str::to_owned);
    Some((word.to_lowercase(), argument))
}

/// Parses a command. Returns `None` for a message that is not a command, and an error for an invalid command.
pub(crate) fn parse(text: &str) -> Option<Result<Slash, String>> {
    let (word, argument) = word(text)?;
    Some(match (word.as_str(), argument) {
        ("stop", None) => Ok(Slash::Stop),
        ("new" | "reset", None) => Ok(Slash::New),
        ("compact", None) => Ok(Slash::Compact),
        ("status", None) => Ok(Slash::Status),
        ("model", name) => Ok(Slash::Model(name)),
        ("think" | "t", Some(level)) => {
            thinking(&level).map(|(thinking, effort)| Slash::Think(thinking, effort))
        }
        ("think" | "t", None) => Err("/think needs off, on, low, medium, high or a number of tokens".into()),
        ("approve" | "yes", id) => Ok(Slash::Approve(id)),
        ("deny" | "no", id) => Ok(Slash::Deny(id)),
        ("always", words) => always(words.as_deref().unwrap_or_default()),
        ("trust", Some(place)) => Ok(Slash::Trust(place)),
        ("trust", None) => Err("/trust needs a path, such as /trust notes.md or /trust gsv:notes.md".into()),
        ("help" | "?", None) => Ok(Slash::Help),
        (word @ ("stop" | "new" | "reset" | "compact" | "status" | "help" | "?"), Some(_)) => {
            Err(format!("/{word} takes no argument; /help lists the commands"))
        }
        (word, _) => Err(format!("unknown command /{word}; /help lists the commands")),
    })
}

/// Whether a command, by any of its names, answers a question or widens what is trusted.
pub(crate) fn answers_questions(name: &str) -> bool {
    ["", " x"].iter().any(|argument| {
        let parsed = parse(&format!("/{name}{argument}"));
        matches!(parsed, Some(Ok(Slash::Approve(_) | Slash::Deny(_) | Slash::Always(..) | Slash::Trust(_))))
    })
}

/// Parses the arguments of `/always`.
fn always(words: &str) -> Result<Slash, String> {
    match LastingApproval::parse(words.split_whitespace()) {
        (always, left) if left.len() <= 1 => Ok(Slash::Always(left.first().map(|&id| id.to_owned()), always)),
        (_, left) => Err(format!("/always takes an id, a time such as 8h or 7d, and \"any\"; not {left:?}")),
    }
}

/// Parses a thinking mode and its effort: off, on, low, medium, high or a number of tokens.
pub fn thinking(level: &str) -> Result<(Thinking, Option<Effort>), String> {
    Ok(match level {
        "off" | "none" => (Thinking::Off, None),
        "on" | "adaptive" => (Thinking::Adaptive, None),
        "low" => (Thinking::Adaptive, Some(Effort::Low)),
        "medium" => (Thinking::Adaptive, Some(Effort::Medium)),
        "high" => (Thinking::Adaptive, Some(Effort::High)),
        number => {
            let wrong = |_| format!("{number:?} is not off, on, low, medium, high or a number of tokens");
            (Thinking::Budget(number.parse().map_err(wrong)?), None)
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_that_answer_or_trust_are_known_by_all_their_names() {
        for name in ["approve", "yes", "deny", "no", "always", "trust", "APPROVE"] {
            assert!(answers_questions(name), "/{name}");
        }
        for name in ["stop", "new", "model", "status", "help", "nope"] {
            assert!(!answers_questions(name), "/{name}");
        }
    }

    #[test]
    fn every_listed_command_exists() {
        for (name, ..) in SLASH_COMMANDS {
            let understood =
                ["", " 1"].iter().any(|rest| matches!(parse(&format!("/{name}{rest}")), Some(Ok(_))));
            assert!(understood, "/{name}");
            assert!(help(&[]).contains(&format!("/{name}")));
        }
    }

    #[test]
    fn commands_are_distinguished_from_messages() {
        assert_eq!(parse(" /STOP "), Some(Ok(Slash::Stop)));
        assert_eq!(parse("/model local/qwen"), Some(Ok(Slash::Model(Some("local/qwen".into())))));
        assert_eq!(parse("/think 2000"), Some(Ok(Slash::Think(Thinking::Budget(2000), None))));
        let hard = Slash::Think(Thinking::Adaptive, Some(Effort::High));
        assert_eq!(parse("/think high"), Some(Ok(hard)));
        assert_eq!(parse("/always"), Some(Ok(Slash::Always(None, LastingApproval::default()))));
        let Some(Ok(Slash::Always(id, always))) = parse("/always 8h a1b2c3d4") else { panic!() };
        assert_eq!((id.as_deref(), always.hours), (Some("a1b2c3d4"), Some(8)));
        assert_eq!(parse("/yes a1b2"), Some(Ok(Slash::Approve(Some("a1b2".into())))));
        for message in ["stop", "/etc/passwd is what?", "/stop\nand more", "", "/"] {
            assert_eq!(parse(message), None, "{message:?}");
        }
        for wrong in ["/stopp", "/think", "/think much", "/new session", "/always a b"] {
            assert!(matches!(parse(wrong), Some(Err(_))), "{wrong:?}");
        }
        assert_eq!(parse("/nope"), Some(Err("unknown command /nope; /help lists the commands".into())));
        assert_eq!(parse("/new x"), Some(Err("/new takes no argument; /help lists the commands".into())));
    }
}
