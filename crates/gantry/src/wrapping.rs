//! Wraps lines between words at the width of a terminal.

/// Text columns narrower than this are not wrapped.
const NARROWEST: usize = 20;

/// Wraps a line to `width`. Further lines start at the column `hanging`. Words are never cut.
pub(crate) fn wrapped(line: &str, hanging: usize, width: usize) -> String {
    if width < hanging + NARROWEST || columns(line) <= width {
        return line.to_owned();
    }
    let mut text = String::with_capacity(line.len() + 32);
    let (mut column, mut spaces, mut is_first) = (0, 0, true);
    for word in line.split(' ') {
        if word.is_empty() {
            spaces += 1;
            continue;
        }
        let length = columns(word);
        if !is_first && column > hanging && column + spaces + length > width {
            text.push('\n');
            text.extend(std::iter::repeat_n(' ', hanging));
            column = hanging;
        } else {
            text.extend(std::iter::repeat_n(' ', spaces));
            column += spaces;
        }
        text.push_str(word);
        column += length;
        (spaces, is_first) = (1, false);
    }
    text
}

/// Counts the visible characters; color codes are not visible.
pub(crate) fn columns(text: &str) -> usize {
    let mut styled = text.split("\u{1b}[");
    let plain = styled.next().map_or(0, |plain| plain.chars().count());
    let after = |part: &str| part.split_once('m').map_or(part, |(_, seen)| seen).chars().count();
    plain + styled.map(after).sum::<usize>()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_break_between_words() {
        assert_eq!(wrapped("short", 2, 40), "short");
        let text = "ok    data directory  /home/me/.local/share/gantry, for its owner only and nobody else";
        let shown = wrapped(text, 22, 60);
        let lines: Vec<&str> = shown.lines().collect();
        assert_eq!(lines[0], "ok    data directory  /home/me/.local/share/gantry, for its");
        assert!(lines.iter().skip(1).all(|line| line.starts_with(&" ".repeat(22))), "{shown}");
        assert_eq!(shown.split_whitespace().collect::<Vec<_>>(), text.split_whitespace().collect::<Vec<_>>());
        assert!(lines.iter().all(|line| line.len() <= 60), "{shown}");
    }

    #[test]
    fn color_codes_have_no_width_and_narrow_columns_are_not_wrapped() {
        let styled = format!("\u{1b}[1m{}\u{1b}[0m end", "x".repeat(30));
        assert_eq!(wrapped(&styled, 2, 34), styled);
        assert_eq!(wrapped(&"word ".repeat(20), 10, 25), "word ".repeat(20));
        let long = format!("a {}", "x".repeat(100));
        assert_eq!(wrapped(&long, 0, 40), format!("a\n{}", "x".repeat(100)), "a word is never cut");
    }
}
