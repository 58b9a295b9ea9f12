//! Schemas from types, and a check that lists every violation at once.

mod cost;

use jsonschema::PatternOptions;
use jsonschema::error::ValidationErrorKind;
use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde::de::DeserializeOwned;
use serde_json::{Number, Value};

use crate::error::Violation;
use crate::text::nearest::nearest;
pub use cost::too_costly;

/// The backtracking limit of one search with a pattern that needs backtracking.
const MAX_STEPS_BACK: usize = 10_000;
const MAX_PATTERN_BYTES: usize = 1 << 20;
/// The most visits of one check, about 200 ms. A check cannot be cancelled.
const MAX_CHECKED: usize = 4_000_000;
/// The most visits of a check on an async thread: a few milliseconds.
const MAX_AT_ONCE: usize = 50_000;
const MAX_VIOLATIONS: usize = 200;

/// The description and schema of a tool's input type.
pub(crate) struct InputSchema {
    /// The first paragraph of the type's doc comment: what a model reads.
    pub(crate) description: String,
    /// The other paragraphs: details for people, shown in the documentation only.
    pub(crate) notes: String,
    pub(crate) schema: Value,
}

pub(crate) fn of_input<T: JsonSchema>() -> InputSchema {
    let mut schema = plain(SchemaSettings::draft2020_12().for_deserialize(), T::json_schema_of);
    let text = schema.as_object_mut().and_then(|object| object.remove("description"));
    let text = text.as_ref().and_then(Value::as_str).unwrap_or_default();
    let (description, notes) = text.split_once("\n\n").unwrap_or((text, ""));
    InputSchema { description: description.to_owned(), notes: notes.to_owned(), schema }
}

pub(crate) fn of_output<T: JsonSchema>() -> Value {
    plain(SchemaSettings::draft2020_12().for_serialize(), T::json_schema_of)
}

/// Makes "the schema of T" a plain function pointer.
trait SchemaOf {
    fn json_schema_of(settings: SchemaSettings) -> Value;
}

impl<T: JsonSchema> SchemaOf for T {
    fn json_schema_of(settings: SchemaSettings) -> Value {
        settings.into_generator().into_root_schema_for::<T>().to_value()
    }
}

fn plain(mut settings: SchemaSettings, make: fn(SchemaSettings) -> Value) -> Value {
    settings.inline_subschemas = true;
    settings.meta_schema = None;
    let mut schema = make(settings);
    strip_noise(&mut schema);
    schema
}

/// Removes what a model does not need to read: titles of types, number formats such as `uint64`, absent defaults, and line
/// breaks within a paragraph.
fn strip_noise(schema: &mut Value) {
    match schema {
        Value::Object(object) => {
            if let Some(Value::String(text)) = object.get_mut("description") {
                *text = joined_lines(text);
            }
            if object.get("default").is_some_and(Value::is_null) {
                object.shift_remove("default");
            }
            if object.get("title").is_some_and(Value::is_string) {
                object.shift_remove("title");
            }
            if object
                .get("format")
                .and_then(Value::as_str)
                .is_some_and(|format| format.contains("int") || format == "double")
            {
                object.shift_remove("format");
            }
            object.values_mut().for_each(strip_noise);
        }
        Value::Array(items) => items.iter_mut().for_each(strip_noise),
        _ => {}
    }
}

/// Joins the lines of each paragraph. List items keep their own lines.
fn joined_lines(text: &str) -> String {
    let mut joined = String::with_capacity(text.len());
    for line in text.lines().map(str::trim_end) {
        let starts_line = line.is_empty() || line.starts_with("- ") || line.starts_with("| ");
        if !joined.is_empty() {
            joined.push(if starts_line || joined.ends_with('\n') { '\n' } else { ' ' });
        }
        joined.push_str(line);
    }
    joined
}

/// Parses a value into a type after checking it against the type's schema: every violation is listed.
pub fn parse_checked<T: JsonSchema + DeserializeOwned>(mut value: Value) -> Result<T, Vec<Violation>> {
    Validator::new(&of_input::<T>().schema).check(&mut value)?;
    serde_json::from_value(value)
        .map_err(|err| vec![Violation { path: String::new(), message: err.to_string() }])
}

/// A compiled schema. A schema that does not compile rejects every input with the reason. A schema that is too costly
/// accepts every input, and leaves the check to the tool.
pub struct Validator {
    /// `None` if the check is too costly.
    compiled: Result<Option<jsonschema::Validator>, String>,
    /// The most visits for each part of a value.
    weight: usize,
    schema: Value,
    rounds: bool,
}

/// Returns an error if a schema from elsewhere cannot be compiled.
pub fn check_schema(schema: &Value) -> Result<(), String> {
    compile(schema).map(drop)
}

fn compile(schema: &Value) -> Result<jsonschema::Validator, String> {
    let patterns =
        PatternOptions::fancy_regex().backtrack_limit(MAX_STEPS_BACK).size_limit(MAX_PATTERN_BYTES);
    jsonschema::options().with_pattern_options(patterns).build(schema).map_err(|err| err.to_string())
}

impl Validator {
    pub fn new(schema: &Value) -> Self {
        let weight = cost::weight(schema);
        Validator {
            compiled: match weight {
                Err(_) => Ok(None),
                Ok(_) => compile(schema).map(Some),
            },
            weight: weight.unwrap_or(0),
            schema: schema.clone(),
            rounds: false,
        }
    }

    /// Rounds a fraction where the schema has a whole number.
    pub(crate) fn rounding(mut self) -> Self {
        self.rounds = true;
        self
    }

    pub(crate) fn check(&self, input: &mut Value) -> Result<(), Vec<Violation>> {
        if self.is_too_long(input) {
            let message = "the input is too long to check against the tool's schema".to_owned();
            return Err(vec![Violation { path: String::new(), message }]);
        }
        if self.compiled.is_ok() {
            if self.rounds {
                round_fractions(&self.schema, input);
            }
            whole_floats_to_integers(input);
            remove_absent(input, &self.schema);
        }
        let violations = self.violations(input);
        if violations.is_empty() { Ok(()) } else { Err(violations) }
    }

    /// Whether the check of a value would take too long.
    pub fn is_too_long(&self, value: &Value) -> bool {
        self.visits(value) > MAX_CHECKED
    }

    /// Whether the check of a value is short enough for an async thread.
    pub(crate) fn is_short(&self, value: &Value) -> bool {
        self.visits(value) <= MAX_AT_ONCE
    }

    fn visits(&self, value: &Value) -> usize {
        parts(value).saturating_mul(self.weight)
    }

    /// The violations of a value, up to a limit.
    pub fn violations(&self, value: &Value) -> Vec<Violation> {
        match &self.compiled {
            Ok(None) => Vec::new(),
            Ok(Some(validator)) => {
                validator.iter_errors(value).take(MAX_VIOLATIONS).flat_map(|err| self.explain(&err)).collect()
            }
            Err(reason) => {
                let message = format!("the tool's schema is invalid: {reason}");
                vec![Violation { path: String::new(), message }]
            }
        }
    }

    fn explain(&self, err: &jsonschema::ValidationError<'_>) -> Vec<Violation> {
        let path = err.instance_path().to_string().trim_start_matches('/').replace('/', ".");
        let violation = |message: String| Violation { path: path.clone(), message };
        match err.kind() {
            ValidationErrorKind::AdditionalProperties { unexpected } => {
                let place = err.evaluation_path().to_string();
                unexpected.iter().map(|name| violation(self.unknown_field(&place, name))).collect()
            }
            ValidationErrorKind::Required { property } => {
                vec![violation(format!("required field {} is missing", plain_name(property)))]
            }
            ValidationErrorKind::Enum { options } => vec![violation(not_one_of(err, options))],
            ValidationErrorKind::AnyOf { context } | ValidationErrorKind::OneOfNotValid { context } => {
                vec![violation(no_alternative(err, context).unwrap_or_else(|| bounded(&err.to_string())))]
            }
            _ => vec![violation(bounded(&err.to_string()))],
        }
    }

    /// `place` is the position of the violated `additionalProperties` in the schema.
    fn unknown_field(&self, place: &str, name: &str) -> String {
        let parent = place.rsplit_once('/').map_or("", |(parent, _)| parent);
        let properties = self.schema.pointer(parent).and_then(|schema| schema["properties"].as_object());
        let fields: Vec<&str> =
            properties.into_iter().flat_map(|fields| fields.keys().map(String::as_str)).collect();
        match nearest(name, fields.iter().copied()).first() {
            Some(near) => format!("unknown field \"{name}\"; did you mean \"{near}\"?"),
            None => format!("unknown field \"{name}\"; known fields: {}", fields.join(", ")),
        }
    }
}

fn parts(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(parts).sum::<usize>(),
        Value::Object(fields) => 1 + fields.values().map(parts).sum::<usize>(),
        _ => 1,
    }
}

fn not_one_of(err: &jsonschema::ValidationError<'_>, options: &Value) -> String {
    let options: Vec<String> = options.as_array().into_iter().flatten().map(Value::to_string).collect();
    let near = near_value(err.instance(), &options);
    format!("{} is not one of {}{near}", bounded(&err.instance().to_string()), options.join(", "))
}

/// Lists the alternatives if all of them are values and types.
fn no_alternative(
    err: &jsonschema::ValidationError<'_>,
    alternatives: &[Vec<jsonschema::ValidationError<'_>>],
) -> Option<String> {
    let (mut values, mut types) = (Vec::new(), Vec::new());
    for errors in alternatives {
        let here = |inner: &&jsonschema::ValidationError<'_>| {
            inner.instance_path().as_str() == err.instance_path().as_str()
                || inner.instance() == err.instance()
        };
        let values_before = values.len();
        for inner in errors.iter().filter(here) {
            match inner.kind() {
                ValidationErrorKind::Enum { options } => {
                    values.extend(options.as_array().into_iter().flatten().map(Value::to_string));
                }
                ValidationErrorKind::Constant { expected_value } => values.push(expected_value.to_string()),
                _ => {}
            }
        }
        if values.len() > values_before {
            continue;
        }
        let kind = errors.iter().filter(here).find_map(|inner| match inner.kind() {
            ValidationErrorKind::Type { .. } => inner.to_string().rsplit("of type").next().map(type_name),
            _ => None,
        });
        types.push(kind?);
    }
    types.retain(|name| name != "null");
    types.dedup();
    if values.is_empty() || alternatives.is_empty() {
        return None;
    }
    let near = near_value(err.instance(), &values);
    let types: String = types.iter().map(|name| format!(", or of type {name}")).collect();
    Some(format!("{} is not one of {}{types}{near}", bounded(&err.instance().to_string()), values.join(", ")))
}

fn type_name(text: &str) -> String {
    text.trim_matches(|c: char| !c.is_ascii_alphanumeric()).to_owned()
}

/// A hint with the nearest option. Value and options are JSON.
fn near_value(value: &Value, options: &[String]) -> String {
    let Some(text) = value.as_str() else { return String::new() };
    let plain = options.iter().map(|option| option.trim_matches('"'));
    nearest(text, plain).first().map_or(String::new(), |near| format!("; did you mean \"{near}\"?"))
}

fn plain_name(property: &Value) -> String {
    property.as_str().map_or_else(|| property.to_string(), |name| format!("\"{name}\""))
}

/// Shortens a message that quotes a long value. Keeps both ends.
fn bounded(message: &str) -> String {
    const KEEP: usize = 160;
    let count = message.chars().count();
    if count <= 2 * KEEP {
        return message.to_owned();
    }
    let head: String = message.chars().take(KEEP).collect();
    let tail: String = message.chars().skip(count - KEEP).collect();
    format!("{head} … {tail}")
}

/// Removes optional fields that are null although their schema has no null: models write null for "absent".
fn remove_absent(value: &mut Value, schema: &Value) {
    match value {
        Value::Object(object) => {
            let Some(fields) = schema.get("properties").and_then(Value::as_object) else { return };
            let required = schema.get("required").and_then(Value::as_array);
            let is_required =
                |name: &str| required.is_some_and(|required| required.iter().any(|one| one == name));
            object.retain(|name, value| {
                let refuses_null = |field: &Value| field["type"].as_str().is_some_and(|kind| kind != "null");
                !value.is_null() || is_required(name) || !fields.get(name).is_some_and(refuses_null)
            });
            for (name, value) in object.iter_mut() {
                if let Some(field) = fields.get(name) {
                    remove_absent(value, field);
                }
            }
        }
        Value::Array(items) => {
            if let Some(schema) = schema.get("items") {
                items.iter_mut().for_each(|item| remove_absent(item, schema));
            }
        }
        _ => {}
    }
}

/// Models write `5.0` for 5. JSON Schema accepts it, serde does not.
fn whole_floats_to_integers(value: &mut Value) {
    match value {
        Value::Number(number) if number.is_f64() => {
            let float = number.as_f64().unwrap_or(f64::NAN);
            if float.fract() == 0.0 && float.abs() < 9_007_199_254_740_992.0 {
                *number = Number::from(float as i64);
            }
        }
        Value::Array(items) => items.iter_mut().for_each(whole_floats_to_integers),
        Value::Object(object) => object.values_mut().for_each(whole_floats_to_integers),
        _ => {}
    }
}

/// Rounds numbers where the schema has integers, also within lists and objects.
fn round_fractions(schema: &Value, value: &mut Value) {
    match value {
        Value::Number(number) if number.is_f64() && is_integer(schema) => {
            let rounded = number.as_f64().map(f64::round).and_then(Number::from_f64);
            *number = rounded.unwrap_or_else(|| number.clone());
        }
        Value::Array(items) => {
            if let Some(schema) = schema.get("items") {
                items.iter_mut().for_each(|item| round_fractions(schema, item));
            }
        }
        Value::Object(object) => {
            let Some(properties) = schema.get("properties").and_then(Value::as_object) else { return };
            for (name, item) in object.iter_mut().filter(|(_, item)| !item.is_string()) {
                if let Some(schema) = properties.get(name) {
                    round_fractions(schema, item);
                }
            }
        }
        _ => {}
    }
}

fn is_integer(schema: &Value) -> bool {
    match schema.get("type") {
        Some(Value::String(kind)) => kind == "integer",
        Some(Value::Array(kinds)) => {
            let has = |name: &str| kinds.iter().any(|kind| kind == name);
            has("integer") && !has("number")
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;
    use serde_json::json;

    /// Counts things.
    ///
    /// Only people read this paragraph,
    /// which has two lines.
    #[derive(Deserialize, JsonSchema)]
    #[serde(deny_unknown_fields, rename_all = "camelCase")]
    #[expect(dead_code, reason = "only its schema is used")]
    struct Input {
        /// What to count.
        subject: String,
        /// How often.
        max_times: Option<u64>,
    }

    fn check(mut input: Value) -> Vec<String> {
        Validator::new(&of_input::<Input>().schema)
            .check(&mut input)
            .err()
            .unwrap_or_default()
            .iter()
            .map(ToString::to_string)
            .collect()
    }

    #[test]
    fn the_description_and_field_order_come_from_the_type() {
        let InputSchema { description, notes, schema } = of_input::<Input>();
        assert_eq!(description, "Counts things.");
        assert_eq!(notes, "Only people read this paragraph, which has two lines.");
        assert_eq!(
            schema.to_string(),
            r#"{"type":"object","additionalProperties":false,"properties":{"subject":{"type":"string","description":"What to count."},"maxTimes":{"type":["integer","null"],"minimum":0,"description":"How often."}},"required":["subject"]}"#
        );
    }

    #[test]
    fn null_means_absent_where_a_field_may_be_left_out() {
        let schema = json!({
            "type": "object", "additionalProperties": false, "required": ["must"],
            "properties": {
                "must": {"type": "string"},
                "may": {"type": "integer", "default": 3},
                "nullable": {"type": ["string", "null"]},
                "list": {"type": "array", "items": {"type": "object", "properties": {"deep": {"type": "boolean"}}}},
            },
        });
        let validator = Validator::new(&schema);
        let mut input = json!({"must": "x", "may": null, "nullable": null, "list": [{"deep": null}]});
        validator.check(&mut input).unwrap();
        assert_eq!(input, json!({"must": "x", "nullable": null, "list": [{}]}));
        assert!(validator.check(&mut json!({"must": null})).is_err(), "a required field is not absent");
        assert!(
            validator.check(&mut json!({"must": "x", "other": null})).is_err(),
            "an unknown field stays unknown"
        );
    }

    #[test]
    fn every_violation_is_listed_with_the_nearest_name() {
        let found = check(json!({"subjekt": 1, "maxTimes": "x"}));
        assert_eq!(found.len(), 3, "{found:?}");
        assert!(found.iter().any(|m| m.contains("did you mean \"subject\"")), "{found:?}");
        assert!(found.iter().any(|m| m.contains("required field \"subject\" is missing")), "{found:?}");
        assert!(found.iter().any(|m| m.starts_with("maxTimes: ")), "{found:?}");
    }

    #[test]
    fn every_allowed_value_is_named() {
        let schema = json!({"type": "object", "properties": {"a": {"enum": ["x", "y", "z", "w", "v"]}}});
        let violations = Validator::new(&schema).check(&mut json!({"a": "q"})).unwrap_err();
        assert_eq!(violations[0].to_string(), r#"a: "q" is not one of "x", "y", "z", "w", "v""#);
    }

    #[test]
    fn alternatives_that_are_values_are_named_with_the_nearest() {
        let schema = json!({"properties": {
            "a": {"oneOf": [{"const": "supervised"}, {"const": "guided", "description": "x"}]},
            "b": {"anyOf": [{"enum": ["off", "adaptive"]}, {"type": "integer"}, {"type": "null"}]},
            "c": {"anyOf": [{"type": "object", "required": ["x"]}, {"enum": ["y"]}]},
        }});
        let message = |value: Value| Validator::new(&schema).violations(&value)[0].to_string();
        assert_eq!(
            message(json!({"a": "giuded"})),
            r#"a: "giuded" is not one of "supervised", "guided"; did you mean "guided"?"#
        );
        assert_eq!(message(json!({"a": 5})), r#"a: 5 is not one of "supervised", "guided""#);
        assert_eq!(
            message(json!({"b": "adaptiv"})),
            r#"b: "adaptiv" is not one of "off", "adaptive", or of type integer; did you mean "adaptive"?"#
        );
        assert!(
            message(json!({"c": {}})).starts_with("c: {} is not valid under"),
            "{}",
            message(json!({"c": {}}))
        );
    }

    #[test]
    fn long_value_with_a_costly_schema_is_rejected() {
        let names: Vec<String> = (0..15_000).map(|number| format!("name {number}")).collect();
        let schema = Validator::new(&json!({"items": {"enum": names}}));
        assert!(schema.is_too_long(&json!(vec!["x"; 300_000])));
        assert!(!schema.is_too_long(&json!(vec!["x"; 1_000])));
        assert_eq!(schema.violations(&json!(vec!["x"; 1_000])).len(), MAX_VIOLATIONS);
        let plain =
            Validator::new(&json!({"items": {"type": "object", "properties": {"a": {"type": "string"}}}}));
        assert!(!plain.is_too_long(&json!(vec![json!({"a": "b"}); 300_000])));
    }

    #[test]
    fn nested_fields_get_their_own_nearest_name() {
        #[derive(Debug, Deserialize, JsonSchema)]
        #[serde(deny_unknown_fields)]
        #[expect(dead_code, reason = "only its schema is used")]
        struct Outer {
            inner: std::collections::BTreeMap<String, Inner>,
        }
        #[derive(Debug, Deserialize, JsonSchema)]
        #[serde(deny_unknown_fields, rename_all = "camelCase")]
        #[expect(dead_code, reason = "only its schema is used")]
        struct Inner {
            max_size: Option<u8>,
        }
        let violations = parse_checked::<Outer>(json!({"inner": {"a": {"maxSise": 1}}})).unwrap_err();
        assert_eq!(
            violations[0].to_string(),
            "inner.a: unknown field \"maxSise\"; did you mean \"maxSize\"?"
        );
    }

    #[test]
    fn whole_floats_count_as_integers_and_others_do_not() {
        assert_eq!(check(json!({"subject": "a", "maxTimes": 5.0})), Vec::<String>::new());
        assert_eq!(check(json!({"subject": "a", "maxTimes": 5.5})).len(), 1);
        assert_eq!(check(json!({"subject": "a", "maxTimes": -1})).len(), 1);
        assert_eq!(check(json!([])).len(), 1);
    }

    #[test]
    fn fraction_is_rounded_where_rounding_is_on() {
        let schema = json!({"properties": {
            "ms": {"type": ["integer", "null"], "minimum": 0}, "cost": {"type": "number"},
            "lines": {"items": {"properties": {"at": {"type": "integer"}}}},
        }});
        let validator = Validator::new(&schema).rounding();
        let mut input = json!({"ms": 1500.5, "cost": 0.5, "lines": [{"at": 2.4}], "other": 1.5});
        validator.check(&mut input).unwrap();
        assert_eq!(input, json!({"ms": 1501, "cost": 0.5, "lines": [{"at": 2}], "other": 1.5}));
        assert!(validator.check(&mut json!({"ms": -1.5})).is_err());
    }

    #[test]
    fn a_huge_offending_value_does_not_make_a_huge_message() {
        let found = check(json!({"subject": "a", "maxTimes": "x".repeat(1_000_000)}));
        assert!(found[0].len() < 1_000, "{}", found[0].len());
    }
}
