//! The table of jobs, in an embedded database: what was accepted is there after whatever happens to the process.

use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rusqlite::{Connection, OptionalExtension, Row, params};

use super::job::{Failure, Job, Made, Status};
use crate::ask::{Ask, Makes};
use crate::error::Result;

/// The version of the table that this reads and writes.
const VERSION: i64 = 2;

/// Of the last so many jobs it is remembered where they stood, if they were removed.
const REMEMBERED: i64 = 100_000;

const SCHEMA: &str = "
CREATE TABLE IF NOT EXISTS jobs (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    client TEXT NOT NULL,
    makes TEXT NOT NULL,
    ask TEXT NOT NULL,
    status TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    started_at INTEGER,
    completed_at INTEGER,
    width INTEGER NOT NULL,
    height INTEGER NOT NULL,
    frames INTEGER NOT NULL,
    fps REAL,
    error_code TEXT,
    error_message TEXT,
    bytes INTEGER NOT NULL DEFAULT 0,
    made TEXT,
    begun INTEGER NOT NULL DEFAULT 0
);
CREATE TABLE IF NOT EXISTS removed (
    id TEXT PRIMARY KEY,
    client TEXT NOT NULL,
    number INTEGER NOT NULL
);
CREATE INDEX IF NOT EXISTS removed_by_number ON removed (number);
CREATE INDEX IF NOT EXISTS jobs_by_status ON jobs (status, number);
CREATE INDEX IF NOT EXISTS jobs_by_client ON jobs (client, makes, number);
";

const COLUMNS: &str = "number, id, client, makes, ask, status, created_at, completed_at, width, height, frames, fps, \
                       error_code, error_message, bytes, made, started_at, begun";

/// A job that waits.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Waiting {
    pub(crate) id: String,
    pub(crate) client: String,
    /// How often it was begun before.
    pub(crate) begun: i64,
}

/// Which jobs a page of a list holds.
#[derive(Clone, Debug)]
pub(crate) struct Page<'a> {
    /// Whose; everybody's where nobody has a name.
    pub(crate) client: Option<&'a str>,
    pub(crate) makes: &'a str,
    /// Those beyond this one.
    pub(crate) after: Option<i64>,
    pub(crate) ascending: bool,
    pub(crate) limit: usize,
}

/// The table. Readers do not wait for writers.
pub(crate) struct Table {
    writer: Mutex<Connection>,
    reader: Mutex<Connection>,
}

impl Table {
    /// Opens or makes the table of a file.
    pub(crate) fn open(path: &Path) -> Result<Table> {
        let open = || -> rusqlite::Result<Connection> {
            let connection = Connection::open(path)?;
            connection.busy_timeout(std::time::Duration::from_secs(10))?;
            // What was answered must survive a loss of power as well.
            connection.pragma_update(None, "journal_mode", "WAL")?;
            connection.pragma_update(None, "synchronous", "FULL")?;
            Ok(connection)
        };
        let writer = open()?;
        let version: i64 = writer.pragma_query_value(None, "user_version", |row| row.get(0))?;
        if version > VERSION {
            return Err(crate::Error::Settings(format!(
                "{} was written by a newer version of moviola; use that one, or another folder",
                path.display()
            )));
        }
        writer.execute_batch(SCHEMA)?;
        let newer = "SELECT COUNT(*) FROM pragma_table_info('jobs') WHERE name = 'begun'";
        if writer.query_row(newer, [], |row| row.get::<_, i64>(0))? == 0 {
            writer.execute_batch("ALTER TABLE jobs ADD COLUMN begun INTEGER NOT NULL DEFAULT 0")?;
        }
        writer.pragma_update(None, "user_version", VERSION)?;
        Ok(Table { writer: Mutex::new(writer), reader: Mutex::new(open()?) })
    }

    fn writer(&self) -> MutexGuard<'_, Connection> {
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn reader(&self) -> MutexGuard<'_, Connection> {
        self.reader.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a job that waits.
    pub(crate) fn insert(&self, job: &Job) -> Result<()> {
        let ask = serde_json::to_string(&job.ask).expect("what was asked for is plain JSON");
        self.writer().execute(
            "INSERT INTO jobs (id, client, makes, ask, status, created_at, width, height, frames, fps, bytes)
             VALUES (?1, ?2, ?3, ?4, 'queued', ?5, ?6, ?7, ?8, ?9, ?10)",
            params![
                job.id,
                job.client,
                job.ask.makes.name(),
                ask,
                job.created_at,
                job.size[2] as i64,
                job.size[1] as i64,
                job.size[0] as i64,
                job.fps,
                job.bytes as i64
            ],
        )?;
        Ok(())
    }

    /// A job by its id.
    pub(crate) fn find(&self, id: &str) -> Result<Option<Job>> {
        let query = format!("SELECT {COLUMNS} FROM jobs WHERE id = ?1");
        Ok(self.reader().prepare_cached(&query)?.query_row([id], job).optional()?)
    }

    /// A page of jobs.
    pub(crate) fn list(&self, page: &Page<'_>) -> Result<Vec<Job>> {
        let (beyond, order) = if page.ascending { (">", "ASC") } else { ("<", "DESC") };
        let query = format!(
            "SELECT {COLUMNS} FROM jobs WHERE makes = ?1 AND (?2 IS NULL OR client = ?2)
             AND (?3 IS NULL OR number {beyond} ?3) ORDER BY number {order} LIMIT ?4"
        );
        let reader = self.reader();
        let mut statement = reader.prepare_cached(&query)?;
        let found = statement
            .query_map(params![page.makes, page.client, page.after, page.limit as i64], job)?;
        Ok(found.collect::<rusqlite::Result<Vec<Job>>>()?)
    }

    /// Those that wait, the oldest first.
    pub(crate) fn waiting(&self) -> Result<Vec<Waiting>> {
        let reader = self.reader();
        let mut statement = reader.prepare_cached(
            "SELECT id, client, begun FROM jobs WHERE status = 'queued' ORDER BY number",
        )?;
        let found = statement.query_map([], |row| {
            Ok(Waiting { id: row.get(0)?, client: row.get(1)?, begun: row.get(2)? })
        })?;
        Ok(found.collect::<rusqlite::Result<Vec<_>>>()?)
    }

    /// How many wait, and how many of them are of a client.
    pub(crate) fn count_waiting(&self, client: Option<&str>) -> Result<[usize; 2]> {
        let reader = self.reader();
        let mut statement = reader.prepare_cached(
            "SELECT COUNT(*), COUNT(*) FILTER (WHERE client = ?1) FROM jobs WHERE status = 'queued'",
        )?;
        let count = |row: &Row<'_>, at: usize| row.get::<_, i64>(at).map(|own| own.max(0) as usize);
        Ok(statement.query_row([client], |row| Ok([count(row, 0)?, count(row, 1)?]))?)
    }

    /// All ids.
    pub(crate) fn ids(&self) -> Result<Vec<String>> {
        let reader = self.reader();
        let mut statement = reader.prepare_cached("SELECT id FROM jobs")?;
        let found = statement.query_map([], |row| row.get(0))?;
        Ok(found.collect::<rusqlite::Result<Vec<_>>>()?)
    }

    /// Those that are over, the oldest first: id, when it ended, and its bytes.
    pub(crate) fn over(&self) -> Result<Vec<(String, i64, u64)>> {
        let reader = self.reader();
        let mut statement = reader.prepare_cached(
            "SELECT id, completed_at, bytes FROM jobs WHERE status IN ('completed', 'failed') ORDER BY completed_at, number",
        )?;
        let found = statement.query_map([], |row| {
            Ok((row.get(0)?, row.get(1)?, row.get::<_, i64>(2)?.max(0) as u64))
        })?;
        Ok(found.collect::<rusqlite::Result<Vec<_>>>()?)
    }

    /// Says that a job is worked on; whether it is still there.
    pub(crate) fn begin(&self, id: &str, now: i64) -> Result<bool> {
        let sql = "UPDATE jobs SET status = 'in_progress', started_at = ?2, begun = begun + 1
                   WHERE id = ?1 AND status = 'queued'";
        Ok(self.writer().execute(sql, params![id, now])? == 1)
    }

    /// Lets a job wait again, as one that was not begun.
    pub(crate) fn requeue(&self, id: &str) -> Result<()> {
        let sql = "UPDATE jobs SET status = 'queued', started_at = NULL, begun = begun - 1
                   WHERE id = ?1 AND status = 'in_progress'";
        self.writer().execute(sql, [id])?;
        Ok(())
    }

    /// Lets all wait again that a process left when it ended.
    pub(crate) fn requeue_all(&self) -> Result<usize> {
        let sql =
            "UPDATE jobs SET status = 'queued', started_at = NULL WHERE status = 'in_progress'";
        Ok(self.writer().execute(sql, [])?)
    }

    /// Says what was made; whether the job is still there.
    pub(crate) fn complete(&self, id: &str, now: i64, made: &Made) -> Result<bool> {
        let text = serde_json::to_string(made).expect("what was made is plain JSON");
        let sql = "UPDATE jobs SET status = 'completed', completed_at = ?2, bytes = ?3, made = ?4
                   WHERE id = ?1 AND status = 'in_progress'";
        Ok(self.writer().execute(sql, params![id, now, made.bytes as i64, text])? == 1)
    }

    /// Says why a job came to nothing.
    pub(crate) fn fail(&self, id: &str, now: i64, failure: &Failure) -> Result<()> {
        let sql = "UPDATE jobs SET status = 'failed', completed_at = ?2, error_code = ?3, error_message = ?4 WHERE id = ?1";
        self.writer().execute(sql, params![id, now, failure.code, failure.message])?;
        Ok(())
    }

    /// Removes a job; its place in the order is remembered for a while.
    pub(crate) fn remove(&self, id: &str) -> Result<()> {
        let mut writer = self.writer();
        let change = writer.transaction()?;
        let keep = "INSERT OR REPLACE INTO removed (id, client, number) SELECT id, client, number FROM jobs WHERE id = ?1";
        change.execute(keep, [id])?;
        change.execute("DELETE FROM jobs WHERE id = ?1", [id])?;
        let forget = "DELETE FROM removed WHERE number <= (SELECT MAX(number) FROM removed) - ?1";
        change.execute(forget, [REMEMBERED])?;
        Ok(change.commit()?)
    }

    /// The place of a job in the order, also of one that was removed not long ago.
    pub(crate) fn number(&self, id: &str, client: Option<&str>) -> Result<Option<i64>> {
        let reader = self.reader();
        let mut statement = reader.prepare_cached(
            "SELECT number FROM (SELECT id, client, number FROM jobs UNION ALL SELECT id, client, number FROM removed)
             WHERE id = ?1 AND (?2 IS NULL OR client = ?2)",
        )?;
        Ok(statement.query_row(params![id, client], |row| row.get(0)).optional()?)
    }

    /// Removes the jobs that a client waited for when the process ended: nobody will ask for them.
    pub(crate) fn remove_unfinished_images(&self) -> Result<()> {
        let sql = "DELETE FROM jobs WHERE makes = 'image' AND status IN ('queued', 'in_progress')";
        self.writer().execute(sql, [])?;
        Ok(())
    }

    /// How many jobs there are of each status.
    pub(crate) fn counts(&self) -> Result<Vec<(String, i64)>> {
        let reader = self.reader();
        let mut statement =
            reader.prepare_cached("SELECT status, COUNT(*) FROM jobs GROUP BY status")?;
        let found = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
        Ok(found.collect::<rusqlite::Result<Vec<_>>>()?)
    }
}

/// A job of a row of [`COLUMNS`]. One whose texts cannot be read has failed, and harms no other.
fn job(row: &Row<'_>) -> rusqlite::Result<Job> {
    let ask: String = row.get(4)?;
    let made: Option<String> = row.get(15)?;
    let status: String = row.get(5)?;
    let code: Option<String> = row.get(12)?;
    let failure = match code {
        Some(code) => {
            Some(Failure { code, message: row.get::<_, Option<String>>(13)?.unwrap_or_default() })
        }
        None => None,
    };
    let side = |at: usize| row.get::<_, i64>(at).map(|side| side.max(0) as usize);
    let makes: String = row.get(3)?;
    let read_ask = serde_json::from_str(&ask);
    let read_made = made.map(|made| serde_json::from_str(&made)).transpose();
    let is_whole = read_ask.is_ok() && read_made.is_ok();
    let job = Job {
        number: row.get(0)?,
        id: row.get(1)?,
        client: row.get(2)?,
        ask: read_ask.unwrap_or_else(|_| Ask::lost(Makes::named(&makes))),
        status: Status::named(&status),
        created_at: row.get(6)?,
        started_at: row.get(16)?,
        begun: row.get(17)?,
        completed_at: row.get(7)?,
        size: [side(10)?, side(9)?, side(8)?],
        fps: row.get(11)?,
        failure,
        bytes: row.get::<_, i64>(14)?.max(0) as u64,
        made: read_made.unwrap_or_default(),
    };
    Ok(if is_whole { job } else { job.lost() })
}
