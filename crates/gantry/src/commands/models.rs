//! `gantry models` lists models, tests them, and chooses the model of each tier.

use std::str::FromStr;
use std::time::{Duration, Instant};

use anyhow::Result;
use clap::{Args, Subcommand};
use gantry_agent::{DiscoveredModels, NO_MODEL};
use gantry_model::{Limits, Message, Model, Models, Request, StreamEvent, Tier, UnknownModel};
use gantry_protocol::{Empty, GatewayStatus, ModelReport, ModelsReport, method};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::client::{Client, Target, runtime};
use crate::environment::Environment;
use crate::exit::{Exit, UsageError};
use crate::models::found;
use crate::output::Output;

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    gantry models                                    list models and tiers\n  \
    gantry models test fast                          test a model: answer, time and cost\n  \
    gantry models set deep anthropic/claude-opus-5-5\n  \
    gantry models set fallback openai/gpt-6-sol\n  \
    gantry config set models.providers.lab.baseUrl http://lab:8000/v1\n\n\
    Gantry finds providers by ANTHROPIC_API_KEY and OPENAI_API_KEY, and finds Ollama and llama.cpp on this machine.")]
pub(crate) struct ModelsArgs {
    #[command(subcommand)]
    action: Option<ModelsAction>,
}

#[derive(Debug, Subcommand)]
enum ModelsAction {
    /// List the models of the running gateway, or else those found from this shell
    List,
    /// Send a short request to a model and report time, tokens and cost
    Test {
        /// Model as provider/model, its own name, or a tier [default: the models of all tiers and the fallback]
        name: Option<String>,
    },
    /// Set the model of a tier
    Set {
        /// Tier: fast, balanced, deep (or haiku, sonnet, opus), or fallback
        tier: String,
        /// Model as provider/model
        name: String,
    },
}

const TEST_LIMIT: Duration = Duration::from_secs(120);
const TEST_TOKENS: u32 = 2_048;

pub(crate) fn run(environment: &Environment, output: &Output, args: ModelsArgs) -> Result<Exit> {
    if environment.gateway.is_some() {
        let message =
            "models are configured on the gateway's machine; run this command there, without --gateway";
        return Err(UsageError(message.into()).into());
    }
    let config = environment.layers.load()?;
    let runtime = runtime()?;
    let found = runtime.block_on(found(environment, &config))?;
    let models = &found.models;
    // Agents have the models of the gateway, whose environment may differ from this one.
    let gateway = GatewayModels::ask(environment, output);
    let action = args.action.unwrap_or(ModelsAction::List);
    if let (ModelsAction::List, Some(gateway)) = (&action, &gateway) {
        return Ok(gateway.show(output, models));
    }
    // The list has the problems among its warnings.
    if !matches!(action, ModelsAction::List) || models.list().is_empty() {
        found.problems.iter().for_each(|problem| output.warning(problem));
    }
    if models.list().is_empty() {
        return match action {
            ModelsAction::List => Ok(no_model(output)),
            _ => Err(UsageError(NO_MODEL.into()).into()),
        };
    }
    match action {
        ModelsAction::List => {
            list(output, &found.report());
            Ok(Exit::Success)
        }
        ModelsAction::Test { name } => {
            let wanted = wanted(models, name)?;
            let names: Vec<&str> = wanted.iter().map(|model| model.name.as_str()).collect();
            let tested = runtime.block_on(async {
                let mut tested = Vec::new();
                for model in &wanted {
                    tested.push(test(output, models, model).await);
                }
                tested
            });
            if output.json {
                output.value(&tested.iter().map(|(_, report)| report).collect::<Vec<_>>());
            }
            gateway.iter().for_each(|gateway| gateway.warn_of_missing(output, &names));
            Ok(if tested.iter().all(|(ok, _)| *ok) { Exit::Success } else { Exit::Failure })
        }
        ModelsAction::Set { tier, name } => {
            let set = set(environment, output, &found, &tier, &name)?;
            // As it is with the change.
            let gateway = gateway.and_then(|_| GatewayModels::ask(environment, output));
            gateway.iter().for_each(|gateway| gateway.warn_of_missing(output, &[&set]));
            Ok(Exit::Success)
        }
    }
}

/// The models of the gateway that runs on this data directory.
struct GatewayModels {
    url: String,
    models: ModelsReport,
}

impl GatewayModels {
    /// Returns `None` if no gateway runs, or if it does not report models.
    fn ask(environment: &Environment, output: &Output) -> Option<GatewayModels> {
        let Ok(Target::Gateway(address)) = Target::find(environment, output, false) else { return None };
        let status: GatewayStatus = Client::once(&address, output, method::GATEWAY_STATUS, &Empty {}).ok()?;
        Some(GatewayModels { url: address.url.to_string(), models: status.models? })
    }

    fn names(&self) -> Vec<&str> {
        self.models.models.iter().map(|model| model.name.as_str()).collect()
    }

    fn show(&self, output: &Output, here: &Models) -> Exit {
        if !output.json {
            output.note_on_terminal(&format!("models of the gateway at {}", self.url));
        }
        let exit = match self.names().is_empty() {
            true => no_model(output),
            false => {
                list(output, &self.models);
                Exit::Success
            }
        };
        let here: Vec<&str> = here.list().iter().map(|model| model.name.as_str()).collect();
        self.warn_of_missing(output, &here);
        exit
    }

    /// Warns of models that only this shell has a key for, because agents cannot use them.
    fn warn_of_missing(&self, output: &Output, names: &[&str]) {
        let known = self.names();
        let missing: Vec<&str> = names.iter().filter(|name| !known.contains(name)).copied().collect();
        if !missing.is_empty() {
            output.warning(&format!(
                "the running gateway does not have {}, because its environment variables differ from this shell's\n\
                 hint: restart the gateway from this shell",
                missing.join(", ")
            ));
        }
    }
}

fn no_model(output: &Output) -> Exit {
    if output.json {
        output.value(&json!([]));
    }
    output.error(NO_MODEL);
    Exit::Failure
}

fn list(output: &Output, report: &ModelsReport) {
    if output.json {
        output.value(&report.models);
    } else {
        for provider in &report.providers {
            let mut facts = vec![provider.base_url.clone()];
            facts.extend(provider.found.then(|| "found on this machine".to_owned()));
            facts.extend(provider.lacks_key.then(|| output.yellow("no key")));
            output.line(&format!("{}  {}", output.bold(&provider.name), facts.join(" · ")));
            for model in report.models.iter().filter(|model| model.provider == provider.name) {
                let roles = if model.is.is_empty() {
                    String::new()
                } else {
                    format!("  {}", output.green(&model.is.join(", ")))
                };
                output.line(&format!("  {}{roles}  {}", model.model, output.dim(&facts_of(model))));
            }
        }
        if !report.budgets.is_empty() {
            output.line(&format!("{}  {}", output.bold("budgets"), report.budgets.join(" · ")));
        }
    }
    report.warnings.iter().for_each(|warning| output.warning(warning));
}

fn facts_of(model: &ModelReport) -> String {
    let tokens = match model.context_window {
        tokens @ 1_000_000.. => format!("{}M", tokens / 1_000_000),
        tokens => format!("{}k", tokens / 1_000),
    };
    let price = match model.price {
        Some(price) if price.input == 0.0 && price.output == 0.0 => "free".to_owned(),
        Some(price) => format!("${} in, ${} out per million tokens", price.input, price.output),
        None => "price unknown".to_owned(),
    };
    format!("{tokens} tokens · {price}")
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
    let hint = if err.nearest.is_empty() { "; `gantry models` lists the models" } else { "" };
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
    let mut on_event = |event: StreamEvent| {
        if !matches!(event, StreamEvent::Restart { .. } | StreamEvent::Done(_)) {
            first.get_or_insert(began.elapsed());
        }
    };
    let limits = Limits::within(TEST_LIMIT);
    let answer = models.answer(&request, limits, &CancellationToken::new(), &mut on_event).await;
    let time = began.elapsed();
    match answer {
        Ok(reply) => {
            let cost = models.cost(&reply.usage, &reply.model);
            let text: String = reply.message.text().trim().chars().take(60).collect();
            if !output.json {
                let mut facts =
                    vec![format!("first output after {:.2?}, done after {time:.2?}", first.unwrap_or(time))];
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
            let report = json!({"model": model.name, "ok": true, "answeredBy": reply.model, "text": text,
                "firstMs": first.unwrap_or(time).as_millis(), "ms": time.as_millis(), "usage": reply.usage,
                "costUsd": cost.map(|cost| cost.dollars())});
            (true, report)
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
    environment: &Environment,
    output: &Output,
    found: &DiscoveredModels,
    tier: &str,
    name: &str,
) -> Result<String> {
    let key = match Tier::from_str(tier) {
        Ok(tier) => tier.name(),
        Err(()) if tier == "fallback" => "fallback",
        Err(()) => {
            let message = format!("unknown tier {tier:?}; the tiers are fast, balanced, deep and fallback");
            return Err(UsageError(message).into());
        }
    };
    if Tier::from_str(name).is_ok() {
        return Err(UsageError(format!(
            "{name:?} is a tier, not a model; write the model as provider/model"
        ))
        .into());
    }
    let models = &found.models;
    let model = models.resolve(name).map_err(unknown)?;
    environment.data.create()?;
    // A provider that was found automatically is written to the file, so that it does not have to be found again.
    let provider = models.providers().find(|provider| provider.name == model.provider);
    if let Some(provider) = provider.filter(|provider| found.is_found(provider)) {
        environment
            .layers
            .write(&format!("models.providers.{}.baseUrl", provider.name), provider.base_url.as_str())?;
        if let Some(patience) = provider.first_byte {
            let key = format!("models.providers.{}.firstByteSeconds", provider.name);
            environment.layers.write(&key, &patience.as_secs().to_string())?;
        }
    }
    environment.layers.write(&format!("models.{key}"), &json!(model.name).to_string())?;
    output.done(&format!("The {key} model is now {}.", model.name));
    Ok(model.name.clone())
}
