//! Tables for people: columns as wide as their content, cells wrapped between words so that a row fits the terminal.

use unicode_width::UnicodeWidthStr;

use crate::wrapping::wrapped;

const GAP: usize = 2;
/// A column is not made narrower than this.
const NARROWEST: usize = 12;

pub(crate) struct Table {
    headings: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// Makes a table. Without headings, only the rows are shown.
    pub(crate) fn new(headings: impl IntoIterator<Item = impl Into<String>>) -> Table {
        Table { headings: headings.into_iter().map(Into::into).collect(), rows: Vec::new() }
    }

    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        // A cell is one line, so that data cannot forge a row.
        self.rows.push(cells.into_iter().map(|cell| cell.replace(['\n', '\r', '\t'], " ")).collect());
    }

    /// Returns the lines of the table for a terminal of this width, 0 for no limit.
    pub(crate) fn lines(&self, width: usize) -> Vec<String> {
        let widths = self.widths(width);
        let headings = (!self.headings.is_empty()).then_some(&self.headings);
        headings.into_iter().chain(&self.rows).flat_map(|cells| row_lines(cells, &widths)).collect()
    }

    fn widths(&self, limit: usize) -> Vec<usize> {
        let mut widths: Vec<usize> = Vec::new();
        for cells in std::iter::once(&self.headings).chain(&self.rows) {
            widths.resize(widths.len().max(cells.len()), 0);
            for (width, cell) in widths.iter_mut().zip(cells) {
                *width = (*width).max(cell.width());
            }
        }
        let gaps = GAP * widths.len().saturating_sub(1);
        // The widest column gives way first.
        while limit > 0 && widths.iter().sum::<usize>() + gaps > limit {
            let Some(widest) = widths.iter_mut().max().filter(|widest| **widest > NARROWEST) else { break };
            *widest -= 1;
        }
        widths
    }
}

fn row_lines(cells: &[String], widths: &[usize]) -> Vec<String> {
    let wrapped: Vec<Vec<String>> =
        cells.iter().zip(widths).map(|(cell, width)| cell_lines(cell, *width)).collect();
    let height = wrapped.iter().map(Vec::len).max().unwrap_or(0);
    (0..height)
        .map(|at| {
            let mut line = String::new();
            for (lines, width) in wrapped.iter().zip(widths) {
                let part = lines.get(at).map_or("", String::as_str);
                line.push_str(part);
                line.push_str(&" ".repeat(width.saturating_sub(part.width()) + GAP));
            }
            line.trim_end().to_owned()
        })
        .collect()
}

/// Wraps a cell between words, and inside a word that is longer than the column.
fn cell_lines(cell: &str, width: usize) -> Vec<String> {
    let mut lines = Vec::new();
    for line in wrapped(cell, 0, width.max(1)).lines() {
        let mut rest = line.to_owned();
        while rest.width() > width && width > 0 {
            let mut head = String::new();
            for c in rest.chars() {
                if format!("{head}{c}").width() > width && !head.is_empty() {
                    break;
                }
                head.push(c);
            }
            rest = rest[head.len()..].to_owned();
            lines.push(head);
        }
        lines.push(rest);
    }
    if lines.is_empty() {
        lines.push(String::new());
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_fit_the_width_and_lose_nothing() {
        let mut table = Table::new(["name", "about"]);
        table.row(["a".into(), "short".into()]);
        table.row(["long-name".into(), "a description of many words that does not fit into one row".into()]);
        let wide = table.lines(0);
        assert_eq!(wide.len(), 3);
        assert_eq!(wide[0], "name       about");
        assert_eq!(wide[1], "a          short");
        let narrow = table.lines(40);
        assert!(narrow.iter().all(|line| line.width() <= 40), "{narrow:?}");
        assert!(narrow[3].starts_with("           "), "{narrow:?}");
        let words =
            |lines: &[String]| lines.join(" ").split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(words(&narrow), words(&wide));
    }

    #[test]
    fn long_words_wide_characters_and_line_breaks_keep_the_columns() {
        let mut table = Table::new(["", ""].map(str::to_owned).into_iter().take(0));
        table.row(["\u{4e2d}\u{6587}".into(), "x".repeat(50), "end\nof row".into()]);
        let lines = table.lines(40);
        assert!(lines.iter().all(|line| line.width() <= 40), "{lines:?}");
        assert_eq!(lines.concat().matches('x').count(), 50);
        assert!(lines[0].ends_with("end of row"), "{lines:?}");
    }
}
