CREATE TABLE nodes (
    id TEXT PRIMARY KEY NOT NULL,
    token_hash BLOB NOT NULL,
    tags TEXT NOT NULL,
    created INTEGER NOT NULL,
    first_seen INTEGER,
    last_seen INTEGER,
    last_connected INTEGER,
    last_disconnected INTEGER,
    platform TEXT,
    version TEXT,
    instance TEXT,
    tools TEXT,
    capabilities TEXT NOT NULL DEFAULT '[]',
    revoked INTEGER
) STRICT, WITHOUT ROWID;

CREATE TABLE client_tokens (
    name TEXT PRIMARY KEY NOT NULL,
    token_hash BLOB NOT NULL UNIQUE,
    tools TEXT,
    agents TEXT NOT NULL,
    read_only INTEGER NOT NULL,
    created INTEGER NOT NULL,
    expires INTEGER,
    last_used INTEGER,
    revoked INTEGER
) STRICT;

CREATE TABLE idempotency (
    principal TEXT NOT NULL,
    key TEXT NOT NULL,
    request_hash BLOB NOT NULL,
    instance TEXT NOT NULL,
    created INTEGER NOT NULL,
    status INTEGER,
    content_type TEXT,
    body BLOB,
    body_bytes INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (principal, key)
) STRICT;
CREATE INDEX idempotency_by_age ON idempotency (created);
-- Few answers are long: their sum is read without the others.
CREATE INDEX idempotency_long ON idempotency (created, body_bytes) WHERE body_bytes > 65536;

CREATE TABLE process_ends (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    node TEXT NOT NULL,
    event_id TEXT NOT NULL,
    recorded INTEGER NOT NULL,
    event TEXT NOT NULL,
    UNIQUE (node, event_id)
) STRICT;
CREATE INDEX process_ends_by_age ON process_ends (recorded);

CREATE TABLE transfers (
    id TEXT PRIMARY KEY NOT NULL,
    agent TEXT NOT NULL,
    principal TEXT NOT NULL,
    source TEXT NOT NULL,
    destination TEXT NOT NULL,
    state TEXT NOT NULL,
    size INTEGER,
    bytes_done INTEGER NOT NULL,
    error TEXT,
    created INTEGER NOT NULL,
    updated INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX transfers_by_state ON transfers (state, updated);

PRAGMA user_version = 1;
