//! Drafts a profile from an OpenAPI description: base URL, authentication and endpoints.
//!
//! Guidelines and mistakes to avoid are not part of a description; people add them.

use gantry_apis::{AuthDraft, Endpoint, ProfileDraft};
use serde_json::{Map, Value};

const MAX_ENDPOINTS: usize = 500;
const MAX_DESCRIPTION: usize = 300;
const METHODS: [&str; 6] = ["get", "post", "put", "patch", "delete", "head"];

pub(super) struct Draft {
    pub(super) draft: ProfileDraft,
    /// What could not be converted.
    pub(super) notes: Vec<String>,
}

pub(super) fn draft(document: &Value, id: Option<&str>, base_url: Option<&str>) -> Result<Draft, String> {
    let is_three = document["openapi"].as_str().is_some_and(|version| version.starts_with("3."));
    if !is_three && document["swagger"] != "2.0" {
        return Err("the description must be OpenAPI 3 or Swagger 2, as JSON".into());
    }
    let mut notes = Vec::new();
    let title = document["info"]["title"].as_str().unwrap_or_default();
    let id = id.map_or_else(|| id_from(title), str::to_owned);
    let found = base_url.map(str::to_owned).or_else(|| server(document));
    if found.as_deref().is_none_or(|url| !url.contains("://")) {
        notes.push("the description does not name the API's host; add --base-url URL".into());
    }
    let (endpoints, deprecated) = endpoints(document, &mut notes);
    let draft = ProfileDraft {
        name: Some(title.to_owned()).filter(|title| !title.is_empty()),
        base_url: found,
        description: text(&document["info"]["description"]).or_else(|| Some(title.to_owned())),
        auth: Some(auth(document, &id, &mut notes)),
        endpoints: Some(endpoints),
        guidelines: None,
        avoid: Some(deprecated).filter(|deprecated| !deprecated.is_empty()),
        rate_limit: None,
        notes: None,
        made_by: None,
        id: Some(id),
    };
    Ok(Draft { draft, notes })
}

/// `Pet Store (v2)` becomes `pet-store-v2`.
fn id_from(title: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' };
    let words: String = title.chars().map(plain).collect();
    let words: Vec<&str> = words.split('-').filter(|word| !word.is_empty()).collect();
    words.join("-").chars().take(64).collect()
}

/// Returns the URL of the first server, with the defaults of its variables.
fn server(document: &Value) -> Option<String> {
    if let Some(host) = document["host"].as_str() {
        let schemes: Vec<&str> =
            document["schemes"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        let scheme = if schemes.is_empty() || schemes.contains(&"https") { "https" } else { schemes[0] };
        return Some(format!("{scheme}://{host}{}", document["basePath"].as_str().unwrap_or_default()));
    }
    let server = document["servers"].get(0)?;
    let mut url = server["url"].as_str()?.to_owned();
    for (name, variable) in server["variables"].as_object().into_iter().flatten() {
        if let Some(default) = variable["default"].as_str() {
            url = url.replace(&format!("{{{name}}}"), default);
        }
    }
    Some(url)
}

fn endpoints(document: &Value, notes: &mut Vec<String>) -> (Vec<Endpoint>, Vec<String>) {
    let (mut endpoints, mut deprecated, mut left_out) = (Vec::new(), Vec::new(), 0);
    for (path, item) in document["paths"].as_object().into_iter().flatten() {
        for method in METHODS {
            let Some(operation) = item.get(method).and_then(Value::as_object) else { continue };
            let method = method.to_ascii_uppercase();
            if operation.get("deprecated") == Some(&Value::Bool(true)) {
                deprecated.push(format!("{method} {path} is deprecated."));
            } else if endpoints.len() < MAX_ENDPOINTS {
                let description = described(operation).unwrap_or_else(|| format!("{method} {path}"));
                endpoints.push(Endpoint { method, path: path.clone(), description });
            } else {
                left_out += 1;
            }
        }
    }
    if left_out > 0 {
        notes.push(format!("{left_out} endpoints were skipped: a profile has at most {MAX_ENDPOINTS}"));
    }
    if deprecated.len() > MAX_ENDPOINTS {
        notes.push(format!("{} deprecated endpoints were skipped", deprecated.len() - MAX_ENDPOINTS));
        deprecated.truncate(MAX_ENDPOINTS);
    }
    (endpoints, deprecated)
}

fn described(operation: &Map<String, Value>) -> Option<String> {
    ["summary", "description", "operationId"].iter().find_map(|field| text(operation.get(*field)?))
}

/// Returns the first line of a text that is not empty.
fn text(value: &Value) -> Option<String> {
    let line = value.as_str()?.lines().map(str::trim).find(|line| !line.is_empty())?;
    Some(line.chars().take(MAX_DESCRIPTION).collect())
}

/// Converts the first security scheme of the description. Its secrets are named after the profile.
fn auth(document: &Value, id: &str, notes: &mut Vec<String>) -> AuthDraft {
    let schemes = document["components"]["securitySchemes"].as_object();
    let schemes = schemes.or_else(|| document["securityDefinitions"].as_object());
    let wanted = document["security"].as_array().into_iter().flatten().find_map(|one| {
        let names = one.as_object()?;
        let first = names.keys().next()?;
        if names.len() > 1 {
            notes.push(format!(
                "the API requires {} credentials together ({}); the profile sends only the first",
                names.len(),
                names.keys().map(String::as_str).collect::<Vec<_>>().join(", ")
            ));
        }
        Some(first)
    });
    let scheme = schemes.and_then(|schemes| match wanted {
        Some(name) => schemes.get(name),
        None => schemes.values().next(),
    });
    let of = |kind: &str| AuthDraft { kind: Some(kind.to_owned()), ..AuthDraft::default() };
    let Some(scheme) = scheme else { return of("none") };
    let upper: String = id.chars().map(|c| if c == '-' { '_' } else { c.to_ascii_uppercase() }).collect();
    let named = |what: &str| match upper.starts_with(|c: char| c.is_ascii_alphabetic()) {
        true => Some(format!("secret:{upper}_{what}")),
        false => Some(format!("secret:API_{upper}_{what}")),
    };
    let bearer = || AuthDraft { token: named("TOKEN"), ..of("bearer") };
    let name = scheme["name"].as_str().map(str::to_owned);
    let basic = || AuthDraft { username: named("USER"), password: named("PASSWORD"), ..of("basic") };
    match (scheme["type"].as_str().unwrap_or_default(), scheme["in"].as_str(), scheme["scheme"].as_str()) {
        ("apiKey", Some("query"), _) => AuthDraft { query_param: name, value: named("KEY"), ..of("query") },
        ("apiKey", Some("header"), _) => AuthDraft { header_name: name, value: named("KEY"), ..of("header") },
        ("basic", ..) => basic(),
        ("http", _, Some(kind)) if kind.eq_ignore_ascii_case("basic") => basic(),
        ("http", _, Some(kind)) if kind.eq_ignore_ascii_case("bearer") => bearer(),
        ("oauth2", ..) => match client_credentials(scheme) {
            Some((token_url, scope)) => AuthDraft {
                token_url: Some(token_url),
                client_id: named("CLIENT_ID"),
                client_secret: named("CLIENT_SECRET"),
                scope,
                ..of("oauth2")
            },
            None => {
                notes.push(
                    "the API's OAuth flow needs a person; the profile uses a bearer token instead".into(),
                );
                bearer()
            }
        },
        ("openIdConnect", ..) => {
            notes.push("the API uses OpenID Connect; the profile uses a bearer token instead".into());
            bearer()
        }
        (kind, ..) => {
            let kind: String = kind.chars().take(40).collect();
            notes.push(format!("the security scheme {kind} is not supported; fill in \"auth\" yourself"));
            AuthDraft::default()
        }
    }
}

/// Returns the token URL and the scopes, for OpenAPI 3 or Swagger 2.
fn client_credentials(scheme: &Value) -> Option<(String, Option<String>)> {
    let flow = match scheme["flow"].as_str() {
        Some("application") => scheme,
        Some(_) => return None,
        None => scheme["flows"].get("clientCredentials")?,
    };
    let scopes =
        flow["scopes"].as_object().map(|scopes| scopes.keys().cloned().collect::<Vec<_>>().join(" "));
    Some((flow["tokenUrl"].as_str()?.to_owned(), scopes.filter(|scopes| !scopes.is_empty())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn drafted(document: &Value) -> ProfileDraft {
        draft(document, None, None).unwrap_or_else(|why| panic!("{why}")).draft
    }

    #[test]
    fn takes_over_what_a_description_says() {
        let document = json!({
            "openapi": "3.1.0",
            "info": {"title": "Pet Store (v2)", "description": "\n Pets to buy.\nMore."},
            "servers": [{"url": "https://{region}.pets.example/v2", "variables": {"region": {"default": "eu"}}}],
            "security": [{"key": []}],
            "components": {"securitySchemes": {
                "other": {"type": "http", "scheme": "basic"},
                "key": {"type": "apiKey", "in": "header", "name": "X-Key"},
            }},
            "paths": {
                "/pets": {"get": {"summary": "All pets"}, "post": {"operationId": "addPet"}, "parameters": []},
                "/old": {"delete": {"deprecated": true}, "head": {}},
            },
        });
        let mut draft = drafted(&document);
        assert_eq!(draft.id.as_deref(), Some("pet-store-v2"));
        assert_eq!(draft.base_url.as_deref(), Some("https://eu.pets.example/v2"));
        assert_eq!(draft.description.as_deref(), Some("Pets to buy."));
        let auth = draft.auth.clone().unwrap();
        assert_eq!(auth.kind.as_deref(), Some("header"));
        assert_eq!(auth.value.as_deref(), Some("secret:PET_STORE_V2_KEY"));
        let endpoints: Vec<String> = draft
            .endpoints
            .iter()
            .flatten()
            .map(|endpoint| format!("{} {} {}", endpoint.method, endpoint.path, endpoint.description))
            .collect();
        assert_eq!(endpoints, ["GET /pets All pets", "POST /pets addPet", "HEAD /old HEAD /old"]);
        assert_eq!(draft.avoid.as_deref(), Some(["DELETE /old is deprecated.".to_owned()].as_slice()));
        let missing: Vec<String> =
            draft.clone().check().unwrap_err().into_iter().map(|problem| problem.path).collect();
        assert_eq!(missing, ["guidelines"]);
        draft.guidelines = Some(vec!["Be kind.".into()]);
        draft.check().unwrap();
    }

    #[test]
    fn knows_each_way_to_prove_who_one_is() {
        for (scheme, kind) in [
            (json!({"type": "http", "scheme": "Bearer"}), Some("bearer")),
            (json!({"type": "http", "scheme": "basic"}), Some("basic")),
            (json!({"type": "apiKey", "in": "query", "name": "k"}), Some("query")),
            (json!({"type": "apiKey", "in": "cookie", "name": "k"}), None),
            (
                json!({"type": "oauth2", "flows": {"clientCredentials": {"tokenUrl": "https://a.example/t", "scopes": {"r": "", "w": ""}}}}),
                Some("oauth2"),
            ),
            (json!({"type": "oauth2", "flows": {"implicit": {}}}), Some("bearer")),
            (json!({"type": "openIdConnect"}), Some("bearer")),
            (json!(7), None),
        ] {
            let document = json!({"openapi": "3.0.0", "info": {"title": "1x"}, "components": {"securitySchemes": {"a": scheme}}});
            let auth = drafted(&document).auth.unwrap();
            assert_eq!(auth.kind.as_deref(), kind, "{scheme}");
        }
        let swagger = json!({
            "swagger": "2.0", "host": "a.example", "basePath": "/v1", "schemes": ["http", "https"],
            "securityDefinitions": {"o": {"type": "oauth2", "flow": "application", "tokenUrl": "https://a.example/t"}},
        });
        let draft = drafted(&swagger);
        assert_eq!(draft.base_url.as_deref(), Some("https://a.example/v1"));
        assert_eq!(draft.auth.unwrap().kind.as_deref(), Some("oauth2"));
    }

    #[test]
    fn what_cannot_be_taken_over_is_noted() {
        let document = json!({
            "openapi": "3.0.0", "info": {"title": "x"}, "servers": [{"url": "/v1"}], "security": [{"a": [], "b": []}],
            "components": {"securitySchemes": {"a": {"type": "http", "scheme": "bearer"}, "b": {"type": "http", "scheme": "basic"}}},
        });
        let notes = draft(&document, None, None).unwrap_or_else(|why| panic!("{why}")).notes.join("\n");
        assert!(notes.contains("2 credentials together (a, b)") && notes.contains("--base-url"), "{notes}");
        let known = draft(&document, None, Some("https://a.example")).unwrap_or_else(|why| panic!("{why}"));
        assert!(!known.notes.join("").contains("--base-url"));
    }

    #[test]
    fn odd_documents_are_refused_or_drafted_without_a_panic() {
        for odd in [json!(null), json!([]), json!({}), json!({"openapi": 3}), json!({"openapi": "2.0"})] {
            assert!(draft(&odd, None, None).is_err(), "{odd}");
        }
        for odd in [
            json!({"openapi": "3.0.0"}),
            json!({"openapi": "3.0.0", "paths": [], "servers": {}, "security": {}, "info": 7, "components": []}),
            json!({"openapi": "3.0.0", "paths": {"x": null, "y": {"get": 1}}, "servers": [1], "security": [[], {}, {"none": 1}]}),
        ] {
            assert!(drafted(&odd).check().is_err(), "{odd}");
        }
    }
}
