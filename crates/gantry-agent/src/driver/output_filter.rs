//! What the model says, on its way to those who listen and into the journal: made harmless while the run holds both labels.

use gantry_model::{Block, Reply, StreamEvent};

use super::Driver;
use crate::agent::FlowRule;
use crate::sanitize_markdown::MarkdownSanitizer;

/// How the words of one request are shown.
pub(super) struct Shown {
    /// Why they are made harmless, if they are.
    why: Option<String>,
    /// Nothing was said before them in this run.
    begins: bool,
    text: MarkdownSanitizer,
    thinking: Option<MarkdownSanitizer>,
}

impl Shown {
    fn new(why: Option<String>, begins: bool) -> Shown {
        Shown { why, begins, text: MarkdownSanitizer::new(begins), thinking: None }
    }

    /// What is told in place of an event of the stream.
    pub(super) fn event(&mut self, event: StreamEvent) -> Vec<StreamEvent> {
        let Some(why) = &self.why else { return vec![event] };
        if let StreamEvent::Thinking(delta) = event {
            let thinking = self.thinking.get_or_insert_with(|| MarkdownSanitizer::new(false));
            return vec![StreamEvent::Thinking(thinking.feed(&delta))];
        }
        let thought = self.thinking.take().map(|mut thinking| StreamEvent::Thinking(thinking.finish(why)));
        let event = match event {
            StreamEvent::Text(delta) => StreamEvent::Text(self.text.feed(&delta)),
            StreamEvent::Restart { reason } => {
                self.text = MarkdownSanitizer::new(self.begins);
                StreamEvent::Restart { reason }
            }
            other => other,
        };
        thought.into_iter().chain([event]).collect()
    }

    /// What was held back, and the note.
    pub(super) fn rest(mut self) -> Vec<StreamEvent> {
        let Some(why) = &self.why else { return Vec::new() };
        let thought = self.thinking.take().map(|mut thinking| StreamEvent::Thinking(thinking.finish(why)));
        thought.into_iter().chain([StreamEvent::Text(self.text.finish(why))]).collect()
    }

    /// The same of the whole, so that what is kept is what was shown.
    pub(super) fn reply(mut self, mut reply: Reply) -> Reply {
        let Some(why) = &self.why else { return reply };
        let mut texts: Vec<&mut String> = Vec::new();
        for block in &mut reply.message.content {
            if let Block::Text { text } = block {
                texts.push(text);
            }
        }
        texts.iter_mut().for_each(|text| **text = self.text.feed(text));
        if let Some(last) = texts.last_mut() {
            last.push_str(&self.text.finish(why));
        }
        reply
    }
}

impl Driver {
    /// How the next words of the model are shown.
    pub(super) fn shown(&self) -> Shown {
        let run = self.state().and_then(|state| state.run.as_ref());
        Shown::new(self.carries_both(), !run.is_some_and(|run| run.has_spoken))
    }

    /// Why what clients fetch by themselves may not be shown as that, if it may not.
    pub(super) fn carries_both(&self) -> Option<String> {
        let both = self.state()?.flow.both()?;
        (self.agent().flow == FlowRule::Ask).then_some(both)
    }
}
