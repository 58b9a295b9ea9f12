-- How freely the caller of a transfer acts, so that a resumed one is judged as it was at first.
ALTER TABLE transfers ADD COLUMN autonomy TEXT NOT NULL DEFAULT 'supervised';

PRAGMA user_version = 2;
