//! Finds the API profile that covers a request, at its first address and at each redirect, and
//! applies its limits.

use std::sync::Arc;

use gantry_apis::{Apis, BrokenProfile, Covering, Profile};
use gantry_net::Url;
use gantry_tool::{ToolError, Violation};

use super::api_like;
use super::plan::Planned;
use crate::Ctx;

fn apis(ctx: &Ctx) -> Option<Apis> {
    ctx.state.settings().web.apis.clone()
}

/// Returns the profile that covers a request, or an error if the request needs one.
pub(super) fn covering_profile(
    ctx: &Ctx,
    url: &Url,
    plan: &Planned,
    problems: &mut Vec<Violation>,
) -> Result<Option<Arc<Profile>>, ToolError> {
    match look_up(ctx, url, |url| api_like::why(url, plan))? {
        Ok(profile) => Ok(profile),
        Err(message) => {
            problems.push(Violation { path: "url".into(), message });
            Ok(None)
        }
    }
}

/// Decides whether a request under `profile` may be redirected to `url`, and whether the profile
/// still covers it there.
pub(super) fn follows(ctx: &Ctx, profile: Option<&Profile>, url: &Url) -> Result<Followed, ToolError> {
    let covering = match look_up(ctx, url, api_like::why_by_address)? {
        Ok(covering) => covering,
        Err(message) => return Ok(Followed::No(message)),
    };
    Ok(match (profile, covering) {
        (Some(profile), Some(covering)) if profile.id == covering.id => Followed::Within(covering),
        (_, Some(covering)) => Followed::No(format!(
            "the API profile \"{}\" covers that address; request it separately",
            covering.id
        )),
        (_, None) => Followed::Outside,
    })
}

pub(super) enum Followed {
    Within(Arc<Profile>),
    /// No profile is needed there, and the credentials must not go there.
    Outside,
    No(String),
}

fn look_up(
    ctx: &Ctx,
    url: &Url,
    api_like: impl FnOnce(&Url) -> Option<String>,
) -> Result<Result<Option<Arc<Profile>>, String>, ToolError> {
    let Some(apis) = apis(ctx) else { return Ok(Ok(None)) };
    let covering = apis.covering(url).map_err(|err| ToolError::failed(err.to_string()))?;
    let message = match covering {
        Covering::Profile(profile) => return Ok(Ok(Some(profile))),
        Covering::Broken(broken) => format!(
            "the API profile \"{}\" covers it and is invalid: {}; fix it with api_setup, or delete it",
            broken.id,
            problems_text(&broken)
        ),
        Covering::Twice(ids) => format!(
            "the API profiles {} have the same base_url, so none of them can be chosen; delete all but one",
            ids.join(", ")
        ),
        Covering::Unclear { id } => format!(
            "its path contains dots, encoded or before a ;, that servers interpret differently, and the API profile \"{id}\" is for that \
             host; write the path without them"
        ),
        Covering::Hidden(broken) => format!(
            "no valid API profile covers it, and {}.json is invalid: {}; fix it with api_setup, or delete it",
            broken.id,
            problems_text(&broken)
        ),
        Covering::OtherScheme(profile) => {
            format!("the API profile \"{}\" is for {}; use that", profile.id, profile.base_url)
        }
        Covering::Nothing { profiles: 0 } => return Ok(Ok(None)),
        Covering::Nothing { .. } => match api_like(url) {
            None => return Ok(Ok(None)),
            Some(why) => {
                let origin = url.origin().ascii_serialization();
                format!(
                    "no API profile covers it, and it looks like an API: {why}. Create one first: api_setup with action \
                     create and a profile whose base_url is {origin}/… with auth, endpoints, guidelines and avoid; or \
                     the operator runs `gantry apis add FILE`"
                )
            }
        },
    };
    Ok(Err(message))
}

fn problems_text(broken: &BrokenProfile) -> String {
    broken.problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

/// A request that was counted against the limits of its profile.
#[derive(Debug)]
pub(super) struct Counted {
    profile: Arc<Profile>,
    at: i64,
}

impl Counted {
    /// Reverts the count of a request that was never sent.
    pub(super) fn refund(&self, ctx: &Ctx) -> Result<(), ToolError> {
        match apis(ctx) {
            Some(apis) => {
                apis.uncount_request(&self.profile, self.at).map_err(|err| ToolError::failed(err.to_string()))
            }
            None => Ok(()),
        }
    }
}

/// Counts a request, or returns which limit of its profile is reached and when to retry.
pub(super) fn count(ctx: &Ctx, profile: &Arc<Profile>) -> Result<Result<Counted, LimitReached>, ToolError> {
    let at = jiff::Timestamp::now().as_millisecond();
    let counted = Counted { profile: profile.clone(), at };
    let Some(apis) = apis(ctx) else { return Ok(Ok(counted)) };
    let taken = apis.count_request(profile, at).map_err(|err| ToolError::failed(err.to_string()))?;
    Ok(taken.map(|()| counted).map_err(|full| LimitReached {
        text: format!(
            "the API profile \"{}\" allows {} request{} {} {}",
            profile.id,
            full.limit,
            if full.limit == 1 { "" } else { "s" },
            if full.window == "hour" { "an" } else { "a" },
            full.window
        ),
        hint: format!("retry in {} s", full.wait_ms.max(1).cast_unsigned().div_ceil(1_000)),
    }))
}

pub(super) struct LimitReached {
    pub(super) text: String,
    pub(super) hint: String,
}
