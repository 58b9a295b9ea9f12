//! Form bodies, encoded as browsers do it.

use gantry_net::Url;

/// Returns `a=1&b=2+3`.
pub(super) fn encoded(fields: &[(&str, String)]) -> Vec<u8> {
    let Ok(mut url) = Url::parse("http://form.invalid/") else { return Vec::new() };
    url.query_pairs_mut().extend_pairs(fields);
    url.query().unwrap_or_default().as_bytes().to_vec()
}

/// Encodes one value of a form.
pub(super) fn encode_value(text: &str) -> String {
    let pair = encoded(&[("", text.to_owned())]);
    String::from_utf8_lossy(&pair).strip_prefix('=').unwrap_or_default().to_owned()
}
