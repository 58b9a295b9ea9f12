//! Discovers the authorization server of an MCP server, from the metadata of both.

use gantry_net::{Client, Method, Url};
use serde::Deserialize;

use super::{LoginError, answered, asking, parameter};
use crate::client::sanitize::shown;

/// The resource metadata of a server.
#[derive(Debug, Clone, Default, Deserialize)]
pub(super) struct Resource {
    pub(super) resource: Option<String>,
    #[serde(default)]
    pub(super) authorization_servers: Vec<String>,
    #[serde(default)]
    pub(super) scopes_supported: Vec<String>,
}

/// The metadata of an authorization server.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Issuer {
    pub(super) issuer: String,
    pub(super) authorization_endpoint: String,
    pub(super) token_endpoint: String,
    pub(super) registration_endpoint: Option<String>,
    #[serde(default)]
    pub(super) code_challenge_methods_supported: Vec<String>,
    #[serde(default)]
    pub(super) token_endpoint_auth_methods_supported: Vec<String>,
    #[serde(default)]
    pub(super) scopes_supported: Vec<String>,
    #[serde(default)]
    pub(super) authorization_response_iss_parameter_supported: bool,
}

/// Reads the resource metadata, at the URL in the challenge or at the well-known one.
pub(super) async fn resource(client: &Client, server: &Url, challenge: &str) -> Result<Resource, LoginError> {
    let mut places = Vec::new();
    if let Some(named) = parameter(challenge, "resource_metadata") {
        let named = Url::parse(&named)
            .map_err(|_| LoginError::Metadata(format!("{} is not a metadata URL", shown(&named))))?;
        places.push(named);
    }
    places.extend(well_known(server, "oauth-protected-resource"));
    let found: Option<(Url, Resource)> = first(client, places).await?;
    let Some((_, found)) = found else { return Ok(Resource::default()) };
    if let Some(resource) = &found.resource
        && !covers(resource, server)
    {
        return Err(LoginError::Metadata(format!(
            "the metadata is for {}, not for {server}",
            shown(resource)
        )));
    }
    Ok(found)
}

/// Reads the metadata of the authorization server: the one that the resource names, or the server itself.
pub(super) async fn issuer(client: &Client, server: &Url, resource: &Resource) -> Result<Issuer, LoginError> {
    let named = resource.authorization_servers.first();
    let mut origin = server.clone();
    origin.set_path("");
    origin.set_query(None);
    let base = match named {
        Some(named) => {
            Url::parse(named).map_err(|_| LoginError::Metadata(format!("{} is not a URL", shown(named))))?
        }
        None => origin.clone(),
    };
    // For an issuer with a path, the root may belong to another issuer.
    let mut places: Vec<Url> = ["oauth-authorization-server", "openid-configuration"]
        .into_iter()
        .filter_map(|name| well_known(&base, name).into_iter().next())
        .collect();
    if base.path().len() > 1 {
        let mut appended = base.clone();
        appended.set_path(&format!("{}/.well-known/openid-configuration", base.path().trim_end_matches('/')));
        places.push(appended);
    }
    match first::<Issuer>(client, places).await? {
        Some((_, found)) => {
            let same = |a: &str, b: &str| a.trim_end_matches('/') == b.trim_end_matches('/');
            if let Some(named) = named.filter(|named| !same(named, &found.issuer)) {
                return Err(LoginError::Metadata(format!(
                    "{} claims to be {}",
                    shown(named),
                    shown(&found.issuer)
                )));
            }
            if !found.code_challenge_methods_supported.is_empty()
                && !found.code_challenge_methods_supported.iter().any(|method| method == "S256")
            {
                let text = format!("{} does not support PKCE with S256", shown(&found.issuer));
                return Err(LoginError::Metadata(text));
            }
            Ok(found)
        }
        // Revision 2025-03-26: without metadata the endpoints have fixed names.
        None if named.is_none() => {
            let at = |path: &str| format!("{}{path}", origin.as_str().trim_end_matches('/'));
            Ok(Issuer {
                issuer: origin.as_str().trim_end_matches('/').to_owned(),
                authorization_endpoint: at("/authorize"),
                token_endpoint: at("/token"),
                registration_endpoint: Some(at("/register")),
                code_challenge_methods_supported: Vec::new(),
                token_endpoint_auth_methods_supported: Vec::new(),
                scopes_supported: Vec::new(),
                authorization_response_iss_parameter_supported: false,
            })
        }
        None => Err(LoginError::Metadata(format!("{base} has no authorization metadata"))),
    }
}

/// Returns the well-known URLs, with and without the path.
fn well_known(base: &Url, name: &str) -> Vec<Url> {
    let mut root = base.clone();
    root.set_query(None);
    root.set_fragment(None);
    let path = base.path().trim_end_matches('/').to_owned();
    let mut places = Vec::new();
    if !path.is_empty() {
        let mut under = root.clone();
        under.set_path(&format!("/.well-known/{name}{path}"));
        places.push(under);
    }
    root.set_path(&format!("/.well-known/{name}"));
    places.push(root);
    places
}

/// Returns the first metadata found. Metadata that exists but is invalid is an error.
async fn first<T: serde::de::DeserializeOwned>(
    client: &Client,
    places: Vec<Url>,
) -> Result<Option<(Url, T)>, LoginError> {
    for place in places {
        let (status, text) = answered(client, asking(Method::GET, place.clone())).await?;
        if status.is_success() {
            return match serde_json::from_str(&text) {
                Ok(found) => Ok(Some((place, found))),
                Err(err) => Err(LoginError::Metadata(format!("the metadata at {place} is invalid: {err}"))),
            };
        }
    }
    Ok(None)
}

/// Returns whether metadata of a resource covers a URL: the same origin, and a path above it.
fn covers(resource: &str, server: &Url) -> bool {
    let Ok(resource) = Url::parse(resource) else { return false };
    let above = resource.path().trim_end_matches('/');
    resource.origin() == server.origin()
        && (server.path() == above
            || server.path().strip_prefix(above).is_some_and(|rest| rest.starts_with('/')))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metadata_is_searched_with_and_without_the_path() {
        let places = well_known(&Url::parse("https://a.example/x/mcp?q=1").unwrap(), "n");
        let places: Vec<&str> = places.iter().map(Url::as_str).collect();
        assert_eq!(places, ["https://a.example/.well-known/n/x/mcp", "https://a.example/.well-known/n"]);
        assert_eq!(well_known(&Url::parse("https://a.example").unwrap(), "n").len(), 1);
    }

    #[test]
    fn metadata_covers_its_own_origin_and_paths() {
        let server = Url::parse("https://a.example/x/mcp").unwrap();
        for (resource, speaks) in [
            ("https://a.example/x/mcp", true),
            ("https://a.example", true),
            ("https://a.example/x/", true),
            ("https://a.example/x/m", false),
            ("https://evil.example/x/mcp", false),
            ("http://a.example/x/mcp", false),
            ("nonsense", false),
        ] {
            assert_eq!(covers(resource, &server), speaks, "{resource}");
        }
    }
}
