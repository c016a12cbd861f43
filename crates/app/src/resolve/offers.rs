//! Index of the tools that drivers offer, so that a thousand tools are not each searched in a thousand drivers.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

use skein_dialects::Aip15Tool;

use super::LoadedDriver;

/// The indexes of a driver and of an entry of its `implements`.
type OfferIndex = (usize, usize);

/// Entries by the tool that they name: by its id, or by the path of its file.
#[derive(Debug, Default)]
pub(super) struct DriverOffers {
    by_id: BTreeMap<String, Vec<(Option<String>, OfferIndex)>>,
    by_path: BTreeMap<PathBuf, Vec<OfferIndex>>,
}

impl DriverOffers {
    pub fn from_drivers(all: &[LoadedDriver]) -> DriverOffers {
        let mut offers = DriverOffers::default();
        for (number, found) in all.iter().enumerate() {
            for (entry, offer) in found.driver.implements.iter().enumerate() {
                offers.add_offer(&offer.tool, &found.folder, (number, entry));
            }
        }
        offers
    }

    fn add_offer(&mut self, named: &str, folder: &Path, place: OfferIndex) {
        if named.ends_with(".md") {
            // A path that does not exist names no tool.
            if let Ok(path) = folder.join(named).canonicalize() {
                self.by_path.entry(path).or_default().push(place);
            }
            return;
        }
        // A reference into a package ends with the id.
        let last = named.rsplit('/').next().unwrap_or(named);
        let (id, major) =
            last.split_once('@').map_or((last, None), |(id, major)| (id, Some(major.to_owned())));
        self.by_id.entry(id.to_owned()).or_default().push((major, place));
    }

    /// Returns the entries for a tool, in the order of the drivers.
    pub fn find_offers(&self, tool: &Aip15Tool, path: &Path) -> BTreeSet<OfferIndex> {
        let own = tool.version.split('.').next();
        let fits = |major: &Option<String>| major.is_none() || major.as_deref() == own;
        let by_id = self.by_id.get(&tool.id).into_iter().flatten().filter(|(major, _)| fits(major));
        let by_path = path.canonicalize().ok().and_then(|path| self.by_path.get(&path));
        by_id.map(|(_, place)| *place).chain(by_path.into_iter().flatten().copied()).collect()
    }
}
