//! Edits Goose's configuration, which is YAML with the user's comments. It is edited line by line, and the result is parsed
//! to check that nothing else has changed.

use serde_json::{Map, Value, json};

use super::clients::{EditError, Entry, NAME};

const KEY: &str = "extensions";
/// Indentation of entries, and of their fields.
const INDENT: &str = "  ";
const FIELD: &str = "    ";

/// Returns the file with our entry below `extensions:`. Other fields of an existing entry, such as `envs`, stay.
pub(super) fn edited(text: &str, entry: &Entry) -> Result<String, EditError> {
    let before = read(text)?;
    let wanted = wanted(before.clone(), entry)?;
    if wanted == before {
        return Ok(text.to_owned());
    }
    let old = before.get(KEY).and_then(|all| all.get(NAME)).and_then(Value::as_object);
    let edited = rewritten(text, entry, old.and_then(|old| old.get("timeout")))?;
    match read(&edited) {
        Ok(after) if after == wanted => Ok(edited),
        _ => Err(EditError::Form("the edited file would not parse as intended")),
    }
}

fn read(text: &str) -> Result<Value, EditError> {
    if text.trim().is_empty() {
        return Ok(json!({}));
    }
    let syntax = |reason: String| EditError::Syntax { format: "YAML", reason };
    let root: Value = serde_saphyr::from_str(text).map_err(|err| syntax(err.to_string()))?;
    match root {
        Value::Null => Ok(json!({})),
        Value::Object(_) => Ok(root),
        _ => Err(syntax("the top level must be a mapping".to_owned())),
    }
}

/// Returns the content that the edited file must have.
fn wanted(mut root: Value, entry: &Entry) -> Result<Value, EditError> {
    let no_table = || EditError::NoTable { key: KEY };
    let all = root.as_object_mut().ok_or_else(no_table)?.entry(KEY).or_insert(Value::Null);
    if all.is_null() {
        *all = json!({});
    }
    let ours = all.as_object_mut().ok_or_else(no_table)?.entry(NAME).or_insert_with(|| json!({}));
    if !ours.is_object() {
        *ours = Value::Object(Map::new());
    }
    if ours.get("uri").is_some() || ours.get("type").is_some_and(|kind| kind != "stdio") {
        return Err(EditError::Form("the entry \"gantry\" has another type"));
    }
    let timeout = ours.get("timeout").cloned().unwrap_or_else(|| json!(300));
    let fields = json!({
        "enabled": true, "type": "stdio", "name": NAME, "cmd": entry.program, "args": entry.args, "timeout": timeout,
    });
    if let (Value::Object(ours), Value::Object(fields)) = (ours, fields) {
        ours.extend(fields);
    }
    Ok(root)
}

/// Inserts our lines. The caller checks the result by parsing it.
fn rewritten(text: &str, entry: &Entry, timeout: Option<&Value>) -> Result<String, EditError> {
    let timeout = timeout.map_or_else(|| "300".to_owned(), Value::to_string);
    let block = format!(
        "{INDENT}{NAME}:\n{FIELD}enabled: true\n{FIELD}type: stdio\n{FIELD}name: {NAME}\n{FIELD}cmd: {}\n{FIELD}args: {}\n\
         {FIELD}timeout: {timeout}\n",
        json!(entry.program),
        json!(entry.args),
    );
    let end = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
    let text = format!("{text}{end}");
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    let Some(top) = lines.iter().position(|line| value_of(line, KEY).is_some()) else {
        return Ok(format!("{text}{KEY}:\n{block}"));
    };
    let value = value_of(lines[top], KEY).unwrap_or_default();
    if !(value.is_empty() || value == "{}" || value.starts_with('#')) {
        return Err(EditError::Form("\"extensions\" is written on one line"));
    }
    let heading = if value == "{}" { format!("{KEY}:\n") } else { lines[top].to_owned() };
    let is_within = |line: &&&str| line.starts_with(' ') || line.trim().is_empty() || line.starts_with('#');
    let within = lines[top + 1..].iter().take_while(is_within).count();
    let (before, inside, after) =
        (&lines[..top], &lines[top + 1..top + 1 + within], &lines[top + 1 + within..]);
    let ours = inside.iter().position(|line| {
        line.strip_prefix(INDENT).is_some_and(|rest| value_of(rest, NAME).is_some_and(str::is_empty))
    });
    let (first, kept, last) = match ours {
        None => (&inside[..0], String::new(), inside),
        Some(at) => {
            let is_ours = |line: &&&str| line.starts_with("   ") || line.trim().is_empty();
            let length = inside[at + 1..].iter().take_while(is_ours).count();
            (&inside[..at], other_fields(&inside[at + 1..at + 1 + length]), &inside[at + 1 + length..])
        }
    };
    Ok([&before.concat(), &heading, &first.concat(), &block, &kept, &last.concat(), &after.concat()]
        .map(String::as_str)
        .concat())
}

/// Returns the lines of an entry that belong to fields which are not rewritten.
fn other_fields(lines: &[&str]) -> String {
    const OWN: [&str; 6] = ["enabled", "type", "name", "cmd", "args", "timeout"];
    let mut skipping = false;
    let is_kept = |line: &&&str| {
        if let Some(field) =
            line.strip_prefix(FIELD).filter(|field| !field.starts_with([' ', '-', '#', '\n']))
        {
            skipping = OWN.iter().any(|own| value_of(field, own).is_some());
        }
        !skipping
    };
    lines.iter().filter(is_kept).copied().collect()
}

/// Returns the value after a key at the start of a line. The key may be quoted.
fn value_of<'a>(line: &'a str, key: &str) -> Option<&'a str> {
    let plain = [key.to_owned(), format!("\"{key}\""), format!("'{key}'")];
    let rest = plain.iter().find_map(|key| line.strip_prefix(key.as_str()))?;
    rest.trim_start_matches(' ')
        .strip_prefix(':')
        .filter(|rest| rest.starts_with([' ', '\n', '\r']) || rest.is_empty())
        .map(str::trim)
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOCK: &str = "  gantry:\n    enabled: true\n    type: stdio\n    name: gantry\n    cmd: \"/opt/gantry\"\n    \
        args: [\"mcp\",\"--read-only\"]\n    timeout: 300\n";

    fn entry() -> Entry {
        Entry { program: "/opt/gantry".into(), args: vec!["mcp".into(), "--read-only".into()] }
    }

    /// Edits a file and checks that a second edit changes nothing.
    fn check(text: &str) -> String {
        let once = edited(text, &entry()).unwrap();
        assert_eq!(edited(&once, &entry()).unwrap(), once);
        once
    }

    #[test]
    fn comments_and_other_blocks_are_kept() {
        assert_eq!(check(""), format!("extensions:\n{BLOCK}"));
        assert_eq!(check("extensions: {}\na: 1"), format!("extensions:\n{BLOCK}a: 1\n"));
        assert_eq!(check("extensions:"), format!("extensions:\n{BLOCK}"));
        let text = "# mine\nextensions:\n  other:\n    enabled: true # yes\nmodel: x\n";
        let once = check(text);
        assert_eq!(once, text.replace("extensions:\n", &format!("extensions:\n{BLOCK}")));
        assert_eq!(edited(&once.replace("/opt/gantry", "/old/gantry"), &entry()).unwrap(), once);
    }

    #[test]
    fn quoted_keys_are_recognized() {
        for key in ["\"extensions\":", "'extensions':", "extensions :"] {
            let text = format!("{key}\n  other:\n    enabled: false\n");
            let once = check(&text);
            assert_eq!(once, format!("{key}\n{BLOCK}  other:\n    enabled: false\n"));
        }
    }

    #[test]
    fn other_fields_of_our_entry_are_kept() {
        let old = "extensions:\n  gantry:\n    cmd: old\n    args:\n      - a\n    - b\n    envs:\n      A: b # mine\n    timeout: 60\n    \
            env_keys: [X]\n  other:\n    type: builtin\n";
        let old = old.replace("    - b\n", "");
        let value = read(&check(&old)).unwrap();
        let ours = &value["extensions"]["gantry"];
        assert_eq!(
            (&ours["envs"]["A"], &ours["timeout"], &ours["env_keys"]),
            (&json!("b"), &json!(60), &json!(["X"]))
        );
        assert_eq!((&ours["cmd"], &ours["args"]), (&json!("/opt/gantry"), &json!(["mcp", "--read-only"])));
        assert!(check(&old).contains("      A: b # mine\n"));
        assert_eq!(value["extensions"]["other"]["type"], "builtin");
    }

    #[test]
    fn unsupported_yaml_is_rejected() {
        for text in [
            "extensions: [a]\n",
            "extensions: {other: {enabled: true}}\n",
            "extensions:\n    a:\n        b: 1\n",
            "extensions:\n  a: [1, 2\n",
            "a: 1\n\tb: 2\n",
            "- a\n- b\n",
            "extensions:\n  gantry: &x\n    cmd: old\n  other: *x\n",
            "a: |\n  text\nextensions:\n  gantry: {cmd: old}\n",
            "{\"extensions\": {}}\n",
        ] {
            assert!(edited(text, &entry()).is_err(), "{text:?}: {:?}", edited(text, &entry()));
        }
    }
}
