//! Cuts Markdown into parts that fit into one message each: between blocks if possible, then at lines, sentences, words, and
//! last between characters. Code that is cut is closed and opened again. Nothing is lost.

use unicode_segmentation::UnicodeSegmentation;

use super::markdown::write;
use super::{Block, Rich, Span, Style, blocks, shows_itself};

/// No part of a paragraph or of code has more characters, whatever the limit is.
const MAX_PART: usize = 1 << 16;

/// Splits Markdown into parts whose `measure` is at most `limit`. Empty Markdown has no parts.
pub(crate) fn split(markdown: &str, limit: usize, measure: &dyn Fn(&str) -> usize) -> Vec<String> {
    let mut rest = blocks(markdown);
    if rest.is_empty() {
        return Vec::new();
    }
    if measure(markdown) <= limit {
        return vec![markdown.to_owned()];
    }
    let splitter = Splitter { limit, measure };
    let mut parts = Vec::new();
    while !rest.is_empty() {
        let (part, left) = splitter.take(rest, &|part| write(part), Must::Take);
        parts.push(write(&part));
        rest = left;
    }
    parts
}

struct Splitter<'a> {
    limit: usize,
    measure: &'a dyn Fn(&str) -> usize,
}

/// Writes the document that a part of it leads to.
type Whole<'a> = &'a dyn Fn(&[Block]) -> String;

/// Whether a part may be empty.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Must {
    /// The message is empty so far: something must go into it, even if it does not fit.
    Take,
    /// The next message can take it.
    Fit,
}

impl Splitter<'_> {
    fn fits(&self, text: &str) -> bool {
        (self.measure)(text) <= self.limit
    }

    /// Takes the blocks that fit, and returns them and the others.
    fn take(&self, mut blocks: Vec<Block>, whole: Whole<'_>, must: Must) -> (Vec<Block>, Vec<Block>) {
        let count = most(blocks.len(), |count| self.fits(&whole(&blocks[..count])));
        let mut rest = blocks.split_off(count);
        let mut taken = blocks;
        if rest.is_empty() {
            return (taken, rest);
        }
        // A heading stays with what follows it.
        let heading =
            taken.iter().rposition(|block| !matches!(block, Block::Heading { .. })).map(|last| last + 1);
        let keeps = heading.unwrap_or(taken.len());
        rest.splice(0..0, taken.split_off(keeps));
        let only_headings = taken.iter().all(|block| matches!(block, Block::Heading { .. }));
        let is_nearly_full = || (self.measure)(&whole(&taken)) > self.limit / 4 * 3;
        let next_fits_alone = || self.fits(&write(&rest[..1]));
        if !taken.is_empty() && (is_nearly_full() || !only_headings && next_fits_alone()) {
            return (taken, rest);
        }
        let first = rest.remove(0);
        let must = if taken.is_empty() { must } else { Must::Fit };
        let with = |block: Block| {
            let mut all = taken.clone();
            all.push(block);
            whole(&all)
        };
        let (head, tail) = self.cut(first, &with, must);
        taken.extend(head);
        rest.splice(0..0, tail);
        (taken, rest)
    }

    /// Cuts one block that does not fit. `with` writes the document that ends with a part of it.
    fn cut(&self, block: Block, with: &dyn Fn(Block) -> String, must: Must) -> (Option<Block>, Vec<Block>) {
        match block {
            Block::Paragraph(text) => {
                let make = |text: Rich| Block::Paragraph(text);
                self.cut_text(&text, &make, with, must)
            }
            Block::Heading { level, text } => {
                let make = |text: Rich| Block::Heading { level, text };
                self.cut_text(&text, &make, with, must)
            }
            Block::Code { language, text } => {
                let make = |text: &str| Block::Code { language: language.clone(), text: text.to_owned() };
                let fits = |end: usize| self.fits(&with(make(&text[..end])));
                let end = cut_point(&text, &[], Prefer::Lines, must, &fits);
                let (head, tail) = text.split_at(end);
                let tail = tail.strip_prefix('\n').unwrap_or(tail);
                let head = (!head.trim().is_empty()).then(|| make(head));
                (head, if tail.trim().is_empty() { Vec::new() } else { vec![make(tail)] })
            }
            Block::Quote(inner) => {
                let whole = |part: &[Block]| with(Block::Quote(part.to_vec()));
                let (head, tail) = self.take(inner, &whole, must);
                let quote = |blocks: Vec<Block>| (!blocks.is_empty()).then_some(Block::Quote(blocks));
                (quote(head), quote(tail).into_iter().collect())
            }
            Block::List { start, items } => self.cut_list(start, items, with, must),
            Block::Table { header, rows } => self.cut_table(header, rows, with, must),
            // It cannot be cut.
            Block::Rule => match must {
                Must::Take => (Some(Block::Rule), Vec::new()),
                Must::Fit => (None, vec![Block::Rule]),
            },
        }
    }

    fn cut_text(
        &self,
        text: &Rich,
        make: &dyn Fn(Rich) -> Block,
        with: &dyn Fn(Block) -> String,
        must: Must,
    ) -> (Option<Block>, Vec<Block>) {
        let first = text.text.graphemes(true).next().map_or(0, str::len);
        let unlinked = match text.spans.iter().find(|span| matches!(span.style, Style::Link(_))) {
            // The address of a link can be too long for its text to get anywhere.
            Some(link) if link.range.start < first && !self.fits(&with(make(text.slice(0..first)))) => {
                Some(without_link(text, link))
            }
            _ => None,
        };
        let text = unlinked.as_ref().unwrap_or(text);
        let links: Vec<_> = text
            .spans
            .iter()
            .filter(|span| matches!(span.style, Style::Link(_)))
            .map(|span| span.range.clone())
            .collect();
        let part = |range| text.slice(range).trimmed();
        let fits = |end: usize| self.fits(&with(make(part(0..end))));
        let end = cut_point(&text.text, &links, Prefer::Sentences, must, &fits);
        let block = |text: Rich| (!text.text.is_empty()).then(|| make(text));
        (block(part(0..end)), block(part(end..text.text.len())).into_iter().collect())
    }

    /// The rest of an item that is cut has no marker of its own: it is not another item.
    fn cut_list(
        &self,
        start: Option<u64>,
        mut items: Vec<Vec<Block>>,
        with: &dyn Fn(Block) -> String,
        must: Must,
    ) -> (Option<Block>, Vec<Block>) {
        let list = |items: &[Vec<Block>]| Block::List { start, items: items.to_vec() };
        let count = most(items.len(), |count| self.fits(&with(list(&items[..count]))));
        let mut rest = items.split_off(count);
        let mut taken = items;
        let mut tail = Vec::new();
        if taken.is_empty() && !rest.is_empty() {
            let whole = |part: &[Block]| with(list(&[part.to_vec()]));
            let (head, left) = self.take(rest[0].clone(), &whole, must);
            if !head.is_empty() || rest[0].is_empty() {
                rest.remove(0);
                taken.push(head);
                tail = left;
            }
        }
        if !rest.is_empty() {
            let start = start.map(|start| start.saturating_add(taken.len() as u64));
            tail.push(Block::List { start, items: rest });
        }
        ((!taken.is_empty()).then(|| list(&taken)), tail)
    }

    /// Every part of a table has the header. If a row is too long for that, the rows become paragraphs.
    fn cut_table(
        &self,
        header: Vec<Rich>,
        mut rows: Vec<Vec<Rich>>,
        with: &dyn Fn(Block) -> String,
        must: Must,
    ) -> (Option<Block>, Vec<Block>) {
        let table = |rows: &[Vec<Rich>]| Block::Table { header: header.clone(), rows: rows.to_vec() };
        let count = most(rows.len(), |count| self.fits(&with(table(&rows[..count]))));
        let rest = rows.split_off(count);
        if count > 0 {
            return (Some(table(&rows)), if rest.is_empty() { Vec::new() } else { vec![table(&rest)] });
        }
        if must == Must::Fit {
            return (None, vec![table(&rest)]);
        }
        let paragraph = |cells: &Vec<Rich>| Block::Paragraph(joined(cells));
        let (head, mut tail) = self.cut_whole(paragraph(&header), with, must);
        tail.extend(rest.iter().map(paragraph));
        (head, tail)
    }

    fn cut_whole(
        &self,
        block: Block,
        with: &dyn Fn(Block) -> String,
        must: Must,
    ) -> (Option<Block>, Vec<Block>) {
        match self.fits(&with(block.clone())) {
            true => (Some(block), Vec::new()),
            false => self.cut(block, with, must),
        }
    }
}

/// Writes the address of a link behind its text.
fn without_link(text: &Rich, link: &Span) -> Rich {
    let mut out = text.slice(0..link.range.end);
    out.spans.retain(|span| !matches!(span.style, Style::Link(_)));
    if let Style::Link(url) = &link.style
        && !shows_itself(&text.text[link.range.clone()], url)
    {
        out.text.push_str(&format!(" ({url})"));
    }
    out.push(&text.slice(link.range.end..text.text.len()));
    out
}

/// The cells of a row as one text.
fn joined(cells: &[Rich]) -> Rich {
    let mut text = Rich::default();
    for (index, cell) in cells.iter().enumerate() {
        if index > 0 {
            text.text.push_str(" | ");
        }
        text.push(cell);
    }
    text
}

/// Returns the largest count up to `all` that fits, if everything below it fits too.
fn most(all: usize, fits: impl Fn(usize) -> bool) -> usize {
    let (mut low, mut high) = (0, 1);
    while high <= all && fits(high) {
        low = high;
        high *= 2;
    }
    let mut high = high.min(all + 1);
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        if fits(middle) { low = middle } else { high = middle }
    }
    low
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Prefer {
    Lines,
    Sentences,
}

/// Returns where to cut a text so that the part before it fits.
fn cut_point(
    text: &str,
    links: &[std::ops::Range<usize>],
    prefer: Prefer,
    must: Must,
    fits: &dyn Fn(usize) -> bool,
) -> usize {
    let graphemes = text.grapheme_indices(true).take(MAX_PART);
    let ends: Vec<usize> = graphemes.map(|(start, part)| start + part.len()).collect();
    let count = most(ends.len(), |count| fits(ends[count - 1]));
    if count > 0 && ends[count - 1] == text.len() {
        return text.len();
    }
    let Some(longest) = count.checked_sub(1).map(|last| ends[last]) else {
        // Not even one character fits together with its marks.
        let characters = text.char_indices().take(MAX_PART);
        let ends: Vec<usize> = characters.map(|(start, c)| start + c.len_utf8()).collect();
        let count = most(ends.len(), |count| fits(ends[count - 1]));
        return match must {
            Must::Fit => 0,
            Must::Take => ends[count.max(1) - 1],
        };
    };
    let fitting = &text[..longest];
    // White space behind the part belongs to the cut.
    let next_is_space = text[longest..].starts_with(char::is_whitespace);
    let is_free = |at: usize| !links.iter().any(|link| link.start < at && at < link.end);
    let line = fitting.match_indices('\n').map(|(at, _)| at + 1).rev().find(|at| is_free(*at));
    let sentence = || {
        let ends = fitting
            .char_indices()
            .rev()
            .filter(|(_, c)| matches!(c, '.' | '!' | '?' | '…' | '。' | '！' | '？'));
        ends.map(|(at, c)| at + c.len_utf8()).find(|at| {
            let is_wide = fitting[..*at].ends_with(['。', '！', '？']);
            is_free(*at) && (is_wide || text[*at..].starts_with(char::is_whitespace))
        })
    };
    let word = || {
        if next_is_space && is_free(longest) {
            return Some(longest);
        }
        let spaces = fitting.char_indices().rev().filter(|(_, c)| c.is_whitespace());
        spaces.map(|(at, c)| at + c.len_utf8()).find(|at| is_free(*at))
    };
    // A cut that leaves most of the message empty is worse than one at a smaller boundary.
    let is_late = |at: &usize| *at > longest / 2;
    let is_some = |at: &usize| *at > 0 && !text[..*at].trim().is_empty();
    let found = match prefer {
        Prefer::Lines => line.filter(is_some).or_else(|| word().filter(is_some)),
        Prefer::Sentences => line
            .filter(is_late)
            .or_else(|| sentence().filter(is_late))
            .or_else(|| word().filter(is_some))
            .or_else(|| {
                links.iter().find(|link| link.contains(&longest)).map(|link| link.start).filter(is_some)
            }),
    };
    match (found, must) {
        (Some(at), _) => at,
        (None, Must::Fit) => 0,
        (None, Must::Take) => longest,
    }
}
