-- Codes with which a machine joins once. Only hashes of their tokens are kept.
CREATE TABLE join_codes (
    token_hash BLOB PRIMARY KEY,
    node TEXT NOT NULL,
    created INTEGER NOT NULL,
    expires INTEGER NOT NULL,
    -- When it was exchanged for the token of the node.
    used INTEGER
) STRICT, WITHOUT ROWID;

PRAGMA user_version = 15;
