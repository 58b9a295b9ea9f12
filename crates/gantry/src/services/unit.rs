//! Service files: systemd units and launchd property lists for the gateway and for nodes.
#![expect(clippy::disallowed_methods, reason = "service files, whose places the system prescribes")]

use std::fs::{DirBuilder, File};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use gantry_node::UNAUTHORIZED_EXIT;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ServiceManager {
    Systemd,
    Launchd,
}

impl ServiceManager {
    /// Returns this system's service manager.
    pub(crate) fn current() -> ServiceManager {
        if cfg!(target_os = "macos") { ServiceManager::Launchd } else { ServiceManager::Systemd }
    }
}

/// What a service runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Role {
    Gateway,
    /// The node with this id.
    Node(String),
}

/// Who manages a service: a user's own manager, or the system's, which starts it at boot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scope {
    User,
    System,
}

/// Where a service file is, and under which name the manager knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct UnitName {
    pub(crate) manager: ServiceManager,
    pub(crate) role: Role,
    pub(crate) scope: Scope,
}

impl UnitName {
    /// The name of the service, such as `gantry-node-laptop.service` or its launchd form.
    pub(crate) fn name(&self) -> String {
        match (self.manager, &self.role) {
            (ServiceManager::Systemd, Role::Gateway) => "gantry.service".into(),
            (ServiceManager::Systemd, Role::Node(id)) => format!("gantry-node-{id}.service"),
            (ServiceManager::Launchd, Role::Gateway) => "dev.gantry.gateway".into(),
            (ServiceManager::Launchd, Role::Node(id)) => format!("dev.gantry.node.{id}"),
        }
    }

    /// The path at which the service manager expects the file.
    pub(crate) fn file(&self, home: &Path, config_home: Option<&Path>) -> PathBuf {
        let name = self.name();
        match (self.manager, self.scope) {
            (ServiceManager::Systemd, Scope::User) => {
                let config = config_home.map_or_else(|| home.join(".config"), Path::to_owned);
                config.join("systemd/user").join(name)
            }
            (ServiceManager::Systemd, Scope::System) => Path::new("/etc/systemd/system").join(name),
            (ServiceManager::Launchd, Scope::User) => {
                home.join("Library/LaunchAgents").join(format!("{name}.plist"))
            }
            (ServiceManager::Launchd, Scope::System) => {
                Path::new("/Library/LaunchDaemons").join(format!("{name}.plist"))
            }
        }
    }
}

/// One service. It holds no token: its arguments name files.
#[derive(Debug, Clone)]
pub(crate) struct Unit {
    pub(crate) name: UnitName,
    /// An absolute path.
    pub(crate) program: PathBuf,
    pub(crate) args: Vec<String>,
    /// The `PATH` of the service, as in a login shell.
    pub(crate) path: String,
    /// The account of a system service.
    pub(crate) run_as: Option<String>,
    /// How long a stop may take: running calls finish first.
    pub(crate) stop_seconds: u64,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum UnitError {
    #[error("a service file cannot hold {0:?}: it contains a control character")]
    Unspeakable(String),
    #[error("cannot write {}: {source}", path.display())]
    Write { path: PathBuf, source: io::Error },
}

impl Unit {
    /// Returns the text of the service file.
    pub(crate) fn text(&self) -> Result<String, UnitError> {
        let program = self.program.to_string_lossy().into_owned();
        let words = [&program].into_iter().chain(&self.args).chain([&self.path]).chain(&self.run_as);
        if let Some(word) = words.clone().find(|word| word.chars().any(char::is_control)) {
            return Err(UnitError::Unspeakable(word.clone()));
        }
        let command: Vec<&str> =
            std::iter::once(program.as_str()).chain(self.args.iter().map(String::as_str)).collect();
        Ok(match self.name.manager {
            ServiceManager::Systemd => self.systemd(&command),
            ServiceManager::Launchd => self.launchd(&command),
        })
    }

    /// Writes the file. That of a user is readable by the owner only; that of the system by all, as usual.
    pub(crate) fn write(&self, file: &Path) -> Result<(), UnitError> {
        let text = self.text()?;
        let (folder_mode, mode) = match self.name.scope {
            Scope::User => (0o700, 0o600),
            Scope::System => (0o755, 0o644),
        };
        let failed = |source| UnitError::Write { path: file.to_owned(), source };
        if let Some(folder) = file.parent() {
            DirBuilder::new().recursive(true).mode(folder_mode).create(folder).map_err(failed)?;
        }
        let temp = file.with_extension("tmp");
        let mut options = File::options();
        options.write(true).create(true).truncate(true).mode(mode);
        let written = options.open(&temp).and_then(|mut open| open.write_all(text.as_bytes()));
        written.and_then(|()| std::fs::rename(&temp, file)).map_err(failed)
    }

    /// Returns false when there was no file.
    pub(crate) fn remove(file: &Path) -> io::Result<bool> {
        match std::fs::remove_file(file) {
            Ok(()) => Ok(true),
            Err(err) if err.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(err) => Err(err),
        }
    }

    pub(crate) fn is_installed(file: &Path) -> bool {
        file.is_file()
    }

    fn description(&self) -> String {
        match &self.name.role {
            Role::Gateway => "Gantry gateway".into(),
            Role::Node(id) => format!("Gantry node {id}"),
        }
    }

    /// `docs/machines.md` has the reasons for each line, and for the hardening options that are not here: those that
    /// imply `NoNewPrivileges`, hide parts of /proc, or forbid namespaces stop the sandbox or the shells of agents.
    fn systemd(&self, command: &[&str]) -> String {
        let command: Vec<String> = command.iter().map(|word| systemd_word(word)).collect();
        let path = systemd_word(&format!("PATH={}", self.path)).replace("$$", "$");
        let mut lines = vec!["[Unit]".to_owned(), format!("Description={}", self.description())];
        if self.name.scope == Scope::System {
            lines.extend(["Wants=network-online.target", "After=network-online.target"].map(str::to_owned));
        }
        lines.extend(["StartLimitIntervalSec=0", "", "[Service]"].map(str::to_owned));
        lines.extend(self.run_as.iter().map(|user| format!("User={}", user.replace('%', "%%"))));
        lines.extend([format!("ExecStart={}", command.join(" ")), format!("Environment={path}")]);
        lines.extend(["Restart=always", "RestartSec=3"].map(str::to_owned));
        if let Role::Node(_) = self.name.role {
            lines.push(format!("RestartPreventExitStatus={UNAUTHORIZED_EXIT}"));
        }
        lines.extend([
            // Background commands outlive the service; the next start adopts them.
            "KillMode=process".to_owned(),
            format!("TimeoutStopSec={}", self.stop_seconds),
            // A command of an agent that uses too much memory must not end the service.
            "OOMPolicy=continue".to_owned(),
            "LimitNOFILE=65536:524288".to_owned(),
            // The memory of the process holds secrets.
            "LimitCORE=0".to_owned(),
            String::new(),
            "[Install]".to_owned(),
        ]);
        lines.push(match self.name.scope {
            Scope::User => "WantedBy=default.target".to_owned(),
            Scope::System => "WantedBy=multi-user.target".to_owned(),
        });
        lines.push(String::new());
        lines.join("\n")
    }

    /// `AbandonProcessGroup` has the effect of `KillMode=process`.
    fn launchd(&self, command: &[&str]) -> String {
        let command: String =
            command.iter().map(|word| format!("    <string>{}</string>\n", xml_text(word))).collect();
        let user = self.run_as.as_ref();
        let user = user.map(|user| format!("  <key>UserName</key>\n  <string>{}</string>\n", xml_text(user)));
        format!(
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n\
             <!DOCTYPE plist PUBLIC \"-//Apple//DTD PLIST 1.0//EN\" \"http://www.apple.com/DTDs/PropertyList-1.0.dtd\">\n\
             <plist version=\"1.0\">\n\
             <dict>\n  \
               <key>Label</key>\n  <string>{}</string>\n{}  \
               <key>ProgramArguments</key>\n  <array>\n{command}  </array>\n  \
               <key>EnvironmentVariables</key>\n  <dict>\n    <key>PATH</key>\n    <string>{}</string>\n  </dict>\n  \
               <key>RunAtLoad</key>\n  <true/>\n  \
               <key>KeepAlive</key>\n  <true/>\n  \
               <key>ThrottleInterval</key>\n  <integer>3</integer>\n  \
               <key>ExitTimeOut</key>\n  <integer>{}</integer>\n  \
               <key>AbandonProcessGroup</key>\n  <true/>\n\
             </dict>\n\
             </plist>\n",
            self.name.name(),
            user.unwrap_or_default(),
            xml_text(&self.path),
            self.stop_seconds,
        )
    }
}

/// Quotes a word so that systemd expands no variable or specifier in it.
fn systemd_word(word: &str) -> String {
    let mut quoted = String::from("\"");
    for c in word.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            '$' => quoted.push_str("$$"),
            '%' => quoted.push_str("%%"),
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

fn xml_text(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unit(manager: ServiceManager) -> Unit {
        Unit {
            name: UnitName { manager, role: Role::Node("laptop".into()), scope: Scope::User },
            program: "/opt/my tools/gantry".into(),
            args: vec!["node".into(), "--workspace".into(), "/home/me/100% \"$HOME\" & <co>".into()],
            path: "/usr/bin:/home/me/b$n".into(),
            run_as: None,
            stop_seconds: 30,
        }
    }

    fn line(text: &str, key: &str) -> Option<String> {
        text.lines().find_map(|line| line.strip_prefix(key)).map(str::to_owned)
    }

    #[test]
    fn systemd_unit_quotes_restarts_and_keeps_background_processes() {
        let text = unit(ServiceManager::Systemd).text().unwrap();
        let line = |key: &str| line(&text, key).unwrap();
        assert_eq!(
            line("ExecStart="),
            r#""/opt/my tools/gantry" "node" "--workspace" "/home/me/100%% \"$$HOME\" & <co>""#
        );
        assert_eq!(line("RestartPreventExitStatus="), "5", "a rejected token is not retried forever");
        assert_eq!(line("Environment="), r#""PATH=/usr/bin:/home/me/b$n""#);
        assert_eq!(
            (&*line("KillMode="), &*line("Restart="), &*line("RestartSec=")),
            ("process", "always", "3")
        );
        assert_eq!((&*line("TimeoutStopSec="), &*line("OOMPolicy=")), ("30", "continue"));
        assert_eq!(line("WantedBy="), "default.target");
    }

    #[test]
    fn no_option_stops_the_sandbox_or_sudo() {
        let system = UnitName { manager: ServiceManager::Systemd, role: Role::Gateway, scope: Scope::System };
        let text =
            Unit { name: system, run_as: Some("me".into()), ..unit(ServiceManager::Systemd) }.text().unwrap();
        assert_eq!(
            (line(&text, "User=").unwrap(), line(&text, "WantedBy=").unwrap()),
            ("me".into(), "multi-user.target".into())
        );
        for stopping in [
            "NoNewPrivileges",
            "RestrictNamespaces",
            "SystemCallFilter",
            "ProtectKernelTunables",
            "ProtectProc",
            "ProcSubset",
            "PrivateUsers",
            "MemoryDenyWriteExecute",
            "RestrictSUIDSGID",
            "PrivateTmp",
            "PrivateDevices",
        ] {
            assert!(!text.contains(stopping), "{stopping}");
        }
        assert_eq!(line(&text, "RestartPreventExitStatus="), None, "a gateway has no token to lose");
    }

    #[test]
    fn launchd_agent_is_equivalent() {
        let text = unit(ServiceManager::Launchd).text().unwrap();
        for part in [
            "<string>dev.gantry.node.laptop</string>",
            "<string>/home/me/100% \"$HOME\" &amp; &lt;co&gt;</string>",
            "<key>AbandonProcessGroup</key>",
            "<key>KeepAlive</key>",
            "<key>ExitTimeOut</key>\n  <integer>30</integer>",
        ] {
            assert!(text.contains(part), "{part} in {text}");
        }
    }

    #[test]
    fn line_break_is_rejected() {
        let mut with_break = unit(ServiceManager::Systemd);
        with_break.args.push("x\nExecStartPre=/bin/evil".into());
        assert!(matches!(with_break.text(), Err(UnitError::Unspeakable(_))));
        let as_two =
            Unit { run_as: Some("me\nExecStartPre=/bin/evil".into()), ..unit(ServiceManager::Systemd) };
        assert!(matches!(as_two.text(), Err(UnitError::Unspeakable(_))));
    }

    #[test]
    fn files_are_at_the_paths_of_the_manager() {
        let file = |manager, role: Role, scope, config: Option<&str>| {
            UnitName { manager, role, scope }.file(Path::new("/home/me"), config.map(Path::new))
        };
        let node = || Role::Node("a".into());
        let (systemd, launchd) = (ServiceManager::Systemd, ServiceManager::Launchd);
        for (found, expected) in [
            (file(systemd, node(), Scope::User, None), "/home/me/.config/systemd/user/gantry-node-a.service"),
            (file(systemd, node(), Scope::User, Some("/c")), "/c/systemd/user/gantry-node-a.service"),
            (file(systemd, Role::Gateway, Scope::User, None), "/home/me/.config/systemd/user/gantry.service"),
            (file(systemd, Role::Gateway, Scope::System, None), "/etc/systemd/system/gantry.service"),
            (
                file(launchd, node(), Scope::User, None),
                "/home/me/Library/LaunchAgents/dev.gantry.node.a.plist",
            ),
            (
                file(launchd, Role::Gateway, Scope::System, None),
                "/Library/LaunchDaemons/dev.gantry.gateway.plist",
            ),
        ] {
            assert_eq!(found, Path::new(expected));
        }
    }

    #[test]
    fn file_is_written_and_removed() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a/b/x.service");
        let unit = unit(ServiceManager::Systemd);
        unit.write(&file).unwrap();
        assert_eq!(std::fs::read_to_string(&file).unwrap(), unit.text().unwrap());
        assert!(Unit::is_installed(&file));
        assert!(Unit::remove(&file).unwrap() && !Unit::remove(&file).unwrap());
    }
}
