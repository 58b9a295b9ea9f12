//! `gantry apis` manages profiles of the APIs that agents use, in this data directory.

use std::io::Read;

use anyhow::{Context, Result};
use clap::{Args, Subcommand};
use gantry_apis::{ApiFile, Apis, ApisError, Profile, ProfileDraft, Saving};
use gantry_tool::Violation;
use serde_json::{Value, json};

use crate::environment::Environment;
use crate::exit::{Exit, UsageError};
use crate::output::Output;

mod openapi;

const MAX_FILE_BYTES: u64 = 64 << 20;

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    gantry apis                                      list all profiles, with the errors of invalid ones\n  \
    gantry apis add stripe.json                      check a profile and save it\n  \
    gantry apis show stripe\n  \
    gantry apis import openapi.json --id shop --avoid 'Asking for all orders at once.' > shop.json\n  \
    gantry apis rm stripe\n\n\
    A profile is one JSON file in apis/ of the data directory. Changes to the file apply immediately.\n\
    Once a profile exists, http_request rejects APIs without one.")]
pub(crate) struct ApisArgs {
    #[command(subcommand)]
    action: Option<ApisAction>,
}

#[derive(Debug, Subcommand)]
enum ApisAction {
    /// List all profiles
    List,
    /// Show one profile as JSON
    Show {
        /// The profile's id, as `gantry apis` lists it
        id: String,
    },
    /// Check a profile and save it
    Add {
        /// JSON file with the profile, or - for standard input
        file: String,
        /// Replace a profile with the same id
        #[arg(long)]
        replace: bool,
    },
    /// Remove a profile, effective immediately
    Rm {
        /// The profile's id, as `gantry apis` lists it
        id: String,
    },
    /// Draft a profile from an OpenAPI description, and save it if it is complete
    Import(ImportArgs),
}

#[derive(Debug, Args)]
struct ImportArgs {
    /// OpenAPI 3 or Swagger 2 description as JSON, or - for standard input
    file: String,
    /// The profile's id [default: from the title]
    #[arg(long, value_name = "ID")]
    id: Option<String>,
    /// Base URL of the API, if the description has none
    #[arg(long, value_name = "URL")]
    base_url: Option<String>,
    /// Advice for using the API; may be repeated
    #[arg(long = "guideline", value_name = "TEXT")]
    guidelines: Vec<String>,
    /// Mistake to avoid; may be repeated
    #[arg(long = "avoid", value_name = "TEXT")]
    avoid: Vec<String>,
    /// Print the draft without saving it
    #[arg(long)]
    print: bool,
    /// Replace a profile with the same id
    #[arg(long)]
    replace: bool,
}

pub(crate) fn run(environment: &Environment, output: &Output, args: ApisArgs) -> Result<Exit> {
    if environment.gateway.is_some() {
        let message = "API profiles are stored on the gateway's machine; run this command there, without --gateway, \
                       or call the tool api_setup";
        return Err(UsageError(message.into()).into());
    }
    let apis = Apis::new(&environment.data);
    match args.action.unwrap_or(ApisAction::List) {
        ApisAction::List => list(output, &apis),
        ApisAction::Show { id } => show(output, &apis, &id),
        ApisAction::Add { file, replace } => {
            let value = read_json(environment, &file)?;
            let profile = ProfileDraft::read_whole(value).map_err(|problems| unusable(&file, &problems))?;
            save(output, environment, &apis, &profile, replace)
        }
        ApisAction::Rm { id } => {
            apis.remove(&id).map_err(classify)?;
            output.done(&format!("Removed {id}."));
            Ok(Exit::Success)
        }
        ApisAction::Import(args) => import(output, environment, &apis, args),
    }
}

fn list(output: &Output, apis: &Apis) -> Result<Exit> {
    let files = apis.list()?;
    if output.json {
        output.value(&files.iter().map(row).collect::<Value>());
        return Ok(Exit::Success);
    }
    if files.is_empty() {
        output.note_on_terminal("There are no API profiles. `gantry apis add FILE` adds one.");
    }
    for file in &files {
        match file {
            ApiFile::Profile(profile) => {
                let mut facts = vec![profile.name.clone(), profile.base_url.to_string()];
                let limit = |(window, _, limit): (&str, i64, u32)| {
                    format!("{limit} {} {window}", if window == "hour" { "an" } else { "a" })
                };
                facts.extend(profile.rate_limit.windows().map(limit));
                facts.extend(profile.draft.made_by.as_ref().map(|maker| format!("made by {maker}")));
                output.line(&format!("{}  {}", output.bold(&profile.id), facts.join(" · ")));
            }
            ApiFile::Broken(broken) => {
                output.line(&format!("{}  {}", output.bold(&broken.id), output.red("invalid")));
                broken.problems.iter().for_each(|problem| output.line(&format!("  - {problem}")));
            }
        }
    }
    if files.is_empty() {
        output.note("no API profiles are saved; `gantry apis add FILE` saves one");
    }
    Ok(Exit::Success)
}

fn row(file: &ApiFile) -> Value {
    match file {
        ApiFile::Profile(profile) => json!({
            "id": profile.id, "usable": true, "name": profile.name, "baseUrl": profile.base_url.as_str(),
            "description": profile.description, "rateLimit": profile.rate_limit,
            "madeBy": profile.draft.made_by,
        }),
        ApiFile::Broken(broken) => {
            let problem = |problem: &Violation| json!({"path": problem.path, "message": problem.message});
            let problems: Vec<Value> = broken.problems.iter().map(problem).collect();
            json!({"id": broken.id, "usable": false, "problems": problems})
        }
    }
}

fn show(output: &Output, apis: &Apis, id: &str) -> Result<Exit> {
    match apis.get(id).map_err(classify)? {
        ApiFile::Profile(profile) => {
            output.page(&serde_json::to_string_pretty(&profile.draft)?);
            Ok(Exit::Success)
        }
        ApiFile::Broken(broken) => Err(unusable(&format!("{id}.json"), &broken.problems)),
    }
}

fn save(
    output: &Output,
    environment: &Environment,
    apis: &Apis,
    profile: &Profile,
    replace: bool,
) -> Result<Exit> {
    environment.data.create()?;
    let there = replace && apis.get(&profile.id).is_ok();
    apis.save(profile, if there { Saving::Changed } else { Saving::New }).map_err(classify)?;
    output.done(&format!("Saved {}; it applies to requests below {}", profile.id, profile.base_url));
    let web = crate::local::web(environment, &environment.layers.load()?)?;
    for message in gantry_toolsets::missing_secrets(&web, profile) {
        output.warning(&message);
    }
    Ok(Exit::Success)
}

fn import(output: &Output, environment: &Environment, apis: &Apis, args: ImportArgs) -> Result<Exit> {
    let document = read_json(environment, &args.file)?;
    let openapi::Draft { mut draft, notes } =
        openapi::draft(&document, args.id.as_deref(), args.base_url.as_deref())
            .map_err(|why| UsageError(format!("{}: {why}", args.file)))?;
    let add = |list: &mut Option<Vec<String>>, texts: Vec<String>| {
        list.get_or_insert_default().extend(texts);
    };
    add(&mut draft.guidelines, args.guidelines);
    add(&mut draft.avoid, args.avoid);
    notes.iter().for_each(|note| output.warning(note));
    if args.print {
        output.page(&serde_json::to_string_pretty(&draft)?);
        return Ok(Exit::Success);
    }
    match draft.clone().check() {
        Ok(profile) => save(output, environment, apis, &profile, args.replace),
        Err(problems) => {
            output.page(&serde_json::to_string_pretty(&draft)?);
            let listed: String = problems.iter().map(|problem| format!("\n  - {problem}")).collect();
            output.error(&format!(
                "the draft above was not saved; it has these errors:{listed}\nhint: fix it and save it with `gantry apis add FILE`"
            ));
            Ok(Exit::Failure)
        }
    }
}

/// Reads a JSON file, or standard input for `-`.
pub(super) fn read_json(environment: &Environment, file: &str) -> Result<Value> {
    let bytes = if file == "-" {
        let mut bytes = Vec::new();
        std::io::stdin()
            .take(MAX_FILE_BYTES)
            .read_to_end(&mut bytes)
            .context("cannot read standard input")?;
        bytes
    } else {
        environment.read_own(file.as_ref())?
    };
    let text = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&bytes);
    serde_json::from_slice(text).map_err(|err| {
        let yaml = text.trim_ascii_start().first().is_some_and(|byte| !b"{[\"".contains(byte));
        let hint = if yaml { "; convert YAML first, for example with `yq -o json`" } else { "" };
        UsageError(format!("{file} is not JSON: {err}{hint}")).into()
    })
}

fn unusable(file: &str, problems: &[Violation]) -> anyhow::Error {
    let listed: String = problems.iter().map(|problem| format!("\n  - {problem}")).collect();
    UsageError(format!("{file} is not a valid API profile{listed}")).into()
}

/// Converts errors that the user can fix to usage errors.
fn classify(err: ApisError) -> anyhow::Error {
    match err {
        ApisError::Exists { .. } => UsageError(err.to_string()).with_hint("replace it with --replace").into(),
        ApisError::Unknown { .. } => {
            UsageError(err.to_string()).with_hint("`gantry apis` lists the profiles").into()
        }
        ApisError::SameBase { .. } | ApisError::Invalid { .. } => UsageError(err.to_string()).into(),
        ApisError::Io { .. } | ApisError::TooMany => err.into(),
    }
}
