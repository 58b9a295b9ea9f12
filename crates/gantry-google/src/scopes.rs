//! OAuth scopes by their short names: `gmail.send` is `https://www.googleapis.com/auth/gmail.send`.

const PREFIX: &str = "https://www.googleapis.com/auth/";
/// The only scope of Gmail outside the common prefix.
const ALL_MAIL: (&str, &str) = ("mail.google.com", "https://mail.google.com/");

/// The scopes of a first sign-in. All of them only read.
pub(crate) const DEFAULT: &[&str] =
    &["gmail.readonly", "spreadsheets.readonly", "drive.readonly", "calendar.readonly", "documents.readonly"];

/// Returns the full name of a scope.
pub(crate) fn full(short: &str) -> String {
    match short {
        short if short == ALL_MAIL.0 => ALL_MAIL.1.to_owned(),
        "openid" | "email" | "profile" => short.to_owned(),
        short if short.starts_with("https://") => short.to_owned(),
        short => format!("{PREFIX}{short}"),
    }
}

/// Returns the short name of a scope.
pub(crate) fn short(full: &str) -> &str {
    match full {
        full if full == ALL_MAIL.1 => ALL_MAIL.0,
        full => full.strip_prefix(PREFIX).unwrap_or(full),
    }
}

/// Whether one of the accepted scopes was granted.
pub(crate) fn suffices(granted: &[String], accepted: &[&str]) -> bool {
    accepted.iter().any(|accepted| granted.iter().any(|granted| short(granted) == *accepted))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_convert_both_ways() {
        for name in ["gmail.send", "mail.google.com", "openid"] {
            assert_eq!(short(&full(name)), name);
        }
        assert!(suffices(&[full("drive")], &["drive.readonly", "drive"]));
        assert!(!suffices(&[full("drive.file")], &["drive.readonly", "drive"]));
    }
}
