//! `apis.*`: profiles of the APIs that agents use.

use std::sync::Arc;

use gantry_apis::{ApiFile, Apis, ApisError, ProfileDraft, Saving};
use gantry_domain::MethodContext;
use gantry_protocol::{
    ApiId, ApiInfo, ApiList, ApiProblem, ApiProfile, ApiSave, Empty, ErrorCode, WireError,
};
use gantry_tool::Violation;
use serde_json::{Value, json};

use super::{Answer, State, internal, on_disk};

pub(super) async fn list(state: Arc<State>, _: MethodContext, _: Empty) -> Answer<ApiList> {
    on_disk(move || {
        let files = apis(&state).list().map_err(wire)?;
        Ok(ApiList { apis: files.iter().map(info).collect() })
    })
    .await
}

pub(super) async fn get(state: Arc<State>, _: MethodContext, params: ApiId) -> Answer<ApiProfile> {
    on_disk(move || match apis(&state).get(&params.id).map_err(wire)? {
        ApiFile::Profile(profile) => {
            let profile = serde_json::to_value(&profile.draft).map_err(|err| internal(&err))?;
            Ok(ApiProfile { id: params.id, profile })
        }
        ApiFile::Broken(broken) => Err(invalid(&broken.problems)),
    })
    .await
}

/// Saves a complete profile. One that exists is replaced only if the client says so.
pub(super) async fn save(state: Arc<State>, _: MethodContext, params: ApiSave) -> Answer<ApiId> {
    on_disk(move || {
        state.environment.data.create().map_err(|err| internal(&err))?;
        let profile = ProfileDraft::read_whole(params.profile).map_err(|problems| invalid(&problems))?;
        let apis = apis(&state);
        let there = params.replace && apis.get(&profile.id).is_ok();
        apis.save(&profile, if there { Saving::Changed } else { Saving::New }).map_err(wire)?;
        Ok(ApiId { id: profile.id.clone() })
    })
    .await
}

pub(super) async fn remove(state: Arc<State>, _: MethodContext, params: ApiId) -> Answer<ApiId> {
    on_disk(move || {
        apis(&state).remove(&params.id).map_err(wire)?;
        Ok(params)
    })
    .await
}

fn apis(state: &State) -> Apis {
    Apis::new(&state.environment.data)
}

fn info(file: &ApiFile) -> ApiInfo {
    match file {
        ApiFile::Profile(profile) => ApiInfo {
            id: profile.id.clone(),
            name: Some(profile.name.clone()),
            base_url: Some(profile.base_url.to_string()),
            made_by: profile.draft.made_by.clone(),
            problems: Vec::new(),
        },
        ApiFile::Broken(broken) => ApiInfo {
            id: broken.id.clone(),
            name: None,
            base_url: None,
            made_by: None,
            problems: broken.problems.iter().map(problem).collect(),
        },
    }
}

fn problem(violation: &Violation) -> ApiProblem {
    ApiProblem { path: violation.path.clone(), message: violation.message.clone() }
}

fn invalid(problems: &[Violation]) -> WireError {
    let mut error = WireError::new(ErrorCode::BadParams, "the profile has errors; see the violations");
    let rows: Vec<Value> =
        problems.iter().map(|one| json!({"path": one.path, "message": one.message})).collect();
    error.details = Some(json!({"violations": rows}));
    error
}

fn wire(err: ApisError) -> WireError {
    WireError::new(ErrorCode::Conflict, err.to_string())
}
