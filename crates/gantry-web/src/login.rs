//! `POST /login` exchanges a one-time code for a page session: a cookie and a key, which only count together.

use std::sync::Arc;
use std::time::Instant;

use axum::Extension;
use axum::body::Bytes;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::Response;
use gantry_domain::http::{header_text, internal_error, json_response, problem};
use gantry_domain::{CallerAddress, page_cookie_name};
use gantry_protocol::{PageLogin, PageLoginResult};
use gantry_store::PAGE_SESSION_IDLE_MS;

use crate::page_headers::protect;
use crate::web_domain::WebState;

/// Longer names of browsers are cut.
const MAX_BROWSER_CHARS: usize = 200;

pub(crate) async fn login(
    Extension(state): Extension<Arc<WebState>>,
    Extension(CallerAddress(address)): Extension<CallerAddress>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let mut response = match exchange(&state, &address.to_string(), &headers, &body).await {
        Ok(response) => response,
        Err(refused) => *refused,
    };
    protect(response.headers_mut());
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

async fn exchange(
    state: &WebState,
    address: &str,
    headers: &HeaderMap,
    body: &[u8],
) -> Result<Response, Box<Response>> {
    let refused = |status, code, message: &str, hint| Err(Box::new(problem(status, code, message, hint)));
    // Only a page has an origin. The gateway has checked that it is its own.
    let Some(origin) = header_text(headers, "origin")? else {
        return refused(StatusCode::FORBIDDEN, "forbidden", "only the gateway's page can log in", None);
    };
    if header_text(headers, "sec-fetch-site")?.is_some_and(|site| site != "same-origin") {
        return refused(StatusCode::FORBIDDEN, "forbidden", "requests from other origins are rejected", None);
    }
    if !header_text(headers, "content-type")?.is_some_and(|kind| kind.starts_with("application/json")) {
        let message = "send the code as application/json: {\"code\": \"…\"}";
        return refused(StatusCode::BAD_REQUEST, "bad_params", message, None);
    }
    let PageLogin { code } = match serde_json::from_slice(body) {
        Ok(login) => login,
        Err(err) => {
            let message = format!("the body is not valid: {err}");
            return refused(StatusCode::BAD_REQUEST, "bad_params", &message, None);
        }
    };
    if !state.codes.redeem(&code, Instant::now()) {
        tracing::warn!(address, "page_login_denied");
        let hint = Some("`gantry page` prints a new link");
        let message = "this link was used or has expired";
        return refused(StatusCode::UNAUTHORIZED, "unauthorized", message, hint);
    }
    let browser = headers.get(header::USER_AGENT).and_then(|name| name.to_str().ok()).unwrap_or("unknown");
    let browser: String = browser.chars().take(MAX_BROWSER_CHARS).collect();
    let made = state.database.add_page_session(&browser, address, crate::web_domain::now_ms()).await;
    let made = made.map_err(|err| Box::new(internal_error("cannot store the page session", &err)))?;
    tracing::info!(address, session = made.id, "page_login");
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    let cookie = cookie(&page_cookie_name(host), made.cookie.expose(), origin.starts_with("https://"));
    let mut response = json_response(
        StatusCode::OK,
        &PageLoginResult { key: made.key.expose().to_owned(), session: made.id },
    );
    match HeaderValue::from_str(&cookie) {
        Ok(cookie) => response.headers_mut().insert(header::SET_COOKIE, cookie),
        Err(err) => return Err(Box::new(internal_error("cannot set the cookie", &err))),
    };
    Ok(response)
}

fn cookie(name: &str, value: &str, secure: bool) -> String {
    let age = PAGE_SESSION_IDLE_MS / 1000;
    let secure = if secure { "; Secure" } else { "" };
    format!("{name}={value}; Path=/; HttpOnly; SameSite=Strict; Max-Age={age}{secure}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cookie_is_out_of_reach_of_scripts_and_other_sites() {
        let plain = cookie("gantry-7770", "v", false);
        assert_eq!(plain, "gantry-7770=v; Path=/; HttpOnly; SameSite=Strict; Max-Age=2592000");
        assert_eq!(cookie("gantry-7770", "v", true), format!("{plain}; Secure"));
    }
}
