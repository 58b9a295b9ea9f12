//! Output of commands as lines of colored runs. Only colors and styles survive; every other escape is dropped.

use gantry_protocol::{AnsiLines, AnsiRun, AnsiStyle};

/// Parameters of one escape that are read. More are ignored.
const MAX_PARAMETERS: usize = 32;

pub(crate) fn lines(text: &str, style: AnsiStyle) -> AnsiLines {
    let mut writer = Writer { lines: Vec::new(), line: Vec::new(), style };
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let after = &rest[c.len_utf8()..];
        rest = match c {
            '\x1b' => escape(after, &mut writer.style),
            // The same as ESC [.
            '\u{9b}' => control_sequence(after, &mut writer.style),
            '\u{90}' | '\u{98}' | '\u{9d}'..='\u{9f}' => string_end(after),
            '\n' => {
                writer.end_line();
                after
            }
            '\r' if after.starts_with('\n') => after,
            // A progress bar writes over its line.
            '\r' => {
                writer.line.clear();
                after
            }
            '\x08' => {
                writer.back();
                after
            }
            '\t' => {
                writer.put("\t");
                after
            }
            c if c.is_control() => after,
            _ => {
                let length = rest.find(char::is_control).unwrap_or(rest.len());
                writer.put(&rest[..length]);
                &rest[length..]
            }
        };
    }
    if !writer.line.is_empty() {
        writer.end_line();
    }
    AnsiLines { lines: writer.lines, style: writer.style }
}

struct Writer {
    lines: Vec<Vec<AnsiRun>>,
    line: Vec<AnsiRun>,
    style: AnsiStyle,
}

impl Writer {
    fn put(&mut self, text: &str) {
        match self.line.last_mut() {
            Some(run) if run.style == self.style => run.text.push_str(text),
            _ => self.line.push(AnsiRun { text: text.to_owned(), style: self.style.clone() }),
        }
    }

    fn back(&mut self) {
        if let Some(run) = self.line.last_mut() {
            run.text.pop();
            if run.text.is_empty() {
                self.line.pop();
            }
        }
    }

    fn end_line(&mut self) {
        self.lines.push(std::mem::take(&mut self.line));
    }
}

/// Reads what follows an ESC. Returns the rest.
fn escape<'a>(after: &'a str, style: &mut AnsiStyle) -> &'a str {
    match after.chars().next() {
        Some('[') => control_sequence(&after[1..], style),
        // Titles, links, clipboards and the like.
        Some(']' | 'P' | 'X' | '^' | '_') => string_end(&after[1..]),
        // Character sets: intermediates and one more character.
        Some(' '..='/') => {
            let rest = after.trim_start_matches(|c: char| (' '..='/').contains(&c));
            rest.strip_prefix(|c: char| ('0'..='~').contains(&c)).unwrap_or(rest)
        }
        Some(c @ '0'..='~') => &after[c.len_utf8()..],
        _ => after,
    }
}

/// Reads the parameters and the final character of a control sequence. Of all of them only `m` counts.
fn control_sequence<'a>(after: &'a str, style: &mut AnsiStyle) -> &'a str {
    let length = after.find(|c: char| !(' '..='?').contains(&c)).unwrap_or(after.len());
    let (parameters, rest) = after.split_at(length);
    match rest.chars().next() {
        Some('m') => {
            apply(parameters, style);
            &rest[1..]
        }
        Some('@'..='~') => &rest[1..],
        // Broken off: the text goes on here.
        _ => rest,
    }
}

/// Returns what follows a string that ends with BEL or ESC \. An unfinished one swallows its line.
fn string_end(after: &str) -> &str {
    for (at, c) in after.char_indices() {
        match c {
            '\x07' | '\u{9c}' => return &after[at + c.len_utf8()..],
            '\x1b' if after[at + 1..].starts_with('\\') => return &after[at + 2..],
            '\n' => return &after[at..],
            _ => {}
        }
    }
    ""
}

fn apply(parameters: &str, style: &mut AnsiStyle) {
    if parameters.starts_with(['<', '=', '>', '?']) {
        return;
    }
    let numbers: Vec<u16> =
        parameters.split([';', ':']).take(MAX_PARAMETERS).map(|number| number.parse().unwrap_or(0)).collect();
    let mut at = 0;
    while let Some(&number) = numbers.get(at) {
        at += 1;
        match number {
            0 => *style = AnsiStyle::default(),
            1 => style.bold = true,
            2 => style.dim = true,
            3 => style.italic = true,
            4 => style.underline = true,
            7 => style.inverse = true,
            9 => style.strike = true,
            21 | 22 => (style.bold, style.dim) = (false, false),
            23 => style.italic = false,
            24 => style.underline = false,
            27 => style.inverse = false,
            29 => style.strike = false,
            30..=37 => style.color = Some((number - 30).to_string()),
            40..=47 => style.background = Some((number - 40).to_string()),
            90..=97 => style.color = Some((number - 82).to_string()),
            100..=107 => style.background = Some((number - 92).to_string()),
            39 => style.color = None,
            49 => style.background = None,
            38 => style.color = extended(&numbers, &mut at).or(style.color.take()),
            48 => style.background = extended(&numbers, &mut at).or(style.background.take()),
            _ => {}
        }
    }
}

/// `5;N`, or `2;R;G;B`.
fn extended(numbers: &[u16], at: &mut usize) -> Option<String> {
    let byte = |index: usize| numbers.get(index).and_then(|number| u8::try_from(*number).ok());
    match numbers.get(*at) {
        Some(5) => {
            *at += 2;
            byte(*at - 1).map(|color| color.to_string())
        }
        Some(2) => {
            *at += 4;
            let (red, green, blue) = (byte(*at - 3)?, byte(*at - 2)?, byte(*at - 1)?);
            Some(format!("#{red:02x}{green:02x}{blue:02x}"))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn rendered(text: &str) -> serde_json::Value {
        serde_json::to_value(lines(text, AnsiStyle::default()).lines).unwrap()
    }

    #[test]
    fn colors_and_styles_become_runs() {
        assert_eq!(
            rendered("a\x1b[1;31mb\x1b[0mc\n\x1b[38;5;200md\x1b[48;2;1;2;255me\x1b[39;49m\x1b[92mf"),
            json!([
                [{"text": "a"}, {"text": "b", "color": "1", "bold": true}, {"text": "c"}],
                [{"text": "d", "color": "200"}, {"text": "e", "color": "200", "background": "#0102ff"}, {"text": "f", "color": "10"}],
            ])
        );
    }

    #[test]
    fn everything_else_is_dropped() {
        for hidden in [
            "\x1b]0;title\x07",
            "\x1b]52;c;ZXZpbA==\x1b\\",
            "\x1b]8;;https://evil.example\x1b\\",
            "\x1b[2J",
            "\x1b[10;10H",
            "\x1b[?1049h",
            "\x1bP1$r\x1b\\",
            "\x1b(B",
            "\x1bc",
            "\u{9b}2J",
            "\u{9d}0;x\u{9c}",
            "\x07",
            "\0",
            "\x1b[<0m",
        ] {
            assert_eq!(rendered(&format!("a{hidden}b")), json!([[{"text": "ab"}]]), "{hidden:?}");
        }
        assert_eq!(rendered("a\x1b]0;never ends\nb"), json!([[{"text": "a"}], [{"text": "b"}]]));
    }

    #[test]
    fn progress_writes_over_its_line() {
        assert_eq!(rendered("10%\r20%\r\ndone\x08\x08!"), json!([[{"text": "20%"}], [{"text": "do!"}]]));
    }

    #[test]
    fn style_continues_in_the_next_piece() {
        let first = lines("\x1b[31mred", AnsiStyle::default());
        assert_eq!(lines("still", first.style).lines[0][0].style.color.as_deref(), Some("1"));
    }

    proptest! {
        #[test]
        fn output_has_no_control_characters(
            parts in prop::collection::vec(prop::sample::select(vec![
                "\x1b", "[", "]", "31", ";", "m", "\x07", "\x1b\\", "text", "\n", "\r", "\u{9b}", "38;5;", "48;2;1;2;", "é", "?", "P", "\x08", "\t",
            ]), 0..80),
            end in ".*",
        ) {
            let text = parts.concat() + &end;
            for run in lines(&text, AnsiStyle::default()).lines.into_iter().flatten() {
                prop_assert!(!run.text.chars().any(|c| c.is_control() && c != '\t'), "{:?}", run.text);
                for color in [run.style.color, run.style.background].into_iter().flatten() {
                    let is_index = color.parse::<u8>().is_ok();
                    let is_rgb = color.len() == 7 && color[1..].chars().all(|c| c.is_ascii_hexdigit());
                    prop_assert!(is_index || (is_rgb && color.starts_with('#')), "{color}");
                }
            }
        }
    }
}
