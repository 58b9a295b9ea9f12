//! OAuth scopes by their short names: `gmail.send` is `https://www.googleapis.com/auth/gmail.send`.

const PREFIX: &str = "https://www.googleapis.com/auth/";
/// The only scope of Gmail outside the common prefix.
const ALL_MAIL: (&str, &str) = ("mail.google.com", "https://mail.google.com/");

/// The scopes of a first sign-in. All of them only read.
pub(crate) const DEFAULT: &[&str] =
    &["gmail.readonly", "spreadsheets.readonly", "drive.readonly", "calendar.readonly", "documents.readonly"];

/// The scopes that the tools can use.
const KNOWN: [&str; 23] = [
    "gmail.readonly",
    "gmail.metadata",
    "gmail.labels",
    "gmail.send",
    "gmail.compose",
    "gmail.modify",
    "mail.google.com",
    "spreadsheets.readonly",
    "spreadsheets",
    "drive.metadata.readonly",
    "drive.metadata",
    "drive.readonly",
    "drive.file",
    "drive",
    "calendar.readonly",
    "calendar.freebusy",
    "calendar.events.freebusy",
    "calendar.events.readonly",
    "calendar.events",
    "calendar",
    "documents.readonly",
    "documents",
    "calendar.calendarlist.readonly",
];

/// Checks a scope that a person wrote, and returns its short name.
pub fn check(scope: &str) -> Result<&str, String> {
    let name = short(scope.trim());
    if KNOWN.contains(&name) {
        return Ok(name);
    }
    let near = gantry_tool::nearest(name, KNOWN);
    let near = near.first().map_or_else(String::new, |near| format!("; did you mean {near}?"));
    Err(format!("{name:?} is not a scope that the tools can use{near}"))
}

/// What a scope allows, as words before an account's address.
pub(crate) fn purpose(scope: &str) -> &'static str {
    match scope {
        "gmail.send" => "send mail as",
        "gmail.compose" => "write drafts and send mail as",
        "gmail.modify" | "mail.google.com" => "read, change and send the mail of",
        "gmail.readonly" | "gmail.metadata" | "gmail.labels" => "read the mail of",
        "spreadsheets" => "read and change the spreadsheets of",
        "spreadsheets.readonly" => "read the spreadsheets of",
        "documents" => "read and change the documents of",
        "documents.readonly" => "read the documents of",
        "drive" => "read and change all files of",
        "drive.file" => "create files in the Drive of",
        "drive.metadata" => "rename and move the files of",
        "drive.readonly" | "drive.metadata.readonly" => "read the files of",
        "calendar" => "read and change the calendars of",
        "calendar.events" => "read and change the events of",
        _ => "read the calendars of",
    }
}

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
