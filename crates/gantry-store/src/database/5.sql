-- Places whose content others may have written: files and objects that agents wrote after they had read such content.
CREATE TABLE marks (
  -- An absolute path, or gsv: and an object's key. One of a directory counts for all beneath it.
  place TEXT PRIMARY KEY,
  -- What the content may come from, in words.
  source TEXT NOT NULL,
  at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

PRAGMA user_version = 5;
