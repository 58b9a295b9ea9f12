-- Conversations that others began: of which one each is a child, and which is the first of the family.
ALTER TABLE sessions ADD COLUMN parent TEXT;
ALTER TABLE sessions ADD COLUMN root TEXT;

CREATE INDEX sessions_of_a_family ON sessions (root, has_work) WHERE root IS NOT NULL;

PRAGMA user_version = 6;
