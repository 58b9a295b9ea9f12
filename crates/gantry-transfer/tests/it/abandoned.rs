//! A transfer that is abandoned while its files are being opened: no part of it stays, and none is made any more.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use gantry_files::{FileError, Files, FilesOptions, Scope};
use gantry_protocol::SentKind;
use gantry_transfer::{FileBooks, Wanted};
use tokio_util::sync::CancellationToken;

/// How long an opening waits for an abandonment that must not get in between.
const PAUSE: Duration = Duration::from_millis(300);

fn wanted(path: &str, kind: SentKind) -> Wanted<'_> {
    Wanted { path, kind, mode: None }
}

struct Place {
    folder: tempfile::TempDir,
    files: Files,
    books: FileBooks,
}

impl Place {
    fn new() -> Place {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("to")).unwrap();
        let files = Files::new(FilesOptions::default()).unwrap();
        let books = FileBooks::new(files.part_records(&folder.path().join("parts"), "gateway").unwrap());
        Place { folder, files, books }
    }

    fn scope(&self) -> Scope {
        self.files.contained(&self.folder.path().join("to")).unwrap()
    }

    fn prepare_directory(&self, beneath: &dyn Fn(Scope) -> Scope) {
        let opened = |root: &Path| Ok::<_, FileError>(beneath(self.files.contained(root)?));
        let never = CancellationToken::new();
        self.books.prepare("t", wanted("tree", SentKind::Directory), self.scope(), &opened, &never).unwrap();
    }

    /// Parts at the destination, and what is written down of them.
    fn left(&self) -> (usize, usize) {
        let tree = std::fs::read_dir(self.folder.path().join("to/tree")).unwrap();
        (tree.count(), self.books.parts().unwrap().transfers.len())
    }
}

#[test]
fn an_abandonment_waits_for_the_part_that_is_being_made() {
    let place = Place::new();
    let [opening, abandoned] = [(); 2].map(|()| Arc::new(AtomicBool::new(false)));
    let (begins, ends) = (opening.clone(), abandoned.clone());
    // Asked when the file's place is looked for, which is after its transfer was found and before anything is made.
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
        threads.spawn(|| place.books.landing("t", Some("file")).map(drop));
        while !opening.load(Ordering::SeqCst) {
            std::thread::yield_now();
        }
        place.books.abandon("t").unwrap();
        abandoned.store(true, Ordering::SeqCst);
    });
    assert_eq!(place.left(), (0, 0));
}

#[test]
fn whenever_it_is_abandoned_no_part_stays() {
    for round in 0..150 {
        let place = Place::new();
        place.prepare_directory(&|scope| scope);
        std::thread::scope(|threads| {
            for number in 0..3 {
                let place = &place;
                threads.spawn(move || place.books.landing("t", Some(&format!("file{number}"))).map(drop));
            }
            // From before the first is begun until after the last.
            let until = Instant::now() + Duration::from_micros(round * 5);
            while Instant::now() < until {
                std::hint::spin_loop();
            }
            place.books.abandon("t").unwrap();
        });
        assert_eq!(place.left(), (0, 0), "round {round}");
    }
}

#[test]
fn a_preparation_that_was_called_off_makes_no_part() {
    let place = Place::new();
    std::fs::create_dir(place.folder.path().join("to/tree")).unwrap();
    let prepare = |called_off: &CancellationToken| {
        let beneath = |root: &Path| place.files.contained(root);
        place.books.prepare("t", wanted("tree/file", SentKind::File), place.scope(), &beneath, called_off)
    };
    let called_off = CancellationToken::new();
    prepare(&called_off).unwrap();
    assert_eq!(place.left(), (1, 1), "a file's part is made when it is prepared");
    called_off.cancel();
    place.books.abandon("t").unwrap();
    assert!(matches!(prepare(&called_off), Err(FileError::Cancelled)));
    assert_eq!(place.left(), (0, 0));
}
