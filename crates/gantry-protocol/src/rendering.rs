//! Texts as data that a client can draw without parsing: Markdown, colored output, differences and graphs.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// `params` of `markdown.render`: at most 1,000 texts, 8 MB in all.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MarkdownParams {
    pub texts: Vec<String>,
}

/// `result` of `markdown.render`, in the order of the texts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MarkdownDocuments {
    pub documents: Vec<MarkdownDocument>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MarkdownDocument {
    pub blocks: Vec<MarkdownBlock>,
    /// The first blocks that do not change when more text follows.
    pub settled_blocks: usize,
    /// Where the text of the other blocks begins, in UTF-16 units.
    pub settled: usize,
}

/// A block of a document. Nothing else occurs: tags of HTML are text, pictures are links.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "block", rename_all = "snake_case")]
pub enum MarkdownBlock {
    Paragraph {
        content: Vec<MarkdownInline>,
    },
    Heading {
        /// 1 to 6.
        level: u8,
        content: Vec<MarkdownInline>,
    },
    Code {
        /// Letters, digits and `+-_.#`, perhaps empty.
        language: String,
        text: String,
    },
    Quote {
        blocks: Vec<MarkdownBlock>,
    },
    List {
        /// The number of the first item; missing in lists without numbers.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        start: Option<u64>,
        items: Vec<MarkdownItem>,
    },
    Table {
        align: Vec<MarkdownAlign>,
        header: Vec<Vec<MarkdownInline>>,
        rows: Vec<Vec<Vec<MarkdownInline>>>,
    },
    Rule,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MarkdownItem {
    /// Whether the item of a list of tasks is done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub done: Option<bool>,
    pub blocks: Vec<MarkdownBlock>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum MarkdownAlign {
    None,
    Left,
    Center,
    Right,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "inline", rename_all = "snake_case")]
pub enum MarkdownInline {
    Text {
        text: String,
    },
    Code {
        text: String,
    },
    Emphasis {
        content: Vec<MarkdownInline>,
    },
    Strong {
        content: Vec<MarkdownInline>,
    },
    Strike {
        content: Vec<MarkdownInline>,
    },
    /// A link to `http:`, `https:` or `mailto:`. Other links are their text.
    Link {
        href: String,
        /// Where the link leads, if its text names another host.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        host: Option<String>,
        content: Vec<MarkdownInline>,
    },
    Break,
}

/// `params` of `ansi.render`: output of a command, at most 4 MB.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AnsiParams {
    pub text: String,
    /// The style in which the text before this one ended.
    #[serde(default)]
    pub style: AnsiStyle,
}

/// `result` of `ansi.render`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AnsiLines {
    pub lines: Vec<Vec<AnsiRun>>,
    /// The style at the end, for the text that follows.
    pub style: AnsiStyle,
}

/// A piece of a line in one style.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AnsiRun {
    pub text: String,
    #[serde(flatten)]
    pub style: AnsiStyle,
}

/// Colors are `0` to `255`, or `#rrggbb`; missing for the default color.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct AnsiStyle {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub color: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub background: Option<String>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub bold: bool,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub dim: bool,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub italic: bool,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub underline: bool,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub strike: bool,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub inverse: bool,
}

/// `params` of `diff.render`: two texts, or a patch. At most 4 MB in all.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct DiffParams {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
    /// A unified diff, in place of `before` and `after`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub patch: Option<String>,
    /// Lines that are shown around a change; 3 when left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub context: Option<usize>,
    /// The first row; 0 when left out.
    pub offset: usize,
}

/// `result` of `diff.render`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DiffRows {
    /// At most 2,000.
    pub rows: Vec<DiffRow>,
    /// Rows in all.
    pub total: usize,
    pub added: usize,
    pub removed: usize,
    /// The first of the rows that follow.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_offset: Option<usize>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DiffRow {
    pub kind: DiffRowKind,
    /// The number of the line before the change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<usize>,
    /// The number of the line after the change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<usize>,
    /// Without the line's end. Of a `gap` and a `file`, what is shown in its place.
    pub text: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DiffRowKind {
    Same,
    Added,
    Removed,
    /// Lines that are left out.
    Gap,
    /// The name of the next file of a patch.
    File,
}

/// `params` of `graph.layout`: at most 500 nodes and 2,000 edges.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GraphParams {
    pub nodes: Vec<GraphNode>,
    pub edges: Vec<GraphEdge>,
}

#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GraphNode {
    pub id: String,
    /// 160 when left out; at most 1,000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub width: Option<f64>,
    /// 48 when left out; at most 1,000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub height: Option<f64>,
}

#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GraphEdge {
    pub from: String,
    pub to: String,
}

/// `result` of `graph.layout`: a picture from left to right.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GraphLayout {
    pub width: f64,
    pub height: f64,
    /// In the order of the request.
    pub nodes: Vec<GraphPlace>,
    /// In the order of the request. An edge is drawn through its points.
    pub edges: Vec<GraphLine>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GraphPlace {
    pub id: String,
    /// The left edge.
    pub x: f64,
    /// The upper edge.
    pub y: f64,
    pub width: f64,
    pub height: f64,
    /// The number of the column.
    pub layer: usize,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GraphLine {
    pub from: String,
    pub to: String,
    /// Pairs of x and y.
    pub points: Vec<[f64; 2]>,
}
