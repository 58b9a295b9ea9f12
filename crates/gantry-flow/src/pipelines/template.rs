//! Templates: `{{name}}` in a text is replaced once. A replaced value is never scanned again, and there are no loops and
//! filters, because models write these texts. `\{{` is a literal `{{`.

use serde_json::Value;

/// A part of a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Piece {
    Text(String),
    /// A name with dots, such as `params.date`, as its segments.
    Name(Vec<String>),
}

/// Splits a text into its parts.
pub(crate) fn parse(text: &str) -> Result<Vec<Piece>, String> {
    let (mut pieces, mut plain, mut rest) = (Vec::new(), String::new(), text);
    while let Some(found) = rest.find("{{") {
        let (before, after) = (&rest[..found], &rest[found + 2..]);
        if let Some(before) = before.strip_suffix('\\') {
            plain.push_str(before);
            plain.push_str("{{");
            rest = after;
            continue;
        }
        plain.push_str(before);
        let Some(end) = after.find("}}") else {
            return Err(format!(
                "\"{}\" has no }}}}; write \\{{{{ for a literal {{{{",
                shown(&rest[found..])
            ));
        };
        let name = after[..end].trim();
        let segments: Vec<String> = name.split('.').map(str::to_owned).collect();
        let is_name = |part: &String| {
            !part.is_empty() && part.chars().all(|c| c.is_alphanumeric() || c == '_' || c == '-')
        };
        if !segments.iter().all(is_name) {
            return Err(format!(
                "\"{{{{{}}}}}\" must be a name with dots; write \\{{{{ for a literal {{{{",
                shown(&after[..end])
            ));
        }
        if !plain.is_empty() {
            pieces.push(Piece::Text(std::mem::take(&mut plain)));
        }
        pieces.push(Piece::Name(segments));
        rest = &after[end + 2..];
    }
    plain.push_str(rest);
    if !plain.is_empty() {
        pieces.push(Piece::Text(plain));
    }
    Ok(pieces)
}

/// Returns the names of a text whose templates are not all right, so that they are checked too.
pub(crate) fn names_in(text: &str) -> Vec<Vec<String>> {
    let parts = text.split("{{").skip(1).filter_map(|part| part.split_once("}}"));
    let parsed = parts.filter_map(|(name, _)| parse(&format!("{{{{{name}}}}}")).ok());
    let names = parsed.flatten().filter_map(|piece| match piece {
        Piece::Name(name) => Some(name),
        Piece::Text(_) => None,
    });
    names.collect()
}

/// Escapes the placeholders of a text, so that it is used as it is.
pub(crate) fn escaped(text: &str) -> String {
    text.replace("{{", "\\{{")
}

/// The longest text after its names were replaced.
pub(crate) const MAX_RENDERED_BYTES: usize = 256 * 1024;

/// Replaces the names in a text. Values other than strings are written as JSON.
pub(crate) fn render(
    text: &str,
    value: &impl Fn(&[String]) -> Result<Value, String>,
) -> Result<String, String> {
    let mut rendered = String::new();
    for piece in parse(text)? {
        match piece {
            Piece::Text(text) => rendered.push_str(&text),
            Piece::Name(name) => match value(&name)? {
                Value::String(text) => rendered.push_str(&text),
                other => rendered.push_str(&other.to_string()),
            },
        }
        if rendered.len() > MAX_RENDERED_BYTES {
            return Err(format!(
                "the text has more than {MAX_RENDERED_BYTES} bytes after its names were replaced"
            ));
        }
    }
    Ok(rendered)
}

/// Replaces the names in all strings of a JSON value. A string that is exactly one name becomes the value itself.
pub(crate) fn render_json(
    input: &Value,
    value: &impl Fn(&[String]) -> Result<Value, String>,
) -> Result<Value, String> {
    Ok(match input {
        Value::String(text) => match parse(text)?.as_slice() {
            [Piece::Name(name)] => value(name)?,
            _ => Value::String(render(text, value)?),
        },
        Value::Array(items) => {
            Value::Array(items.iter().map(|item| render_json(item, value)).collect::<Result<_, _>>()?)
        }
        Value::Object(fields) => {
            let fields = fields.iter().map(|(name, field)| Ok((name.clone(), render_json(field, value)?)));
            Value::Object(fields.collect::<Result<_, String>>()?)
        }
        other => other.clone(),
    })
}

/// Calls `visit` for every string of a JSON value.
pub(crate) fn visit_texts(value: &Value, visit: &mut impl FnMut(&str)) {
    match value {
        Value::String(text) => visit(text),
        Value::Array(items) => items.iter().for_each(|item| visit_texts(item, visit)),
        Value::Object(fields) => fields.values().for_each(|field| visit_texts(field, visit)),
        _ => {}
    }
}

fn shown(text: &str) -> String {
    text.chars().take(40).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn value(name: &[String]) -> Result<Value, String> {
        match name.join(".").as_str() {
            "a" => Ok(json!("{{b}} \\{{")),
            "params.n" => Ok(json!(7)),
            "fetch-1.result" => Ok(json!("text")),
            "list" => Ok(json!([1, {"x": "{{a}}"}])),
            other => Err(format!("unknown {other}")),
        }
    }

    #[test]
    fn names_are_replaced_once() {
        for (text, rendered) in [
            ("", ""),
            ("plain } }} {", "plain } }} {"),
            ("{{a}}", "{{b}} \\{{"),
            ("x{{ a }}y", "x{{b}} \\{{y"),
            ("{{params.n}}{{fetch-1.result}}", "7text"),
            ("{{list}}", "[1,{\"x\":\"{{a}}\"}]"),
            ("\\{{a}}", "{{a}}"),
            ("\\\\{{a}}", "\\{{a}}"),
            ("größe {{params.n}} ä", "größe 7 ä"),
        ] {
            assert_eq!(render(text, &value).as_deref(), Ok(rendered), "{text}");
        }
        for wrong in ["{{", "{{a", "{{a b}}", "{{}}", "{{a..b}}", "{{.a}}", "{{a|upper}}", "{{{a}}}", "{{c}}"]
        {
            assert!(render(wrong, &value).is_err(), "{wrong}");
        }
    }

    #[test]
    fn text_is_limited_after_its_names_were_replaced() {
        let long = |_: &[String]| Ok(json!("x".repeat(MAX_RENDERED_BYTES / 2)));
        assert!(render("{{a}}{{a}}", &long).is_ok());
        assert!(render("{{a}}{{a}}.", &long).unwrap_err().contains("262144 bytes"));
        assert!(render_json(&json!({"x": ["{{a}}{{a}}{{a}}"]}), &long).is_err());
    }

    #[test]
    fn escaped_text_renders_as_itself() {
        for text in ["", "a", "{{", "{{a}}", "\\{{a}}", "{{{{{", "\\\\{{{", "}}{{"] {
            assert_eq!(render(&escaped(text), &value).as_deref(), Ok(text), "{text}");
        }
    }

    #[test]
    fn string_that_is_one_name_becomes_the_json_value() {
        let input = json!({"n": "{{params.n}}", "t": "n={{params.n}}", "l": ["{{ list }}", true, null]});
        let rendered = render_json(&input, &value).unwrap();
        assert_eq!(rendered, json!({"n": 7, "t": "n=7", "l": [[1, {"x": "{{a}}"}], true, null]}));
    }
}
