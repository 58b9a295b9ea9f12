//! Renders Markdown for a terminal, line by line, so that an answer can be shown while it is written.
//!
//! Every text passes [`printable`], so that an answer cannot control the terminal.

use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd};

use crate::output::printable;
use crate::wrapping::{columns, wrapped};

const BOLD: &str = "1";
const DIM: &str = "2";
const ITALIC: &str = "3";
const UNDERLINE: &str = "4";
const STRIKE: &str = "9";
const CODE: &str = "36";
const HEADING: &str = "1;35";
/// The most lines of a table that are held back to align its columns.
const MAX_TABLE: usize = 200;

pub(crate) struct TerminalMarkdown {
    /// The terminal's width. 0 means that lines are not wrapped.
    width: usize,
    /// The fence that ends the open block of code.
    fence: Option<String>,
    /// Rows of a table that has not ended.
    table: Vec<Vec<String>>,
}

impl TerminalMarkdown {
    pub(crate) fn new(width: usize) -> TerminalMarkdown {
        TerminalMarkdown { width, fence: None, table: Vec::new() }
    }

    /// Renders a whole line, without its line break. The result ends with one, or is empty while a table goes on.
    pub(crate) fn line(&mut self, line: &str) -> String {
        let line = line.trim_end();
        let trimmed = line.trim_start();
        if let Some(fence) = &self.fence {
            if trimmed.starts_with(fence.as_str()) && trimmed.trim_end_matches(['`', '~']).is_empty() {
                self.fence = None;
                return String::new();
            }
            return format!("  {}\n", styled(line, CODE));
        }
        if is_row(trimmed) && self.table.len() < MAX_TABLE {
            self.table.push(cells(trimmed));
            return String::new();
        }
        let mut shown = self.end();
        if let Some(fence) = fence_of(trimmed) {
            let language = trimmed.trim_start_matches(['`', '~']).trim();
            self.fence = Some(fence);
            if !language.is_empty() {
                shown.push_str(&format!("  {}\n", styled(language, DIM)));
            }
            return shown;
        }
        shown.push_str(&self.text_line(line));
        shown.push('\n');
        shown
    }

    /// Renders what was held back.
    pub(crate) fn end(&mut self) -> String {
        let rows = std::mem::take(&mut self.table);
        if rows.is_empty() { String::new() } else { table(&rows) }
    }

    fn text_line(&self, line: &str) -> String {
        let indent = line.len() - line.trim_start().len();
        let text = line.trim_start();
        let space = " ".repeat(indent.min(20));
        let level = text.bytes().take_while(|byte| *byte == b'#').count();
        if (1..=6).contains(&level)
            && let Some(heading) = text[level..].strip_prefix(' ')
        {
            return styled(&plain(heading), HEADING);
        }
        if matches!(text, "---" | "***" | "___") {
            return styled(&"─".repeat(self.width.clamp(3, 40)), DIM);
        }
        if let Some(quoted) = text.strip_prefix('>') {
            return self.wrap(&format!("{} {}", styled("│", DIM), inline(quoted.trim_start())), 2);
        }
        if let Some((mark, rest)) = item(text) {
            let hanging = space.chars().count() + mark.chars().count() + 1;
            return self.wrap(&format!("{space}{mark} {}", inline(rest)), hanging);
        }
        self.wrap(&format!("{space}{}", inline(text)), space.len())
    }

    fn wrap(&self, line: &str, hanging: usize) -> String {
        if self.width == 0 { line.to_owned() } else { wrapped(line, hanging, self.width) }
    }
}

/// Splits the mark of a list item from its text.
fn item(text: &str) -> Option<(String, &str)> {
    for bullet in ["- ", "* ", "+ "] {
        if let Some(rest) = text.strip_prefix(bullet) {
            return Some(match rest.strip_prefix("[ ] ").map(|rest| ("☐", rest)) {
                Some((mark, rest)) => (mark.to_owned(), rest),
                None => match rest.strip_prefix("[x] ") {
                    Some(rest) => ("☑".to_owned(), rest),
                    None => ("•".to_owned(), rest),
                },
            });
        }
    }
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let rest = text.get(digits..)?.strip_prefix(". ")?;
    (1..=9).contains(&digits).then(|| (format!("{}.", &text[..digits]), rest))
}

/// The fence that a line opens.
fn fence_of(text: &str) -> Option<String> {
    let mark = text.chars().next().filter(|c| matches!(c, '`' | '~'))?;
    let length = text.chars().take_while(|c| *c == mark).count();
    let has_more = text[length..].contains(mark);
    (length >= 3 && !has_more).then(|| mark.to_string().repeat(length))
}

fn is_row(text: &str) -> bool {
    text.len() > 2 && text.starts_with('|') && text.ends_with('|')
}

fn cells(row: &str) -> Vec<String> {
    let inner = row.trim_matches('|').replace("\\|", "\u{1}");
    inner.split('|').map(|cell| inline(&cell.trim().replace('\u{1}', "|"))).collect()
}

/// Aligns the columns of a table. The row of dashes becomes a line.
fn table(rows: &[Vec<String>]) -> String {
    let is_rule = |row: &[String]| {
        row.iter().all(|cell| !cell.is_empty() && cell.chars().all(|c| matches!(c, '-' | ':')))
    };
    let count = rows.iter().map(Vec::len).max().unwrap_or(0);
    let content = || rows.iter().filter(|row| !is_rule(row));
    let widths: Vec<usize> = (0..count)
        .map(|at| content().filter_map(|row| row.get(at)).map(|cell| columns(cell)).max().unwrap_or(0))
        .collect();
    let mut shown = String::new();
    for row in rows {
        if is_rule(row) {
            let rule: Vec<String> = widths.iter().map(|width| "─".repeat(*width)).collect();
            shown.push_str(&format!("  {}\n", styled(&rule.join("──"), DIM)));
            continue;
        }
        let cell = |(at, width): (usize, &usize)| {
            let text = row.get(at).map_or("", String::as_str);
            format!("{text}{}", " ".repeat(width.saturating_sub(columns(text))))
        };
        let line: Vec<String> = widths.iter().enumerate().map(cell).collect();
        shown.push_str(&format!("  {}\n", line.join("  ").trim_end()));
    }
    shown
}

/// Renders the styles within a line.
fn inline(text: &str) -> String {
    let mut shown = String::new();
    // The styles that are open. Ending one ends all, so the others are opened again.
    let mut open: Vec<&str> = Vec::new();
    let mut links: Vec<(String, usize)> = Vec::new();
    let push = |shown: &mut String, open: &[&str], text: &str| {
        let codes = open.join(";");
        shown.push_str(&if codes.is_empty() { printable(text) } else { styled(text, &codes) });
    };
    for event in Parser::new_ext(text, Options::ENABLE_STRIKETHROUGH) {
        match event {
            Event::Start(Tag::Strong) => open.push(BOLD),
            Event::Start(Tag::Emphasis) => open.push(ITALIC),
            Event::Start(Tag::Strikethrough) => open.push(STRIKE),
            Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => {
                links.push((dest_url.into_string(), shown.len()));
                open.push(UNDERLINE);
            }
            Event::End(TagEnd::Link | TagEnd::Image) => {
                open.pop();
                if let Some((url, at)) = links.pop()
                    && !url.is_empty()
                    && !shown[at..].contains(&url)
                {
                    shown.push_str(&format!(" {}", styled(&format!("({url})"), DIM)));
                }
            }
            Event::End(TagEnd::Strong | TagEnd::Emphasis | TagEnd::Strikethrough) => drop(open.pop()),
            Event::Code(code) => {
                open.push(CODE);
                push(&mut shown, &open, &code);
                open.pop();
            }
            Event::Text(text) | Event::Html(text) | Event::InlineHtml(text) => push(&mut shown, &open, &text),
            Event::SoftBreak | Event::HardBreak => shown.push(' '),
            _ => {}
        }
    }
    if shown.is_empty() { printable(text) } else { shown }
}

/// The text of a line without its marks.
fn plain(text: &str) -> String {
    let mut shown = String::new();
    for event in Parser::new_ext(text, Options::ENABLE_STRIKETHROUGH) {
        if let Event::Text(text) | Event::Code(text) | Event::InlineHtml(text) = event {
            shown.push_str(&text);
        }
    }
    shown
}

fn styled(text: &str, code: &str) -> String {
    crate::output::styled(text, code, true)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Renders a document, with `<1>` for a style and `<>` for its end.
    fn check(markdown: &str, width: usize, expected: &str) {
        let mut lines = TerminalMarkdown::new(width);
        let mut shown: String = markdown.lines().map(|line| lines.line(line)).collect();
        shown.push_str(&lines.end());
        let marked = shown.replace("\u{1b}[0m", "<>").replace("\u{1b}[", "<");
        let mut text = String::new();
        let mut rest = marked.as_str();
        while let Some((before, after)) = rest.split_once('<') {
            let (code, tail) = after.split_once(['m', '>']).unwrap();
            text.push_str(&format!("{before}<{code}>"));
            rest = tail;
        }
        assert_eq!(format!("{text}{rest}"), expected);
    }

    #[test]
    fn styles_headings_and_lists() {
        check("# A *title*", 80, "<1;35>A title<>\n");
        check("a **b** _c_ `d*` ~~e~~", 80, "a <1>b<> <3>c<> <36>d*<> <9>e<>\n");
        check("**a _b_ c**", 80, "<1>a <><1;3>b<><1> c<>\n");
        check("- one\n  * two\n3. three\n- [x] done", 80, "• one\n  • two\n3. three\n☑ done\n");
        check("> said", 80, "<2>│<> said\n");
        check("[docs](https://x.y/z) <https://a.b>", 80, "<4>docs<> <2>(https://x.y/z)<> <4>https://a.b<>\n");
    }

    #[test]
    fn code_is_shown_as_it_is() {
        check(
            "```rust\nlet a = \"*b*\";\n# c\n```\n# d",
            80,
            "  <2>rust<>\n  <36>let a = \"*b*\";<>\n  <36># c<>\n<1;35>d<>\n",
        );
        check("````\n```\n````", 80, "  <36>```<>\n");
        check("a ``` b", 80, "a ``` b\n");
    }

    #[test]
    fn tables_are_aligned() {
        let table = "| a | bb |\n| --- | :-: |\n| **long** | x |\nend";
        check(table, 80, "  a     bb\n  <2>────────<>\n  <1>long<>  x\nend\n");
    }

    #[test]
    fn long_lines_break_between_words() {
        check("- aaaa bbbb cccc dddd eeee ffff", 22, "• aaaa bbbb cccc dddd\n  eeee ffff\n");
    }

    #[test]
    fn answers_cannot_control_the_terminal() {
        let mut lines = TerminalMarkdown::new(80);
        for line in ["a\u{1b}[2Jb `\u{1b}]0;x\u{7}`", "```", "\u{1b}[31mred\r", "```", "| \u{1b}c | b |"] {
            let shown = lines.line(line);
            assert!(
                !shown.contains("\u{1b}[2J") && !shown.contains('\u{7}') && !shown.contains('\r'),
                "{shown:?}"
            );
        }
        assert!(!lines.end().contains("\u{1b}c"));
    }
}
