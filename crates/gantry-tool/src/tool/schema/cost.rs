//! Estimates the cost of checking a value from the schema alone, because a small schema can take exponential time. The
//! estimate is an upper bound.

use std::collections::HashMap;

use serde_json::{Map, Value};

/// The most visits for one part of a value.
const MAX_VISITS: usize = 5_000;
/// The limit for the estimate itself.
const MAX_WORK: usize = 200_000;

const COSTLY: &str = "checking it takes too long, because nested alternatives multiply";
const UNKNOWN: &str = "its references cannot be resolved, so the cost of checking it is unknown";

/// The reason why values should not be checked against this schema, if there is one.
pub fn too_costly(schema: &Value) -> Option<&'static str> {
    weight(schema).err()
}

/// A step from a schema to one below: to a field or item by name, or to any.
type Step<'a> = (Kind, Option<&'a str>);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Kind {
    Field,
    Name,
    Item,
}

type Lead<'a> = (Step<'a>, &'a Value);

/// The visits to one part of a value, and the schemas for the parts below.
struct Expanded<'a> {
    visits: usize,
    leads: HashMap<Step<'a>, Vec<usize>>,
}

/// The most visits to one part of a value, or the reason why it should not be checked.
pub(super) fn weight(root: &Value) -> Result<usize, &'static str> {
    let names = Names::of(root)?;
    let mut schemas = vec![root];
    let mut numbers = HashMap::from([(std::ptr::from_ref(root), 0)]);
    let mut expanded: Vec<Expanded<'_>> = Vec::new();
    let mut work = 0;
    while let Some(schema) = schemas.get(expanded.len()) {
        let (visits, steps) = expand(schema, &names)?;
        work += visits + steps.len();
        if work > MAX_WORK {
            return Err(COSTLY);
        }
        let mut leads: HashMap<Step<'_>, Vec<usize>> = HashMap::new();
        for (step, target) in steps {
            let number = *numbers.entry(std::ptr::from_ref(target)).or_insert_with(|| {
                schemas.push(target);
                schemas.len() - 1
            });
            leads.entry(step).or_default().push(number);
        }
        expanded.push(Expanded { visits, leads });
    }
    weigh(&expanded)
}

/// Adds the visits from the leaves up. The remaining schemas are recursive, and may refer back to themselves only once.
fn weigh(expanded: &[Expanded<'_>]) -> Result<usize, &'static str> {
    let mut above: Vec<Vec<usize>> = vec![Vec::new(); expanded.len()];
    let mut waits_for: Vec<usize> = vec![0; expanded.len()];
    for (number, one) in expanded.iter().enumerate() {
        for target in one.leads.values().flatten() {
            above[*target].push(number);
            waits_for[number] += 1;
        }
    }
    let mut weights: Vec<Option<usize>> = vec![None; expanded.len()];
    let mut ready: Vec<usize> = (0..expanded.len()).filter(|number| waits_for[*number] == 0).collect();
    while let Some(number) = ready.pop() {
        let weight =
            expanded[number].visits + heaviest(&expanded[number], |target| weights[target].unwrap_or(0));
        if weight > MAX_VISITS {
            return Err(COSTLY);
        }
        weights[number] = Some(weight);
        for above in &above[number] {
            waits_for[*above] -= 1;
            if waits_for[*above] == 0 {
                ready.push(*above);
            }
        }
    }
    let mut most = weights.iter().flatten().copied().max().unwrap_or(0);
    let recursive = (0..expanded.len()).filter(|number| weights[*number].is_none());
    for number in recursive {
        let ways_back = heaviest(&expanded[number], |target| usize::from(weights[target].is_none()));
        let others = heaviest(&expanded[number], |target| weights[target].unwrap_or(0));
        if ways_back > 1 || expanded[number].visits + others > MAX_VISITS {
            return Err(COSTLY);
        }
        most = most.max(expanded[number].visits + others);
    }
    Ok(most)
}

/// The most visits to one part below: by steps to its name, and by steps to any name.
fn heaviest(one: &Expanded<'_>, weight: impl Fn(usize) -> usize) -> usize {
    let sum = |step: &Step<'_>| {
        one.leads
            .get(step)
            .into_iter()
            .flatten()
            .fold(0usize, |sum, target| sum.saturating_add(weight(*target)))
    };
    let at = |step: &Step<'_>| match step {
        (kind, Some(_)) => sum(step).saturating_add(sum(&(*kind, None))),
        (_, None) => sum(step),
    };
    one.leads.keys().map(at).max().unwrap_or(0)
}

/// Counts every schema that applies to the same part of a value, and collects the steps below.
fn expand<'a>(schema: &'a Value, names: &Names<'a>) -> Result<(usize, Vec<Lead<'a>>), &'static str> {
    let mut visits = 0;
    let mut leads = Vec::new();
    let mut open = vec![schema];
    while let Some(schema) = open.pop() {
        visits += 1;
        if visits > MAX_VISITS {
            return Err(COSTLY);
        }
        let Value::Object(fields) = schema else { continue };
        visits += in_itself(fields);
        // `unevaluated…` evaluates the other keywords again.
        let times = if fields.keys().any(|key| key.starts_with("unevaluated")) { 3 } else { 1 };
        for _ in 0..times {
            in_place(fields, names, &mut open)?;
        }
        if leads.len() > MAX_WORK {
            return Err(COSTLY);
        }
        below(fields, &mut leads);
    }
    Ok((visits, leads))
}

/// Extra visits of one schema: long enums are searched, and some patterns backtrack.
fn in_itself(fields: &Map<String, Value>) -> usize {
    const TRIES: usize = 500;
    let listed = fields.get("enum").and_then(Value::as_array).map_or(0, |all| all.len() / 8);
    let tries = |pattern: &str| {
        let looks_around = ["(?=", "(?!", "(?<"].iter().any(|sign| pattern.contains(sign));
        let goes_back = pattern.as_bytes().windows(2).any(|two| two[0] == b'\\' && two[1].is_ascii_digit());
        if looks_around || goes_back { TRIES } else { 0 }
    };
    let patterns = fields.get("patternProperties").and_then(Value::as_object).into_iter().flat_map(Map::keys);
    let patterns = patterns.map(String::as_str).chain(fields.get("pattern").and_then(Value::as_str));
    listed + patterns.map(tries).sum::<usize>()
}

fn in_place<'a>(
    fields: &'a Map<String, Value>,
    names: &Names<'a>,
    open: &mut Vec<&'a Value>,
) -> Result<(), &'static str> {
    for (key, value) in fields {
        match (key.as_str(), value) {
            ("allOf" | "anyOf" | "oneOf", Value::Array(all)) => open.extend(all),
            ("dependentSchemas" | "dependencies", Value::Object(all)) => open.extend(all.values()),
            ("not" | "if" | "then" | "else", one) => open.push(one),
            ("$ref" | "$dynamicRef" | "$recursiveRef", Value::String(name)) => open.push(names.find(name)?),
            _ => {}
        }
    }
    Ok(())
}

fn below<'a>(fields: &'a Map<String, Value>, leads: &mut Vec<Lead<'a>>) {
    for (key, value) in fields {
        match (key.as_str(), value) {
            ("properties", Value::Object(all)) => {
                leads.extend(all.iter().map(|(name, one)| ((Kind::Field, Some(name.as_str())), one)));
            }
            ("patternProperties", Value::Object(all)) => {
                leads.extend(all.values().map(|one| ((Kind::Field, None), one)));
            }
            ("additionalProperties" | "unevaluatedProperties", one) => leads.push(((Kind::Field, None), one)),
            ("propertyNames", one) => leads.push(((Kind::Name, None), one)),
            ("prefixItems" | "items", Value::Array(all)) => {
                leads.extend(all.iter().map(|one| ((Kind::Item, None), one)));
            }
            ("items" | "additionalItems" | "unevaluatedItems" | "contains", one) => {
                leads.push(((Kind::Item, None), one));
            }
            _ => {}
        }
    }
}

/// The targets of references within one document.
struct Names<'a> {
    root: &'a Value,
    anchors: HashMap<&'a str, &'a Value>,
}

impl<'a> Names<'a> {
    fn of(root: &'a Value) -> Result<Names<'a>, &'static str> {
        // `id` is a keyword only in draft 4. Later it may be any field.
        let old = root.get("$schema").and_then(Value::as_str).is_some_and(|draft| draft.contains("draft-04"));
        let ids: &[&str] = if old { &["$id", "id"] } else { &["$id"] };
        let mut anchors = HashMap::new();
        let mut open = vec![root];
        while let Some(value) = open.pop() {
            match value {
                Value::Array(items) => open.extend(items),
                Value::Object(fields) => {
                    for key in ["$anchor", "$dynamicAnchor"] {
                        if let Some(name) = fields.get(key).and_then(Value::as_str)
                            && anchors.insert(name, value).is_some_and(|other| !std::ptr::eq(other, value))
                        {
                            return Err(UNKNOWN);
                        }
                    }
                    // An embedded document has its own references.
                    let own = ids.iter().any(|key| fields.get(*key).is_some_and(Value::is_string));
                    if own && !std::ptr::eq(value, root) {
                        return Err(UNKNOWN);
                    }
                    open.extend(fields.values());
                }
                _ => {}
            }
        }
        Ok(Names { root, anchors })
    }

    fn find(&self, name: &str) -> Result<&'a Value, &'static str> {
        let own = self.root.get("$id").and_then(Value::as_str).unwrap_or_default().trim_end_matches('#');
        let name =
            name.strip_prefix(own).filter(|rest| rest.is_empty() || rest.starts_with('#')).unwrap_or(name);
        let found = match name.strip_prefix('#') {
            Some("") => Some(self.root),
            Some(pointer) if pointer.starts_with('/') => self.root.pointer(&decoded(pointer)?),
            Some(anchor) => self.anchors.get(anchor).copied(),
            None if name.is_empty() => Some(self.root),
            None => None,
        };
        found.ok_or(UNKNOWN)
    }
}

fn decoded(pointer: &str) -> Result<String, &'static str> {
    let mut bytes = Vec::with_capacity(pointer.len());
    let mut rest = pointer.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let digit = |byte: Option<u8>| byte.and_then(|byte| char::from(byte).to_digit(16));
        let (Some(high), Some(low)) = (digit(rest.next()), digit(rest.next())) else { return Err(UNKNOWN) };
        bytes.push((high * 16 + low) as u8);
    }
    String::from_utf8(bytes).map_err(|_| UNKNOWN)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// A chain of definitions `d0` to `dN`, each made from a reference to the next.
    fn chain(levels: usize, link: impl Fn(Value) -> Value) -> Value {
        let mut defs = Map::new();
        for level in 0..levels {
            defs.insert(format!("d{level}"), link(json!({"$ref": format!("#/$defs/d{}", level + 1)})));
        }
        defs.insert(format!("d{levels}"), json!({"type": "string"}));
        json!({"type": "object", "$defs": defs, "properties": {"x": {"$ref": "#/$defs/d0"}}})
    }

    #[test]
    fn schema_whose_parts_multiply_is_too_costly() {
        let four = |next: Value| json!({"allOf": [next, next, next, next]});
        let deep = |next: Value| json!({"anyOf": vec![json!({"properties": {"x": next}}); 4]});
        let twice = |next: Value| json!({"unevaluatedProperties": false, "allOf": [next]});
        for schema in [
            chain(14, four),
            chain(14, deep),
            chain(14, twice),
            json!({"$ref": "#"}),
            json!({"allOf": [{"not": {"$ref": "#"}}]}),
            json!({"anyOf": [{"properties": {"a": {"$ref": "#"}}}, {"properties": {"a": {"$ref": "#"}}}]}),
            json!({"properties": {"a": {"$ref": "#"}}, "patternProperties": {"a": {"$ref": "#"}}}),
            json!({"$anchor": "me", "allOf": [{"items": {"$ref": "#me"}}, {"contains": {"$ref": "#me"}}]}),
            json!({"$dynamicAnchor": "me", "allOf": [{"items": {"$dynamicRef": "#me"}}, {"items": {"$ref": "#/"}}]}),
        ] {
            assert!(too_costly(&schema).is_some(), "{schema}");
        }
        let loops = |next: Value| json!({"$anchor": "x", "allOf": [{"properties": {"x": next}}]});
        assert!(too_costly(&chain(3, loops)).is_some(), "an anchor that is two");
    }

    #[test]
    fn ordinary_schema_is_not_too_costly() {
        let tree = json!({"type": "object", "properties": {
            "left": {"$ref": "#"}, "right": {"$ref": "#"}, "all": {"type": "array", "items": {"$ref": "#"}}}});
        let any_json = json!({"$defs": {"json": {"anyOf": [
            {"type": "null"}, {"type": "string"}, {"type": "array", "items": {"$ref": "#/$defs/json"}},
            {"type": "object", "additionalProperties": {"$ref": "#/$defs/json"}}]}},
            "properties": {"value": {"$ref": "#/$defs/json"}}});
        let filter = json!({"$id": "https://example.com/f", "anyOf": [
            {"properties": {"and": {"items": {"$ref": "https://example.com/f#"}}}},
            {"properties": {"or": {"items": {"$ref": "#"}}}}, {"properties": {"field": {"type": "string"}}}]});
        let wide: Map<String, Value> =
            (0..2_000).map(|n| (format!("f{n}"), json!({"$ref": "#/$defs/s"}))).collect();
        let wide = json!({"$defs": {"s": {"enum": ["a", "b"]}}, "properties": wide});
        let one = |next: Value| json!({"properties": {"x": next}});
        let with_examples = json!({"properties": {"id": {"type": "string"}}, "examples": [{"id": "a"}]});
        for schema in [json!(true), json!({}), with_examples, tree, any_json, filter, wide, chain(500, one)] {
            assert_eq!(too_costly(&schema), None, "{schema}");
        }
    }

    #[test]
    fn estimate_is_fast() {
        let started = std::time::Instant::now();
        let heavy: Map<String, Value> = (0..3_000)
            .map(|n| (format!("f{n}"), json!({"allOf": vec![json!({"$ref": "#/$defs/s"}); 2]})))
            .collect();
        let many = json!({"$defs": {"s": {"allOf": vec![json!({}); 2_000]}}, "properties": heavy});
        assert_eq!(too_costly(&many), Some(COSTLY));
        assert!(started.elapsed() < std::time::Duration::from_secs(2), "{:?}", started.elapsed());
    }
}
