//! The web page: who gets a session, what a session needs, and what no other page can do with it.

use std::time::Duration;

use futures_util::{SinkExt, StreamExt};
use gantry_testkit::peers::runtime;
use gantry_testkit::{Gateway, Response, SOON, Terminal, World, eventually};
use serde_json::{Value, json};
use tokio_websockets::{ClientBuilder, Message};

const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; \
    connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; \
    require-trusted-types-for 'script'; trusted-types 'none'";

/// A browser that is logged in.
struct Browser {
    cookie: String,
    key: String,
    session: String,
}

fn code(world: &World) -> String {
    let ran = world.run(&["page", "--json"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    ran.json()["code"].as_str().unwrap().to_owned()
}

fn login(up: &Gateway, code: &str, headers: &[(&str, &str)]) -> Response {
    let usual = [("Authorization", ""), ("Origin", &*up.url), ("Content-Type", "application/json")];
    let headers = [&usual[..], headers].concat();
    up.ask("POST", "/login", &headers, json!({"code": code}).to_string().as_bytes())
}

fn logged_in(world: &World, up: &Gateway) -> Browser {
    let answer = login(up, &code(world), &[("Sec-Fetch-Site", "same-origin")]);
    assert_eq!(answer.status, 200, "{}", answer.text());
    let set = answer.header("set-cookie").unwrap().to_owned();
    let name = format!("gantry-{}=", up.address.port());
    for part in [&*name, "; HttpOnly", "; SameSite=Strict", "; Path=/"] {
        assert!(set.contains(part), "{part}: {set}");
    }
    assert!(!set.contains("Secure"), "a browser would not send it over plain HTTP: {set}");
    assert_eq!(answer.header("cache-control"), Some("no-store"));
    let body = answer.json();
    Browser {
        cookie: set.split(';').next().unwrap().to_owned(),
        key: body["key"].as_str().unwrap().to_owned(),
        session: body["session"].as_str().unwrap().to_owned(),
    }
}

/// A request with these headers and no token.
fn nodes(up: &Gateway, headers: &[(&str, &str)]) -> Response {
    up.ask("GET", "/v1/nodes", &[&[("Authorization", "")][..], headers].concat(), b"")
}

/// A socket whose upgrade has these headers, and the answer to `connect`.
struct Socket(tokio_websockets::WebSocketStream<tokio::net::TcpStream>);

impl Socket {
    async fn open(up: &Gateway, headers: &[(&str, &str)], key: Option<&str>) -> (Socket, Value) {
        let stream = tokio::net::TcpStream::connect(up.address).await.unwrap();
        let uri = format!("ws://{}/ws", up.address).parse().unwrap();
        let mut builder = ClientBuilder::from_uri(uri);
        for (name, value) in headers {
            let (name, value) = (name.parse().unwrap(), value.parse().unwrap());
            builder = builder.add_header(name, value).unwrap();
        }
        let mut socket = Socket(builder.connect_on(stream).await.unwrap().0);
        let mut params = json!({"protocol": {"min": 1, "max": 2}, "role": "client", "id": "page",
            "version": "1", "platform": "web"});
        if let Some(key) = key {
            params["pageKey"] = json!(key);
        }
        let answer = socket.ask(json!({"type": "req", "id": 1, "method": "connect", "params": params})).await;
        (socket, answer)
    }

    async fn ask(&mut self, request: Value) -> Value {
        self.0.send(Message::text(request.to_string())).await.unwrap();
        let answered = async {
            loop {
                let message = self.0.next().await.unwrap().unwrap();
                let Some(text) = message.as_text() else { continue };
                let frame: Value = serde_json::from_str(text).unwrap();
                if frame["type"] == "res" {
                    return frame;
                }
            }
        };
        tokio::time::timeout(SOON, answered).await.unwrap()
    }

    /// The reason in the close frame.
    async fn closed(&mut self) -> Value {
        let closed = async {
            while let Some(Ok(message)) = self.0.next().await {
                if let Some((_, reason)) = message.as_close() {
                    return serde_json::from_str(reason).unwrap();
                }
            }
            Value::Null
        };
        tokio::time::timeout(SOON, closed).await.unwrap()
    }
}

#[test]
fn page_has_strict_headers_on_every_answer() {
    let world = World::new();
    let up = Gateway::start(&world);
    let anonymous = |path: &str| up.ask("GET", path, &[("Authorization", "")], b"");
    let index = anonymous("/");
    let text = index.text();
    let script = text.split('"').find(|part| part.starts_with("/ui/") && part.ends_with(".js")).unwrap();
    for (path, status, caching) in [
        ("/", 200, "no-cache"),
        ("/chat/agent:main:main", 200, "no-cache"),
        ("/settings", 200, "no-cache"),
        (script, 200, "public, max-age=31536000, immutable"),
        ("/ui/0000000000000000/app.js", 404, "no-store"),
    ] {
        let answer = anonymous(path);
        assert_eq!((answer.status, answer.header("cache-control")), (status, Some(caching)), "{path}");
        for (name, value) in [
            ("content-security-policy", POLICY),
            ("x-content-type-options", "nosniff"),
            ("referrer-policy", "no-referrer"),
            ("cross-origin-opener-policy", "same-origin"),
            ("cross-origin-resource-policy", "same-origin"),
        ] {
            assert_eq!(answer.header(name), Some(value), "{path}");
        }
        let permissions = answer.header("permissions-policy").unwrap();
        assert!(permissions.contains("camera=()") && permissions.contains("clipboard-write=(self)"));
    }
    // Files are compressed for those who accept it, and not sent again to those who have them.
    let tag = anonymous(script).header("etag").unwrap().to_owned();
    let again = up.ask("GET", script, &[("Authorization", ""), ("If-None-Match", &tag)], b"");
    assert_eq!((again.status, again.body.len()), (304, 0));
    // A path outside of the page's own needs a token as before.
    assert_eq!(anonymous("/ui/..%2f..%2fetc%2fpasswd").status, 401);
    assert_eq!(anonymous("/unknown").status, 401);
}

#[test]
fn code_works_once_and_only_for_the_own_page() {
    let world = World::new();
    let up = Gateway::start(&world);
    let one = code(&world);
    // What another page sends is refused and does not use the code up.
    let foreign = [
        ("Origin", "http://evil.example"),
        ("Origin", "http://127.0.0.1:1"),
        ("Origin", "null"),
        ("Origin", ""),
        ("Sec-Fetch-Site", "cross-site"),
        ("Sec-Fetch-Site", "same-site"),
        ("Host", "evil.example"),
    ];
    for header in foreign {
        let usual = [("Authorization", ""), ("Content-Type", "application/json")];
        let mut headers = [&usual[..], &[header]].concat();
        if header.0 != "Origin" {
            headers.push(("Origin", &up.url));
        }
        let body = json!({"code": one}).to_string();
        let refused = up.ask("POST", "/login", &headers, body.as_bytes());
        assert_eq!(refused.status, 403, "{header:?}: {}", refused.text());
    }
    // A form of another page cannot send JSON.
    let form = login(&up, &one, &[]);
    assert_eq!(form.status, 200, "the code is still good: {}", form.text());
    let again = login(&up, &one, &[]);
    assert_eq!((again.status, again.code().as_str()), (401, "unauthorized"));
    assert_eq!(again.header("set-cookie"), None);
    for wrong in ["", "x", &"x".repeat(900)] {
        assert_eq!(login(&up, wrong, &[]).status, 401, "{wrong}");
    }
    let plain = [("Authorization", ""), ("Origin", &*up.url), ("Content-Type", "text/plain")];
    let body = json!({"code": code(&world)}).to_string();
    assert_eq!(up.ask("POST", "/login", &plain, body.as_bytes()).status, 400);
}

#[test]
fn guesses_are_limited() {
    let world = World::new();
    let up = Gateway::start(&world);
    let statuses: Vec<u16> = (0..22).map(|_| login(&up, "guess", &[]).status).collect();
    assert_eq!((statuses[0], statuses[21]), (401, 429), "{statuses:?}");
}

#[test]
fn cookie_and_key_count_only_together_and_only_for_the_own_page() {
    let world = World::new();
    let up = Gateway::start(&world);
    let Browser { cookie, key, .. } = logged_in(&world, &up);
    let other = logged_in(&world, &up);
    let own = ("Sec-Fetch-Site", "same-origin");
    let with = |cookie: &str, key: &str, more: &[(&str, &str)]| {
        nodes(&up, &[&[("Cookie", cookie), ("Gantry-Page-Key", key)][..], more].concat())
    };
    let answer = with(&cookie, &key, &[own]);
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(answer.header("cache-control"), Some("no-store"));
    assert_eq!(with(&cookie, &key, &[("Origin", &up.url)]).status, 200, "a browser without Sec-Fetch-Site");
    // A page of another port has the cookie, a script that reads the storage has the key.
    assert_eq!(nodes(&up, &[("Cookie", &cookie), own]).status, 401, "the cookie alone");
    assert_eq!(nodes(&up, &[("Gantry-Page-Key", &key), own]).status, 401, "the key alone");
    assert_eq!(with(&cookie, &other.key, &[own]).status, 401, "the key of another session");
    assert_eq!(with(&other.cookie, &key, &[own]).status, 401, "the cookie of another session");
    assert_eq!(with(&cookie.replace("gantry-", "gantry-1"), &key, &[own]).status, 401, "of another port");
    for site in ["same-site", "cross-site", "none"] {
        assert_eq!(with(&cookie, &key, &[("Sec-Fetch-Site", site)]).status, 401, "{site}");
    }
    assert_eq!(with(&cookie, &key, &[]).status, 401, "neither header");
    for header in
        [("Origin", "http://127.0.0.1:1"), ("Origin", "http://evil.example"), ("Host", "evil.example")]
    {
        assert_eq!(with(&cookie, &key, &[own, header]).status, 403, "{header:?}");
    }
    // Another server on this host may add a cookie of the same name; the right one is found.
    let tossed = format!("gantry-{}=gps_x; {cookie}", up.address.port());
    assert_eq!(with(&tossed, &key, &[own]).status, 200);
}

#[test]
fn socket_needs_the_cookie_of_its_upgrade_and_the_key_in_connect() {
    let world = World::new();
    let up = Gateway::start(&world);
    let Browser { cookie, key, session } = logged_in(&world, &up);
    let origin = ("Origin", &*up.url);
    runtime().block_on(async {
        let code = |answer: &Value| answer["error"]["code"].as_str().map(str::to_owned);
        for (headers, sent) in [
            (vec![origin, ("Cookie", &*cookie)], None),
            (vec![origin], Some(&*key)),
            (vec![origin, ("Cookie", &cookie)], Some("gpk_wrong")),
            (vec![("Cookie", &cookie)], Some(&key)),
            (vec![origin, ("Cookie", &cookie), ("Sec-Fetch-Site", "same-site")], Some(&key)),
        ] {
            let (_, refused) = Socket::open(&up, &headers, sent).await;
            assert_eq!(code(&refused).as_deref(), Some("unauthorized"), "{headers:?} {sent:?}: {refused}");
        }
        let (mut socket, hello) = Socket::open(&up, &[origin, ("Cookie", &cookie)], Some(&key)).await;
        assert_eq!(hello["ok"], true, "{hello}");
        assert!(hello["result"]["server"]["version"].is_string(), "{hello}");
        let listed = json!({"type": "req", "id": 2, "method": "page.sessions"});
        let listed = socket.ask(listed).await;
        let own = &listed["result"]["sessions"][0];
        assert_eq!((&own["id"], &own["current"]), (&json!(session), &json!(true)), "{listed}");
        // The page acts as the operator.
        let tokens = socket.ask(json!({"type": "req", "id": 3, "method": "tokens.list"})).await;
        assert_eq!(tokens["ok"], true, "{tokens}");
    });
}

#[test]
fn revoked_session_ends_at_once_with_its_sockets_and_calls() {
    let world = World::new();
    let up = Gateway::start(&world);
    let browser = logged_in(&world, &up);
    let kept = logged_in(&world, &up);
    let both = |browser: &Browser| {
        let headers = [
            ("Cookie", &*browser.cookie),
            ("Gantry-Page-Key", &*browser.key),
            ("Sec-Fetch-Site", "same-origin"),
        ];
        nodes(&up, &headers).status
    };
    assert_eq!((both(&browser), both(&kept)), (200, 200));
    runtime().block_on(async {
        let headers = [("Origin", &*up.url), ("Cookie", &browser.cookie)];
        let (mut socket, hello) = Socket::open(&up, &headers, Some(&browser.key)).await;
        assert_eq!(hello["ok"], true, "{hello}");
        let call = json!({"type": "req", "id": 2, "method": "tool.call",
            "params": {"tool": "Bash", "input": {"command": "touch started; sleep 300"}}});
        socket.0.send(Message::text(call.to_string())).await.unwrap();
        eventually("the command runs", SOON, || world.workspace().join("started").exists());
        let listed = world.run(&["page", "--list", "--json"]).json();
        assert_eq!(listed.as_array().unwrap().len(), 2, "{listed}");
        let ran = world.run(&["page", "--revoke", &browser.session[..8]]);
        assert_eq!(ran.code, 0, "{ran:?}");
        assert_eq!(socket.closed().await["code"], "page_session_ended");
    });
    assert_eq!((both(&browser), both(&kept)), (401, 200), "the other browser stays");
    eventually("the call has ended", Duration::from_secs(20), || {
        let log = world.run(&["audit", "--tool", "Bash", "--json"]).json();
        log.as_array().unwrap().iter().any(|line| line["phase"] == "end" && line["status"] != "success")
    });
    assert_eq!(world.run(&["page", "--revoke", "all"]).code, 0);
    assert_eq!(both(&kept), 401);
    let none = world.run(&["page", "--revoke", "nonsense"]);
    assert!(none.code != 0 && none.stderr.contains("gantry page --list"), "{none:?}");
}

#[test]
fn session_survives_a_restart_and_a_code_does_not() {
    let world = World::new();
    let up = Gateway::start(&world);
    let browser = logged_in(&world, &up);
    let unused = code(&world);
    let listen = up.address.to_string();
    drop(up);
    let up = Gateway::start_at(&world, &listen);
    let headers =
        [("Cookie", &*browser.cookie), ("Gantry-Page-Key", &*browser.key), ("Sec-Fetch-Site", "same-origin")];
    assert_eq!(nodes(&up, &headers).status, 200);
    assert_eq!(login(&up, &unused, &[]).status, 401);
}

#[test]
fn link_is_shown_to_a_terminal_and_nowhere_else() {
    let world = World::new();
    let log = world.workspace().join("stderr.txt");
    let up = Gateway::start_logged(&world, &log, &[]);
    let one = code(&world);
    assert_eq!(login(&up, &one, &[]).status, 200);
    drop(up);
    // Standard output is a file, without --json.
    let out = world.workspace().join("stdout.txt");
    let mut command = world.command(&["up", "--listen", "127.0.0.1:0"]);
    command.stdout(std::fs::File::create(&out).unwrap());
    let mut child = command.stdin(std::process::Stdio::null()).spawn().unwrap();
    let shown = || std::fs::read_to_string(&out).unwrap_or_default();
    eventually("it is up", SOON, || shown().contains("Press Ctrl-C"));
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(!shown().contains("login"), "{}", shown());
    let mut terminal = Terminal::open(&world, "up --listen 127.0.0.1:0");
    eventually("the link is shown", SOON, || terminal.screen().contains("/#login="));
    terminal.type_keys("\u{3}");
    let screen = terminal.screen();
    let on_terminal = screen.split("#login=").nth(1).unwrap().split_whitespace().next().unwrap();
    // No code is in a log or a file of the data directory.
    let mut files = vec![world.data()];
    let mut read = 0;
    while let Some(path) = files.pop() {
        if path.is_dir() {
            files.extend(std::fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        } else if let Ok(bytes) = std::fs::read(&path) {
            read += 1;
            let text = String::from_utf8_lossy(&bytes);
            assert!(!text.contains(&one) && !text.contains(on_terminal), "{}", path.display());
        }
    }
    assert!(read > 3 && !std::fs::read_to_string(&log).unwrap().contains(&one));
}
