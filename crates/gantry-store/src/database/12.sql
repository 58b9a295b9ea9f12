-- Tasks. Only people and tools change a definition.
CREATE TABLE tasks (
    id TEXT PRIMARY KEY,
    -- Each change of the definition adds one.
    rev INTEGER NOT NULL,
    -- The agent whose rights its runs have.
    agent TEXT NOT NULL,
    parent TEXT,
    scope TEXT NOT NULL,
    kind TEXT NOT NULL,
    status TEXT NOT NULL,
    -- 0 urgent, 1 high, 2 medium, 3 low.
    priority INTEGER NOT NULL,
    -- YYYY-MM-DD.
    due TEXT,
    assignee TEXT,
    title TEXT NOT NULL,
    -- Description, tags, schedule, page and pipeline, as JSON.
    definition TEXT NOT NULL,
    -- The rights of whoever created it, as JSON.
    authority TEXT NOT NULL,
    -- The person who allowed its unattended runs. Without one it does not run.
    confirmed_by TEXT,
    created INTEGER NOT NULL,
    updated INTEGER NOT NULL,
    completed INTEGER
) STRICT;
CREATE INDEX tasks_by_status ON tasks (status, priority, due);
CREATE INDEX tasks_by_parent ON tasks (parent);

-- The runtime state of a task. Only its worker changes it.
CREATE TABLE task_state (
    task TEXT PRIMARY KEY,
    next_at INTEGER,
    -- Errors in a row.
    errors INTEGER NOT NULL,
    last_run_at INTEGER,
    last_status TEXT,
    last_result TEXT
) STRICT;
CREATE INDEX task_state_due ON task_state (next_at);

CREATE TABLE task_runs (
    id TEXT PRIMARY KEY,
    task TEXT NOT NULL,
    -- The instant that it was due, or the number of a manual run below 0.
    scheduled_at INTEGER NOT NULL,
    -- What it does, as JSON: the task as it was at admission.
    snapshot TEXT NOT NULL,
    -- queued, running, parked, ok, error or cancelled.
    state TEXT NOT NULL,
    -- The process that runs it. Its writes carry the epoch.
    owner TEXT,
    epoch INTEGER NOT NULL,
    session TEXT NOT NULL,
    queued INTEGER NOT NULL,
    started INTEGER,
    ended INTEGER,
    result TEXT,
    error TEXT,
    -- Billionths of a dollar.
    cost INTEGER NOT NULL,
    UNIQUE (task, scheduled_at)
) STRICT;
CREATE INDEX task_runs_by_state ON task_runs (state, queued);

-- What the last look at a watched page found. The text is the baseline of the next comparison.
CREATE TABLE watches (
    task TEXT PRIMARY KEY,
    etag TEXT,
    modified TEXT,
    hash TEXT NOT NULL,
    text TEXT NOT NULL,
    checked INTEGER NOT NULL
) STRICT;

PRAGMA user_version = 12;
