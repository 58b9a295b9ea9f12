#![expect(clippy::disallowed_methods, reason = "tests damage files on purpose")]

use std::path::PathBuf;

use serde_json::json;

use super::*;

fn world() -> (tempfile::TempDir, DataDir) {
    let folder = tempfile::tempdir().unwrap();
    let data = DataDir::new(folder.path().join("data"));
    (folder, data)
}

fn folder_of(data: &DataDir) -> PathBuf {
    data.root().join("apis")
}

fn draft(id: &str, base_url: &str) -> Value {
    json!({
        "id": id, "name": "An API", "base_url": base_url, "description": "For tests.",
        "auth": {"type": "bearer", "token": "secret:TOKEN"},
        "rate_limit": {"requests_per_minute": 2},
        "endpoints": [{"method": "GET", "path": "/things", "description": "All things."}],
        "guidelines": ["Ask for pages."], "avoid": ["Asking twice."],
    })
}

fn profile(id: &str, base_url: &str) -> Profile {
    serde_json::from_value::<ProfileDraft>(draft(id, base_url)).unwrap().check().unwrap()
}

fn covering(apis: &Apis, url: &str) -> String {
    match apis.covering(&Url::parse(url).unwrap()).unwrap() {
        Covering::Profile(profile) => profile.id.clone(),
        Covering::Broken(broken) => format!("broken {}", broken.id),
        Covering::OtherScheme(profile) => format!("scheme {}", profile.id),
        Covering::Twice(ids) => format!("twice {}", ids.join(" ")),
        Covering::Unclear { id } => format!("unclear {id}"),
        Covering::Hidden(broken) => format!("hidden by {}", broken.id),
        Covering::Nothing { profiles } => format!("nothing of {profiles}"),
    }
}

#[test]
fn longest_base_path_decides_between_profiles_of_one_host() {
    let (_folder, data) = world();
    let apis = Apis::new(&data);
    for (id, base) in [
        ("all", "https://api.example.com"),
        ("v1", "https://api.example.com/v1/"),
        ("admin", "https://api.example.com/v1/admin"),
        ("port", "https://api.example.com:8443/"),
    ] {
        apis.save(&profile(id, base), Saving::New).unwrap();
    }
    for (url, expected) in [
        ("https://api.example.com/", "all"),
        ("https://api.example.com/v10/x", "all"),
        ("https://API.example.com/v1", "v1"),
        ("https://api.example.com/v1/things?x=/admin", "v1"),
        ("https://api.example.com/v1/admin/users", "admin"),
        ("https://api.example.com/v1/administrators", "v1"),
        ("https://api.example.com/v1/admin/../things", "v1"),
        ("https://api.example.com/v1/%2e%2e/x", "all"),
        ("https://api.example.com:8443/v1", "port"),
        ("http://api.example.com/v1", "scheme v1"),
        ("https://api.example.com:9/v1", "nothing of 4"),
        ("https://xapi.example.com/v1", "nothing of 4"),
    ] {
        let found = covering(&apis, url);
        let same = found == expected || (expected.starts_with("scheme") && found.starts_with("scheme"));
        assert!(same, "{url}: {found}, not {expected}");
    }
}

#[test]
fn manual_edit_or_removal_applies_at_once() {
    let (_folder, data) = world();
    let (apis, other) = (Apis::new(&data), Apis::new(&data));
    assert_eq!(covering(&apis, "https://a.example/x"), "nothing of 0");
    other.save(&profile("a", "https://a.example"), Saving::New).unwrap();
    assert_eq!(covering(&apis, "https://a.example/x"), "a");
    let path = folder_of(&data).join("a.json");
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, text.replace("a.example", "b.example")).unwrap();
    assert_eq!(covering(&apis, "https://a.example/x"), "nothing of 1");
    assert_eq!(covering(&apis, "https://b.example/x"), "a");
    other.remove("a").unwrap();
    assert_eq!(covering(&apis, "https://b.example/x"), "nothing of 0");
    std::fs::write(&path, &text).unwrap();
    assert_eq!(covering(&apis, "https://a.example/x"), "a");
    std::fs::remove_file(&path).unwrap();
    assert_eq!(covering(&apis, "https://a.example/x"), "nothing of 0");
}

#[test]
fn broken_file_is_listed_and_blocks_what_it_covers() {
    let (_folder, data) = world();
    let apis = Apis::new(&data);
    apis.save(&profile("good", "https://good.example"), Saving::New).unwrap();
    let mut wrong = draft("wrong", "https://wrong.example/v1");
    wrong["endpoint"] = json!([]);
    std::fs::write(folder_of(&data).join("wrong.json"), wrong.to_string()).unwrap();
    std::fs::write(folder_of(&data).join("torn.json"), "{\"id\": ").unwrap();
    std::fs::write(folder_of(&data).join("other.json"), draft("name", "https://other.example").to_string())
        .unwrap();
    std::fs::create_dir(folder_of(&data).join("folder.json")).unwrap();
    std::fs::write(folder_of(&data).join(".half.json"), "{").unwrap();
    std::fs::write(folder_of(&data).join("notes.txt"), "{").unwrap();
    let listed: Vec<String> = apis
        .list()
        .unwrap()
        .iter()
        .map(|file| match file {
            ApiFile::Profile(profile) => profile.id.clone(),
            ApiFile::Broken(broken) => format!("{}: {}", broken.id, broken.problems[0]),
        })
        .collect();
    assert_eq!(listed.len(), 5, "{listed:?}");
    assert!(listed[0].starts_with("folder: cannot be read: "), "{listed:?}");
    assert_eq!(listed[1], "good");
    assert_eq!(listed[2], "other: id: the file is other.json, so the id must be \"other\"");
    assert!(listed[3].starts_with("torn: not JSON: "), "{listed:?}");
    assert!(listed[4].contains("did you mean \"endpoints\"?"), "{listed:?}");
    assert_eq!(covering(&apis, "https://wrong.example/v1/x"), "broken wrong");
    assert_eq!(covering(&apis, "https://elsewhere.example/"), "hidden by torn");
    apis.remove("torn").unwrap();
    assert!(!folder_of(&data).join("torn.json").exists());
}

#[test]
fn save_checks_whether_the_id_exists_and_ids_are_never_paths() {
    let (_folder, data) = world();
    let apis = Apis::new(&data);
    let github = profile("github", "https://api.github.com");
    apis.save(&github, Saving::New).unwrap();
    assert!(matches!(apis.save(&github, Saving::New), Err(ApisError::Exists { .. })));
    assert!(matches!(
        apis.save(&profile("b", "https://b.example"), Saving::Changed),
        Err(ApisError::Unknown { .. })
    ));
    apis.save(&github, Saving::Changed).unwrap();
    let err = apis.get("githib").unwrap_err().to_string();
    assert_eq!(err, "unknown API profile \"githib\"; did you mean \"github\"?");
    for id in ["../x", "", "a/b", "github.json", "/etc/passwd"] {
        assert!(matches!(apis.remove(id), Err(ApisError::Unknown { .. })), "{id}");
    }
}

#[test]
fn limits_survive_restart_and_removal_of_the_profile() {
    let (_folder, data) = world();
    let limited = profile("a", "https://a.example");
    let ask = |now| Apis::new(&data).count_request(&limited, now).unwrap();
    Apis::new(&data).save(&limited, Saving::New).unwrap();
    assert_eq!((ask(0), ask(10)), (Ok(()), Ok(())));
    assert_eq!(ask(20), Err(RateLimited { limit: 2, window: "minute", wait_ms: 59_980 }));
    Apis::new(&data).remove("a").unwrap();
    Apis::new(&data).save(&limited, Saving::New).unwrap();
    assert!(ask(30).is_err());
    assert_eq!(ask(60_000), Ok(()));
}

#[test]
fn pipe_or_socket_instead_of_a_file_is_broken_and_does_not_block() {
    let (_folder, data) = world();
    let apis = Apis::new(&data);
    apis.save(&profile("good", "https://good.example"), Saving::New).unwrap();
    let pipe =
        |path: PathBuf| assert!(std::process::Command::new("mkfifo").arg(path).status().unwrap().success());
    pipe(folder_of(&data).join("pipe.json"));
    let _socket = std::os::unix::net::UnixListener::bind(folder_of(&data).join("socket.json")).unwrap();
    let (found, result) = std::sync::mpsc::channel();
    let look = move || {
        let problems = |id: &str| match apis.get(id).unwrap() {
            ApiFile::Broken(broken) => format!("{:?}", broken.problems),
            ApiFile::Profile(_) => "a profile".into(),
        };
        found
            .send((problems("pipe"), problems("socket"), covering(&apis, "https://good.example/x")))
            .unwrap();
    };
    std::thread::spawn(look);
    let (pipe, socket, covered) = result.recv_timeout(std::time::Duration::from_secs(10)).unwrap();
    assert!(pipe.contains("not a regular file"), "{pipe}");
    assert!(socket.contains("cannot be read"), "{socket}");
    assert_eq!(covered, "good");
}
