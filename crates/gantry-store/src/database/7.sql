-- What of a directory has arrived, so that a gateway that starts anew does not send it again.
ALTER TABLE transfers ADD COLUMN ledger TEXT;

PRAGMA user_version = 7;
