//! The allocator of every binary of ours: large tensors come and go all the time, and the system's
//! own would fault in every page anew.

pub use mimalloc::MiMalloc as Allocator;

/// `mi_option_purge_delay` of mimalloc 3: after how many milliseconds freed pages go back to the
/// system.
const PURGE_DELAY: libmimalloc_sys::mi_option_t = 15;

/// A minute: longer than a denoising or training step, so that the next one finds its pages; short
/// enough that what a stage no longer needs is given back.
const KEPT_MILLISECONDS: i64 = 60_000;

/// Keeps freed pages for a while instead of handing them back within a second. Clearing them again
/// was 7 % of a transformer's time. Call it once, before the first thread starts.
pub fn keep_freed_pages() {
    // SAFETY: setting an option of the allocator is allowed at any time on one thread; the index
    // is that of the version which the manifest pins.
    unsafe { libmimalloc_sys::mi_option_set(PURGE_DELAY, KEPT_MILLISECONDS as _) }
}

/// Gives freed pages back now. Clearing them again costs time, so this is for work that would rather
/// be small than quick.
pub fn give_freed_pages_back() {
    // SAFETY: collecting is allowed at any time on any thread; it touches no live allocation.
    unsafe { libmimalloc_sys::mi_collect(true) }
}
