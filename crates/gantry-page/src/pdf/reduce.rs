//! Reduces a PDF to what its text needs: unpacked within limits, only text operators, only fonts
//! and nested forms, no cycles.

use std::collections::HashMap;

use lopdf::content::Content;
use lopdf::{Dictionary, Document, Error, LoadOptions, Object, ObjectId, Stream};

use super::MAX_PAGES;
use crate::Unreadable;

/// The limit for one unpacked stream.
const MAX_STREAM: usize = 16 * 1024 * 1024;
/// The limit for all unpacked streams together.
const MAX_STREAMS: usize = 64 * 1024 * 1024;
/// The limit for reading all pages, where a form that is used many times counts each time.
const MAX_WORK: u64 = 128 * 1024 * 1024;
/// How deep forms may be nested.
const MAX_NESTING: usize = 6;
/// How many steps up the page tree are searched for inherited properties.
const MAX_ANCESTORS: usize = 32;

const TEXT_OPERATORS: [&str; 20] = [
    "BT", "ET", "Tf", "Td", "TD", "Tm", "T*", "Tj", "TJ", "'", "\"", "Tc", "Tw", "Tz", "TL", "Ts", "Tr", "q",
    "Q", "cm",
];

pub(super) struct Reduced {
    pub(super) bytes: Vec<u8>,
    pub(super) pages: u32,
    pub(super) cut: bool,
}

pub(super) fn reduce(bytes: &[u8]) -> Result<Reduced, Unreadable> {
    let options = LoadOptions { max_decompressed_size: Some(MAX_STREAM), ..LoadOptions::default() };
    let mut document = Document::load_mem_with_options(bytes, options).map_err(unreadable)?;
    if document.is_encrypted() {
        return Err(Unreadable("a PDF that is encrypted with a password".to_owned()));
    }
    unpack(&mut document)?;
    let pages = document.get_pages();
    let cut = pages.len() > MAX_PAGES;
    let pages: Vec<ObjectId> = pages.into_values().take(MAX_PAGES).collect();
    let mut forms = Forms::default();
    let mut reduced = Document::with_version("1.7");
    // Fonts are copied unchanged, with everything they refer to.
    reduced.max_id = document.max_id;
    for (id, object) in &document.objects {
        reduced.objects.insert(*id, object.clone());
    }
    let mut kids = Vec::new();
    let mut work = 0u64;
    for page in pages {
        let (page, cost) = reduced_page(&document, &mut reduced, &mut forms, page);
        work = work.saturating_add(cost);
        kids.push(Object::Reference(page));
    }
    if work > MAX_WORK {
        return Err(Unreadable("a PDF that is too complex to be read".to_owned()));
    }
    let count = kids.len();
    let mut tree = Dictionary::new();
    tree.set("Type", Object::Name(b"Pages".to_vec()));
    tree.set("Count", count as i64);
    tree.set("Kids", Object::Array(kids));
    let tree = reduced.add_object(tree);
    let mut catalog = Dictionary::new();
    catalog.set("Type", Object::Name(b"Catalog".to_vec()));
    catalog.set("Pages", Object::Reference(tree));
    let catalog = reduced.add_object(catalog);
    reduced.trailer.set("Root", Object::Reference(catalog));
    let mut bytes = Vec::new();
    reduced.save_to(&mut bytes).map_err(|_| super::broken())?;
    Ok(Reduced { bytes, pages: u32::try_from(count).unwrap_or(0), cut })
}

fn unreadable(err: Error) -> Unreadable {
    match err {
        Error::Decompress(_) => too_large(),
        Error::Decryption(_) | Error::InvalidPassword => {
            Unreadable("a PDF that is encrypted with a password".to_owned())
        }
        _ => super::broken(),
    }
}

fn too_large() -> Unreadable {
    Unreadable("a PDF that is too large when it is unpacked".to_owned())
}

/// Unpacks each stream that may matter to text, and empties the others.
fn unpack(document: &mut Document) -> Result<(), Unreadable> {
    let mut room = MAX_STREAMS;
    for object in document.objects.values_mut() {
        let Object::Stream(stream) = object else { continue };
        let kind = |key: &[u8]| stream.dict.get(key).and_then(Object::as_name).unwrap_or_default().to_vec();
        let of_no_use = kind(b"Subtype") == b"Image"
            || [&b"ObjStm"[..], b"XRef", b"Metadata"].contains(&&kind(b"Type")[..]);
        let content = match of_no_use {
            true => Vec::new(),
            false => match stream.get_plain_content_with_limit(MAX_STREAM.min(room)) {
                Ok(content) => content,
                Err(Error::Decompress(lopdf::DecompressError::MemoryLimitExceeded { .. })) => {
                    return Err(too_large());
                }
                // The stream uses an image compression.
                Err(_) => Vec::new(),
            },
        };
        room -= content.len();
        stream.set_plain_content(content);
    }
    Ok(())
}

/// Adds a page that contains only its text. Also returns the cost of reading it.
fn reduced_page(
    document: &Document,
    reduced: &mut Document,
    forms: &mut Forms,
    id: ObjectId,
) -> (ObjectId, u64) {
    let content = document.get_page_content_with_limit(id, MAX_STREAM).unwrap_or_default();
    let resources = inherited(document, id, b"Resources").and_then(|found| found.as_dict().ok());
    let (content, resources, cost) = forms.reduce(document, reduced, &content, resources, 0);
    let content = reduced.add_object(Stream::new(Dictionary::new(), content));
    let numbers = inherited(document, id, b"MediaBox").and_then(|found| found.as_array().ok());
    let numbers = numbers.map(|numbers| {
        numbers.iter().filter_map(|side| document.dereference(side).ok()?.1.as_float().ok()).collect()
    });
    let sides: Vec<f32> =
        numbers.filter(|sides: &Vec<f32>| sides.len() == 4).unwrap_or_else(|| vec![0.0, 0.0, 612.0, 792.0]);
    let mut page = Dictionary::new();
    page.set("Type", Object::Name(b"Page".to_vec()));
    page.set("MediaBox", Object::Array(sides.into_iter().map(Object::Real).collect()));
    page.set("Resources", resources);
    page.set("Contents", Object::Reference(content));
    (reduced.add_object(page), cost)
}

/// Returns a property of a page: its own, or that of the nearest ancestor that has it.
fn inherited<'a>(document: &'a Document, page: ObjectId, key: &[u8]) -> Option<&'a Object> {
    let mut dictionary = document.get_dictionary(page).ok()?;
    for _ in 0..MAX_ANCESTORS {
        if let Some(found) = deref(document, dictionary, key) {
            return Some(found);
        }
        dictionary = deref(document, dictionary, b"Parent")?.as_dict().ok()?;
    }
    None
}

fn deref<'a>(document: &'a Document, dictionary: &'a Dictionary, key: &[u8]) -> Option<&'a Object> {
    Some(document.dereference(dictionary.get(key).ok()?).ok()?.1)
}

/// `Forms` holds the reduced forms, with the cost of reading each.
#[derive(Default)]
struct Forms {
    known: HashMap<(ObjectId, usize), (ObjectId, u64)>,
}

impl Forms {
    /// Returns the text operators of `content`, and the fonts and forms they use.
    fn reduce(
        &mut self,
        document: &Document,
        reduced: &mut Document,
        content: &[u8],
        resources: Option<&Dictionary>,
        depth: usize,
    ) -> (Vec<u8>, Dictionary, u64) {
        let xobjects = resources.and_then(|own| deref(document, own, b"XObject")?.as_dict().ok());
        let mut used = Dictionary::new();
        let mut cost = content.len() as u64;
        let operations = Content::decode(content).map(|content| content.operations).unwrap_or_default();
        let mut kept = Vec::new();
        for operation in operations {
            if TEXT_OPERATORS.contains(&operation.operator.as_str()) {
                kept.push(operation);
            } else if operation.operator == "Do"
                && depth < MAX_NESTING
                && let Some(name) = operation.operands.first().and_then(|name| name.as_name().ok())
                && let Some(form) = xobjects.and_then(|known| known.get(name).ok()?.as_reference().ok())
                && let Some((form, more)) = self.form(document, reduced, form, depth + 1)
            {
                cost = cost.saturating_add(more);
                used.set(name.to_vec(), Object::Reference(form));
                kept.push(operation);
            }
        }
        let mut own = Dictionary::new();
        if let Some(fonts) = resources.and_then(|own| deref(document, own, b"Font")) {
            own.set("Font", fonts.clone());
        }
        own.set("XObject", used);
        (Content { operations: kept }.encode().unwrap_or_default(), own, cost)
    }

    /// Returns the reduced form, created once per depth. A form that uses itself ends at the
    /// deepest level.
    fn form(
        &mut self,
        document: &Document,
        reduced: &mut Document,
        id: ObjectId,
        depth: usize,
    ) -> Option<(ObjectId, u64)> {
        if let Some(known) = self.known.get(&(id, depth)) {
            return Some(*known);
        }
        let stream = document.get_object(id).ok()?.as_stream().ok()?;
        if stream.dict.get(b"Subtype").and_then(Object::as_name).ok()? != b"Form" {
            return None;
        }
        let resources = deref(document, &stream.dict, b"Resources").and_then(|own| own.as_dict().ok());
        let (content, resources, cost) = self.reduce(document, reduced, &stream.content, resources, depth);
        let mut dictionary = Dictionary::new();
        dictionary.set("Type", Object::Name(b"XObject".to_vec()));
        dictionary.set("Subtype", Object::Name(b"Form".to_vec()));
        dictionary.set("Resources", resources);
        let made = (reduced.add_object(Stream::new(dictionary, content)), cost);
        self.known.insert((id, depth), made);
        Some(made)
    }
}
