//! A user who is not root can send read-only directories, and send them again.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use gantry_files::testing::as_user;
use gantry_files::{Files, FilesOptions};
use gantry_protocol::{SentKind, TransferMake};
use gantry_transfer::{FileBackend, TransferBackend, Wanted};
use tokio_util::sync::CancellationToken;

#[test]
fn read_only_tree_can_be_sent_again() {
    let folder = tempfile::tempdir().unwrap();
    let mode =
        |path: &str| std::fs::metadata(folder.path().join(path)).unwrap().permissions().mode() & 0o7777;
    as_user(&[folder.path()], || {
        let files = Files::new(FilesOptions::default()).unwrap();
        let backend = FileBackend::new(files.part_records(&folder.path().join("parts"), "gateway").unwrap());
        for (transfer, content) in [("first", "old"), ("second", "new"), ("abandoned", "newest")] {
            let beneath = |root: &Path| files.contained(root);
            let wanted = Wanted { path: "tree", kind: SentKind::Directory, mode: Some(0o500) };
            let scope = files.contained(folder.path()).unwrap();
            if transfer != "first" {
                // The destination directory itself belongs to its owner, who sets its mode.
                std::fs::set_permissions(folder.path().join("tree"), std::fs::Permissions::from_mode(0o700))
                    .unwrap();
            }
            backend.prepare(transfer, wanted, scope, &beneath, &CancellationToken::new()).unwrap();
            let (transfer, entry) = (transfer.to_owned(), "sub".to_owned());
            let make = TransferMake { transfer: transfer.clone(), entry, mode: Some(0o555), target: None };
            backend.make(&make).unwrap();
            let mut part = backend.part_file(&transfer, Some("sub/file")).unwrap();
            part.append(content.as_bytes()).unwrap();
            part.commit(0o444).unwrap();
            match transfer.as_str() {
                "abandoned" => backend.abandon(&transfer).unwrap(),
                _ => backend.finish(&transfer).unwrap(),
            }
            assert_eq!(std::fs::read_to_string(folder.path().join("tree/sub/file")).unwrap(), content);
            assert_eq!((mode("tree/sub"), mode("tree/sub/file")), (0o555, 0o444), "{transfer}");
            if transfer == "first" {
                assert_eq!(mode("tree"), 0o500);
            }
        }
    })
    .unwrap();
}
