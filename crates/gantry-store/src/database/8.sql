-- Approvals and further rules for a transfer, which a restarted gateway needs to resume it.
ALTER TABLE transfers ADD COLUMN standing TEXT;

-- Counts the tokens that have had a name: what one of them left is not the next one's.
ALTER TABLE client_tokens ADD COLUMN generation INTEGER NOT NULL DEFAULT 1;

PRAGMA user_version = 8;
