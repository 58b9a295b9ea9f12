//! `move`: puts a file into another folder.

use gantry_net::Method;
use gantry_protocol::AskedAction;
use gantry_tool::{AskedCall, Call, ToolError};
use serde_json::json;

use super::files::{FOLDER, FileInfo, get};
use super::{CHANGE, Input, SERVICE};
use crate::api::{ApiCall, Service};
use crate::declare::{Ctx, Google};
use crate::ids::{object_id, required};
use crate::others_words::line;
use crate::questions::{change, field};

/// The file and the folder that it moves to.
async fn resolved(
    google: &Google,
    call: &Call,
    account: &str,
    input: &Input,
) -> Result<(FileInfo, FileInfo), ToolError> {
    let id = object_id("file_id", required("move", "file_id", input.file_id.as_deref())?)?;
    let target = required("move", "target_folder_id", input.target_folder_id.as_deref())?;
    if target != "root" {
        object_id("target_folder_id", target)?;
    }
    let file = get(google, call, account, id).await?;
    let folder = get(google, call, account, target).await?;
    match folder.mime_type == FOLDER {
        true => Ok((file, folder)),
        false => Err(ToolError::input("target_folder_id is not a folder")),
    }
}

pub(super) async fn question(google: &Google, asked: &AskedCall, input: &Input) -> Option<AskedAction> {
    let account = google.api.accounts().resolve(input.account.as_deref()).ok()?;
    let (file, folder) = resolved(google, &asked.call, &account, input).await.ok()?;
    let details = [
        field("Account", &account),
        field("File", &format!("{} ({})", file.name, file.visibility())),
        field("New folder", &format!("{} ({})", folder.name, folder.visibility())),
    ];
    change(
        SERVICE,
        format!("move \"{}\" to \"{}\"", line(&file.name, 200), line(&folder.name, 200)),
        &details,
    )
}

pub(super) async fn run(ctx: &Ctx, input: &Input) -> Result<String, ToolError> {
    let google = &ctx.state;
    let account = google.api.accounts().resolve(input.account.as_deref())?;
    let (file, folder) = resolved(google, &ctx.call, &account, input).await?;
    if file.parents.contains(&folder.id) {
        return Ok(format!("The file is in this folder already, account {account}."));
    }
    let request =
        ApiCall::send(Service::Drive, Method::PATCH, format!("/files/{}", file.id), CHANGE, json!({}))
            .with("addParents", folder.id)
            .with("removeParents", file.parents.join(","))
            .with("supportsAllDrives", "true")
            .with("fields", "id,parents");
    google.api.call(&ctx.call, Some(&account), request).await?;
    Ok(format!("The file {} was moved, account {account}.", file.id))
}
