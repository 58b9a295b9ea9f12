-- The headers of an answer, so that a retry gets them too: a JSON list of names and values.
ALTER TABLE idempotency ADD COLUMN headers TEXT NOT NULL DEFAULT '[]';

PRAGMA user_version = 3;
