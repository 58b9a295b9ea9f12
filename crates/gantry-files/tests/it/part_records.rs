//! Part records, and what may be removed because of them.

use std::fs::{File, FileTimes};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use gantry_files::{Files, FilesOptions, PartRecords, Scope};

const WEEK: Duration = Duration::from_secs(7 * 24 * 3600);

struct PartsHome {
    folder: tempfile::TempDir,
    files: Files,
}

impl PartsHome {
    fn new() -> PartsHome {
        let folder = tempfile::tempdir().unwrap();
        let closed = folder.path().join("data");
        std::fs::create_dir_all(&closed).unwrap();
        std::fs::create_dir_all(folder.path().join("ws")).unwrap();
        let files = Files::new(FilesOptions { closed: vec![closed], pending_dir: None }).unwrap();
        PartsHome { folder, files }
    }

    fn scope(&self) -> Scope {
        self.files.contained(&self.path("ws")).unwrap()
    }

    fn records(&self, owner: &str) -> PartRecords {
        self.files.part_records(&self.path("data/parts"), owner).unwrap()
    }

    fn path(&self, path: &str) -> PathBuf {
        self.folder.path().canonicalize().unwrap().join(path)
    }

    /// Creates a part of three bytes, as an interrupted transfer leaves it.
    fn part(&self, owner: &str, transfer: &str, name: &str, file: &str) -> PathBuf {
        let records = self.records(owner);
        let note = |part: &Path| records.note(transfer, name, part);
        let mut partial = self.scope().open_recorded_partial(file, name, &note).unwrap();
        partial.append(b"abc").unwrap();
        partial.path().with_file_name(format!(".gantry-{name}.part"))
    }

    fn record(&self, owner: &str, transfer: &str, name: &str) -> PathBuf {
        self.path("data/parts").join(owner).join(transfer).join(name)
    }
}

#[test]
fn records_handed_over_are_continued_by_the_new_owner() {
    let home = PartsHome::new();
    let parts = [home.part("old", "t1", "t1", "one"), home.part("old", "t2", "t2", "two")];
    let taken = home.part("new", "t2", "t2-1", "three");
    let left = home.records("old").hand_over_to("new");
    assert!(left.is_err(), "the new owner has a transfer of that name");
    let transfers = |owner| {
        let mut transfers = home.records(owner).transfers(10).unwrap();
        transfers.sort();
        transfers
    };
    assert_eq!(
        (transfers("old"), transfers("new")),
        (vec!["t2".to_owned()], vec!["t1".to_owned(), "t2".to_owned()])
    );
    assert!(parts.iter().chain([&taken]).all(|part| part.exists()));
    home.records("new").remove("t1").unwrap();
    assert!(!parts[0].exists() && parts[1].exists());
    assert!(home.records("old").hand_over_to("../new").is_err());
    home.records("nobody").hand_over_to("new").unwrap();
}

fn age(path: &Path) {
    let long_ago = SystemTime::now() - 2 * WEEK;
    File::options()
        .write(true)
        .open(path)
        .unwrap()
        .set_times(FileTimes::new().set_modified(long_ago))
        .unwrap();
}

#[test]
fn removing_a_transfer_removes_only_its_parts() {
    let home = PartsHome::new();
    let mut gone = Vec::new();
    for number in 0..20 {
        gone.push(home.part("a", "t1", &format!("t1-{number}"), &format!("deep/{number}/file")));
    }
    let kept = [home.part("a", "t2", "t2", "deep/0/other"), home.part("b", "t1", "t1", "deep/0/third")];
    let records = home.records("a");
    let mut known = records.transfers(9).unwrap();
    known.sort();
    assert_eq!(known, ["t1", "t2"]);
    assert_eq!(records.transfers(1).unwrap().len(), 1);
    records.remove("t1").unwrap();
    records.remove("t1").unwrap();
    assert!(gone.iter().all(|part| !part.exists()));
    assert!(kept.iter().all(|part| part.exists()));
    assert_eq!(records.transfers(9).unwrap(), ["t2"]);
    assert_eq!(home.records("b").transfers(9).unwrap(), ["t1"]);
    records.erase("t2", "t2").unwrap();
    assert_eq!(records.transfers(9).unwrap(), ["t2"], "a part that is there stays written down");
    let whole = kept[0].with_file_name("other");
    std::fs::rename(&kept[0], &whole).unwrap();
    records.erase("t2", "t2").unwrap();
    assert!(records.transfers(9).unwrap().is_empty());
    assert!(!home.record("a", "t2", "t2").ancestors().nth(2).unwrap().exists(), "an owner without records");
    assert!(home.record("b", "t1", "t1").is_symlink(), "nobody else's");
    assert!(whole.exists(), "what has its final name is only erased");
}

#[test]
fn sweep_removes_old_parts_of_every_owner() {
    let home = PartsHome::new();
    let young = home.part("a", "t1", "t1", "young");
    let old = [home.part("a", "t2", "t2", "old"), home.part("b", "t3", "t3-1", "older")];
    let held = home.part("b", "t4", "t4", "held");
    // The age of the records counts too and cannot be set from here: all of them are new.
    old.iter().chain([&held]).for_each(|part| age(part));
    assert_eq!(home.records("a").sweep(WEEK).unwrap(), 0, "their records are young");
    let _receiving = home.scope().open_partial("held", "t4").unwrap();
    std::thread::sleep(Duration::from_millis(600));
    std::fs::write(&young, "just written").unwrap();
    assert_eq!(home.records("a").sweep(Duration::from_millis(500)).unwrap(), 2);
    assert!(young.exists() && held.exists(), "one is written, the other received");
    assert!(old.iter().all(|part| !part.exists()));
    assert!(home.records("b").transfers(9).unwrap() == ["t4"]);
}

#[test]
fn foreign_entries_stay_and_links_are_not_entered() {
    let home = PartsHome::new();
    let victim = home.path("victim");
    std::fs::create_dir_all(victim.join("t3")).unwrap();
    let files = ["file", "t9", ".gantry-t9.part", "t3/file"].map(|name| victim.join(name));
    files.iter().for_each(|file| std::fs::write(file, "v").unwrap());
    symlink(victim.join(".gantry-t9.part"), victim.join("known")).unwrap();
    // A transfer that is a link, an owner that is a link, and a record that is a file.
    let parts = home.path("data/parts");
    std::fs::create_dir_all(parts.join("a/t2")).unwrap();
    symlink(&victim, parts.join("a/t1")).unwrap();
    symlink(&victim, parts.join("b")).unwrap();
    std::fs::write(parts.join("a/t2/note"), "mine").unwrap();
    std::thread::sleep(Duration::from_millis(5));
    for owner in ["a", "b"] {
        let records = home.records(owner);
        for transfer in ["t1", "t2", "t3"] {
            records.remove(transfer).unwrap();
            records.erase(transfer, "t9").unwrap();
            records.erase(transfer, "file").unwrap();
        }
        assert_eq!(records.sweep(Duration::ZERO).unwrap(), 0);
    }
    assert!(files.iter().all(|file| file.exists()), "{files:?}");
    assert!(victim.join("known").is_symlink() && parts.join("a/t2/note").exists());
}

#[test]
fn forged_record_removes_no_other_file() {
    let home = PartsHome::new();
    let ws = home.path("ws");
    let precious = ws.join("precious");
    std::fs::write(&precious, "p").unwrap();
    std::fs::create_dir(ws.join(".gantry-dir.part")).unwrap();
    symlink(&precious, ws.join(".gantry-link.part")).unwrap();
    let elsewhere = home.path("elsewhere");
    std::fs::create_dir(&elsewhere).unwrap();
    std::fs::write(elsewhere.join(".gantry-through.part"), "e").unwrap();
    symlink(&elsewhere, ws.join("way")).unwrap();
    let closed = home.path("data").join(".gantry-closed.part");
    std::fs::write(&closed, "c").unwrap();
    std::fs::write(ws.join(".gantry-other.part"), "o").unwrap();
    std::fs::create_dir_all(home.path("data/parts/a/t")).unwrap();
    for (name, target) in [
        ("precious", precious.clone()),
        ("another", ws.join(".gantry-other.part")),
        ("dir", ws.join(".gantry-dir.part")),
        ("link", ws.join(".gantry-link.part")),
        ("through", ws.join("way/.gantry-through.part")),
        ("relative", PathBuf::from(".gantry-relative.part")),
        ("up", ws.join("../ws/.gantry-up.part")),
        ("closed", closed.clone()),
    ] {
        symlink(target, home.record("a", "t", name)).unwrap();
    }
    std::fs::write(ws.join(".gantry-up.part"), "u").unwrap();
    let refused = home.records("a").remove("t").unwrap_err();
    assert!(refused.to_string().contains("closed to tools"), "{refused}");
    for name in ["precious", ".gantry-other.part", ".gantry-dir.part", ".gantry-up.part"] {
        assert!(ws.join(name).exists(), "{name}");
    }
    assert!(ws.join(".gantry-link.part").is_symlink() && closed.exists());
    assert!(elsewhere.join(".gantry-through.part").exists(), "a link on the way is not followed");
    assert!(home.record("a", "t", "closed").is_symlink(), "what was not removed stays written down");
    assert!(!home.record("a", "t", "precious").is_symlink());
    for bad in ["", "..", "a/b", "a.b", &"x".repeat(65)] {
        assert!(home.records("a").remove(bad).is_err(), "{bad}");
        assert!(home.records("a").note(bad, "x", &precious).is_err(), "{bad}");
        assert!(home.records("a").note("x", bad, &precious).is_err(), "{bad}");
        assert!(home.files.part_records(&home.path("data/parts"), bad).is_err(), "{bad}");
    }
}

#[test]
fn part_recorded_at_a_new_path_is_removed_from_the_old() {
    let home = PartsHome::new();
    let first = home.part("a", "t", "t", "one/file");
    let second = home.part("a", "t", "t", "two/file");
    assert!(!first.exists() && second.exists());
    home.records("a").remove("t").unwrap();
    assert!(!second.exists());
}
