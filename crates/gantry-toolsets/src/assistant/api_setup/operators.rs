//! What the operator has set up, nobody else loosens: where a profile's requests go, what proves who they are, and how
//! often they may be made. The rest of it teaches, and whoever learns may write it down. What others made is theirs.

use gantry_apis::{ApiFile, Profile};
use gantry_tool::{Principal, ToolError};

use crate::Ctx;

/// Who makes a profile; nobody in particular if it is the operator.
pub(super) fn maker(ctx: &Ctx) -> Option<String> {
    (ctx.call.principal != Principal::Operator).then(|| ctx.call.principal.to_string())
}

/// A profile below one of the operator's would take its place for some of its requests.
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
            "base_url lies below {}, the base of the operator's API profile \"{}\", whose limits and credentials count there",
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
        ApiFile::Profile(old) => return Err(somebody_elses(old)),
        ApiFile::Broken(broken) => return Err(whose_is_unknown(&broken.id)),
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
        "the API profile \"{}\" is the operator's: base_url and auth stay as they are, and limits can only become \
         stricter; not to be changed this way: {}",
        old.id,
        loosened.join(", ")
    )))
}

pub(super) fn may_delete(ctx: &Ctx, file: &ApiFile) -> Result<(), ToolError> {
    match file {
        _ if maker(ctx).is_none() => Ok(()),
        ApiFile::Profile(profile) if profile.is_operators() => Err(denied(format!(
            "the API profile \"{}\" is the operator's: without it its limits would no longer count",
            profile.id
        ))),
        ApiFile::Profile(profile) if profile.draft.made_by == maker(ctx) => Ok(()),
        ApiFile::Profile(profile) => Err(somebody_elses(profile)),
        ApiFile::Broken(broken) => Err(whose_is_unknown(&broken.id)),
    }
}

fn somebody_elses(profile: &Profile) -> ToolError {
    let maker = profile.draft.made_by.as_deref().unwrap_or_default();
    denied(format!("the API profile \"{}\" was made by {maker}", profile.id))
}

fn whose_is_unknown(id: &str) -> ToolError {
    denied(format!("the API profile \"{id}\" cannot be read, so it may be the operator's"))
}

fn denied(text: String) -> ToolError {
    ToolError::denied(format!("{text}; nothing was saved"))
        .with_hint("the operator can do it, with `gantry apis` or in the profile's file")
}
