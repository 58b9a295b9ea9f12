-- Messages that leave the gateway: to sessions and webhooks.
CREATE TABLE outbox (
    id TEXT PRIMARY KEY,
    -- A message is stored once per key.
    dedupe TEXT NOT NULL UNIQUE,
    channel TEXT NOT NULL,
    target TEXT NOT NULL,
    -- Title, text, labels and origin, as JSON.
    body TEXT NOT NULL,
    -- queued, sending, sent, failed, unknown, expired or dropped.
    state TEXT NOT NULL,
    attempts INTEGER NOT NULL,
    next_at INTEGER NOT NULL,
    -- The process that sends it. Its writes carry the epoch.
    owner TEXT,
    epoch INTEGER NOT NULL,
    created INTEGER NOT NULL,
    updated INTEGER NOT NULL,
    expires INTEGER NOT NULL,
    error TEXT
) STRICT;
CREATE INDEX outbox_due ON outbox (state, next_at);
CREATE INDEX outbox_by_time ON outbox (created);

-- Definitions of scheduled jobs. Only people and tools change them.
CREATE TABLE cron_jobs (
    id TEXT PRIMARY KEY,
    -- Each change of the definition adds one.
    rev INTEGER NOT NULL,
    agent TEXT NOT NULL,
    enabled INTEGER NOT NULL,
    -- Name, schedule, spec and options, as JSON.
    definition TEXT NOT NULL,
    -- The rights of whoever created it, as JSON.
    authority TEXT NOT NULL,
    -- The person who allowed it. An unconfirmed job does not run.
    confirmed_by TEXT,
    -- Identifies the rules of its time zone.
    zone_rules TEXT NOT NULL,
    created INTEGER NOT NULL,
    updated INTEGER NOT NULL
) STRICT;
CREATE INDEX cron_jobs_by_agent ON cron_jobs (agent);

-- The runtime state of a job. Only the scheduler changes it.
CREATE TABLE cron_state (
    job TEXT PRIMARY KEY,
    -- The instant of the next occurrence.
    next_at INTEGER,
    -- When that occurrence is admitted: later than next_at by jitter and backoff.
    due_at INTEGER,
    -- Why, when and after how many errors it was paused, as JSON.
    paused TEXT,
    -- Errors in a row.
    errors INTEGER NOT NULL,
    -- Occurrences in a row that were skipped because a run still ran.
    skipped INTEGER NOT NULL,
    last_run_at INTEGER,
    last_status TEXT,
    last_error TEXT,
    last_duration INTEGER,
    last_answer TEXT
) STRICT;
CREATE INDEX cron_state_due ON cron_state (due_at);

-- Every instant at which a job was due, or manual start.
CREATE TABLE cron_occurrences (
    job TEXT NOT NULL,
    agent TEXT NOT NULL,
    scheduled_at INTEGER NOT NULL,
    -- 0 for scheduled ones; manual starts count up.
    manual_no INTEGER NOT NULL,
    -- The last instant that the row covers, for several missed ones.
    through INTEGER NOT NULL,
    -- due, catchup or manual.
    kind TEXT NOT NULL,
    -- admitted, skipped or missed.
    outcome TEXT NOT NULL,
    reason TEXT,
    run TEXT,
    at INTEGER NOT NULL,
    PRIMARY KEY (job, scheduled_at, manual_no)
) STRICT;
CREATE INDEX cron_occurrences_by_time ON cron_occurrences (at);

CREATE TABLE cron_runs (
    id TEXT PRIMARY KEY,
    job TEXT NOT NULL,
    rev INTEGER NOT NULL,
    kind TEXT NOT NULL,
    -- The job as it was at admission, as JSON.
    snapshot TEXT NOT NULL,
    -- queued, running, parked, ok, error, interrupted, cancelled or retired.
    state TEXT NOT NULL,
    -- The process that runs it. Its writes carry the epoch.
    owner TEXT,
    epoch INTEGER NOT NULL,
    session TEXT,
    queued INTEGER NOT NULL,
    not_before INTEGER NOT NULL,
    started INTEGER,
    ended INTEGER,
    error TEXT,
    summary TEXT,
    -- Billionths of a dollar.
    cost INTEGER NOT NULL,
    -- none, queued, sent, failed or unknown.
    delivery TEXT NOT NULL,
    -- 1: a failed delivery does not make the run an error.
    best_effort INTEGER NOT NULL
) STRICT;
CREATE INDEX cron_runs_by_state ON cron_runs (state, not_before);
CREATE INDEX cron_runs_by_job ON cron_runs (job, queued);

PRAGMA user_version = 10;
