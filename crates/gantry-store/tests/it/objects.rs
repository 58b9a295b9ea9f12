//! The object store gives the same guarantees in a folder and in a bucket of a real S3-compatible server.

use std::sync::Arc;

use bytes::Bytes;
use gantry_store::{DataDir, Depth, ObjectError, Objects, Staged};
use gantry_testkit::S3Server;

/// A store in a folder or in a bucket.
struct Home {
    data: DataDir,
    objects: Objects,
    _folder: tempfile::TempDir,
    server: Option<S3Server>,
}

impl Home {
    fn folder() -> Home {
        let folder = tempfile::tempdir().unwrap();
        let data = DataDir::new(folder.path().join("data"));
        data.create().unwrap();
        Home { objects: Objects::folder(&data), data, _folder: folder, server: None }
    }

    fn s3() -> Home {
        let server = S3Server::start();
        let home = Home::folder();
        Home { objects: Objects::s3(server.config()).unwrap(), server: Some(server), ..home }
    }

    fn is_s3(&self) -> bool {
        self.server.is_some()
    }

    async fn put(&self, key: &str, text: &str) {
        self.objects.put(key, Bytes::copy_from_slice(text.as_bytes()), "text/plain").await.unwrap();
    }

    async fn get(&self, key: &str) -> Option<String> {
        let object = self.objects.get(key, 1 << 20).await.unwrap()?;
        Some(String::from_utf8(object.bytes.to_vec()).unwrap())
    }

    async fn read_from(&self, key: &str, offset: u64) -> Vec<u8> {
        let mut reader = self.objects.open(key, offset, None).await.unwrap().unwrap();
        let mut bytes = Vec::new();
        while let Some(block) = reader.next().await.unwrap() {
            bytes.extend_from_slice(&block);
        }
        bytes
    }
}

/// Makes a test of each function for a folder and for a bucket.
macro_rules! in_both_homes {
    ($($name:ident)*) => { $(
        mod $name {
            #[tokio::test(flavor = "multi_thread")]
            async fn in_a_folder() {
                super::check::$name(super::Home::folder()).await;
            }
            #[tokio::test(flavor = "multi_thread")]
            async fn in_a_bucket() {
                super::check::$name(super::Home::s3()).await;
            }
        }
    )* };
}

in_both_homes! {
    puts_gets_and_deletes
    lists_in_order_with_and_without_what_is_below
    many_pages_are_one_listing
    staged_files_of_any_size_arrive_whole
    reads_from_an_offset_and_always_one_version
    changes_are_one_step
    copies_inside_the_store
    modes_stay_with_their_objects
    bad_keys_change_nothing
}

mod check {
    use super::*;

    pub(super) async fn puts_gets_and_deletes(home: Home) {
        assert_eq!(home.objects.head("a/b.md").await.unwrap(), None);
        assert_eq!(home.get("a/b.md").await, None);
        assert!(!home.objects.delete("a/b.md").await.unwrap());
        for text in ["one", "", "three words here", "ünï"] {
            home.objects.put("a/b.md", Bytes::from(text.to_owned()), "text/markdown").await.unwrap();
            assert_eq!(home.get("a/b.md").await.as_deref(), Some(text));
            let info = home.objects.head("a/b.md").await.unwrap().unwrap();
            assert_eq!((info.size, info.content_type.as_str()), (text.len() as u64, "text/markdown"));
            let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_millis();
            assert!((info.modified - now as i64).abs() < 60_000, "{}", info.modified);
        }
        home.put("ünï/ä b%2e#?.txt", "odd").await;
        assert_eq!(home.get("ünï/ä b%2e#?.txt").await.as_deref(), Some("odd"));
        let refused = home.objects.get("a/b.md", 3).await.unwrap_err();
        assert!(matches!(refused, ObjectError::TooLarge { size: 5, limit: 3, .. }), "{refused}");
        if !home.is_s3() {
            // The test server stores files and fails on a prefix where S3 finds nothing.
            assert_eq!(home.get("a").await, None, "a prefix is not an object");
            assert!(!home.objects.delete("a").await.unwrap(), "nor can it be deleted");
        }
        assert!(home.objects.delete("a/b.md").await.unwrap());
        assert_eq!(home.get("a/b.md").await, None);
        assert_eq!(home.objects.list("a/", Depth::One).await.unwrap(), Default::default());
    }

    pub(super) async fn lists_in_order_with_and_without_what_is_below(home: Home) {
        for key in ["w/b", "w/a.txt", "w/a/x", "w/a/y/z", "w/c/d/e", "wide/x", "v"] {
            home.put(key, key).await;
        }
        let one = home.objects.list("w/", Depth::One).await.unwrap();
        let keys: Vec<&str> = one.objects.iter().map(|object| object.key.as_str()).collect();
        assert_eq!(
            (keys, one.prefixes),
            (vec!["w/a.txt", "w/b"], vec!["w/a/".to_owned(), "w/c/".to_owned()])
        );
        assert_eq!(one.objects[0].size, 7);
        let all = home.objects.list("w/", Depth::All).await.unwrap();
        let keys: Vec<&str> = all.objects.iter().map(|object| object.key.as_str()).collect();
        assert_eq!(keys, ["w/a.txt", "w/a/x", "w/a/y/z", "w/b", "w/c/d/e"]);
        let top = home.objects.list("", Depth::One).await.unwrap();
        assert_eq!((top.objects.len(), top.prefixes), (1, vec!["w/".to_owned(), "wide/".to_owned()]));
        assert_eq!(home.objects.list("none/", Depth::All).await.unwrap(), Default::default());
        assert_eq!(home.objects.list("w/b/", Depth::One).await.unwrap(), Default::default());
        for bad in ["w", "/", "../", "a//"] {
            assert!(matches!(home.objects.list(bad, Depth::One).await, Err(ObjectError::BadKey(_))), "{bad}");
        }
        // Removing the last object below a prefix removes the prefix.
        home.objects.delete("w/c/d/e").await.unwrap();
        let one = home.objects.list("w/", Depth::One).await.unwrap();
        assert_eq!(one.prefixes, ["w/a/"]);
    }

    /// A store sends at most a thousand keys at once.
    pub(super) async fn many_pages_are_one_listing(home: Home) {
        const COUNT: usize = 1_100;
        let objects = Arc::new(home);
        let tasks: Vec<_> = (0..4)
            .map(|part| {
                let home = Arc::clone(&objects);
                tokio::spawn(async move {
                    for number in (part..COUNT).step_by(4) {
                        home.put(&format!("many/{number:05}"), "x").await;
                    }
                })
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
        for depth in [Depth::One, Depth::All] {
            let listing = objects.objects.list("many/", depth).await.unwrap();
            assert_eq!((listing.objects.len(), listing.truncated), (COUNT, false));
            assert!(listing.objects.is_sorted_by_key(|object| object.key.clone()));
        }
    }

    pub(super) async fn staged_files_of_any_size_arrive_whole(home: Home) {
        // One request, exactly one part, several parts with a rest.
        for size in [0, 10, 8 << 20, (20 << 20) + 7] {
            let mut content = vec![0; size];
            blake3::Hasher::new().finalize_xof().fill(&mut content);
            let mut staged = Staged::open(&home.data, "t1").unwrap();
            staged.append(&content).unwrap();
            home.objects.put_staged("big/file.png", staged, "image/png", None, &|| ()).await.unwrap();
            let info = home.objects.head("big/file.png").await.unwrap().unwrap();
            assert_eq!((info.size, info.content_type.as_str()), (size as u64, "image/png"));
            assert_eq!(
                blake3::hash(&home.read_from("big/file.png", 0).await),
                blake3::hash(&content),
                "{size}"
            );
            assert_eq!(std::fs::read_dir(home.data.staging()).unwrap().count(), 0, "the staged file is gone");
        }
    }

    pub(super) async fn reads_from_an_offset_and_always_one_version(home: Home) {
        let content: Vec<u8> = (0..3 << 20).map(|number: u32| (number / 7) as u8).collect();
        home.objects.put("k", content.clone(), "text/plain").await.unwrap();
        for offset in [0, 1, 1 << 20, content.len() as u64 - 1] {
            assert!(home.read_from("k", offset).await == content[offset as usize..], "{offset}");
        }
        for offset in [content.len() as u64, u64::MAX] {
            assert_eq!(home.read_from("k", offset).await, b"");
        }
        assert!(home.objects.open("none", 0, None).await.unwrap().is_none());
        let etag = home.objects.head("k").await.unwrap().unwrap().etag;
        assert!(home.objects.open("k", 5, Some(&etag)).await.unwrap().is_some());
        home.put("k", "other").await;
        let changed = home.objects.open("k", 5, Some(&etag)).await.unwrap_err();
        assert!(matches!(changed, ObjectError::Changed { .. }), "{changed}");
    }

    pub(super) async fn changes_are_one_step(home: Home) {
        let refused = home.objects.update("n", 100, "text/plain", |object| {
            assert!(object.is_none());
            Err::<(Vec<u8>, ()), _>("no")
        });
        assert_eq!(refused.await.unwrap(), Err("no"));
        assert_eq!(home.get("n").await, None, "a refused change makes nothing");
        // Every task adds one; no change is lost.
        let home = Arc::new(home);
        let tasks: Vec<_> = (0..6)
            .map(|_| {
                let home = Arc::clone(&home);
                tokio::spawn(async move {
                    for _ in 0..5 {
                        home.objects.update("n", 100, "text/plain", add_one).await.unwrap().unwrap();
                    }
                })
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
        assert_eq!(home.get("n").await.as_deref(), Some("30"));
    }

    fn add_one(object: Option<gantry_store::Object>) -> Result<(Vec<u8>, ()), ()> {
        let number =
            object.map_or(0, |object| std::str::from_utf8(&object.bytes).unwrap().parse::<u32>().unwrap());
        Ok(((number + 1).to_string().into_bytes(), ()))
    }

    pub(super) async fn copies_inside_the_store(home: Home) {
        home.objects.put("from.md", Bytes::from_static(b"text"), "text/markdown").await.unwrap();
        home.put("to/deep.md", "old").await;
        assert_eq!(home.objects.copy("from.md", "to/deep.md").await.unwrap(), 4);
        assert_eq!(home.get("to/deep.md").await.as_deref(), Some("text"));
        assert_eq!(home.get("from.md").await.as_deref(), Some("text"));
        let missing = home.objects.copy("none", "to/x").await.unwrap_err();
        assert!(matches!(missing, ObjectError::NotFound { .. }), "{missing}");
        assert_eq!(home.get("to/x").await, None);
    }

    pub(super) async fn modes_stay_with_their_objects(home: Home) {
        let mode = async |key: &str| home.objects.head(key).await.unwrap().unwrap().mode;
        let stage = async |key: &str, size: usize, mode| {
            let mut staged = Staged::open(&home.data, "t1").unwrap();
            staged.append(&vec![b'1'; size]).unwrap();
            home.objects.put_staged(key, staged, "text/plain", mode, &|| ()).await.unwrap();
        };
        // In one request and in parts.
        for size in [3, (8 << 20) + 1] {
            stage("tools/run.sh", size, Some(0o755)).await;
            assert_eq!(mode("tools/run.sh").await, Some(0o755), "{size}");
        }
        stage("key", 1, Some(0o100_600)).await;
        let object = home.objects.get("key", 9).await.unwrap().unwrap();
        let opened = home.objects.open("key", 0, None).await.unwrap().unwrap();
        assert_eq!((object.info.mode, opened.info.mode), (Some(0o600), Some(0o600)));
        // A copy has the mode of its source; an overwritten object keeps its own.
        home.objects.copy("tools/run.sh", "copy.sh").await.unwrap();
        assert_eq!(mode("copy.sh").await, Some(0o755));
        home.put("key", "new text").await;
        assert_eq!((mode("key").await, home.get("key").await.as_deref()), (Some(0o600), Some("new text")));
        home.put("key", "1").await;
        home.objects.update("key", 100, "text/plain", add_one).await.unwrap().unwrap();
        assert_eq!((mode("key").await, home.get("key").await.as_deref()), (Some(0o600), Some("2")));
        stage("key", 1, Some(0o400)).await;
        assert_eq!(mode("key").await, Some(0o400), "a file that arrives brings its own");
        // An object written here has no mode, nor has one that is created again after a removal.
        stage("plain", 1, None).await;
        home.objects.delete("key").await.unwrap();
        home.put("key", "x").await;
        assert_eq!((mode("plain").await, mode("key").await), (None, None));
    }

    pub(super) async fn bad_keys_change_nothing(home: Home) {
        for key in ["", "/etc/x", "../x", "a/../../x", "a//b", "a\\b", "a\0", "a/"] {
            let refused = home.objects.put(key, Bytes::from_static(b"x"), "text/plain").await;
            assert!(matches!(refused, Err(ObjectError::BadKey(_))), "{key:?}");
            assert!(matches!(home.objects.get(key, 9).await, Err(ObjectError::BadKey(_))), "{key:?}");
            assert!(matches!(home.objects.delete(key).await, Err(ObjectError::BadKey(_))), "{key:?}");
            assert!(matches!(home.objects.copy(key, "x").await, Err(ObjectError::BadKey(_))), "{key:?}");
        }
        assert_eq!(home.objects.list("", Depth::All).await.unwrap(), Default::default());
    }
}

#[tokio::test]
async fn key_is_an_object_or_a_folder_and_conflicts_are_reported() {
    let home = Home::folder();
    home.put("a/b", "x").await;
    let put =
        async |key: &str| home.objects.put(key, Bytes::new(), "text/plain").await.unwrap_err().to_string();
    assert_eq!(put("a").await, r#""a" cannot be an object: other objects lie below it"#);
    assert_eq!(put("a/b/c").await, r#""a/b/c" cannot be an object: "a/b" is an object itself"#);
    assert_eq!(put("a/b/c/d").await, r#""a/b/c/d" cannot be an object: "a/b" is an object itself"#);
    assert_eq!(home.get("a/b").await.as_deref(), Some("x"));
    assert_eq!(home.get("a/b/c").await, None);
    assert_eq!(std::fs::read_dir(home.data.objects().join("temp")).unwrap().count(), 0, "no temp file stays");
}

/// Folders are removed with their last object while other tasks put into them; no put is lost.
#[tokio::test(flavor = "multi_thread")]
async fn puts_and_deletes_in_one_folder_do_not_trip() {
    let home = Arc::new(Home::folder());
    let tasks: Vec<_> = (0..4)
        .map(|number| {
            let home = Arc::clone(&home);
            tokio::spawn(async move {
                for _ in 0..50 {
                    let key = format!("deep/er/{number}");
                    home.put(&key, "x").await;
                    assert_eq!(home.get(&key).await.as_deref(), Some("x"));
                    assert!(home.objects.delete(&key).await.unwrap());
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    assert_eq!(home.objects.list("", Depth::All).await.unwrap(), Default::default());
}

/// Another gateway writes between our read and our write: its change stays, and ours is applied to it.
#[tokio::test(flavor = "multi_thread")]
async fn a_change_by_another_gateway_is_not_lost() {
    let home = Home::s3();
    let other = Objects::s3(home.server.as_ref().unwrap().config()).unwrap();
    for (first, expected) in [(None, "theirs+ours"), (Some("old"), "theirs+ours")] {
        home.objects.delete("k").await.unwrap();
        if let Some(text) = first {
            home.put("k", text).await;
        }
        let (other, mut rounds) = (other.clone(), 0);
        let changed = home.objects.update("k", 100, "text/plain", move |object| {
            rounds += 1;
            if rounds == 1 {
                let put = other.put("k", Bytes::from_static(b"theirs"), "text/plain");
                tokio::task::block_in_place(|| tokio::runtime::Handle::current().block_on(put)).unwrap();
            }
            let text =
                object.map_or(String::new(), |object| String::from_utf8(object.bytes.to_vec()).unwrap());
            Ok::<_, ()>((format!("{text}+ours").into_bytes(), rounds))
        });
        assert_eq!(changed.await.unwrap(), Ok(2));
        assert_eq!(home.get("k").await.as_deref(), Some(expected));
    }
    // A writer that always wins causes an error, not an endless loop.
    let mut rounds = 0;
    let busy = home.objects.update("k", 100, "text/plain", move |_| {
        rounds += 1;
        let put = other.put("k", Bytes::from(format!("theirs {rounds}")), "text/plain");
        tokio::task::block_in_place(|| tokio::runtime::Handle::current().block_on(put)).unwrap();
        Ok::<_, ()>((b"ours".to_vec(), ()))
    });
    assert!(matches!(busy.await, Err(ObjectError::Changed { .. })));
}

#[tokio::test]
async fn wrong_secret_is_an_error_that_does_not_show_it() {
    let server = S3Server::start();
    let config = gantry_store::S3Config { secret_access_key: "very-wrong-secret".into(), ..server.config() };
    assert!(!format!("{config:?}").contains("very-wrong"));
    let objects = Objects::s3(config).unwrap();
    let refused = objects.put("k", Bytes::from_static(b"x"), "text/plain").await.unwrap_err();
    let shown = format!("{refused} {refused:?} {objects:?} {}", objects.place());
    assert!(shown.contains("cannot write") && !shown.contains("very-wrong"), "{shown}");
    assert_eq!(server.files(), Vec::<String>::new());
    for broken in [
        gantry_store::S3Config { bucket: String::new(), ..server.config() },
        gantry_store::S3Config { access_key_id: String::new(), ..server.config() },
        gantry_store::S3Config { prefix: Some("../x".into()), ..server.config() },
    ] {
        assert!(Objects::s3(broken).is_err());
    }
}
