-- Approvals that also cover later calls of an agent.
CREATE TABLE grants (
    id TEXT PRIMARY KEY,
    agent TEXT NOT NULL,
    -- The session in which it was given.
    session TEXT NOT NULL,
    -- 1: it counts in all sessions of the agent.
    everywhere INTEGER NOT NULL,
    -- The calls that it covers, as JSON.
    scope TEXT NOT NULL,
    label TEXT NOT NULL,
    tool TEXT NOT NULL,
    rule TEXT NOT NULL,
    asked TEXT NOT NULL,
    fingerprint TEXT NOT NULL,
    exact TEXT NOT NULL,
    given_by TEXT NOT NULL,
    created INTEGER NOT NULL,
    expires INTEGER NOT NULL,
    revoked INTEGER
) STRICT;
CREATE INDEX grants_by_agent ON grants (agent, expires);

PRAGMA user_version = 9;
