//! Which paths hold keys, credentials and shell start files. One list, used whichever tool touches them.

use std::path::{Component, Path};

/// Directories whose whole content is sensitive.
const DIRECTORIES: &[&str] = &[
    ".ssh",
    ".aws",
    ".gnupg",
    ".azure",
    ".kube",
    ".docker",
    ".password-store",
    ".terraform.d",
    "gcloud",
    "keyrings",
];

/// File names, compared without case. Start files have their own list.
const NAMES: &[&str] = &[
    ".netrc",
    "_netrc",
    ".npmrc",
    ".pypirc",
    ".git-credentials",
    ".pgpass",
    ".my.cnf",
    ".vault-token",
    ".htpasswd",
    "authorized_keys",
    "known_hosts",
    "credentials",
    "credentials.json",
    "credentials.toml",
    "hosts.yml",
    "application_default_credentials.json",
    "service-account.json",
    "secrets.json",
    "secrets.toml",
    "secrets.yml",
    "secrets.yaml",
    "config.fish",
    ".bash_history",
    ".zsh_history",
    "shadow",
    "gshadow",
    "sudoers",
];

/// Relative to a home directory.
const IN_HOME: &[&str] = &[
    ".ssh",
    ".aws",
    ".gnupg",
    ".azure",
    ".kube",
    ".docker",
    ".password-store",
    ".config/gcloud",
    ".config/gh",
    ".local/share/keyrings",
    ".netrc",
    ".npmrc",
    ".pypirc",
    ".git-credentials",
    ".pgpass",
    ".my.cnf",
    ".vault-token",
    ".env",
];

/// Files of MCP clients with tokens of servers and their own logins, relative to a home directory. An entry that is a
/// directory includes everything in it.
const MCP_CLIENTS_IN_HOME: &[&str] = &[
    ".claude",
    ".claude.json",
    ".claude.json.backup",
    ".codeium/windsurf/mcp_config.json",
    ".codex/auth.json",
    ".codex/config.toml",
    ".config/claude/claude_desktop_config.json",
    ".config/code - insiders/user/mcp.json",
    ".config/code/user/mcp.json",
    ".config/goose/config.yaml",
    ".config/goose/secrets.yaml",
    ".config/opencode",
    ".config/zed/settings.json",
    ".continue/config.json",
    ".continue/config.yaml",
    ".copilot/mcp-config.json",
    ".cursor/mcp.json",
    ".gemini/oauth_creds.json",
    ".gemini/settings.json",
    ".kiro/settings/mcp.json",
    ".lmstudio/mcp.json",
    ".mcp.json",
    ".local/share/opencode/auth.json",
    ".qwen/settings.json",
    "library/application support/claude/claude_desktop_config.json",
    "library/application support/code/user/mcp.json",
];

/// The entries with capital letters, as they are on disk.
const MCP_CLIENTS_WITH_CAPITALS: &[&str] = &[
    ".config/Claude/claude_desktop_config.json",
    ".config/Code - Insiders/User/mcp.json",
    ".config/Code/User/mcp.json",
    "Library/Application Support/Claude/claude_desktop_config.json",
    "Library/Application Support/Code/User/mcp.json",
];

/// Environment variables that move some of these files: variable, prefix of the affected entries, prefix to remove.
const MOVED_MCP_CLIENTS: &[(&str, &str, &str)] = &[
    ("XDG_CONFIG_HOME", ".config/", ".config/"),
    ("XDG_DATA_HOME", ".local/share/", ".local/share/"),
    ("CODEX_HOME", ".codex/", ".codex/"),
    ("CLAUDE_CONFIG_DIR", ".claude.json", ""),
];

/// Files that shells, sessions, ssh and git execute for their user, relative to a home directory. An entry that is a
/// directory includes everything in it.
const START_FILES_IN_HOME: &[&str] = &[
    ".bashrc",
    ".bash_profile",
    ".bash_login",
    ".bash_logout",
    ".bash_aliases",
    ".profile",
    ".zshrc",
    ".zprofile",
    ".zshenv",
    ".zlogin",
    ".zlogout",
    ".cshrc",
    ".tcshrc",
    ".login",
    ".logout",
    ".kshrc",
    ".xprofile",
    ".xsession",
    ".xsessionrc",
    ".xinitrc",
    ".pam_environment",
    ".inputrc",
    ".gitconfig",
    ".mkshrc",
    ".elvish",
    ".bash_completion",
    ".shrc",
    ".xonshrc",
    ".ssh/rc",
    ".ssh/environment",
    ".ssh/config",
    ".ssh/authorized_keys",
    ".config/bash_completion",
    ".config/zsh",
    ".config/fish",
    ".config/git",
    ".config/nushell",
    ".config/elvish",
    ".config/xonsh",
    ".config/powershell",
    ".config/environment.d",
    ".config/plasma-workspace",
    ".local/share/bash-completion",
    ".local/share/fish",
];

/// Environment variables that move some of these files: variable, prefix of the affected entries, prefix to remove.
const MOVED_START_FILES: &[(&str, &str, &str)] = &[
    ("XDG_CONFIG_HOME", ".config/", ".config/"),
    ("XDG_DATA_HOME", ".local/share/", ".local/share/"),
    ("ZDOTDIR", ".z", ""),
];

/// Environment variables that name a start file of a shell or of git.
const NAMED_START_FILES: &[&str] = &["BASH_ENV", "ENV", "INPUTRC", "GIT_CONFIG_GLOBAL"];

const EXTENSIONS: &[&str] = &["pem", "key", "p12", "pfx", "jks", "keystore", "kdbx", "ppk", "asc", "gpg"];

const ENV_EXAMPLES: &[&str] = &[".env.example", ".env.sample", ".env.template", ".env.dist"];

/// The built-in list plus what the operator adds (absolute directories or files).
#[derive(Debug, Clone, Default, serde::Serialize, serde::Deserialize)]
pub struct SensitivePaths {
    extra: Vec<std::path::PathBuf>,
    /// Start files that the environment has moved elsewhere.
    moved: Vec<std::path::PathBuf>,
    /// Files of MCP clients, at the paths that the environment sets.
    clients: Vec<std::path::PathBuf>,
}

impl SensitivePaths {
    pub fn new(extra: Vec<std::path::PathBuf>) -> Self {
        SensitivePaths { extra, ..SensitivePaths::default() }
    }

    /// Adds start files that the environment has moved.
    #[must_use]
    pub fn with_moved_start_files(
        self,
        variable: impl Fn(&str) -> Option<std::path::PathBuf>,
    ) -> SensitivePaths {
        SensitivePaths { moved: SensitivePaths::moved_start_files(variable), ..self }
    }

    /// Adds the files of MCP clients in this home, and those that the environment has moved. All paths are resolved.
    #[must_use]
    pub fn with_mcp_clients(
        self,
        home: &Path,
        variable: impl Fn(&str) -> Option<std::path::PathBuf>,
    ) -> SensitivePaths {
        let mut clients: Vec<_> = mcp_clients().map(|place| home.join(place)).collect();
        for (name, begin, cut) in MOVED_MCP_CLIENTS {
            let Some(directory) = variable(name) else { continue };
            let places = mcp_clients().filter(|place| place.starts_with(begin));
            clients.extend(
                places.filter_map(|place| place.strip_prefix(cut)).map(|place| directory.join(place)),
            );
            // The folder holds other files of Claude Code too.
            clients.extend((*name == "CLAUDE_CONFIG_DIR").then_some(directory));
        }
        SensitivePaths { clients, ..self }
    }

    /// The paths of keys and credentials in a home directory, and those the operator added. For sandboxes, which need
    /// paths and not names. Start files are not included, because every login shell reads them.
    pub fn in_home(&self, home: &Path) -> Vec<std::path::PathBuf> {
        let places = IN_HOME.iter().copied().chain(mcp_clients()).map(|place| home.join(place));
        places.chain(self.extra.iter().chain(&self.clients).cloned()).collect()
    }

    /// The start files in a home directory. Confined commands may read them and must not write them.
    pub fn start_files(home: &Path) -> Vec<std::path::PathBuf> {
        START_FILES_IN_HOME.iter().map(|place| home.join(place)).collect()
    }

    /// The start files that the environment has moved. `variable` returns the absolute path in a variable.
    pub fn moved_start_files(
        variable: impl Fn(&str) -> Option<std::path::PathBuf>,
    ) -> Vec<std::path::PathBuf> {
        let mut moved: Vec<_> = NAMED_START_FILES.iter().filter_map(|name| variable(name)).collect();
        for (name, begin, cut) in MOVED_START_FILES {
            let Some(directory) = variable(name) else { continue };
            let places = START_FILES_IN_HOME.iter().filter(|place| place.starts_with(begin));
            moved.extend(
                places.filter_map(|place| place.strip_prefix(cut)).map(|place| directory.join(place)),
            );
        }
        moved
    }

    /// Whether the path shows the memory or environment of a process.
    pub(crate) fn is_of_a_process(path: &Path) -> bool {
        is_process_secret(&names(path))
    }

    pub fn contains(&self, path: &Path) -> bool {
        let components = names(path);
        let name = components.last().map(String::as_str).unwrap_or_default();
        components.iter().any(|component| DIRECTORIES.contains(&component.as_str()))
            || NAMES.contains(&name)
            || is_private_key_name(name)
            || is_env_file(name)
            || Path::new(name).extension().is_some_and(|ext| EXTENSIONS.iter().any(|known| ext == *known))
            || is_process_secret(&components)
            || is_start_file(&components)
            || is_of_mcp_client(&components)
            || self.extra.iter().chain(&self.moved).chain(&self.clients).any(|place| path.starts_with(place))
    }
}

fn names(path: &Path) -> Vec<String> {
    let name = |component| match component {
        Component::Normal(name) => Some(name.to_string_lossy().to_lowercase()),
        _ => None,
    };
    path.components().filter_map(name).collect()
}

fn is_private_key_name(name: &str) -> bool {
    ["id_rsa", "id_dsa", "id_ecdsa", "id_ed25519"].iter().any(|key| {
        name.strip_prefix(key).is_some_and(|rest| rest.is_empty() || rest == ".pub" || rest == "_sk")
    })
}

fn is_env_file(name: &str) -> bool {
    (name == ".env" || name.starts_with(".env.") || name == ".envrc") && !ENV_EXAMPLES.contains(&name)
}

fn mcp_clients() -> impl Iterator<Item = &'static str> {
    MCP_CLIENTS_IN_HOME.iter().chain(MCP_CLIENTS_WITH_CAPITALS).copied()
}

/// Checks the usual home directories only: the `.claude` folder of a project is not sensitive.
fn is_of_mcp_client(components: &[String]) -> bool {
    let names: Vec<&str> = components.iter().map(String::as_str).collect();
    let in_home = match names[..] {
        ["home" | "users", _, ..] => &names[2..],
        ["root", ..] => &names[1..],
        _ => return false,
    };
    MCP_CLIENTS_IN_HOME.iter().any(|place| {
        let place: Vec<&str> = place.split('/').collect();
        in_home.starts_with(&place)
    })
}

/// Matches in any home directory, and below directories of start files.
fn is_start_file(components: &[String]) -> bool {
    START_FILES_IN_HOME.iter().any(|place| {
        let is_one = |names: &[String]| names.iter().map(String::as_str).eq(place.split('/'));
        components.windows(place.split('/').count()).any(is_one)
    })
}

/// `/proc/<pid>/environ` and `/proc/<pid>/mem` show other programs' secrets.
fn is_process_secret(components: &[String]) -> bool {
    components.first().is_some_and(|first| first == "proc")
        && components.last().is_some_and(|last| last == "environ" || last == "mem")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_in_a_home_are_sensitive_by_name_too() {
        let sensitive = SensitivePaths::new(vec!["/srv/vault".into()]);
        let places = sensitive.in_home(Path::new("/home/u"));
        assert!(places.contains(&"/home/u/.ssh".into()) && places.contains(&"/srv/vault".into()));
        for place in places.iter().filter(|place| !place.ends_with(".config/gh")) {
            assert!(sensitive.contains(place), "{}", place.display());
        }
        for place in SensitivePaths::start_files(Path::new("/home/u")) {
            assert!(sensitive.contains(&place) && !places.contains(&place), "{}", place.display());
        }
    }

    #[test]
    fn knows_keys_credentials_and_start_files() {
        let sensitive = SensitivePaths::new(vec!["/srv/vault".into()]);
        for path in [
            "/home/u/.ssh/config",
            "/home/u/.AWS/credentials",
            "/x/.gnupg/a",
            "/home/u/.bashrc",
            "/p/.env",
            "/p/.env.local",
            "/p/server.pem",
            "/p/ID_RSA",
            "/proc/12/environ",
            "/etc/shadow",
            "/srv/vault/a",
            "/home/u/.config/gh/hosts.yml",
            "/home/u/.config/git/config",
            "/home/u/.config/fish/conf.d/x.fish",
            "/home/u/.inputrc",
            "/home/u/.elvish/rc.elv",
            "/home/u/.config/nushell/config.nu",
            "/home/u/.local/share/fish/vendor_conf.d/x.fish",
            "/home/u/.local/share/bash-completion/completions/x",
            "/home/u/.config/bash_completion",
            "/home/u/.config/zsh/.zshrc",
            "/home/u/.shrc",
        ] {
            assert!(sensitive.contains(Path::new(path)), "{path}");
        }
        for path in [
            "/p/src/main.rs",
            "/p/.env.example",
            "/p/environ",
            "/p/keys.rs",
            "/p/ssh/config",
            "/srv/vaults/a",
            "/home/u/.config/nvim/init.lua",
            "/home/u/.local/share/applications/x",
            "/p/fish/git",
            "/",
        ] {
            assert!(!sensitive.contains(Path::new(path)), "{path}");
        }
    }

    #[test]
    fn files_of_mcp_clients_are_sensitive_in_every_home() {
        let anybodys = SensitivePaths::default();
        let ours = SensitivePaths::default().with_mcp_clients(Path::new("/srv/me"), |name| match name {
            "CODEX_HOME" => Some("/srv/codex".into()),
            "CLAUDE_CONFIG_DIR" => Some("/srv/claude".into()),
            _ => None,
        });
        for place in [
            ".claude.json",
            ".claude/settings.json",
            ".codex/config.toml",
            ".codex/auth.json",
            ".cursor/mcp.json",
            ".config/Claude/claude_desktop_config.json",
            "Library/Application Support/Claude/claude_desktop_config.json",
            ".config/opencode/opencode.json",
            ".gemini/settings.json",
            ".config/Code/User/mcp.json",
            ".config/goose/config.yaml",
            ".codeium/windsurf/mcp_config.json",
        ] {
            for home in ["/home/u", "/root", "/Users/u"] {
                assert!(anybodys.contains(&Path::new(home).join(place)), "{home}/{place}");
            }
            assert!(ours.contains(&Path::new("/srv/me").join(place)), "{place}");
            let closed = ours.in_home(Path::new("/srv/me"));
            let file = Path::new("/srv/me").join(place);
            assert!(closed.iter().any(|closed| file.starts_with(closed)), "{place}");
        }
        for path in ["/srv/codex/auth.json", "/srv/claude/.claude.json", "/srv/claude/x"] {
            assert!(ours.contains(Path::new(path)), "{path}");
        }
        for path in [
            "/home/u/project/.claude/CLAUDE.md",
            "/srv/me/p/.claude/x",
            "/home/u/.codex/log",
            "/home/u/.config/x",
        ] {
            assert!(!ours.contains(Path::new(path)), "{path}");
        }
    }

    #[test]
    fn start_files_move_with_the_environment() {
        let moved = SensitivePaths::moved_start_files(|name| match name {
            "XDG_CONFIG_HOME" => Some("/c".into()),
            "ZDOTDIR" => Some("/z".into()),
            "BASH_ENV" => Some("/z/env".into()),
            _ => None,
        });
        for place in
            ["/c/fish", "/c/git", "/c/environment.d", "/z/env", "/z/.zshrc", "/z/.zshenv", "/z/.zlogout"]
        {
            assert!(moved.contains(&place.into()), "{place}: {moved:?}");
        }
        assert!(moved.iter().all(|place| place.starts_with("/c") || place.starts_with("/z")), "{moved:?}");
        assert!(!moved.contains(&"/z/.bashrc".into()) && !moved.contains(&"/c/.zshrc".into()), "{moved:?}");
        assert!(SensitivePaths::moved_start_files(|_| None).is_empty());
        let paths = SensitivePaths::default()
            .with_moved_start_files(|name| (name == "XDG_CONFIG_HOME").then(|| "/c".into()));
        assert!(paths.contains(Path::new("/c/git/config")) && !paths.contains(Path::new("/c/other/config")));
    }
}
