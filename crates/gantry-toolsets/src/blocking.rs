//! Runs file work on blocking threads and stops it when its call is cancelled.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use gantry_tool::ToolError;

use crate::Ctx;

/// Runs `work` on a blocking thread. Its flag becomes true when the call is cancelled or dropped.
pub(crate) async fn blocking<T, W>(ctx: &Ctx, work: W) -> Result<T, ToolError>
where
    T: Send + 'static,
    W: FnOnce(&Ctx, &AtomicBool) -> Result<T, ToolError> + Send + 'static,
{
    let cancelled = Arc::new(AtomicBool::new(false));
    // Set when this future is dropped, also when the call is dropped half way.
    let _stop = SetOnDrop(cancelled.clone());
    let (own, flag) = (ctx.clone(), cancelled.clone());
    let mut task = tokio::task::spawn_blocking(move || work(&own, &flag));
    let joined = tokio::select! {
        joined = &mut task => joined,
        () = ctx.call.cancel.cancelled() => {
            cancelled.store(true, Ordering::Relaxed);
            task.await
        }
    };
    joined.unwrap_or_else(|err| Err(ToolError::internal(format!("a file operation panicked: {err}"))))
}

struct SetOnDrop(Arc<AtomicBool>);

impl Drop for SetOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
