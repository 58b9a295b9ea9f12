//! Checks values against the schemas of a discovery document. Unknown and read-only fields of requests are rejected.

use serde_json::Value;

/// Fields that the documents call read-only although Google requires them in requests.
const WRITABLE: [&str; 1] = ["Permission.emailAddress"];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Direction {
    Request,
    Answer,
}

/// Checks a value against a schema by name.
pub(super) fn check(schemas: &Value, name: &str, value: &Value, direction: Direction) -> Result<(), String> {
    check_value(schemas, &schemas[name], value, direction, name)
}

fn check_value(
    schemas: &Value,
    schema: &Value,
    value: &Value,
    direction: Direction,
    at: &str,
) -> Result<(), String> {
    if let Some(name) = schema["$ref"].as_str() {
        return check_value(schemas, &schemas[name], value, direction, at);
    }
    let wrong = |wanted: &str| Err(format!("Invalid value at '{at}': {value} is not {wanted}"));
    match schema["type"].as_str().unwrap_or("any") {
        "object" => {
            let Some(fields) = value.as_object() else { return wrong("an object") };
            for (name, value) in fields {
                let at = format!("{at}.{name}");
                let known = &schema["properties"][name.as_str()];
                if !known.is_null() {
                    let is_read_only = known["readOnly"] == true && !WRITABLE.contains(&at.as_str());
                    if is_read_only && direction == Direction::Request {
                        return Err(format!("{at} is read-only"));
                    }
                    // `null` is an absent field.
                    if !value.is_null() {
                        check_value(schemas, known, value, direction, &at)?;
                    }
                } else if !schema["additionalProperties"].is_null() {
                    check_value(schemas, &schema["additionalProperties"], value, direction, &at)?;
                } else {
                    return Err(format!(
                        "Invalid JSON payload received. Unknown name \"{name}\" at '{at}': Cannot find field."
                    ));
                }
            }
            Ok(())
        }
        "array" => {
            let Some(items) = value.as_array() else { return wrong("a list") };
            let check = |(index, item): (usize, &Value)| {
                check_value(schemas, &schema["items"], item, direction, &format!("{at}[{index}]"))
            };
            items.iter().enumerate().try_for_each(check)
        }
        "string" => {
            let Some(text) = value.as_str() else { return wrong("a string") };
            check_text(schema, text).or_else(|what| wrong(&what))
        }
        "integer" if value.as_i64().is_none() => wrong("an integer"),
        "number" if !value.is_number() => wrong("a number"),
        "boolean" if !value.is_boolean() => wrong("true or false"),
        _ => Ok(()),
    }
}

fn check_text(schema: &Value, text: &str) -> Result<(), String> {
    let is_base64 = |text: &str| {
        use base64::Engine;
        use base64::alphabet::URL_SAFE;
        use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
        let config = GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent);
        GeneralPurpose::new(&URL_SAFE, config).decode(text).is_ok()
    };
    if let Some(values) = schema["enum"].as_array()
        && !values.iter().any(|value| value == text)
    {
        return Err(format!("one of {}", Value::from(values.clone())));
    }
    match schema["format"].as_str() {
        Some("int64") if text.parse::<i64>().is_err() => Err("an integer".to_owned()),
        Some("uint64") if text.parse::<u64>().is_err() => Err("a positive integer".to_owned()),
        Some("date-time" | "google-datetime") if !is_date_time(text) => {
            Err("a time with an offset".to_owned())
        }
        Some("date") if !is_date(text) => Err("a date".to_owned()),
        Some("byte") if !is_base64(text) => Err("base64url".to_owned()),
        _ => Ok(()),
    }
}

/// Checks one value of a query.
pub(super) fn check_parameter(name: &str, schema: &Value, text: &str) -> Result<(), String> {
    let wrong = |wanted: &str| Err(format!("Invalid value '{text}' for {name}: it must be {wanted}"));
    match schema["type"].as_str() {
        Some("integer") => {
            let Ok(number) = text.parse::<i64>() else { return wrong("an integer") };
            let bound = |name: &str| schema[name].as_str().and_then(|text| text.parse::<i64>().ok());
            if bound("minimum").is_some_and(|least| number < least)
                || bound("maximum").is_some_and(|most| number > most)
            {
                return wrong("within its limits");
            }
            Ok(())
        }
        Some("boolean") if !["true", "false"].contains(&text.to_lowercase().as_str()) => {
            wrong("true or false")
        }
        _ => check_text(schema, text).or_else(|what| wrong(&what)),
    }
}

/// RFC 3339 with an offset: Google rejects times without one.
pub(super) fn is_date_time(text: &str) -> bool {
    let Some((date, time)) = text.split_once('T') else { return false };
    let offset_at = time.find(['Z', '+', '-']);
    let Some(offset_at) = offset_at else { return false };
    let (clock, offset) = time.split_at(offset_at);
    let clock = clock.split('.').next().unwrap_or_default();
    let is_clock = clock.split(':').count() == 3 && clock.split(':').all(is_two_digits);
    let is_offset = offset == "Z" || (offset.len() == 6 && offset[1..].split(':').all(is_two_digits));
    is_date(date) && is_clock && is_offset
}

fn is_date(text: &str) -> bool {
    let parts: Vec<&str> = text.split('-').collect();
    parts.len() == 3
        && parts[0].len() == 4
        && parts[0].bytes().all(|byte| byte.is_ascii_digit())
        && is_two_digits(parts[1])
        && is_two_digits(parts[2])
}

fn is_two_digits(text: &str) -> bool {
    text.len() == 2 && text.bytes().all(|byte| byte.is_ascii_digit())
}
