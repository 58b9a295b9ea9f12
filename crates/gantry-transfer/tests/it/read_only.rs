//! Directories that forbid writing are filled, and filled again, by a user who is not root.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use gantry_files::testing::as_user;
use gantry_files::{Files, FilesOptions};
use gantry_protocol::{SentKind, TransferMake};
use gantry_transfer::{FileBooks, Wanted};
use tokio_util::sync::CancellationToken;

#[test]
fn what_forbids_writing_can_be_sent_again() {
    let folder = tempfile::tempdir().unwrap();
    let mode =
        |path: &str| std::fs::metadata(folder.path().join(path)).unwrap().permissions().mode() & 0o7777;
    as_user(&[folder.path()], || {
        let files = Files::new(FilesOptions::default()).unwrap();
        let books = FileBooks::new(files.part_records(&folder.path().join("parts"), "gateway").unwrap());
        for (transfer, content) in [("first", "old"), ("second", "new"), ("abandoned", "newest")] {
            let beneath = |root: &Path| files.contained(root);
            let wanted = Wanted { path: "tree", kind: SentKind::Directory, mode: Some(0o500) };
            let scope = files.contained(folder.path()).unwrap();
            if transfer != "first" {
                // The one that is sent into is its owner's own affair.
                std::fs::set_permissions(folder.path().join("tree"), std::fs::Permissions::from_mode(0o700))
                    .unwrap();
            }
            books.prepare(transfer, wanted, scope, &beneath, &CancellationToken::new()).unwrap();
            let (transfer, entry) = (transfer.to_owned(), "sub".to_owned());
            let make = TransferMake { transfer: transfer.clone(), entry, mode: Some(0o555), target: None };
            books.make(&make).unwrap();
            let mut landing = books.landing(&transfer, Some("sub/file")).unwrap();
            landing.append(content.as_bytes()).unwrap();
            landing.commit(0o444).unwrap();
            match transfer.as_str() {
                "abandoned" => books.abandon(&transfer).unwrap(),
                _ => books.finish(&transfer).unwrap(),
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
