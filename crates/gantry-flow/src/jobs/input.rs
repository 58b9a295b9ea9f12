//! Reads jobs as people and models write them. Everything that is wrong is listed at once.

use gantry_protocol::{CronDate, CronJobInput, CronScheduleInput, CronSpecInput};
use gantry_tool::{Refusal, RefusalCode};

use super::definition::{Carry, CatchUp, Delivers, JobDefinition, JobSpec, Overlap, TIMEOUT_SECONDS};
use crate::access::{name_problem, text_problem};
use crate::domain::Flow;
use crate::outbox::SESSION;
use crate::time::{DAY_MS, HOUR_MS, MINUTE_MS, Moment, SECOND_MS, Schedule, parse_future, parse_moment};

const MAX_NAME: usize = 200;
const MAX_TEXT: usize = 100 * 1024;
const MAX_TIMEOUT: u32 = 24 * 3_600;
const MAX_JITTER: u32 = 3_600;

/// A checked job, and what its author should know.
pub(super) struct CheckedJob {
    pub(super) definition: JobDefinition,
    pub(super) notes: Vec<String>,
}

/// What is wrong with an input.
#[derive(Default)]
struct Wrong(Vec<String>);

impl Wrong {
    fn add(&mut self, field: &str, message: impl std::fmt::Display) {
        self.0.push(format!("{field}: {message}"));
    }

    fn take<T>(&mut self, field: &str, found: Result<T, String>) -> Option<T> {
        found.map_err(|message| self.add(field, message)).ok()
    }
}

impl Flow {
    /// Checks a new job, or a change of `old`. `agent` is the agent that runs it.
    pub(super) fn check_job(
        &self,
        input: &CronJobInput,
        old: Option<&JobDefinition>,
        agent: &str,
    ) -> Result<CheckedJob, Refusal> {
        let (mut wrong, mut notes) = (Wrong::default(), Vec::new());
        let name = match (&input.name, old) {
            (Some(name), _) => match name.trim() {
                name if name.is_empty() || name.len() > MAX_NAME => {
                    wrong.add("name", format!("must have 1 to {MAX_NAME} bytes"));
                    None
                }
                name if name_problem("name", name).is_some() => {
                    wrong.0.extend(name_problem("name", name));
                    None
                }
                name => Some(name.to_owned()),
            },
            (None, Some(old)) => Some(old.name.clone()),
            (None, None) => {
                wrong.add("name", "is missing");
                None
            }
        };
        let schedule = match (&input.schedule, old) {
            (Some(schedule), old) => self.schedule(schedule, old, &mut wrong, &mut notes),
            (None, Some(old)) => Some(old.schedule.clone()),
            (None, None) => {
                wrong.add("schedule", "is missing; use kind \"at\", \"every\" or \"cron\"");
                None
            }
        };
        let spec = match (&input.spec, old) {
            (Some(spec), old) => self.spec(spec, old.map(|old| &old.spec), agent, &mut wrong),
            (None, Some(old)) => Some(old.spec.clone()),
            (None, None) => {
                wrong.add("spec", "is missing; use mode \"systemEvent\" or \"task\"");
                None
            }
        };
        let catch_up =
            word(&mut wrong, "catchUp", input.catch_up.as_deref(), CatchUp::from_name, "last or none");
        let overlap =
            word(&mut wrong, "overlap", input.overlap.as_deref(), Overlap::from_name, "skip or queue");
        let carry = word(&mut wrong, "carry", input.carry.as_deref(), Carry::from_name, "none or summary");
        if input.jitter_seconds.is_some_and(|seconds| seconds > MAX_JITTER) {
            wrong.add("jitterSeconds", format!("must be 0 to {MAX_JITTER}"));
        }
        if input.description.as_ref().is_some_and(|text| text.len() > MAX_TEXT) {
            wrong.add("description", format!("may have at most {MAX_TEXT} bytes"));
        }
        wrong.0.extend(input.description.as_deref().and_then(|text| text_problem("description", text)));
        let (Some(name), Some(schedule), Some(spec), true) = (name, schedule, spec, wrong.0.is_empty())
        else {
            return Err(Refusal::new(RefusalCode::InvalidInput, wrong.0.join("; ")));
        };
        let description = input.description.clone().filter(|text| !text.trim().is_empty());
        let definition = JobDefinition {
            name,
            description: description.or_else(|| old.and_then(|old| old.description.clone())),
            schedule,
            spec,
            delete_after_run: input.delete_after_run.unwrap_or(old.is_some_and(|old| old.delete_after_run)),
            catch_up: catch_up.or(old.map(|old| old.catch_up)).unwrap_or_default(),
            overlap: overlap.or(old.map(|old| old.overlap)).unwrap_or_default(),
            jitter_seconds: input.jitter_seconds.or(old.map(|old| old.jitter_seconds)).unwrap_or(0),
            carry: carry.or(old.map(|old| old.carry)).unwrap_or_default(),
        };
        if definition.delete_after_run && !definition.schedule.is_once() {
            notes.push("deleteAfterRun has no effect, because the job runs more than once".to_owned());
        }
        Ok(CheckedJob { definition, notes })
    }

    fn schedule(
        &self,
        input: &CronScheduleInput,
        old: Option<&JobDefinition>,
        wrong: &mut Wrong,
        notes: &mut Vec<String>,
    ) -> Option<Schedule> {
        let (now, zone) = (self.parts.clock.now(), &self.parts.zone);
        let given = [
            ("at", input.at.is_some(), "at"),
            ("in", input.r#in.is_some(), "at"),
            ("atMs", input.at_ms.is_some(), "at"),
            ("everyMinutes", input.every_minutes.is_some(), "every"),
            ("everyHours", input.every_hours.is_some(), "every"),
            ("everyDays", input.every_days.is_some(), "every"),
            ("everySeconds", input.every_seconds.is_some(), "every"),
            ("everyMs", input.every_ms.is_some(), "every"),
            ("anchor", input.anchor.is_some(), "every"),
            ("anchorMs", input.anchor_ms.is_some(), "every"),
            ("expr", input.expr.is_some(), "cron"),
            ("tz", input.tz.is_some(), "cron"),
        ];
        let before = wrong.0.len();
        for (field, _, kind) in given.iter().filter(|(_, is_given, kind)| *is_given && *kind != input.kind) {
            wrong.add(&format!("schedule.{field}"), format!("is only for kind \"{kind}\""));
        }
        let schedule = match input.kind.as_str() {
            "at" => {
                let dates = [
                    input.at.as_ref().map(|date| self.date(date, true)),
                    input.r#in.as_ref().map(|text| {
                        let text = text.trim();
                        let is_bare = !text.to_lowercase().starts_with("in ");
                        parse_future(&if is_bare { format!("in {text}") } else { text.to_owned() }, now, zone)
                    }),
                    input.at_ms.map(|at| self.date(&CronDate::Number(at), true)),
                ];
                let mut dates = dates.into_iter().flatten();
                match (dates.next(), dates.next()) {
                    (Some(date), None) => wrong.take("schedule.at", date).map(|moment| {
                        notes.extend(moment.note);
                        Schedule::At { at_ms: moment.at }
                    }),
                    (None, _) => {
                        wrong.add("schedule.at", "is missing, such as \"tomorrow at 9am\" or \"in 2 hours\"");
                        None
                    }
                    (Some(_), Some(_)) => {
                        wrong.add("schedule", "must have one of at, in and atMs");
                        None
                    }
                }
            }
            "every" => self.every(input, wrong, notes),
            "cron" => match &input.expr {
                Some(expr) => {
                    let kept = old.and_then(|old| old.schedule.zone().map(str::to_owned));
                    let user = || zone.iana_name().unwrap_or("UTC").to_owned();
                    let tz = input.tz.clone().or(kept).unwrap_or_else(user);
                    wrong.take("schedule.expr", Schedule::cron(expr, &tz, now))
                }
                None => {
                    wrong.add("schedule.expr", "is missing, such as \"0 9 * * 1-5\"");
                    None
                }
            },
            other => {
                wrong.add("schedule.kind", format!("must be \"at\", \"every\" or \"cron\", got {other:?}"));
                None
            }
        };
        schedule.filter(|_| wrong.0.len() == before)
    }

    fn every(
        &self,
        input: &CronScheduleInput,
        wrong: &mut Wrong,
        notes: &mut Vec<String>,
    ) -> Option<Schedule> {
        #[expect(clippy::cast_possible_truncation, clippy::cast_precision_loss, reason = "casts saturate")]
        let scaled = |number: f64, unit: i64| (number * unit as f64).round() as i64;
        let lengths = [
            input.every_minutes.map(|number| scaled(number, MINUTE_MS)),
            input.every_hours.map(|number| scaled(number, HOUR_MS)),
            input.every_days.map(|number| scaled(number, DAY_MS)),
            input.every_seconds.map(|number| scaled(number, SECOND_MS)),
            input.every_ms,
        ];
        let mut lengths = lengths.into_iter().flatten();
        let length = match (lengths.next(), lengths.next()) {
            (Some(length), None) => Some(length),
            _ => {
                wrong.add(
                    "schedule",
                    "must have one of everyMinutes, everyHours, everyDays, everySeconds and everyMs",
                );
                None
            }
        };
        let anchor = match (&input.anchor, input.anchor_ms) {
            (Some(_), Some(_)) => {
                wrong.add("schedule", "must have one of anchor and anchorMs");
                None
            }
            (Some(date), None) => wrong.take("schedule.anchor", self.date(date, false)).map(|moment| {
                notes.extend(moment.note);
                moment.at
            }),
            (None, Some(at)) => Some(at),
            (None, None) => Some(self.parts.clock.now()),
        };
        let (length, anchor) = (length?, anchor?);
        wrong.take("schedule", Schedule::every(length, anchor))
    }

    /// Reads a date. Numbers are epochs.
    fn date(&self, date: &CronDate, is_future: bool) -> Result<Moment, String> {
        let (now, zone) = (self.parts.clock.now(), &self.parts.zone);
        let text = match date {
            CronDate::Number(number) => number.to_string(),
            CronDate::Text(text) => text.clone(),
        };
        if is_future { parse_future(&text, now, zone) } else { parse_moment(&text, now, zone) }
    }

    fn spec(
        &self,
        input: &CronSpecInput,
        old: Option<&JobSpec>,
        agent: &str,
        wrong: &mut Wrong,
    ) -> Option<JobSpec> {
        let before = wrong.0.len();
        let spec = match input.mode.as_str() {
            "systemEvent" => {
                let others = [
                    ("message", input.message.is_some()),
                    ("deliver", input.deliver.is_some()),
                    ("channel", input.channel.is_some()),
                    ("to", input.to.is_some()),
                    ("model", input.model.is_some()),
                    ("thinking", input.thinking.is_some()),
                    ("timeoutSeconds", input.timeout_seconds.is_some()),
                    ("bestEffortDeliver", input.best_effort_deliver.is_some()),
                ];
                for (field, _) in others.into_iter().filter(|(_, is_given)| *is_given) {
                    wrong.add(&format!("spec.{field}"), "is only for mode \"task\"");
                }
                let kept = match old {
                    Some(JobSpec::SystemEvent { text }) => Some(text.clone()),
                    _ => None,
                };
                text(wrong, "spec.text", input.text.clone().or(kept))
                    .map(|text| JobSpec::SystemEvent { text })
            }
            "task" => self.task(input, old, agent, wrong),
            other => {
                wrong.add("spec.mode", format!("must be \"systemEvent\" or \"task\", got {other:?}"));
                None
            }
        };
        spec.filter(|_| wrong.0.len() == before)
    }

    fn task(
        &self,
        input: &CronSpecInput,
        old: Option<&JobSpec>,
        agent: &str,
        wrong: &mut Wrong,
    ) -> Option<JobSpec> {
        if input.text.is_some() {
            wrong.add("spec.text", "is only for mode \"systemEvent\"; a task has a message");
        }
        let old = match old {
            Some(JobSpec::Task {
                message,
                deliver,
                to,
                model,
                thinking,
                timeout_seconds,
                best_effort_deliver,
            }) => Some((message, *deliver, to, model, thinking, *timeout_seconds, *best_effort_deliver)),
            _ => None,
        };
        let message = text(wrong, "spec.message", input.message.clone().or(old.map(|old| old.0.clone())));
        let deliver = input.deliver.or(old.map(|old| old.1)).unwrap_or(true);
        let to = match (&input.channel, &input.to, old) {
            (None, None, Some(old)) => Some(old.2.clone()),
            (channel, to, _) => {
                wrong.take("spec.channel", self.receiver(channel.as_deref(), to.as_deref(), agent))
            }
        };
        let thinking = input.thinking.clone().or(old.and_then(|old| old.4.clone()));
        if let Some(Err(message)) = thinking.as_deref().map(gantry_agent::thinking) {
            wrong.add("spec.thinking", message);
        }
        let timeout_seconds = input.timeout_seconds.or(old.map(|old| old.5)).unwrap_or(TIMEOUT_SECONDS);
        if !(1..=MAX_TIMEOUT).contains(&timeout_seconds) {
            wrong.add("spec.timeoutSeconds", format!("must be 1 to {MAX_TIMEOUT}"));
        }
        let best_effort_deliver = input.best_effort_deliver.or(old.map(|old| old.6)).unwrap_or(false);
        let model = input.model.clone().or(old.and_then(|old| old.3.clone()));
        Some(JobSpec::Task {
            message: message?,
            deliver,
            to: to?,
            model,
            thinking,
            timeout_seconds,
            best_effort_deliver,
        })
    }

    /// Resolves where answers go. Without a channel it is the owner's main session.
    fn receiver(&self, channel: Option<&str>, to: Option<&str>, agent: &str) -> Result<Delivers, String> {
        let name = channel.unwrap_or(SESSION);
        let Some(found) = self.parts.outbox.channel(name) else {
            let known = self.parts.outbox.names().join(", ");
            return Err(format!("unknown channel {name:?}; known channels: {known}"));
        };
        if let (SESSION, Some(to)) = (name, to)
            && !to.starts_with(&format!("agent:{agent}:"))
        {
            return Err(format!("answers go to a session of the same agent, such as agent:{agent}:main"));
        }
        let target = match (name, to) {
            (SESSION, None) => format!("agent:{agent}:main"),
            (_, to) => to.unwrap_or_default().to_owned(),
        };
        let to = found.check_target(&target).map_err(|why| format!("cannot deliver to {target:?}: {why}"))?;
        Ok(Delivers { channel: found.name().to_owned(), to })
    }
}

fn text(wrong: &mut Wrong, field: &str, text: Option<String>) -> Option<String> {
    match text {
        Some(text) if !text.trim().is_empty() && text.len() <= MAX_TEXT => Some(text),
        Some(_) => {
            wrong.add(field, format!("must have 1 to {MAX_TEXT} bytes"));
            None
        }
        None => {
            wrong.add(field, "is missing");
            None
        }
    }
}

fn word<T>(
    wrong: &mut Wrong,
    field: &str,
    text: Option<&str>,
    read: impl Fn(&str) -> Option<T>,
    known: &str,
) -> Option<T> {
    let text = text?;
    let found = read(text);
    if found.is_none() {
        wrong.add(field, format!("must be {known}, got {text:?}"));
    }
    found
}
