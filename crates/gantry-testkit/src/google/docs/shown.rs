//! A document as the API returns it.

use serde_json::{Map, Value, json};

use super::StoredDocument;
use super::segment::{ParagraphEnd, Segment, Unit};

pub(super) fn document(document: &StoredDocument, id: &str, with_tabs: bool) -> Value {
    let mut shown = json!({
        "documentId": id,
        "title": document.title,
        "revisionId": document.revision_id(),
        "suggestionsViewMode": "PREVIEW_WITHOUT_SUGGESTIONS",
    });
    let content = content(document);
    if !with_tabs {
        for (name, value) in content.as_object().into_iter().flatten() {
            shown[name.as_str()] = value.clone();
        }
        return shown;
    }
    let mut child = Value::Null;
    for (number, (title, text)) in document.tabs.iter().enumerate().rev() {
        let mut segment = Segment::new_body();
        segment.insert_text(1, text).unwrap();
        let body = json!({"content": elements(&segment, 0, segment.units.len(), &[])});
        let mut tab = json!({
            "tabProperties": {"tabId": format!("t.{}", number + 1), "title": title, "index": 0},
            "documentTab": {"body": body},
        });
        if !child.is_null() {
            tab["childTabs"] = json!([child]);
        }
        child = tab;
    }
    let mut first =
        json!({"tabProperties": {"tabId": "t.0", "title": "Tab 1", "index": 0}, "documentTab": content});
    if !child.is_null() {
        first["childTabs"] = json!([child]);
    }
    shown["tabs"] = json!([first]);
    shown
}

fn content(document: &StoredDocument) -> Value {
    let numbers: Vec<String> = references(document);
    let body = json!({"content": elements(&document.body, 0, document.body.units.len(), &numbers)});
    let mut lists = Map::new();
    for (id, preset) in &document.lists {
        let glyphs = match preset.starts_with("NUMBERED") {
            true => json!([{"glyphType": "DECIMAL"}, {"glyphType": "ALPHA"}, {"glyphType": "ROMAN"}]),
            false => json!([{"glyphSymbol": "●"}, {"glyphSymbol": "○"}, {"glyphSymbol": "■"}]),
        };
        let levels: Vec<Value> = (0..9).map(|level| glyphs[level % 3].clone()).collect();
        lists.insert(id.clone(), json!({"listProperties": {"nestingLevels": levels}}));
    }
    let mut footnotes = Map::new();
    for (id, segment) in &document.footnotes {
        let content = elements(segment, 0, segment.units.len(), &numbers);
        footnotes.insert(id.clone(), json!({"footnoteId": id, "content": content}));
    }
    json!({"body": body, "lists": lists, "footnotes": footnotes})
}

/// The footnotes in the order of their references. The position is the number.
fn references(document: &StoredDocument) -> Vec<String> {
    let ids = document.body.units.iter().filter_map(|unit| match unit {
        Unit::Footnote(id) => Some(id.clone()),
        _ => None,
    });
    ids.collect()
}

fn elements(segment: &Segment, from: usize, to: usize, numbers: &[String]) -> Vec<Value> {
    let mut elements = Vec::new();
    let mut at = from;
    while at < to {
        match &segment.units[at] {
            Unit::Section => {
                elements.push(
                    json!({"endIndex": 1, "sectionBreak": {"sectionStyle": {"sectionType": "CONTINUOUS"}}}),
                );
                at += 1;
            }
            Unit::Table => {
                let end = table_end(segment, at);
                elements.push(
                    json!({"startIndex": at, "endIndex": end, "table": table(segment, at, end, numbers)}),
                );
                at = end;
            }
            Unit::Char(..) | Unit::Footnote(_) | Unit::End(_) => {
                let is_end = |unit: &Unit| matches!(unit, Unit::End(_));
                let end = at + segment.units[at..to].iter().position(is_end).unwrap_or(0) + 1;
                elements.push(json!({
                    "startIndex": at,
                    "endIndex": end,
                    "paragraph": paragraph(segment, at, end, numbers),
                }));
                at = end;
            }
            Unit::Row | Unit::Cell | Unit::TableEnd => at += 1,
        }
    }
    elements
}

fn table_end(segment: &Segment, start: usize) -> usize {
    let mut depth = 0_usize;
    for (at, unit) in segment.units.iter().enumerate().skip(start) {
        match unit {
            Unit::Table => depth += 1,
            Unit::TableEnd => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return at + 1;
        }
    }
    segment.units.len()
}

fn table(segment: &Segment, start: usize, end: usize, numbers: &[String]) -> Value {
    let mut rows: Vec<(usize, Vec<usize>)> = Vec::new();
    for (at, unit) in segment.units.iter().enumerate().take(end).skip(start + 1) {
        match unit {
            Unit::Row => rows.push((at, Vec::new())),
            Unit::Cell => rows.last_mut().unwrap().1.push(at),
            _ => {}
        }
    }
    let columns = rows.first().map_or(0, |(_, cells)| cells.len());
    let mut shown = Vec::new();
    for (number, (row, cells)) in rows.iter().enumerate() {
        let row_end = rows.get(number + 1).map_or(end - 1, |(next, _)| *next);
        let cell = |(at, start): (usize, &usize)| {
            let end = cells.get(at + 1).copied().unwrap_or(row_end);
            let content = elements(segment, start + 1, end, numbers);
            json!({"startIndex": start, "endIndex": end, "content": content})
        };
        let cells: Vec<Value> = cells.iter().enumerate().map(cell).collect();
        shown.push(json!({"startIndex": row, "endIndex": row_end, "tableCells": cells}));
    }
    json!({"rows": rows.len(), "columns": columns, "tableRows": shown})
}

fn paragraph(segment: &Segment, start: usize, end: usize, numbers: &[String]) -> Value {
    let Unit::End(ParagraphEnd { style, bullet }) = &segment.units[end - 1] else { return Value::Null };
    let mut pieces: Vec<Value> = Vec::new();
    let mut at = start;
    while at < end - 1 {
        match &segment.units[at] {
            Unit::Char(_, style) => {
                let same = |unit: &Unit| matches!(unit, Unit::Char(_, other) if other == style);
                let run = segment.units[at..end - 1].iter().take_while(|unit| same(unit)).count();
                let text = segment.text_of(at, at + run);
                pieces.push(json!({
                    "startIndex": at, "endIndex": at + run, "textRun": {"content": text, "textStyle": style},
                }));
                at += run;
            }
            Unit::Footnote(id) => {
                let number = numbers.iter().position(|known| known == id).map_or(0, |at| at + 1);
                pieces.push(json!({
                    "startIndex": at, "endIndex": at + 1,
                    "footnoteReference": {"footnoteId": id, "footnoteNumber": number.to_string()},
                }));
                at += 1;
            }
            _ => at += 1,
        }
    }
    // The line break belongs to the last run, as in Docs.
    match pieces.last_mut().filter(|piece| !piece["textRun"].is_null()) {
        Some(last) => {
            let text = format!("{}\n", last["textRun"]["content"].as_str().unwrap_or_default());
            last["textRun"]["content"] = json!(text);
            last["endIndex"] = json!(end);
        }
        None => pieces.push(json!({
            "startIndex": end - 1, "endIndex": end, "textRun": {"content": "\n", "textStyle": {}},
        })),
    }
    let mut style = style.clone();
    style.entry("namedStyleType").or_insert_with(|| json!("NORMAL_TEXT"));
    let mut shown = json!({"elements": pieces, "paragraphStyle": style});
    if let Some((list, level)) = bullet {
        shown["bullet"] = json!({"listId": list});
        if *level > 0 {
            shown["bullet"]["nestingLevel"] = json!(level);
        }
    }
    shown
}
