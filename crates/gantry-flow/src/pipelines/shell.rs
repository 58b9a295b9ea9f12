//! Values in shell commands. A value is data: the shell never reads it as a part of the command.
//!
//! A value of letters, digits and a few signs is written into the command. Any other value becomes a variable, which is assigned
//! before the command, and the command refers to the variable.

use std::fmt::Write;

use serde_json::Value;

use super::template::{MAX_RENDERED_BYTES, Piece, parse};

/// Text that a shell evaluates a second time, so that a variable would not protect the command.
const EVALUATED: [&str; 3] = ["((", "[[", "eval"];

/// The quotes around a place in a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Quotes {
    None,
    Single,
    Double,
}

/// Replaces the names in a shell command.
pub(crate) fn render_command(
    command: &str,
    value: &impl Fn(&[String]) -> Result<Value, String>,
) -> Result<String, String> {
    let pieces = parse(command)?;
    let is_evaluated = pieces.iter().any(|piece| match piece {
        Piece::Text(text) => EVALUATED.iter().any(|sign| text.contains(sign)),
        Piece::Name(_) => false,
    });
    let (mut rendered, mut place) = (String::new(), Place { quotes: vec![(' ', Quotes::None)] });
    let (mut variables, mut assignments): (Vec<Vec<String>>, String) = (Vec::new(), String::new());
    for piece in pieces {
        match piece {
            Piece::Text(text) => {
                place.pass(&text);
                rendered.push_str(&text);
            }
            Piece::Name(name) => {
                let text = match value(&name)? {
                    Value::String(text) => text,
                    other => other.to_string(),
                };
                if is_plain(&text) {
                    rendered.push_str(&text);
                } else {
                    check(&name, &text, is_evaluated)?;
                    let known = variables.iter().position(|known| *known == name);
                    let number = known.unwrap_or_else(|| {
                        let number = variables.len() + 1;
                        let quoted = text.replace('\'', "'\\''");
                        // Writing to a string cannot fail.
                        let _ = writeln!(assignments, "GANTRY_VALUE_{number}='{quoted}'");
                        variables.push(name);
                        number - 1
                    });
                    rendered.push_str(&reference(number + 1, place.quotes()));
                }
            }
        }
        if rendered.len() + assignments.len() > MAX_RENDERED_BYTES {
            return Err(format!(
                "the command has more than {MAX_RENDERED_BYTES} bytes after its names were replaced"
            ));
        }
    }
    Ok(assignments + &rendered)
}

fn check(name: &[String], text: &str, is_evaluated: bool) -> Result<(), String> {
    let name = name.join(".");
    if text.contains('\0') {
        return Err(format!("the value of {{{{{name}}}}} contains a NUL byte, which no command can have"));
    }
    if is_evaluated {
        return Err(format!(
            "the value of {{{{{name}}}}} may not be used in a command with {}, because the shell would evaluate it; write it \
             to a file in an earlier step, or use a task",
            EVALUATED.join(" or ")
        ));
    }
    Ok(())
}

fn reference(number: usize, quotes: Quotes) -> String {
    match quotes {
        Quotes::None => format!("\"${{GANTRY_VALUE_{number}}}\""),
        Quotes::Double => format!("${{GANTRY_VALUE_{number}}}"),
        Quotes::Single => format!("'\"${{GANTRY_VALUE_{number}}}\"'"),
    }
}

/// Whether a value has no character with a meaning for a shell.
fn is_plain(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || "_./:@%+,-".contains(c))
}

/// The quotes at a place in a command, with the command substitutions around it. A wrong guess, such as in a here-document,
/// changes the output, but no value runs.
struct Place {
    /// The quotes inside each open substitution; the last one counts.
    quotes: Vec<(char, Quotes)>,
}

impl Place {
    fn quotes(&self) -> Quotes {
        self.quotes.last().map_or(Quotes::None, |(_, quotes)| *quotes)
    }

    fn set(&mut self, quotes: Quotes) {
        if let Some(last) = self.quotes.last_mut() {
            last.1 = quotes;
        }
    }

    /// Moves behind a text of the command.
    fn pass(&mut self, text: &str) {
        let mut chars = text.chars().peekable();
        while let Some(c) = chars.next() {
            let opened = self.quotes.last().map_or(' ', |(opened, _)| *opened);
            match (self.quotes(), c) {
                (Quotes::Single, '\'') | (Quotes::Double, '"') => self.set(Quotes::None),
                (Quotes::Single, _) => {}
                (_, '\\') => drop(chars.next()),
                (Quotes::None, '\'') => self.set(Quotes::Single),
                (Quotes::None, '"') => self.set(Quotes::Double),
                (_, '$') if chars.peek() == Some(&'(') => {
                    chars.next();
                    self.quotes.push(('(', Quotes::None));
                }
                (Quotes::None, '(') => self.quotes.push(('(', Quotes::None)),
                (Quotes::None, ')') if opened == '(' => drop(self.quotes.pop()),
                (_, '`') if opened == '`' => drop(self.quotes.pop()),
                (_, '`') => self.quotes.push(('`', Quotes::None)),
                _ => {}
            }
        }
    }
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "a real shell shows what a command does")]
mod tests {
    use serde_json::json;

    use super::*;

    /// What a shell prints for a command with this value of `{{v}}`.
    fn printed(shell: &str, command: &str, text: &str) -> String {
        let rendered = render_command(command, &|_: &[String]| Ok(json!(text))).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let mut command = std::process::Command::new(shell);
        let ran = command.args(["-c", &rendered]).current_dir(folder.path()).output().unwrap();
        String::from_utf8(ran.stdout).unwrap()
    }

    const EVIL: [&str; 12] = [
        "$(touch hacked)",
        "`touch hacked`",
        "'; touch hacked; '",
        "\"; touch hacked; \"",
        "a b",
        "*",
        "x\ny",
        "\\",
        "'",
        "${HOME}",
        "'\"'\"'$(id)",
        "-n",
    ];

    #[test]
    fn value_is_data_in_every_kind_of_quotes() {
        for shell in ["sh", "bash"] {
            for text in EVIL {
                for command in [
                    "printf '%s' {{v}}",
                    "printf '%s' \"{{v}}\"",
                    "printf '%s' '{{v}}'",
                    "printf '%s' \"$(printf '%s.' \"{{v}}\")\"",
                    "printf %s \"\"{{v}}''",
                    "printf %s \"$(printf '%s.' '{{v}}' | cat)\"",
                    "printf %s \"`printf '%s.' \"{{v}}\"`\"",
                    "(printf %s \"{{v}}\"); x=\")\"; : \"$x\"",
                ] {
                    let found = printed(shell, command, text);
                    assert_eq!(found.trim_end_matches('.'), text, "{shell}: {command}");
                }
                assert_eq!(printed(shell, "printf '[%s]' {{v}}x'{{v}}'", text), format!("[{text}x{text}]"));
            }
        }
    }

    #[test]
    fn no_value_runs_where_the_quotes_are_guessed_wrong() {
        let folder = tempfile::tempdir().unwrap();
        for text in EVIL {
            for command in [
                "cat <<EOF\ndon't {{v}}\nEOF",
                "cat <<'EOF'\n\"{{v}}\nEOF",
                "echo x # don't\necho {{v}}",
                "echo \"$(echo '{{v}}')\" `echo {{v}}`",
                "echo \"a $(echo \"{{v}}\" 'b') {{v}}\"",
            ] {
                let rendered = render_command(command, &|_: &[String]| Ok(json!(text))).unwrap();
                let shell = std::process::Command::new("bash")
                    .args(["-c", &rendered])
                    .current_dir(folder.path())
                    .output();
                shell.unwrap();
                assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "{command} with {text}");
            }
        }
    }

    #[test]
    fn plain_values_are_written_into_the_command_and_others_are_assigned_once() {
        let render = |command: &str, text: &str| render_command(command, &|_: &[String]| Ok(json!(text)));
        assert_eq!(render("git log --since {{v}}", "2026-01-01").unwrap(), "git log --since 2026-01-01");
        assert_eq!(
            render("a {{v}} '{{v}}'", "x y").unwrap(),
            "GANTRY_VALUE_1='x y'\na \"${GANTRY_VALUE_1}\" ''\"${GANTRY_VALUE_1}\"''"
        );
        for command in ["echo $(({{v}}))", "[[ {{v}} -eq 1 ]]", "eval {{v}}"] {
            assert!(render(command, "7").is_ok());
            let refused = render(command, "a[$(id)]").unwrap_err();
            assert!(refused.contains("the shell would evaluate it"), "{refused}");
        }
        assert!(render("echo {{v}}", "a\0b").unwrap_err().contains("NUL"));
        assert!(render("echo {{v}}", &"x ".repeat(200 * 1024)).unwrap_err().contains("262144 bytes"));
    }
}
