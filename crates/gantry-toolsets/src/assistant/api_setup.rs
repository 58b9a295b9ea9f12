//! `api_setup` creates, updates, deletes and shows API profiles.

use std::sync::Arc;

use gantry_apis::{ApiFile, Apis, ApisError, Profile, ProfileDraft, Saving};
use gantry_net::{NetError, check_address};
use gantry_tool::{DataAccess, DataLocation, Text, Tool, ToolError, Toolset, Violation};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::blocking::blocking;
use crate::{Ctx, Machine};

mod ownership;

/// Manage API profiles. A profile describes how to use one API. For every request below its
/// `base_url`, `http_request` attaches its credentials and applies its rate limits. Once any
/// profile exists, requests to APIs without one are refused. Changes apply at once. Write
/// credentials as `secret:NAME`; the operator stores them with `gantry secrets set NAME --host
/// HOST`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Input {
    /// What to do.
    action: Action,
    /// The profile's id; for update, delete and view.
    id: Option<String>,
    /// create needs id, name, base_url, description, auth, endpoints, guidelines and avoid. update
    /// takes the fields to change; null removes rate_limit or notes. In a profile that the operator
    /// made, base_url and auth cannot change, and limits can only become stricter.
    #[serde(default)]
    #[schemars(schema_with = "described")]
    profile: Option<Value>,
}

/// The schema of a profile. It accepts any value, because the gate would report wrong types but
/// hide missing fields; `read` reports both.
fn described(generator: &mut SchemaGenerator) -> Schema {
    json_schema!({"anyOf": [generator.subschema_for::<ProfileDraft>(), {}]})
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Action {
    Create,
    Update,
    Delete,
    List,
    View,
}

pub(super) const NAME: &str = "api_setup";

pub(crate) fn tool(machine: &Arc<Machine>) -> Tool {
    Tool::new(NAME, Toolset::Assistant, machine, run).effects(&[]).data_locations(|input: Input| {
        let in_profile = || input.profile.as_ref()?.get("id")?.as_str().map(str::to_owned);
        let location = DataLocation::Api(input.id.clone().or_else(in_profile));
        match input.action {
            Action::Create | Action::Update => vec![DataAccess::write(location)],
            Action::Delete | Action::List | Action::View => vec![DataAccess::read(location)],
        }
    })
}

async fn run(ctx: Ctx, input: Input) -> Result<Text, ToolError> {
    blocking(&ctx, move |ctx, _| {
        let settings = ctx.state.settings();
        let apis = settings
            .web
            .apis
            .as_ref()
            .ok_or_else(|| ToolError::unavailable("this process has no store for API profiles"))?;
        let Input { action, id, profile } = input;
        let unwanted = match action {
            Action::List => [id.as_ref().map(|_| "id"), profile.as_ref().map(|_| "profile")],
            Action::Delete | Action::View => [profile.as_ref().map(|_| "profile"), None],
            Action::Create | Action::Update => [None, None],
        };
        if let Some(field) = unwanted.into_iter().flatten().next() {
            return Err(ToolError::input(format!("this action does not use {field}; leave it out")));
        }
        match action {
            Action::List => list(apis),
            Action::View => view(apis, &required_id(id)?),
            Action::Delete => delete(ctx, apis, &required_id(id)?),
            Action::Create => create(ctx, apis, id, profile),
            Action::Update => update(ctx, apis, id, profile),
        }
        .map(Text)
    })
    .await
}

fn required_id(id: Option<String>) -> Result<String, ToolError> {
    id.ok_or_else(|| {
        ToolError::input("this action needs the id of a profile").with_hint("action list shows them")
    })
}

fn list(apis: &Apis) -> Result<String, ToolError> {
    let files = apis.list().map_err(api_error)?;
    if files.is_empty() {
        return Ok("No API profiles exist.".into());
    }
    Ok(files.iter().map(|file| format!("{}\n", line(file))).collect())
}

/// One line of the list.
fn line(file: &ApiFile) -> String {
    match file {
        ApiFile::Profile(profile) => {
            let Profile { id, name, base_url, description, .. } = &**profile;
            let description: String =
                description.lines().next().unwrap_or_default().chars().take(200).collect();
            format!("{id}: {name}, {base_url}: {description}")
        }
        ApiFile::Broken(broken) => format!("{}: INVALID: {}", broken.id, joined(&broken.problems)),
    }
}

fn view(apis: &Apis, id: &str) -> Result<String, ToolError> {
    match apis.get(id).map_err(api_error)? {
        ApiFile::Profile(profile) => serde_json::to_string_pretty(&profile.draft)
            .map_err(|err| ToolError::internal(format!("a profile did not serialise: {err}"))),
        ApiFile::Broken(broken) => Err(ToolError::failed(format!(
            "the API profile \"{id}\" is invalid: {}",
            joined(&broken.problems)
        ))
        .with_hint("delete it and create it again, or ask the operator to fix its file")),
    }
}

fn delete(ctx: &Ctx, apis: &Apis, id: &str) -> Result<String, ToolError> {
    ownership::may_delete(ctx, &apis.get(id).map_err(api_error)?)?;
    apis.remove(id).map_err(api_error)?;
    Ok(format!("Deleted the API profile {id}. It no longer applies."))
}

fn create(ctx: &Ctx, apis: &Apis, id: Option<String>, given: Option<Value>) -> Result<String, ToolError> {
    let (mut draft, problems) = read(given.unwrap_or_else(|| Map::new().into()))?;
    same_id(id.as_deref(), &draft)?;
    draft.id = draft.id.or(id);
    draft.made_by = ownership::maker(ctx);
    let profile = checked(draft, problems)?;
    ownership::may_create(ctx, &profile, &apis.list().map_err(api_error)?)?;
    apis.save(&profile, Saving::New).map_err(api_error)?;
    Ok(saved_text(ctx, "Created", &profile))
}

fn update(ctx: &Ctx, apis: &Apis, id: Option<String>, given: Option<Value>) -> Result<String, ToolError> {
    let given = given.unwrap_or_else(|| Map::new().into());
    let nulls: Vec<String> = given
        .as_object()
        .into_iter()
        .flatten()
        .filter(|(_, value)| value.is_null())
        .map(|(name, _)| name.clone())
        .collect();
    let (draft, mut problems) = read(given)?;
    same_id(id.as_deref(), &draft)?;
    let id = required_id(id.or_else(|| draft.id.clone()))?;
    let old = apis.get(&id).map_err(api_error)?;
    let mut draft = match &old {
        ApiFile::Profile(old) => draft.over(&old.draft),
        // An unreadable profile has no fields to keep, so the update must give the whole profile.
        ApiFile::Broken(_) => ProfileDraft { id: Some(id.clone()), ..draft },
    };
    if ownership::maker(ctx).is_none() {
        // A profile that the operator updates belongs to the operator from then on.
        draft.made_by = None;
    }
    for name in nulls {
        match name.as_str() {
            "rate_limit" => draft.rate_limit = None,
            "notes" => draft.notes = None,
            _ => problems.push(Violation { path: name, message: "cannot be removed".into() }),
        }
    }
    let profile = checked(draft, problems)?;
    if matches!(&old, ApiFile::Profile(old) if old.draft == profile.draft) {
        return Err(ToolError::input(format!("nothing in profile changes the API profile \"{id}\""))
            .with_hint("give the fields to change, with new values"));
    }
    ownership::may_update(ctx, &old, &profile, &apis.list().map_err(api_error)?)?;
    apis.save(&profile, Saving::Changed).map_err(api_error)?;
    Ok(saved_text(ctx, "Updated", &profile))
}

/// Returns a profile that can be saved and used, or lists every problem with it.
fn checked(draft: ProfileDraft, problems: Vec<Violation>) -> Result<Profile, ToolError> {
    let profile = draft.check_after_read(problems).map_err(|problems| unusable(&problems))?;
    match check_address(&profile.base_url) {
        Err(NetError::BadUrl { reason, .. }) => {
            let message = format!("cannot be reached: {reason}");
            Err(unusable(&[Violation { path: "base_url".into(), message }]))
        }
        Ok(()) | Err(_) => Ok(profile),
    }
}

/// Parses the given profile. Callers cannot set `made_by`.
fn read(given: Value) -> Result<(ProfileDraft, Vec<Violation>), ToolError> {
    if !given.is_object() {
        let message = "must be a JSON object, not a string or an array".to_owned();
        return Err(unusable(&[Violation { path: "profile".into(), message }]));
    }
    let (draft, mut problems) = ProfileDraft::read(given);
    if draft.made_by.is_some() {
        problems.push(Violation { path: "made_by".into(), message: "is set by Gantry; leave it out".into() });
    }
    Ok((draft, problems))
}

fn same_id(id: Option<&str>, draft: &ProfileDraft) -> Result<(), ToolError> {
    match (id, draft.id.as_deref()) {
        (Some(id), Some(own)) if id != own => {
            Err(ToolError::input(format!("id is {id:?} and profile.id is {own:?}; give one id")))
        }
        _ => Ok(()),
    }
}

fn saved_text(ctx: &Ctx, what: &str, profile: &Profile) -> String {
    let missing = super::http_request::missing_secrets(&ctx.state.settings().web, profile);
    let mut text =
        format!("{what} the API profile {}. It applies to requests below {}.", profile.id, profile.base_url);
    for message in missing {
        text.push_str(&format!("\nNot ready yet: {message}."));
    }
    text
}

fn joined(problems: &[Violation]) -> String {
    problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

fn unusable(problems: &[Violation]) -> ToolError {
    let lines: String = problems.iter().map(|problem| format!("\n- {problem}")).collect();
    ToolError::input(format!("nothing was saved; the profile has these problems:{lines}"))
}

fn api_error(err: ApisError) -> ToolError {
    match err {
        ApisError::Exists { .. } => ToolError::input(err.to_string()).with_hint("action update changes it"),
        ApisError::SameBase { .. } => ToolError::input(err.to_string()),
        ApisError::Unknown { .. } => ToolError::input(err.to_string()).with_hint("action list shows all"),
        ApisError::Invalid { problems, .. } => unusable(&problems),
        ApisError::Io { .. } | ApisError::TooMany => ToolError::failed(err.to_string()),
    }
}

#[cfg(test)]
mod tests;
