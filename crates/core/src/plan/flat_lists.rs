//! Lists of numbers, one for each numbered item, in one array.

#[derive(Debug, Clone, Default)]
pub(super) struct FlatLists {
    ends: Vec<u32>,
    items: Vec<u32>,
}

impl FlatLists {
    pub fn with_capacity(lists: usize) -> FlatLists {
        FlatLists { ends: Vec::with_capacity(lists), items: Vec::with_capacity(lists) }
    }

    pub fn push(&mut self, list: impl IntoIterator<Item = u32>) {
        self.items.extend(list);
        self.ends.push(to_u32(self.items.len()));
    }

    /// The number of lists.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    pub fn get(&self, i: usize) -> &[u32] {
        let start = if i == 0 { 0 } else { self.ends[i - 1] };
        &self.items[start as usize..self.ends[i] as usize]
    }

    pub fn iter(&self) -> impl Iterator<Item = &[u32]> {
        (0..self.len()).map(|i| self.get(i))
    }

    /// The items of all lists.
    pub fn items(&self) -> &[u32] {
        &self.items
    }

    /// Returns, for each number, the lists that contain it, in order.
    pub fn invert(&self) -> FlatLists {
        let mut ends = vec![0u32; self.len()];
        self.items.iter().for_each(|item| ends[*item as usize] += 1);
        let mut sum = 0;
        for end in &mut ends {
            sum += std::mem::replace(end, sum);
        }
        // Each end begins at the start of its list and advances to its end.
        let mut items = vec![0; self.items.len()];
        for (i, list) in self.iter().enumerate() {
            for item in list {
                let end = &mut ends[*item as usize];
                items[*end as usize] = to_u32(i);
                *end += 1;
            }
        }
        FlatLists { ends, items }
    }
}

impl<L: IntoIterator<Item = u32>> FromIterator<L> for FlatLists {
    fn from_iter<I: IntoIterator<Item = L>>(lists: I) -> FlatLists {
        let lists = lists.into_iter();
        let mut flat = FlatLists::with_capacity(lists.size_hint().0);
        lists.for_each(|list| flat.push(list));
        flat
    }
}

fn to_u32(count: usize) -> u32 {
    u32::try_from(count).expect("steps and edges are limited")
}

#[cfg(test)]
mod tests {
    use super::FlatLists;

    #[test]
    fn turned_lists_say_who_holds_each() {
        let flat: FlatLists = [vec![], vec![0, 2], vec![0], vec![2]].into_iter().collect();
        let turned: Vec<Vec<u32>> = flat.invert().iter().map(<[u32]>::to_vec).collect();
        assert_eq!(turned, [vec![1, 2], vec![], vec![1, 3], vec![]]);
        assert_eq!((flat.len(), flat.items()), (4, &[0, 2, 0, 2][..]));
    }
}
