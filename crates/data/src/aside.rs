//! Files and folders that are made beside their target and appear whole or not at all.
//!
//! This is the one place of the workspace that does so. What is being made has a name that nobody can
//! foresee and is created exclusively, so that no link planted there is followed; it gets the
//! permissions that anything new gets (0666 or 0777 less the umask), is synced, and takes its name by
//! a rename. Dropping it removes what there is. A device or a pipe is written to as it is, when all
//! is there: it is never replaced by a file. `-` is the standard output.
//!
//! A process that is ended by force cannot drop anything. What it was making is locked for as long as it
//! lives, so whoever makes the same file next knows what was left behind, and removes it.

use std::fs::{self, File};
use std::io::{self, BufWriter, ErrorKind, Result, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::process;
use std::time::Duration;

use tempfile::{Builder, NamedTempFile, TempDir};

/// How the name of what is not finished ends.
pub const UNFINISHED: &str = ".part";

/// The target that is the standard output.
pub const STDOUT: &str = "-";

/// What is being made and not locked is given so long to be locked by whoever has just begun it.
const NEWBORN: Duration = Duration::from_secs(10);

/// What happens to a file that stands at the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Existing {
    /// It stays, and nothing is written.
    Refuse,
    /// It is replaced when the new one is whole. Of folders, only an empty one is.
    Replace,
}

/// A file that is being written. Dropping it removes what there is.
#[derive(Debug)]
pub struct AsideFile {
    target: PathBuf,
    existing: Existing,
    file: BufWriter<Aside>,
}

/// Where the bytes are until they are all there.
#[derive(Debug)]
enum Aside {
    /// Beside the target.
    Named(NamedTempFile),
    /// Without a name: the target is no regular file, and could not be written to and fro.
    Unnamed(File),
}

impl Aside {
    fn file(&mut self) -> &mut File {
        match self {
            Aside::Named(file) => file.as_file_mut(),
            Aside::Unnamed(file) => file,
        }
    }
}

impl Write for Aside {
    fn write(&mut self, bytes: &[u8]) -> Result<usize> {
        self.file().write(bytes)
    }

    fn flush(&mut self) -> Result<()> {
        self.file().flush()
    }
}

impl Seek for Aside {
    fn seek(&mut self, position: SeekFrom) -> Result<u64> {
        self.file().seek(position)
    }
}

impl AsideFile {
    /// Begins a file that is to appear at `target`.
    ///
    /// # Errors
    /// The target's folder is missing or not writable, or something stands at the target that may not
    /// be replaced.
    pub fn create(target: &Path, existing: Existing) -> Result<AsideFile> {
        let folder = folder_of(target)?;
        let aside = match is_special(target) {
            true => Aside::Unnamed(temporary(tempfile::tempfile)?),
            false => {
                check_free(target, existing)?;
                remove_left_behind(target);
                let file = beside(target, 0o666, |builder| builder.tempfile_in(folder))?;
                // Where nothing can be locked, nothing is ever taken for left behind.
                let _ = file.as_file().try_lock();
                Aside::Named(file)
            }
        };
        Ok(AsideFile { target: target.to_owned(), existing, file: BufWriter::new(aside) })
    }

    /// A whole file, all of it on the disk, that is to take the place of what is at `target`.
    ///
    /// # Errors
    /// As [`AsideFile::create`], or the disk is full.
    pub fn prepared(target: &Path, bytes: &[u8]) -> Result<AsideFile> {
        let mut file = AsideFile::create(target, Existing::Replace)?;
        file.write_all(bytes)?;
        file.flush()?;
        file.file.get_mut().file().sync_all()?;
        Ok(file)
    }

    /// A second file in the same folder, without a name, for what cannot be written yet.
    ///
    /// # Errors
    /// The system's.
    pub fn scratch(&self) -> Result<File> {
        match self.file.get_ref() {
            Aside::Named(_) => tempfile::tempfile_in(folder_of(&self.target)?),
            Aside::Unnamed(_) => temporary(tempfile::tempfile),
        }
    }

    /// A second file for a program that is told its name. Dropping it removes it; what a process that was ended by
    /// force left of it goes with the rest.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn named_scratch(&self) -> Result<NamedTempFile> {
        remove_left_behind(&self.target);
        let file = match self.file.get_ref() {
            Aside::Named(_) => {
                let folder = folder_of(&self.target)?;
                beside(&self.target, 0o600, |builder| builder.tempfile_in(folder))
            }
            Aside::Unnamed(_) => {
                temporary(|| beside(&self.target, 0o600, |builder| builder.tempfile()))
            }
        }?;
        // Elsewhere a lock would keep the program out.
        if cfg!(unix) {
            let _ = file.as_file().try_lock();
        }
        Ok(file)
    }

    /// Writes over what is at `position`.
    ///
    /// # Errors
    /// The system's.
    pub fn overwrite(&mut self, position: u64, bytes: &[u8]) -> Result<()> {
        self.file.seek(SeekFrom::Start(position))?;
        self.file.write_all(bytes)
    }

    /// Lets the file appear at its target.
    ///
    /// # Errors
    /// The system's, or something came to stand at the target that may not be replaced.
    pub fn commit(self) -> Result<()> {
        let aside = self.file.into_inner().map_err(io::IntoInnerError::into_error)?;
        match aside {
            Aside::Named(file) => {
                file.as_file().sync_all()?;
                let named = match self.existing {
                    Existing::Replace => file.persist(&self.target),
                    Existing::Refuse => file.persist_noclobber(&self.target),
                };
                named.map_err(|error| error.error)?;
                sync_folder(&self.target)
            }
            Aside::Unnamed(mut file) => {
                file.seek(SeekFrom::Start(0))?;
                let mut target: Box<dyn Write> = match is_stdout(&self.target) {
                    true => Box::new(io::stdout()),
                    false => Box::new(File::options().write(true).open(&self.target)?),
                };
                io::copy(&mut file, &mut target)?;
                target.flush()
            }
        }
    }
}

impl Write for AsideFile {
    fn write(&mut self, bytes: &[u8]) -> Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> Result<()> {
        self.file.flush()
    }
}

/// A folder that is being filled. Dropping it removes what there is.
#[derive(Debug)]
pub struct AsideFolder {
    target: PathBuf,
    folder: TempDir,
    /// Locked for as long as it is filled, where a folder can be.
    _lock: Option<File>,
}

impl AsideFolder {
    /// Begins a folder that is to appear at `target`.
    ///
    /// # Errors
    /// The target's folder is missing or not writable, or something stands at the target that may not
    /// be replaced.
    pub fn create(target: &Path, existing: Existing) -> Result<AsideFolder> {
        if is_stdout(target) {
            let what = "it is the standard output, which takes one file and no folder; give a name";
            return Err(io::Error::new(ErrorKind::InvalidInput, what));
        }
        let parent = folder_of(target)?;
        let is_empty = || fs::read_dir(target).is_ok_and(|mut entries| entries.next().is_none());
        match (fs::symlink_metadata(target), existing) {
            (Err(error), _) if error.kind() == ErrorKind::NotFound => {}
            (Ok(_), Existing::Replace) if is_empty() => {}
            (Ok(_), _) if target.is_dir() => {
                let what = match is_empty() {
                    true => "there is a folder of this name; choose another name or remove it",
                    false => "the folder is not empty; choose another name or empty it",
                };
                return Err(io::Error::new(ErrorKind::AlreadyExists, what));
            }
            (Ok(_), _) => return Err(there_is_a_file()),
            (Err(error), _) => return Err(error),
        }
        remove_left_behind(target);
        let folder = beside(target, 0o777, |builder| builder.tempdir_in(parent))?;
        let lock = File::open(folder.path()).ok().filter(|folder| folder.try_lock().is_ok());
        Ok(AsideFolder { target: target.to_owned(), folder, _lock: lock })
    }

    /// Where its files go until it appears.
    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Brings all of it to the disk, which takes its time; [`AsideFolder::commit`] has little to do
    /// after it.
    ///
    /// # Errors
    /// The system's.
    pub fn sync(&self) -> Result<()> {
        sync_all(self.folder.path())
    }

    /// Lets the folder appear at its target.
    ///
    /// # Errors
    /// The system's, or something came to stand at the target.
    pub fn commit(self) -> Result<()> {
        self.sync()?;
        // Renaming onto an empty folder works on some systems only; a full one is left alone.
        if cfg!(not(unix)) && self.target.is_dir() {
            fs::remove_dir(&self.target)?;
        }
        fs::rename(self.folder.path(), &self.target)?;
        // What it would remove has moved.
        let _ = self.folder.keep();
        sync_folder(&self.target)
    }
}

/// Writes a whole file in the place of what is there. A failure leaves what was there before.
///
/// # Errors
/// The system's.
pub fn write_whole(path: &Path, bytes: &[u8]) -> Result<()> {
    AsideFile::prepared(path, bytes)?.commit()
}

/// Opens a file that is changed where it is. A link there is not followed, and a pipe not waited for: in a
/// folder of somebody else it may lead anywhere.
///
/// # Errors
/// The system's, or something else than a file is there.
pub fn open_in_place(path: &Path, options: &fs::OpenOptions) -> Result<File> {
    match fs::symlink_metadata(path) {
        Ok(found) if !found.is_file() => {
            let what = match found.is_symlink() {
                true => "it is a link, which is not followed; put the file itself there",
                false => "it is no file; remove it",
            };
            Err(io::Error::new(ErrorKind::InvalidInput, what))
        }
        _ => options.open(path),
    }
}

/// Checks that a file can be made at `path`, without leaving one.
///
/// # Errors
/// Its folder is missing or not writable, or the path is a folder.
pub fn check_writable(path: &Path) -> Result<()> {
    AsideFile::create(path, Existing::Replace).map(drop)
}

/// Checks that a file can be made at `path` once the folders that lead there are made.
///
/// # Errors
/// The nearest of them that is there is none or not writable, or the path is a folder.
pub fn check_writable_below(path: &Path) -> Result<()> {
    if path.file_name().is_none() {
        return check_writable(path);
    }
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    match parent.filter(|parent| !parent.exists()) {
        None => check_writable(path),
        // Anything in the nearest folder can be made if this can.
        Some(missing) => check_writable_below(missing),
    }
}

/// Makes the folders that lead to `path`, where they are missing.
///
/// # Errors
/// The system's.
pub fn make_parents(path: &Path) -> Result<()> {
    match path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        Some(parent) => fs::create_dir_all(parent),
        None => Ok(()),
    }
}

/// Removes what this process is making at `target`: for one that is about to be ended.
pub fn remove_own_unfinished(target: &Path) {
    for unfinished in unfinished(target).filter(|own| own.process == process::id()) {
        unfinished.remove();
    }
}

/// Removes what processes that are no more were making at `target`.
fn remove_left_behind(target: &Path) {
    unfinished(target).filter(Unfinished::is_left_behind).for_each(|own| own.remove());
}

/// Something that a process is or was making.
struct Unfinished {
    path: PathBuf,
    process: u32,
}

impl Unfinished {
    fn is_left_behind(&self) -> bool {
        let Ok(found) = fs::symlink_metadata(&self.path) else { return false };
        let age = found.modified().ok().and_then(|moment| moment.elapsed().ok());
        let is_old = age.is_some_and(|age| age > NEWBORN);
        let is_ours = found.is_file() || found.is_dir();
        is_ours && is_old && File::open(&self.path).is_ok_and(|file| file.try_lock().is_ok())
    }

    /// What cannot be removed stays.
    fn remove(&self) {
        let _ = match self.path.is_dir() {
            true => fs::remove_dir_all(&self.path),
            false => fs::remove_file(&self.path),
        };
    }
}

/// What is being made at `target` by whomever.
fn unfinished(target: &Path) -> impl Iterator<Item = Unfinished> {
    let prefix = prefix(target);
    let folder = match is_special(target) {
        true => Ok(tempfile::env::temp_dir()),
        false => folder_of(target).map(Path::to_owned),
    };
    let entries = folder.and_then(fs::read_dir).into_iter().flatten().flatten();
    entries.filter_map(move |entry| {
        let name = entry.file_name().into_string().ok()?;
        let (process, random) =
            name.strip_prefix(&prefix)?.strip_suffix(UNFINISHED)?.split_once('.')?;
        let is_random = random.len() == RANDOM && random.chars().all(char::is_alphanumeric);
        let process = process.parse().ok().filter(|_| is_random)?;
        Some(Unfinished { path: entry.path(), process })
    })
}

/// A new or renamed file is safe only once its folder is.
pub(crate) fn sync_folder(path: &Path) -> Result<()> {
    match cfg!(unix) {
        true => File::open(folder_of(path)?)?.sync_all(),
        false => Ok(()),
    }
}

/// Everything within a folder reaches the disk.
fn sync_all(folder: &Path) -> Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        match path.is_dir() {
            true => sync_all(&path)?,
            false => File::open(&path)?.sync_all()?,
        }
    }
    match cfg!(unix) {
        true => File::open(folder)?.sync_all(),
        false => Ok(()),
    }
}

/// Whether the path is the standard output.
pub fn is_stdout(path: &Path) -> bool {
    path == Path::new(STDOUT)
}

/// Whether the path leads to a device, a pipe, the standard output or the like.
pub fn is_special(path: &Path) -> bool {
    is_stdout(path) || fs::metadata(path).is_ok_and(|found| !found.is_file() && !found.is_dir())
}

/// Whether the path leads to a named pipe, whose opening waits for a reader.
pub fn is_pipe(path: &Path) -> bool {
    #[cfg(unix)]
    {
        use std::os::unix::fs::FileTypeExt;
        fs::metadata(path).is_ok_and(|found| found.file_type().is_fifo())
    }
    #[cfg(not(unix))]
    {
        let _ = path;
        false
    }
}

fn check_free(target: &Path, existing: Existing) -> Result<()> {
    if target.is_dir() {
        let what = "there is a folder of this name; choose another name or remove it";
        return Err(io::Error::new(ErrorKind::IsADirectory, what));
    }
    match existing == Existing::Refuse && fs::symlink_metadata(target).is_ok() {
        true => Err(there_is_a_file()),
        false => Ok(()),
    }
}

fn there_is_a_file() -> io::Error {
    let what = "there is a file of this name; choose another name or remove it";
    io::Error::new(ErrorKind::AlreadyExists, what)
}

/// Makes something in the folder for what is temporary; the error says which that is.
fn temporary<T>(make: impl FnOnce() -> Result<T>) -> Result<T> {
    make().map_err(|error| {
        let folder = tempfile::env::temp_dir();
        let what = format!(
            "until all of it is there it is kept in {}, and that fails ({error}); let TMPDIR name another folder",
            folder.display()
        );
        io::Error::new(error.kind(), what)
    })
}

/// The folder that holds `target`, which must exist.
fn folder_of(target: &Path) -> Result<&Path> {
    let wrong = |kind, what: String| Err(io::Error::new(kind, what));
    if target.file_name().is_none() {
        return wrong(ErrorKind::InvalidFilename, "it names no file; give it a name".to_owned());
    }
    let folder = match target.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    match folder.is_dir() {
        true => Ok(folder),
        false => {
            let what = format!("there is no folder {}; make it first", folder.display());
            wrong(ErrorKind::NotFound, what)
        }
    }
}

/// Letters that nobody can foresee.
const RANDOM: usize = 6;

/// How the name of what is made beside `target` begins.
fn prefix(target: &Path) -> String {
    format!(".{}.", target.file_name().unwrap_or_default().to_string_lossy())
}

/// Makes something beside `target`, under a name like `.clip.mp4.4711.Xy12kQ.part` with the number of
/// this process, and with the permissions that anything new has.
fn beside<T>(
    target: &Path,
    mode: u32,
    make: impl FnOnce(&Builder<'_, '_>) -> Result<T>,
) -> Result<T> {
    let prefix = format!("{}{}.", prefix(target), process::id());
    let mut builder = Builder::new();
    builder.prefix(&prefix).rand_bytes(RANDOM).suffix(UNFINISHED);
    permit(&mut builder, mode);
    make(&builder)
}

/// By default what is temporary belongs to its owner alone; this will be kept.
#[cfg(unix)]
fn permit(builder: &mut Builder<'_, '_>, mode: u32) {
    use std::os::unix::fs::PermissionsExt;
    builder.permissions(fs::Permissions::from_mode(mode));
}

#[cfg(not(unix))]
fn permit(_builder: &mut Builder<'_, '_>, _mode: u32) {}
