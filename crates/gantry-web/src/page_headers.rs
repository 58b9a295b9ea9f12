//! The headers of the page and of everything that belongs to it.

use axum::http::{HeaderMap, HeaderName, HeaderValue, header};

/// What the page may load and run. Nothing from elsewhere, nothing inline, and no text becomes markup or code.
pub const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; \
    img-src 'self' blob:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; \
    require-trusted-types-for 'script'; trusted-types 'none'";

/// No feature of the browser but writing to the clipboard.
const PERMISSIONS: &str = "accelerometer=(), autoplay=(), camera=(), clipboard-read=(), clipboard-write=(self), \
    display-capture=(), encrypted-media=(), fullscreen=(), geolocation=(), gyroscope=(), hid=(), \
    identity-credentials-get=(), idle-detection=(), local-fonts=(), magnetometer=(), microphone=(), midi=(), \
    payment=(), picture-in-picture=(), publickey-credentials-get=(), screen-wake-lock=(), serial=(), \
    storage-access=(), usb=(), web-share=(), xr-spatial-tracking=()";

/// Adds the headers that every answer of the page has.
pub(crate) fn protect(headers: &mut HeaderMap) {
    let all = [
        (header::CONTENT_SECURITY_POLICY, CONTENT_SECURITY_POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
        (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
        (HeaderName::from_static("permissions-policy"), PERMISSIONS),
    ];
    for (name, value) in all {
        headers.insert(name, HeaderValue::from_static(value));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A change of the policy has to be made here too, so that none happens in passing.
    #[test]
    fn policy_is_this_one() {
        assert_eq!(
            CONTENT_SECURITY_POLICY,
            "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; connect-src 'self'; \
             base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; \
             trusted-types 'none'"
        );
        for loose in ["unsafe", "http:", "https:", "ws:", "data:", "*"] {
            assert!(!CONTENT_SECURITY_POLICY.contains(loose), "{loose}");
        }
    }
}
