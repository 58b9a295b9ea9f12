//! Step 6: shortens results over the budget on model-facing surfaces. JSON keeps its shape.
//!
//! The whole result is kept behind a handle. Images do not count, because a model does not read them as text.

use serde_json::{Value, json};

use crate::tool::Reply;

/// `maxToolResultChars` unless configured otherwise.
pub const DEFAULT_MAX_RESULT_CHARS: usize = 80_000;

/// `mcp.maxToolResultChars` unless configured otherwise. Clients put longer results into files of
/// their own, where the model sees neither the text nor the handle.
pub const DEFAULT_MAX_MCP_RESULT_CHARS: usize = 40_000;

/// No string is shortened below this; lists lose their middle instead.
const SHORTEST_STRING: usize = 200;
/// A list keeps at least this many items of each end.
const FEWEST_ITEMS: usize = 5;

/// Removes the `tail` of a command if it repeats the end of its `output`. A model would pay twice for the same text.
pub(crate) fn remove_repeated_tail(reply: &mut Reply) {
    let Reply::Json(Value::Object(object)) = reply else { return };
    let text = |name: &str| object.get(name).and_then(Value::as_str);
    let repeats =
        matches!((text("output"), text("tail")), (Some(output), Some(tail)) if output.ends_with(tail));
    if repeats {
        object.shift_remove("tail");
    }
}

/// How many characters of the reply count against the budget.
pub(crate) fn characters(reply: &Reply) -> usize {
    match reply {
        Reply::Text(text) => text.chars().count(),
        Reply::Json(value) => json_characters(value).saturating_sub(image_characters(value)),
    }
}

/// The reply shortened to about `budget` characters, with its handle and true size.
///
/// `handle` is `None` if the whole reply could not be kept.
pub(crate) fn shorten(reply: Reply, budget: usize, handle: Option<&str>, total: usize) -> Reply {
    let more = match handle {
        Some(handle) => format!("result_read with handle {handle} shows the rest"),
        None => "the rest could not be kept".to_owned(),
    };
    match reply {
        Reply::Text(text) => {
            let note = format!("\n… {total} characters in all; {more} …\n");
            Reply::Text(head_and_tail(&text, budget.saturating_sub(note.chars().count()), &note))
        }
        Reply::Json(mut value) => {
            // Images keep their place and their length.
            let room = budget.saturating_sub(200) + image_characters(&value);
            shorten_strings(&mut value, room, &more);
            shorten_lists(&mut value, room);
            if let Value::Object(object) = &mut value {
                if let Some(handle) = handle {
                    object.insert("resultHandle".into(), json!(handle));
                }
                object.insert("resultCharacters".into(), json!(total));
            }
            Reply::Json(value)
        }
    }
}

fn json_characters(value: &Value) -> usize {
    match value {
        Value::Null => 4,
        Value::Bool(_) => 5,
        Value::Number(number) => number.to_string().len(),
        Value::String(text) => escaped_characters(text),
        Value::Array(items) => 2 + items.iter().map(|item| json_characters(item) + 1).sum::<usize>(),
        Value::Object(object) => {
            2 + object
                .iter()
                .map(|(name, item)| escaped_characters(name) + json_characters(item) + 2)
                .sum::<usize>()
        }
    }
}

fn escaped_characters(text: &str) -> usize {
    let escapes = |c: char| match c {
        '"' | '\\' | '\n' | '\r' | '\t' => 2,
        c if (c as u32) < 0x20 => 6,
        _ => 1,
    };
    2 + text.chars().map(escapes).sum::<usize>()
}

/// How many characters of the value are sent as images instead of text. Only content blocks are: a list
/// named `content` of which every item is a text or an image.
fn image_characters(value: &Value) -> usize {
    let Some(blocks) = value.get("content").and_then(Value::as_array) else { return 0 };
    let is_text = |block: &Value| block["type"] == "text" && block["text"].is_string();
    if !blocks.iter().all(|block| is_text(block) || is_image(block)) {
        return 0;
    }
    blocks.iter().filter_map(|block| block["data"].as_str()).map(escaped_characters).sum()
}

fn is_image(block: &Value) -> bool {
    let is_base64 =
        |data: &str| data.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+/=".contains(&byte));
    block["type"] == "image"
        && block["data"].as_str().is_some_and(is_base64)
        && block["mimeType"].as_str().is_some_and(|kind| kind.starts_with("image/"))
}

/// Lowers one common limit on string lengths until the whole value fits.
fn shorten_strings(value: &mut Value, room: usize, more: &str) {
    let mut lengths = Vec::new();
    collect_lengths(value, &mut lengths);
    let rest = json_characters(value).saturating_sub(lengths.iter().sum());
    let room = room.saturating_sub(rest);
    let fits = |cap: usize| lengths.iter().map(|length| (*length).min(cap)).sum::<usize>() <= room;
    let (mut low, mut high) =
        (SHORTEST_STRING, lengths.iter().copied().max().unwrap_or(0).max(SHORTEST_STRING));
    while low < high {
        let middle = low + (high - low).div_ceil(2);
        if fits(middle) { low = middle } else { high = middle - 1 }
    }
    cut_strings(value, low, more);
}

fn collect_lengths(value: &Value, lengths: &mut Vec<usize>) {
    match value {
        Value::String(text) => lengths.push(escaped_characters(text)),
        Value::Array(items) => items.iter().for_each(|item| collect_lengths(item, lengths)),
        Value::Object(object) => {
            let counted = object.iter().filter(|(name, _)| !(is_image(value) && *name == "data"));
            counted.for_each(|(_, item)| collect_lengths(item, lengths));
        }
        _ => {}
    }
}

fn cut_strings(value: &mut Value, cap: usize, more: &str) {
    let image = is_image(value);
    match value {
        Value::String(text) if escaped_characters(text) > cap => {
            let count = text.chars().count();
            let note = format!("\n… {count} characters in all; {more} …\n");
            // Escapes make a string longer than its characters: cut by the share that fits.
            let share = cap.saturating_sub(note.chars().count()) * count / escaped_characters(text).max(1);
            *text = head_and_tail(text, share, &note);
        }
        Value::Array(items) => items.iter_mut().for_each(|item| cut_strings(item, cap, more)),
        Value::Object(object) => {
            let cut = object.iter_mut().filter(|(name, _)| !(image && *name == "data"));
            cut.for_each(|(_, item)| cut_strings(item, cap, more));
        }
        _ => {}
    }
}

/// Halves one common limit on list lengths until the whole value fits. Each pass costs one walk over the
/// value, and there are at most as many passes as the longest length has bits.
fn shorten_lists(value: &mut Value, room: usize) {
    let mut cap = longest_length(value);
    while cap > 2 * FEWEST_ITEMS + 1 && json_characters(value) > room {
        cap = (cap / 2).max(2 * FEWEST_ITEMS + 1);
        cut_lists(value, cap);
    }
}

/// Drops the middle of every list that is longer than `cap`.
fn cut_lists(value: &mut Value, cap: usize) {
    match value {
        Value::Array(items) => {
            if items.len() > cap {
                let keep = cap / 2;
                let omitted = items.len() - 2 * keep;
                items.splice(keep..keep + omitted, [json!(format!("… {omitted} items left out …"))]);
            }
            items.iter_mut().for_each(|item| cut_lists(item, cap));
        }
        Value::Object(object) => object.values_mut().for_each(|item| cut_lists(item, cap)),
        _ => {}
    }
}

fn longest_length(value: &Value) -> usize {
    match value {
        Value::Array(items) => items.len().max(items.iter().map(longest_length).max().unwrap_or(0)),
        Value::Object(object) => object.values().map(longest_length).max().unwrap_or(0),
        _ => 0,
    }
}

fn head_and_tail(text: &str, keep: usize, note: &str) -> String {
    let count = text.chars().count();
    let (head, tail) = (keep / 2, keep - keep / 2);
    let head: String = text.chars().take(head).collect();
    let tail: String = text.chars().skip(count.saturating_sub(tail)).collect();
    format!("{head}{note}{tail}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tail_is_left_out_only_when_it_repeats_the_output() {
        let shown = |value: Value| {
            let mut reply = Reply::Json(value);
            remove_repeated_tail(&mut reply);
            reply.to_text()
        };
        assert_eq!(
            shown(json!({"output": "one two", "tail": "two", "exitCode": 0})),
            r#"{"output":"one two","exitCode":0}"#
        );
        assert_eq!(
            shown(json!({"output": "one two", "tail": "three"})),
            r#"{"output":"one two","tail":"three"}"#
        );
        assert_eq!(
            shown(json!({"tail": "so far"})),
            r#"{"tail":"so far"}"#,
            "a running command has no output yet"
        );
    }

    fn shortened(value: Value, budget: usize) -> Value {
        let total = json_characters(&value);
        match shorten(Reply::Json(value), budget, Some("h1"), total) {
            Reply::Json(value) => value,
            Reply::Text(_) => unreachable!("JSON stays JSON"),
        }
    }

    #[test]
    fn the_longest_strings_lose_their_middle_and_the_rest_stays() {
        let value = json!({"path": "/a/b", "output": format!("HEAD{}TAIL", "x".repeat(200_000)), "n": 7});
        let short = shortened(value, 80_000);
        let output = short["output"].as_str().unwrap();
        assert!(output.starts_with("HEAD") && output.ends_with("TAIL"));
        assert_eq!(
            (&short["path"], &short["n"], &short["resultHandle"]),
            (&json!("/a/b"), &json!(7), &json!("h1"))
        );
        let length = short.to_string().chars().count();
        assert!((70_000..=80_000).contains(&length), "{length}");
    }

    #[test]
    fn many_short_items_lose_the_middle_of_their_list() {
        let value =
            json!({"matches": (0..20_000).map(|n| json!(format!("/some/path/{n}"))).collect::<Vec<_>>()});
        let short = shortened(value, 80_000);
        let matches = short["matches"].as_array().unwrap();
        assert_eq!(matches[0], "/some/path/0");
        assert_eq!(matches[matches.len() - 1], "/some/path/19999");
        assert!(short.to_string().len() <= 80_000);
    }

    #[test]
    fn text_full_of_escapes_still_fits() {
        let short = shortened(json!({"output": "\n\"\u{1}".repeat(100_000)}), 10_000);
        assert!(short.to_string().chars().count() <= 10_000, "{}", short.to_string().chars().count());
    }

    #[test]
    fn images_do_not_count() {
        let image =
            json!({"content": [{"type": "image", "data": "A".repeat(500_000), "mimeType": "image/png"}]});
        assert!(characters(&Reply::Json(image.clone())) < 1_000);
        let data = image["content"][0]["data"].clone();
        let captioned =
            json!({"content": [image["content"][0].clone(), {"type": "text", "text": "x".repeat(50_000)}]});
        let short = shortened(captioned, 1_000);
        assert_eq!(short["content"][0]["data"], data, "the image stays whole");
        assert!(short["content"][1]["text"].as_str().unwrap().len() < 1_000);
    }

    #[test]
    fn only_content_blocks_count_as_images() {
        let data = "A".repeat(5_000);
        for value in [
            json!({"x": {"type": "image", "data": data, "mimeType": "image/png"}}),
            json!({"content": [{"type": "image", "data": format!("not base64 {data}"), "mimeType": "image/png"}]}),
            json!({"content": [{"type": "image", "data": data}]}),
            json!({"content": [{"type": "image", "data": data, "mimeType": "image/png"}, {"type": "other"}]}),
            json!({"content": [{"type": "image", "data": "", "mimeType": "image/png", "note": data}]}),
        ] {
            assert!(characters(&Reply::Json(value.clone())) > 5_000, "{value}");
        }
    }

    #[test]
    fn many_lists_are_shortened_in_little_time() {
        let lists: serde_json::Map<String, Value> =
            (0..20_000).map(|n| (format!("k{n}"), json!(vec![0; 12]))).collect();
        let started = std::time::Instant::now();
        shortened(Value::Object(lists), 4_000);
        // It took minutes when each list was shortened in a pass of its own.
        assert!(started.elapsed() < std::time::Duration::from_secs(20), "{:?}", started.elapsed());
    }

    #[test]
    fn text_keeps_head_and_tail() {
        let Reply::Text(short) = shorten(Reply::Text("é".repeat(1_000)), 500, Some("h2"), 1_000) else {
            unreachable!()
        };
        assert!(
            short.chars().count() <= 500
                && short.starts_with('é')
                && short.ends_with('é')
                && short.contains("h2")
        );
    }
}
