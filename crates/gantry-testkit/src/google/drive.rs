//! The behaviour of Google Drive: queries, folders, exports, uploads in one request or in parts, and permissions.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{Reply, Seen, State};

mod query;

const DOCUMENT: &str = "application/vnd.google-apps.document";
const FOLDER: &str = "application/vnd.google-apps.folder";
const EDITOR_PREFIX: &str = "application/vnd.google-apps.";
/// Google exports at most this much.
const MAX_EXPORT: usize = 10 * 1024 * 1024;

#[derive(Default)]
pub struct Drive {
    pub files: BTreeMap<String, File>,
    uploads: BTreeMap<String, Upload>,
    /// The largest page, whatever a request asks for. 0 means no limit.
    pub page_limit: usize,
    next: u64,
}

#[derive(Debug, Clone, Default)]
pub struct File {
    pub name: String,
    pub mime_type: String,
    pub parents: Vec<String>,
    pub content: Vec<u8>,
    pub trashed: bool,
    /// Role and address of everybody but the owner.
    pub permissions: Vec<(String, String)>,
    /// The target of a shortcut.
    pub target: Option<String>,
    pub owner: String,
}

struct Upload {
    metadata: Value,
    kind: String,
    bytes: Vec<u8>,
    total: Option<usize>,
}

impl Drive {
    /// Adds a file and returns its id.
    pub fn add(&mut self, file: File) -> String {
        self.next += 1;
        let id = format!("file-{:05}", self.next);
        self.files.insert(id.clone(), file);
        id
    }

    /// Adds a file with a name, a type and content below `root`.
    pub fn add_file(&mut self, name: &str, mime_type: &str, content: &[u8]) -> String {
        self.add(File {
            name: name.to_owned(),
            mime_type: mime_type.to_owned(),
            parents: vec!["root".to_owned()],
            content: content.to_vec(),
            owner: "ann@example.com".to_owned(),
            ..File::default()
        })
    }
}

pub(super) fn answer(state: &mut State, seen: &Seen) -> Reply {
    let origin = state.origin.clone();
    let drive = &mut state.drive;
    match seen.id.as_str() {
        "drive.files.list" => list(drive, seen),
        "drive.files.generateIds" => {
            let count: usize = seen.parameter("count").and_then(|text| text.parse().ok()).unwrap_or(10);
            let ids: Vec<String> = (0..count)
                .map(|_| {
                    drive.next += 1;
                    format!("generated-{:05}", drive.next)
                })
                .collect();
            Reply::Json(json!({"kind": "drive#generatedIds", "space": "drive", "ids": ids}))
        }
        "drive.files.create" => create(drive, seen, &origin),
        "drive.files.get"
        | "drive.files.update"
        | "drive.files.export"
        | "drive.permissions.create"
        | "drive.permissions.list" => {
            let id = seen.path("fileId").to_owned();
            // The root is a folder that every account has.
            if id == "root" && seen.id == "drive.files.get" {
                let root = File {
                    name: "My Drive".to_owned(),
                    mime_type: FOLDER.to_owned(),
                    owner: seen.account.clone(),
                    ..File::default()
                };
                return Reply::Json(masked(described("root", &root), seen));
            }
            match drive.files.get_mut(&id) {
                None => Reply::Error(404, "notFound", format!("File not found: {id}.")),
                Some(file) => of_file(&id, file, seen),
            }
        }
        other => Reply::Error(501, "notImplemented", format!("this server has no {other}")),
    }
}

fn of_file(id: &str, file: &mut File, seen: &Seen) -> Reply {
    let is_editor = file.mime_type.starts_with(EDITOR_PREFIX);
    match seen.id.as_str() {
        "drive.files.get" if seen.parameter("alt") == Some("media") => match is_editor {
            true => Reply::Error(
                403,
                "fileNotDownloadable",
                "Only files with binary content can be downloaded. Use Export with Docs Editors files."
                    .to_owned(),
            ),
            false => Reply::Bytes(file.mime_type.clone(), file.content.clone()),
        },
        "drive.files.get" => Reply::Json(masked(described(id, file), seen)),
        "drive.files.export" => {
            let kind = seen.parameter("mimeType").unwrap_or_default();
            match () {
                () if !is_editor || file.mime_type == FOLDER => Reply::Error(
                    403,
                    "fileNotExportable",
                    "Export only supports Docs Editors files.".to_owned(),
                ),
                () if file.content.len() > MAX_EXPORT => Reply::Error(
                    403,
                    "exportSizeLimitExceeded",
                    "This file is too large to be exported.".to_owned(),
                ),
                () if kind == "text/csv" && !file.mime_type.ends_with("spreadsheet") => {
                    Reply::Error(400, "badRequest", "The requested conversion is not supported.".to_owned())
                }
                () => Reply::Bytes(kind.to_owned(), file.content.clone()),
            }
        }
        "drive.files.update" => {
            let split = |name: &str| {
                seen.parameter(name).unwrap_or_default().split(',').map(str::to_owned).collect::<Vec<_>>()
            };
            file.parents.retain(|parent| !split("removeParents").contains(parent));
            let added = split("addParents").into_iter().filter(|parent| !parent.is_empty());
            for parent in added {
                file.parents.push(parent);
            }
            if file.parents.len() > 1 {
                return Reply::Error(
                    403,
                    "cannotAddParent",
                    "Increasing the number of parents is not allowed".to_owned(),
                );
            }
            if let Some(name) = seen.body["name"].as_str() {
                file.name = name.to_owned();
            }
            Reply::Json(masked(described(id, file), seen))
        }
        "drive.permissions.list" => {
            let list = file.permissions.iter().map(|(role, address)| {
                json!({"kind": "drive#permission", "id": address, "type": "user", "role": role, "emailAddress": address})
            });
            Reply::Json(json!({"kind": "drive#permissionList", "permissions": list.collect::<Vec<_>>()}))
        }
        _ => {
            let text = |name: &str| seen.body[name].as_str().unwrap_or_default().to_owned();
            if text("type") == "user" && !text("emailAddress").contains('@') {
                return Reply::Error(
                    400,
                    "invalid",
                    "The specified emailAddress is invalid or not applicable for the given permission type."
                        .to_owned(),
                );
            }
            if !["owner", "organizer", "fileOrganizer", "writer", "commenter", "reader"]
                .contains(&text("role").as_str())
            {
                return Reply::Error(400, "required", "The permission role field is required.".to_owned());
            }
            file.permissions.push((text("role"), text("emailAddress")));
            Reply::Json(
                json!({"kind": "drive#permission", "id": "0123", "type": text("type"), "role": text("role"), "emailAddress": text("emailAddress")}),
            )
        }
    }
}

/// Without a mask, Drive returns four fields.
fn masked(file: Value, seen: &Seen) -> Value {
    match seen.parameter("fields") {
        Some(_) => file,
        None => super::field_mask::apply("kind,id,name,mimeType", &file),
    }
}

fn described(id: &str, file: &File) -> Value {
    let mut described = json!({
        "kind": "drive#file",
        "id": id,
        "name": file.name,
        "mimeType": file.mime_type,
        "parents": file.parents,
        "trashed": file.trashed,
        "shared": !file.permissions.is_empty(),
        "ownedByMe": true,
        "owners": [{"kind": "drive#user", "displayName": file.owner, "emailAddress": file.owner}],
        "modifiedTime": "2026-11-10T08:00:00.000Z",
        "webViewLink": format!("https://drive.google.com/file/d/{id}/view"),
    });
    if !file.mime_type.starts_with(EDITOR_PREFIX) {
        described["size"] = json!(file.content.len().to_string());
    }
    if let Some(target) = &file.target {
        described["shortcutDetails"] = json!({"targetId": target, "targetMimeType": "text/plain"});
    }
    described
}

fn list(drive: &Drive, seen: &Seen) -> Reply {
    let text = seen.parameter("q").unwrap_or_default();
    let wanted = match query::parse(text) {
        Ok(wanted) => wanted,
        Err(why) => return Reply::Error(400, "invalid", format!("Invalid Value: {why} in {text:?}")),
    };
    if text.contains("fullText") && seen.parameter("orderBy").is_some() {
        return Reply::Error(
            403,
            "forbidden",
            "Sorting is not supported for queries with fullText terms.".to_owned(),
        );
    }
    let found: Vec<Value> = drive
        .files
        .iter()
        .filter(|(_, file)| wanted.matches(file))
        .map(|(id, file)| described(id, file))
        .collect();
    let limit: usize = seen.parameter("pageSize").and_then(|text| text.parse().ok()).unwrap_or(100);
    let limit = if drive.page_limit == 0 { limit } else { limit.min(drive.page_limit) };
    let skipped: usize = seen.parameter("pageToken").and_then(|text| text.parse().ok()).unwrap_or(0);
    let page: Vec<Value> = found.iter().skip(skipped).take(limit).cloned().collect();
    let page = match seen.parameter("fields") {
        Some(_) => page,
        None => page.iter().map(|file| super::field_mask::apply("kind,id,name,mimeType", file)).collect(),
    };
    let mut answer = json!({"kind": "drive#fileList", "incompleteSearch": false, "files": page});
    if found.len() > skipped + limit {
        answer["nextPageToken"] = json!((skipped + limit).to_string());
    }
    Reply::Json(answer)
}

fn create(drive: &mut Drive, seen: &Seen, origin: &str) -> Reply {
    if let Some(upload) = seen.parameter("upload_id") {
        return continued(drive, upload, seen);
    }
    if seen.parameter("uploadType") == Some("resumable") {
        drive.next += 1;
        let id = format!("upload-{:05}", drive.next);
        let total = seen.parameter("x-upload-content-length").and_then(|text| text.parse().ok());
        let kind = seen.parameter("x-upload-content-type").unwrap_or_default().to_owned();
        drive
            .uploads
            .insert(id.clone(), Upload { metadata: seen.body.clone(), kind, bytes: Vec::new(), total });
        let place = format!("{origin}/upload/drive/v3/files?uploadType=resumable&upload_id={id}");
        return Reply::Headers(200, vec![("Location".to_owned(), place)]);
    }
    let (kind, bytes) = seen.media.clone().unwrap_or_default();
    finished(drive, &seen.body, &kind, bytes, seen)
}

/// One part of a resumable upload.
fn continued(drive: &mut Drive, id: &str, seen: &Seen) -> Reply {
    let Some(upload) = drive.uploads.get_mut(id) else { return Reply::not_found("Upload") };
    let bytes = seen.media.clone().map(|(_, bytes)| bytes).unwrap_or_default();
    let range = seen.parameter("content-range").unwrap_or_default();
    let total = range.rsplit('/').next().and_then(|text| text.parse().ok()).or(upload.total);
    let is_status = range.starts_with("bytes */");
    if !is_status {
        let start = range
            .strip_prefix("bytes ")
            .and_then(|text| text.split('-').next())
            .and_then(|text| text.parse().ok());
        if start.is_some_and(|start: usize| start != upload.bytes.len()) {
            return Reply::Error(
                400,
                "badRequest",
                "The part does not begin where the last one ended.".to_owned(),
            );
        }
        let is_last = total.is_none_or(|total| upload.bytes.len() + bytes.len() >= total);
        if !is_last && !bytes.len().is_multiple_of(256 * 1024) {
            return Reply::Error(400, "badRequest", "Parts must be multiples of 256 KiB.".to_owned());
        }
        upload.bytes.extend(bytes);
    }
    if total.is_some_and(|total: usize| upload.bytes.len() < total) {
        let range = match upload.bytes.len() {
            0 => Vec::new(),
            received => vec![("Range".to_owned(), format!("bytes=0-{}", received - 1))],
        };
        return Reply::Headers(308, range);
    }
    let Some(upload) = drive.uploads.remove(id) else { return Reply::not_found("Upload") };
    finished(drive, &upload.metadata, &upload.kind, upload.bytes, seen)
}

fn finished(drive: &mut Drive, metadata: &Value, kind: &str, content: Vec<u8>, seen: &Seen) -> Reply {
    let wanted = metadata["mimeType"].as_str().unwrap_or(kind).to_owned();
    let is_editor = wanted.starts_with(EDITOR_PREFIX) && wanted != FOLDER;
    let given = metadata["id"].as_str().map(str::to_owned);
    if given.is_some() && is_editor {
        return Reply::Error(
            400,
            "invalid",
            "Generated IDs cannot be used for Docs Editors formats.".to_owned(),
        );
    }
    if let Some(id) = &given
        && drive.files.contains_key(id)
    {
        return Reply::Error(409, "fileIdInUse", "A file already exists with the provided ID.".to_owned());
    }
    if wanted == DOCUMENT
        && !["text/html", "text/plain", "text/markdown"].iter().any(|known| kind.starts_with(known))
        && !content.is_empty()
    {
        return Reply::Error(400, "invalidContentType", "The content cannot be converted.".to_owned());
    }
    let parents =
        metadata["parents"].as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned);
    let mut parents: Vec<String> = parents.collect();
    if parents.is_empty() {
        parents.push("root".to_owned());
    }
    if let Some(missing) =
        parents.iter().find(|parent| *parent != "root" && !drive.files.contains_key(*parent))
    {
        return Reply::Error(404, "notFound", format!("File not found: {missing}."));
    }
    let file = File {
        name: metadata["name"].as_str().unwrap_or("Untitled").to_owned(),
        mime_type: if wanted.is_empty() { "application/octet-stream".to_owned() } else { wanted },
        parents,
        content,
        owner: seen.account.clone(),
        ..File::default()
    };
    let id = match given {
        Some(id) => {
            drive.files.insert(id.clone(), file);
            id
        }
        None => drive.add(file),
    };
    Reply::Json(masked(described(&id, &drive.files[&id]), seen))
}
