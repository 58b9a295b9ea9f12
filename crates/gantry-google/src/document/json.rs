//! The JSON of a document, as far as it is read.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Document {
    pub(crate) title: String,
    pub(crate) revision_id: String,
    /// Absent if the document was read with its tabs.
    #[serde(flatten)]
    pub(super) content: DocumentTab,
    pub(super) tabs: Vec<TabNode>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct TabNode {
    pub(super) tab_properties: TabProperties,
    pub(super) document_tab: DocumentTab,
    pub(super) child_tabs: Vec<TabNode>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct TabProperties {
    pub(super) tab_id: String,
    pub(super) title: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct DocumentTab {
    pub(super) body: Segment,
    pub(super) lists: BTreeMap<String, List>,
    pub(super) footnotes: BTreeMap<String, Segment>,
    pub(super) headers: BTreeMap<String, Segment>,
    pub(super) footers: BTreeMap<String, Segment>,
    pub(super) inline_objects: BTreeMap<String, InlineObject>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Segment {
    pub(super) content: Vec<Element>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Element {
    pub(super) start_index: u64,
    pub(super) end_index: u64,
    pub(super) paragraph: Option<Paragraph>,
    pub(super) table: Option<Table>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Paragraph {
    pub(super) elements: Vec<Piece>,
    pub(super) paragraph_style: ParagraphStyle,
    pub(super) bullet: Option<Bullet>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct ParagraphStyle {
    pub(super) named_style_type: String,
    pub(super) indent_start: Option<Dimension>,
    pub(super) shading: Option<Shading>,
    pub(super) border_bottom: Option<Border>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Dimension {
    pub(super) magnitude: f64,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Shading {
    pub(super) background_color: Option<OptionalColor>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct OptionalColor {
    pub(super) color: Option<Value>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Border {
    pub(super) width: Option<Dimension>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Bullet {
    pub(super) list_id: String,
    pub(super) nesting_level: u8,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct List {
    pub(super) list_properties: ListProperties,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct ListProperties {
    pub(super) nesting_levels: Vec<NestingLevel>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct NestingLevel {
    /// Absent or `GLYPH_TYPE_UNSPECIFIED` for bullets.
    pub(super) glyph_type: String,
}

/// An element of a paragraph. At most one field is present.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Piece {
    pub(super) text_run: Option<TextRun>,
    pub(super) footnote_reference: Option<FootnoteReference>,
    pub(super) inline_object_element: Option<InlineObjectElement>,
    pub(super) rich_link: Option<RichLink>,
    pub(super) person: Option<Person>,
    pub(super) date_element: Option<DateElement>,
    pub(super) equation: Option<Value>,
    pub(super) horizontal_rule: Option<Value>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct TextRun {
    pub(super) content: String,
    pub(super) text_style: TextStyle,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct TextStyle {
    pub(super) bold: bool,
    pub(super) italic: bool,
    pub(super) strikethrough: bool,
    pub(super) link: Option<Link>,
    pub(super) weighted_font_family: Option<FontFamily>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Link {
    /// Absent for links within the document.
    pub(super) url: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct FontFamily {
    pub(super) font_family: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct FootnoteReference {
    pub(super) footnote_id: String,
    pub(super) footnote_number: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct InlineObjectElement {
    pub(super) inline_object_id: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct InlineObject {
    pub(super) inline_object_properties: InlineObjectProperties,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct InlineObjectProperties {
    pub(super) embedded_object: EmbeddedObject,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct EmbeddedObject {
    pub(super) title: String,
    pub(super) description: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct RichLink {
    pub(super) rich_link_properties: RichLinkProperties,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct RichLinkProperties {
    pub(super) title: String,
    pub(super) uri: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Person {
    pub(super) person_properties: PersonProperties,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct PersonProperties {
    pub(super) name: String,
    pub(super) email: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct DateElement {
    pub(super) date_element_properties: DateElementProperties,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct DateElementProperties {
    pub(super) display_text: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Table {
    pub(super) table_rows: Vec<Row>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Row {
    pub(super) table_cells: Vec<Segment>,
}
