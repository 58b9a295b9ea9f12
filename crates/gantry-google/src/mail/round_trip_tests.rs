//! Compares messages with Python's `email` package, in both directions and in one Python process.
#![allow(clippy::disallowed_methods, reason = "the test starts Python")]

use std::io::Write;
use std::process::{Command, Stdio};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use gantry_testkit::{Random, google::installed, scaled, seed};
use serde_json::{Value, json};

use super::compose::{Attached, Letter};
use super::part::{Content, Part};
use super::{Mailbox, raw};

/// Asks Python to read messages and to write some.
fn python(task: &Value) -> Value {
    let script = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/mail/judge.py");
    let mut child = Command::new(installed("venv-google/bin/python"))
        .arg(script)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let text = task.to_string();
    let writing = std::thread::spawn(move || stdin.write_all(text.as_bytes()));
    let output = child.wait_with_output().unwrap();
    writing.join().unwrap().unwrap();
    assert!(output.status.success());
    serde_json::from_slice(&output.stdout).unwrap()
}

const NAMES: &[&str] = &[
    "Ann",
    "Doe, John",
    "John \"JD\" Doe",
    "Jürgen Müller",
    "日本 太郎",
    "<eve@evil.example>",
    "eve@evil.example, x",
    "a; b: c (d) [e] \\ f",
    "Größe und viel mehr Text, der über eine Zeile hinausgeht, immer weiter und weiter und weiter",
    "\u{1f469}\u{200d}\u{1f680}",
    "'; DROP TABLE",
];
const SUBJECTS: &[&str] = &[
    "Plans",
    "",
    "Grüße aus Köln 日本語",
    "a: b, c; \"d\" <e> (f)",
    "An ASCII subject that is much longer than one line of a header may be, so that it has to be folded somewhere",
    "Ein sehr langer Betreff mit Umlauten äöü und Emoji 👩‍🚀, damit mehrere kodierte Wörter nötig sind, wirklich viele",
    "Bcc: eve@evil.example",
    "100% = sure?",
];
const TEXTS: &[&str] = &[
    "Hello",
    "",
    "Line 1\nLine 2\r\nLine 3\n\n.\n..dots\nFrom here\n--not-a-boundary\n",
    "Grüße, 日本語, Привет 👩‍🚀\n= equals =3D ?=\ttab\n",
    "trailing space \nBcc: eve@evil.example\n\n",
];
const FILES: &[&str] =
    &["a.pdf", "ä ö.txt", "日本語.csv", "semi;colon.bin", "it's \"quoted\".txt", "Bcc: x", "%41.txt"];

fn letter(random: &mut Random) -> Letter {
    let mailbox = |random: &mut Random, number: usize| Mailbox {
        name: (!random.one_in(3)).then(|| (*random.pick(NAMES)).to_owned()),
        address: format!("user.{number}+x@example.org"),
    };
    let list = |random: &mut Random, most: usize| {
        (0..random.below(most + 1)).map(|number| mailbox(random, number)).collect::<Vec<_>>()
    };
    let references =
        (0..random.below(25)).map(|number| format!("id.{number}@mail.example.org")).collect::<Vec<_>>();
    let mut text = (*random.pick(TEXTS)).to_owned();
    if random.one_in(5) {
        text.push_str(&"long wörds ".repeat(200));
    }
    let attachments: Vec<Attached> = (0..random.below(4))
        .map(|_| Attached {
            name: (*random.pick(FILES)).to_owned(),
            mime: (*random.pick(&["application/pdf", "text/plain", "image/png", "message/rfc822"]))
                .to_owned(),
            bytes: (0..random.below(3_000)).map(|_| random.next_u64().to_le_bytes()[0]).collect(),
        })
        .collect();
    Letter {
        from: random.one_in(2).then(|| mailbox(random, 99)),
        to: list(random, 12),
        cc: list(random, 3),
        bcc: list(random, 2),
        subject: (*random.pick(SUBJECTS)).to_owned(),
        text,
        in_reply_to: references.last().cloned(),
        attachments,
        references,
    }
}

fn normal(text: &str) -> String {
    text.replace("\r\n", "\n").trim_end_matches('\n').to_owned()
}

fn pairs(list: &[Mailbox]) -> Value {
    list.iter().map(|one| json!([one.name.clone().unwrap_or_default(), one.address])).collect()
}

#[test]
fn python_reads_what_is_built() {
    let seed = seed();
    let mut random = Random::from_seed(seed);
    let letters: Vec<Letter> = (0..scaled(500, 50)).map(|_| letter(&mut random)).collect();
    let built: Vec<String> =
        letters.iter().map(|letter| STANDARD.encode(letter.build().unwrap().bytes)).collect();
    let answer = python(&json!({"messages": built, "count": 0, "seed": 0}));
    for (number, letter) in letters.iter().enumerate() {
        let read = &answer["read"][number];
        let shown = format!("message {number}: {letter:?}\n{read}");
        for (field, list) in [("to", &letter.to), ("cc", &letter.cc), ("bcc", &letter.bcc)] {
            assert_eq!(read[field], pairs(list), "{field} of {shown}");
        }
        assert_eq!(read["from"], pairs(letter.from.as_slice()), "{shown}");
        assert_eq!(read["subject"], letter.subject, "{shown}");
        let references: Vec<String> = letter.references.iter().map(|id| format!("<{id}>")).collect();
        assert_eq!(read["references"], json!(references), "{shown}");
        assert_eq!(
            read["in_reply_to"],
            letter.in_reply_to.as_ref().map_or(String::new(), |id| format!("<{id}>"))
        );
        let leaves = read["leaves"].as_array().unwrap();
        assert_eq!(normal(leaves[0]["text"].as_str().unwrap()), normal(&letter.text), "{shown}");
        assert_eq!(leaves.len(), 1 + letter.attachments.len(), "{shown}");
        for (leaf, file) in leaves[1..].iter().zip(&letter.attachments) {
            assert_eq!((&leaf["name"], &leaf["attachment"]), (&json!(file.name), &json!(true)), "{shown}");
            if leaf["bytes"].is_string() {
                assert_eq!(leaf["bytes"], STANDARD.encode(&file.bytes), "{shown}");
            }
        }
        assert_eq!(read["defects"], json!([]), "{shown}");
        assert!(read["longest"].as_u64().unwrap() <= 998, "{shown}");
        // No value became a header of its own.
        let known = [
            "bcc",
            "cc",
            "content-transfer-encoding",
            "content-type",
            "date",
            "from",
            "in-reply-to",
            "message-id",
            "mime-version",
            "references",
            "subject",
            "to",
        ];
        let headers: Vec<&str> =
            read["headers"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
        assert!(headers.iter().all(|name| known.contains(name)), "{headers:?} of {shown}");
        let mut once = headers.clone();
        once.dedup();
        assert_eq!(once, headers, "{shown}");
    }
}

fn leaf(part: &Part) -> Value {
    let mut leaf = json!({"mime": part.mime, "name": part.name.clone().unwrap_or_default(), "attachment": part.is_attachment});
    match &part.content {
        Content::Text(text) => leaf["text"] = json!(normal(text)),
        Content::Bytes(bytes) => leaf["bytes"] = json!(STANDARD.encode(bytes)),
        Content::Parts(_) | Content::Stored { .. } => unreachable!("a leaf"),
    }
    leaf
}

#[test]
fn messages_of_python_are_read() {
    let seed = seed();
    let answer = python(&json!({"messages": [], "count": scaled(500, 50), "seed": seed}));
    for (number, written) in answer["written"].as_array().unwrap().iter().enumerate() {
        let bytes = STANDARD.decode(written["raw"].as_str().unwrap()).unwrap();
        let shown = format!("message {number}:\n{}", String::from_utf8_lossy(&bytes));
        let (headers, part) = raw::read(&bytes).unwrap();
        let truth = &written["truth"];
        let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>().join(" ");
        let wanted = gantry_tool::without_hidden(truth["subject"].as_str().unwrap());
        assert_eq!(words(&headers.subject), words(&wanted), "{shown}");
        assert_eq!(pairs(&headers.to), truth["to"], "{shown}");
        assert_eq!(json!(headers.references), truth["references"], "{shown}");
        let leaves: Vec<Value> = part.leaves().into_iter().map(leaf).collect();
        for (found, wanted) in leaves.iter().zip(truth["leaves"].as_array().unwrap()) {
            assert_eq!(found, wanted, "{shown}");
        }
        assert_eq!(leaves.len(), truth["leaves"].as_array().unwrap().len(), "{shown}");
    }
}

/// A subject that another program would decode to other words is not sent.
#[test]
fn subject_that_looks_encoded_is_refused() {
    let to = Mailbox::parse_list("a@b.example").unwrap();
    let letter = Letter { to, subject: "=?utf-8?Q?Your_invoice?=".into(), ..Letter::default() };
    assert!(letter.build().unwrap_err().to_string().contains("subject"));
}
