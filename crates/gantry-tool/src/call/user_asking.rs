//! Questions to the user during a call. The surface that runs the call decides whether a user can be asked.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

pub use gantry_protocol::UserQuestion;

/// One answer for each question. `None` when the user did not answer.
pub type UserAnswers = Option<Vec<String>>;
pub type UserAnswersFuture = Pin<Box<dyn Future<Output = UserAnswers> + Send>>;

/// Asks the user. Dropping the future leaves the question open.
#[derive(Clone)]
pub struct UserAsker(Arc<dyn Fn(Vec<UserQuestion>) -> UserAnswersFuture + Send + Sync>);

impl UserAsker {
    pub fn new<F, Fut>(ask: F) -> UserAsker
    where
        F: Fn(Vec<UserQuestion>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = UserAnswers> + Send + 'static,
    {
        UserAsker(Arc::new(move |questions| Box::pin(ask(questions))))
    }

    pub fn ask(&self, questions: Vec<UserQuestion>) -> UserAnswersFuture {
        (self.0)(questions)
    }
}

impl std::fmt::Debug for UserAsker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("UserAsker")
    }
}
