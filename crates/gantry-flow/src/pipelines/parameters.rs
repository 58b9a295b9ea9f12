//! Values of a pipeline's parameters: what the caller gave, or the defaults. Relative dates are resolved here.

use std::collections::BTreeMap;

use gantry_protocol::{ParameterSource, PipelineParameter};
use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan};
use serde_json::Value;

/// Returns the values for a run, or everything that is wrong with them.
///
/// `context` has the values of parameters whose source is the context.
pub(crate) fn resolve(
    declared: &[PipelineParameter],
    given: &BTreeMap<String, Value>,
    context: &BTreeMap<String, Value>,
    now: i64,
    zone: &TimeZone,
) -> Result<BTreeMap<String, Value>, Vec<String>> {
    let (mut values, mut errors) = (given.clone(), Vec::new());
    // Without declarations every given parameter is accepted; the templates name those that are needed.
    if !declared.is_empty() {
        for name in given.keys().filter(|name| !declared.iter().any(|known| known.name == **name)) {
            let known: Vec<&str> = declared.iter().map(|known| known.name.as_str()).collect();
            errors.push(format!("unknown parameter {name:?}; parameters: {}", known.join(", ")));
        }
    }
    for parameter in declared {
        let name = &parameter.name;
        if values.contains_key(name) {
            continue;
        }
        let from_context = match parameter.source {
            ParameterSource::Context => context.get(name),
            ParameterSource::UserInput | ParameterSource::RelativeDate => None,
        };
        match (from_context.or(parameter.default.as_ref()), parameter.source) {
            (Some(days), ParameterSource::RelativeDate) => match relative_date(days, now, zone) {
                Some(date) => drop(values.insert(name.clone(), Value::String(date))),
                None => errors.push(format!("parameter {name:?}: the default must be a number of days")),
            },
            (Some(value), _) => drop(values.insert(name.clone(), value.clone())),
            (None, _) => errors.push(format!("parameter {name:?} needs a value in params")),
        }
    }
    if errors.is_empty() { Ok(values) } else { Err(errors) }
}

/// Returns the date that lies this many days after today in the zone, as `YYYY-MM-DD`.
fn relative_date(days: &Value, now: i64, zone: &TimeZone) -> Option<String> {
    let today = Timestamp::from_millisecond(now).ok()?.to_zoned(zone.clone()).date();
    let days = i32::try_from(days.as_i64()?).ok()?;
    Some(today.checked_add(days.days()).ok()?.to_string())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn declared() -> Vec<PipelineParameter> {
        serde_json::from_value(json!([
            {"name": "who", "type": "string", "source": "user_input"},
            {"name": "day", "type": "date", "source": "relative_date", "default": -1},
            {"name": "topic", "type": "string", "source": "context", "default": "news"},
        ]))
        .unwrap()
    }

    fn values(value: Value) -> BTreeMap<String, Value> {
        serde_json::from_value(value).unwrap()
    }

    /// 23:30 UTC on 1 March is already 2 March in Berlin.
    #[test]
    fn relative_dates_are_days_in_the_users_zone() {
        let now = "2026-03-01T23:30:00Z".parse::<Timestamp>().unwrap().as_millisecond();
        let berlin = TimeZone::get("Europe/Berlin").unwrap();
        let resolved = |given: Value, context: Value, zone: &TimeZone| {
            resolve(&declared(), &values(given), &values(context), now, zone).unwrap()
        };
        let given = json!({"who": "me"});
        assert_eq!(
            resolved(given.clone(), json!({}), &berlin),
            values(json!({"who": "me", "day": "2026-03-01", "topic": "news"}))
        );
        assert_eq!(resolved(given, json!({"topic": "x"}), &TimeZone::UTC)["day"], json!("2026-02-28"));
        let all = json!({"who": "me", "day": "2020-01-01", "topic": "y"});
        assert_eq!(resolved(all.clone(), json!({"topic": "x"}), &berlin), values(all));
    }

    #[test]
    fn missing_and_unknown_values_are_listed_at_once() {
        let found = resolve(&declared(), &values(json!({"whom": 1})), &BTreeMap::new(), 0, &TimeZone::UTC)
            .unwrap_err();
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].contains("unknown parameter \"whom\"; parameters: who, day, topic"), "{found:?}");
        assert!(found[1].contains("\"who\" needs a value"), "{found:?}");
        let free = resolve(&[], &values(json!({"x": 1})), &BTreeMap::new(), 0, &TimeZone::UTC);
        assert_eq!(free, Ok(values(json!({"x": 1}))));
    }
}
