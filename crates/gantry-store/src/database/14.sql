-- Browsers that are logged in to the web page. Only hashes are stored.
CREATE TABLE page_sessions (
    id TEXT PRIMARY KEY,
    cookie_hash BLOB NOT NULL UNIQUE,
    key_hash BLOB NOT NULL,
    -- For display only.
    browser TEXT NOT NULL,
    address TEXT NOT NULL,
    created INTEGER NOT NULL,
    last_used INTEGER NOT NULL
) STRICT;

-- Answers of models by time, for reports of usage.
CREATE INDEX session_replies ON session_events (at) WHERE kind = 'replied';

PRAGMA user_version = 14;
