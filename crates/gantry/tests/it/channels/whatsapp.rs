//! WhatsApp in a real gateway: the owner links an account, approves with a button and gets answers; a status settles a
//! message whose outcome was unknown.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use gantry_model::testing::{Heard, Turn};
use gantry_testkit::chat::whatsapp::{
    APP_SECRET, FakeWhatsApp, Fault, PHONE_NUMBER_ID, TOKEN, VERIFY_TOKEN, message, messages, status,
};
use gantry_testkit::{Gateway, World, eventually};
use serde_json::{Value, json};

use crate::sessions::{Model, call, results};

const PATIENCE: Duration = Duration::from_secs(30);
const ADA: &str = "DE.13491208655302741918";

/// A gateway, and Meta on the other side.
struct Chat {
    fake: FakeWhatsApp,
    world: World,
    up: Gateway,
    // The server runs until the test ends.
    _runtime: tokio::runtime::Runtime,
}

impl Chat {
    fn start(model: &Model, agent: &str) -> Chat {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let fake = runtime.block_on(FakeWhatsApp::start());
        let world = model.world(&format!(
            "{agent}\n[channels.whatsapp.default]\nphoneNumberId = \"{PHONE_NUMBER_ID}\"\ntoken = \"secret:TOKEN\"\n\
             appSecret = \"secret:APP\"\nverifyToken = \"secret:VERIFY\"\napiUrl = \"{}\"",
            fake.api_url()
        ));
        for (name, secret) in [("TOKEN", TOKEN), ("APP", APP_SECRET), ("VERIFY", VERIFY_TOKEN)] {
            let stored = world.run_with_input(&["secrets", "set", name, "--host", "127.0.0.1"], secret);
            assert_eq!(stored.code, 0, "{stored:?}");
        }
        let up = Gateway::start(&world);
        let chat = Chat { fake, world, up, _runtime: runtime };
        eventually("connected", PATIENCE, || {
            chat.world.run(&["channels", "--json"]).json()["accounts"][0]["state"] == "connected"
        });
        chat
    }

    /// Links Ada as the owner.
    fn link(&self) {
        let link = self.world.run(&["channels", "link", "whatsapp", "--json"]).json();
        assert_eq!(self.says("wamid.link", link["code"].as_str().unwrap()), 200);
        self.gets("This account is linked");
    }

    fn request(&self, head: &str, body: &str) -> (u16, String) {
        let address = self.up.url.trim_start_matches("http://");
        let mut stream = TcpStream::connect(address).unwrap();
        let request = format!(
            "{head} HTTP/1.1\r\nHost: {address}\r\nX-Hub-Signature-256: sha256={}\r\nContent-Length: {}\r\n\
             Connection: close\r\n\r\n{body}",
            signature(body),
            body.len()
        );
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
    }

    fn post(&self, body: &Value) -> u16 {
        self.request("POST /v1/channels/whatsapp/default/webhook", &body.to_string()).0
    }

    fn sends(&self, mut said: Value) -> u16 {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
        said["timestamp"] = json!(now.as_secs().to_string());
        self.post(&messages(vec![said]))
    }

    fn says(&self, id: &str, text: &str) -> u16 {
        self.sends(message(id, "text", json!({ "body": text })))
    }

    /// Waits for a message that contains a text.
    fn gets(&self, text: &str) -> Value {
        let find = || self.fake.sent().into_iter().find(|sent| sent.to_string().contains(text));
        eventually(text, PATIENCE, || find().is_some());
        find().unwrap()
    }
}

/// Signs a body with Python, whose `hmac` is independent of the gateway's.
fn signature(body: &str) -> String {
    let script =
        "import hmac,sys; print(hmac.new(sys.argv[1].encode(), sys.argv[2].encode(), 'sha256').hexdigest())";
    let output = std::process::Command::new("python3").args(["-c", script, APP_SECRET, body]).output();
    String::from_utf8(output.unwrap().stdout).unwrap().trim().to_owned()
}

#[test]
fn owner_approves_with_a_button_and_gets_the_answer() {
    let model = Model::deciding(|heard: &Heard| match results(heard) {
        0 => call("Bash", json!({"command": "echo one >> notes"})),
        _ => Turn::text("**done** it"),
    });
    let chat = Chat::start(&model, "autonomy = \"supervised\"");
    let query = format!("hub.mode=subscribe&hub.challenge=42&hub.verify_token={VERIFY_TOKEN}");
    let verified = chat.request(&format!("GET /v1/channels/whatsapp/default/webhook?{query}"), "");
    assert_eq!(verified, (200, "42".to_owned()));
    chat.link();
    for _ in 0..2 {
        assert_eq!(chat.says("wamid.1", "please write"), 200);
    }
    let asked = chat.gets("echo one");
    let action = &asked["interactive"]["action"];
    let choices = action["buttons"].as_array().or_else(|| action["sections"][0]["rows"].as_array()).unwrap();
    let yes = choices[0]["reply"]["id"].as_str().or_else(|| choices[0]["id"].as_str()).unwrap().to_owned();
    let press = |id: &str, person: &str| {
        let content = json!({ "type": "button_reply", "button_reply": { "id": yes, "title": "Allow once" } });
        let mut press = message(id, "interactive", content);
        press["from_user_id"] = json!(person);
        press.as_object_mut().unwrap().remove("from");
        chat.sends(press)
    };
    // A bystander has the handle, and no right.
    assert_eq!(press("wamid.p1", "FR.666"), 200);
    chat.gets("Only the owner can answer this");
    assert!(!chat.world.workspace().join("notes").exists(), "nothing ran yet");
    assert_eq!(press("wamid.p2", ADA), 200);
    chat.gets("Allowed.");
    let answer = chat.gets("*done* it");
    assert_eq!((&answer["recipient"], &answer["text"]["preview_url"]), (&json!(ADA), &json!(false)));
    assert_eq!(std::fs::read_to_string(chat.world.workspace().join("notes")).unwrap(), "one\n");
    assert!(!chat.fake.reads().is_empty(), "the owner saw that the agent works");
    assert_eq!(chat.fake.refused(), Vec::<String>::new());
    model.check();
}

#[test]
fn status_settles_a_message_whose_outcome_was_unknown() {
    let model = Model::deciding(|_: &Heard| Turn::text("the answer"));
    let chat = Chat::start(&model, "");
    chat.link();
    let unknown = || chat.world.run(&["outbox", "list", "--state", "unknown", "--json"]).json();
    chat.fake.fail("messages", Fault::After(502));
    assert_eq!(chat.says("wamid.1", "hello"), 200);
    let sent = chat.gets("the answer");
    eventually("the outcome is unknown", PATIENCE, || unknown()["total"] != 0);
    let key = json!({ "biz_opaque_callback_data": sent["biz_opaque_callback_data"] });
    eventually("it is settled", PATIENCE, || {
        assert_eq!(chat.post(&status("wamid.SENT9", "delivered", key.clone())), 200);
        unknown()["total"] == 0
    });
    let answers = chat.fake.sent().iter().filter(|sent| sent.to_string().contains("the answer")).count();
    assert_eq!(answers, 1, "it is not sent again");
    model.check();
}
