-- Stored pipelines. A pipeline belongs to an agent.
CREATE TABLE pipelines (
    id TEXT PRIMARY KEY,
    agent TEXT NOT NULL,
    name TEXT NOT NULL,
    -- Steps, parameters and the rule for failures, as JSON.
    definition TEXT NOT NULL,
    -- The labels of the conversation that wrote it, as JSON.
    labels TEXT NOT NULL,
    -- person, plan or process.
    source TEXT NOT NULL,
    created_by TEXT NOT NULL,
    created INTEGER NOT NULL
) STRICT;
CREATE INDEX pipelines_by_agent ON pipelines (agent, created);

-- Runs of pipelines. The definition is a copy, so a changed pipeline does not change a run.
CREATE TABLE pipeline_runs (
    id TEXT PRIMARY KEY,
    -- The stored pipeline, or the run's own id if its steps were given with the call.
    pipeline TEXT NOT NULL,
    agent TEXT NOT NULL,
    name TEXT NOT NULL,
    definition TEXT NOT NULL,
    -- Context and parameters, as JSON.
    input TEXT NOT NULL,
    -- The rights of the caller, as JSON.
    authority TEXT NOT NULL,
    -- The account that its costs are charged to, and the budgets that apply, as JSON.
    account TEXT NOT NULL,
    budgets TEXT NOT NULL,
    -- running, completed, failed, rejected or interrupted.
    state TEXT NOT NULL,
    reason TEXT,
    -- Who asked to cancel it.
    cancelled_by TEXT,
    started INTEGER NOT NULL,
    ended INTEGER
) STRICT;
CREATE INDEX pipeline_runs_by_agent ON pipeline_runs (agent, started);
CREATE INDEX pipeline_runs_by_pipeline ON pipeline_runs (pipeline, started);
CREATE INDEX pipeline_runs_unfinished ON pipeline_runs (state) WHERE ended IS NULL;

CREATE TABLE pipeline_steps (
    run TEXT NOT NULL REFERENCES pipeline_runs (id) ON DELETE CASCADE,
    position INTEGER NOT NULL,
    step TEXT NOT NULL,
    -- pending, running, completed, failed or skipped.
    state TEXT NOT NULL,
    -- 1 at first; a retry adds 1.
    attempt INTEGER NOT NULL,
    -- The key of its session in this attempt.
    session TEXT,
    result TEXT,
    error TEXT,
    skip_reason TEXT,
    -- The labels of its result, as JSON.
    labels TEXT NOT NULL,
    private_from TEXT,
    -- The model tier of an agent's step, for estimates. NULL for a tool call.
    tier TEXT,
    tokens_in INTEGER NOT NULL,
    tokens_out INTEGER NOT NULL,
    cost_nanos INTEGER NOT NULL,
    started INTEGER,
    ended INTEGER,
    PRIMARY KEY (run, position)
) STRICT;
CREATE INDEX pipeline_steps_by_tier ON pipeline_steps (tier, ended) WHERE tier IS NOT NULL;

-- Plans that wait for a person's answer.
CREATE TABLE plans (
    id TEXT PRIMARY KEY,
    agent TEXT NOT NULL,
    -- The plan as JSON, and the text that a person reads.
    plan TEXT NOT NULL,
    shown TEXT NOT NULL,
    labels TEXT NOT NULL,
    created_by TEXT NOT NULL,
    created INTEGER NOT NULL,
    -- NULL while nobody has answered.
    answer TEXT,
    answered_by TEXT,
    answered INTEGER,
    -- The pipeline that an approved plan became.
    pipeline TEXT
) STRICT;
CREATE INDEX plans_by_agent ON plans (agent, created);

-- Processes: recorded calls of a session.
CREATE TABLE processes (
    id TEXT PRIMARY KEY,
    agent TEXT NOT NULL,
    name TEXT NOT NULL,
    description TEXT NOT NULL,
    -- Steps and parameters, as JSON.
    record TEXT NOT NULL,
    labels TEXT NOT NULL,
    session TEXT NOT NULL,
    created INTEGER NOT NULL,
    -- The pipeline that it was promoted to.
    pipeline TEXT
) STRICT;
CREATE INDEX processes_by_agent ON processes (agent, created);

PRAGMA user_version = 11;
