//! The service file that runs a node as a user service. The caller talks to the service manager.
#![expect(clippy::disallowed_methods, reason = "service files, whose places the system prescribes")]

use std::fs::{DirBuilder, File};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// The exit code of a node whose token the gateway rejects. The service manager does not restart it then.
pub const UNAUTHORIZED_EXIT: u8 = 5;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServiceManager {
    Systemd,
    Launchd,
}

impl ServiceManager {
    /// Returns this system's service manager.
    pub fn current() -> ServiceManager {
        if cfg!(target_os = "macos") { ServiceManager::Launchd } else { ServiceManager::Systemd }
    }
}

/// The service of one node. It holds no token: the arguments name the token file.
#[derive(Debug, Clone)]
pub struct UserService {
    pub manager: ServiceManager,
    pub id: String,
    /// An absolute path.
    pub program: PathBuf,
    pub args: Vec<String>,
    /// The `PATH` of the service, as in a login shell.
    pub path: String,
}

#[derive(Debug, thiserror::Error)]
pub enum ServiceError {
    #[error("a service file cannot hold {0:?}: it contains a control character")]
    Unspeakable(String),
    #[error("cannot write {}: {source}", path.display())]
    Write { path: PathBuf, source: io::Error },
}

impl UserService {
    /// The name of the service, such as `gantry-node-laptop` or its launchd form.
    pub fn name(manager: ServiceManager, id: &str) -> String {
        match manager {
            ServiceManager::Systemd => format!("gantry-node-{id}.service"),
            ServiceManager::Launchd => format!("dev.gantry.node.{id}"),
        }
    }

    /// The path at which the service manager expects the file.
    pub fn file(manager: ServiceManager, id: &str, home: &Path, config_home: Option<&Path>) -> PathBuf {
        let name = UserService::name(manager, id);
        match manager {
            ServiceManager::Systemd => {
                let config = config_home.map_or_else(|| home.join(".config"), Path::to_owned);
                config.join("systemd/user").join(name)
            }
            ServiceManager::Launchd => home.join("Library/LaunchAgents").join(format!("{name}.plist")),
        }
    }

    /// Returns the text of the service file.
    pub fn text(&self) -> Result<String, ServiceError> {
        let program = self.program.to_string_lossy().into_owned();
        let words: Vec<&String> = [&program].into_iter().chain(&self.args).chain([&self.path]).collect();
        if let Some(word) = words.iter().find(|word| word.chars().any(char::is_control)) {
            return Err(ServiceError::Unspeakable((*word).clone()));
        }
        let command = [&program].into_iter().chain(&self.args);
        Ok(match self.manager {
            ServiceManager::Systemd => systemd(&self.id, command, &self.path),
            ServiceManager::Launchd => launchd(&self.id, command, &self.path),
        })
    }

    /// Writes the file, readable by its owner only.
    pub fn write(&self, file: &Path) -> Result<(), ServiceError> {
        let text = self.text()?;
        let failed = |source| ServiceError::Write { path: file.to_owned(), source };
        if let Some(folder) = file.parent() {
            DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(failed)?;
        }
        let temp = file.with_extension("tmp");
        let mut options = File::options();
        options.write(true).create(true).truncate(true).mode(0o600);
        let written = options.open(&temp).and_then(|mut open| open.write_all(text.as_bytes()));
        written.and_then(|()| std::fs::rename(&temp, file)).map_err(failed)
    }

    /// Returns false when there was no file.
    pub fn remove(file: &Path) -> io::Result<bool> {
        match std::fs::remove_file(file) {
            Ok(()) => Ok(true),
            Err(err) if err.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(err) => Err(err),
        }
    }

    pub fn is_installed(file: &Path) -> bool {
        file.is_file()
    }
}

/// `KillMode=process` lets background processes outlive the node; the next start adopts them.
fn systemd<'a>(id: &str, command: impl Iterator<Item = &'a String>, path: &str) -> String {
    let command: Vec<String> = command.map(|word| systemd_word(word)).collect();
    format!(
        "[Unit]\n\
         Description=Gantry node {id}\n\
         StartLimitIntervalSec=0\n\
         \n\
         [Service]\n\
         ExecStart={}\n\
         Environment={}\n\
         Restart=always\n\
         RestartSec=3\n\
         RestartPreventExitStatus={UNAUTHORIZED_EXIT}\n\
         KillMode=process\n\
         \n\
         [Install]\n\
         WantedBy=default.target\n",
        command.join(" "),
        systemd_word(&format!("PATH={path}")).replace("$$", "$"),
    )
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

/// `AbandonProcessGroup` has the effect of `KillMode=process`.
fn launchd<'a>(id: &str, command: impl Iterator<Item = &'a String>, path: &str) -> String {
    let command: String = command.map(|word| format!("    <string>{}</string>\n", xml_text(word))).collect();
    format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n\
         <!DOCTYPE plist PUBLIC \"-//Apple//DTD PLIST 1.0//EN\" \"http://www.apple.com/DTDs/PropertyList-1.0.dtd\">\n\
         <plist version=\"1.0\">\n\
         <dict>\n  \
           <key>Label</key>\n  <string>{}</string>\n  \
           <key>ProgramArguments</key>\n  <array>\n{command}  </array>\n  \
           <key>EnvironmentVariables</key>\n  <dict>\n    <key>PATH</key>\n    <string>{}</string>\n  </dict>\n  \
           <key>RunAtLoad</key>\n  <true/>\n  \
           <key>KeepAlive</key>\n  <true/>\n  \
           <key>ThrottleInterval</key>\n  <integer>3</integer>\n  \
           <key>AbandonProcessGroup</key>\n  <true/>\n\
         </dict>\n\
         </plist>\n",
        UserService::name(ServiceManager::Launchd, id),
        xml_text(path),
    )
}

fn xml_text(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn service(manager: ServiceManager) -> UserService {
        UserService {
            manager,
            id: "laptop".into(),
            program: "/opt/my tools/gantry".into(),
            args: vec!["node".into(), "--workspace".into(), "/home/me/100% \"$HOME\" & <co>".into()],
            path: "/usr/bin:/home/me/b$n".into(),
        }
    }

    #[test]
    fn systemd_unit_quotes_restarts_and_keeps_background_processes() {
        let text = service(ServiceManager::Systemd).text().unwrap();
        let line = |key: &str| text.lines().find_map(|line| line.strip_prefix(key)).unwrap().to_owned();
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
    }

    #[test]
    fn launchd_agent_is_equivalent() {
        let text = service(ServiceManager::Launchd).text().unwrap();
        for part in [
            "<string>dev.gantry.node.laptop</string>",
            "<string>/home/me/100% \"$HOME\" &amp; &lt;co&gt;</string>",
            "<key>AbandonProcessGroup</key>",
            "<key>KeepAlive</key>",
        ] {
            assert!(text.contains(part), "{part} in {text}");
        }
    }

    #[test]
    fn line_break_is_rejected() {
        let mut service = service(ServiceManager::Systemd);
        service.args.push("x\nExecStartPre=/bin/evil".into());
        assert!(matches!(service.text(), Err(ServiceError::Unspeakable(_))));
    }

    #[test]
    fn files_are_at_the_paths_of_the_manager() {
        let file = |manager, config: Option<&str>| {
            UserService::file(manager, "a", Path::new("/home/me"), config.map(Path::new))
        };
        let systemd = file(ServiceManager::Systemd, None);
        assert_eq!(systemd, Path::new("/home/me/.config/systemd/user/gantry-node-a.service"));
        assert_eq!(
            file(ServiceManager::Systemd, Some("/c")),
            Path::new("/c/systemd/user/gantry-node-a.service")
        );
        let launchd = file(ServiceManager::Launchd, None);
        assert_eq!(launchd, Path::new("/home/me/Library/LaunchAgents/dev.gantry.node.a.plist"));
    }

    #[test]
    fn file_is_written_and_removed() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a/b/x.service");
        let service = service(ServiceManager::Systemd);
        service.write(&file).unwrap();
        assert_eq!(std::fs::read_to_string(&file).unwrap(), service.text().unwrap());
        assert!(UserService::is_installed(&file));
        assert!(UserService::remove(&file).unwrap() && !UserService::remove(&file).unwrap());
    }
}
