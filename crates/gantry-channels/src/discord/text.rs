//! Mentions in the texts of people: `<@1>`, `<@!1>`.

/// Removes mentions of the bot, and writes the names of others. `names` are ids with names.
pub(super) fn plain(text: &str, bot: &str, names: &[(&str, &str)]) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    let mut is_mentioned = false;
    while let Some(start) = rest.find("<@") {
        out.push_str(&rest[..start]);
        rest = &rest[start..];
        let Some((id, length)) = mention(rest) else {
            out.push_str("<@");
            rest = &rest[2..];
            continue;
        };
        let mention = &rest[..length];
        rest = &rest[length..];
        if id == bot {
            is_mentioned = true;
            // Without this, the words around the mention would have two blanks between them.
            if out.is_empty() || out.ends_with(char::is_whitespace) {
                rest = rest.strip_prefix(' ').unwrap_or(rest);
            }
            continue;
        }
        match names.iter().find(|(known, name)| *known == id && !name.is_empty()) {
            Some((_, name)) => out.extend(["@", name]),
            None => out.push_str(mention),
        }
    }
    out.push_str(rest);
    if is_mentioned { out.trim().to_owned() } else { out }
}

/// The id and the length of a mention at the start of a text. Roles (`<@&1>`) are not people.
fn mention(text: &str) -> Option<(&str, usize)> {
    let end = text.find('>')?;
    let id = text[2..end].strip_prefix('!').unwrap_or(&text[2..end]);
    let is_id = (1..=20).contains(&id.len()) && id.bytes().all(|byte| byte.is_ascii_digit());
    is_id.then_some((id, end + 1))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn mentions_become_text() {
        for (text, expected) in [
            ("<@99> hello", "hello"),
            ("please <@!99> help", "please help"),
            ("<@7> and <@8>", "@ada and <@8>"),
            ("@everyone @here <@&99> <#99>", "@everyone @here <@&99> <#99>"),
            ("open <@99", "open <@99"),
            ("<@<@99>x", "<@x"),
            ("<@é99>", "<@é99>"),
        ] {
            assert_eq!(plain(text, "99", &[("7", "ada"), ("9", "")]), expected, "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read(text in "[<>@!&9a é]{0,40}") {
            plain(&text, "9", &[]);
        }
    }
}
