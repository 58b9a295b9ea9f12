#![allow(clippy::disallowed_methods, reason = "tests inspect the file system directly")]

use serde_json::{Value, json};

use crate::testing::Bench;

async fn setup(bench: &Bench, input: Value) -> Result<String, String> {
    let text = |value: Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    bench.call("api_setup", input).await.map(text).map_err(text)
}

fn stripe() -> Value {
    json!({
        "id": "stripe", "name": "Stripe", "base_url": "https://api.stripe.com/v1", "description": "Payments.",
        "auth": {"type": "bearer", "token": "secret:STRIPE"},
        "rate_limit": {"requests_per_second": 25},
        "endpoints": [{"method": "GET", "path": "/charges", "description": "All charges."}],
        "guidelines": ["Amounts are in cents."], "avoid": ["Retrying without an idempotency key."],
    })
}

#[tokio::test]
async fn create_list_view_update_delete() {
    let bench = Bench::new();
    assert_eq!(setup(&bench, json!({"action": "list"})).await.unwrap(), "No API profiles exist.");
    let created = setup(&bench, json!({"action": "create", "profile": stripe()})).await.unwrap();
    assert_eq!(
        created,
        "Created the API profile stripe. It applies to requests below https://api.stripe.com/v1.\nNot ready yet: unknown \
         secret STRIPE; the operator stores it with `gantry secrets set STRIPE --host api.stripe.com`."
    );
    let again = setup(&bench, json!({"action": "create", "profile": stripe()})).await.unwrap_err();
    assert_eq!(again, "the API profile \"stripe\" already exists (action update changes it)");
    assert_eq!(
        setup(&bench, json!({"action": "list"})).await.unwrap(),
        "stripe: Stripe, https://api.stripe.com/v1: Payments.\n"
    );
    bench.secrets().set("STRIPE", "sk_live_0123456789", &["api.stripe.com".into()], 1).unwrap();
    let change =
        json!({"action": "update", "id": "stripe", "profile": {"name": "Stripe 2", "notes": ["Versioned."]}});
    let updated = setup(&bench, change).await.unwrap();
    assert_eq!(
        updated,
        "Updated the API profile stripe. It applies to requests below https://api.stripe.com/v1."
    );
    let viewed: Value =
        serde_json::from_str(&setup(&bench, json!({"action": "view", "id": "stripe"})).await.unwrap())
            .unwrap();
    let mut expected = stripe();
    expected["name"] = json!("Stripe 2");
    expected["notes"] = json!(["Versioned."]);
    assert_eq!(viewed, expected);
    setup(&bench, json!({"action": "delete", "id": "stripe"})).await.unwrap();
    let gone = setup(&bench, json!({"action": "view", "id": "stripe"})).await.unwrap_err();
    assert_eq!(gone, "unknown API profile \"stripe\" (action list shows all)");
}

#[tokio::test]
async fn every_missing_or_invalid_field_is_reported_and_nothing_is_saved() {
    let bench = Bench::new();
    let error = setup(&bench, json!({"action": "create", "profile": {"name": "X"}})).await.unwrap_err();
    for part in ["id", "base_url", "description", "auth", "endpoints", "guidelines", "avoid"] {
        assert!(error.contains(&format!("\n- {part}: missing: ")), "{part}: {error}");
    }
    let mut literal = stripe();
    literal["auth"]["token"] = json!("sk_live_literal_value");
    let error = setup(&bench, json!({"action": "create", "profile": literal})).await.unwrap_err();
    assert!(error.contains("auth.token: must name a stored secret") && !error.contains("sk_live"), "{error}");
    assert!(!format!("{:?}", bench.audit.records()).contains("sk_live"));
    let mut typo = stripe();
    typo["endpionts"] = json!([]);
    let error = setup(&bench, json!({"action": "create", "profile": typo})).await.unwrap_err();
    assert!(error.contains("did you mean \"endpoints\"?"), "{error}");
    let shapes = json!({
        "name": 7, "nmae": "X", "auth": {"type": "bearer"}, "rate_limit": {"requests_per_second": "many"},
        "endpoints": [{"method": "GET"}, {"path": "/b", "description": "d"}], "made_by": "operator",
    });
    let error = setup(&bench, json!({"action": "create", "profile": shapes})).await.unwrap_err();
    for part in [
        "id: missing",
        "name: ",
        "nmae",
        "base_url: missing",
        "description: missing",
        "auth.token: missing",
        "rate_limit.requests_per_second: ",
        "endpoints.0.path: missing",
        "endpoints.0.description: missing",
        "endpoints.1.method: missing",
        "guidelines: missing",
        "avoid: missing",
        "made_by: is set by Gantry",
    ] {
        assert!(error.contains(part), "{part} is not in {error}");
    }
    let error = setup(&bench, json!({"action": "create", "profile": "{}"})).await.unwrap_err();
    assert!(
        error.ends_with("these problems:\n- profile: must be a JSON object, not a string or an array"),
        "{error}"
    );
    let mut unknown = stripe();
    unknown["colour"] = json!("red");
    let error = setup(&bench, json!({"action": "create", "profile": unknown})).await.unwrap_err();
    assert!(error.contains("known fields: ") && !error.contains("made_by"), "{error}");
    for (input, expected) in [
        (json!({"action": "create", "id": "a", "profile": stripe()}), "give one id"),
        (json!({"action": "update", "profile": {}}), "needs the id of a profile"),
        (json!({"action": "update", "id": "none", "profile": {}}), "unknown API profile \"none\""),
        (json!({"action": "delete"}), "needs the id of a profile"),
        (json!({"action": "delete", "id": "../../gantry"}), "unknown API profile"),
        (json!({"action": "view", "id": "a", "profile": {}}), "this action does not use profile"),
        (json!({"action": "list", "id": "a"}), "this action does not use id"),
    ] {
        let error = setup(&bench, input.clone()).await.unwrap_err();
        assert!(error.contains(expected), "{input}: {error}");
    }
    assert!(!bench.data().join("apis").exists());
}

#[tokio::test]
async fn broken_file_is_listed_and_can_be_replaced_or_deleted() {
    let bench = Bench::new();
    std::fs::create_dir(bench.data().join("apis")).unwrap();
    std::fs::write(bench.data().join("apis/stripe.json"), "{ not json").unwrap();
    let listed = setup(&bench, json!({"action": "list"})).await.unwrap();
    assert!(listed.starts_with("stripe: INVALID: not JSON: "), "{listed}");
    let viewed = setup(&bench, json!({"action": "view", "id": "stripe"})).await.unwrap_err();
    assert!(viewed.contains("is invalid: not JSON"), "{viewed}");
    setup(&bench, json!({"action": "update", "id": "stripe", "profile": stripe()})).await.unwrap();
    assert!(setup(&bench, json!({"action": "list"})).await.unwrap().starts_with("stripe: Stripe, "));
}

#[tokio::test]
async fn unreachable_base_url_is_rejected() {
    let bench = Bench::new();
    let mut port = stripe();
    port["base_url"] = json!("http://127.0.0.1:22/");
    let error = setup(&bench, json!({"action": "create", "profile": port})).await.unwrap_err();
    assert!(error.contains("- base_url: cannot be reached: its port"), "{error}");
}

#[tokio::test]
async fn update_without_changes_is_rejected_and_null_removes_a_field() {
    let bench = Bench::new();
    setup(&bench, json!({"action": "create", "profile": stripe()})).await.unwrap();
    for profile in [json!(null), json!({}), json!({"name": "Stripe"})] {
        let error = setup(&bench, json!({"action": "update", "id": "stripe", "profile": profile})).await;
        assert!(error.unwrap_err().contains("nothing in profile changes"), "{profile}");
    }
    let null = json!({"action": "update", "id": "stripe", "profile": {"auth": null, "name": null}});
    let error = setup(&bench, null).await.unwrap_err();
    assert!(error.contains("- auth: cannot be removed") && error.contains("- name: cannot"), "{error}");
    setup(&bench, json!({"action": "update", "id": "stripe", "profile": {"rate_limit": null}}))
        .await
        .unwrap();
    let viewed = setup(&bench, json!({"action": "view", "id": "stripe"})).await.unwrap();
    assert!(!viewed.contains("rate_limit"), "{viewed}");
}

/// Returns the profile of [`stripe`] with another id and base URL.
fn other(id: &str) -> Value {
    let mut profile = stripe();
    (profile["id"], profile["base_url"]) = (json!(id), json!(format!("https://{id}.example/")));
    profile
}

async fn as_agent(bench: &Bench, input: Value) -> Result<String, String> {
    by_agent(bench, "a", input).await
}

async fn by_agent(bench: &Bench, agent: &str, input: Value) -> Result<String, String> {
    let mut call = bench.agent_call(agent);
    call.autonomy = gantry_tool::Autonomy::Autonomous;
    let text = |value: Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    bench.call_as(call, "api_setup", input).await.map(text).map_err(text)
}

#[tokio::test]
async fn agent_can_only_tighten_a_profile_of_the_operator() {
    let bench = Bench::new();
    setup(&bench, json!({"action": "create", "profile": stripe()})).await.unwrap();
    let update = |profile: Value| json!({"action": "update", "id": "stripe", "profile": profile});
    for (change, field) in [
        (json!({"rate_limit": {"requests_per_second": 26}}), "rate_limit.requests_per_second"),
        (json!({"rate_limit": {"requests_per_day": 1}}), "rate_limit.requests_per_second"),
        (json!({"rate_limit": null}), "rate_limit.requests_per_second"),
        (json!({"auth": {"type": "bearer", "token": "secret:OTHER"}, "name": "S"}), "auth"),
        (json!({"base_url": "https://evil.example/v1"}), "base_url"),
    ] {
        let error = as_agent(&bench, update(change.clone())).await.unwrap_err();
        assert!(error.contains("denied") && error.contains("is the operator's"), "{change}: {error}");
        assert!(error.contains(&format!("were denied: {field}; nothing was saved")), "{change}: {error}");
    }
    let error = as_agent(&bench, json!({"action": "delete", "id": "stripe"})).await.unwrap_err();
    assert!(error.contains("deleting it would remove its limits"), "{error}");
    let mut below = stripe();
    (below["id"], below["base_url"]) = (json!("below"), json!("https://api.stripe.com/v1/charges"));
    let error = as_agent(&bench, json!({"action": "create", "profile": below})).await.unwrap_err();
    assert!(error.contains("lies below https://api.stripe.com/v1"), "{error}");
    std::fs::write(bench.data().join("apis/broken.json"), "{").unwrap();
    for input in [
        json!({"action": "delete", "id": "broken"}),
        json!({"action": "update", "id": "broken", "profile": other("broken")}),
    ] {
        let error = as_agent(&bench, input).await.unwrap_err();
        assert!(error.contains("may be the operator's"), "{error}");
    }
    let viewed = setup(&bench, json!({"action": "view", "id": "stripe"})).await.unwrap();
    assert_eq!(serde_json::from_str::<Value>(&viewed).unwrap(), stripe(), "the profile is unchanged");
    let stricter =
        json!({"rate_limit": {"requests_per_second": 5, "requests_per_day": 100}, "notes": ["Learnt."]});
    as_agent(&bench, update(stricter)).await.unwrap();
    setup(&bench, update(json!({"rate_limit": {"requests_per_second": 100}}))).await.unwrap();
}

#[tokio::test]
async fn agent_can_change_and_delete_its_own_profile() {
    let bench = Bench::new();
    as_agent(&bench, json!({"action": "create", "profile": stripe()})).await.unwrap();
    let viewed = as_agent(&bench, json!({"action": "view", "id": "stripe"})).await.unwrap();
    assert_eq!(serde_json::from_str::<Value>(&viewed).unwrap()["made_by"], "agent:a");
    let change = json!({"rate_limit": null, "base_url": "https://api.stripe.com/v2"});
    as_agent(&bench, json!({"action": "update", "id": "stripe", "profile": change})).await.unwrap();
    // Another agent may not touch it.
    for input in [
        json!({"action": "delete", "id": "stripe"}),
        json!({"action": "update", "id": "stripe", "profile": {"auth": {"type": "none"}}}),
        json!({"action": "update", "id": "stripe", "profile": {"notes": ["Mine."]}}),
    ] {
        let error = by_agent(&bench, "b", input).await.unwrap_err();
        assert!(error.contains("was made by agent:a; nothing was saved"), "{error}");
    }
    // It may not move below the base URL of one of the operator's profiles.
    let mut whole = stripe();
    whole["id"] = json!("operators");
    setup(&bench, json!({"action": "create", "profile": whole})).await.unwrap();
    let change = json!({"base_url": "https://api.stripe.com/v1/charges"});
    let error = as_agent(&bench, json!({"action": "update", "id": "stripe", "profile": change})).await;
    assert!(error.unwrap_err().contains("lies below"));
    // A profile that the operator has updated belongs to the operator.
    as_agent(&bench, json!({"action": "create", "profile": other("x")})).await.unwrap();
    setup(&bench, json!({"action": "update", "id": "x", "profile": {"name": "X"}})).await.unwrap();
    let error = as_agent(&bench, json!({"action": "delete", "id": "x"})).await.unwrap_err();
    assert!(error.contains("is the operator's"), "{error}");
    as_agent(&bench, json!({"action": "delete", "id": "stripe"})).await.unwrap();
}
