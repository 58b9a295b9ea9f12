//! Calls that cannot work return the tool's error, leave no partial files, and do not disturb others.

use std::path::Path;

use gantry_testkit::{Fleet, SOON, eventually, with_mounts};
use serde_json::json;

#[test]
fn malformed_addresses_and_names_are_rejected_before_start() {
    let fleet = Fleet::start();
    let machine = fleet.add("box", &[]);
    let url = format!("http://{}", fleet.address);
    for (gateway, id, word) in [
        ("http://", "box", "gateway"),
        ("127.0.0.1:99999", "box", "port"),
        ("ftp://127.0.0.1", "box", "ftp"),
        ("http://user:pw@127.0.0.1", "box", ""),
        ("http://example.com", "box", "insecure"),
        (&url, "Box", "box"),
        (&url, "gsv", "gsv"),
        (&url, "local", "local"),
        (&url, &"x".repeat(33), ""),
    ] {
        let ran = machine
            .world
            .run_with(&["--gateway", gateway, "node", "--id", id], &[("GANTRY_TOKEN", &machine.token)]);
        assert_eq!(ran.code, 2, "{gateway} {id}: {}", ran.stderr);
        assert!(ran.stderr.to_lowercase().contains(word), "{gateway} {id}: {}", ran.stderr);
        assert!(!ran.stderr.contains(&machine.token), "{}", ran.stderr);
    }
    let no_token = machine.world.run(&["--gateway", &url, "node", "--id", "box"]);
    assert!(no_token.code == 2 && no_token.stderr.contains("GANTRY_TOKEN"), "{}", no_token.stderr);
    for args in
        [&["nodes", "show", "nobody"][..], &["nodes", "revoke", "nobody"], &["nodes", "add", "Not An Id"]]
    {
        let ran = fleet.run(args);
        assert_ne!(ran.code, 0, "{args:?}");
        assert!(ran.stdout.contains("\"error\""), "{args:?}: {}", ran.stdout);
    }
    for (tool, status) in [("nobody__Read", 404), ("box__Read", 503), ("Reed", 404)] {
        let refused = fleet.call(tool, &json!({"path": "a"}));
        assert_eq!(refused.status, status, "{refused:?}");
        assert!(refused.json()["error"]["message"].is_string());
    }
    assert_eq!(fleet.get("/health").status, 200);
}

#[test]
fn full_disk_on_a_node_is_reported_without_partial_files() {
    let fleet = Fleet::start();
    let mut machine = fleet.add("box", &[]);
    let workspace = machine.world.workspace();
    machine.mounts = Some(format!("mount -t tmpfs -o size=1m tmpfs '{}'", workspace.display()));
    machine.start();
    fleet.wait_online("box");
    let there = machine.inside(&workspace);
    let listed = || -> Vec<String> {
        let entries = std::fs::read_dir(&there).unwrap();
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    };
    let write = |path: &str, bytes: usize| {
        fleet.call("box__Write", &json!({"path": path, "content": "x".repeat(bytes)}))
    };
    assert_eq!(write("kept.txt", 200_000).status, 200);
    for path in ["kept.txt", "new.txt", "deep/new.txt"] {
        let full = write(path, 2_000_000);
        assert_eq!(full.status, 422, "{full:?}");
        let error = full.json()["error"].as_str().unwrap().to_owned();
        assert!(error.contains(path) && error.to_lowercase().contains("space"), "{error}");
    }
    assert_eq!(std::fs::metadata(there.join("kept.txt")).unwrap().len(), 200_000);
    let left: Vec<String> = listed().into_iter().filter(|name| name != "deep").collect();
    assert_eq!(left, ["kept.txt"], "no partial file, no temporary one");
    let edit =
        json!({"path": "kept.txt", "oldString": "xx", "newString": "y".repeat(30), "replaceAll": true});
    let full = fleet.call("box__Edit", &edit);
    assert_eq!(full.status, 422, "{full:?}");
    assert_eq!(std::fs::read_to_string(there.join("kept.txt")).unwrap(), "x".repeat(200_000));
    let ran =
        fleet.call("box__Bash", &json!({"command": "head -c 3000000 /dev/zero > fill; echo $?; rm fill"}));
    assert!(ran.status == 200 && ran.text().contains('1'), "the command's own answer: {ran:?}");
    assert_eq!(write("new.txt", 10).status, 200, "there is room again");
}

#[test]
fn unwritable_folder_is_reported() {
    let fleet = Fleet::start();
    let mut machine = fleet.add("box", &[]);
    let folder = machine.world.workspace().join("sealed");
    machine.world.write("sealed/a.txt", "one\n");
    let folder_text = folder.display();
    machine.mounts = Some(format!(
        "mount --bind '{folder_text}' '{folder_text}'; mount -o remount,bind,ro '{folder_text}'"
    ));
    machine.start();
    fleet.wait_online("box");
    for (tool, input) in [
        ("Write", json!({"path": "sealed/a.txt", "content": "two\n"})),
        ("Write", json!({"path": "sealed/b.txt", "content": "two\n"})),
        ("Write", json!({"path": "sealed/new/b.txt", "content": "two\n"})),
        ("Edit", json!({"path": "sealed/a.txt", "oldString": "one", "newString": "two"})),
    ] {
        let refused = fleet.call(&format!("box__{tool}"), &input);
        assert_eq!(refused.status, 422, "{tool} {input}: {refused:?}");
        let error = refused.json()["error"].as_str().unwrap().to_owned();
        assert!(error.contains("sealed/") && error.to_lowercase().contains("read-only"), "{error}");
    }
    assert_eq!(std::fs::read_to_string(folder.join("a.txt")).unwrap(), "one\n");
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 1);
    assert_eq!(fleet.call("box__Read", &json!({"path": "sealed/a.txt"})).status, 200);
}

#[test]
fn gateway_with_full_disk_rejects_unauditable_calls_and_keeps_serving() {
    let fleet = Fleet::start_with(|world| {
        std::fs::create_dir_all(world.data()).unwrap();
        Some(format!("mount -t tmpfs -o size=16m tmpfs '{}'", world.data().display()))
    });
    let data = fleet.inside(&fleet.world.data());
    let write = |path: &str| fleet.call("local__Write", &json!({"path": path, "content": "x"}));
    let object =
        |path: &str, content: &str| fleet.call("gsv__WriteFile", &json!({"path": path, "content": content}));
    assert_eq!(write("before.txt").status, 200);
    assert_eq!(object("kept.md", "kept").status, 200);
    fill(&data.join("filler"));
    let too_much = object("new.md", &"x".repeat(100_000));
    assert!([422, 503].contains(&too_much.status), "{too_much:?}");
    for number in 0..5 {
        let path = format!("during-{number}.txt");
        let refused = write(&path);
        assert!(refused.status == 503 || refused.status == 422, "{refused:?}");
        assert!(!fleet.world.workspace().join(&path).exists(), "what is not recorded does not happen");
    }
    assert_eq!(fleet.get("/health").status, 200);
    assert_eq!(fleet.get("/v1/tools").status, 200);
    std::fs::remove_file(data.join("filler")).unwrap();
    eventually("there is room again", SOON, || write("after.txt").status == 200);
    assert_eq!(object("new.md", "new").status, 200);
    let read = fleet.call("gsv__ReadFile", &json!({"path": "kept.md"}));
    assert_eq!(read.json()["result"]["content"], "kept", "{read:?}");
}

/// Takes all the room there is.
fn fill(path: &Path) {
    use std::io::Write;
    let mut file = std::fs::File::create(path).unwrap();
    for size in [1 << 16, 4096, 512, 1] {
        while file.write_all(&vec![b'x'; size]).is_ok() {}
    }
}

#[test]
fn gateway_with_unwritable_data_directory_fails_to_start() {
    let world = gantry_testkit::World::new();
    std::fs::create_dir_all(world.data()).unwrap();
    let data = world.data().display().to_string();
    let mounts = format!("mount --bind '{data}' '{data}'; mount -o remount,bind,ro '{data}'");
    let output =
        with_mounts(world.command(&["up", "--listen", "127.0.0.1:0"]), Some(&mounts)).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).to_lowercase();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("read-only") && said.contains(&data.to_lowercase()), "{said}");
}
