//! Slack's own notation in texts: `<@U1>`, `<https://e.org|label>`, `&amp;`.

/// A text without Slack's notation.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Plain {
    /// Without mentions of the bot.
    pub(super) text: String,
    pub(super) mentions_bot: bool,
}

/// Reads a text. `bot` is the bot's user id. Mentions of everybody and of groups are no mentions of the bot.
pub(super) fn plain(text: &str, bot: &str) -> Plain {
    let mut plain = Plain { text: String::with_capacity(text.len()), mentions_bot: false };
    let mut rest = text;
    while let Some(start) = rest.find('<') {
        plain.text.push_str(&unescaped(&rest[..start]));
        rest = &rest[start..];
        let Some(length) = rest.find('>') else { break };
        let inner = &rest[1..length];
        rest = &rest[length + 1..];
        let (target, label) =
            inner.split_once('|').map_or((inner, None), |(target, label)| (target, Some(label)));
        if !bot.is_empty() && target.strip_prefix('@') == Some(bot) {
            plain.mentions_bot = true;
            // Without this, the words around the mention would have two blanks between them.
            if plain.text.is_empty() || plain.text.ends_with(char::is_whitespace) {
                rest = rest.strip_prefix(' ').unwrap_or(rest);
            }
            continue;
        }
        plain.text.push_str(&unescaped(&shown(target, label)));
    }
    plain.text.push_str(&unescaped(rest));
    if plain.mentions_bot {
        plain.text = plain.text.trim().to_owned();
    }
    plain
}

fn shown(target: &str, label: Option<&str>) -> String {
    match (target.chars().next(), label) {
        (Some('@'), Some(label)) => format!("@{}", label.trim_start_matches('@')),
        (Some('@'), None) => target.to_owned(),
        (Some('#'), Some(label)) if !label.is_empty() => format!("#{label}"),
        (Some('#'), _) => target.to_owned(),
        (Some('!'), Some(label)) => label.to_owned(),
        (Some('!'), None) => format!("@{}", &target[1..]),
        (_, Some(label)) if !target.ends_with(label) => format!("{label} ({target})"),
        (_, _) => target.to_owned(),
    }
}

fn unescaped(text: &str) -> String {
    text.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")
}

/// Escapes a text, so that nothing in it is notation.
pub(super) fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn notation_becomes_text() {
        for (text, expected, mentions_bot) in [
            ("<@UBOT> hello", "hello", true),
            ("please <@UBOT> help", "please help", true),
            ("<@UBOT|gantry>: a &lt;b&gt; &amp;amp;", ": a <b> &amp;", true),
            ("<!here> <!channel> <!everyone>", "@here @channel @everyone", false),
            ("<!subteam^S1|@team> do", "@team do", false),
            ("<@UOTHER> and <#C1|general>", "@UOTHER and #general", false),
            ("<https://e.org/a_b|site> <https://e.org>", "site (https://e.org/a_b) https://e.org", false),
            ("<mailto:a@e.org|a@e.org>", "mailto:a@e.org", false),
            ("&lt;@UBOT&gt;", "<@UBOT>", false),
            ("open < end", "open < end", false),
        ] {
            let read = plain(text, "UBOT");
            assert_eq!((read.text.as_str(), read.mentions_bot), (expected, mentions_bot), "{text}");
        }
    }

    proptest! {
        #[test]
        fn escaped_text_is_read_back(text in "\\PC{0,100}") {
            prop_assert_eq!(plain(&escaped(&text), "UBOT"), Plain { text, mentions_bot: false });
        }

        #[test]
        fn any_text_is_read(text in "[<>@!#|&a-zé]{0,60}") {
            plain(&text, "a");
        }
    }
}
