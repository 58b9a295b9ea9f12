//! Writes tables. Cells are first written one below the other. If a table turns out to hold data
//! when it ends, its cells become rows.

use super::writer::{Marker, Writer};

/// A table without headers and with a longer cell is used for layout, not for data.
const MAX_PLAIN_CELL: usize = 500;
/// How many empty columns the `colspan` of one cell adds at most.
const MAX_SPAN: i64 = 20;

#[derive(Debug, Default)]
pub(super) struct Tables {
    open: Vec<Table>,
}

#[derive(Debug, Default)]
struct Table {
    /// Where its first cell begins.
    start: Option<Marker>,
    rows: Vec<Vec<Cell>>,
    /// Whether it cannot be shown in rows: it is used for layout, or a cell does not fit into one
    /// line.
    blocks: bool,
}

#[derive(Debug)]
struct Cell {
    from: usize,
    /// Equals `from` until the cell ends.
    to: usize,
    header: bool,
    span: i64,
}

impl Tables {
    pub(super) fn open(&mut self, presentation: bool) {
        self.holds_blocks();
        self.open.push(Table { blocks: presentation, ..Table::default() });
    }

    /// Marks that the open cell has content that cannot be in a row.
    pub(super) fn holds_blocks(&mut self) {
        if let Some(table) = self.open.last_mut() {
            table.blocks = true;
            table.rows = Vec::new();
        }
    }

    pub(super) fn row(&mut self) {
        if let Some(table) = self.open.last_mut().filter(|table| !table.blocks) {
            table.rows.push(Vec::new());
        }
    }

    pub(super) fn cell(&mut self, writer: &mut Writer, header: bool, span: i64) {
        writer.break_line(1);
        let Some(table) = self.open.last_mut().filter(|table| !table.blocks) else { return };
        if table.start.is_none() {
            table.start = Some(writer.marker(""));
        }
        let from = writer.len();
        let last = table.rows.iter().rev().find_map(|row| row.last());
        if last.is_some_and(|last| last.to != from) {
            // There is text between the cells, which rows would lose.
            return self.holds_blocks();
        }
        if table.rows.is_empty() {
            table.rows.push(Vec::new());
        }
        if let Some(row) = table.rows.last_mut() {
            row.push(Cell { from, to: from, header, span: span.clamp(1, MAX_SPAN) });
        }
    }

    pub(super) fn end_cell(&mut self, writer: &Writer) {
        let table = self.open.last_mut().filter(|table| !table.blocks);
        if let Some(cell) = table.and_then(|table| table.rows.last_mut()?.last_mut()) {
            cell.to = writer.len();
        }
    }

    pub(super) fn close(&mut self, writer: &mut Writer) {
        let Some(Table { start, rows, blocks }) = self.open.pop() else { return };
        let Some(start) = start else { return };
        let last = rows.iter().rev().find_map(|row| row.last());
        let whole = last.is_some_and(|last| last.to == writer.len());
        if !blocks
            && whole
            && let Some(shown) = in_rows(&rows, writer.text(), writer.prefix())
        {
            writer.replace(start.end(), &shown);
        }
        writer.end_marker(start);
    }
}

/// Returns the table as lines, unless it is easier to read cell by cell.
fn in_rows(rows: &[Vec<Cell>], text: &str, prefix: &str) -> Option<String> {
    let headed = rows.iter().flatten().any(|cell| cell.header);
    let mut shown = String::new();
    let mut columns = 0;
    let mut lines = 0;
    for row in rows {
        let mut line = String::from("|");
        let mut filled = false;
        for cell in row {
            let content = text.get(cell.from..cell.to)?;
            if !headed && (content.len() > MAX_PLAIN_CELL || has_blank_line(content, prefix)) {
                return None;
            }
            line.push(' ');
            let before = line.len();
            push_in_one_line(&mut line, content, prefix);
            filled |= line.len() > before;
            line.push_str(if line.len() > before { " |" } else { "|" });
            for _ in 1..cell.span {
                line.push_str(" |");
            }
        }
        columns = columns.max(row.iter().filter(|cell| cell.to > cell.from).count());
        if !filled {
            continue;
        }
        if lines > 0 {
            shown.push('\n');
            shown.push_str(prefix);
        }
        shown.push_str(&line);
        if lines == 0 && row.iter().all(|cell| cell.header) {
            shown.push('\n');
            shown.push_str(prefix);
            shown.push('|');
            for _ in 0..row.iter().map(|cell| cell.span).sum() {
                shown.push_str(" --- |");
            }
        }
        lines += 1;
    }
    (columns > 1).then_some(shown)
}

fn cell_lines<'a>(content: &'a str, prefix: &'a str) -> impl Iterator<Item = &'a str> {
    content.split('\n').map(move |line| {
        line.strip_prefix(prefix).or_else(|| line.strip_prefix(prefix.trim_end())).unwrap_or(line).trim()
    })
}

/// Reports whether there is an empty line between others.
fn has_blank_line(content: &str, prefix: &str) -> bool {
    let mut lines = cell_lines(content, prefix).skip_while(|line| line.is_empty());
    lines.any(str::is_empty)
}

fn push_in_one_line(line: &mut String, content: &str, prefix: &str) {
    let from = line.len();
    for part in cell_lines(content, prefix).filter(|part| !part.is_empty()) {
        if line.len() > from {
            line.push(' ');
        }
        for (at, piece) in part.split('|').enumerate() {
            if at > 0 {
                line.push_str("\\|");
            }
            line.push_str(piece);
        }
    }
}
