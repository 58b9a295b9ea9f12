//! Files in both directions. Each takes two steps: an id and an address to read one, an upload and a message to send one.

use std::time::Duration;

use bytes::Bytes;
use gantry_net::Redirects;
use serde_json::{Value, json};

use super::WhatsApp;
use super::api::CallError;
use crate::adapter::Media;
use crate::multipart::Multipart;

const UPLOAD_LIMIT: Duration = Duration::from_secs(300);
const DOWNLOAD_LIMIT: Duration = Duration::from_secs(120);
const MAX_IMAGE: usize = 5 << 20;
const MAX_SOUND: usize = 16 << 20;
const MAX_FILE_NAME: usize = 200;

/// A file that was uploaded.
pub(super) struct Uploaded {
    id: String,
    kind: &'static str,
}

impl Uploaded {
    pub(super) fn insert(&self, body: &mut Value, name: &str, caption: &str) {
        let mut file = json!({ "id": self.id });
        if self.kind == "document" {
            file["filename"] = json!(file_name(name));
        }
        // A sound has no caption.
        if !caption.is_empty() && self.kind != "audio" {
            file["caption"] = json!(caption);
        }
        body["type"] = json!(self.kind);
        body[self.kind] = file;
    }
}

impl WhatsApp {
    pub(super) async fn upload(&self, name: &str, mime: &str, bytes: &Bytes) -> Result<Uploaded, CallError> {
        let (mime, kind) = accepted(mime, bytes.len());
        let form = Multipart::new().text("messaging_product", "whatsapp").text("type", mime).file(
            "file",
            &file_name(name),
            mime,
            bytes,
        );
        let (content_type, form) = form.finish();
        let answer = self.post("media", &content_type, form, UPLOAD_LIMIT).await?;
        match answer["id"].as_str() {
            Some(id) => Ok(Uploaded { id: id.to_owned(), kind }),
            None => Err(CallError::Server("WhatsApp gave no id for the file".to_owned())),
        }
    }

    pub(super) async fn download(&self, media: &Media, limit: usize) -> Result<Bytes, String> {
        let id = &media.source;
        if id.is_empty() || id.len() > 64 || !id.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err("WhatsApp gave an invalid id for the file".to_owned());
        }
        let fields = [("phone_number_id", self.phone_number_id.as_str())];
        let found = self.get(&[id], &fields).await.map_err(|err| err.to_string())?;
        if found["file_size"].as_u64().is_some_and(|size| size > limit as u64) {
            return Err(format!("the file is larger than {limit} bytes"));
        }
        let url = found["url"].as_str().unwrap_or_default();
        // The token goes along, so the address must be one of Meta.
        let url = self.connection.pinned("WhatsApp", url, ["https", "http"], self.api.as_ref())?;
        let mut request = self.request(url, DOWNLOAD_LIMIT).map_err(|err| err.to_string())?;
        request.redirects = Redirects::Stop;
        let response = self.connection.client.send(request).await.map_err(|err| err.to_string())?;
        if !response.status.is_success() {
            return Err(format!("WhatsApp answered {} to the download", response.status));
        }
        let body = response.body.read(limit).await.map_err(|err| err.to_string())?;
        if body.cut { Err(format!("the file is larger than {limit} bytes")) } else { Ok(body.bytes.into()) }
    }
}

/// The type under which WhatsApp accepts a file, and the kind of its message.
fn accepted(mime: &str, size: usize) -> (&str, &'static str) {
    match mime {
        "image/jpeg" | "image/png" if size <= MAX_IMAGE => (mime, "image"),
        "audio/aac" | "audio/amr" | "audio/mpeg" | "audio/mp4" | "audio/ogg" if size <= MAX_SOUND => {
            (mime, "audio")
        }
        "video/mp4" | "video/3gpp" if size <= MAX_SOUND => (mime, "video"),
        // Markdown, source code and JSON are not in the list of types.
        mime if mime.starts_with("text/") || mime == "application/json" => ("text/plain", "document"),
        mime => (mime, "document"),
    }
}

/// A name without control characters and folders.
fn file_name(name: &str) -> String {
    let name: String =
        name.chars().filter(|c| !c.is_control() && !"/\\".contains(*c)).take(MAX_FILE_NAME).collect();
    if name.is_empty() { "file".to_owned() } else { name }
}
