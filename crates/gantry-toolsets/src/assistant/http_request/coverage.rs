//! Which API profile a request goes by, at its first address and at each one that it is redirected to; and its limits.

use std::sync::Arc;

use gantry_apis::{Apis, BrokenProfile, Covering, Profile};
use gantry_net::Url;
use gantry_tool::{ToolError, Violation};

use super::api_like;
use super::plan::Planned;
use crate::Ctx;

fn apis(ctx: &Ctx) -> Option<&Apis> {
    ctx.state.web().apis.as_ref()
}

/// The profile of a request, or why there has to be one.
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

/// Whether a request that went by `profile` may go on to `url`; and whether it still goes by it there.
pub(super) fn follows(ctx: &Ctx, profile: Option<&Profile>, url: &Url) -> Result<Followed, ToolError> {
    let covering = match look_up(ctx, url, api_like::why_by_address)? {
        Ok(covering) => covering,
        Err(message) => return Ok(Followed::No(message)),
    };
    Ok(match (profile, covering) {
        (Some(profile), Some(covering)) if profile.id == covering.id => Followed::Within(covering),
        (_, Some(covering)) => {
            Followed::No(format!("the API profile \"{}\" covers that; request it by itself", covering.id))
        }
        (_, None) => Followed::Outside,
    })
}

pub(super) enum Followed {
    Within(Arc<Profile>),
    /// No profile is needed there, and none of its credentials may go there.
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
            "the API profile \"{}\" covers it and cannot be used: {}; mend it with api_setup, or delete it",
            broken.id,
            listed(&broken)
        ),
        Covering::Twice(ids) => format!(
            "the API profiles {} have the same base_url, so which of them covers it cannot be told; delete all but one",
            ids.join(", ")
        ),
        Covering::Unclear { id } => format!(
            "its path holds dots, encoded or before a ;, that servers read in different ways, and the API profile \"{id}\" is for that \
             host; write the path out"
        ),
        Covering::Hidden(broken) => format!(
            "no API profile covers it, and what {}.json covers cannot be told: {}; mend it with api_setup, or delete it",
            broken.id,
            listed(&broken)
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
                    "no API profile covers it, and it looks like an API: {why}. Make one first: api_setup with action \
                     create and a profile whose base_url is {origin}/… with auth, endpoints, guidelines and avoid; or \
                     the operator runs `gantry apis add FILE`"
                )
            }
        },
    };
    Ok(Err(message))
}

fn listed(broken: &BrokenProfile) -> String {
    broken.problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

/// A request that was counted against the limits of its profile.
#[derive(Debug)]
pub(super) struct Counted {
    profile: Arc<Profile>,
    at: i64,
}

impl Counted {
    /// It was never sent.
    pub(super) fn take_back(&self, ctx: &Ctx) -> Result<(), ToolError> {
        match apis(ctx) {
            Some(apis) => {
                apis.uncount_request(&self.profile, self.at).map_err(|err| ToolError::failed(err.to_string()))
            }
            None => Ok(()),
        }
    }
}

/// Counts a request, or says which limit of its profile is reached and when there is room.
pub(super) fn count(ctx: &Ctx, profile: &Arc<Profile>) -> Result<Result<Counted, Full>, ToolError> {
    let at = jiff::Timestamp::now().as_millisecond();
    let counted = Counted { profile: profile.clone(), at };
    let Some(apis) = apis(ctx) else { return Ok(Ok(counted)) };
    let taken = apis.count_request(profile, at).map_err(|err| ToolError::failed(err.to_string()))?;
    Ok(taken.map(|()| counted).map_err(|full| Full {
        text: format!(
            "the API profile \"{}\" allows {} request{} {} {}",
            profile.id,
            full.limit,
            if full.limit == 1 { "" } else { "s" },
            if full.window == "hour" { "an" } else { "a" },
            full.window
        ),
        hint: format!("try again in {} s", full.wait_ms.max(1).cast_unsigned().div_ceil(1_000)),
    }))
}

pub(super) struct Full {
    pub(super) text: String,
    pub(super) hint: String,
}
