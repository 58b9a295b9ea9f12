//! Uploads of staged files to a bucket whose server goes away.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use gantry_store::{DataDir, Objects, Staged};
use gantry_testkit::{S3Proxy, S3Server};

const MIB: usize = 1 << 20;
/// The number of parts of 8 MiB each.
const PARTS: usize = 5;

struct RemoteStore {
    _folder: tempfile::TempDir,
    data: DataDir,
    server: S3Server,
    proxy: Arc<S3Proxy>,
    objects: Objects,
}

fn remote_store() -> RemoteStore {
    let folder = tempfile::tempdir().unwrap();
    let data = DataDir::new(folder.path().join("data"));
    data.create().unwrap();
    let server = S3Server::start();
    let proxy = S3Proxy::to(&server);
    let objects = Objects::s3(proxy.config(&server)).unwrap();
    RemoteStore { _folder: folder, data, server, proxy, objects }
}

fn content(seed: u8) -> Vec<u8> {
    (0..PARTS * 8 * MIB - 1234).map(|at| (at / 1000) as u8 ^ seed).collect()
}

impl RemoteStore {
    fn stage(&self, bytes: &[u8]) {
        let mut staged = Staged::open(&self.data, "t-1").unwrap();
        staged.truncate(0).unwrap();
        staged.append(bytes).unwrap();
    }

    async fn put(&self, mode: u32) -> Result<usize, gantry_store::ObjectError> {
        let moved = AtomicUsize::new(0);
        let count_part = || {
            moved.fetch_add(1, Ordering::SeqCst);
        };
        let staged = Staged::open(&self.data, "t-1").unwrap();
        self.objects.put_staged("big", staged, "image/png", Some(mode), &count_part).await?;
        Ok(moved.into_inner())
    }

    /// The proxy goes down at the fourth part, so that at least one part has arrived: three are sent at once.
    async fn cut_in_the_middle(&self) {
        self.proxy.cut_with_part(4);
        let cut = self.put(0o640).await.unwrap_err();
        assert!(self.proxy.is_down() && cut.is_passing(), "{cut}");
    }

    async fn check(&self, bytes: &[u8]) {
        let found = self.objects.get("big", 1 << 30).await.unwrap().unwrap();
        assert!(found.bytes == bytes);
        assert_eq!((found.info.mode, found.info.content_type.as_str()), (Some(0o640), "image/png"));
        self.nothing_is_left();
        assert_eq!(self.server.open_uploads(), Vec::<String>::new());
    }

    fn nothing_is_left(&self) {
        assert_eq!(Staged::ids(&self.data).unwrap(), Vec::<String>::new());
        assert_eq!(self.server.open_uploads(), Vec::<String>::new());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_was_cut_goes_on_after_its_whole_parts() {
    let store = remote_store();
    store.stage(&content(1));
    store.cut_in_the_middle().await;
    assert!(!store.server.open_uploads().is_empty());
    assert!(store.objects.head("big").await.unwrap_err().is_passing());
    store.proxy.heal();
    let before = store.proxy.parts();
    // A restarted gateway does the same.
    let objects = Objects::s3(store.proxy.config(&store.server)).unwrap();
    let store = RemoteStore { objects, ..store };
    let moved = store.put(0o640).await.unwrap();
    let sent = store.proxy.parts() - before;
    assert!((1..PARTS).contains(&sent), "{sent} parts of {PARTS} were sent again");
    assert_eq!(moved, sent);
    store.check(&content(1)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn parts_of_another_file_are_not_gone_on_with() {
    let store = remote_store();
    store.stage(&content(1));
    store.cut_in_the_middle().await;
    store.proxy.heal();
    // A file with the same length and name.
    store.stage(&content(2));
    assert_eq!(store.put(0o640).await.unwrap(), PARTS);
    store.check(&content(2)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_is_given_up_is_aborted_once_the_store_is_back() {
    let store = remote_store();
    store.stage(&content(1));
    store.cut_in_the_middle().await;
    let away = store.objects.discard_staged(Staged::open(&store.data, "t-1").unwrap()).await.unwrap_err();
    assert!(away.is_passing(), "{away}");
    assert_eq!(Staged::ids(&store.data).unwrap(), ["t-1"]);
    // This works even after the file itself was removed.
    std::fs::remove_file(store.data.staging().join("t-1")).unwrap();
    assert_eq!(Staged::ids(&store.data).unwrap(), ["t-1"]);
    store.proxy.heal();
    store.objects.discard_staged(Staged::open(&store.data, "t-1").unwrap()).await.unwrap();
    store.nothing_is_left();
}

#[tokio::test(flavor = "multi_thread")]
async fn permanent_error_is_not_retried() {
    let server = S3Server::start();
    let wrong = gantry_store::S3Config { secret_access_key: "wrong".into(), ..server.config() };
    let refused = Objects::s3(wrong).unwrap().head("k").await.unwrap_err();
    assert!(!refused.is_passing(), "{refused}");
}
