//! `share`: gives one person access to a file. Access for everybody with the link is never given.

use gantry_net::Method;
use gantry_protocol::AskedAction;
use gantry_tool::{AskedCall, ToolError};
use serde_json::json;

use super::files::get;
use super::{CHANGE, Input, Role, SERVICE};
use crate::api::{ApiCall, Service};
use crate::declare::{Ctx, Google};
use crate::ids::{object_id, required};
use crate::oauth::is_address;
use crate::others_words::line;
use crate::questions::{change, field};
use crate::times;

impl Role {
    fn name(self) -> &'static str {
        match self {
            Role::Reader => "reader",
            Role::Commenter => "commenter",
            Role::Writer => "writer",
        }
    }
}

/// A checked share.
struct Share<'a> {
    file: &'a str,
    email: &'a str,
    role: Role,
    notify: bool,
    expires: Option<jiff::Timestamp>,
}

fn checked<'a>(google: &Google, input: &'a Input) -> Result<Share<'a>, ToolError> {
    let file = object_id("file_id", required("share", "file_id", input.file_id.as_deref())?)?;
    let email = required("share", "email", input.email.as_deref())?.trim();
    if !is_address(email) {
        return Err(ToolError::input("email must be the plain address of one person"));
    }
    let expires =
        input.expires.as_deref().map(|text| times::instant("expires", text, &google.zone)).transpose()?;
    let (role, notify) = (input.role.unwrap_or(Role::Reader), input.notify.unwrap_or(true));
    Ok(Share { file, email, role, notify, expires })
}

pub(super) async fn question(google: &Google, asked: &AskedCall, input: &Input) -> Option<AskedAction> {
    let share = checked(google, input).ok()?;
    let account = google.api.accounts().resolve(input.account.as_deref()).ok()?;
    let file = get(google, &asked.call, &account, share.file).await.ok()?;
    let mut details = vec![
        field("Account", &account),
        field("File", &file.name),
        field("File id", share.file),
        field("Notification mail", if share.notify { "yes" } else { "no" }),
    ];
    details.extend(share.expires.map(|at| field("Ends", &times::shown(at, &google.zone))));
    let what = format!("share \"{}\" with {} as {}", line(&file.name, 200), share.email, share.role.name());
    change(SERVICE, what, &details)
}

pub(super) async fn run(ctx: &Ctx, input: &Input) -> Result<String, ToolError> {
    let google = &ctx.state;
    let account = google.api.accounts().resolve(input.account.as_deref())?;
    let share = checked(google, input)?;
    let mut body = json!({"type": "user", "role": share.role.name(), "emailAddress": share.email});
    if let Some(at) = share.expires {
        body["expirationTime"] = json!(at.to_string());
    }
    let path = format!("/files/{}/permissions", share.file);
    let request = ApiCall::send(Service::Drive, Method::POST, path, CHANGE, body)
        .with("sendNotificationEmail", share.notify.to_string())
        .with("supportsAllDrives", "true");
    google.api.call(&ctx.call, Some(&account), request).await?;
    Ok(format!(
        "{} can use the file {} as {} now, account {account}.",
        share.email,
        share.file,
        share.role.name()
    ))
}
