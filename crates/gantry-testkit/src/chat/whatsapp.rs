//! A fake of the WhatsApp Cloud API: the Graph API of one phone number. It accepts what Meta accepts, and refuses the rest
//! with Meta's error codes. It also makes the bodies of webhook requests.

mod check;

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard};

use serde_json::{Value, json};

use super::exchange::{Answer, Call, Reply, serve};

pub const TOKEN: &str = "EAAfakefakefakefakefakeSECRET";
pub const APP_SECRET: &str = "0123456789abcdefSECRET";
pub const VERIFY_TOKEN: &str = "verify-SECRET";
pub const PHONE_NUMBER_ID: &str = "106540352242922";
/// The proof that a program knows the app secret: the HMAC of the token.
const APP_SECRET_PROOF_FIELD: &str = "appsecret_proof";
const VERSION: &str = "/v26.0";

/// What goes wrong with the next call of a path's last segment, such as `messages`. Read receipts are `read`.
#[derive(Debug, Clone)]
pub enum Fault {
    /// A status and an error code, and nothing happens.
    Refused(u16, u64),
    /// Status 429 with this many seconds.
    Limited(u64),
    /// A status without a body of the API, and nothing happens.
    Before(u16),
    /// A status, after the call had its effect.
    After(u16),
    /// The connection ends, after the call had its effect.
    Cut,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Upload {
    pub id: String,
    pub name: String,
    pub mime: String,
    pub bytes: Vec<u8>,
}

#[derive(Default)]
struct World {
    sent: Vec<Value>,
    reads: Vec<Value>,
    uploads: Vec<Upload>,
    /// Files of people: type, content, and the address if it is not the usual one.
    files: BTreeMap<String, (String, Vec<u8>, Option<String>)>,
    redirects: BTreeMap<String, String>,
    /// Sizes that are not true.
    sizes: BTreeMap<String, usize>,
    faults: VecDeque<(String, Fault)>,
    /// Why requests were refused.
    refused: Vec<String>,
    webhook: Option<String>,
    proof: Option<String>,
    next: u64,
}

#[derive(Clone)]
pub struct FakeWhatsApp {
    pub address: SocketAddr,
    world: Arc<Mutex<World>>,
}

impl FakeWhatsApp {
    pub async fn start() -> FakeWhatsApp {
        let world: Arc<Mutex<World>> = Arc::default();
        let shared = Arc::clone(&world);
        let address = serve(move |call| {
            let reply = handle(&mut shared.lock().unwrap(), &call);
            std::future::ready(reply)
        })
        .await;
        FakeWhatsApp { address, world }
    }

    fn world(&self) -> MutexGuard<'_, World> {
        self.world.lock().unwrap()
    }

    pub fn api_url(&self) -> String {
        format!("http://{}{VERSION}", self.address)
    }

    /// The messages that were accepted.
    pub fn sent(&self) -> Vec<Value> {
        self.world().sent.clone()
    }

    /// The read receipts.
    pub fn reads(&self) -> Vec<Value> {
        self.world().reads.clone()
    }

    pub fn uploads(&self) -> Vec<Upload> {
        self.world().uploads.clone()
    }

    pub fn refused(&self) -> Vec<String> {
        self.world().refused.clone()
    }

    pub fn fail(&self, path: &str, fault: Fault) {
        self.world().faults.push_back((path.to_owned(), fault));
    }

    /// Sets the callback URL of the app.
    pub fn set_webhook(&self, url: Option<&str>) {
        self.world().webhook = url.map(str::to_owned);
    }

    /// Sets the proof of the app secret that is accepted.
    pub fn set_proof(&self, proof: &str) {
        self.world().proof = Some(proof.to_owned());
    }

    /// Adds a file of a person. Its address is on this server unless `url` is given.
    pub fn add_file(&self, id: &str, mime: &str, bytes: &[u8], url: Option<&str>) {
        let file = (mime.to_owned(), bytes.to_vec(), url.map(str::to_owned));
        self.world().files.insert(id.to_owned(), file);
    }

    /// Reports another size of a file than it has.
    pub fn report_size(&self, id: &str, size: usize) {
        self.world().sizes.insert(id.to_owned(), size);
    }

    /// Answers a download with a redirect.
    pub fn redirect(&self, id: &str, to: &str) {
        self.world().redirects.insert(id.to_owned(), to.to_owned());
    }
}

/// A webhook request with messages of Ada, whose id is `DE.13491208655302741918`.
pub fn messages(messages: Vec<Value>) -> Value {
    let contact = json!({ "profile": { "name": "Ada" }, "wa_id": "491701234567", "user_id": "DE.13491208655302741918" });
    change(json!({ "contacts": [contact], "messages": messages }))
}

/// A message of Ada.
pub fn message(id: &str, kind: &str, content: Value) -> Value {
    json!({
        "from": "491701234567", "from_user_id": "DE.13491208655302741918", "id": id, "timestamp": "1700000000",
        "type": kind, kind: content,
    })
}

/// A webhook request with a status of a message to Ada.
pub fn status(id: &str, status: &str, fields: Value) -> Value {
    let contact = json!({ "profile": { "name": "Ada" }, "wa_id": "491701234567", "user_id": "DE.13491208655302741918" });
    let mut value = json!({
        "id": id, "status": status, "timestamp": "1700000001", "recipient_id": "491701234567",
        "recipient_user_id": "DE.13491208655302741918",
    });
    for (name, field) in fields.as_object().cloned().unwrap_or_default() {
        value[name] = field;
    }
    change(json!({ "contacts": [contact], "statuses": [value] }))
}

/// A webhook request with one change of the field `messages`.
pub fn change(mut value: Value) -> Value {
    value["messaging_product"] = json!("whatsapp");
    value["metadata"] = json!({ "display_phone_number": "15550001111", "phone_number_id": PHONE_NUMBER_ID });
    json!({
        "object": "whatsapp_business_account",
        "entry": [{ "id": "102290129340398", "changes": [{ "field": "messages", "value": value }] }],
    })
}

fn handle(world: &mut World, call: &Call) -> Reply {
    let path = call.path.strip_prefix(VERSION).unwrap_or(&call.path);
    let segments: Vec<&str> = path.trim_start_matches('/').split('/').collect();
    let body: Value = serde_json::from_slice(&call.body).unwrap_or_default();
    // A read receipt goes to the path of messages.
    let last = if body["status"] == "read" { "read" } else { segments.last().copied().unwrap_or_default() };
    let at = world.faults.iter().position(|(path, _)| path == last);
    let fault = at.and_then(|at| world.faults.remove(at)).map(|(_, fault)| fault);
    match &fault {
        Some(Fault::Refused(status, code)) => return Reply::Answer(refusal(*status, *code, "scripted")),
        Some(Fault::Limited(seconds)) => {
            let answer = refusal(429, 80_007, "Rate limit issues");
            return Reply::Answer(answer.with("Retry-After", &seconds.to_string()));
        }
        Some(Fault::Before(status)) => {
            return Reply::Answer(Answer::bytes(*status, "text/html", b"<html>".to_vec()));
        }
        Some(Fault::After(_) | Fault::Cut) | None => {}
    }
    let bearer = format!("Bearer {TOKEN}");
    let answer = match call.header("authorization") == Some(&bearer) {
        true => effect(world, call, &segments, body),
        false => Err((401, 190, "Invalid OAuth access token".to_owned())),
    };
    let answer = match answer {
        Ok(answer) => answer,
        Err((status, code, why)) => {
            world.refused.push(why.clone());
            refusal(status, code, &why)
        }
    };
    match fault {
        Some(Fault::After(status)) => Reply::Answer(Answer::bytes(status, "text/html", b"<html>".to_vec())),
        Some(Fault::Cut) => Reply::Cut,
        _ => Reply::Answer(answer),
    }
}

type Refusal = (u16, u64, String);

fn effect(world: &mut World, call: &Call, segments: &[&str], body: Value) -> Result<Answer, Refusal> {
    let ok = |body: Value| Ok(Answer::json(200, &body));
    let query =
        |name: &str| call.query.iter().find(|(field, _)| field == name).map(|(_, value)| value.as_str());
    match (call.method.as_str(), segments) {
        ("GET", [PHONE_NUMBER_ID]) => {
            if query(APP_SECRET_PROOF_FIELD).is_some_and(|proof| world.proof.as_deref() != Some(proof)) {
                return Err((400, 100, "Invalid appsecret_proof provided in the API argument".to_owned()));
            }
            let mut number = json!({
                "id": PHONE_NUMBER_ID, "verified_name": "Gantry", "display_phone_number": "+1 555-000-1111",
                "platform_type": "CLOUD_API", "quality_rating": "GREEN",
                "code_verification_status": "VERIFIED", "throughput": { "level": "STANDARD" },
            });
            if let Some(webhook) = &world.webhook {
                number["webhook_configuration"] = json!({ "application": webhook });
            }
            ok(number)
        }
        ("POST", [PHONE_NUMBER_ID, "messages"]) => {
            check::message(&body, &world.uploads).map_err(|why| (400, 131_009, why))?;
            if body["status"] == "read" {
                world.reads.push(body);
                return ok(json!({ "success": true }));
            }
            world.next += 1;
            let id = format!("wamid.SENT{}", world.next);
            let receiver = body["recipient"].as_str().or_else(|| body["to"].as_str()).unwrap_or_default();
            let contact =
                json!({ "input": receiver, "wa_id": "491701234567", "user_id": "DE.13491208655302741918" });
            world.sent.push(body);
            ok(json!({ "messaging_product": "whatsapp", "contacts": [contact], "messages": [{ "id": id }] }))
        }
        ("POST", [PHONE_NUMBER_ID, "media"]) => {
            world.next += 1;
            let upload = check::upload(&call.parts(), world.next).map_err(|why| (400, 131_053, why))?;
            let id = upload.id.clone();
            world.uploads.push(upload);
            ok(json!({ "id": id }))
        }
        ("GET", ["download", id]) => match (world.redirects.get(*id), world.files.get(*id)) {
            (Some(to), _) => Ok(Answer::bytes(302, "text/plain", Vec::new()).with("Location", to)),
            (None, Some((mime, bytes, _))) => Ok(Answer::bytes(200, mime, bytes.clone())),
            (None, None) => Err((404, 100, "unknown file".to_owned())),
        },
        ("GET", [id]) => {
            let Some((mime, bytes, url)) = world.files.get(*id) else {
                return Err((400, 100, format!("Object with ID '{id}' does not exist")));
            };
            let host = call.header("host").unwrap_or_default();
            ok(json!({
                "messaging_product": "whatsapp", "id": id, "mime_type": mime, "sha256": "0", "file_size": world.sizes.get(*id).copied().unwrap_or(bytes.len()),
                "url": url.clone().unwrap_or_else(|| format!("http://{host}/download/{id}")),
            }))
        }
        _ => Err((400, 100, format!("Unsupported {} request: {}", call.method, call.path))),
    }
}

fn refusal(status: u16, code: u64, why: &str) -> Answer {
    let error = json!({
        "message": format!("(#{code}) {why}"), "type": "OAuthException", "code": code, "fbtrace_id": "A0",
        "error_data": { "messaging_product": "whatsapp", "details": why },
    });
    Answer::json(status, &json!({ "error": error }))
}
