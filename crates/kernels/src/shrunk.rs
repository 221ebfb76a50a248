//! A mapped file that another process cuts short. The system ends whoever reads what is no longer there with
//! SIGBUS, which says nothing; a handler says which file it was.
//!
//! A handler is given an address and no context, so what it needs is the one static of this crate: the ranges
//! that are mapped, each with the words to be said, which were made before. Entries are never freed, so that a handler may
//! walk them at any moment; one that is free serves the next mapping of the same file.

use std::ffi::{c_int, c_void};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};
use std::{io, mem, ptr};

/// Who watches, once somebody does.
// tidy: signal: only a handler reads it, and no result depends on it.
static WATCH: AtomicPtr<Watch> = AtomicPtr::new(ptr::null_mut());

/// What the handler knows.
struct Watch {
    /// The exit code of a process that loses a file.
    code: i32,
    message: Box<dyn Fn(&Path) -> String + Send + Sync>,
    /// What handled the signal before.
    previous: libc::sigaction,
    newest: AtomicPtr<Entry>,
    /// Whether a thread is saying it: others that read the same file fault in the same moment.
    is_told: AtomicBool,
}

/// A file and where it is mapped.
struct Entry {
    path: PathBuf,
    /// What is said should it shrink.
    message: Vec<u8>,
    is_taken: AtomicBool,
    start: AtomicUsize,
    /// 0 where nothing is mapped. It is set last and cleared first.
    end: AtomicUsize,
    older: Option<&'static Entry>,
}

/// A mapped range that the handler knows, for as long as this lives.
pub(crate) struct Watched(&'static Entry);

impl Drop for Watched {
    fn drop(&mut self) {
        self.0.end.store(0, Ordering::SeqCst);
        self.0.is_taken.store(false, Ordering::SeqCst);
    }
}

/// From here on, a process that reads from a mapped file what somebody has cut off says `message` on stderr
/// and ends with `code`. Files that are mapped already stay unwatched. A second call changes nothing.
///
/// # Errors
/// The system refuses the handler.
pub fn watch_mapped_files(
    code: i32,
    message: impl Fn(&Path) -> String + Send + Sync + 'static,
) -> io::Result<()> {
    // SAFETY: `sigaction` is plain data for which zeros are valid; both calls get pointers to live values,
    // and the handler has the signature that SA_SIGINFO asks for.
    let previous = unsafe {
        let mut previous: libc::sigaction = mem::zeroed();
        if libc::sigaction(libc::SIGBUS, ptr::null(), &mut previous) != 0 {
            return Err(io::Error::last_os_error());
        }
        previous
    };
    let newest = AtomicPtr::new(ptr::null_mut());
    let (message, is_told) = (Box::new(message), AtomicBool::new(false));
    let watch = Box::into_raw(Box::new(Watch { code, message, previous, newest, is_told }));
    let none = ptr::null_mut();
    if WATCH.compare_exchange(none, watch, Ordering::SeqCst, Ordering::SeqCst).is_err() {
        // SAFETY: it was made above and nobody else has seen it.
        drop(unsafe { Box::from_raw(watch) });
        return Ok(());
    }
    // SAFETY: as above.
    let result = unsafe {
        let mut action: libc::sigaction = mem::zeroed();
        let handler: extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void) = on_bus_error;
        action.sa_sigaction = handler as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        libc::sigemptyset(&mut action.sa_mask);
        libc::sigaction(libc::SIGBUS, &action, ptr::null_mut())
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Tells the handler where a file is mapped, if there is one.
pub(crate) fn watch(path: &Path, mapped: &[u8]) -> Option<Watched> {
    // SAFETY: a watch is never freed once it stands there.
    let watch = unsafe { WATCH.load(Ordering::SeqCst).as_ref() }?;
    let entry = free_entry(watch, path).unwrap_or_else(|| new_entry(watch, path));
    let start = mapped.as_ptr() as usize;
    entry.start.store(start, Ordering::SeqCst);
    entry.end.store(start + mapped.len(), Ordering::SeqCst);
    Some(Watched(entry))
}

fn free_entry(watch: &Watch, path: &Path) -> Option<&'static Entry> {
    let (order, free) = (Ordering::SeqCst, |entry: &&Entry| !entry.is_taken.load(Ordering::SeqCst));
    entries(watch)
        .filter(free)
        .filter(|entry| entry.path == path)
        .find(|entry| entry.is_taken.compare_exchange(false, true, order, order).is_ok())
}

fn new_entry(watch: &Watch, path: &Path) -> &'static Entry {
    let entry = Box::leak(Box::new(Entry {
        path: path.to_owned(),
        message: (watch.message)(path).into_bytes(),
        is_taken: AtomicBool::new(true),
        start: AtomicUsize::new(0),
        end: AtomicUsize::new(0),
        older: None,
    }));
    let mut newest = watch.newest.load(Ordering::SeqCst);
    loop {
        // SAFETY: entries are leaked, so they live for ever.
        entry.older = unsafe { newest.as_ref() };
        let own: *mut Entry = entry;
        match watch.newest.compare_exchange(newest, own, Ordering::SeqCst, Ordering::SeqCst) {
            // SAFETY: as above, and nothing of it that is no atomic changes any more.
            Ok(_) => return unsafe { &*own },
            Err(other) => newest = other,
        }
    }
}

fn entries(watch: &Watch) -> impl Iterator<Item = &'static Entry> {
    // SAFETY: entries are leaked, so they live for ever.
    let newest = unsafe { watch.newest.load(Ordering::SeqCst).as_ref() };
    std::iter::successors(newest, |entry: &&'static Entry| entry.older)
}

/// Says which file it was. Nothing here allocates, locks or panics.
extern "C" fn on_bus_error(signal: c_int, info: *mut libc::siginfo_t, _: *mut c_void) {
    // SAFETY: the handler is installed after the watch stands, which is never freed.
    let Some(watch) = (unsafe { WATCH.load(Ordering::SeqCst).as_ref() }) else { return };
    // SAFETY: the system hands over what SA_SIGINFO promises; for SIGBUS it holds an address.
    let address = unsafe { (*info).si_addr() } as usize;
    let lost = entries(watch).find(|entry| {
        let end = entry.end.load(Ordering::SeqCst);
        (entry.start.load(Ordering::SeqCst)..end).contains(&address)
    });
    if let Some(lost) = lost {
        while watch.is_told.swap(true, Ordering::SeqCst) {
            // SAFETY: it may be called in a handler. The thread that came first ends the process.
            unsafe { libc::pause() };
        }
        let mut left = &lost.message[..];
        while !left.is_empty() {
            // SAFETY: the pointer and the length are those of a slice.
            let count = unsafe { libc::write(2, left.as_ptr().cast(), left.len()) };
            match usize::try_from(count) {
                Ok(count) if count > 0 => left = left.get(count..).unwrap_or_default(),
                _ => break,
            }
        }
        // SAFETY: it may be called in a handler, and nothing is to be cleaned up by a process in this state.
        unsafe { libc::_exit(watch.code) }
    }
    // SAFETY: none of our files. What was there before handles the fault when it happens again.
    unsafe { libc::sigaction(signal, &watch.previous, ptr::null_mut()) };
}
