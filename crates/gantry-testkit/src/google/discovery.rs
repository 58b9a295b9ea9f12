//! Google's own descriptions of its APIs, from the installed package. They decide which requests are valid.

use std::path::PathBuf;
use std::sync::OnceLock;

use percent_encoding::percent_decode_str;
use serde_json::{Map, Value};

use super::schema;

/// The APIs that the server knows.
const DOCUMENTS: [&str; 5] = ["gmail.v1", "sheets.v4", "drive.v3", "calendar.v3", "docs.v1"];

/// All methods of all APIs.
pub(super) struct Discovery {
    methods: Vec<ApiMethod>,
}

pub(super) struct ApiMethod {
    /// Such as `calendar.events.insert`.
    pub(super) id: String,
    http_method: String,
    /// The path's segments, with `{name}` for parameters.
    segments: Vec<String>,
    /// The path of uploads, if the method takes media.
    upload: Option<Vec<String>>,
    /// Parameters by name, those of the whole API included.
    parameters: Map<String, Value>,
    /// Full names of scopes, any of which is enough.
    pub(super) scopes: Vec<String>,
    request: Option<String>,
    response: Option<String>,
    /// The index of the API in [`DOCUMENTS`].
    document: usize,
}

/// A method with the parameters of a path.
pub(super) struct Found<'a> {
    pub(super) method: &'static ApiMethod,
    pub(super) path: Vec<(String, String)>,
    pub(super) is_upload: bool,
    pub(super) request_path: &'a str,
}

/// A folder or file of the installed packages.
pub fn installed(path: &str) -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let target = test.ancestors().find(|folder| folder.join("mcp").is_dir());
    let target = target.expect("target/mcp is missing; `cargo xtask setup` makes it");
    let path = target.join("mcp").join(path);
    assert!(path.exists(), "{} is missing; `cargo xtask setup` installs it", path.display());
    path
}

fn documents() -> &'static [Value] {
    static DOCUMENTS_READ: OnceLock<Vec<Value>> = OnceLock::new();
    DOCUMENTS_READ.get_or_init(|| {
        let library =
            std::fs::read_dir(installed("venv-google/lib")).unwrap().next().unwrap().unwrap().path();
        let folder = library.join("site-packages/googleapiclient/discovery_cache/documents");
        let read = |name: &&str| {
            let text = std::fs::read_to_string(folder.join(format!("{name}.json"))).unwrap();
            serde_json::from_str(&text).unwrap()
        };
        DOCUMENTS.iter().map(read).collect()
    })
}

pub(super) fn discovery() -> &'static Discovery {
    static DISCOVERY: OnceLock<Discovery> = OnceLock::new();
    DISCOVERY.get_or_init(|| {
        let mut methods = Vec::new();
        for (index, document) in documents().iter().enumerate() {
            collect(index, document, document, &mut methods);
        }
        Discovery { methods }
    })
}

fn collect(index: usize, document: &Value, resource: &Value, methods: &mut Vec<ApiMethod>) {
    for (_, method) in resource["methods"].as_object().into_iter().flatten() {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let path = format!("{}{}", text(&document["servicePath"]), text(&method["path"]));
        let mut parameters = document["parameters"].as_object().cloned().unwrap_or_default();
        parameters.extend(method["parameters"].as_object().cloned().unwrap_or_default());
        let upload = method["mediaUpload"]["protocols"]["simple"]["path"].as_str();
        let list = |value: &Value| value.as_array().into_iter().flatten().map(text).collect();
        methods.push(ApiMethod {
            id: text(&method["id"]),
            http_method: text(&method["httpMethod"]),
            segments: segments(&path),
            upload: upload.map(segments),
            parameters,
            scopes: list(&method["scopes"]),
            request: method["request"]["$ref"].as_str().map(str::to_owned),
            response: method["response"]["$ref"].as_str().map(str::to_owned),
            document: index,
        });
    }
    for (_, resource) in resource["resources"].as_object().into_iter().flatten() {
        collect(index, document, resource, methods);
    }
}

fn segments(path: &str) -> Vec<String> {
    path.trim_start_matches('/').split('/').map(str::to_owned).collect()
}

impl Discovery {
    /// Finds the method of a request. The path is as it was sent, without the query.
    pub(super) fn find<'a>(&'static self, http_method: &str, path: &'a str) -> Option<Found<'a>> {
        let sent = segments(path);
        let mut found: Vec<(usize, Found<'a>)> = Vec::new();
        for method in self.methods.iter().filter(|method| method.http_method == http_method) {
            let paths = std::iter::once((&method.segments, false));
            for (template, is_upload) in paths.chain(method.upload.iter().map(|path| (path, true))) {
                if let Some((literal, path_parameters)) = matched(template, &sent) {
                    let path_parameters = path_parameters.into_iter();
                    let decoded = path_parameters.map(|(name, value)| {
                        (name, percent_decode_str(&value).decode_utf8_lossy().into_owned())
                    });
                    let path_parameters = decoded.collect();
                    found.push((
                        literal,
                        Found { method, path: path_parameters, is_upload, request_path: path },
                    ));
                }
            }
        }
        // The path with the most literal characters is meant: `values:batchGet` and not `{range}`.
        found.into_iter().max_by_key(|(literal, _)| *literal).map(|(_, found)| found)
    }
}

/// The number of literal characters, and the parameters.
fn matched(template: &[String], sent: &[String]) -> Option<(usize, Vec<(String, String)>)> {
    if template.len() != sent.len() {
        return None;
    }
    let (mut literal, mut parameters) = (0, Vec::new());
    for (template, sent) in template.iter().zip(sent) {
        match template.split_once('{') {
            None if template == sent => literal += template.len(),
            None => return None,
            Some((before, rest)) => {
                let (name, after) = rest.split_once('}')?;
                let value = sent.strip_prefix(before)?.strip_suffix(after)?;
                if value.is_empty() {
                    return None;
                }
                literal += before.len() + after.len();
                parameters.push((name.trim_start_matches('+').to_owned(), value.to_owned()));
            }
        }
    }
    Some((literal, parameters))
}

impl ApiMethod {
    /// Checks the parameters of the query. Returns the first problem.
    pub(super) fn check_query(&self, query: &[(String, String)]) -> Result<(), String> {
        for (name, value) in query {
            if name == "access_token" || name == "oauth_token" {
                return Err("a token was sent in the URL".to_owned());
            }
            let Some(parameter) = self.parameters.get(name).filter(|known| known["location"] == "query")
            else {
                return Err(format!(
                    "Invalid JSON payload received. Unknown name \"{name}\": Cannot bind query parameter."
                ));
            };
            let is_repeated = query.iter().filter(|(other, _)| other == name).count() > 1;
            if is_repeated && parameter["repeated"] != true {
                return Err(format!("{name} was sent more than once"));
            }
            schema::check_parameter(name, parameter, value)?;
        }
        let required = self
            .parameters
            .iter()
            .filter(|(_, known)| known["location"] == "query" && known["required"] == true);
        for (name, _) in required {
            if !query.iter().any(|(sent, _)| sent == name) {
                return Err(format!("Required parameter: {name}"));
            }
        }
        Ok(())
    }

    /// Checks a body. A body of a method that takes none is a problem.
    pub(super) fn check_body(&self, body: &Value) -> Result<(), String> {
        match (&self.request, body) {
            (None, Value::Null) => Ok(()),
            (None, _) => Err(format!("{} takes no body", self.id)),
            (Some(_), Value::Null) => Ok(()),
            (Some(schema), body) => schema::check(self.schemas(), schema, body, schema::Direction::Request),
        }
    }

    /// Checks an answer of this server itself.
    pub(super) fn check_answer(&self, answer: &Value) -> Result<(), String> {
        match (&self.response, answer) {
            (None, Value::Null) => Ok(()),
            (None, _) => Err(format!("{} has no answer", self.id)),
            (Some(schema), answer) => {
                schema::check(self.schemas(), schema, answer, schema::Direction::Answer)
            }
        }
    }

    fn schemas(&self) -> &'static Value {
        &documents()[self.document]["schemas"]
    }
}
