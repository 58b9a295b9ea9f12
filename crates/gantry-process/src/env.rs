//! Selects which variables a command inherits, by the kind of caller.
//!
//! These are pure functions on a list. Nothing here reads the environment; the binary passes it in.

use std::ffi::{OsStr, OsString};

/// An ordered list of variables.
pub type Variables = Vec<(OsString, OsString)>;

/// `Isolation` says how strictly an assistant's shell is separated from its environment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Isolation {
    Shared,
    Scoped,
    /// Like `Shared`, plus the variables that the operator configured.
    Sandboxed,
    /// Exactly `PATH`, `HOME` and `TMPDIR`.
    AirGapped,
}

/// Passes everything except Gantry's own variables and the keys of model and search providers.
pub fn inherited(variables: impl IntoIterator<Item = (OsString, OsString)>) -> Variables {
    keep(variables, |name| !name.starts_with("GANTRY_") && !is_provider_key(name))
}

/// Passes exactly the six variables that guarded commands receive.
pub fn guarded(variables: impl IntoIterator<Item = (OsString, OsString)>) -> Variables {
    keep(variables, |name| matches!(name, "PATH" | "HOME" | "USER" | "LANG" | "TERM" | "NODE_ENV"))
}

/// Passes the assistant's allow-list. `Sandboxed` also adds `configured`, which replaces inherited
/// variables of the same name.
pub fn assistant(
    variables: impl IntoIterator<Item = (OsString, OsString)>,
    isolation: Isolation,
    configured: &[(OsString, OsString)],
) -> Variables {
    match isolation {
        Isolation::AirGapped => keep(variables, |name| matches!(name, "PATH" | "HOME" | "TMPDIR")),
        Isolation::Shared | Isolation::Scoped => keep(variables, assistant_may_see),
        Isolation::Sandboxed => {
            let mut kept = keep(variables, assistant_may_see);
            // The operator chose these variables, so credentials pass. Variables that load code
            // into every program do not.
            for (name, value) in configured.iter().filter(|(name, _)| !loads_code(name)) {
                kept.retain(|(inherited, _)| inherited != name);
                kept.push((name.clone(), value.clone()));
            }
            kept
        }
    }
}

fn keep(
    variables: impl IntoIterator<Item = (OsString, OsString)>,
    wanted: impl Fn(&str) -> bool,
) -> Variables {
    // A name that is not valid UTF-8 is on no list, so it is dropped.
    variables.into_iter().filter(|(name, _)| name.to_str().is_some_and(&wanted)).collect()
}

/// Provider credentials whose names do not end like a credential.
const PROVIDER_CREDENTIALS: &[&str] = &[
    "ANTHROPIC_AUTH_TOKEN",
    "AWS_BEARER_TOKEN_BEDROCK",
    "CLAUDE_CODE_OAUTH_TOKEN",
    "HF_TOKEN",
    "HUGGING_FACE_HUB_TOKEN",
    "OPENAI_ADMIN_KEY",
    "REPLICATE_API_TOKEN",
];

fn is_provider_key(name: &str) -> bool {
    let upper = name.to_ascii_uppercase();
    upper.ends_with("_API_KEY")
        || upper.ends_with("_API_KEYS")
        || PROVIDER_CREDENTIALS.contains(&upper.as_str())
}

/// Variables that shells, command-line tools and build systems need. None of them carries a secret
/// or code.
const ASSISTANT_NAMES: &[&str] = &[
    "CI",
    "CLICOLOR",
    "COLORTERM",
    "COLUMNS",
    "EDITOR",
    "FORCE_COLOR",
    "HOME",
    "HOSTNAME",
    "LANG",
    "LANGUAGE",
    "LINES",
    "LOGNAME",
    "NO_COLOR",
    "OLDPWD",
    "PAGER",
    "PATH",
    "PWD",
    "SHELL",
    "SHLVL",
    "TEMP",
    "TERM",
    "TERM_PROGRAM",
    "TMP",
    "TMPDIR",
    "TZ",
    "USER",
    "VISUAL",
];

const ASSISTANT_PREFIXES: &[&str] = &["LC_", "XDG_", "GIT_", "NODE_"];

/// A name that contains one of these carries a credential.
const CREDENTIAL_PARTS: &[&str] =
    &["TOKEN", "SECRET", "PASSWORD", "PASSWD", "PASSPHRASE", "CREDENTIAL", "COOKIE", "AUTHORIZATION"];

/// A word with one of these endings carries a credential: `KEY`, `APIKEY`, `OAUTH2`. In other
/// positions the letters mean nothing: `AUTHOR`.
const CREDENTIAL_ENDINGS: &[&str] = &["KEY", "KEYS", "AUTH"];

/// Variables under the allowed prefixes that name a program or code to run, or a location to load
/// it from.
const STARTS_PROGRAMS: &[&str] = &[
    "GIT_ALTERNATE_OBJECT_DIRECTORIES",
    "GIT_ASKPASS",
    "GIT_ATTR_SOURCE",
    "GIT_COMMON_DIR",
    "GIT_DIR",
    "GIT_EDITOR",
    "GIT_EXEC_PATH",
    "GIT_EXTERNAL_DIFF",
    "GIT_MAN_VIEWER",
    "GIT_OBJECT_DIRECTORY",
    "GIT_PAGER",
    "GIT_SEQUENCE_EDITOR",
    "GIT_SHELL_PATH",
    "GIT_SSH",
    "GIT_SSH_COMMAND",
    "GIT_SSH_VARIANT",
    "GIT_TEMPLATE_DIR",
    "NODE_CHANNEL_FD",
    "NODE_EXTRA_CA_CERTS",
    "NODE_OPTIONS",
    "NODE_PATH",
    "NODE_REPL_EXTERNAL_MODULE",
    "NODE_TLS_REJECT_UNAUTHORIZED",
    "NODE_V8_COVERAGE",
];

/// Whole families of such variables: git reads configuration, and with it commands, from these.
/// Git's trace variables write files.
const STARTS_PROGRAMS_PREFIXES: &[&str] = &["GIT_CONFIG", "GIT_PROXY_", "GIT_TRACE", "GIT_TRACE2"];

fn assistant_may_see(name: &str) -> bool {
    let upper = name.to_ascii_uppercase();
    if carries_credential(&upper) {
        return false;
    }
    if STARTS_PROGRAMS.contains(&upper.as_str())
        || STARTS_PROGRAMS_PREFIXES.iter().any(|prefix| upper.starts_with(prefix))
    {
        return false;
    }
    ASSISTANT_NAMES.contains(&name) || ASSISTANT_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

fn carries_credential(upper: &str) -> bool {
    let mut words = upper.split('_').map(|word| word.trim_end_matches(|c: char| c.is_ascii_digit()));
    CREDENTIAL_PARTS.iter().any(|part| upper.contains(part))
        || words.any(|word| CREDENTIAL_ENDINGS.iter().any(|ending| word.ends_with(ending)))
}

/// Reports whether the name belongs to the dynamic linker, on Linux or macOS.
fn loads_code(name: &OsStr) -> bool {
    name.to_str().is_none_or(|name| name.starts_with("LD_") || name.starts_with("DYLD_"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each row is a name, then whether `inherited`, `guarded`, `assistant` (shared) and
    /// `assistant` (air-gapped) pass it.
    const TABLE: &[(&str, &str)] = &[
        ("PATH", "igax"),
        ("HOME", "igax"),
        ("USER", "iga-"),
        ("LANG", "iga-"),
        ("TERM", "iga-"),
        ("NODE_ENV", "iga-"),
        ("TMPDIR", "i-ax"),
        ("LOGNAME", "i-a-"),
        ("SHELL", "i-a-"),
        ("TZ", "i-a-"),
        ("TMP", "i-a-"),
        ("TEMP", "i-a-"),
        ("PWD", "i-a-"),
        ("HOSTNAME", "i-a-"),
        ("EDITOR", "i-a-"),
        ("VISUAL", "i-a-"),
        ("PAGER", "i-a-"),
        ("COLORTERM", "i-a-"),
        ("NO_COLOR", "i-a-"),
        ("FORCE_COLOR", "i-a-"),
        ("CI", "i-a-"),
        ("LC_ALL", "i-a-"),
        ("LC_CTYPE", "i-a-"),
        ("XDG_RUNTIME_DIR", "i-a-"),
        ("XDG_CONFIG_HOME", "i-a-"),
        ("XDG_SESSION_TYPE", "i-a-"),
        ("GIT_AUTHOR_NAME", "i-a-"),
        ("GIT_AUTHOR_EMAIL", "i-a-"),
        ("GIT_AUTHOR_DATE", "i-a-"),
        ("XDG_KEYBOARD", "i-a-"),
        ("GIT_AUTH", "i---"),
        ("NODE_OAUTH2_ID", "i---"),
        ("NODE_AUTH0_ID", "i---"),
        ("NODE_AUTHORIZATION", "i---"),
        ("NODE_APIKEY", "i---"),
        ("NODE_SIGNING_KEYS", "i---"),
        ("GIT_COMMITTER_EMAIL", "i-a-"),
        ("GIT_TERMINAL_PROMPT", "i-a-"),
        ("NODE_NO_WARNINGS", "i-a-"),
        ("NODE_DEBUG", "i-a-"),
        // These start a program, or lead to one.
        ("NODE_OPTIONS", "i---"),
        ("NODE_PATH", "i---"),
        ("NODE_REPL_EXTERNAL_MODULE", "i---"),
        ("NODE_EXTRA_CA_CERTS", "i---"),
        ("NODE_TLS_REJECT_UNAUTHORIZED", "i---"),
        ("NODE_CHANNEL_FD", "i---"),
        ("GIT_SSH", "i---"),
        ("GIT_SSH_COMMAND", "i---"),
        ("GIT_ASKPASS", "i---"),
        ("GIT_EXTERNAL_DIFF", "i---"),
        ("GIT_PAGER", "i---"),
        ("GIT_EDITOR", "i---"),
        ("GIT_SEQUENCE_EDITOR", "i---"),
        ("GIT_PROXY_COMMAND", "i---"),
        ("GIT_CONFIG", "i---"),
        ("GIT_CONFIG_COUNT", "i---"),
        ("GIT_CONFIG_KEY_0", "i---"),
        ("GIT_CONFIG_VALUE_0", "i---"),
        ("GIT_CONFIG_GLOBAL", "i---"),
        ("GIT_CONFIG_PARAMETERS", "i---"),
        ("GIT_EXEC_PATH", "i---"),
        ("GIT_TEMPLATE_DIR", "i---"),
        ("GIT_DIR", "i---"),
        ("GIT_TRACE", "i---"),
        ("GIT_TRACE2_EVENT", "i---"),
        ("LD_PRELOAD", "i---"),
        ("LD_LIBRARY_PATH", "i---"),
        ("LD_AUDIT", "i---"),
        ("DYLD_INSERT_LIBRARIES", "i---"),
        ("BASH_ENV", "i---"),
        ("ENV", "i---"),
        ("PROMPT_COMMAND", "i---"),
        ("PS4", "i---"),
        ("SHELLOPTS", "i---"),
        ("BASH_FUNC_ls%%", "i---"),
        ("IFS", "i---"),
        ("PYTHONSTARTUP", "i---"),
        ("PYTHONPATH", "i---"),
        ("PERL5OPT", "i---"),
        ("PERL5LIB", "i---"),
        ("RUBYOPT", "i---"),
        ("JAVA_TOOL_OPTIONS", "i---"),
        ("RUSTC_WRAPPER", "i---"),
        ("LESSOPEN", "i---"),
        ("SSH_ASKPASS", "i---"),
        ("SSH_AUTH_SOCK", "i---"),
        ("MANPAGER", "i---"),
        // These carry a credential.
        ("GITHUB_TOKEN", "i---"),
        ("GIT_TOKEN", "i---"),
        ("git_password", "i---"),
        ("GIT_HTTP_AUTHORIZATION", "i---"),
        ("NODE_AUTH_TOKEN", "i---"),
        ("NODE_Secret_Thing", "i---"),
        ("XDG_SECRET", "i---"),
        ("LC_KEY", "i---"),
        ("NPM_TOKEN", "i---"),
        ("AWS_SECRET_ACCESS_KEY", "i---"),
        ("AWS_ACCESS_KEY_ID", "i---"),
        ("DATABASE_URL", "i---"),
        ("PGPASSWORD", "i---"),
        // These are Gantry's own, or provider keys.
        ("GANTRY_DATA_DIR", "----"),
        ("GANTRY_", "----"),
        ("ANTHROPIC_API_KEY", "----"),
        ("ANTHROPIC_AUTH_TOKEN", "----"),
        ("OPENAI_API_KEY", "----"),
        ("GEMINI_API_KEY", "----"),
        ("TAVILY_API_KEY", "----"),
        ("BRAVE_API_KEY", "----"),
        ("Some_New_Api_Key", "----"),
        ("HF_TOKEN", "----"),
        // These only look like allowed names.
        ("path", "i---"),
        ("PATHX", "i---"),
        ("NODE", "i---"),
        ("GIT", "i---"),
        ("MY_GIT_DIR", "i---"),
    ];

    #[test]
    fn each_filter_passes_exactly_its_names() {
        assert!(TABLE.len() >= 80);
        for (name, expected) in TABLE {
            let one = || [(OsString::from(name), OsString::from("value"))];
            let passes = [
                ('i', inherited(one())),
                ('g', guarded(one())),
                ('a', assistant(one(), Isolation::Shared, &[])),
                ('x', assistant(one(), Isolation::AirGapped, &[])),
            ];
            let actual: String =
                passes.iter().map(|(mark, kept)| if kept.is_empty() { '-' } else { *mark }).collect();
            assert_eq!(&actual, expected, "{name}");
            assert_eq!(assistant(one(), Isolation::Scoped, &[]), assistant(one(), Isolation::Shared, &[]));
        }
    }

    #[test]
    fn configured_variables_reach_only_sandboxed_shells_and_never_load_code() {
        let pair = |name: &str, value: &str| (OsString::from(name), OsString::from(value));
        let configured =
            [pair("MY_TOKEN", "t"), pair("LANG", "C"), pair("LD_PRELOAD", "x"), pair("DYLD_X", "x")];
        let variables = || [pair("PATH", "/bin"), pair("LANG", "de"), pair("OTHER", "o")];
        assert_eq!(
            assistant(variables(), Isolation::Sandboxed, &configured),
            [pair("PATH", "/bin"), pair("MY_TOKEN", "t"), pair("LANG", "C")]
        );
        for isolation in [Isolation::Shared, Isolation::Scoped] {
            assert_eq!(
                assistant(variables(), isolation, &configured),
                [pair("PATH", "/bin"), pair("LANG", "de")]
            );
        }
        assert_eq!(assistant(variables(), Isolation::AirGapped, &configured), [pair("PATH", "/bin")]);
    }
}
