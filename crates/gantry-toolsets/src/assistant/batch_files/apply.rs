//! Applies a plan of renames or moves. The first failure stops it, and the steps already done are
//! undone.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use gantry_files::{FileError, FoundFiles, Scope};
use gantry_tool::ToolError;

use super::plan::{Plan, Step};
use super::report::{files, shown};
use crate::machine::file_error;

pub(super) fn moves(
    scope: &Scope,
    found: &FoundFiles,
    plan: &Plan,
    cancelled: &AtomicBool,
) -> Result<(), ToolError> {
    if let (Some(destination), false) = (&plan.destination, plan.steps.is_empty()) {
        scope.make_dirs(destination).map_err(file_error)?;
    }
    for (done, step) in plan.steps.iter().enumerate() {
        let result = if cancelled.load(Ordering::Relaxed) {
            Err(FileError::Cancelled)
        } else {
            scope.rename_new(&step.from, &step.to, cancelled)
        };
        if let Err(err) = result {
            return Err(failure(scope, &found.directory, plan, done, &err));
        }
    }
    Ok(())
}

/// Undoes the first `done` steps, last first, and reports the state of every file.
fn failure(scope: &Scope, directory: &Path, plan: &Plan, done: usize, err: &FileError) -> ToolError {
    let stopped_at = plan.steps.get(done).map(|step| shown(directory, &step.from)).unwrap_or_default();
    let mut text = format!("stopped at {stopped_at}: {err}");
    // The call may be cancelled, but the undo must finish.
    let go_on = AtomicBool::new(false);
    let mut stuck: Vec<(&Step, FileError)> = Vec::new();
    for step in plan.steps.iter().take(done).rev() {
        if let Err(err) = scope.rename_new(&step.to, &step.from, &go_on) {
            stuck.push((step, err));
        }
    }
    let undone = done - stuck.len();
    if undone > 0 {
        text.push_str(&format!("\nundone: {} back in place", files(undone)));
    }
    if !stuck.is_empty() {
        text.push_str(&format!("\nchanged and not undone: {}", files(stuck.len())));
        for (step, err) in &stuck {
            text.push_str(&format!(
                "\n  {} -> {}: {err}",
                shown(directory, &step.from),
                shown(directory, &step.to)
            ));
        }
    }
    text.push_str(&format!("\nnot changed: {}", files(plan.steps.len() - done)));
    ToolError::failed(text)
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "tests inspect the file system directly")]
mod tests {
    use gantry_files::{Files, FilesOptions};

    use super::*;

    struct World {
        folder: tempfile::TempDir,
        scope: Scope,
        found: FoundFiles,
    }

    /// A folder with files that contain their own names.
    fn world(names: &[&str]) -> World {
        let folder = tempfile::tempdir().unwrap();
        let directory = folder.path().canonicalize().unwrap();
        for name in names {
            std::fs::write(directory.join(name), name).unwrap();
        }
        let scope = Files::new(FilesOptions::default()).unwrap().free(&directory).unwrap();
        World { folder, scope, found: FoundFiles { directory, ..FoundFiles::default() } }
    }

    impl World {
        fn plan(&self, steps: &[(&str, &str)]) -> Plan {
            let at = |name: &str| self.found.directory.join(name);
            let steps = steps.iter().map(|(from, to)| Step { from: at(from), to: at(to) }).collect();
            Plan { steps, ..Plan::default() }
        }

        fn content(&self) -> Vec<(String, String)> {
            let entries = std::fs::read_dir(self.folder.path()).unwrap().map(|entry| entry.unwrap().path());
            let name = |path: &Path| path.file_name().unwrap().to_str().unwrap().to_owned();
            let mut content: Vec<_> =
                entries.map(|path| (name(&path), std::fs::read_to_string(&path).unwrap())).collect();
            content.sort();
            content
        }
    }

    #[test]
    fn failure_half_way_undoes_earlier_steps() {
        let world = world(&["a", "b", "c", "d", "taken"]);
        let before = world.content();
        let plan = world.plan(&[("a", "1"), ("b", "2"), ("c", "taken"), ("d", "4")]);
        let error =
            moves(&world.scope, &world.found, &plan, &AtomicBool::new(false)).unwrap_err().to_string();
        let taken = world.found.directory.join("taken");
        let expected = format!(
            "stopped at c: already exists: {}\nundone: 2 files back in place\nnot changed: 2 files",
            taken.display()
        );
        assert_eq!(error, expected);
        assert_eq!(world.content(), before);
    }

    #[test]
    fn steps_that_cannot_be_undone_are_listed() {
        let world = world(&["a", "1", "2", "c"]);
        let plan = world.plan(&[("a", "1"), ("b", "2"), ("c", "3")]);
        let error =
            failure(&world.scope, &world.found.directory, &plan, 2, &FileError::EmptyPath).to_string();
        let expected = format!(
            "stopped at c: path is empty\nundone: 1 file back in place\nchanged and not undone: 1 file\n  \
             a -> 1: already exists: {}\nnot changed: 1 file",
            world.found.directory.join("a").display()
        );
        assert_eq!(error, expected);
        let names: Vec<_> = world.content();
        let own = |name: &str, content: &str| (name.to_owned(), content.to_owned());
        assert_eq!(names, [own("1", "1"), own("a", "a"), own("b", "2"), own("c", "c")]);
    }

    #[test]
    fn cancelled_batch_changes_nothing() {
        let world = world(&["a", "b"]);
        let plan = world.plan(&[("a", "1"), ("b", "2")]);
        let error = moves(&world.scope, &world.found, &plan, &AtomicBool::new(true)).unwrap_err().to_string();
        assert_eq!(error, "stopped at a: cancelled\nnot changed: 2 files");
        assert_eq!(world.content().len(), 2);
    }
}
