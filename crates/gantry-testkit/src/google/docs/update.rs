//! The requests of `documents.batchUpdate`.

use serde_json::{Map, Value, json};

use super::StoredDocument;
use super::segment::{Segment, Unit};

/// Applies one request and returns its answer.
pub(super) fn apply(document: &mut StoredDocument, request: &Value) -> Result<Value, String> {
    let mut kinds = request.as_object().into_iter().flatten();
    let (Some((kind, body)), None) = (kinds.next(), kinds.next()) else {
        return Err("A request must have exactly one field.".to_owned());
    };
    match kind.as_str() {
        "insertText" => {
            let (segment, at) = location(document, body)?;
            segment.insert_text(at, body["text"].as_str().unwrap_or_default())?;
        }
        "insertTable" => {
            let (rows, columns) = (body["rows"].as_u64().unwrap_or(0), body["columns"].as_u64().unwrap_or(0));
            if rows == 0 || columns == 0 {
                return Err("A table needs rows and columns.".to_owned());
            }
            let (segment, at) = location(document, body)?;
            segment.insert_table(at, rows, columns)?;
        }
        "createFootnote" => {
            let id = format!("kix.fn{}", document.number());
            let (segment, at) = location(document, body)?;
            if !segment.is_in_paragraph(at) {
                return Err(format!("A footnote cannot be inserted at {at}."));
            }
            segment.units.insert(at, Unit::Footnote(id.clone()));
            document.footnotes.push((id.clone(), Segment::new_footnote()));
            return Ok(json!({"createFootnote": {"footnoteId": id}}));
        }
        "updateTextStyle" => {
            let fields = fields(body)?;
            let (segment, start, end) = range(document, body)?;
            for unit in &mut segment.units[start..end] {
                if let Unit::Char(_, style) = unit {
                    set(style, &body["textStyle"], &fields);
                }
            }
        }
        "updateParagraphStyle" => {
            let fields = fields(body)?;
            let (segment, start, end) = range(document, body)?;
            for at in segment.ends_within(start, end) {
                if let Some(end) = segment.end_mut(at) {
                    set(&mut end.style, &body["paragraphStyle"], &fields);
                }
            }
        }
        "deleteParagraphBullets" => {
            let (segment, start, end) = range(document, body)?;
            for at in segment.ends_within(start, end) {
                if let Some(end) = segment.end_mut(at) {
                    end.bullet = None;
                }
            }
        }
        "createParagraphBullets" => bullets(document, body)?,
        "replaceAllText" => {
            let count = replace(document, body)?;
            return Ok(json!({"replaceAllText": {"occurrencesChanged": count}}));
        }
        other => return Err(format!("this server has no {other}")),
    }
    Ok(json!({}))
}

fn segment<'a>(document: &'a mut StoredDocument, id: Option<&str>) -> Result<&'a mut Segment, String> {
    match id.filter(|id| !id.is_empty()) {
        None => Ok(&mut document.body),
        Some(id) => {
            let found = document.footnotes.iter_mut().find(|(known, _)| known == id);
            found.map(|(_, segment)| segment).ok_or_else(|| format!("Segment with ID {id} was not found."))
        }
    }
}

fn location<'a>(document: &'a mut StoredDocument, body: &Value) -> Result<(&'a mut Segment, usize), String> {
    if let Some(end) = body["endOfSegmentLocation"].as_object() {
        let segment = segment(document, end.get("segmentId").and_then(Value::as_str))?;
        let at = segment.units.len() - 1;
        return Ok((segment, at));
    }
    let at = body["location"]["index"].as_u64().ok_or("A location is required.")?;
    let segment = segment(document, body["location"]["segmentId"].as_str())?;
    let at = usize::try_from(at).unwrap_or(usize::MAX);
    if at >= segment.units.len() {
        let end = segment.units.len();
        return Err(format!("Index {at} must be less than the end index of the referenced segment, {end}."));
    }
    Ok((segment, at))
}

fn range<'a>(
    document: &'a mut StoredDocument,
    body: &Value,
) -> Result<(&'a mut Segment, usize, usize), String> {
    let range = &body["range"];
    let index = |name: &str| usize::try_from(range[name].as_u64().unwrap_or(0)).unwrap_or(usize::MAX);
    let (start, end) = (index("startIndex"), index("endIndex"));
    let segment = segment(document, range["segmentId"].as_str())?;
    if start >= end || end > segment.units.len() {
        return Err(format!("The range {start} to {end} is empty or ends after {}.", segment.units.len()));
    }
    Ok((segment, start, end))
}

fn fields(body: &Value) -> Result<Vec<String>, String> {
    let fields: Vec<String> =
        body["fields"].as_str().unwrap_or_default().split(',').map(str::to_owned).collect();
    if fields.iter().any(String::is_empty) {
        return Err("At least one field must be listed in fields.".to_owned());
    }
    Ok(fields)
}

/// Sets the listed fields. A listed field without a value is reset.
fn set(style: &mut Map<String, Value>, new: &Value, fields: &[String]) {
    for field in fields {
        match &new[field.as_str()] {
            Value::Null => style.remove(field),
            value => style.insert(field.clone(), value.clone()),
        };
    }
}

/// Leading tabs become levels and are removed.
fn bullets(document: &mut StoredDocument, body: &Value) -> Result<(), String> {
    let preset = body["bulletPreset"].as_str().ok_or("A preset is required.")?.to_owned();
    let (segment, start, end) = range(document, body)?;
    let ends = segment.ends_within(start, end);
    let first = ends.first().and_then(|end| segment.paragraph(*end)).map_or(0, |(start, _)| start);
    let before = first.checked_sub(1).and_then(|at| match &segment.units[at] {
        Unit::End(end) => end.bullet.clone(),
        _ => None,
    });
    // Paragraphs after a list with the same preset continue it.
    let lists = document.lists.clone();
    let known = before.map(|(list, _)| list).filter(|list| lists.contains(&(list.clone(), preset.clone())));
    let list = match known {
        Some(list) => list,
        None => {
            let list = format!("kix.list{}", document.number());
            document.lists.push((list.clone(), preset));
            list
        }
    };
    let (segment, _, _) = range(document, body)?;
    for at in ends.into_iter().rev() {
        let Some((start, end)) = segment.paragraph(at) else { continue };
        let is_tab = |unit: &&Unit| matches!(unit, Unit::Char(unit, _) if *unit == u16::from(b'\t'));
        let tabs = segment.units[start..end].iter().take_while(is_tab).count();
        if let Some(end) = segment.end_mut(end) {
            end.bullet = Some((list.clone(), tabs as u64));
        }
        segment.units.drain(start..start + tabs);
    }
    Ok(())
}

fn replace(document: &mut StoredDocument, body: &Value) -> Result<u64, String> {
    let find = body["containsText"]["text"].as_str().unwrap_or_default();
    if find.is_empty() {
        return Err("The text to find must not be empty.".to_owned());
    }
    if body["containsText"]["matchCase"] != true {
        return Err("this server matches with case only".to_owned());
    }
    let (find, new): (Vec<u16>, Vec<u16>) = (
        find.encode_utf16().collect(),
        body["replaceText"].as_str().unwrap_or_default().encode_utf16().collect(),
    );
    let mut count = 0;
    let footnotes = document.footnotes.iter_mut().map(|(_, segment)| segment);
    for segment in footnotes.chain([&mut document.body]) {
        let mut at = 0;
        while at + find.len() <= segment.units.len() {
            let style = match &segment.units[at] {
                Unit::Char(_, style) => style.clone(),
                _ => Map::new(),
            };
            let is_there = segment.units[at..at + find.len()]
                .iter()
                .zip(&find)
                .all(|(unit, wanted)| matches!(unit, Unit::Char(unit, _) if unit == wanted));
            if is_there {
                let new: Vec<Unit> = new.iter().map(|unit| Unit::Char(*unit, style.clone())).collect();
                let length = new.len();
                segment.units.splice(at..at + find.len(), new);
                at += length;
                count += 1;
            } else {
                at += 1;
            }
        }
    }
    for (_, text) in &mut document.tabs {
        let (find, new) = (String::from_utf16_lossy(&find), String::from_utf16_lossy(&new));
        count += text.matches(&find).count() as u64;
        *text = text.replace(&find, &new);
    }
    Ok(count)
}
