//! Work that waits for a disk, away from the thread that answers.

use crate::error::{Answer, Refusal};

/// Does something that may take a while.
///
/// # Errors
/// Those of the work; ours if it panics.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Answer<T> + Send + 'static,
) -> Answer<T> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|error| Err(Refusal::ours(&error)))
}
