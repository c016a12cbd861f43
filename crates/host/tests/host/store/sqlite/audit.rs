//! Audit records that someone changes on the disk.

use skein_host::{
    audit::{AuditChain, AuditChainError},
    store::{SqliteStore, Store, StoredAuditRecord},
};

use super::raw;
use crate::store::audit::{entry, kept, told};

fn broken(store: &SqliteStore) -> Option<AuditChainError> {
    let mut chain = AuditChain::default();
    let follow = |noted: StoredAuditRecord| chain.verify_next(&noted.line).err();
    kept(store, 0).into_iter().find_map(follow)
}

#[test]
fn a_record_is_not_changed_or_removed_by_chance() {
    let dir = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(dir.path()).unwrap();
    store.append_audit(&[entry("one")]).unwrap();
    for change in ["DELETE FROM audit", "UPDATE audit SET line = x'00'", "UPDATE audit SET seq = 7"] {
        let refused = raw(dir.path()).execute(change, []).unwrap_err().to_string();
        assert!(refused.contains("records of the audit stay"), "{refused}");
    }
    assert_eq!(told(&store), ["one"]);
}

/// For every stored byte, a record stored as text, and a removed record: the chain continues, and the check names the
/// record.
#[test]
fn whatever_byte_is_changed_on_the_disk_its_record_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(dir.path()).unwrap();
    store.append_audit(&[entry("one"), entry("two"), entry("three")]).unwrap();
    let db = raw(dir.path());
    db.execute_batch("DROP TRIGGER audit_unchanged; DROP TRIGGER audit_kept").unwrap();
    let put = |seq: u64, line: &[u8]| {
        let seq = i64::try_from(seq).unwrap();
        db.execute("UPDATE audit SET line = ?2 WHERE seq = ?1", rusqlite::params![seq, line]).unwrap();
    };
    for noted in kept(&store, 0) {
        for at in 0..noted.line.len() {
            let mut line = noted.line.clone();
            line[at] ^= 1;
            put(noted.seq, &line);
            let found = broken(&store).unwrap_or_else(|| panic!("byte {at} of {}", noted.seq));
            assert_eq!(found.seq(), noted.seq, "byte {at}: {found}");
        }
        put(noted.seq, &noted.line);
    }
    assert_eq!(broken(&store), None);
    db.execute("UPDATE audit SET line = CAST(line AS TEXT) || ' ' WHERE seq = 2", []).unwrap();
    store.append_audit(&[entry("four")]).unwrap();
    assert_eq!(broken(&store).map(|broken| broken.seq()), Some(2), "what comes after changes nothing");
    db.execute("DELETE FROM audit WHERE seq = 1", []).unwrap();
    assert_eq!(broken(&store).map(|broken| broken.seq()), Some(1));
}
