-- What an answer told beside its body, so that a retry is told the same: a JSON list of names and values.
ALTER TABLE idempotency ADD COLUMN headers TEXT NOT NULL DEFAULT '[]';

PRAGMA user_version = 3;
