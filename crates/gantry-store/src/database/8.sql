-- By which rules a transfer is judged beside its caller's own, and what was approved, for a gateway that starts anew.
ALTER TABLE transfers ADD COLUMN standing TEXT;

PRAGMA user_version = 8;
