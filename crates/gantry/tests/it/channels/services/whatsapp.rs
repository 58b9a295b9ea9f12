//! A phone number at WhatsApp, by signed webhooks.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use gantry_testkit::Gateway;
use gantry_testkit::chat::whatsapp::{
    APP_SECRET, FakeWhatsApp, PHONE_NUMBER_ID, TOKEN, VERIFY_TOKEN, change, message,
};
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use super::telegram::jiff_now;
use super::{Got, Person, Service};

pub(crate) struct WhatsAppService {
    _runtime: Runtime,
    pub(crate) fake: FakeWhatsApp,
}

impl WhatsAppService {
    pub(crate) fn start() -> WhatsAppService {
        let runtime = Runtime::new().unwrap();
        let fake = runtime.block_on(FakeWhatsApp::start());
        WhatsAppService { _runtime: runtime, fake }
    }
}

pub(crate) fn id_of(person: Person) -> &'static str {
    match person {
        Person::Ann => "DE.13491208655302741918",
        Person::Eve => "FR.66666666666666666666",
    }
}

/// Signs a body with Python, whose `hmac` is independent of the gateway's.
fn signature(body: &str) -> String {
    let script = "import hmac,sys; print(hmac.new(sys.argv[1].encode(), sys.stdin.buffer.read(), 'sha256').hexdigest())";
    let mut command = std::process::Command::new("python3");
    command
        .args(["-c", script, APP_SECRET])
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(body.as_bytes()).unwrap();
    String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap().trim().to_owned()
}

/// Posts a request as Meta does, signed unless a signature is given. Returns the status.
pub(crate) fn post(address: &str, body: &str, given: Option<&str>) -> Option<u16> {
    let mut stream = TcpStream::connect(address).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(10))).ok()?;
    let signature = given.map_or_else(|| format!("sha256={}", signature(body)), str::to_owned);
    let request = format!(
        "POST /v1/channels/whatsapp/default/webhook HTTP/1.1\r\nHost: {address}\r\nX-Hub-Signature-256: {signature}\r\n\
         Content-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes()).ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    answer.split(' ').nth(1)?.parse().ok()
}

/// A request with one message of a person.
pub(crate) fn webhook(person: Person, mut said: Value) -> Value {
    let id = id_of(person);
    said["from_user_id"] = json!(id);
    said["timestamp"] = json!(jiff_now().to_string());
    said.as_object_mut().unwrap().remove("from");
    let contact = json!({ "profile": { "name": format!("{person:?}") }, "user_id": id });
    change(json!({ "contacts": [contact], "messages": [said] }))
}

impl Service for WhatsAppService {
    fn id(&self) -> &'static str {
        "whatsapp:default"
    }

    fn config(&self) -> String {
        format!(
            "[channels.whatsapp.default]\nphoneNumberId = \"{PHONE_NUMBER_ID}\"\ntoken = \"secret:WA_TOKEN\"\n\
             appSecret = \"secret:WA_APP\"\nverifyToken = \"secret:WA_VERIFY\"\napiUrl = \"{}\"\n",
            self.fake.api_url()
        )
    }

    fn secrets(&self) -> Vec<(&'static str, String)> {
        [("WA_TOKEN", TOKEN), ("WA_APP", APP_SECRET), ("WA_VERIFY", VERIFY_TOKEN)]
            .map(|(name, value)| (name, value.to_owned()))
            .into()
    }

    /// Meta repeats a request until it is confirmed.
    fn says(&self, up: &Gateway, person: Person, number: u64, text: &str) {
        let said = message(&format!("wamid.{person:?}.{number}"), "text", json!({ "body": text }));
        let body = webhook(person, said).to_string();
        let address = up.url.trim_start_matches("http://");
        let taken = (0..50).any(|_| {
            post(address, &body, None) == Some(200) || {
                std::thread::sleep(Duration::from_millis(100));
                false
            }
        });
        assert!(taken, "the message was not taken");
    }

    fn got(&self, person: Person) -> Vec<Got> {
        let sent = self.fake.sent().into_iter().filter(|sent| sent["recipient"] == id_of(person));
        sent.map(|sent| {
            let action = &sent["interactive"]["action"];
            let buttons = action["buttons"].as_array().or_else(|| action["sections"][0]["rows"].as_array());
            let button = |choice: &Value| {
                choice["reply"]["id"].as_str().or_else(|| choice["id"].as_str()).map(str::to_owned)
            };
            let text = sent["text"]["body"].as_str().or_else(|| sent["interactive"]["body"]["text"].as_str());
            Got {
                text: text.unwrap_or_default().to_owned(),
                id: String::new(),
                buttons: buttons.into_iter().flatten().filter_map(button).collect(),
            }
        })
        .collect()
    }

    fn presses(&self, up: &Gateway, person: Person, _message: &Got, button: &str) {
        let content = json!({ "type": "button_reply", "button_reply": { "id": button, "title": "x" } });
        let press =
            message(&format!("wamid.press.{person:?}.{}", self.fake.sent().len()), "interactive", content);
        let body = webhook(person, press).to_string();
        assert_eq!(post(up.url.trim_start_matches("http://"), &body, None), Some(200));
    }
}
