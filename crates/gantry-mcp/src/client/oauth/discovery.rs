//! Who gives out tokens for a server: its resource metadata, then the authorization server's own.

use gantry_net::{Client, Method, Url};
use serde::Deserialize;

use super::{LoginError, answered, asking, parameter};
use crate::client::sanitize::shown;

/// What a server says of itself.
#[derive(Debug, Clone, Default, Deserialize)]
pub(super) struct Resource {
    pub(super) resource: Option<String>,
    #[serde(default)]
    pub(super) authorization_servers: Vec<String>,
    #[serde(default)]
    pub(super) scopes_supported: Vec<String>,
}

/// What an authorization server says of itself.
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

/// The metadata that the challenge names, else where it is by convention.
pub(super) async fn resource(client: &Client, server: &Url, challenge: &str) -> Result<Resource, LoginError> {
    let mut places = Vec::new();
    if let Some(named) = parameter(challenge, "resource_metadata") {
        let named = Url::parse(&named)
            .map_err(|_| LoginError::Metadata(format!("{} is no address of metadata", shown(&named))))?;
        places.push(named);
    }
    places.extend(well_known(server, "oauth-protected-resource"));
    let found: Option<(Url, Resource)> = first(client, places).await?;
    let Some((_, found)) = found else { return Ok(Resource::default()) };
    if let Some(resource) = &found.resource
        && !covers(resource, server)
    {
        return Err(LoginError::Metadata(format!(
            "the metadata speaks for {}, not for {server}",
            shown(resource)
        )));
    }
    Ok(found)
}

/// The authorization server that the resource names; the server itself in older revisions.
pub(super) async fn issuer(client: &Client, server: &Url, resource: &Resource) -> Result<Issuer, LoginError> {
    let named = resource.authorization_servers.first();
    let mut origin = server.clone();
    origin.set_path("");
    origin.set_query(None);
    let base = match named {
        Some(named) => {
            Url::parse(named).map_err(|_| LoginError::Metadata(format!("{} is no address", shown(named))))?
        }
        None => origin.clone(),
    };
    // Of an issuer with a path, the root would be somebody else.
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
                    "{} calls itself {}",
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
        None => Err(LoginError::Metadata(format!("{base} does not say how it gives out tokens"))),
    }
}

/// Before the path of an address, and without it.
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

/// The first of these places that has something to say. What is there but cannot be read is an error.
async fn first<T: serde::de::DeserializeOwned>(
    client: &Client,
    places: Vec<Url>,
) -> Result<Option<(Url, T)>, LoginError> {
    for place in places {
        let (status, text) = answered(client, asking(Method::GET, place.clone())).await?;
        if status.is_success() {
            return match serde_json::from_str(&text) {
                Ok(found) => Ok(Some((place, found))),
                Err(err) => {
                    Err(LoginError::Metadata(format!("the metadata at {place} cannot be read: {err}")))
                }
            };
        }
    }
    Ok(None)
}

/// Whether metadata for one resource speaks for an address: the same origin, and a path above it.
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
    fn metadata_lies_before_the_path_and_at_the_root() {
        let places = well_known(&Url::parse("https://a.example/x/mcp?q=1").unwrap(), "n");
        let places: Vec<&str> = places.iter().map(Url::as_str).collect();
        assert_eq!(places, ["https://a.example/.well-known/n/x/mcp", "https://a.example/.well-known/n"]);
        assert_eq!(well_known(&Url::parse("https://a.example").unwrap(), "n").len(), 1);
    }

    #[test]
    fn metadata_speaks_for_its_own_origin_and_below_it() {
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
