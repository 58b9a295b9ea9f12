-- Conversations of agents. What happens in one is a row of session_events, never changed and never removed.
CREATE TABLE sessions (
  id INTEGER PRIMARY KEY,
  key TEXT NOT NULL UNIQUE,
  agent TEXT NOT NULL,
  label TEXT,
  created INTEGER NOT NULL,
  last_activity INTEGER NOT NULL,
  next_seq INTEGER NOT NULL DEFAULT 0,
  -- The newest event that holds all that is needed of those before it.
  checkpoint INTEGER NOT NULL DEFAULT 0,
  -- Something is to be done: a start of the gateway goes on with it.
  has_work INTEGER NOT NULL DEFAULT 0
) STRICT;

CREATE INDEX sessions_by_activity ON sessions (last_activity);
CREATE INDEX sessions_with_work ON sessions (key) WHERE has_work = 1;

CREATE TABLE session_events (
  session INTEGER NOT NULL REFERENCES sessions (id),
  seq INTEGER NOT NULL,
  at INTEGER NOT NULL,
  kind TEXT NOT NULL,
  data TEXT NOT NULL,
  PRIMARY KEY (session, seq)
) STRICT;

-- What agents remember.
CREATE TABLE memories (
  id INTEGER PRIMARY KEY,
  owner TEXT NOT NULL,
  namespace TEXT NOT NULL,
  stored INTEGER NOT NULL,
  content TEXT NOT NULL,
  -- Letters and digits only, in lower case: two that differ in nothing else are one.
  essence TEXT NOT NULL,
  -- A JSON list of the labels of the run that stored it.
  labels TEXT NOT NULL DEFAULT '[]',
  UNIQUE (owner, namespace, essence)
) STRICT;

CREATE VIRTUAL TABLE memories_text USING fts5 (content, content = 'memories', content_rowid = 'id', tokenize = 'unicode61 remove_diacritics 2');

CREATE TRIGGER memories_added AFTER INSERT ON memories BEGIN
  INSERT INTO memories_text (rowid, content) VALUES (new.id, new.content);
END;
CREATE TRIGGER memories_removed AFTER DELETE ON memories BEGIN
  INSERT INTO memories_text (memories_text, rowid, content) VALUES ('delete', old.id, old.content);
END;

-- What models cost, in billionths of a dollar.
CREATE TABLE spending (
  day TEXT NOT NULL,
  agent TEXT NOT NULL,
  run TEXT NOT NULL,
  nanos INTEGER NOT NULL,
  PRIMARY KEY (day, agent, run)
) STRICT, WITHOUT ROWID;

CREATE INDEX spending_by_run ON spending (run);

PRAGMA user_version = 4;
