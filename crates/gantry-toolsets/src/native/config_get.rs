//! `gsv__ConfigGet` shows the configuration. Secrets are masked before the tools get it, so no path
//! can reveal them.

use std::sync::Arc;

use gantry_tool::{Label, Tool, ToolError, Toolset, nearest};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Ctx, Done, Native, done};

/// Show the configuration, or one value of it. Secrets are masked.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Input {
    /// Dotted path of one value, such as "policy.rules.0.tool"; leave it out for everything.
    path: Option<String>,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(untagged)]
enum Output {
    One(OneValue),
    All(AllValues),
}

#[derive(Debug, Serialize, JsonSchema)]
struct OneValue {
    /// The path as given.
    path: String,
    /// The configured value.
    value: Value,
}

#[derive(Debug, Serialize, JsonSchema)]
struct AllValues {
    /// The whole configuration in effect.
    config: Value,
}

pub(super) const NAME: &str = "gsv__ConfigGet";

pub(super) fn tool(native: &Arc<Native>) -> Tool {
    Tool::new(NAME, Toolset::Native, native, run)
        .read_only()
        .labels(&[Label::Private])
        .works_without_machine()
        .without_owner_data()
        .offered_to_agents()
}

async fn run(ctx: Ctx, input: Input) -> Result<Done<Output>, ToolError> {
    let config = &*ctx.state.config.get();
    Ok(done(match input.path {
        None => Output::All(AllValues { config: config.clone() }),
        Some(path) => {
            let value = find(config, &path)?.clone();
            Output::One(OneValue { path, value })
        }
    }))
}

fn find<'a>(config: &'a Value, path: &str) -> Result<&'a Value, ToolError> {
    let mut value = config;
    for name in path.split('.') {
        let below = match value {
            Value::Array(items) => name.parse::<usize>().ok().and_then(|index| items.get(index)),
            value => value.get(name),
        };
        value = below.ok_or_else(|| {
            let known = value.as_object().into_iter().flat_map(|object| object.keys().map(String::as_str));
            let error = ToolError::failed(format!("no configuration value at {path:?}"));
            match nearest(name, known).first() {
                Some(near) => error.with_hint(format!("did you mean {near:?}?")),
                None => error.with_hint("leave path out to see the whole configuration"),
            }
        })?;
    }
    Ok(value)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::testing::{Bench, MASKED_CONFIG};

    #[tokio::test]
    async fn whole_configuration_or_one_value_is_shown_without_secrets() {
        let bench = Bench::new();
        let config: serde_json::Value = serde_json::from_str(MASKED_CONFIG).unwrap();
        let all = bench.call("gsv__ConfigGet", json!({})).await;
        assert_eq!(all, Ok(json!({"ok": true, "result": {"config": config}})));
        for (path, value) in [
            ("session.dmScope", &config["session"]["dmScope"]),
            ("list.1", &config["list"][1]),
            ("apiKeys.openai", &config["apiKeys"]["openai"]),
        ] {
            let one = bench.call("gsv__ConfigGet", json!({"path": path})).await;
            assert_eq!(one, Ok(json!({"ok": true, "result": {"path": path, "value": value}})));
        }
        for (path, hint) in [
            ("session.dmScop", "did you mean \"dmScope\"?"),
            ("list.9", "leave path out"),
            ("", "leave path out"),
            ("list.x", "leave path out"),
        ] {
            let error = bench.call("gsv__ConfigGet", json!({"path": path})).await.unwrap_err();
            assert!(error["error"].as_str().unwrap().contains(hint), "{path}: {error}");
        }
    }
}
