//! Files and directories between nodes, the gateway's own machine and storage.

use std::os::unix::fs::{PermissionsExt, symlink};

use gantry_store::Depth;
use gantry_tool::{Principal, ToolError};

use crate::fleet::Fleet;

fn content(size: usize) -> Vec<u8> {
    (0..size).map(|at| (at / 5) as u8 ^ (at >> 20) as u8).collect()
}

fn text(result: Result<gantry_toolsets::Transferred, ToolError>) -> String {
    result.unwrap_err().to_string()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn file_is_copied_between_all_kinds_of_endpoints() {
    let fleet = Fleet::start(&["a", "b"]).await;
    let expected = content(5 << 20 | 77);
    let path = fleet.write("a", "dir/file.bin", &expected);
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o751)).unwrap();
    for (source, destination) in [
        ("a:dir/file.bin", "b:new/deep/file.bin"),
        ("b:new/deep/file.bin", "gsv:stored/file.bin"),
        ("gsv:stored/file.bin", "local:got.bin"),
        ("local:got.bin", "gsv:again.bin"),
        ("gsv:again.bin", "a:back.bin"),
        ("a:back.bin", "a:twice.bin"),
        ("local:got.bin", "local:copy.bin"),
    ] {
        let done = fleet
            .transfer(source, destination)
            .await
            .unwrap_or_else(|err| panic!("{source} → {destination}: {err}"));
        assert_eq!((done.bytes_transferred, done.files), (expected.len() as u64, None), "{source}");
    }
    assert!(std::fs::read(fleet.at("b", "new/deep/file.bin")).unwrap() == expected);
    let mode = std::fs::metadata(fleet.at("b", "new/deep/file.bin")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o751);
    for (node, path) in [("a", "back.bin"), ("a", "twice.bin"), ("local", "copy.bin")] {
        assert!(std::fs::read(fleet.at(node, path)).unwrap() == expected, "{node} {path}");
    }
    assert_eq!(fleet.names("b"), ["new", "new/deep", "new/deep/file.bin"]);
    let keys = fleet.objects.list("", Depth::All).await.unwrap().objects;
    let keys: Vec<String> = keys.into_iter().map(|object| object.key).collect();
    assert_eq!(keys, ["agents/main/again.bin", "agents/main/stored/file.bin"]);
    let staging = std::fs::read_dir(fleet.folder.path().join("gateway/staging")).unwrap();
    assert_eq!(staging.count(), 0, "no staged file is left");
    assert!(fleet.database.unfinished_transfers().await.unwrap().is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failed_transfer_reports_why_and_leaves_nothing() {
    let mut fleet = Fleet::start(&["a", "b"]).await;
    fleet.write("a", "file", "x");
    fleet.write("a", "tree/file", "x");
    fleet.write("b", "taken", "old");
    std::fs::create_dir(fleet.at("b", "folder")).unwrap();
    symlink(fleet.at("a", "file"), fleet.at("a", "link")).unwrap();
    let before = (fleet.names("a"), fleet.names("b"));
    for (source, destination, expected) in [
        ("a:none", "b:dir/x", "on the node \"a\": no such file or directory: none"),
        ("a:file", "b:folder", "a directory is not replaced by a file"),
        ("a:file", "gsv:skills", "\"skills\" is the directory of skills"),
        ("a:tree", "b:taken", "not a directory: taken"),
        ("a:file", "b:taken/x", "not a directory"),
        ("a:file", "a:link", "source and destination are the same"),
        ("a:file", "a:tree/../file", "source and destination are the same"),
        ("a:tree", "a:tree/inside", "a directory cannot be sent into itself"),
        ("gsv:none", "b:x", "in the workspace: no such file or directory: none"),
        ("a:file", "gsv:../other/x", "in the workspace"),
        ("a:file", "away:x", "the node \"away\" is offline"),
        ("a:file", "nobody:x", "unknown node \"nobody\""),
        ("a:file", "b:/proc/none/x", "on the node \"b\""),
        ("a:/dev/zero", "b:x", "on the node \"a\": not a regular file"),
        ("a:/proc/version", "b:x", "a file that does not report its size"),
    ] {
        let said = text(fleet.transfer(source, destination).await);
        assert!(said.contains(expected), "{source} → {destination}: {said}");
    }
    let data = fleet.folder.path().join("a-data");
    std::fs::create_dir_all(&data).unwrap();
    std::fs::write(data.join("secret"), "s").unwrap();
    let said = text(fleet.transfer(&format!("a:{}", data.join("secret").display()), "b:x").await);
    assert!(said.contains("closed"), "{said}");
    let mut agent = fleet.call();
    agent.principal = Principal::Agent { id: "main".into() };
    fleet.write("a", ".ssh/id_ed25519", "key");
    let said = text(fleet.transfer_as(agent, "a:.ssh/id_ed25519", "b:x").await);
    assert!(said.contains("approval needed"), "{said}");
    std::fs::remove_dir_all(fleet.at("a", ".ssh")).unwrap();
    assert_eq!((fleet.names("a"), fleet.names("b")), before);
    assert_eq!(std::fs::read(fleet.at("b", "taken")).unwrap(), b"old");

    fleet.add_node("reader", Some(&["Read"])).await;
    fleet.write("reader", "file", "readable");
    fleet.transfer("reader:file", "b:from-reader").await.unwrap();
    let said = text(fleet.transfer("a:file", "reader:x").await);
    assert!(said.contains("needs Write on the node \"reader\""), "{said}");
    assert_eq!(fleet.names("reader"), ["file"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_that_do_not_report_their_size_are_skipped() {
    let fleet = Fleet::start(&["a", "b"]).await;
    let there = std::fs::read_dir("/proc/sys/kernel/random").unwrap().count();
    let done = fleet.transfer("a:/proc/sys/kernel/random", "b:random").await.unwrap();
    assert_eq!((done.files, done.bytes_transferred, done.skipped.len()), (Some(0), 0, there));
    assert!(done.skipped.iter().all(|line| line.contains("does not report its size")), "{:?}", done.skipped);
    assert_eq!(std::fs::read_dir(fleet.at("b", "random")).unwrap().count(), 0);

    fleet.write("a", "tree/empty", "");
    let done = fleet.transfer("a:tree", "b:tree").await.unwrap();
    assert_eq!((done.files, done.skipped.len()), (Some(1), 0), "{:?}", done.skipped);
    assert_eq!(std::fs::read(fleet.at("b", "tree/empty")).unwrap(), b"");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn directory_is_copied_with_modes_and_links() {
    let fleet = Fleet::start(&["a", "b"]).await;
    let mut expected = Vec::new();
    for number in 0..300 {
        let name = format!("d{}/e-{}/file{number}", number % 7, number % 3);
        fleet.write("a", &format!("tree/{name}"), content(number * 31));
        expected.push((name, content(number * 31)));
    }
    fleet.write("a", "tree/large", content(9 << 20));
    let mode = |path: &str, mode| {
        std::fs::set_permissions(fleet.at("a", path), std::fs::Permissions::from_mode(mode)).unwrap();
    };
    mode("tree/large", 0o600);
    mode("tree/d1/e-1", 0o750);
    mode("tree/d2", 0o555);
    mode("tree/d3", 0o1777);
    mode("tree/d4", 0o2775);
    std::fs::create_dir(fleet.at("a", "tree/empty")).unwrap();
    symlink("d1/e-1", fleet.at("a", "tree/inner")).unwrap();
    symlink("/etc/passwd", fleet.at("a", "tree/outer")).unwrap();
    let done = fleet.transfer("a:tree", "b:copy").await.unwrap();
    assert_eq!(done.files, Some(301));
    let bytes: usize = expected.iter().map(|(_, content)| content.len()).sum();
    assert_eq!(done.bytes_transferred, (bytes + (9 << 20)) as u64);
    assert_eq!(done.skipped.len(), 1, "{:?}", done.skipped);
    assert!(done.skipped[0].starts_with("outer: "), "{:?}", done.skipped);
    for (name, content) in &expected {
        assert!(std::fs::read(fleet.at("b", &format!("copy/{name}"))).unwrap() == *content, "{name}");
    }
    assert!(std::fs::read(fleet.at("b", "copy/large")).unwrap() == content(9 << 20));
    assert_eq!(std::fs::read_link(fleet.at("b", "copy/inner")).unwrap().to_str(), Some("d1/e-1"));
    assert!(fleet.at("b", "copy/empty").is_dir());
    for (path, mode) in [("large", 0o600), ("d1/e-1", 0o750), ("d2", 0o555), ("d3", 0o1777), ("d4", 0o775)] {
        assert_eq!(fleet.mode("b", &format!("copy/{path}")), mode, "{path}");
    }
    assert!(!fleet.names("b").iter().any(|name| name.contains(".gantry-")));

    fleet.write("a", "tree/new\nline", "a name that the workspace cannot store");
    let stored = fleet.transfer("a:tree", "gsv:tree").await.unwrap();
    assert_eq!((stored.files, stored.skipped.len()), (Some(301), 4), "{:?}", stored.skipped);
    let back = fleet.transfer("gsv:tree", "b:back").await.unwrap();
    assert_eq!(back.bytes_transferred, done.bytes_transferred);
    for (name, content) in &expected {
        assert!(std::fs::read(fleet.at("b", &format!("back/{name}"))).unwrap() == *content, "{name}");
    }
    for node in ["a", "b"] {
        for path in ["tree/d2", "copy/d2"] {
            let path = fleet.at(node, path);
            if path.exists() {
                std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn created_directory_gets_the_mode_of_its_source() {
    let fleet = Fleet::start(&["a", "b"]).await;
    fleet.write("a", "tree/sub/file", "x");
    let set = |node, path: &str, mode| {
        std::fs::set_permissions(fleet.at(node, path), std::fs::Permissions::from_mode(mode)).unwrap();
    };
    for mode in [0o700, 0o1777, 0o555, 0o750] {
        set("a", "tree", mode);
        let copy = format!("copy{mode:o}");
        for destination in ["b", "local"] {
            fleet
                .transfer("a:tree", &format!("{destination}:{}", fleet.at(destination, &copy).display()))
                .await
                .unwrap();
            assert_eq!(fleet.mode(destination, &copy), mode);
            assert_eq!(std::fs::read(fleet.at(destination, &format!("{copy}/sub/file"))).unwrap(), b"x");
        }
    }
    // An existing directory keeps its mode: it may be a home directory.
    std::fs::create_dir(fleet.at("b", "there")).unwrap();
    set("b", "there", 0o711);
    fleet.transfer("a:tree", "b:there").await.unwrap();
    assert_eq!(fleet.mode("b", "there"), 0o711);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn storage_keeps_modes() {
    let fleet = Fleet::start(&["a", "b"]).await;
    let files = [("run.sh", 0o755), ("keys/id", 0o600), ("keys/public", 0o644), ("read-only", 0o440)];
    for (name, mode) in files {
        let path = fleet.write("a", &format!("tree/{name}"), name);
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    }
    fleet.transfer("a:tree", "gsv:tree").await.unwrap();
    fleet.transfer("gsv:tree", "b:tree").await.unwrap();
    for (name, mode) in files {
        fleet.transfer(&format!("a:tree/{name}"), &format!("gsv:one/{name}")).await.unwrap();
        fleet.transfer(&format!("gsv:one/{name}"), &format!("b:one/{name}")).await.unwrap();
        for path in [format!("tree/{name}"), format!("one/{name}")] {
            let metadata = std::fs::metadata(fleet.at("b", &path)).unwrap();
            assert_eq!(metadata.permissions().mode() & 0o777, mode, "{path}");
            assert_eq!(std::fs::read(fleet.at("b", &path)).unwrap(), name.as_bytes());
        }
    }
    fleet.objects.put("agents/main/written", "here", "text/plain").await.unwrap();
    fleet.transfer("gsv:written", "b:written").await.unwrap();
    let mode = std::fs::metadata(fleet.at("b", "written")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o644, "an object that a tool wrote has no mode");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn directory_is_merged_into_an_existing_one() {
    let fleet = Fleet::start(&["a", "b"]).await;
    fleet.write("a", "tree/common", "new");
    fleet.write("a", "tree/sub/new", "new");
    fleet.write("b", "copy/common", "old");
    fleet.write("b", "copy/sub/other", "old");
    fleet.transfer("a:tree", "b:copy").await.unwrap();
    assert_eq!(std::fs::read(fleet.at("b", "copy/common")).unwrap(), b"new");
    assert_eq!(fleet.names("b"), ["copy", "copy/common", "copy/sub", "copy/sub/new", "copy/sub/other"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn empty_directories_that_storage_cannot_keep_are_listed() {
    let fleet = Fleet::start(&["a"]).await;
    fleet.write("a", "tree/full/file", "x");
    for name in ["empty", "full/empty", "full/file-empty", "z/inner", "nothing"] {
        let below = if name == "nothing" { "nothing" } else { &format!("tree/{name}") };
        std::fs::create_dir_all(fleet.at("a", below)).unwrap();
    }
    let why = "it is an empty directory, and the workspace keeps files only";
    let done = fleet.transfer("a:tree", "gsv:tree").await.unwrap();
    let expected: Vec<String> =
        ["empty", "full/empty", "full/file-empty", "z/inner"].map(|name| format!("{name}: {why}")).to_vec();
    assert_eq!((done.files, done.skipped), (Some(1), expected));
    let done = fleet.transfer("a:nothing", "gsv:nothing").await.unwrap();
    assert_eq!((done.files, done.skipped), (Some(0), vec![format!(".: {why}")]));
    assert_eq!(fleet.transfer("a:tree", "local:tree").await.unwrap().skipped, [""; 0]);
    assert!(fleet.at("local", "tree/z/inner").is_dir());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn skills_are_sent_as_they_are_listed() {
    let fleet = Fleet::start(&["b"]).await;
    for (key, text) in [
        ("skills/sum/SKILL.md", "for all"),
        ("skills/sum/extra.md", "extra"),
        ("skills/web/SKILL.md", "web"),
        ("agents/main/skills/sum/SKILL.md", "mine"),
        ("agents/main/notes.md", "notes"),
    ] {
        fleet.objects.put(key, text, "text/markdown").await.unwrap();
    }
    let read = |path: &str| std::fs::read_to_string(fleet.at("b", path)).unwrap();
    for (source, destination, files) in
        [("gsv:skills", "b:sk", 3), ("gsv:/", "b:all", 4), ("gsv:skills/web", "b:web", 1)]
    {
        let done = fleet.transfer(source, destination).await.unwrap();
        assert_eq!((done.files, done.skipped.len()), (Some(files), 0), "{source}");
    }
    for folder in ["sk", "all/skills"] {
        assert_eq!(read(&format!("{folder}/sum/SKILL.md")), "mine");
        assert_eq!(read(&format!("{folder}/sum/extra.md")), "extra");
        assert_eq!(read(&format!("{folder}/web/SKILL.md")), "web");
    }
    assert_eq!(read("all/notes.md"), "notes");
    let said = text(fleet.transfer("b:all/notes.md", "gsv:skills/web").await);
    assert!(said.contains("not a file but a directory: skills/web"), "{said}");
    assert_eq!(fleet.objects.head("agents/main/skills/web").await.unwrap(), None);
}
