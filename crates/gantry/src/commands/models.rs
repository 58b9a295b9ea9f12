//! `gantry models`: what models there are, whether one answers, and which one each tier is.

use std::str::FromStr;
use std::time::{Duration, Instant};

use anyhow::Result;
use clap::{Args, Subcommand};
use gantry_model::{
    Limits, Message, Model, Models, PRICES_AS_OF, Provider, Request, StreamEvent, Tier, UnknownModel,
};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::client::runtime;
use crate::config::Config;
use crate::exit::{Exit, UsageError};
use crate::models::{NO_MODEL, found, is_found};
use crate::output::Output;
use crate::places::Places;

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    gantry models                                    what there is, and which model each tier is\n  \
    gantry models test fast                          does it answer, how fast, for how much\n  \
    gantry models set deep anthropic/claude-opus-5-5\n  \
    gantry models set fallback openai/gpt-6-sol\n  \
    gantry config set models.providers.lab.baseUrl http://lab:8000/v1\n\n\
    Found by themselves: ANTHROPIC_API_KEY and OPENAI_API_KEY in the environment, Ollama and llama.cpp on this machine.")]
pub(crate) struct ModelsArgs {
    #[command(subcommand)]
    action: Option<ModelsAction>,
}

#[derive(Debug, Subcommand)]
enum ModelsAction {
    /// All models, by provider; servers that are configured or found are asked
    List,
    /// Ask a model for a word, and tell how it went
    Test {
        /// As provider/model, the model's own name, or a tier [default: every model that a tier or the fallback is]
        name: Option<String>,
    },
    /// Say which model a tier is
    Set {
        /// fast, balanced, deep (or haiku, sonnet, opus), or fallback
        tier: String,
        /// As provider/model
        name: String,
    },
}

const TEST_LIMIT: Duration = Duration::from_secs(120);
const TEST_TOKENS: u32 = 2_048;

pub(crate) fn run(places: &Places, output: &Output, args: ModelsArgs) -> Result<Exit> {
    if places.gateway.is_some() {
        let message =
            "models are configured where the gateway runs; run this on its machine, without --gateway";
        return Err(UsageError(message.into()).into());
    }
    let config = places.layers.load()?;
    let runtime = runtime()?;
    let (settings, problems) = runtime.block_on(found(places, &config))?;
    problems.iter().for_each(|problem| output.warning(problem));
    let models = Models::new(settings);
    if models.list().is_empty() {
        return match args.action {
            None | Some(ModelsAction::List) => {
                if output.json {
                    output.value(&json!([]));
                }
                output.error(NO_MODEL);
                Ok(Exit::Failure)
            }
            Some(_) => Err(UsageError(NO_MODEL.into()).into()),
        };
    }
    match args.action.unwrap_or(ModelsAction::List) {
        ModelsAction::List => {
            list(output, &config, &models);
            Ok(Exit::Success)
        }
        ModelsAction::Test { name } => {
            let wanted = wanted(&models, name)?;
            let tested = runtime.block_on(async {
                let mut tested = Vec::new();
                for model in wanted {
                    tested.push(test(output, &models, model).await);
                }
                tested
            });
            if output.json {
                output.value(&tested.iter().map(|(_, told)| told.clone()).collect());
            }
            Ok(if tested.iter().all(|(ok, _)| *ok) { Exit::Success } else { Exit::Failure })
        }
        ModelsAction::Set { tier, name } => set(places, output, &config, &models, &tier, &name),
    }
}

fn list(output: &Output, config: &Config, models: &Models) {
    if output.json {
        output.value(&models.list().iter().map(|model| row(config, models, model)).collect());
        return;
    }
    for provider in models.providers() {
        let mut facts = vec![provider.base_url.to_string()];
        facts.extend(is_found(config, provider).then(|| "found on this machine".to_owned()));
        facts.extend(is_without_key(provider).then(|| output.yellow("no key")));
        output.line(&format!("{}  {}", output.bold(&provider.name), facts.join(" · ")));
        for model in models.list().iter().filter(|model| model.provider == provider.name) {
            let roles = roles(models, model);
            let roles = if roles.is_empty() {
                String::new()
            } else {
                format!("  {}", output.green(&roles.join(", ")))
            };
            output.line(&format!("  {}{roles}  {}", model.id, output.dim(&facts_of(model))));
        }
    }
    let budgets = config.models.budgets();
    let limits = [("a run", budgets.run), ("an agent and day", budgets.agent), ("a day", budgets.day)];
    let limits: Vec<String> =
        limits.into_iter().filter_map(|(of, limit)| Some(format!("{} {of}", limit?))).collect();
    if !limits.is_empty() {
        output.line(&format!("{}  {}", output.bold("budgets"), limits.join(" · ")));
    }
    for (tier, name) in models.tiers() {
        if let Err(err) = models.resolve(name) {
            output.warning(&format!("{} is set to {name}, but {err}", tier.name()));
        }
    }
}

fn facts_of(model: &Model) -> String {
    let thousands = |tokens: u64| match tokens {
        1_000_000.. => format!("{}M", tokens / 1_000_000),
        _ => format!("{}k", tokens / 1_000),
    };
    let price = match model.facts.price.map(|price| price.rates) {
        Some(rates) if rates.input == 0.0 && rates.output == 0.0 => "free".to_owned(),
        Some(rates) => format!("${} in, ${} out a million", rates.input, rates.output),
        None => "price unknown".to_owned(),
    };
    format!("{} tokens · {price}", thousands(model.facts.context_window))
}

fn row(config: &Config, models: &Models, model: &Model) -> Value {
    let provider = models.providers().find(|provider| provider.name == model.provider);
    let price = model.facts.price.map(|price| {
        let rates = price.rates;
        json!({"input": rates.input, "output": rates.output, "cacheRead": rates.cache_read, "cacheWrite": rates.cache_write})
    });
    json!({
        "name": model.name, "provider": model.provider, "model": model.id,
        "baseUrl": provider.map(|provider| provider.base_url.to_string()),
        "hasKey": provider.is_some_and(|provider| provider.key.is_some()),
        "found": provider.is_some_and(|provider| is_found(config, provider)),
        "is": roles(models, model), "contextWindow": model.facts.context_window,
        "maxOutput": model.facts.max_output, "price": price, "pricesAsOf": PRICES_AS_OF,
    })
}

/// The tiers that a model is, and whether it is the fallback.
fn roles(models: &Models, model: &Model) -> Vec<&'static str> {
    let is = |name: &str| models.resolve(name).is_ok_and(|found| found.name == model.name);
    let tiers = models.tiers().filter(|(_, name)| is(name)).map(|(tier, _)| tier.name());
    tiers.chain(models.fallback().filter(|name| is(name)).map(|_| "fallback")).collect()
}

/// Company endpoints want one; other servers often do not.
fn is_without_key(provider: &Provider) -> bool {
    provider.first_party && provider.key.is_none()
}

fn wanted(models: &Models, name: Option<String>) -> Result<Vec<&Model>> {
    if let Some(name) = name {
        return Ok(vec![models.resolve(&name).map_err(unknown)?]);
    }
    let mut wanted: Vec<&Model> = Vec::new();
    for name in models.tiers().map(|(_, name)| name).chain(models.fallback()) {
        let model = models.resolve(name).map_err(unknown)?;
        if !wanted.iter().any(|known| known.name == model.name) {
            wanted.push(model);
        }
    }
    Ok(wanted)
}

fn unknown(err: UnknownModel) -> anyhow::Error {
    let hint = if err.nearest.is_empty() { "; `gantry models` lists what there is" } else { "" };
    UsageError(format!("{err}{hint}")).into()
}

async fn test(output: &Output, models: &Models, model: &Model) -> (bool, Value) {
    let request = Request {
        model: model.name.clone(),
        messages: vec![Message::user("Answer with one word: are you there?")],
        max_tokens: TEST_TOKENS,
        ..Request::default()
    };
    let began = Instant::now();
    let mut first = None;
    let mut hear = |event: StreamEvent| {
        if !matches!(event, StreamEvent::Restart { .. } | StreamEvent::Done(_)) {
            first.get_or_insert(began.elapsed());
        }
    };
    let limits = Limits::within(TEST_LIMIT);
    let answer = models.answer(&request, limits, &CancellationToken::new(), &mut hear).await;
    let time = began.elapsed();
    match answer {
        Ok(reply) => {
            let cost = models.cost(&reply.usage, &reply.model);
            let text: String = reply.message.text().trim().chars().take(60).collect();
            if !output.json {
                let mut facts =
                    vec![format!("first word after {:.2?}, all after {time:.2?}", first.unwrap_or(time))];
                facts.push(format!(
                    "{} tokens in, {} out",
                    reply.usage.input_tokens, reply.usage.output_tokens
                ));
                facts.push(cost.map_or_else(|| "cost unknown".into(), |cost| cost.to_string()));
                facts.extend((reply.model != model.name).then(|| format!("answered by {}", reply.model)));
                output.line(&format!(
                    "{} {}  {text:?}  {}",
                    output.green("ok"),
                    model.name,
                    output.dim(&facts.join(" · "))
                ));
            }
            let told = json!({"model": model.name, "ok": true, "answeredBy": reply.model, "text": text,
                "firstMs": first.unwrap_or(time).as_millis(), "ms": time.as_millis(), "usage": reply.usage,
                "costUsd": cost.map(|cost| cost.dollars())});
            (true, told)
        }
        Err(err) => {
            let hint = err.hint().map(|hint| format!("; {hint}")).unwrap_or_default();
            if !output.json {
                output.line(&format!("{} {}", output.red("failed"), model.name));
            }
            output.error(&format!("{err}{hint}"));
            (
                false,
                json!({"model": model.name, "ok": false, "error": err.to_string(), "hint": err.hint(), "ms": time.as_millis()}),
            )
        }
    }
}

fn set(
    places: &Places,
    output: &Output,
    config: &Config,
    models: &Models,
    tier: &str,
    name: &str,
) -> Result<Exit> {
    let key = match Tier::from_str(tier) {
        Ok(tier) => tier.name(),
        Err(()) if tier == "fallback" => "fallback",
        Err(()) => {
            let message = format!("{tier:?} is no tier; there are fast, balanced, deep and fallback");
            return Err(UsageError(message).into());
        }
    };
    if Tier::from_str(name).is_ok() {
        return Err(UsageError(format!("{name:?} is a tier; name a model, as provider/model")).into());
    }
    let model = models.resolve(name).map_err(unknown)?;
    places.data.create()?;
    // What was found is written down, so that it is there when nobody looks.
    let provider = models.providers().find(|provider| provider.name == model.provider);
    if let Some(provider) = provider.filter(|provider| is_found(config, provider)) {
        places
            .layers
            .write(&format!("models.providers.{}.baseUrl", provider.name), provider.base_url.as_str())?;
        if let Some(patience) = provider.first_byte {
            let key = format!("models.providers.{}.firstByteSeconds", provider.name);
            places.layers.write(&key, &patience.as_secs().to_string())?;
        }
    }
    places.layers.write(&format!("models.{key}"), &json!(model.name).to_string())?;
    output.done(&format!("{key} is {} now", model.name));
    Ok(Exit::Success)
}
