//! [`Segment`] is a body or a footnote: one unit for each index, as Docs counts them.

use serde_json::{Map, Value};

#[derive(Debug, Clone, Default)]
pub(super) struct Segment {
    pub(super) units: Vec<Unit>,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Unit {
    /// The start of a body.
    Section,
    /// One UTF-16 unit of text.
    Char(u16, Map<String, Value>),
    Footnote(String),
    /// The end of a paragraph.
    End(ParagraphEnd),
    Table,
    Row,
    Cell,
    TableEnd,
}

#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct ParagraphEnd {
    pub(super) style: Map<String, Value>,
    /// The list and the level.
    pub(super) bullet: Option<(String, u64)>,
}

impl Segment {
    pub(super) fn new_body() -> Segment {
        Segment { units: vec![Unit::Section, Unit::End(ParagraphEnd::default())] }
    }

    /// A new footnote contains a space.
    pub(super) fn new_footnote() -> Segment {
        let space = Unit::Char(u16::from(b' '), Map::new());
        Segment { units: vec![space, Unit::End(ParagraphEnd::default())] }
    }

    /// Whether text can be inserted before this unit.
    pub(super) fn is_in_paragraph(&self, at: usize) -> bool {
        matches!(self.units.get(at), Some(Unit::Char(..) | Unit::Footnote(_) | Unit::End(_)))
    }

    /// The paragraph around a unit: its first unit and its end.
    pub(super) fn paragraph(&self, at: usize) -> Option<(usize, usize)> {
        if !self.is_in_paragraph(at) {
            return None;
        }
        let is_text = |unit: &Unit| matches!(unit, Unit::Char(..) | Unit::Footnote(_));
        let start = self.units[..at].iter().rposition(|unit| !is_text(unit)).map_or(0, |before| before + 1);
        let end = at + self.units[at..].iter().position(|unit| matches!(unit, Unit::End(_)))?;
        Some((start, end))
    }

    /// The ends of all paragraphs that overlap a range.
    pub(super) fn ends_within(&self, start: usize, end: usize) -> Vec<usize> {
        let mut ends = Vec::new();
        for at in start..end.min(self.units.len()) {
            if let Some((_, end)) = self.paragraph(at)
                && !ends.contains(&end)
            {
                ends.push(end);
            }
        }
        ends
    }

    pub(super) fn end_mut(&mut self, at: usize) -> Option<&mut ParagraphEnd> {
        match self.units.get_mut(at) {
            Some(Unit::End(end)) => Some(end),
            _ => None,
        }
    }

    pub(super) fn insert_text(&mut self, at: usize, text: &str) -> Result<(), String> {
        let Some((start, end)) = self.paragraph(at) else {
            return Err(format!(
                "The insertion index must be inside the bounds of an existing paragraph, and {at} is not."
            ));
        };
        // New text has the style of the text before it.
        let near = if at > start { self.units.get(at - 1) } else { self.units.get(at) };
        let style = match near {
            Some(Unit::Char(_, style)) => style.clone(),
            _ => Map::new(),
        };
        let Unit::End(paragraph) = self.units[end].clone() else { return Err("no paragraph".to_owned()) };
        let is_dropped = |c: char| {
            matches!(c, '\u{0}'..='\u{8}' | '\u{c}'..='\u{1f}') || ('\u{e000}'..='\u{f8ff}').contains(&c)
        };
        let mut units = Vec::new();
        for c in text.chars().filter(|c| !is_dropped(*c)) {
            match c {
                '\n' => units.push(Unit::End(paragraph.clone())),
                c => {
                    let mut pair = [0; 2];
                    units.extend(
                        c.encode_utf16(&mut pair).iter().map(|unit| Unit::Char(*unit, style.clone())),
                    );
                }
            }
        }
        self.units.splice(at..at, units);
        Ok(())
    }

    pub(super) fn insert_table(&mut self, at: usize, rows: u64, columns: u64) -> Result<(), String> {
        let Some((_, end)) = self.paragraph(at) else {
            return Err(format!("A table cannot be inserted at {at}."));
        };
        let paragraph = self.units[end].clone();
        let mut units = vec![paragraph, Unit::Table];
        for _ in 0..rows {
            units.push(Unit::Row);
            for _ in 0..columns {
                units.extend([Unit::Cell, Unit::End(ParagraphEnd::default())]);
            }
        }
        units.push(Unit::TableEnd);
        self.units.splice(at..at, units);
        Ok(())
    }

    /// The text of a range.
    pub(super) fn text_of(&self, start: usize, end: usize) -> String {
        let units = self.units[start..end].iter().map(|unit| match unit {
            Unit::Char(unit, _) => *unit,
            // Something that is not text.
            _ => 0xfffc,
        });
        String::from_utf16_lossy(&units.collect::<Vec<u16>>())
    }

    pub(super) fn text(&self) -> String {
        let (mut lines, mut start) = (Vec::new(), None);
        for (at, unit) in self.units.iter().enumerate() {
            match unit {
                Unit::Char(..) | Unit::Footnote(_) => start = start.or(Some(at)),
                Unit::End(_) => lines.push(self.text_of(start.take().unwrap_or(at), at)),
                Unit::Section | Unit::Table | Unit::Row | Unit::Cell | Unit::TableEnd => {}
            }
        }
        lines.join("\n")
    }
}
