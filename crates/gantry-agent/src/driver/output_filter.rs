//! [`OutputFilter`] sanitizes the model's output while the run holds both labels. The output goes to listeners
//! and into the journal.

use gantry_model::{Block, Reply, StreamEvent};

use super::Driver;
use crate::agent::FlowRule;
use crate::sanitize_markdown::MarkdownSanitizer;

/// The filter for the output of one request.
pub(super) struct OutputFilter {
    /// Why the output is sanitized. `None` passes it unchanged.
    why: Option<String>,
    /// This is the first output of the run.
    is_first: bool,
    text: MarkdownSanitizer,
    thinking: Option<MarkdownSanitizer>,
}

impl OutputFilter {
    fn new(why: Option<String>, is_first: bool) -> OutputFilter {
        OutputFilter { why, is_first, text: MarkdownSanitizer::new(is_first), thinking: None }
    }

    /// Returns the events to publish instead of an event of the stream.
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
                self.text = MarkdownSanitizer::new(self.is_first);
                StreamEvent::Restart { reason }
            }
            other => other,
        };
        thought.into_iter().chain([event]).collect()
    }

    /// Returns the output that was held back, and a note if something was changed.
    pub(super) fn finish(mut self) -> Vec<StreamEvent> {
        let Some(why) = &self.why else { return Vec::new() };
        let thought = self.thinking.take().map(|mut thinking| StreamEvent::Thinking(thinking.finish(why)));
        thought.into_iter().chain([StreamEvent::Text(self.text.finish(why))]).collect()
    }

    /// Sanitizes the whole reply, so that the journal has what was published.
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
    /// Returns the filter for the next output of the model.
    pub(super) fn output_filter(&self) -> OutputFilter {
        let run = self.state().and_then(|state| state.run.as_ref());
        OutputFilter::new(self.filter_reason(), !run.is_some_and(|run| run.has_spoken))
    }

    /// Returns the reason to sanitize output: the run holds both labels, and clients fetch images without asking.
    pub(super) fn filter_reason(&self) -> Option<String> {
        let both = self.state()?.flow.both()?;
        (self.agent().flow == FlowRule::Ask).then_some(both)
    }
}
