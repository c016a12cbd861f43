//! Publishing: what is made known outside a run, beside its steps.

use skein_core::engine::Publication;

use super::Shared;
use crate::hands::{Published, Running};

pub(super) fn publish(_shared: &Shared, _running: Running<'_>, _item: Publication, published: Published) {
    published.tell(None);
}
