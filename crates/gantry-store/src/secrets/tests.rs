use std::os::unix::fs::PermissionsExt;

use super::*;

const MASTER: &str = "a master key of at least 32 characters";

fn world() -> (tempfile::TempDir, DataDir) {
    let folder = tempfile::tempdir().unwrap();
    let data = DataDir::new(folder.path().join("data"));
    (folder, data)
}

fn hosts() -> Vec<String> {
    vec!["api.example.com".to_owned()]
}

#[test]
fn pipe_instead_of_the_sealed_file_is_reported_and_does_not_block() {
    let (_folder, data) = world();
    data.create().unwrap();
    assert!(std::process::Command::new("mkfifo").arg(data.secrets()).status().unwrap().success());
    let (found, result) = std::sync::mpsc::channel();
    std::thread::spawn(move || found.send(Secrets::new(&data, None).all().map_err(|err| err.to_string())));
    let read = result.recv_timeout(Duration::from_secs(10)).unwrap();
    assert!(read.unwrap_err().contains("not a regular file"));
}

#[test]
fn secret_survives_a_restart_and_is_never_stored_in_plain_text() {
    let (_folder, data) = world();
    let secrets = Secrets::new(&data, None);
    assert!(secrets.all().unwrap().is_empty() && !data.root().exists(), "reading creates nothing");
    assert!(!secrets.set("STRIPE", "sk_live_0123456789", &hosts(), 7).unwrap());
    assert!(secrets.set("STRIPE", "sk_live_9876543210", &hosts(), 9).unwrap());
    let again = Secrets::new(&data, None).get("STRIPE").unwrap().unwrap();
    assert_eq!((again.expose(), again.created, again.changed), ("sk_live_9876543210", 7, 9));
    assert_eq!(again.hosts, hosts());
    assert!(!format!("{again:?} {secrets:?}").contains("sk_live"));
    for entry in std::fs::read_dir(data.root()).unwrap() {
        let path = entry.unwrap().path();
        let bytes = std::fs::read(&path).unwrap();
        for needle in ["sk_live", "STRIPE", "example.com"] {
            let found = bytes.windows(needle.len()).any(|window| window == needle.as_bytes());
            assert!(!found, "{needle} is in {}", path.display());
        }
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{}", path.display());
    }
    assert!(secrets.remove("STRIPE").unwrap() && !secrets.remove("STRIPE").unwrap());
    assert!(Secrets::new(&data, None).get("STRIPE").unwrap().is_none());
}

#[test]
fn wrong_key_is_reported_and_nothing_is_overwritten() {
    let (_folder, data) = world();
    Secrets::new(&data, Some(MASTER.into())).set("A", "value-value", &hosts(), 1).unwrap();
    assert!(!data.secrets_key().exists());
    let before = std::fs::read(data.secrets()).unwrap();
    let none = Secrets::new(&data, None);
    assert!(matches!(none.all(), Err(SecretsError::NoMasterKey { .. })));
    assert!(matches!(none.set("B", "value-value", &hosts(), 1), Err(SecretsError::NoMasterKey { .. })));
    let wrong = Secrets::new(&data, Some(MASTER.replace('a', "b")));
    assert!(matches!(wrong.all(), Err(SecretsError::WrongMasterKey { .. })));
    assert!(matches!(wrong.remove("A"), Err(SecretsError::WrongMasterKey { .. })));
    let short = Secrets::new(&data, Some("short".into()));
    assert!(matches!(short.all(), Err(SecretsError::ShortMasterKey)));
    assert_eq!(std::fs::read(data.secrets()).unwrap(), before);
}

#[test]
fn other_key_file_or_changed_byte_is_reported() {
    let (_folder, data) = world();
    let set = |value: &str| Secrets::new(&data, None).set("A", value, &hosts(), 1);
    set("value-value").unwrap();
    let (key, sealed) = (std::fs::read(data.secrets_key()).unwrap(), std::fs::read(data.secrets()).unwrap());
    std::fs::remove_file(data.secrets_key()).unwrap();
    let err = set("other-value").unwrap_err();
    assert!(matches!(err, SecretsError::KeyFile { .. }), "no new key is made over a box that has one: {err}");
    std::fs::write(data.secrets_key(), b"MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=\n").unwrap();
    std::fs::set_permissions(data.secrets_key(), PermissionsExt::from_mode(0o600)).unwrap();
    assert!(matches!(set("other-value"), Err(SecretsError::WrongKeyFile { .. })));
    std::fs::write(data.secrets_key(), key).unwrap();
    let at = sealed.len() - 20;
    for changed in [b'A', b'B'] {
        let mut bytes = sealed.clone();
        if bytes[at] == changed {
            continue;
        }
        bytes[at] = changed;
        std::fs::write(data.secrets(), &bytes).unwrap();
        assert!(matches!(Secrets::new(&data, None).all(), Err(SecretsError::WrongKeyFile { .. })));
    }
    std::fs::write(data.secrets(), b"{}").unwrap();
    assert!(matches!(Secrets::new(&data, None).all(), Err(SecretsError::Damaged { .. })));
    std::fs::write(data.secrets(), &sealed).unwrap();
    std::fs::set_permissions(data.secrets_key(), PermissionsExt::from_mode(0o644)).unwrap();
    assert!(Secrets::new(&data, None).all().unwrap_err().to_string().contains("open to other users"));
}

/// Eight writers with separate handles, as separate processes have, lose nothing.
#[test]
fn concurrent_writers_lose_nothing() {
    let (_folder, data) = world();
    std::thread::scope(|scope| {
        for writer in 0..8 {
            let data = &data;
            scope.spawn(move || {
                for number in 0..5 {
                    let secrets = Secrets::new(data, None);
                    secrets.set(&format!("S{writer}-{number}"), "value-value", &hosts(), 1).unwrap();
                }
            });
        }
    });
    assert_eq!(Secrets::new(&data, None).all().unwrap().len(), 40);
    let temps = std::fs::read_dir(data.root()).unwrap().count();
    assert_eq!(temps, 3, "the box, the key, the lock, and no temp file");
}

#[test]
fn running_process_sees_secrets_that_another_stores() {
    let (_folder, data) = world();
    let running = Secrets::new(&data, None);
    assert_eq!(running.values().len(), 0);
    let later = || {
        std::thread::sleep(LOOK_EVERY);
        running.values()
    };
    let other = Secrets::new(&data, None);
    other.set("A", "value-one-", &hosts(), 1).unwrap();
    other.set("B", "value-two-longer", &hosts(), 1).unwrap();
    assert_eq!(later()[..], ["value-two-longer".to_owned(), "value-one-".to_owned()]);
    other.remove("B").unwrap();
    assert_eq!(later()[..], ["value-one-".to_owned()]);
    running.set("C", "value-three-own", &hosts(), 1).unwrap();
    assert_eq!(running.values().len(), 2, "what this process stores it knows at once");
    other.set("D", "value-four-other", &hosts(), 1).unwrap();
    running.get("D").unwrap().unwrap();
    assert_eq!(running.values().len(), 3, "and what it has read");
    std::fs::write(data.secrets(), b"broken").unwrap();
    assert_eq!(later().len(), 3, "what was known stays known");
}

#[test]
fn bad_names_values_and_hosts_are_rejected() {
    let (_folder, data) = world();
    let secrets = Secrets::new(&data, None);
    for name in ["", "1A", "a b", "a/b", "a:b", "ä", &"x".repeat(65)] {
        assert!(
            matches!(secrets.set(name, "value-value", &hosts(), 1), Err(SecretsError::BadName(_))),
            "{name}"
        );
    }
    for value in ["", "sh0rt", "nul\0nul-nul", &"x".repeat(MAX_SECRET_BYTES + 1)] {
        let err = secrets.set("A", value, &hosts(), 1).unwrap_err();
        assert!(matches!(err, SecretsError::BadValue { .. }), "{err}");
        assert!(value.len() < 2 || !err.to_string().contains(value), "{err}");
    }
    assert!(matches!(secrets.set("A", "value-value", &[], 1), Err(SecretsError::NoHosts { .. })));
    assert!(!data.secrets().exists());
}
