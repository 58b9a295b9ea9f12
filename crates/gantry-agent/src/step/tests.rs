//! A simulation without disk, model and tools. It performs the steps with random outcomes and crashes at random.

use std::collections::{HashMap, HashSet};

use gantry_model::{Block, Message, Reply, Role, StopReason, Usage};
use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::context::Window;
use crate::entry::{ApprovalDecision, CallResult, Incoming, Question};
use crate::state::CallStatus;

const LIMITS: Limits = Limits { requests: 12, window: Window { tokens: 4_000, reserved: 500 } };
/// A session that is still busy after this many steps is stuck.
const PATIENCE: usize = 3_000;

struct World {
    journal: Vec<Entry>,
    state: State,
    dice: Vec<u8>,
    at: usize,
    /// The calls that run in the current process.
    running: Vec<String>,
    asking: bool,
    /// Questions that calls of the current process wait for.
    waiting: HashSet<String>,
    /// The number of effects of each call that is not read-only.
    effects: HashMap<String, u32>,
    sent: HashSet<String>,
    settled: HashMap<String, u32>,
    names: u32,
    /// The journal has a possible order. An impossible one makes invalid requests.
    is_possible: bool,
}

impl World {
    fn new(dice: Vec<u8>) -> World {
        World {
            journal: Vec::new(),
            state: State::default(),
            dice,
            at: 0,
            running: Vec::new(),
            asking: false,
            waiting: HashSet::new(),
            effects: HashMap::new(),
            sent: HashSet::new(),
            settled: HashMap::new(),
            names: 0,
            is_possible: true,
        }
    }

    /// Returns the next random number, or 0 when all are used, so that the simulation ends.
    fn throw(&mut self, sides: u8) -> u8 {
        self.at += 1;
        self.dice.get(self.at - 1).map_or(0, |die| die % sides)
    }

    fn name(&mut self, what: &str) -> String {
        self.names += 1;
        format!("{what}{}", self.names)
    }

    fn append(&mut self, entries: Vec<Entry>) {
        for entry in entries {
            if let (Entry::RunEnded { .. }, Some(run)) = (&entry, &self.state.run) {
                for message in &run.answers {
                    *self.settled.entry(message.id.clone()).or_default() += 1;
                }
            }
            self.state.apply(entry.clone());
            self.journal.push(entry);
        }
    }

    /// Drops everything that is not in the journal.
    fn crash(&mut self) {
        self.running.clear();
        self.waiting.clear();
        self.asking = false;
        self.state = State::fold(self.journal.clone());
        let left = recover(&self.state);
        self.append(left);
        assert!(recover(&self.state).is_empty(), "a second start has nothing to recover");
        let waits = self.state.calls().iter().all(|call| !matches!(call.status, CallStatus::Begun { .. }));
        assert!(waits, "no call counts as running in a new process");
    }

    fn live(&mut self) {
        for _ in 0..PATIENCE {
            match self.throw(16) {
                1 => self.crash(),
                2 if self.at < self.dice.len() => {
                    // Sometimes a message is repeated.
                    let again = self.throw(4) == 1;
                    let id = if again { "first".to_owned() } else { self.name("message") };
                    self.sent.insert(id.clone());
                    self.append(vec![Entry::MessageIn(incoming(&id))]);
                }
                3 if self.state.run.is_some() => {
                    self.append(vec![Entry::StopAsked { by: "user".into() }]);
                    self.running.clear();
                    self.asking = false;
                }
                4 => self.answer_question(),
                _ => {}
            }
            match next(&self.state, &LIMITS, 7) {
                Step::Idle if self.at >= self.dice.len() => return,
                Step::Idle => {}
                Step::Record(entries) => self.append(entries),
                Step::Ask => {
                    if self.is_possible {
                        check_messages(&self.state.messages);
                    }
                    self.append(vec![Entry::RequestBegun { model: "m".into() }]);
                    self.asking = true;
                }
                Step::Call(calls) => {
                    for call in calls {
                        let read_only = self.throw(2) == 1;
                        self.append(vec![Entry::CallBegun { call: call.clone(), read_only, polls: false }]);
                        if self.throw(4) == 1 {
                            self.ask(&call);
                        } else {
                            self.begin(&call, read_only);
                        }
                    }
                }
                Step::Compact => {
                    let mut state = self.state.clone();
                    let at = crate::context::cut(&state.messages, &LIMITS.window);
                    state.messages =
                        crate::context::compacted(&state.messages, at, "summary", &LIMITS.window);
                    if let Some(run) = &mut state.run {
                        run.compactions += 1;
                        run.phase = Phase::Ready;
                    }
                    self.append(vec![Entry::Compacted {
                        state: Box::new(state),
                        replaced: at,
                        by_model: true,
                    }]);
                }
                Step::Wait => self.something_ends(),
            }
        }
        panic!("stuck: {:?} {:?}", self.state.run, self.state.queue);
    }

    fn begin(&mut self, call: &str, read_only: bool) {
        if !read_only {
            *self.effects.entry(call.to_owned()).or_default() += 1;
        }
        self.running.push(call.to_owned());
    }

    fn ask(&mut self, call: &str) {
        let known = self.state.call(call).and_then(|call| call.questions.first().cloned());
        let asked = match known {
            Some(asked) if asked.answer.is_some() => return self.running.push(call.to_owned()),
            Some(asked) => asked.question,
            None => question(&self.name("question"), call),
        };
        self.waiting.insert(asked.id.clone());
        self.append(vec![Entry::ApprovalAsked(asked)]);
    }

    fn answer_question(&mut self) {
        let Some(question) = self.state.open_questions().next().cloned() else { return };
        let answer = if self.throw(2) == 0 { ApprovalDecision::Yes } else { ApprovalDecision::No };
        let allowed = answer == ApprovalDecision::Yes;
        let waits = self.waiting.remove(&question.id);
        self.append(vec![Entry::ApprovalAnswered {
            question: question.id,
            answer,
            by: "user".into(),
            at: 1,
        }]);
        if !waits {
            return;
        }
        let begun = self.state.call(&question.call).map(|call| call.status.clone());
        match begun {
            Some(CallStatus::Begun { read_only, .. }) if allowed => self.begin(&question.call, read_only),
            Some(CallStatus::Begun { .. }) => self.running.push(question.call),
            _ => {}
        }
    }

    fn something_ends(&mut self) {
        if self.asking {
            self.asking = false;
            let entry = match self.throw(8) {
                1 => Entry::RequestFailed { error: "429".into(), overflow: false, learned: None },
                2 => Entry::RequestFailed { error: "too long".into(), overflow: true, learned: None },
                _ => Entry::Replied { reply: Box::new(self.reply()) },
            };
            return self.append(vec![entry]);
        }
        if let Some(call) = self.running.pop() {
            let text = "x".repeat(usize::from(self.throw(200)) * 10);
            let result = CallResult {
                content: vec![Block::text(text)],
                is_error: false,
                labels: Vec::new(),
                ..CallResult::default()
            };
            return self.append(vec![Entry::CallEnded { call, result }]);
        }
        // Only a question is left, or a call that a crash and an answer left as started.
        let is_asked = self.state.open_questions().next().is_some();
        if is_asked { self.answer_question() } else { self.crash() }
    }

    fn reply(&mut self) -> Reply {
        let calls = self.throw(4);
        let mut content: Vec<Block> = Vec::new();
        if self.throw(3) > 0 {
            content.push(Block::text("text"));
        }
        for _ in 0..calls {
            let id = self.name("call");
            let malformed = (self.throw(6) == 1).then(|| "{".to_owned());
            let node = if self.throw(5) == 1 { "*" } else { "a" };
            content.push(Block::ToolUse {
                id,
                name: "T".into(),
                input: json!({"node": node, "n": self.names}),
                malformed,
            });
        }
        let stop = if calls > 0 { StopReason::ToolUse } else { StopReason::EndTurn };
        Reply {
            message: Message { role: Role::Assistant, content },
            stop,
            usage: Usage::default(),
            model: "m".into(),
        }
    }
}

fn incoming(id: &str) -> Incoming {
    let text = format!("{id} {}", "word ".repeat(40));
    Incoming {
        id: id.into(),
        text,
        images: Vec::new(),
        at: 1,
        from: "user".into(),
        reply_to: json!({"to": id}),
        labels: Vec::new(),
        payer: None,
    }
}

fn question(id: &str, call: &str) -> Question {
    Question {
        id: id.into(),
        call: call.into(),
        tool: "T".into(),
        rule: "r".into(),
        reason: "because".into(),
        input: json!({}),
        fingerprint: call.into(),
        exact: String::new(),
        action: None,
        offers: Vec::new(),
        expires: 9,
        child: None,
    }
}

/// Checks what every provider requires: roles alternate, the user starts, and every call has its result in the next message.
fn check_messages(messages: &[Message]) {
    assert_eq!(messages.first().map(|first| first.role), Some(Role::User));
    let mut open: HashSet<&str> = HashSet::new();
    let mut before = Role::Assistant;
    for message in messages {
        assert_ne!(message.role, before, "roles must alternate: {messages:#?}");
        before = message.role;
        assert!(!message.content.is_empty());
        if message.role == Role::Assistant {
            assert!(open.is_empty(), "calls without results: {open:?}");
        }
        for block in &message.content {
            match block {
                Block::ToolUse { id, .. } => assert!(open.insert(id), "{id} twice"),
                Block::ToolResult { id, .. } => assert!(open.remove(id.as_str()), "{id} answers no call"),
                _ => {}
            }
        }
    }
    assert!(open.is_empty(), "calls without results: {open:?}");
    assert_eq!(before, Role::User);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: gantry_testkit::scaled(10_000, 500), failure_persistence: None, ..ProptestConfig::default() })]

    /// With any events and crashes, every message is settled once, no effect happens twice, every request is valid, and the
    /// session becomes idle.
    #[test]
    fn every_session_with_crashes_settles_each_message_once(dice in prop::collection::vec(any::<u8>(), 0..400)) {
        let mut world = World::new(dice);
        world.append(vec![Entry::MessageIn(incoming("first"))]);
        world.sent.insert("first".into());
        world.live();
        for (call, times) in &world.effects {
            prop_assert!(*times <= 1, "{call} had its effect {times} times");
        }
        for message in &world.sent {
            prop_assert_eq!(world.settled.get(message), Some(&1), "{} was not settled once", message);
        }
        prop_assert!(!world.state.has_work());
        check_messages_at_rest(&world.state.messages);
        // The journal folds to the same state when it is read from text.
        let text: Vec<String> = world.journal.iter().map(|entry| serde_json::to_string(entry).unwrap()).collect();
        let read = text.iter().map(|text| serde_json::from_str::<Entry>(text).unwrap());
        prop_assert_eq!(State::fold(read), world.state);
    }

    /// Every prefix of a journal can be resumed.
    #[test]
    fn every_prefix_of_a_journal_resumes(dice in prop::collection::vec(any::<u8>(), 0..200), cut in any::<prop::sample::Index>()) {
        let mut world = World::new(dice);
        world.append(vec![Entry::MessageIn(incoming("first"))]);
        world.live();
        let journal = world.journal[..cut.index(world.journal.len() + 1)].to_vec();
        let mut again = World::new(Vec::new());
        again.journal = journal;
        again.names = world.names;
        again.crash();
        again.live();
        prop_assert!(!again.state.has_work());
    }

    /// Entries in an impossible order are ignored.
    #[test]
    fn entries_in_any_order_fold(dice in prop::collection::vec(any::<u8>(), 0..100), order in any::<u64>()) {
        let mut world = World::new(dice);
        world.append(vec![Entry::MessageIn(incoming("first"))]);
        world.live();
        let mut shuffled = world.journal.clone();
        let mut seed = order;
        for at in (1..shuffled.len()).rev() {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            shuffled.swap(at, usize::try_from(seed >> 33).unwrap() % (at + 1));
        }
        let mut again = World::new(Vec::new());
        again.journal = shuffled;
        again.names = 100_000;
        again.is_possible = false;
        again.crash();
        again.live();
    }
}

/// As [`check_messages`], but the last message may be the model's.
fn check_messages_at_rest(messages: &[Message]) {
    let mut whole = messages.to_vec();
    if whole.last().is_none_or(|last| last.role == Role::Assistant) {
        whole.push(Message::user("and?"));
    }
    check_messages(&whole);
}
