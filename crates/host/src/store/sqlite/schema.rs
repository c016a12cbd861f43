//! The tables, and the migration of databases of older versions.
//!
//! A migration goes from one version to the next. All missing ones are applied in one transaction, so that a database
//! has the old version or the new one and never something between. Released migrations are never edited; new ones are
//! added.

use std::path::Path;

use rusqlite::{Connection, config::DbConfig};

use super::{StoreOpenError, state_folder::StateFolder};

/// "Skei", so that a file of another program is not mistaken for ours.
const APPLICATION: i64 = 0x536b_6569;

/// The SQL that migrates a database from version `index` to the next.
const MIGRATIONS: &[&str] = &[RUNS, AUDIT];

const RUNS: &str = "CREATE TABLE definitions (
       hash BLOB PRIMARY KEY,
       content BLOB NOT NULL,  -- the hash of what is frozen
       frozen BLOB NOT NULL
     );
     CREATE TABLE runs (
       key INTEGER PRIMARY KEY,  -- in the order in which they were made
       run TEXT NOT NULL UNIQUE,
       definition BLOB NOT NULL,
       about TEXT NOT NULL,
       head TEXT NOT NULL,
       status TEXT NOT NULL,
       closed INTEGER NOT NULL,
       started INTEGER,
       quarantined TEXT
     );
     CREATE INDEX unfinished ON runs (key) WHERE closed = 0 AND quarantined IS NULL;
     -- Written with each append, so it is small.
     CREATE TABLE fences (
       run INTEGER PRIMARY KEY,
       owner TEXT,
       epoch INTEGER NOT NULL,
       events INTEGER NOT NULL
     );
     CREATE INDEX owned ON fences (owner) WHERE owner IS NOT NULL;
     CREATE TABLE journal (
       row INTEGER PRIMARY KEY,
       run INTEGER NOT NULL,
       seq INTEGER NOT NULL,
       version INTEGER NOT NULL,
       chain BLOB NOT NULL,
       records BLOB NOT NULL
     );
     CREATE UNIQUE INDEX journal_seq ON journal (run, seq);
     CREATE TABLE openings (
       run INTEGER NOT NULL,
       place INTEGER NOT NULL,
       row TEXT NOT NULL,
       PRIMARY KEY (run, place)
     ) WITHOUT ROWID;
     CREATE TABLE dead (
       run INTEGER NOT NULL,
       number INTEGER NOT NULL,
       row TEXT NOT NULL,
       settled TEXT,  -- what was done about it
       PRIMARY KEY (run, number)
     ) WITHOUT ROWID;
     CREATE INDEX unsettled ON dead (run, number) WHERE settled IS NULL;
     CREATE TABLE letters (
       id INTEGER PRIMARY KEY AUTOINCREMENT,
       run INTEGER NOT NULL,
       sender TEXT NOT NULL,
       sent INTEGER NOT NULL,
       body BLOB NOT NULL,
       answer BLOB
     );
     CREATE INDEX unanswered ON letters (run) WHERE answer IS NULL;
     CREATE INDEX answered ON letters (sent) WHERE answer IS NOT NULL;";

/// Records are only added. A process that can write the file can bypass the triggers; `audit::AuditChain` detects that.
const AUDIT: &str = "CREATE TABLE audit (
       seq INTEGER PRIMARY KEY,
       line BLOB NOT NULL
     );
     CREATE TRIGGER audit_kept BEFORE DELETE ON audit
       BEGIN SELECT RAISE(ABORT, 'records of the audit stay'); END;
     CREATE TRIGGER audit_unchanged BEFORE UPDATE ON audit
       BEGIN SELECT RAISE(ABORT, 'records of the audit stay as they are'); END;";

/// Opens a connection that writes. Commits acknowledged on it survive a power loss.
pub(super) fn connect(place: &StateFolder) -> rusqlite::Result<Connection> {
    let db = Connection::open(place.database_path())?;
    // Checkpoints are made by their own thread, and never after a failed sync.
    db.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    db.busy_timeout(super::BUSY)?;
    db.set_prepared_statement_cache_capacity(64);
    Ok(db)
}

/// Configures a connection once the database is known to be ours.
pub(crate) fn configure_connection(db: &Connection) -> rusqlite::Result<()> {
    db.pragma_update(None, "synchronous", "FULL")?;
    db.pragma_update(None, "wal_autocheckpoint", 0)?;
    // In kibibytes: enough for a whole group, so that its pages are written once. Temporary data stays in memory.
    db.pragma_update(None, "cache_size", -16 * 1024)?;
    db.pragma_update(None, "temp_store", "MEMORY")?;
    db.pragma_update(None, "trusted_schema", false)
}

/// Fills a new file with an empty database of this version. It is unused yet, so it is synced once, when complete.
pub(super) fn create_database(path: &Path) -> Result<(), StoreOpenError> {
    let failed = |error| StoreOpenError::Database { path: path.to_owned(), error };
    let mut db = Connection::open(path).map_err(failed)?;
    db.pragma_update(None, "synchronous", "OFF").map_err(failed)?;
    enable_wal(&db, path)?;
    apply_migrations(&mut db, MIGRATIONS, MIGRATIONS.len() as i64).map_err(failed)?;
    db.close().map_err(|(_, error)| failed(error))
}

/// Switches the database to write-ahead logging permanently.
fn enable_wal(db: &Connection, path: &Path) -> Result<(), StoreOpenError> {
    let mode: rusqlite::Result<String> = db.pragma_update_and_check(None, "journal_mode", "WAL", |row| row.get(0));
    match mode.map_err(|error| StoreOpenError::Database { path: path.to_owned(), error })?.as_str() {
        "wal" => Ok(()),
        _ => Err(StoreOpenError::NoWal { path: path.to_owned() }),
    }
}

/// Migrates the database to this version. The caller holds the turnstile; `others` names other users of the database.
pub(super) fn migrate(
    place: &StateFolder,
    db: &mut Connection,
    others: impl FnOnce() -> Result<Option<String>, StoreOpenError>,
) -> Result<(), StoreOpenError> {
    migrate_with(MIGRATIONS, place, db, others)
}

fn migrate_with(
    migrations: &[&str],
    place: &StateFolder,
    db: &mut Connection,
    others: impl FnOnce() -> Result<Option<String>, StoreOpenError>,
) -> Result<(), StoreOpenError> {
    let path = place.database_path();
    let known = migrations.len() as i64;
    let failed = |error| StoreOpenError::Database { path: path.clone(), error };
    let found = read_pragma_number(db, "user_version").map_err(failed)?;
    if !is_skein_database(db, found).map_err(failed)? {
        return Err(StoreOpenError::NotOurs { path });
    }
    if found > known {
        return Err(StoreOpenError::Newer { path, found, known });
    }
    let missing = usize::try_from(found).ok().and_then(|found| migrations.get(found..));
    let Some(missing) = missing else { return Err(StoreOpenError::NotOurs { path }) };
    if missing.is_empty() {
        return Ok(());
    }
    if found > 0
        && let Some(others) = others()?
    {
        return Err(StoreOpenError::InUse { path, found, known, others });
    }
    enable_wal(db, &path)?;
    configure_connection(db).map_err(failed)?;
    apply_migrations(db, missing, known).map_err(failed)
}

fn apply_migrations(db: &mut Connection, missing: &[&str], known: i64) -> rusqlite::Result<()> {
    let tx = db.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
    for step in missing {
        tx.execute_batch(step)?;
    }
    tx.pragma_update(None, "application_id", APPLICATION)?;
    tx.pragma_update(None, "user_version", known)?;
    tx.commit()
}

/// True for a Skein database or an empty one: the file is created before the tables.
fn is_skein_database(db: &Connection, version: i64) -> rusqlite::Result<bool> {
    let tables: i64 = db.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
    let application = read_pragma_number(db, "application_id")?;
    Ok(application == APPLICATION || (application, version, tables) == (0, 0, 0))
}

fn read_pragma_number(db: &Connection, pragma: &str) -> rusqlite::Result<i64> {
    db.pragma_query_value(None, pragma, |row| row.get(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place() -> (tempfile::TempDir, StateFolder) {
        let dir = tempfile::tempdir().unwrap();
        let place = StateFolder::prepare(&dir.path().join("state")).unwrap();
        (dir, place)
    }

    fn alone() -> Result<Option<String>, StoreOpenError> {
        Ok(None)
    }

    #[test]
    fn the_tables_are_made_once() {
        let (_dir, place) = place();
        for _ in 0..2 {
            let mut db = connect(&place).unwrap();
            migrate(&place, &mut db, alone).unwrap();
            assert_eq!(read_pragma_number(&db, "user_version").unwrap(), MIGRATIONS.len() as i64);
        }
    }

    /// Rows from before the audit existed are kept.
    #[test]
    fn a_database_without_an_audit_is_given_one() {
        let (_dir, place) = place();
        let mut db = connect(&place).unwrap();
        migrate_with(&MIGRATIONS[..1], &place, &mut db, alone).unwrap();
        db.execute_batch("INSERT INTO journal VALUES (1, 1, 0, 1, x'00', x'5b5d')").unwrap();
        migrate(&place, &mut db, alone).unwrap();
        let count = |table: &str| {
            let sql = format!("SELECT count(*) FROM {table}");
            db.query_row(&sql, [], |row| row.get::<_, i64>(0)).unwrap()
        };
        assert_eq!((count("journal"), count("audit")), (1, 0));
    }

    #[test]
    fn a_migration_that_fails_half_way_leaves_the_version_before_it() {
        let (_dir, place) = place();
        let mut db = connect(&place).unwrap();
        migrate_with(&["CREATE TABLE a (x)"], &place, &mut db, alone).unwrap();
        let broken = ["CREATE TABLE a (x)", "CREATE TABLE b (x)", "CREATE TABLE b (x)"];
        assert!(migrate_with(&broken, &place, &mut db, alone).is_err());
        assert_eq!(read_pragma_number(&db, "user_version").unwrap(), 1);
        let tables: i64 = db.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0)).unwrap();
        assert_eq!(tables, 1);
        let good = ["CREATE TABLE a (x)", "CREATE TABLE b (x)"];
        migrate_with(&good, &place, &mut db, alone).unwrap();
        assert_eq!(read_pragma_number(&db, "user_version").unwrap(), 2);
    }

    #[test]
    fn a_migration_waits_for_those_of_the_old_version() {
        let (_dir, place) = place();
        let mut db = connect(&place).unwrap();
        migrate_with(&["CREATE TABLE a (x)"], &place, &mut db, alone).unwrap();
        let more = ["CREATE TABLE a (x)", "CREATE TABLE b (x)"];
        let refused = migrate_with(&more, &place, &mut db, || Ok(Some("process 7".into()))).unwrap_err();
        assert!(refused.to_string().contains("process 7"), "{refused}");
        assert_eq!(read_pragma_number(&db, "user_version").unwrap(), 1);
    }

    #[test]
    fn a_database_of_another_program_is_left_alone() {
        let (_dir, place) = place();
        let mut db = connect(&place).unwrap();
        db.execute_batch("CREATE TABLE theirs (x)").unwrap();
        let refused = migrate(&place, &mut db, alone).unwrap_err();
        assert!(matches!(refused, StoreOpenError::NotOurs { .. }), "{refused}");
    }
}
