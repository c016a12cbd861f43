//! Whether generated workflows are valid, small, and varied.
use super::*;

#[test]
fn the_same_seed_gives_the_same_workflow() {
    let of = |seed| format!("{:?}", workflow(seed, Size::small()));
    assert_eq!(of(9), of(9));
    assert_ne!(of(9), of(10));
}
