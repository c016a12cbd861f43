//! Guarantees of the store on disk alone.

mod audit;
mod damage;
mod ending;
mod inbox;
mod place;
mod process;
pub(crate) mod space;
mod speed;

use std::path::Path;

use rusqlite::Connection;

/// Opens the database behind the store's back.
fn raw(dir: &Path) -> Connection {
    let db = Connection::open(dir.join("skein.db")).unwrap();
    db.execute_batch("PRAGMA busy_timeout = 60000; PRAGMA synchronous = OFF").unwrap();
    db
}
