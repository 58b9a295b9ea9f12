//! Ownership rules of API profiles. Only the operator may loosen a profile that the operator made:
//! its base URL, its auth and its rate limits. Others may change its documentation. A profile made
//! by another agent cannot be changed.

use gantry_apis::{ApiFile, Profile};
use gantry_tool::{Principal, ToolError};

use crate::Ctx;

/// Returns the creator to record in a profile; `None` for the operator.
pub(super) fn maker(ctx: &Ctx) -> Option<String> {
    (ctx.call.principal != Principal::Operator).then(|| ctx.call.principal.to_string())
}

/// Denies a profile whose base URL lies below one of the operator's: it would replace that profile
/// for some requests.
pub(super) fn may_create(ctx: &Ctx, new: &Profile, files: &[ApiFile]) -> Result<(), ToolError> {
    if maker(ctx).is_none() {
        return Ok(());
    }
    let above = files.iter().find_map(|file| match file {
        ApiFile::Profile(own) => {
            (own.is_operators() && own.id != new.id && own.covers(&new.base_url)).then_some(own)
        }
        ApiFile::Broken(_) => None,
    });
    match above {
        Some(own) => Err(denied(format!(
            "base_url lies below {}, the base of the operator's API profile \"{}\", whose limits and credentials apply there",
            own.base_url, own.id
        ))),
        None => Ok(()),
    }
}

pub(super) fn may_update(
    ctx: &Ctx,
    old: &ApiFile,
    new: &Profile,
    files: &[ApiFile],
) -> Result<(), ToolError> {
    if maker(ctx).is_none() {
        return Ok(());
    }
    let old = match old {
        ApiFile::Profile(old) if old.is_operators() => old,
        ApiFile::Profile(old) if old.draft.made_by == maker(ctx) => return may_create(ctx, new, files),
        ApiFile::Profile(old) => return Err(made_by_another(old)),
        ApiFile::Broken(broken) => return Err(maker_unknown(&broken.id)),
    };
    let mut loosened = Vec::new();
    if old.base_url != new.base_url {
        loosened.push("base_url".to_owned());
    }
    if old.draft.auth != new.draft.auth {
        loosened.push("auth".to_owned());
    }
    let windows = new.rate_limit.looser_than(&old.rate_limit);
    loosened.extend(windows.iter().map(|window| format!("rate_limit.requests_per_{window}")));
    if loosened.is_empty() {
        return Ok(());
    }
    Err(denied(format!(
        "the API profile \"{}\" is the operator's: base_url and auth cannot change, and limits can only become \
         stricter; these changes were denied: {}",
        old.id,
        loosened.join(", ")
    )))
}

pub(super) fn may_delete(ctx: &Ctx, file: &ApiFile) -> Result<(), ToolError> {
    match file {
        _ if maker(ctx).is_none() => Ok(()),
        ApiFile::Profile(profile) if profile.is_operators() => Err(denied(format!(
            "the API profile \"{}\" is the operator's: deleting it would remove its limits",
            profile.id
        ))),
        ApiFile::Profile(profile) if profile.draft.made_by == maker(ctx) => Ok(()),
        ApiFile::Profile(profile) => Err(made_by_another(profile)),
        ApiFile::Broken(broken) => Err(maker_unknown(&broken.id)),
    }
}

fn made_by_another(profile: &Profile) -> ToolError {
    let maker = profile.draft.made_by.as_deref().unwrap_or_default();
    denied(format!("the API profile \"{}\" was made by {maker}", profile.id))
}

fn maker_unknown(id: &str) -> ToolError {
    denied(format!("the API profile \"{id}\" cannot be read, so it may be the operator's"))
}

fn denied(text: String) -> ToolError {
    ToolError::denied(format!("{text}; nothing was saved"))
        .with_hint("ask the operator to do it, with `gantry apis` or in the profile's file")
}
