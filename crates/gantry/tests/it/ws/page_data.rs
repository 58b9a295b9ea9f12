//! The methods that the web page and other clients of people use, against the real binary.

use gantry_testkit::peers::{Client, runtime};
use gantry_testkit::{Gateway, SOON, World, eventually};
use serde_json::{Value, json};

fn with_client(test: impl AsyncFnOnce(&World, &Gateway, &Client)) {
    let world = World::new();
    let up = Gateway::start(&world);
    runtime().block_on(async {
        let client = Client::operator(&up).await;
        test(&world, &up, &client).await;
    });
}

#[test]
fn uploaded_file_continues_after_a_restart_and_comes_back() {
    let world = World::new();
    let up = Gateway::start(&world);
    let listen = up.address.to_string();
    let bytes: Vec<u8> = (0..300_000_u32).map(|n| (n % 251) as u8).collect();
    let begin = json!({"path": "inbox/photo.bin", "size": bytes.len()});
    let put = |up: &Gateway, id: &str, offset: usize, piece: &[u8]| {
        up.ask("PUT", &format!("/v1/uploads/{id}"), &[("Gantry-Offset", &offset.to_string())], piece)
    };
    let id = runtime().block_on(async {
        let client = Client::operator(&up).await;
        let begun = client.ask("uploads.begin", begin.clone()).await.unwrap();
        assert_eq!(begun["have"], 0);
        let id = begun["upload"].as_str().unwrap().to_owned();
        let early = client.ask("uploads.finish", json!({"upload": id})).await.unwrap_err();
        assert!(early.message.contains("0 of 300000"), "{early:?}");
        id
    });
    let first = put(&up, &id, 0, &bytes[..100_000]);
    assert_eq!((first.status, &first.json()["have"]), (200, &json!(100_000)), "{}", first.text());
    assert_eq!(put(&up, &id, 200_000, &bytes[200_000..]).status, 409, "a gap");
    assert_eq!(put(&up, &id, 250_000, &bytes[..100_000]).status, 400, "beyond the end");
    assert_eq!(put(&up, "upload-unknown", 0, b"x").status, 404);
    let token = up.client_token(&world, "other", &[]);
    let bearer = format!("Bearer {token}");
    let headers = [("Authorization", &*bearer), ("Gantry-Offset", "0")];
    assert_eq!(up.ask("PUT", &format!("/v1/uploads/{id}"), &headers, b"x").status, 403);
    drop(up);
    let up = Gateway::start_at(&world, &listen);
    let link = runtime().block_on(async {
        let client = Client::operator(&up).await;
        let mut again = begin.clone();
        again["upload"] = json!(id);
        let begun = client.ask("uploads.begin", again).await.unwrap();
        assert_eq!(begun["have"], 100_000, "what had arrived is still there");
        assert_eq!(put(&up, &id, 100_000, &bytes[100_000..]).status, 200);
        let done = client.ask("uploads.finish", json!({"upload": id})).await.unwrap();
        assert_eq!((&done["path"], &done["size"]), (&json!("gsv:inbox/photo.bin"), &json!(bytes.len())));
        for bad in ["../x", "", "a//b"] {
            let refused = client.ask("uploads.begin", json!({"path": bad, "size": 1})).await;
            assert!(refused.is_err(), "{bad}");
        }
        let missing = client.ask("downloads.link", json!({"path": "inbox/none"})).await.unwrap_err();
        assert!(missing.message.contains("inbox/none"), "{missing:?}");
        client.ask("downloads.link", json!({"path": "gsv:inbox/photo.bin", "offset": 5})).await.unwrap()
    });
    let url = link["url"].as_str().unwrap();
    let anonymous = || up.ask("GET", url, &[("Authorization", "")], b"");
    let got = anonymous();
    assert_eq!((got.status, &got.body[..]), (200, &bytes[5..]));
    assert!(got.header("content-disposition").unwrap().starts_with("attachment;"));
    assert_eq!(got.header("x-content-type-options"), Some("nosniff"));
    assert!(got.header("content-security-policy").unwrap().starts_with("sandbox"));
    assert_eq!(anonymous().status, 404, "a link works once");
    let log = world.run(&["audit", "--limit", "100", "--json"]).json();
    let ended = |tool: &str| {
        let lines = log.as_array().unwrap().iter();
        lines.filter(|line| line["tool"] == tool && line["phase"] == "end").count()
    };
    assert!(ended("gsv__WriteFile") >= 1 && ended("gsv__ReadFile") >= 1, "{log}");
}

#[test]
fn configuration_is_checked_before_it_is_saved_and_lost_edits_are_refused() {
    with_client(async |world, _, client| {
        let shown = client.ask("config.get", json!({})).await.unwrap();
        let hash = shown["hash"].as_str().unwrap();
        let schema = client.ask("config.schema", json!({})).await.unwrap();
        assert!(schema["schema"]["properties"]["shell"].is_object());
        let wrong = json!({"key": "agents.helper.autonomy", "value": "wild", "hash": hash});
        for method in ["config.check", "config.set"] {
            let refused = client.ask(method, wrong.clone()).await.unwrap_err();
            let details = refused.details.unwrap();
            assert!(details["violations"][0]["path"].as_str().unwrap().contains("autonomy"), "{details}");
        }
        let right = json!({"key": "agents.helper.autonomy", "value": "supervised", "hash": hash});
        let checked = client.ask("config.check", right.clone()).await.unwrap();
        assert_eq!(checked["hash"], *hash, "a check changes nothing");
        let set = client.ask("config.set", right.clone()).await.unwrap();
        assert_ne!(set["hash"], *hash);
        let stale = client.ask("config.set", right).await.unwrap_err();
        assert_eq!(stale.code.name(), "conflict", "{stale:?}");
        let masked = json!({"key": "models.anthropic.key", "value": "[masked]"});
        assert!(client.ask("config.set", masked).await.unwrap_err().message.contains("[masked]"));
        let file = std::fs::read_to_string(world.data().join("gantry.toml")).unwrap();
        assert!(file.contains("supervised"), "{file}");
        let again = client.ask("config.get", json!({})).await.unwrap();
        assert_eq!(again["hash"], set["hash"]);
        assert!(again["set"].as_array().unwrap().contains(&json!("agents.helper.autonomy")), "{again}");
    });
}

#[test]
fn secrets_go_in_and_never_come_out() {
    with_client(async |_, _, client| {
        let value = "a-very-secret-value-of-a-service";
        let secret = json!({"name": "LAB", "hosts": ["lab.example.com"], "value": value});
        assert_eq!(
            client.ask("secrets.set", secret.clone()).await.unwrap(),
            json!({"name": "LAB", "replaced": false})
        );
        assert_eq!(client.ask("secrets.set", secret).await.unwrap()["replaced"], true);
        let listed = client.ask("secrets.list", json!({})).await.unwrap().to_string();
        assert!(listed.contains("lab.example.com") && !listed.contains(value), "{listed}");
        let wide = json!({"name": "X", "hosts": ["*.com"], "value": value});
        assert!(client.ask("secrets.set", wide).await.is_err());
        assert!(client.ask("secrets.remove", json!({"name": "LAB"})).await.is_ok());
        assert!(client.ask("secrets.remove", json!({"name": "LAB"})).await.is_err());
    });
}

#[test]
fn audit_log_is_searched_page_by_page() {
    with_client(async |_, up, client| {
        for n in 0..5 {
            up.call("Bash", &json!({"command": format!("echo needle-{n}")}));
        }
        let search = async |mut params: Value| {
            params["tool"] = json!("Bash");
            client.ask("audit.search", params).await.unwrap()
        };
        let all = search(json!({})).await;
        assert_eq!(all["lines"].as_array().unwrap().len(), 10, "{all}");
        let found = search(json!({"text": "NEEDLE-3"})).await;
        assert_eq!(found["lines"].as_array().unwrap().len(), 1, "{found}");
        let (mut seen, mut before) = (Vec::new(), Value::Null);
        loop {
            let page = search(json!({"limit": 3, "before": before})).await;
            seen.extend(page["lines"].as_array().unwrap().clone());
            before = page.get("previous").cloned().unwrap_or_default();
            if before.is_null() || page["lines"].as_array().unwrap().is_empty() {
                break;
            }
        }
        assert_eq!(seen, *all["lines"].as_array().unwrap());
        let now = jiff::Timestamp::now().as_millisecond();
        assert_eq!(search(json!({"since": now + 60_000})).await["lines"], json!([]));
        assert_eq!(search(json!({"until": now - 600_000})).await["lines"], json!([]));
        assert_eq!(client.ask("audit.verify", json!({})).await.unwrap()["intact"], true);
    });
}

#[test]
fn policy_is_explained_and_usage_and_findings_are_reported() {
    with_client(async |_, _, client| {
        let asked = json!({"tool": "Bash", "input": {"command": "true"}});
        let explained = client.ask("policy.explain", asked).await.unwrap();
        assert_eq!(explained["decisions"][0]["decision"], "allow", "{explained}");
        assert!(client.ask("policy.explain", json!({"tool": "Nothing"})).await.is_err());
        let usage =
            client.ask("usage.report", json!({"from": "2026-01-01", "to": "2026-01-31"})).await.unwrap();
        assert_eq!((&usage["rows"], &usage["total"]["requests"]), (&json!([]), &json!(0)), "{usage}");
        for bad in [
            json!({"from": "yesterday"}),
            json!({"from": "2026-02-01", "to": "2026-01-01"}),
            json!({"from": "2020-01-01"}),
        ] {
            assert!(client.ask("usage.report", bad.clone()).await.is_err(), "{bad}");
        }
        assert!(client.ask("gateway.doctor", json!({})).await.unwrap()["findings"].is_object());
    });
}

#[test]
fn states_of_nodes_transfers_and_the_inbox_are_followed() {
    with_client(async |world, up, client| {
        let nodes = client.ask("nodes.listen", json!({})).await.unwrap();
        assert_eq!(nodes["nodes"][0]["id"], "local");
        assert_eq!(client.ask("inbox.listen", json!({})).await.unwrap(), json!({"items": []}));
        assert_eq!(client.ask("transfers.listen", json!({})).await.unwrap(), json!({"transfers": []}));
        up.add_node(world, "laptop", &[]);
        let has =
            |name: &str, text: &str| client.events(name).iter().any(|data| data.to_string().contains(text));
        eventually("the new node is reported", SOON, || has("nodes.changed", "\"laptop\""));
        world.write("a.txt", "some text");
        let moved = json!({"source": format!("local:{}", world.workspace().join("a.txt").display()), "destination": "gsv:b.txt"});
        let answer = up.call("gsv__Transfer", &moved);
        assert_eq!(answer.status, 200, "{}", answer.text());
        eventually("the transfer is reported", SOON, || has("transfers.changed", "\"done\""));
        let listed = client.ask("transfers.list", json!({})).await.unwrap();
        assert_eq!(
            (&listed["transfers"][0]["state"], &listed["transfers"][0]["bytesDone"]),
            (&json!("done"), &json!(9)),
            "{listed}"
        );
        assert!(client.ask("transfers.cancel", json!({"id": "none"})).await.is_err());
    });
}

#[test]
fn operators_methods_are_closed_to_tokens() {
    let world = World::new();
    let up = Gateway::start(&world);
    let token = up.client_token(&world, "reader", &[]);
    runtime().block_on(async {
        let client = Client::connect(&up, &token).await.unwrap();
        for method in [
            "page.link",
            "page.sessions",
            "page.revoke",
            "audit.search",
            "audit.verify",
            "usage.report",
            "config.get",
            "config.schema",
            "config.check",
            "config.set",
            "secrets.list",
            "secrets.set",
            "secrets.remove",
            "policy.explain",
            "transfers.list",
            "transfers.listen",
            "transfers.cancel",
            "uploads.begin",
            "uploads.finish",
            "uploads.cancel",
            "downloads.link",
            "gateway.doctor",
            "apis.list",
            "apis.get",
            "apis.save",
            "apis.remove",
            "mcp.servers",
            "mcp.review",
            "mcp.accept",
        ] {
            let params = match method {
                "page.revoke" | "transfers.cancel" => json!({"id": "x"}),
                "config.check" | "config.set" => json!({"key": "a", "value": 1}),
                "secrets.set" => json!({"name": "a", "hosts": [], "value": "x"}),
                "secrets.remove" => json!({"name": "a"}),
                "policy.explain" => json!({"tool": "Bash"}),
                "uploads.begin" => json!({"path": "a", "size": 1}),
                "uploads.finish" | "uploads.cancel" => json!({"upload": "a"}),
                "downloads.link" => json!({"path": "a"}),
                "apis.get" | "apis.remove" => json!({"id": "a"}),
                "apis.save" => json!({"profile": {}}),
                "mcp.review" => json!({"name": "a"}),
                "mcp.accept" => json!({"name": "a", "seen": "x"}),
                _ => json!({}),
            };
            let refused = client.ask(method, params).await.unwrap_err();
            assert!(["forbidden", "unknown_method"].contains(&refused.code.name()), "{method}: {refused:?}");
        }
        // Texts become data for everybody.
        let drawn = client.ask("markdown.render", json!({"texts": ["*a*"]})).await.unwrap();
        assert_eq!(drawn["documents"][0]["blocks"][0]["content"][0]["inline"], "emphasis", "{drawn}");
        assert!(client.ask("ansi.render", json!({"text": "\u{1b}[31mred"})).await.is_ok());
        assert!(client.ask("diff.render", json!({})).await.is_err());
        assert!(client.ask("graph.layout", json!({"nodes": [{"id": "a"}], "edges": []})).await.is_ok());
        assert_eq!(client.ask("inbox.list", json!({})).await.unwrap(), json!({"items": []}));
    });
}

#[test]
fn profiles_of_apis_are_checked_saved_and_removed() {
    with_client(async |_, _, client| {
        let refused = client.ask("apis.save", json!({"profile": {"id": "shop"}})).await.unwrap_err();
        assert!(!refused.details.unwrap()["violations"].as_array().unwrap().is_empty());
        let profile = json!({
            "id": "shop", "name": "Shop", "description": "Orders of the shop.",
            "base_url": "https://shop.example.com/v1", "auth": {"type": "none"},
            "endpoints": [{"method": "GET", "path": "/orders/{id}", "description": "One order."}],
            "guidelines": ["Ask for one order at a time."], "avoid": ["Asking for all orders at once."],
        });
        let saved = client.ask("apis.save", json!({"profile": profile})).await;
        assert_eq!(saved.unwrap(), json!({"id": "shop"}));
        assert!(client.ask("apis.save", json!({"profile": profile})).await.is_err(), "it exists");
        assert!(client.ask("apis.save", json!({"profile": profile, "replace": true})).await.is_ok());
        let listed = client.ask("apis.list", json!({})).await.unwrap();
        assert_eq!(listed["apis"][0]["name"], "Shop", "{listed}");
        let shown = client.ask("apis.get", json!({"id": "shop"})).await.unwrap();
        assert_eq!(shown["profile"]["base_url"], "https://shop.example.com/v1", "{shown}");
        assert!(client.ask("apis.remove", json!({"id": "shop"})).await.is_ok());
        assert!(client.ask("apis.remove", json!({"id": "shop"})).await.is_err());
        let servers = client.ask("mcp.servers", json!({})).await.unwrap();
        assert_eq!(servers["servers"], json!([]));
        assert!(client.ask("mcp.review", json!({"name": "none"})).await.is_err());
    });
}
