-- The provider's id of a message that was sent to a chat.
ALTER TABLE outbox ADD COLUMN provider_id TEXT;
-- The name of the message at the provider, for those that ignore repetitions or report later.
ALTER TABLE outbox ADD COLUMN send_key TEXT;
-- Names a question in the buttons of a chat.
ALTER TABLE outbox ADD COLUMN handle TEXT;
-- 1 for chats: messages to one receiver are sent one after the other.
ALTER TABLE outbox ADD COLUMN ordered INTEGER NOT NULL DEFAULT 0;
CREATE UNIQUE INDEX outbox_by_handle ON outbox (handle) WHERE handle IS NOT NULL;
CREATE INDEX outbox_by_send_key ON outbox (send_key) WHERE send_key IS NOT NULL;
CREATE INDEX outbox_in_order ON outbox (channel, target, id) WHERE ordered = 1 AND state IN ('queued', 'sending');

-- Where an account continues to listen.
CREATE TABLE channel_cursors (
    channel TEXT NOT NULL,
    account TEXT NOT NULL,
    value TEXT NOT NULL,
    PRIMARY KEY (channel, account)
) STRICT;

-- Events of chats that were taken. A provider may deliver an event again.
CREATE TABLE channel_events (
    channel TEXT NOT NULL,
    account TEXT NOT NULL,
    event TEXT NOT NULL,
    at INTEGER NOT NULL,
    PRIMARY KEY (channel, account, event)
) STRICT;
CREATE INDEX channel_events_by_time ON channel_events (at);

-- People by the provider's stable id.
CREATE TABLE channel_people (
    channel TEXT NOT NULL,
    account TEXT NOT NULL,
    id TEXT NOT NULL,
    -- For display only.
    name TEXT NOT NULL,
    -- owner, member, pending or blocked.
    role TEXT NOT NULL,
    -- The chat of two with this person, as JSON.
    chat TEXT,
    -- The code of a pending request.
    code TEXT,
    code_expires INTEGER,
    created INTEGER NOT NULL,
    updated INTEGER NOT NULL,
    PRIMARY KEY (channel, account, id)
) STRICT;
CREATE INDEX channel_people_by_code ON channel_people (code) WHERE code IS NOT NULL;

-- One-time codes with which the owner links an account. Only hashes are stored.
CREATE TABLE channel_links (
    hash TEXT PRIMARY KEY,
    channel TEXT NOT NULL,
    account TEXT NOT NULL,
    expires INTEGER NOT NULL
) STRICT;

-- Wrong codes of a person.
CREATE TABLE channel_guesses (
    channel TEXT NOT NULL,
    account TEXT NOT NULL,
    person TEXT NOT NULL,
    count INTEGER NOT NULL,
    since INTEGER NOT NULL,
    PRIMARY KEY (channel, account, person)
) STRICT;

-- Chats of two in which a known person wrote. A person may have several, and a chat may change its people.
CREATE TABLE channel_chats (
    channel TEXT NOT NULL,
    account TEXT NOT NULL,
    person TEXT NOT NULL,
    -- The address as JSON.
    address TEXT NOT NULL,
    at INTEGER NOT NULL,
    PRIMARY KEY (channel, account, person, address)
) STRICT;

-- The owner's last active conversation with an agent: the address as JSON.
CREATE TABLE channel_last_active (
    agent TEXT PRIMARY KEY,
    address TEXT NOT NULL,
    at INTEGER NOT NULL
) STRICT;

PRAGMA user_version = 13;
