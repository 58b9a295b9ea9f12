//! A transfer that is abandoned while its files are being opened leaves no part file and creates none afterwards.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use gantry_files::{FileError, Files, FilesOptions, Scope};
use gantry_protocol::SentKind;
use gantry_transfer::{FileBackend, TransferBackend, Wanted};
use tokio_util::sync::CancellationToken;

/// How long opening a file waits for an abandonment that must not happen in between.
const PAUSE: Duration = Duration::from_millis(300);

fn wanted(path: &str, kind: SentKind) -> Wanted<'_> {
    Wanted { path, kind, mode: None }
}

struct Place {
    folder: tempfile::TempDir,
    files: Files,
    backend: FileBackend,
}

impl Place {
    fn new() -> Place {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("to")).unwrap();
        let files = Files::new(FilesOptions::default()).unwrap();
        let backend = FileBackend::new(files.part_records(&folder.path().join("parts"), "gateway").unwrap());
        Place { folder, files, backend }
    }

    fn scope(&self) -> Scope {
        self.files.contained(&self.folder.path().join("to")).unwrap()
    }

    fn prepare_directory(&self, beneath: &dyn Fn(Scope) -> Scope) {
        let opened = |root: &Path| Ok::<_, FileError>(beneath(self.files.contained(root)?));
        let never = CancellationToken::new();
        self.backend
            .prepare("t", wanted("tree", SentKind::Directory), self.scope(), &opened, &never)
            .unwrap();
    }

    /// Returns the number of part files and of transfers with records.
    fn left(&self) -> (usize, usize) {
        let tree = std::fs::read_dir(self.folder.path().join("to/tree")).unwrap();
        (tree.count(), self.backend.parts().unwrap().transfers.len())
    }
}

#[test]
fn abandoning_waits_for_a_part_file_being_created() {
    let place = Place::new();
    let [opening, abandoned] = [(); 2].map(|()| Arc::new(AtomicBool::new(false)));
    let (begins, ends) = (opening.clone(), abandoned.clone());
    // Called when the path is resolved: after the transfer was found and before anything is created.
    let lingers = move |path: &Path| {
        if path.ends_with("tree/file") {
            begins.store(true, Ordering::SeqCst);
            let until = Instant::now() + PAUSE;
            while !ends.load(Ordering::SeqCst) && Instant::now() < until {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        false
    };
    let lingers: Arc<dyn Fn(&Path) -> bool + Send + Sync> = Arc::new(lingers);
    place.prepare_directory(&move |scope| scope.refusing(lingers.clone()));
    std::thread::scope(|threads| {
        threads.spawn(|| place.backend.part_file("t", Some("file")).map(drop));
        while !opening.load(Ordering::SeqCst) {
            std::thread::yield_now();
        }
        place.backend.abandon("t").unwrap();
        abandoned.store(true, Ordering::SeqCst);
    });
    assert_eq!(place.left(), (0, 0));
}

#[test]
fn abandoning_at_any_time_leaves_no_part_file() {
    for round in 0..150 {
        let place = Place::new();
        place.prepare_directory(&|scope| scope);
        std::thread::scope(|threads| {
            for number in 0..3 {
                let place = &place;
                threads.spawn(move || place.backend.part_file("t", Some(&format!("file{number}"))).map(drop));
            }
            // The delays cover the time from before the first file until after the last.
            let until = Instant::now() + Duration::from_micros(round * 5);
            while Instant::now() < until {
                std::hint::spin_loop();
            }
            place.backend.abandon("t").unwrap();
        });
        assert_eq!(place.left(), (0, 0), "round {round}");
    }
}

#[test]
fn cancelled_preparation_creates_no_part_file() {
    let place = Place::new();
    std::fs::create_dir(place.folder.path().join("to/tree")).unwrap();
    let prepare = |called_off: &CancellationToken| {
        let beneath = |root: &Path| place.files.contained(root);
        place.backend.prepare("t", wanted("tree/file", SentKind::File), place.scope(), &beneath, called_off)
    };
    let called_off = CancellationToken::new();
    prepare(&called_off).unwrap();
    assert_eq!(place.left(), (1, 1), "preparing a file creates its part file");
    called_off.cancel();
    place.backend.abandon("t").unwrap();
    assert!(matches!(prepare(&called_off), Err(FileError::Cancelled)));
    assert_eq!(place.left(), (0, 0));
}
