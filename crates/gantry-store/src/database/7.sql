-- Which entries of a directory have arrived, so that a restarted gateway does not send them again.
ALTER TABLE transfers ADD COLUMN ledger TEXT;

PRAGMA user_version = 7;
